// Graphs of one structure for many sizes: every integer of their programs as a polynomial of a few sizes.
//
// Recording and planning a function for another batch size mostly gives the same steps over the same kernels
// with other integers in them. A family collects such graphs. From the recorded ones it fits each integer
// (sizes, strides, offsets, extents of blocks, arguments of kernels and operators) as a function of one or
// two sizes of the inputs, exactly and with several samples more than unknowns. Graphs for other sizes are
// then copies with the integers filled in, and arenas laid out anew.
//
// A graph is made only for sizes that the samples speak for:
//   - inside the convex hull of the recorded sizes. Planning decides by thresholds and inequalities between
//     sizes; what holds at the corners holds between them.
//   - in the lattice that the recorded sizes span. If all of them were multiples of eight, so must be the new
//     one: padding and integer division look at remainders.
//   - two or more, because 0 and 1 are special to broadcasting and strides.
//   - with integers for values: where sizes are divided, the fractions say which ones are left out.
// Everything else is recorded, and becomes another sample or the first of another family.
#pragma once

#include <optional>
#include <vector>

#include "compiled/size_polynomial.h"
#include "compiled/specialized_function.h"

namespace fl::compiled {

// A graph with its integers as polynomials of sizes: what a family knows once its samples suffice.
struct SizePlan {
  Ref<CompiledGraph> model;             // the first graph, which the others are copies of
  std::vector<int32_t> class_of;        // of each integer: those that were equal in all samples
  std::vector<Polynomial> polynomials;  // of the classes
  std::vector<int32_t> symbols;  // places of sizes among the integers, of which the first are the inputs'
  Point origin{};                // one of the samples
  Lattice lattice;               // of the differences between samples

  // The integers of all classes; nothing for sizes that are not in the lattice, or too small or large.
  std::optional<std::vector<int64_t>> values_at(const Point& at) const;
  // The graph with these integers; null where something would not fit into its memory.
  Ref<CompiledGraph> instantiate(const std::vector<int64_t>& values) const;
};

class PlanFamily {
 public:
  static constexpr size_t kMaxSamples = 16;

  // Whether graphs like this one can be made for other sizes, which samples alone must show: they run on the
  // host. Grids of kernels and their variants depend on sizes in steps as well.
  static bool accepts(const CompiledGraph& graph);
  // Whether a graph can be written into a package, where every size that is promised is recorded.
  static bool accepts_recorded(const CompiledGraph& graph);

  explicit PlanFamily(const Ref<CompiledGraph>& graph, int most_symbols = 2,
                      size_t most_samples = kMaxSamples);

  // Takes another recorded graph; false if it is of another structure, or its integers contradict the
  // samples.
  bool add(const CompiledGraph& graph);
  // The graph for these inputs; null where the samples do not speak for them.
  Ref<CompiledGraph> instantiate(const Tensor* tensors) const;
  // Whether this many samples should have been enough: their sizes have nothing simple in common.
  bool is_hopeless() const { return !ready_ && samples_ >= 12; }

  bool is_ready() const { return ready_; }
  // Of a family that is ready, or that has one sample: the plan for that alone.
  const SizePlan& plan();
  size_t samples() const { return samples_; }

 private:
  bool fit();
  bool covers(const Point& at) const;
  bool looks_alike(const Tensor* tensors) const;

  SizePlan plan_;
  std::vector<std::vector<int64_t>> values_;  // of each class, in each sample
  size_t samples_ = 0;
  int most_symbols_;
  size_t most_samples_;
  size_t input_integers_ = 0;  // the first integers are sizes and strides of the inputs
  std::vector<bool> is_size_;  // of those: a size

  bool ready_ = false;
  std::vector<Point> points_;  // of the samples
};

}  // namespace fl::compiled

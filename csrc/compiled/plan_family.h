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

#include <array>
#include <optional>
#include <vector>

#include "compiled/specialized_function.h"

namespace fl::compiled {

class PlanFamily {
 public:
  static constexpr int kMaxSymbols = 2;
  static constexpr size_t kMaxSamples = 16;

  // Whether graphs like this one can be made for other sizes: they run on the host.
  static bool accepts(const CompiledGraph& graph);

  explicit PlanFamily(const Ref<CompiledGraph>& graph);

  // Takes another recorded graph; false if it is of another structure, or its integers contradict the
  // samples.
  bool add(const CompiledGraph& graph);
  // The graph for these inputs; null where the samples do not speak for them.
  Ref<CompiledGraph> instantiate(const Tensor* tensors) const;
  // Whether this many samples should have been enough: their sizes have nothing simple in common.
  bool is_hopeless() const { return !ready_ && samples_ >= 12; }

 private:
  using Point = std::array<int64_t, kMaxSymbols>;
  // numerators . monomials / denominator, over the monomials of a basis.
  struct Polynomial {
    int basis = 0;
    std::array<int64_t, 4> numerators{};
    int64_t denominator = 1;
  };
  // Integer combinations of differences between samples, as rows of a triangular matrix.
  struct Lattice {
    Point first{}, second{};
    void add(Point difference);
    bool contains(Point difference) const;
  };

  bool fit();
  std::optional<Polynomial> fit(const std::vector<int64_t>& values, int symbols) const;
  static std::optional<int64_t> evaluate(const Polynomial& polynomial, Point at);
  bool covers(Point at) const;
  bool looks_alike(const Tensor* tensors) const;

  Ref<CompiledGraph> model_;                  // the first graph, which the others are copies of
  std::vector<int32_t> class_of_;             // of each integer: those that were equal in all samples
  std::vector<std::vector<int64_t>> values_;  // of each class, in each sample
  size_t samples_ = 0;
  size_t input_integers_ = 0;  // the first integers are sizes and strides of the inputs
  std::vector<bool> is_size_;  // of those: a size

  bool ready_ = false;
  std::vector<size_t> symbols_;  // places of sizes among the integers
  std::vector<Point> points_;    // of the samples
  Lattice lattice_;
  std::vector<Polynomial> polynomials_;  // of the classes
};

}  // namespace fl::compiled

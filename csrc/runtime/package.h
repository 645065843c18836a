// A model that was compiled ahead of time, read from a package and run: no Python, no compiler.
//
// A package is read once and may be run by many threads at the same time. What a run needs for its sizes is
// made at their first use and held for later ones; where constants are replaced, runs that began before
// finish with the old ones.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/constant_set.h"
#include "runtime/kernel_library.h"
#include "runtime/package_plan.h"

namespace fl::runtime {

// The graph of a plan for inputs of these sizes, which come after some constants; null where the plan does
// not hold.
Ref<compiled::CompiledGraph> instantiate(const compiled::SizePlan& plan, size_t constants,
                                         const std::vector<Tensor>& inputs);

class Package {
 public:
  // `device` is the index of the accelerator's that a package for accelerators runs on; negative: the current
  // one.
  static std::shared_ptr<Package> load(const std::string& path, int device = -1);
  static std::shared_ptr<Package> load_memory(const void* data, size_t size, int device = -1);
  static std::shared_ptr<Package> load_static(const void* data, size_t size);  // nothing is copied

  Device device() const { return plan_.device; }
  const std::vector<InputEntry>& inputs() const { return plan_.inputs; }
  const std::vector<std::string>& outputs() const { return plan_.outputs; }
  const std::vector<SizeRange>& ranges() const { return plan_.ranges; }
  const std::vector<ConstantEntry>& constants() const { return plan_.constants; }
  // The first of them can be replaced; the others were made while the model was recorded.
  size_t replaceable_constants() const { return static_cast<size_t>(plan_.input_constants); }
  std::vector<Tensor> constant_tensors() const;
  // How arguments and results are made of tensors, in JSON; other facts, in JSON.
  const std::string& signature() const { return signature_; }
  const std::string& metadata() const { return metadata_; }
  // Names of the operators that runs call.
  std::vector<std::string> operators() const;
  // Inputs that it was recorded with, one list for each plan.
  std::vector<std::vector<compiled::InputSpec>> samples() const;
  // The instruction set that the kernels are for; empty where there are none.
  std::string instruction_set() const { return kernels_ ? kernels_->instruction_set() : std::string(); }

  std::vector<Tensor> run(const std::vector<Tensor>& inputs) const;
  // Replaces constants by name. With `in_place` the tensors themselves are used, otherwise copies.
  void update(const std::vector<std::pair<std::string, Tensor>>& constants, bool in_place);

 private:
  using Instance = Ref<compiled::CompiledGraph>;
  struct SizesHash {
    size_t operator()(const std::vector<int64_t>& sizes) const;
  };
  using Instances = std::unordered_map<std::vector<int64_t>, Instance, SizesHash>;

  explicit Package(const std::shared_ptr<const Bytes>& bytes, int device = -1);

  void check_inputs(const std::vector<Tensor>& inputs) const;
  Instance instance_for(const std::vector<Tensor>& inputs) const;
  Instance instantiate(const std::vector<Tensor>& inputs) const;
  std::shared_ptr<const ConstantSet> constants_for(const compiled::Program& program,
                                                   std::vector<Tensor>& kept_values) const;
  void number_kept_values();

  std::shared_ptr<const Bytes> bytes_;  // that constants lie in
  std::shared_ptr<const KernelLibrary> kernels_;
  PackagePlan plan_;
  std::string signature_, metadata_;
  ConstantSet::KeptValues kept_;                          // of all plans
  mutable std::shared_ptr<const ConstantSet> constants_;  // replaced as a whole
  mutable std::shared_ptr<const Instances> instances_;    // replaced as a whole
  mutable std::mutex mutex_;                              // of those who replace
};

}  // namespace fl::runtime

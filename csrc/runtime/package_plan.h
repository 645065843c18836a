// What a package says beside its weights and kernels, and its bytes.
//
// Integers are written in the variable-length form of LEB128 with the sign in the lowest bit. Kernels and
// operators are written by name. Everything that is read is checked: slots exist, lists are as long as their
// bytes allow, arguments are what operators take.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "compiled/plan_family.h"

namespace fl::runtime {

// Plans for the CPU are of the first version; those for an accelerator are of the second, which also says
// where tensors are and which images kernels come from.
constexpr int64_t kHostVersion = 1, kAcceleratorVersion = 2;

// What stands for each half of the address of the accelerator's failure flag among the numbers of a kernel.
// flambeau/_inductor/triton_build.py has the same.
constexpr int64_t kFlagWord = 0x464C4147;

// A kernel of an accelerator: its function in an image of the same name, and the most shared memory of its
// launches.
struct ImageEntry {
  std::string name;
  int64_t shared = 0;
};

// A parameter, a buffer or another tensor that is part of the model.
struct ConstantEntry {
  std::string name;
  DType dtype = DType::Float;
  Dims sizes, strides;
  int64_t offset = 0, bytes = 0;  // in the member of weights
  Device device;
};

struct InputEntry {
  std::string name;
  DType dtype = DType::Float;
  std::vector<int64_t> sizes;  // -1 where the size is not fixed
  Device device;
};

// The sizes that a dimension of an input may have.
struct SizeRange {
  int input = 0, dim = 0;
  int64_t low = 0, high = 0;
};

// A plan, and the points it was recorded at: the sizes that the ranges are about.
struct PlanVariant {
  compiled::SizePlan plan;
  std::vector<std::vector<int64_t>> samples;
};

struct PackagePlan {
  Device device;  // of the programs
  std::vector<std::string> kernels;
  std::vector<ImageEntry> images;
  std::vector<ConstantEntry> constants;
  std::vector<Tensor> tensors;     // the constants themselves
  int input_constants = 0;         // the first constants are the first inputs of all programs
  std::vector<InputEntry> inputs;  // the other inputs
  std::vector<std::string> outputs;
  std::vector<SizeRange> ranges;
  std::vector<PlanVariant> variants;
};

// In the plan that is written, the entry of a loop is the number of its kernel and the function of a kernel
// of an accelerator that of its image, counted from one.
std::string write_plan(PackagePlan& plan);
// What a plan refers to in other members of a package.
struct PlanContext {
  std::function<compiled::Entry(const std::string& kernel)> entry;
  std::function<Tensor(const ConstantEntry& constant)> constant;
  std::function<void*(const ImageEntry& image)> function;
  std::function<Device()> accelerator;  // that the package is to run on
};
PackagePlan read_plan(std::string_view bytes, const PlanContext& context);

// Raises where a plan does not hold together.
void check_plan(const PackagePlan& plan);

}  // namespace fl::runtime

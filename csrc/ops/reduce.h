// Reductions over any subset of the dimensions of a strided tensor: what fronts settle, and what they ask of
// a device.
#pragma once

#include "core/device_function.h"
#include "dispatch/operator.h"
#include "ops/reduce_loops.h"

namespace fl {

// Dimensions as a bit mask; an absent or empty list means all. Raises on repeats and out-of-range dimensions.
uint64_t reduced_dims(const char* op, const Tensor& self, std::optional<IntSpan> dims);
Dims reduced_sizes(const Tensor& self, uint64_t mask, bool keepdim);

// The slot whose loops serve elements of a dtype, and the dtype in which they want them.
ReduceSlot reduce_slot(DType t);
DType reduce_element(ReduceSlot slot);

// What the generator writes for a reduction record.
struct ReduceDef {
  const char* name;
  int8_t dim_arg, keepdim_arg, dtype_arg;  // positions in the schema, -1 when absent
  int8_t params;
  int8_t param_arg[2];
  char result;               // 's' same, 'i' integers to int64, 'b' bool (uint8 stays), 'l' int64, 'r' real
  bool identity;             // whether an empty reduction has a value
  const char* classes;       // accepted dtype classes
  const ReduceLoops* loops;  // [kReduceSlots]
  DType computed[kReduceSlots];
  const void* device = nullptr;  // the accelerator's kernels, when it has been opened
};

// A reduction of a record as a device gets it: dtypes and shapes are settled, the result is allocated.
struct ReduceCall {
  const ReduceDef& def;
  ReduceSlot slot;
  const Tensor& self;
  uint64_t mask;  // of reduced dimensions
  const Tensor& out;
  const Scalar* params;
};

// Reductions whose accumulators are more than one number.
enum class StructuredReduction : int8_t { MaxWithIndex, MinWithIndex, ArgMax, ArgMin, Moments, LogSumExp };
struct StructuredReduceCall {
  StructuredReduction kind;
  const Tensor& self;
  uint64_t mask;          // of reduced dimensions
  DType element;          // as which elements are read
  const Scalar* params;   // of Moments: the correction of the count, and whether the root is wanted
  const Tensor* results;  // one; values and indices of extremes; variance and, when there are two, mean
  int n_results;
};

namespace device {
extern DeviceFunction<void(const ReduceCall&)> reduce;
extern DeviceFunction<void(const StructuredReduceCall&)> reduce_structured;
}  // namespace device

void reduce_kernel(const Operator& op, void* definition, KeySet keys, Value* args, Value* results);

}  // namespace fl

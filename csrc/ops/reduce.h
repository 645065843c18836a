// Reductions over any subset of the dimensions of a strided tensor. The engine orders and merges dimensions,
// splits the work over threads and hands contiguous runs (or tiles staged to be so) to loops that know only
// the arithmetic.
#pragma once

#include "dispatch/operator.h"
#include "ops/iterator.h"

namespace fl {

// The arithmetic of one reduction for one element type. Accumulators are opaque blocks of `acc_size` bytes.
struct ReduceLoops {
  int64_t acc_size = 0;
  void (*init)(void* acc, int64_t n) = nullptr;
  // Takes n contiguous elements into one accumulator; `base` is the index of the first along the reduced
  // dimension.
  void (*row)(const void* src, int64_t n, void* acc, int64_t base, const Scalar* params) = nullptr;
  // Takes `rows` rows (row_stride bytes apart) of contiguous columns into one accumulator for each column.
  void (*column)(const char* src, int64_t row_stride, int64_t rows, int64_t columns, void* acc, int64_t base,
                 const Scalar* params) = nullptr;
  // acc[i] takes in other[i], which has seen later elements.
  void (*merge)(void* acc, const void* other, int64_t n) = nullptr;
  // Writes the results of n accumulators, each over `count` elements, to contiguous arrays.
  void (*finish)(const void* acc, int64_t n, int64_t count, void* const* out, const Scalar* params) = nullptr;
  // Takes `rows` whole rows of n contiguous elements into one accumulator each; not all reductions have it.
  void (*many)(const char* src, int64_t row_stride, int64_t rows, int64_t n, void* acc) = nullptr;
};

// Loops are stored by element type; other dtypes are converted to their compute type on the way.
enum ReduceSlot {
  kReduceFloat,
  kReduceDouble,
  kReduceInt,
  kReduceByte,
  kReduceBFloat16,
  kReduceComplexFloat,
  kReduceComplexDouble,
  kReduceSlots
};

struct ReduceOutput {
  Tensor tensor;   // its dimensions are the kept ones, or all with size 1 where reduced
  DType computed;  // what finish() writes
};

// Reduces the dimensions in `mask` of `self`, whose elements are handed to the loops as `element`.
void reduce(const Tensor& self, uint64_t mask, DType element, const ReduceLoops& loops, const Scalar* params,
            ReduceOutput* outputs, int n_outputs);

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

// A call as the accelerator gets it.
struct ReduceCall {
  const ReduceDef& def;
  ReduceSlot slot;
  const Tensor& self;
  uint64_t mask;  // of reduced dimensions
  const Tensor& out;
  const Scalar* params;
};
void reduce_kernel(const Operator& op, void* definition, KeySet keys, Value* args, Value* results);

}  // namespace fl

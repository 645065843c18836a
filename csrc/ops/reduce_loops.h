// The loops of reductions as data: what generated code defines and fronts look up.
#pragma once

#include <cstdint>

#include "core/scalar.h"

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

}  // namespace fl

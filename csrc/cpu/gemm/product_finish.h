// What follows a product of matrices, element by element, while its results are still in the cache: sums and
// products with other operands, and activations. Values are rounded to the dtype after each step, as if each
// were an operator of its own.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace fl::cpu {

// The numbers are those of the operator's argument (flambeau/_inductor/products.py).
enum class FinishKind : int64_t { Add, Mul, Relu, Gelu, GeluTanh, Silu, Sigmoid, Tanh, Count };

struct ProductFinish {
  struct Step {
    FinishKind kind;
    const void* operand;  // of Add and Mul: a matrix that lies like the results,
    bool row;             // or one row for all of theirs
  };
  static constexpr int kMost = 8;

  DType dtype = DType::Float;   // Float or BFloat16
  const void* start = nullptr;  // the first result; rows follow each other without gaps
  int64_t columns = 0;
  int count = 0;
  Step steps[kMost];

  void add(FinishKind kind, const void* operand = nullptr, bool row = false) {
    steps[count++] = {kind, operand, row};
  }
};

// Finishes a window of the results, which begins at c.
void finish_window(const ProductFinish& finish, void* c, int64_t rows, int64_t cols);

}  // namespace fl::cpu

namespace fl {

struct FinishLoops {
  void (*of_float)(const cpu::ProductFinish& finish, float* c, int64_t rows, int64_t cols);
  void (*of_bfloat16)(const cpu::ProductFinish& finish, BFloat16* c, int64_t rows, int64_t cols);
};
}  // namespace fl

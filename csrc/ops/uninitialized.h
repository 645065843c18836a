// Memory of new tensors, filled with a value that shows (NaN, or the largest integer) while deterministic
// algorithms are asked for: what a program reads before it writes is then the same in every run.
#pragma once

#include <atomic>

#include "core/tensor.h"

namespace fl {

extern std::atomic<bool> fill_uninitialized;

// Fills a tensor with the value of its dtype for uninitialized memory.
void fill_as_uninitialized(const Tensor& t);

inline Tensor uninitialized(Tensor t) {
  if (__builtin_expect(fill_uninitialized.load(std::memory_order_relaxed), 0)) fill_as_uninitialized(t);
  return t;
}

}  // namespace fl

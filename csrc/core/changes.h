// Counts changes of what tensors look like. Who has looked at tensors that stay, such as a model's
// parameters, need not look at them again while the number is the same.
#pragma once

#include <atomic>
#include <cstdint>

namespace fl {

// Moves when a tensor that has a Python object gets other sizes, strides, dtype or device in place, when one
// that is watched (autograd/node.h) starts or stops to require gradients, and when two tensors are swapped.
// Writing elements does not move it, nor does making tensors: training steps leave it where it is.
extern std::atomic<uint64_t> tensor_changes;

inline void count_tensor_change() {
  tensor_changes.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace fl

// Sums, differences and products of integers narrower than 64 bits, which wrap around alike whether they are
// computed wide or narrow. The other operators convert them.
#pragma once

#include <cstring>

#include "cpu/arch.h"
#include "cpu/iterator.h"

namespace fl {

struct NarrowLoops {
  StridedIterator::Loop add[3], sub[3], mul[3];  // for elements of 1, 2 and 4 bytes
};
FL_DECLARE_ARCH(const NarrowLoops, narrow_loops)

// The loop of an operator by its name, or null.
inline StridedIterator::Loop narrow_loop(const char* name, DType t) {
  const NarrowLoops& loops = picked_narrow_loops();
  const int64_t bytes = size_of(t);
  const int at = bytes == 1 ? 0 : bytes == 2 ? 1 : 2;
  if (std::strcmp(name, "add") == 0) return loops.add[at];
  if (std::strcmp(name, "sub") == 0) return loops.sub[at];
  if (std::strcmp(name, "mul") == 0) return loops.mul[at];
  return nullptr;
}

}  // namespace fl

// Sums, differences and products of integers narrower than 64 bits, which wrap around alike whether they are
// computed wide or narrow, logic on booleans, and products and absolute values of complex64. The other
// operators convert them.
#pragma once

#include "cpu/engine/arch.h"
#include "ops/iterator.h"
#include "ops/pointwise.h"

namespace fl {

struct NarrowLoops {
  StridedIterator::Loop add[3], sub[3], mul[3];  // for elements of 1, 2 and 4 bytes
};
FL_DECLARE_ARCH(const NarrowLoops, narrow_loops)

struct BooleanLoops {
  StridedIterator::Loop both, either, differ, equal, negate;
};
FL_DECLARE_ARCH(const BooleanLoops, boolean_loops)

// The loop for a dtype, or null.
inline StridedIterator::Loop narrow_loop(StoredLoop loop, DType t) {
  if (loop == StoredLoop::None) return nullptr;
  const NarrowLoops& loops = picked_narrow_loops();
  const int64_t bytes = size_of(t);
  const int at = bytes == 1 ? 0 : bytes == 2 ? 1 : 2;
  return loop == StoredLoop::Add ? loops.add[at] : loop == StoredLoop::Sub ? loops.sub[at] : loops.mul[at];
}

// The same for operators whose operands and result are bool.
inline StridedIterator::Loop boolean_loop(StoredLoop loop) {
  const BooleanLoops& loops = picked_boolean_loops();
  switch (loop) {
    case StoredLoop::And:
      return loops.both;
    case StoredLoop::Or:
      return loops.either;
    case StoredLoop::Xor:
      return loops.differ;
    case StoredLoop::Not:
      return loops.negate;
    case StoredLoop::Equal:
      return loops.equal;
    default:
      return nullptr;
  }
}

// Complex numbers of single precision, whose other operators compute in double precision.
struct ComplexLoops {
  StridedIterator::Loop multiply, length;
};
FL_DECLARE_ARCH(const ComplexLoops, complex_loops)

inline StridedIterator::Loop complex_loop(StoredLoop loop) {
  if (loop == StoredLoop::Mul) return picked_complex_loops().multiply;
  if (loop == StoredLoop::Abs) return picked_complex_loops().length;
  return nullptr;
}

}  // namespace fl

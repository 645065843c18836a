// Sums, differences and products of integers narrower than 64 bits, which wrap around alike whether they are
// computed wide or narrow, logic on booleans, and products and absolute values of complex64. The other
// operators convert them.
#pragma once

#include "ops/iterator.h"
#include "ops/pointwise.h"

namespace fl {

struct NarrowLoops {
  StridedIterator::Loop add[3], sub[3], mul[3];  // for elements of 1, 2 and 4 bytes
};
struct BooleanLoops {
  StridedIterator::Loop both, either, differ, equal, negate;
};
// Complex numbers of single precision, whose other operators compute in double precision.
struct ComplexLoops {
  StridedIterator::Loop multiply, length;
};
}  // namespace fl

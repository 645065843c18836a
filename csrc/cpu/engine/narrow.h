// Sums, differences and products of integers narrower than 64 bits, which wrap around alike whether they are
// computed wide or narrow, logic on booleans, and products and absolute values of complex64. The other
// operators convert them.
#pragma once

#include <cstring>

#include "cpu/engine/arch.h"
#include "ops/iterator.h"

namespace fl {

struct NarrowLoops {
  StridedIterator::Loop add[3], sub[3], mul[3];  // for elements of 1, 2 and 4 bytes
};
FL_DECLARE_ARCH(const NarrowLoops, narrow_loops)

struct BooleanLoops {
  StridedIterator::Loop both, either, differ, equal, negate;
};
FL_DECLARE_ARCH(const BooleanLoops, boolean_loops)

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

// The same for operators whose operands and result are bool.
inline StridedIterator::Loop boolean_loop(const char* name) {
  const BooleanLoops& loops = picked_boolean_loops();
  const auto is = [name](auto... names) { return (... || (std::strcmp(name, names) == 0)); };
  if (is("bitwise_and", "logical_and", "mul")) return loops.both;
  if (is("bitwise_or", "logical_or")) return loops.either;
  if (is("bitwise_xor", "logical_xor", "ne")) return loops.differ;
  if (is("bitwise_not", "logical_not")) return loops.negate;
  if (is("eq")) return loops.equal;
  return nullptr;
}

// Complex numbers of single precision, whose other operators compute in double precision.
struct ComplexLoops {
  StridedIterator::Loop multiply, length;
};
FL_DECLARE_ARCH(const ComplexLoops, complex_loops)

inline StridedIterator::Loop complex_loop(const char* name) {
  if (std::strcmp(name, "mul") == 0) return picked_complex_loops().multiply;
  if (std::strcmp(name, "abs") == 0) return picked_complex_loops().length;
  return nullptr;
}

}  // namespace fl

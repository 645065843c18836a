// The promotion lattice of dtypes.
#include "core/dtype.h"

#include <cstdio>

namespace fl {

std::string detail::number(double v) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%g", v);
  return buffer;
}

namespace {
int rank_of(char kind) {
  return kind == 'b' ? 0 : kind == 'i' ? 1 : kind == 'f' ? 2 : 3;
}
}  // namespace

void refuse_stored_only(DType t) {
  fail(ErrorKind::NotImplemented, "[", name_of(t), "] expected a dtype to compute with, got ", name_of(t),
       ", which is only stored and converted; use to() first");
}

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (__builtin_expect(a == DType::ComplexHalf, 0)) {
    if (b == DType::Bool || b == DType::Half || (is_integral(b) && !is_stored_only(b))) return a;
    if (!is_stored_only(b)) return promote(DType::ComplexFloat, b);
  }
  if (__builtin_expect(b == DType::ComplexHalf && !is_stored_only(a), 0)) return promote(b, a);
  if (__builtin_expect(is_stored_only(a) || is_stored_only(b), 0)) {
    const bool floats = is_floating(a) && !is_float8(a), float_other = is_floating(b) && !is_float8(b);
    FL_CHECK((floats || float_other) && !is_float8(a) && !is_float8(b),
             "[promote_types] expected dtypes that promote, got ", name_of(a), " and ", name_of(b),
             ": Promotion for ",
             is_float8(a) || is_float8(b) ? "Float8 Types" : "uint16, uint32, uint64 types",
             " is not supported");
    return floats ? a : b;
  }
  const int ra = rank_of(class_of(a)), rb = rank_of(class_of(b));
  if (ra > rb) return promote(b, a);
  if (ra < rb) {
    // A complex result must be wide enough for the real operand.
    if (class_of(b) == 'c' && a == DType::Double) return DType::ComplexDouble;
    return b;
  }
  switch (class_of(a)) {
    case 'i': {
      // uint8 with a signed type needs a signed type that holds 255.
      if (a == DType::UInt8 || b == DType::UInt8) {
        const DType other = a == DType::UInt8 ? b : a;
        return other == DType::Int8 ? DType::Int16 : other;
      }
      return a > b ? a : b;
    }
    case 'f':
      if (is_reduced(a) && is_reduced(b)) return DType::Float;
      return a > b ? a : b;
    default:
      return a > b ? a : b;
  }
}

bool can_cast(DType from, DType to) {
  // Down the kind order only: complex to real, float to integer and anything to bool lose the value.
  return rank_of(class_of(from)) <= rank_of(class_of(to));
}

}  // namespace fl

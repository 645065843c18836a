// See scalar_range.h.
#include "core/scalar_range.h"

#include <cmath>

#include "core/tensor.h"

namespace fl {

namespace {

bool real_fits(double x, DType t) {
  switch (t) {
    case DType::Float8E4M3:
      return !std::isfinite(x) || std::abs(x) <= 448.0;
    case DType::Float8E4M3Fnuz:
      return !std::isfinite(x) || std::abs(x) <= 240.0;
    case DType::Float8E5M2:
    case DType::Float8E5M2Fnuz:
      return !std::isfinite(x) || std::abs(x) <= 57344.0;
    case DType::Half:
    case DType::ComplexHalf:
      return !std::isfinite(x) || std::abs(x) <= 65504.0;
    case DType::BFloat16:
      return !std::isfinite(x) || std::abs(x) <= 0x1.fep127;
    case DType::Float:
    case DType::ComplexFloat:
    case DType::Float8E8M0:
      return !std::isfinite(x) || std::abs(x) <= static_cast<double>(std::numeric_limits<float>::max());
    default:
      return true;
  }
}

}  // namespace

bool fits(const Scalar& value, DType dtype) {
  if (dtype == DType::Bool) return true;
  if (value.is_complex() && !is_complex(dtype) && value.im != 0) return false;
  if (!fl::is_integral(dtype))
    return real_fits(value.is_integral() ? static_cast<double>(value.i) : value.re, dtype) &&
           real_fits(value.im, dtype);
  if (is_stored_only(dtype)) {
    const double most = std::ldexp(1.0, static_cast<int>(8 * size_of(dtype)));
    const double number = value.is_integral() ? static_cast<double>(value.i) : value.re;
    return number < most && (value.is_integral() ? number > -most : number >= 0);
  }
  return dispatch(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    if constexpr (std::is_integral_v<T>) {
      using Limits = std::numeric_limits<T>;
      if (value.is_integral()) {
        if (sizeof(T) == 8) return true;
        const auto most = static_cast<int64_t>(Limits::max());
        return value.i <= most &&
               value.i >= (std::is_signed_v<T> ? static_cast<int64_t>(Limits::min()) : -most);
      }
      // 2^63 is what the largest int64 becomes as a double, and does not fit.
      return value.re >= static_cast<double>(Limits::min()) &&
             (sizeof(T) == 8 ? value.re < 0x1p63 : value.re <= static_cast<double>(Limits::max()));
    } else {
      return true;
    }
  });
}

void check_fits(const char* op, const Scalar& value, DType dtype) {
  if (__builtin_expect(fits(value, dtype), 1)) return;
  if (value.is_complex())
    fail(ErrorKind::Runtime, "[", op, "] expected a value that fits in ", name_of(dtype), ", got ", value.re,
         " + ", value.im, "j");
  if (value.is_integral())
    fail(ErrorKind::Runtime, "[", op, "] expected a value that fits in ", name_of(dtype), ", got ", value.i);
  fail(ErrorKind::Runtime, "[", op, "] expected a value that fits in ", name_of(dtype), ", got ", value.re);
}

DType number_dtype(const Scalar& value) {
  switch (value.kind) {
    case Scalar::Kind::Bool:
      return DType::Bool;
    case Scalar::Kind::Int:
      return DType::Int64;
    case Scalar::Kind::Float:
      return default_dtype();
    default:
      return complex_of(default_dtype());
  }
}

}  // namespace fl

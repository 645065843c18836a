// The codes of the 8-bit floats, for the host and for device code.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "core/dtype.h"

#if defined(__CUDACC__)
#define FL_ANYWHERE __host__ __device__ inline
#else
#define FL_ANYWHERE inline
#endif

namespace fl::float8 {

struct Format {
  int mantissa, bias, largest;  // bits of the mantissa, of the exponent's offset, code of the largest number
  uint8_t overflow, nan;        // codes
  bool negative_zero;
};

FL_ANYWHERE Format format_of(DType t) {
  switch (t) {
    case DType::Float8E4M3:
      return {3, 7, 0x7e, 0x7e, 0x7f, true};  // stops at the largest number
    case DType::Float8E5M2:
      return {2, 15, 0x7b, 0x7c, 0x7f, true};
    case DType::Float8E4M3Fnuz:
      return {3, 8, 0x7f, 0x80, 0x80, false};
    default:
      return {2, 16, 0x7f, 0x80, 0x80, false};
  }
}

FL_ANYWHERE float decode(DType t, uint8_t code) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  if (t == DType::Float8E8M0) return code == 0xff ? nan : std::ldexp(1.0f, static_cast<int>(code) - 127);
  const Format f = format_of(t);
  const int magnitude = code & 0x7f;
  const bool negative = code & 0x80;
  float value;
  if (!f.negative_zero && code == 0x80) return nan;
  if (magnitude > f.largest)
    value = t == DType::Float8E5M2 && magnitude == 0x7c ? inf : nan;
  else if (magnitude >> f.mantissa == 0)
    value = std::ldexp(static_cast<float>(magnitude), 1 - f.bias - f.mantissa);
  else
    value = std::ldexp(static_cast<float>((magnitude & ((1 << f.mantissa) - 1)) | 1 << f.mantissa),
                       (magnitude >> f.mantissa) - f.bias - f.mantissa);
  return negative ? -value : value;
}

// To the nearest exponent; a tie goes up unless it starts from the smallest one.
FL_ANYWHERE uint8_t encode_exponent(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  uint32_t exponent = bits >> 23 & 0xff;
  if (exponent == 0xff) return 0xff;
  const bool half = bits & 0x400000, rest = bits & 0x3fffff;
  if (half && (rest || exponent > 0)) ++exponent;
  return static_cast<uint8_t>(exponent);
}

FL_ANYWHERE uint8_t encode(DType t, float value) {
  if (t == DType::Float8E8M0) return encode_exponent(value);
  const Format f = format_of(t);
  if (value != value) return f.nan;
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  const float size = std::fabs(value);
  int code;
  if (size > std::numeric_limits<float>::max()) {
    code = f.largest + 1;
  } else {
    const int least = 1 - f.bias, own = size == 0 ? least : std::ilogb(size);
    const int exponent = own > least ? own : least;
    const auto steps = static_cast<int>(std::nearbyint(std::ldexp(size, f.mantissa - exponent)));
    code = exponent > 127 - f.bias ? f.largest + 1 : ((exponent + f.bias - 1) << f.mantissa) + steps;
  }
  if (code > f.largest) return f.negative_zero ? f.overflow | sign : f.overflow;
  if (code == 0 && !f.negative_zero) return 0;
  return static_cast<uint8_t>(code) | sign;
}

}  // namespace fl::float8

// See stored_dtypes.h.
#include "core/stored_dtypes.h"

#include <cmath>

namespace fl {

namespace {

struct Format {
  int mantissa, bias, largest;  // bits of the mantissa, of the exponent's offset, code of the largest number
  uint8_t overflow, nan;        // codes
  bool negative_zero;
};

Format format_of(DType t) {
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

float decode(DType t, uint8_t code) {
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

struct Decoded {
  float value[5][256];
  Decoded() {
    for (int k = 0; k < 5; ++k)
      for (int code = 0; code < 256; ++code)
        value[k][code] =
            decode(static_cast<DType>(static_cast<int>(DType::Float8E4M3) + k), static_cast<uint8_t>(code));
  }
};

// To the nearest exponent; a tie goes up unless it starts from the smallest one.
uint8_t encode_exponent(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  uint32_t exponent = bits >> 23 & 0xff;
  if (exponent == 0xff) return 0xff;
  const bool half = bits & 0x400000, rest = bits & 0x3fffff;
  if (half && (rest || exponent > 0)) ++exponent;
  return static_cast<uint8_t>(exponent);
}

}  // namespace

float load_float8(DType t, uint8_t code) {
  static const Decoded table;
  return table.value[static_cast<int>(t) - static_cast<int>(DType::Float8E4M3)][code];
}

uint8_t store_float8(DType t, float value) {
  if (t == DType::Float8E8M0) return encode_exponent(value);
  const Format f = format_of(t);
  if (value != value) return f.nan;
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  const float size = std::abs(value);
  int code;
  if (std::isinf(size)) {
    code = f.largest + 1;
  } else {
    const int exponent = std::max(size == 0 ? 1 - f.bias : std::ilogb(size), 1 - f.bias);
    const auto steps = static_cast<int>(std::nearbyint(std::ldexp(size, f.mantissa - exponent)));
    code = exponent > 127 - f.bias ? f.largest + 1 : ((exponent + f.bias - 1) << f.mantissa) + steps;
  }
  if (code > f.largest) return f.negative_zero ? f.overflow | sign : f.overflow;
  if (code == 0 && !f.negative_zero) return 0;
  return static_cast<uint8_t>(code) | sign;
}

int64_t load_unsigned(DType t, const char* p) {
  uint64_t value = 0;
  std::memcpy(&value, p, size_of(t));  // little endian
  return static_cast<int64_t>(value);
}
void store_unsigned(DType t, char* p, int64_t value) {
  std::memcpy(p, &value, size_of(t));
}
uint64_t to_unsigned(double value) {
  if (value >= 0x1p63 && value < 0x1p64) return static_cast<uint64_t>(value - 0x1p63) + (uint64_t(1) << 63);
  return static_cast<uint64_t>(convert<int64_t>(value));
}

void store_scalar(const Scalar& value, DType t, void* p) {
  if (is_float8(t)) {
    *static_cast<uint8_t*>(p) = store_float8(t, value.to<float>());
  } else if (is_stored_only(t)) {
    const int64_t bits =
        value.is_integral() ? value.i : static_cast<int64_t>(to_unsigned(value.to<double>()));
    store_unsigned(t, static_cast<char*>(p), bits);
  } else {
    dispatch(t, [&](auto type) {
      using T = typename decltype(type)::type;
      *static_cast<T*>(p) = value.to<T>();
    });
  }
}

Scalar load_stored(DType t, const void* p) {
  if (is_float8(t)) return Scalar(static_cast<double>(load_float8(t, *static_cast<const uint8_t*>(p))));
  const int64_t value = load_unsigned(t, static_cast<const char*>(p));
  // Beyond int64 the nearest float is all that a Scalar can hold.
  if (t == DType::UInt64 && value < 0) return Scalar(static_cast<double>(static_cast<uint64_t>(value)));
  return Scalar(value);
}

}  // namespace fl

// See stored_dtypes.h.
#include "core/stored_dtypes.h"

#include "core/float8.h"

namespace fl {

namespace {

struct Decoded {
  float value[5][256];
  Decoded() {
    for (int k = 0; k < 5; ++k)
      for (int code = 0; code < 256; ++code)
        value[k][code] = float8::decode(static_cast<DType>(static_cast<int>(DType::Float8E4M3) + k),
                                        static_cast<uint8_t>(code));
  }
};

}  // namespace

float load_float8(DType t, uint8_t code) {
  static const Decoded table;
  return table.value[static_cast<int>(t) - static_cast<int>(DType::Float8E4M3)][code];
}

uint8_t store_float8(DType t, float value) {
  return float8::encode(t, value);
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

complex64 load_complex_half(const char* p) {
  Half parts[2];
  std::memcpy(static_cast<void*>(parts), p, sizeof parts);
  return {parts[0], parts[1]};
}
void store_complex_half(char* p, complex64 value) {
  const Half parts[2] = {value.real(), value.imag()};
  std::memcpy(p, static_cast<const void*>(parts), sizeof parts);
}

void store_scalar(const Scalar& value, DType t, void* p) {
  if (is_float8(t)) {
    *static_cast<uint8_t*>(p) = store_float8(t, value.to<float>());
  } else if (t == DType::ComplexHalf) {
    store_complex_half(static_cast<char*>(p), value.to<complex64>());
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
  if (t == DType::ComplexHalf) return Scalar(complex128(load_complex_half(static_cast<const char*>(p))));
  const int64_t value = load_unsigned(t, static_cast<const char*>(p));
  // Beyond int64 the nearest float is all that a Scalar can hold.
  if (t == DType::UInt64 && value < 0) return Scalar(static_cast<double>(static_cast<uint64_t>(value)));
  return Scalar(value);
}

}  // namespace fl

// Element types: the enumeration, the reduced-precision floats, and dispatch from a run-time dtype to a C++
// type.
#pragma once

#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/error.h"

namespace fl {

enum class DType : int8_t {
  Bool,
  UInt8,
  Int8,
  Int16,
  Int32,
  Int64,
  Half,
  BFloat16,
  Float,
  Double,
  ComplexFloat,
  ComplexDouble,
  // Dtypes that are stored and converted, not computed with.
  UInt16,
  UInt32,
  UInt64,
  Float8E4M3,
  Float8E5M2,
  Float8E4M3Fnuz,
  Float8E5M2Fnuz,
  Float8E8M0,
  ComplexHalf,
};
constexpr int kDTypes = 12;     // those that kernels compute with
constexpr int kAllDTypes = 21;  // and those that are only stored

struct Half {
  _Float16 value;
  Half() = default;
  Half(float x) : value(static_cast<_Float16>(x)) {}
  operator float() const { return static_cast<float>(value); }
};

struct BFloat16 {
  uint16_t bits;
  BFloat16() = default;
  BFloat16(float x) {
    uint32_t u;
    std::memcpy(&u, &x, 4);
    // Round to nearest even; a NaN stays a quiet NaN.
    const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    bits = static_cast<uint16_t>(x != x ? 0x7fc0u : rounded);
  }
  operator float() const {
    const uint32_t u = static_cast<uint32_t>(bits) << 16;
    float x;
    std::memcpy(&x, &u, 4);
    return x;
  }
};

using complex64 = std::complex<float>;
using complex128 = std::complex<double>;

// One row for each dtype: enumerator, C++ type, Python name, short class letter (b bool, i integer, f float,
// c complex).
#define FL_FOR_DTYPES(X)                             \
  X(Bool, bool, "bool", 'b')                         \
  X(UInt8, uint8_t, "uint8", 'i')                    \
  X(Int8, int8_t, "int8", 'i')                       \
  X(Int16, int16_t, "int16", 'i')                    \
  X(Int32, int32_t, "int32", 'i')                    \
  X(Int64, int64_t, "int64", 'i')                    \
  X(Half, ::fl::Half, "float16", 'f')                \
  X(BFloat16, ::fl::BFloat16, "bfloat16", 'f')       \
  X(Float, float, "float32", 'f')                    \
  X(Double, double, "float64", 'f')                  \
  X(ComplexFloat, ::fl::complex64, "complex64", 'c') \
  X(ComplexDouble, ::fl::complex128, "complex128", 'c')

// The same for the dtypes that are only stored; the C++ type has the size. Two halves compute as a complex64.
#define FL_FOR_STORED_DTYPES(X)                      \
  X(UInt16, uint16_t, "uint16", 'i')                 \
  X(UInt32, uint32_t, "uint32", 'i')                 \
  X(UInt64, uint64_t, "uint64", 'i')                 \
  X(Float8E4M3, uint8_t, "float8_e4m3fn", 'f')       \
  X(Float8E5M2, uint8_t, "float8_e5m2", 'f')         \
  X(Float8E4M3Fnuz, uint8_t, "float8_e4m3fnuz", 'f') \
  X(Float8E5M2Fnuz, uint8_t, "float8_e5m2fnuz", 'f') \
  X(Float8E8M0, uint8_t, "float8_e8m0fnu", 'f')      \
  X(ComplexHalf, uint32_t, "complex32", 'c')

constexpr const char* name_of(DType t) {
  constexpr const char* names[] = {
#define X(e, c, n, k) n,
      FL_FOR_DTYPES(X) FL_FOR_STORED_DTYPES(X)
#undef X
  };
  return names[static_cast<int>(t)];
}
constexpr int64_t size_of(DType t) {
  constexpr int64_t sizes[] = {
#define X(e, c, n, k) sizeof(c),
      FL_FOR_DTYPES(X) FL_FOR_STORED_DTYPES(X)
#undef X
  };
  return sizes[static_cast<int>(t)];
}
constexpr char class_of(DType t) {
  constexpr char classes[] = {
#define X(e, c, n, k) k,
      FL_FOR_DTYPES(X) FL_FOR_STORED_DTYPES(X)
#undef X
  };
  return classes[static_cast<int>(t)];
}

constexpr bool is_floating(DType t) {
  return class_of(t) == 'f';
}
constexpr bool is_complex(DType t) {
  return class_of(t) == 'c';
}
constexpr bool is_integral(DType t, bool include_bool = false) {
  return class_of(t) == 'i' || (include_bool && t == DType::Bool);
}
constexpr bool is_stored_only(DType t) {
  return static_cast<int>(t) >= kDTypes;
}
constexpr bool is_float8(DType t) {
  return t >= DType::Float8E4M3 && t <= DType::Float8E8M0;
}
constexpr bool is_unsigned(DType t) {
  return t == DType::Bool || t == DType::UInt8 || (t >= DType::UInt16 && t <= DType::UInt64);
}
// Half and bfloat16 compute in float.
constexpr bool is_reduced(DType t) {
  return t == DType::Half || t == DType::BFloat16;
}
constexpr DType real_of(DType t) {
  return t == DType::ComplexFloat    ? DType::Float
         : t == DType::ComplexDouble ? DType::Double
         : t == DType::ComplexHalf   ? DType::Half
                                     : t;
}
constexpr DType complex_of(DType t) {
  return t == DType::Double || t == DType::ComplexDouble ? DType::ComplexDouble
         : t == DType::Half || t == DType::ComplexHalf   ? DType::ComplexHalf
                                                         : DType::ComplexFloat;
}
// The type in which kernels compute: reduced floats in float, all integers and bool in int64, complex32 in
// complex64, others in themselves.
constexpr DType compute_of(DType t) {
  return is_reduced(t) || is_float8(t)              ? DType::Float
         : t == DType::ComplexHalf                  ? DType::ComplexFloat
         : (class_of(t) == 'i' || t == DType::Bool) ? DType::Int64
                                                    : t;
}

DType promote(DType a, DType b);
bool can_cast(DType from, DType to);  // within the kind order bool < integer < float < complex

template <class T>
struct dtype_for;
#define X(e, c, n, k)                        \
  template <>                                \
  struct dtype_for<c> {                      \
    static constexpr DType value = DType::e; \
  };
FL_FOR_DTYPES(X)
#undef X

template <class T>
struct Type {
  using type = T;
};

template <class T>
constexpr bool is_complex_type = false;
template <class T>
constexpr bool is_complex_type<std::complex<T>> = true;
template <class T>
constexpr bool is_reduced_type = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

template <class T>
struct compute_type {
  using type =
      std::conditional_t<is_reduced_type<T>, float, std::conditional_t<std::is_integral_v<T>, int64_t, T>>;
};
template <class T>
using compute_t = typename compute_type<T>::type;

// Element conversion as PyTorch's: complex to real drops the imaginary part, float to integer truncates.
template <class To, class From>
inline To convert(const From& x) {
  if constexpr (std::is_same_v<From, bool>) {
    // Memory that nobody wrote may hold any byte; as a bool it counts as true.
    uint8_t byte;
    std::memcpy(&byte, &x, 1);
    return To(byte != 0);
  } else if constexpr (std::is_same_v<To, From>) {
    return x;
  } else if constexpr (is_complex_type<From>) {
    if constexpr (is_complex_type<To>)
      return To(static_cast<typename To::value_type>(x.real()),
                static_cast<typename To::value_type>(x.imag()));
    else if constexpr (std::is_same_v<To, bool>)
      return x.real() != 0 || x.imag() != 0;
    else
      return convert<To>(x.real());
  } else if constexpr (is_complex_type<To>) {
    return To(convert<typename To::value_type>(x), 0);
  } else if constexpr (is_reduced_type<From>) {
    return convert<To>(static_cast<float>(x));
  } else if constexpr (is_reduced_type<To>) {
    return To(static_cast<float>(x));
  } else if constexpr (std::is_same_v<To, bool>) {
    return x != From(0);
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
    // Out of range is undefined in C++: go through the integer that the hardware converts to, the least of
    // which stands for what does not fit. Narrow types keep its low bits.
    using Whole = std::conditional_t<(sizeof(To) < 8), int32_t, int64_t>;
    constexpr From bound = sizeof(To) < 8 ? From(2147483648.0) : From(9.223372036854775808e18);
    const bool fits = x >= -bound && x < bound;
    return static_cast<To>(fits ? static_cast<Whole>(x) : std::numeric_limits<Whole>::min());
  } else {
    return static_cast<To>(x);
  }
}

// Raises for a dtype that kernels do not compute with.
[[noreturn]] void refuse_stored_only(DType t);

// Calls f(Type<T>{}) for the C++ type of a dtype.
template <class F>
inline decltype(auto) dispatch(DType t, F&& f) {
  switch (t) {
#define X(e, c, n, k) \
  case DType::e:      \
    return f(Type<c>{});
    FL_FOR_DTYPES(X)
#undef X
    default:
      break;
  }
  refuse_stored_only(t);
}
// The same over compute types only: float, double, int64, complex64, complex128.
template <class F>
inline decltype(auto) dispatch_compute(DType t, F&& f) {
  switch (compute_of(t)) {
    case DType::Float:
      return f(Type<float>{});
    case DType::Double:
      return f(Type<double>{});
    case DType::ComplexFloat:
      return f(Type<complex64>{});
    case DType::ComplexDouble:
      return f(Type<complex128>{});
    default:
      return f(Type<int64_t>{});
  }
}
// The same over floating compute types: float, double.
template <class F>
inline decltype(auto) dispatch_float(DType t, F&& f) {
  if (compute_of(t) == DType::Double) return f(Type<double>{});
  return f(Type<float>{});
}

}  // namespace fl

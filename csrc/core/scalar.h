// A number of Python kind: bool, int, float or complex, with its kind kept for type promotion.
#pragma once

#include "core/dtype.h"

namespace fl {

struct Scalar {
  enum class Kind : int8_t { Bool, Int, Float, Complex };
  Kind kind = Kind::Int;
  union {
    int64_t i;
    double re;
  };
  double im = 0;

  Scalar() : i(0) {}
  Scalar(bool v) : kind(Kind::Bool), i(v) {}
  Scalar(int v) : kind(Kind::Int), i(v) {}
  Scalar(int64_t v) : kind(Kind::Int), i(v) {}
  Scalar(double v) : kind(Kind::Float), re(v) {}
  Scalar(complex128 v) : kind(Kind::Complex), re(v.real()), im(v.imag()) {}

  bool is_integral(bool include_bool = true) const {
    return kind == Kind::Int || (include_bool && kind == Kind::Bool);
  }
  bool is_complex() const { return kind == Kind::Complex; }
  bool is_floating() const { return kind == Kind::Float; }

  template <class T>
  T to() const {
    switch (kind) {
      case Kind::Bool:
      case Kind::Int:
        return convert<T>(i);
      case Kind::Float:
        return convert<T>(re);
      default:
        return convert<T>(complex128(re, im));
    }
  }
  // The dtype that this number has by itself.
  DType dtype() const {
    switch (kind) {
      case Kind::Bool:
        return DType::Bool;
      case Kind::Int:
        return DType::Int64;
      case Kind::Float:
        return DType::Double;
      default:
        return DType::ComplexDouble;
    }
  }
};

}  // namespace fl

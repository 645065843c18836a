// Ownership and conversion of Values.
#include "dispatch/value.h"

namespace fl {

namespace {
template <class T>
const void* clone(const T* data, size_t n) {
  T* fresh = new T[n ? n : 1];
  std::copy(data, data + n, fresh);
  return fresh;
}
}  // namespace

Value::Value(const Scalar& s) {
  switch (s.kind) {
    case Scalar::Kind::Bool:
      *this = Value(s.i != 0);
      break;
    case Scalar::Kind::Int:
      *this = Value(s.i);
      break;
    case Scalar::Kind::Float:
      *this = Value(s.re);
      break;
    case Scalar::Kind::Complex:
      *this = Value(complex128(s.re, s.im));
      break;
  }
}
Value::Value(const std::vector<int64_t>& v) {
  copy_from(borrow(IntSpan(v)));
}
Value::Value(const std::vector<double>& v) {
  copy_from(borrow(v.data(), v.size()));
}
Value::Value(const std::vector<fl::Tensor>& v) {
  copy_from(borrow(v.data(), v.size()));
}
Value::Value(std::string_view v) {
  copy_from(borrow(v));
}

Value Value::borrow(IntSpan s) {
  Value v;
  v.tag_ = Tag::IntList;
  v.u_.p = s.data();
  v.extra_.n = s.size();
  return v;
}
Value Value::borrow(const double* data, size_t n) {
  Value v;
  v.tag_ = Tag::FloatList;
  v.u_.p = data;
  v.extra_.n = n;
  return v;
}
Value Value::borrow(const bool* data, size_t n) {
  Value v;
  v.tag_ = Tag::BoolList;
  v.u_.p = data;
  v.extra_.n = n;
  return v;
}
Value Value::borrow(const fl::Tensor* data, size_t n) {
  Value v;
  v.tag_ = Tag::TensorList;
  v.u_.p = data;
  v.extra_.n = n;
  return v;
}
Value Value::borrow(std::string_view s) {
  Value v;
  v.tag_ = Tag::String;
  v.u_.p = s.data();
  v.extra_.n = s.size();
  return v;
}

void Value::copy_from(const Value& o) {
  tag_ = o.tag_;
  extra_ = o.extra_;
  u_ = o.u_;
  owned_ = true;
  switch (tag_) {
    case Tag::Tensor:
      u_.tensor->retain();
      break;
    case Tag::Opaque:
      u_.opaque->retain();
      break;
    case Tag::IntList:
      u_.p = clone(static_cast<const int64_t*>(o.u_.p), extra_.n);
      break;
    case Tag::FloatList:
      u_.p = clone(static_cast<const double*>(o.u_.p), extra_.n);
      break;
    case Tag::BoolList:
      u_.p = clone(static_cast<const bool*>(o.u_.p), extra_.n);
      break;
    case Tag::TensorList:
      u_.p = clone(static_cast<const fl::Tensor*>(o.u_.p), extra_.n);
      break;
    case Tag::String:
      u_.p = clone(static_cast<const char*>(o.u_.p), extra_.n);
      break;
    default:
      owned_ = false;
  }
}

void Value::clear() {
  if (owned_) {
    switch (tag_) {
      case Tag::Tensor:
        u_.tensor->release();
        break;
      case Tag::Opaque:
        u_.opaque->release();
        break;
      case Tag::IntList:
        delete[] static_cast<const int64_t*>(u_.p);
        break;
      case Tag::FloatList:
        delete[] static_cast<const double*>(u_.p);
        break;
      case Tag::BoolList:
        delete[] static_cast<const bool*>(u_.p);
        break;
      case Tag::TensorList:
        delete[] static_cast<const fl::Tensor*>(u_.p);
        break;
      case Tag::String:
        delete[] static_cast<const char*>(u_.p);
        break;
      default:
        break;
    }
  }
  owned_ = false;
  tag_ = Tag::None;
}

fl::Tensor Value::take_tensor() {
  if (tag_ != Tag::Tensor) return {};
  if (!owned_) return fl::Tensor(u_.tensor);
  owned_ = false;
  tag_ = Tag::None;
  return fl::Tensor(Ref<TensorImpl>::steal(u_.tensor));
}

int64_t Value::to_int() const {
  return tag_ == Tag::Float ? static_cast<int64_t>(u_.d) : u_.i;
}
double Value::to_float() const {
  return tag_ == Tag::Float || tag_ == Tag::Complex ? u_.d : static_cast<double>(u_.i);
}
Scalar Value::to_scalar() const {
  switch (tag_) {
    case Tag::Bool:
      return Scalar(u_.i != 0);
    case Tag::Float:
      return Scalar(u_.d);
    case Tag::Complex:
      return Scalar(complex128(u_.d, extra_.im));
    default:
      return Scalar(u_.i);
  }
}

}  // namespace fl

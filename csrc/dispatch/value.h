// Value: one argument or result of an operator call, whatever its type. Lists and strings may borrow memory
// that lives as long as the call; copying a Value makes its own copy, so anything that outlives the call
// copies.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"

namespace fl {

struct Generator;

// A foreign object (Python's) travelling through the dispatcher; the binding implements it.
struct Opaque : Counted {
  virtual Generator* generator() { return nullptr; }  // the random generator it is, if it is one
};

class Value {
 public:
  enum class Tag : uint8_t {
    None,
    Tensor,
    Bool,
    Int,
    Float,
    Complex,
    DType,
    Device,
    MemoryFormat,
    Layout,
    IntList,
    FloatList,
    BoolList,
    TensorList,
    String,
    Opaque,
  };

  Value() = default;
  Value(const fl::Tensor& t) {
    if (t.defined()) set_tensor(t.impl());
  }
  Value(fl::Tensor&& t) {
    if (t.defined()) {
      tag_ = Tag::Tensor;
      owned_ = true;
      u_.tensor = t.ref().leak();
    }
  }
  Value(bool v) : tag_(Tag::Bool) { u_.i = v; }
  Value(int64_t v) : tag_(Tag::Int) { u_.i = v; }
  Value(double v) : tag_(Tag::Float) { u_.d = v; }
  Value(complex128 v) : tag_(Tag::Complex) {
    u_.d = v.real();
    extra_.im = v.imag();
  }
  Value(const Scalar& s);
  Value(fl::DType t) : tag_(Tag::DType) { u_.i = static_cast<int64_t>(t); }
  Value(fl::Device d) : tag_(Tag::Device) { u_.device = d; }
  Value(fl::MemoryFormat f) : tag_(Tag::MemoryFormat) { u_.i = static_cast<int64_t>(f); }
  Value(fl::Layout l) : tag_(Tag::Layout) { u_.i = static_cast<int64_t>(l); }
  Value(const std::vector<int64_t>& v);
  Value(const std::vector<double>& v);
  Value(const std::vector<fl::Tensor>& v);
  explicit Value(std::string_view v);
  explicit Value(Ref<fl::Opaque> o) : tag_(Tag::Opaque), owned_(true) { u_.opaque = o.leak(); }

  // Values that point to the caller's memory.
  static Value borrow(TensorImpl* t) {
    Value v;
    v.tag_ = Tag::Tensor;
    v.u_.tensor = t;
    return v;
  }
  static Value borrow(IntSpan s);
  static Value borrow(const double* data, size_t n);
  static Value borrow(const bool* data, size_t n);
  static Value borrow(const fl::Tensor* data, size_t n);
  static Value borrow(std::string_view s);
  static Value borrow(fl::Opaque* o) {
    Value v;
    v.tag_ = Tag::Opaque;
    v.u_.opaque = o;
    return v;
  }

  Value(const Value& o) { copy_from(o); }
  Value(Value&& o) noexcept { move_from(o); }
  Value& operator=(const Value& o) {
    if (this != &o) {
      clear();
      copy_from(o);
    }
    return *this;
  }
  Value& operator=(Value&& o) noexcept {
    if (this != &o) {
      clear();
      move_from(o);
    }
    return *this;
  }
  ~Value() {
    if (owned_) clear();
  }

  Tag tag() const { return tag_; }
  bool is_none() const { return tag_ == Tag::None; }
  bool is_tensor() const { return tag_ == Tag::Tensor; }
  bool is_number() const { return tag_ >= Tag::Bool && tag_ <= Tag::Complex; }
  bool is_tensor_list() const { return tag_ == Tag::TensorList; }

  TensorImpl* tensor_impl() const { return u_.tensor; }
  fl::Tensor tensor() const { return tag_ == Tag::Tensor ? fl::Tensor(u_.tensor) : fl::Tensor(); }
  // Gives the tensor away without touching the count when it is owned.
  fl::Tensor take_tensor();
  int64_t to_int() const;
  double to_float() const;
  bool to_bool() const { return u_.i != 0; }
  Scalar to_scalar() const;
  fl::DType to_dtype() const { return static_cast<fl::DType>(u_.i); }
  fl::Device to_device() const { return u_.device; }
  fl::MemoryFormat to_memory_format() const { return static_cast<fl::MemoryFormat>(u_.i); }
  fl::Layout to_layout() const { return static_cast<fl::Layout>(u_.i); }
  IntSpan ints() const { return {static_cast<const int64_t*>(u_.p), extra_.n}; }
  const double* floats() const { return static_cast<const double*>(u_.p); }
  const bool* bools() const { return static_cast<const bool*>(u_.p); }
  const fl::Tensor* tensors() const { return static_cast<const fl::Tensor*>(u_.p); }
  size_t length() const { return extra_.n; }
  std::string_view string() const { return {static_cast<const char*>(u_.p), extra_.n}; }
  fl::Opaque* opaque() const { return u_.opaque; }

 private:
  void set_tensor(TensorImpl* t) {
    tag_ = Tag::Tensor;
    owned_ = true;
    t->retain();
    u_.tensor = t;
  }
  void copy_from(const Value& o);
  void move_from(Value& o) {
    tag_ = o.tag_;
    owned_ = o.owned_;
    u_ = o.u_;
    extra_ = o.extra_;
    o.owned_ = false;
    o.tag_ = Tag::None;
  }
  void clear();

  Tag tag_ = Tag::None;
  bool owned_ = false;
  union Payload {
    TensorImpl* tensor;
    int64_t i;
    double d;
    const void* p;
    fl::Device device;
    fl::Opaque* opaque;
    Payload() : i(0) {}
  } u_;
  union Extra {
    size_t n;
    double im;
    Extra() : n(0) {}
  } extra_;
};

using TensorSpan = std::vector<Tensor>;

}  // namespace fl

// Calls of operators by name through the C interface: arguments of C++ become its values, results tensors.
#pragma once

#include <flambeau/torch/types.h>

#include <memory>
#include <string_view>
#include <utility>

namespace at {

using namespace c10;
class Tensor;
using TensorList = ArrayRef<Tensor>;

namespace detail {

// Arguments of one call. What they point to is held here until the call ends.
class Arguments {
 public:
  Arguments& add(const Tensor& t, const char* name = nullptr);
  Arguments& add(const TensorList& list, const char* name = nullptr);
  Arguments& add(const std::vector<Tensor>& list, const char* name = nullptr);
  Arguments& add(std::nullopt_t, const char* name = nullptr) {
    next(FL_NONE, name);
    return *this;
  }
  Arguments& add(bool v, const char* name = nullptr) {
    next(FL_VALUE_BOOL, name).as.integer = v;
    return *this;
  }
  template <class T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>, int> = 0>
  Arguments& add(T v, const char* name = nullptr) {
    next(FL_VALUE_INT, name).as.integer = static_cast<int64_t>(v);
    return *this;
  }
  Arguments& add(double v, const char* name = nullptr) {
    next(FL_VALUE_FLOAT, name).as.number = v;
    return *this;
  }
  Arguments& add(float v, const char* name = nullptr) { return add(static_cast<double>(v), name); }
  Arguments& add(const Scalar& s, const char* name = nullptr) {
    if (s.isBoolean()) return add(s.toBool(), name);
    if (s.isIntegral(false)) return add(s.toLong(), name);
    if (!s.isComplex()) return add(s.toDouble(), name);
    fl_value& v = next(FL_VALUE_COMPLEX, name);
    v.as.complex_number[0] = s.toComplexDouble().real();
    v.as.complex_number[1] = s.toComplexDouble().imag();
    return *this;
  }
  Arguments& add(const char* text, const char* name = nullptr) {
    next(FL_VALUE_STRING, name).as.string = text;
    return *this;
  }
  Arguments& add(const std::string& text, const char* name = nullptr) { return add(text.c_str(), name); }
  Arguments& add(std::string_view text, const char* name = nullptr) {
    texts_.push_back(std::make_unique<std::string>(text));
    return add(texts_.back()->c_str(), name);
  }
  Arguments& add(ScalarType t, const char* name = nullptr) {
    next(FL_VALUE_DTYPE, name).as.integer = static_cast<int64_t>(t);
    return *this;
  }
  Arguments& add(const Device& d, const char* name = nullptr) {
    texts_.push_back(std::make_unique<std::string>(d.str()));
    next(FL_VALUE_DEVICE, name).as.string = texts_.back()->c_str();
    return *this;
  }
  Arguments& add(MemoryFormat f, const char* name = nullptr) {
    next(FL_VALUE_MEMORY_FORMAT, name).as.integer = static_cast<int64_t>(f);
    return *this;
  }
  Arguments& add(IntArrayRef list, const char* name = nullptr) {
    fl_value& v = next(FL_VALUE_INTS, name);
    v.as.ints = list.data();
    v.length = list.size();
    return *this;
  }
  Arguments& add(const std::vector<int64_t>& list, const char* name = nullptr) {
    return add(IntArrayRef(list), name);
  }
  Arguments& add(const std::vector<double>& list, const char* name = nullptr) {
    fl_value& v = next(FL_VALUE_FLOATS, name);
    v.as.floats = list.data();
    v.length = list.size();
    return *this;
  }
  template <class T>
  Arguments& add(const std::optional<T>& v, const char* name = nullptr) {
    return v ? add(*v, name) : add(std::nullopt, name);
  }
  // Options of functions that make tensors.
  Arguments& add(const TensorOptions& options, const char* = nullptr) {
    if (options.dtype_opt()) add(*options.dtype_opt(), "dtype");
    if (options.device_opt()) add(*options.device_opt(), "device");
    if (options.memory_format_opt()) add(*options.memory_format_opt(), "memory_format");
    if (options.requires_grad()) add(true, "requires_grad");
    return *this;
  }
  // Keyword arguments (options.h).
  template <class K>
  auto add(const K& keywords, const char* = nullptr) -> decltype(keywords.into(*this), *this) {
    keywords.into(*this);
    return *this;
  }
  // start:stop:step of an index.
  Arguments& add_slice(const int64_t (&ends)[3]) {
    slices_.push_back(std::make_unique<std::vector<int64_t>>(ends, ends + 3));
    fl_value& v = next(FL_VALUE_INDEX, nullptr);
    v.as.ints = slices_.back()->data();
    v.length = 3;
    return *this;
  }

  const fl_value* data() const { return values_.data(); }
  size_t size() const { return values_.size(); }

 private:
  fl_value& next(fl_kind kind, const char* name) {
    fl_value v{};
    v.kind = kind;
    v.name = name;
    values_.push_back(v);
    return values_.back();
  }
  std::vector<fl_value> values_;
  std::vector<std::unique_ptr<std::string>> texts_;
  std::vector<std::unique_ptr<std::vector<int64_t>>> slices_;
  std::vector<std::unique_ptr<std::vector<fl_tensor*>>> lists_;
};

// Results of one call, released at the end.
class Results {
 public:
  Results() = default;
  Results(const Results&) = delete;
  ~Results() { fl_values_clear(values_, count_); }

  void run(bool method, const char* name, const Arguments& arguments) {
    const auto function = method ? fl_call_method : fl_call;
    check(function(name, arguments.data(), arguments.size(), values_, kMost, &count_));
  }
  size_t size() const { return count_; }
  const fl_value& operator[](size_t i) const { return values_[i]; }
  Tensor tensor(size_t i) const;
  std::vector<Tensor> tensors(size_t i) const;
  bool boolean(size_t i) const { return values_[i].as.integer != 0; }

 private:
  static constexpr size_t kMost = 16;
  fl_value values_[kMost] = {};
  size_t count_ = 0;
};

template <class... A>
void run(Results& results, bool method, const char* name, const A&... a) {
  Arguments arguments;
  (arguments.add(a), ...);
  results.run(method, name, arguments);
}

}  // namespace detail
}  // namespace at

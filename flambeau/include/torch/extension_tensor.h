// Tensors for C++ extensions: `torch::Tensor` and what functions over tensors are written with.
//
// A tensor is a reference to the Python object, and operators are called as Python would call them; so an
// extension depends on no layout of the library's own classes, and works with each of its versions. What a
// kernel needs (addresses, sizes, strides) is read when it is asked for. The interpreter's lock is held in
// calls from Python, as usual.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#if defined(__CUDACC__)
#define FL_BOTH __host__ __device__
#else
#define FL_BOTH
#endif

namespace c10 {

namespace py = pybind11;

template <class... Parts>
std::string str(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
class ValueError : public Error {
 public:
  using Error::Error;
};

// ---------------------------------------------------------------- numbers of 16 bits

FL_BOTH inline float float_of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}
FL_BOTH inline uint32_t bits_of_float(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return bits;
}

struct BFloat16 {
  uint16_t x = 0;
  BFloat16() = default;
  FL_BOTH BFloat16(float value) {
    const uint32_t bits = bits_of_float(value);
    x = value != value ? 0x7FC0 : static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
  }
  FL_BOTH operator float() const { return float_of_bits(uint32_t(x) << 16); }
};

struct Half {
  uint16_t x = 0;
  Half() = default;
  FL_BOTH Half(float value) {
    const uint32_t bits = bits_of_float(value), sign = bits >> 16 & 0x8000;
    const float size = float_of_bits(bits & 0x7FFFFFFF);
    if (value != value)
      x = static_cast<uint16_t>(sign | 0x7E00);
    else if (size >= 65520.0f)
      x = static_cast<uint16_t>(sign | 0x7C00);
    else if (size < 6.103515625e-05f)  // the adder rounds what is below normal numbers
      x = static_cast<uint16_t>(sign | (bits_of_float(size + 0.5f) - bits_of_float(0.5f)));
    else {
      const uint32_t even = bits & 0x7FFFFFFF;
      x = static_cast<uint16_t>(sign | ((even - 0x38000000 + 0xFFF + (even >> 13 & 1)) >> 13));
    }
  }
  FL_BOTH operator float() const {
    const uint32_t sign = uint32_t(x & 0x8000) << 16, rest = x & 0x7FFF;
    if (rest >= 0x7C00) return float_of_bits(sign | 0x7F800000 | (rest & 0x3FF) << 13);
    const float value =
        rest < 0x400 ? rest * 5.9604644775390625e-08f : float_of_bits((rest << 13) + 0x38000000);
    return sign ? -value : value;
  }
};

// ---------------------------------------------------------------- dtypes and devices

// clang-format off
#define FL_SCALAR_TYPES(_)                                                                                   \
  _(uint8_t, Byte, "uint8") _(int8_t, Char, "int8") _(int16_t, Short, "int16") _(int, Int, "int32")          \
  _(int64_t, Long, "int64") _(Half, Half, "float16") _(float, Float, "float32") _(double, Double, "float64") \
  _(bool, Bool, "bool") _(BFloat16, BFloat16, "bfloat16")
// clang-format on

enum class ScalarType : int8_t {
#define FL_NAME(type, name, python) name,
  FL_SCALAR_TYPES(FL_NAME)
#undef FL_NAME
      Undefined
};

inline const char* python_name(ScalarType t) {
  static const char* const names[] = {
#define FL_NAME(type, name, python) python,
      FL_SCALAR_TYPES(FL_NAME)
#undef FL_NAME
          "undefined"};
  return names[static_cast<int>(t)];
}
inline const char* toString(ScalarType t) {
  static const char* const names[] = {
#define FL_NAME(type, name, python) #name,
      FL_SCALAR_TYPES(FL_NAME)
#undef FL_NAME
          "Undefined"};
  return names[static_cast<int>(t)];
}
inline std::ostream& operator<<(std::ostream& out, ScalarType t) {
  return out << toString(t);
}

template <class T>
struct CppTypeToScalarType;
#define FL_TYPE(type, name, python)                       \
  template <>                                             \
  struct CppTypeToScalarType<type> {                      \
    static constexpr ScalarType value = ScalarType::name; \
  };
FL_SCALAR_TYPES(FL_TYPE)
#undef FL_TYPE
template <ScalarType>
struct ScalarTypeToCPPType;
#define FL_TYPE(cpp, name, python)               \
  template <>                                    \
  struct ScalarTypeToCPPType<ScalarType::name> { \
    using type = cpp;                            \
  };
FL_SCALAR_TYPES(FL_TYPE)
#undef FL_TYPE

// The library; never let go, since extensions may outlive the interpreter's modules.
inline py::object library() {
  static auto* const found = new py::object(py::module_::import("flambeau"));
  return *found;
}
inline py::object dtype_object(ScalarType t) {
  return library().attr(python_name(t));
}
inline ScalarType scalar_type_of(const py::handle& dtype) {
  for (int i = 0; i < static_cast<int>(ScalarType::Undefined); ++i)
    if (dtype.is(dtype_object(static_cast<ScalarType>(i)))) return static_cast<ScalarType>(i);
  return ScalarType::Undefined;
}

enum class DeviceType : int8_t { CPU, CUDA, Meta };
class Device {
 public:
  Device(DeviceType type, int index = -1) : type_(type), index_(index) {}
  Device(const std::string& text) : Device(library().attr("device")(text)) {}
  explicit Device(const py::object& device) {
    const std::string type = py::str(device.attr("type"));
    type_ = type == "cpu" ? DeviceType::CPU : type == "cuda" ? DeviceType::CUDA : DeviceType::Meta;
    const py::object index = device.attr("index");
    index_ = index.is_none() ? -1 : index.cast<int>();
  }
  DeviceType type() const { return type_; }
  int index() const { return index_; }
  bool is_cuda() const { return type_ == DeviceType::CUDA; }
  bool is_cpu() const { return type_ == DeviceType::CPU; }
  bool has_index() const { return index_ >= 0; }
  bool operator==(const Device& o) const { return type_ == o.type_ && index_ == o.index_; }
  bool operator!=(const Device& o) const { return !(*this == o); }
  std::string str() const {
    const std::string name = type_ == DeviceType::CPU ? "cpu" : type_ == DeviceType::CUDA ? "cuda" : "meta";
    return index_ < 0 ? name : name + ":" + std::to_string(index_);
  }
  py::object object() const { return library().attr("device")(str()); }

 private:
  DeviceType type_ = DeviceType::CPU;
  int index_ = -1;
};
inline std::ostream& operator<<(std::ostream& out, const Device& d) {
  return out << d.str();
}

class IntArrayRef : public std::vector<int64_t> {
 public:
  using std::vector<int64_t>::vector;
  IntArrayRef(std::vector<int64_t> v) : std::vector<int64_t>(std::move(v)) {}
  const std::vector<int64_t>& vec() const { return *this; }
  py::object object() const {
    py::tuple made(size());
    for (size_t i = 0; i < size(); ++i) made[i] = py::int_((*this)[i]);
    return std::move(made);
  }
};

class TensorOptions {
 public:
  TensorOptions() = default;
  TensorOptions(ScalarType t) : dtype_(t) {}
  TensorOptions(Device d) : device_(d) {}
  TensorOptions(DeviceType t) : device_(Device(t)) {}
  TensorOptions dtype(ScalarType t) const {
    return with([&](TensorOptions& o) { o.dtype_ = t; });
  }
  TensorOptions device(Device d) const {
    return with([&](TensorOptions& o) { o.device_ = d; });
  }
  TensorOptions device(DeviceType t, int index = -1) const { return device(Device(t, index)); }
  TensorOptions requires_grad(bool yes = true) const {
    return with([&](TensorOptions& o) { o.grad_ = yes; });
  }
  py::dict keywords() const {
    py::dict made;
    if (dtype_) made["dtype"] = dtype_object(*dtype_);
    if (device_) made["device"] = device_->object();
    if (grad_) made["requires_grad"] = py::bool_(true);
    return made;
  }

 private:
  template <class F>
  TensorOptions with(F&& change) const {
    TensorOptions made = *this;
    change(made);
    return made;
  }
  std::optional<ScalarType> dtype_;
  std::optional<Device> device_;
  bool grad_ = false;
};

template <class T>
using optional = std::optional<T>;
constexpr auto nullopt = std::nullopt;

}  // namespace c10

namespace at {

using namespace c10;

// ---------------------------------------------------------------- elements, for kernels

template <class T>
struct DefaultPtrTraits {
  using Pointer = T*;
};
template <class T>
struct RestrictPtrTraits {
  using Pointer = T* __restrict__;
};

// Element [i][j]... of strided memory.
template <class T, size_t N, template <class> class Traits = DefaultPtrTraits, class Index = int64_t>
class PackedTensorAccessor {
 public:
  FL_BOTH PackedTensorAccessor(T* data, const Index* sizes, const Index* strides) : data_(data) {
    for (size_t d = 0; d < N; ++d) {
      sizes_[d] = sizes[d];
      strides_[d] = strides[d];
    }
  }
  FL_BOTH decltype(auto) operator[](Index i) const {
    if constexpr (N == 1)
      return static_cast<T&>(data_[i * strides_[0]]);
    else
      return PackedTensorAccessor<T, N - 1, Traits, Index>(data_ + i * strides_[0], sizes_ + 1, strides_ + 1);
  }
  FL_BOTH Index size(int d) const { return sizes_[d]; }
  FL_BOTH Index stride(int d) const { return strides_[d]; }
  FL_BOTH T* data() const { return data_; }

 private:
  typename Traits<T>::Pointer data_;
  Index sizes_[N], strides_[N];
};
template <class T, size_t N>
using TensorAccessor = PackedTensorAccessor<T, N>;
template <class T, size_t N, template <class> class Traits = DefaultPtrTraits>
using PackedTensorAccessor32 = PackedTensorAccessor<T, N, Traits, int32_t>;
template <class T, size_t N, template <class> class Traits = DefaultPtrTraits>
using PackedTensorAccessor64 = PackedTensorAccessor<T, N, Traits, int64_t>;

// ---------------------------------------------------------------- tensors

class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(py::object object) : self_(std::move(object)) {}

  bool defined() const { return self_ && !self_.is_none(); }
  const py::object& object() const { return self_; }
  // Any method of a Python tensor, by its name.
  template <class... A>
  py::object call(const char* name, A&&... a) const {
    return self_.attr(name)(given(std::forward<A>(a))...);
  }
  template <class... A>
  Tensor make(const char* name, A&&... a) const {
    return Tensor(call(name, std::forward<A>(a)...));
  }

  int64_t dim() const { return call("dim").template cast<int64_t>(); }
  int64_t ndimension() const { return dim(); }
  int64_t numel() const { return call("numel").template cast<int64_t>(); }
  int64_t size(int64_t d) const { return call("size", d).template cast<int64_t>(); }
  int64_t stride(int64_t d) const { return call("stride", d).template cast<int64_t>(); }
  IntArrayRef sizes() const { return IntArrayRef(call("size").template cast<std::vector<int64_t>>()); }
  IntArrayRef strides() const { return IntArrayRef(call("stride").template cast<std::vector<int64_t>>()); }
  int64_t storage_offset() const { return call("storage_offset").template cast<int64_t>(); }
  int64_t element_size() const { return call("element_size").template cast<int64_t>(); }
  int64_t itemsize() const { return element_size(); }
  size_t nbytes() const { return static_cast<size_t>(numel() * element_size()); }
  bool is_contiguous() const { return call("is_contiguous").template cast<bool>(); }
  bool requires_grad() const { return self_.attr("requires_grad").template cast<bool>(); }
  Device device() const { return Device(self_.attr("device")); }
  int get_device() const { return device().index(); }
  bool is_cuda() const { return device().is_cuda(); }
  bool is_cpu() const { return device().is_cpu(); }
  ScalarType scalar_type() const { return scalar_type_of(self_.attr("dtype")); }
  ScalarType dtype() const { return scalar_type(); }
  TensorOptions options() const { return TensorOptions().dtype(scalar_type()).device(device()); }

  void* data_ptr() const { return reinterpret_cast<void*>(call("data_ptr").template cast<uintptr_t>()); }
  template <class T>
  T* data_ptr() const {
    constexpr ScalarType wanted = CppTypeToScalarType<std::remove_const_t<T>>::value;
    if (scalar_type() != wanted)
      throw Error(c10::str("expected scalar type ", wanted, " but found ", scalar_type()));
    return static_cast<T*>(data_ptr());
  }
  template <class T>
  T* mutable_data_ptr() const {
    return data_ptr<T>();
  }
  template <class T>
  const T* const_data_ptr() const {
    return data_ptr<T>();
  }
  template <class T>
  T* data() const {
    return data_ptr<T>();
  }
  template <class T>
  T item() const {
    return call("item").template cast<T>();
  }

  template <class T, size_t N>
  TensorAccessor<T, N> accessor() const {
    return packed_accessor64<T, N>();
  }
  template <class T, size_t N, template <class> class Traits = DefaultPtrTraits>
  PackedTensorAccessor32<T, N, Traits> packed_accessor32() const {
    return packed<PackedTensorAccessor32<T, N, Traits>, T, N, int32_t>();
  }
  template <class T, size_t N, template <class> class Traits = DefaultPtrTraits>
  PackedTensorAccessor64<T, N, Traits> packed_accessor64() const {
    return packed<PackedTensorAccessor64<T, N, Traits>, T, N, int64_t>();
  }

  Tensor view(IntArrayRef size) const { return make("view", size); }
  Tensor reshape(IntArrayRef size) const { return make("reshape", size); }
  Tensor expand(IntArrayRef size) const { return make("expand", size); }
  Tensor permute(IntArrayRef dims) const { return make("permute", dims); }
  Tensor sum(IntArrayRef dims, bool keepdim = false) const { return make("sum", dims, keepdim); }
  Tensor mean(IntArrayRef dims, bool keepdim = false) const { return make("mean", dims, keepdim); }
  Tensor to(const TensorOptions& o) const { return Tensor(self_.attr("to")(**o.keywords())); }
  Tensor toType(ScalarType t) const { return make("to", t); }
  Tensor operator-() const { return make("neg"); }
  Tensor operator[](int64_t i) const { return make("select", int64_t(0), i); }

#define FL_METHODS(_)                                                                                       \
  _(abs)                                                                                                    \
  _(add)                                                                                                    \
  _(add_)                                                                                                   \
  _(addmm) _(all) _(any) _(argmax) _(argmin) _(bmm) _(clamp) _(clamp_min) _(clone) _(contiguous) _(copy_)   \
      _(cos) _(cpu) _(cuda) _(cumsum) _(detach) _(div) _(div_) _(eq) _(exp) _(fill_) _(flatten) _(ge) _(gt) \
          _(index_select) _(le) _(log) _(lt) _(masked_fill) _(matmul) _(max) _(mean) _(min) _(mm) _(mul)    \
              _(mul_) _(mv) _(narrow) _(ne) _(neg) _(norm) _(pow) _(prod) _(relu) _(select) _(sigmoid)      \
                  _(sin) _(slice) _(softmax) _(sqrt) _(squeeze) _(sub) _(sub_) _(sum) _(t) _(tanh)          \
                      _(transpose) _(type_as) _(unsqueeze) _(view_as) _(where) _(zero_)
#define FL_METHOD(name)                        \
  template <class... A>                        \
  Tensor name(A&&... a) const {                \
    return make(#name, std::forward<A>(a)...); \
  }
  FL_METHODS(FL_METHOD)
#undef FL_METHOD

  static py::object given(const Tensor& t) { return t.defined() ? t.self_ : py::none(); }
  static py::object given(ScalarType t) { return dtype_object(t); }
  static py::object given(const Device& d) { return d.object(); }
  static py::object given(const IntArrayRef& v) { return v.object(); }
  template <class T>
  static py::object given(const T& value) {
    return py::cast(value);
  }

 private:
  template <class Made, class T, size_t N, class Index>
  Made packed() const {
    if (dim() != int64_t(N)) throw Error(c10::str("expected ", N, " dimensions but found ", dim()));
    Index sizes[N], strides[N];
    for (size_t d = 0; d < N; ++d) {
      sizes[d] = static_cast<Index>(size(d));
      strides[d] = static_cast<Index>(stride(d));
    }
    return Made(data_ptr<T>(), sizes, strides);
  }
  py::object self_;
};

#define FL_OPERATOR(symbol, name)                                                                         \
  inline Tensor operator symbol(const Tensor& a, const Tensor& b) {                                       \
    return a.make(#name, b);                                                                              \
  }                                                                                                       \
  inline Tensor operator symbol(const Tensor& a, double b) {                                              \
    return a.make(#name, b);                                                                              \
  }                                                                                                       \
  inline Tensor operator symbol(double a, const Tensor& b) {                                              \
    return Tensor(                                                                                        \
        library().attr(#name)(library().attr("scalar_tensor")(a, **b.options().keywords()), b.object())); \
  }
FL_OPERATOR(+, add)
FL_OPERATOR(-, sub)
FL_OPERATOR(*, mul)
FL_OPERATOR(/, div)
#undef FL_OPERATOR
inline Tensor& operator+=(Tensor& a, const Tensor& b) {
  return a = a.make("add_", b);
}
inline std::ostream& operator<<(std::ostream& out, const Tensor& t) {
  return out << std::string(py::str(t.object()));
}

// Functions of the library by name, with tensors among their arguments.
template <class... A>
Tensor call(const char* name, A&&... a) {
  return Tensor(library().attr(name)(Tensor::given(std::forward<A>(a))...));
}
#define FL_SIZED(name)                                                         \
  inline Tensor name(IntArrayRef size, const TensorOptions& options = {}) {    \
    return Tensor(library().attr(#name)(size.object(), **options.keywords())); \
  }
FL_SIZED(empty)
FL_SIZED(ones)
FL_SIZED(rand)
FL_SIZED(randn)
FL_SIZED(zeros)
#undef FL_SIZED
inline Tensor full(IntArrayRef size, double value, const TensorOptions& options = {}) {
  return Tensor(library().attr("full")(size.object(), value, **options.keywords()));
}
inline Tensor arange(int64_t end, const TensorOptions& options = {}) {
  return Tensor(library().attr("arange")(end, **options.keywords()));
}
#define FL_ALIKE(name)                                                      \
  inline Tensor name(const Tensor& t, const TensorOptions& options = {}) {  \
    return Tensor(library().attr(#name)(t.object(), **options.keywords())); \
  }
FL_ALIKE(empty_like)
FL_ALIKE(ones_like)
FL_ALIKE(rand_like)
FL_ALIKE(randn_like)
FL_ALIKE(zeros_like)
#undef FL_ALIKE
inline Tensor cat(const std::vector<Tensor>& tensors, int64_t dim = 0) {
  py::list all;
  for (const Tensor& t : tensors) all.append(t.object());
  return Tensor(library().attr("cat")(all, dim));
}
inline Tensor stack(const std::vector<Tensor>& tensors, int64_t dim = 0) {
  py::list all;
  for (const Tensor& t : tensors) all.append(t.object());
  return Tensor(library().attr("stack")(all, dim));
}
#define FL_FUNCTION(name)                             \
  template <class... A>                               \
  Tensor name(const Tensor& first, A&&... a) {        \
    return call(#name, first, std::forward<A>(a)...); \
  }
#define FL_FUNCTIONS(_)                                                                                  \
  _(abs)                                                                                                 \
  _(add)                                                                                                 \
  _(addmm)                                                                                               \
  _(bmm) _(clamp) _(cos) _(cumsum) _(div) _(elu) _(exp) _(log) _(log_softmax) _(matmul) _(maximum)       \
      _(minimum) _(mm) _(mul) _(pow) _(relu) _(rsqrt) _(sigmoid) _(sin) _(softmax) _(sqrt) _(sub) _(sum) \
          _(tanh) _(where)
FL_FUNCTIONS(FL_FUNCTION)
#undef FL_FUNCTION

constexpr DeviceType kCPU = DeviceType::CPU, kCUDA = DeviceType::CUDA, kMeta = DeviceType::Meta;
#define FL_CONSTANT(type, name, python) constexpr ScalarType k##name = ScalarType::name;
FL_SCALAR_TYPES(FL_CONSTANT)
#undef FL_CONSTANT
constexpr ScalarType kUInt8 = kByte, kInt8 = kChar, kInt16 = kShort, kInt32 = kInt, kInt64 = kLong,
                     kFloat16 = kHalf, kFloat32 = kFloat, kFloat64 = kDouble;

inline TensorOptions dtype(ScalarType t) {
  return TensorOptions(t);
}
inline TensorOptions device(Device d) {
  return TensorOptions(d);
}

// Nothing is recorded while one lives.
class NoGradGuard {
 public:
  NoGradGuard() : before_(library().attr("is_grad_enabled")().cast<bool>()) { set(false); }
  ~NoGradGuard() { set(before_); }
  NoGradGuard(const NoGradGuard&) = delete;

 private:
  static void set(bool on) { library().attr("_C").attr("_set_grad_enabled")(on); }
  bool before_;
};

}  // namespace at

namespace torch {
using namespace at;
using c10::optional;
using Dtype = c10::ScalarType;
}  // namespace torch

// ---------------------------------------------------------------- checks and dispatch by dtype

#define TORCH_CHECK(condition, ...)                                                  \
  do {                                                                               \
    if (!(condition)) throw ::c10::Error(::c10::str("" __VA_OPT__(, ) __VA_ARGS__)); \
  } while (false)
#define TORCH_CHECK_VALUE(condition, ...)                                                       \
  do {                                                                                          \
    if (!(condition)) throw ::pybind11::value_error(::c10::str("" __VA_OPT__(, ) __VA_ARGS__)); \
  } while (false)
#define TORCH_INTERNAL_ASSERT(...) TORCH_CHECK(__VA_ARGS__)
#define AT_ASSERTM(...) TORCH_CHECK(__VA_ARGS__)
#define AT_ASSERT(...) TORCH_CHECK(__VA_ARGS__)
#define AT_ERROR(...) TORCH_CHECK(false, __VA_ARGS__)

#define AT_DISPATCH_CASE(name_, ...)                                   \
  case name_: {                                                        \
    using scalar_t = typename ::c10::ScalarTypeToCPPType<name_>::type; \
    return __VA_ARGS__();                                              \
  }
#define AT_DISPATCH_SWITCH(type_, what, ...)                                                 \
  [&] {                                                                                      \
    const ::c10::ScalarType fl_type = type_;                                                 \
    switch (fl_type) {                                                                       \
      __VA_ARGS__                                                                            \
      default:                                                                               \
        throw ::c10::Error(::c10::str('"', what, "\" not implemented for '", fl_type, "'")); \
    }                                                                                        \
  }()
#define FL_FLOATING(...)                                  \
  AT_DISPATCH_CASE(::c10::ScalarType::Float, __VA_ARGS__) \
  AT_DISPATCH_CASE(::c10::ScalarType::Double, __VA_ARGS__)
#define FL_INTEGRAL(...)                                  \
  AT_DISPATCH_CASE(::c10::ScalarType::Byte, __VA_ARGS__)  \
  AT_DISPATCH_CASE(::c10::ScalarType::Char, __VA_ARGS__)  \
  AT_DISPATCH_CASE(::c10::ScalarType::Short, __VA_ARGS__) \
  AT_DISPATCH_CASE(::c10::ScalarType::Int, __VA_ARGS__)   \
  AT_DISPATCH_CASE(::c10::ScalarType::Long, __VA_ARGS__)
#define AT_DISPATCH_FLOATING_TYPES(type, what, ...) AT_DISPATCH_SWITCH(type, what, FL_FLOATING(__VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND_HALF(type, what, ...) \
  AT_DISPATCH_SWITCH(type, what,                             \
                     FL_FLOATING(__VA_ARGS__) AT_DISPATCH_CASE(::c10::ScalarType::Half, __VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND(extra, type, what, ...) \
  AT_DISPATCH_SWITCH(type, what, FL_FLOATING(__VA_ARGS__) AT_DISPATCH_CASE(extra, __VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND2(one, two, type, what, ...)               \
  AT_DISPATCH_SWITCH(type, what,                                                 \
                     FL_FLOATING(__VA_ARGS__) AT_DISPATCH_CASE(one, __VA_ARGS__) \
                         AT_DISPATCH_CASE(two, __VA_ARGS__))
#define AT_DISPATCH_INTEGRAL_TYPES(type, what, ...) AT_DISPATCH_SWITCH(type, what, FL_INTEGRAL(__VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES(type, what, ...) \
  AT_DISPATCH_SWITCH(type, what, FL_FLOATING(__VA_ARGS__) FL_INTEGRAL(__VA_ARGS__))

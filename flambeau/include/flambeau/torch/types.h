// Dtypes, devices, options and scalars in PyTorch's shape, for programs without Python.
#pragma once

#include <flambeau/flambeau.h>

#include <complex>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <ostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace c10 {

template <class... Parts>
std::string str(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : std::runtime_error(message) {}
  std::string msg() const { return what(); }
  const char* what_without_backtrace() const noexcept { return what(); }
};
class IndexError : public Error {
 public:
  using Error::Error;
};
class ValueError : public Error {
 public:
  using Error::Error;
};
class TypeError : public Error {
 public:
  using Error::Error;
};
class NotImplementedError : public Error {
 public:
  using Error::Error;
};

// Raises what a call of the C interface reports.
inline void check(fl_status status) {
  if (status == FL_OK) return;
  const std::string message = fl_error();
  switch (status) {
    case FL_INDEX_ERROR:
      throw IndexError(message);
    case FL_VALUE_ERROR:
      throw ValueError(message);
    case FL_TYPE_ERROR:
      throw TypeError(message);
    case FL_NOT_IMPLEMENTED:
      throw NotImplementedError(message);
    default:
      throw Error(message);
  }
}

// ---------------------------------------------------------------- dtypes

struct Half {
  uint16_t x;
};
struct BFloat16 {
  uint16_t x;
};
template <class T>
using complex = std::complex<T>;

enum class ScalarType : int8_t {
  Byte = FL_UINT8,
  Char = FL_INT8,
  Short = FL_INT16,
  Int = FL_INT32,
  Long = FL_INT64,
  Half = FL_FLOAT16,
  Float = FL_FLOAT32,
  Double = FL_FLOAT64,
  ComplexFloat = FL_COMPLEX64,
  ComplexDouble = FL_COMPLEX128,
  Bool = FL_BOOL,
  BFloat16 = FL_BFLOAT16,
  Undefined = 127
};

#define FL_SCALAR_TYPES(_)                                       \
  _(uint8_t, Byte, "unsigned char")                              \
  _(int8_t, Char, "signed char")                                 \
  _(int16_t, Short, "short int")                                 \
  _(int, Int, "int")                                             \
  _(int64_t, Long, "long int")                                   \
  _(Half, Half, "c10::Half")                                     \
  _(float, Float, "float")                                       \
  _(double, Double, "double")                                    \
  _(std::complex<float>, ComplexFloat, "c10::complex<float>")    \
  _(std::complex<double>, ComplexDouble, "c10::complex<double>") \
  _(bool, Bool, "bool") _(BFloat16, BFloat16, "c10::BFloat16")

inline const char* toString(ScalarType t) {
  switch (t) {
#define FL_CASE(type, name, shown) \
  case ScalarType::name:           \
    return #name;
    FL_SCALAR_TYPES(FL_CASE)
#undef FL_CASE
    default:
      return "Undefined";
  }
}
// What a dtype prints as.
inline std::ostream& operator<<(std::ostream& out, ScalarType t) {
  switch (t) {
#define FL_CASE(type, name, shown) \
  case ScalarType::name:           \
    return out << shown;
    FL_SCALAR_TYPES(FL_CASE)
#undef FL_CASE
    default:
      return out << "Undefined";
  }
}

template <class T>
struct CppTypeToScalarType;
template <ScalarType>
struct ScalarTypeToCPPType;
#define FL_TYPE(cpp, name, shown)                         \
  template <>                                             \
  struct CppTypeToScalarType<cpp> {                       \
    static constexpr ScalarType value = ScalarType::name; \
  };                                                      \
  template <>                                             \
  struct ScalarTypeToCPPType<ScalarType::name> {          \
    using type = cpp;                                     \
  };
FL_SCALAR_TYPES(FL_TYPE)
#undef FL_TYPE
template <>
struct CppTypeToScalarType<long long> {
  static constexpr ScalarType value = ScalarType::Long;
};

inline bool isFloatingType(ScalarType t) {
  return t == ScalarType::Half || t == ScalarType::Float || t == ScalarType::Double ||
         t == ScalarType::BFloat16;
}
inline bool isComplexType(ScalarType t) {
  return t == ScalarType::ComplexFloat || t == ScalarType::ComplexDouble;
}
inline bool isIntegralType(ScalarType t, bool include_bool = false) {
  return (!isFloatingType(t) && !isComplexType(t) && t != ScalarType::Bool) ||
         (include_bool && t == ScalarType::Bool);
}
inline int64_t elementSize(ScalarType t) {
  switch (t) {
#define FL_CASE(type, name, shown) \
  case ScalarType::name:           \
    return sizeof(type);
    FL_SCALAR_TYPES(FL_CASE)
#undef FL_CASE
    default:
      return 0;
  }
}

// ---------------------------------------------------------------- devices

enum class DeviceType : int8_t { CPU = 0, CUDA = 1, Meta = 2 };

class Device {
 public:
  Device(DeviceType type, int index = -1) : type_(type), index_(index) {}
  Device(const std::string& text) {
    const size_t colon = text.find(':');
    const std::string type = text.substr(0, colon);
    if (type != "cpu" && type != "cuda" && type != "meta")
      throw Error(c10::str("[device] expected cpu, cuda or meta, got ", text));
    type_ = type == "cpu" ? DeviceType::CPU : type == "cuda" ? DeviceType::CUDA : DeviceType::Meta;
    if (colon != std::string::npos) index_ = std::stoi(text.substr(colon + 1));
  }
  Device(const char* text) : Device(std::string(text)) {}
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

 private:
  DeviceType type_ = DeviceType::CPU;
  int index_ = -1;
};
inline std::ostream& operator<<(std::ostream& out, const Device& d) {
  return out << d.str();
}

enum class MemoryFormat : int8_t { Contiguous = 0, Preserve = 1, ChannelsLast = 2, ChannelsLast3d = 3 };
enum class Layout : int8_t { Strided = 0 };
constexpr Layout kStrided = Layout::Strided;

// ---------------------------------------------------------------- lists

#pragma GCC diagnostic push
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored \
    "-Winit-list-lifetime"  // a list in braces lives as long as the call it is an argument of
#endif
// Read-only values that belong to somebody else.
template <class T>
class ArrayRef {
 public:
  using value_type = T;
  ArrayRef() = default;
  ArrayRef(const T* data, size_t size) : data_(data), size_(size) {}
  ArrayRef(const T& one) : data_(&one), size_(1) {}
  ArrayRef(const std::vector<T>& v) : data_(v.data()), size_(v.size()) {}
  ArrayRef(const std::initializer_list<T>& v) : data_(v.begin()), size_(v.size()) {}
  template <size_t N>
  ArrayRef(const T (&v)[N]) : data_(v), size_(N) {}
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const T& operator[](size_t i) const { return data_[i]; }
  const T& at(size_t i) const {
    if (i >= size_) throw IndexError(str("[ArrayRef] expected an index below ", size_, ", got ", i));
    return data_[i];
  }
  const T& front() const { return at(0); }
  const T& back() const { return at(size_ - 1); }
  std::vector<T> vec() const { return std::vector<T>(begin(), end()); }
  bool equals(ArrayRef o) const {
    if (size_ != o.size_) return false;
    for (size_t i = 0; i < size_; ++i)
      if (!(data_[i] == o.data_[i])) return false;
    return true;
  }
  bool operator==(ArrayRef o) const { return equals(o); }
  bool operator!=(ArrayRef o) const { return !equals(o); }
  ArrayRef slice(size_t from, size_t n) const { return ArrayRef(data_ + from, n); }
  ArrayRef slice(size_t from) const { return slice(from, size_ - from); }

 private:
  const T* data_ = nullptr;
  size_t size_ = 0;
};
template <class T>
std::ostream& operator<<(std::ostream& out, ArrayRef<T> list) {
  out << '[';
  for (size_t i = 0; i < list.size(); ++i) out << (i ? ", " : "") << list[i];
  return out << ']';
}
using IntArrayRef = ArrayRef<int64_t>;
#pragma GCC diagnostic pop

template <class T>
using optional = std::optional<T>;
using nullopt_t = std::nullopt_t;
constexpr auto nullopt = std::nullopt;

// ---------------------------------------------------------------- scalars

class Scalar {
 public:
  Scalar() : Scalar(int64_t(0)) {}
  template <class T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>, int> = 0>
  Scalar(T v) : type_(ScalarType::Long), integer_(static_cast<int64_t>(v)) {}
  Scalar(bool v) : type_(ScalarType::Bool), integer_(v) {}
  Scalar(float v) : type_(ScalarType::Double), number_(v) {}
  Scalar(double v) : type_(ScalarType::Double), number_(v) {}
  Scalar(std::complex<double> v) : type_(ScalarType::ComplexDouble), number_(v) {}
  bool isFloatingPoint() const { return type_ == ScalarType::Double; }
  bool isIntegral(bool include_bool) const {
    return type_ == ScalarType::Long || (include_bool && type_ == ScalarType::Bool);
  }
  bool isBoolean() const { return type_ == ScalarType::Bool; }
  bool isComplex() const { return type_ == ScalarType::ComplexDouble; }
  ScalarType type() const { return type_; }
  template <class T>
  T to() const {
    if constexpr (std::is_same_v<T, std::complex<double>> || std::is_same_v<T, std::complex<float>>)
      return isIntegral(true) ? T(static_cast<typename T::value_type>(integer_))
                              : T(static_cast<typename T::value_type>(number_.real()),
                                  static_cast<typename T::value_type>(number_.imag()));
    else
      return isIntegral(true) ? static_cast<T>(integer_) : static_cast<T>(number_.real());
  }
  double toDouble() const { return to<double>(); }
  float toFloat() const { return to<float>(); }
  int64_t toLong() const { return to<int64_t>(); }
  int toInt() const { return to<int>(); }
  bool toBool() const { return to<bool>(); }
  std::complex<double> toComplexDouble() const { return to<std::complex<double>>(); }

 private:
  ScalarType type_;
  int64_t integer_ = 0;
  std::complex<double> number_ = 0;
};
inline std::ostream& operator<<(std::ostream& out, const Scalar& s) {
  if (s.isBoolean()) return out << (s.toBool() ? "true" : "false");
  if (s.isIntegral(false)) return out << s.toLong();
  if (s.isComplex()) return out << s.toComplexDouble();
  return out << s.toDouble();
}

// ---------------------------------------------------------------- options

class TensorOptions {
 public:
  TensorOptions() = default;
  TensorOptions(ScalarType t) : dtype_(t) {}
  TensorOptions(Device d) : device_(d) {}
  TensorOptions(DeviceType t) : device_(Device(t)) {}
  TensorOptions(MemoryFormat f) : format_(f) {}
  TensorOptions(Layout) {}
  TensorOptions dtype(std::optional<ScalarType> t) const {
    TensorOptions made = *this;
    made.dtype_ = t;
    return made;
  }
  TensorOptions device(std::optional<Device> d) const {
    TensorOptions made = *this;
    made.device_ = d;
    return made;
  }
  TensorOptions device(DeviceType t, int index = -1) const { return device(Device(t, index)); }
  TensorOptions layout(Layout) const { return *this; }
  TensorOptions pinned_memory(bool) const { return *this; }
  TensorOptions memory_format(MemoryFormat f) const {
    TensorOptions made = *this;
    made.format_ = f;
    return made;
  }
  TensorOptions requires_grad(bool yes) const {
    TensorOptions made = *this;
    made.grad_ = yes;
    return made;
  }
  ScalarType dtype() const { return dtype_.value_or(static_cast<ScalarType>(fl_default_dtype())); }
  Device device() const { return device_.value_or(Device(DeviceType::CPU)); }
  bool requires_grad() const { return grad_; }
  const std::optional<ScalarType>& dtype_opt() const { return dtype_; }
  const std::optional<Device>& device_opt() const { return device_; }
  const std::optional<MemoryFormat>& memory_format_opt() const { return format_; }
  bool has_dtype() const { return dtype_.has_value(); }
  bool has_device() const { return device_.has_value(); }

 private:
  std::optional<ScalarType> dtype_;
  std::optional<Device> device_;
  std::optional<MemoryFormat> format_;
  bool grad_ = false;
};

inline std::ostream& operator<<(std::ostream& out, Layout) {
  return out << "Strided";
}
inline std::ostream& operator<<(std::ostream& out, const TensorOptions& o) {
  return out << std::boolalpha << "TensorOptions(dtype=" << o.dtype() << ", device=" << o.device()
             << ", layout=Strided, requires_grad=" << o.requires_grad() << ")";
}
inline ScalarType typeMetaToScalarType(ScalarType t) {
  return t;
}
inline ScalarType scalarTypeToTypeMeta(ScalarType t) {
  return t;
}

constexpr DeviceType kCPU = DeviceType::CPU, kCUDA = DeviceType::CUDA, kMeta = DeviceType::Meta;
#define FL_CONSTANT(type, name, shown) constexpr ScalarType k##name = ScalarType::name;
FL_SCALAR_TYPES(FL_CONSTANT)
#undef FL_CONSTANT
constexpr ScalarType kUInt8 = kByte, kInt8 = kChar, kInt16 = kShort, kInt32 = kInt, kInt64 = kLong,
                     kFloat16 = kHalf, kFloat32 = kFloat, kFloat64 = kDouble, kComplexFloat64 = kComplexFloat;
constexpr ScalarType kU8 = kByte, kI8 = kChar, kI16 = kShort, kI32 = kInt, kI64 = kLong, kF16 = kHalf,
                     kF32 = kFloat, kF64 = kDouble;

}  // namespace c10

namespace caffe2 {

// A dtype as an object, which it is not here.
struct TypeMeta {
  template <class T>
  static c10::ScalarType Make() {
    return c10::CppTypeToScalarType<T>::value;
  }
};

}  // namespace caffe2

#include "definitions/object.h"

#include <cmath>
#include <cstdio>

namespace fl::definitions {

const Heap& Object::nothing() {
  static const Heap empty;
  return empty;
}

Scalar Object::scalar() const {
  switch (type) {
    case Type::Bool:
      return Scalar(integer != 0);
    case Type::Int:
      return Scalar(integer);
    case Type::Float:
      return Scalar(number);
    case Type::Complex:
      return Scalar(complex128(number, imaginary));
    case Type::Tensor:
      return item(tensor);
    default:
      fail(ErrorKind::Type, "[definition] expected a number, got ", type_name(*this));
  }
}

Object from_scalar(const Scalar& scalar) {
  switch (scalar.kind) {
    case Scalar::Kind::Bool:
      return Object(scalar.i != 0);
    case Scalar::Kind::Int:
      return Object(scalar.i);
    case Scalar::Kind::Float:
      return Object(scalar.re);
    default:
      break;
  }
  Object complex(scalar.re);
  complex.type = Type::Complex;
  complex.imaginary = scalar.im;
  return complex;
}

namespace {

template <class T>
Object list_of(const T* data, size_t n) {
  Objects items(data, data + n);
  return Object::list(std::move(items));
}

}  // namespace

Object from_value(const Value& value) {
  switch (value.tag()) {
    case Value::Tag::None:
      return {};
    case Value::Tag::Tensor:
      return Object(value.tensor());
    case Value::Tag::Bool:
    case Value::Tag::Int:
    case Value::Tag::Float:
    case Value::Tag::Complex:
      return from_scalar(value.to_scalar());
    case Value::Tag::DType:
      return Object(value.to_dtype());
    case Value::Tag::Device:
      return Object(value.to_device());
    case Value::Tag::MemoryFormat:
      return Object::enumerator(Type::MemoryFormat, static_cast<int64_t>(value.to_memory_format()));
    case Value::Tag::Layout:
      return Object::enumerator(Type::Layout, static_cast<int64_t>(value.to_layout()));
    case Value::Tag::IntList:
      return list_of(value.ints().data(), value.length());
    case Value::Tag::FloatList:
      return list_of(value.floats(), value.length());
    case Value::Tag::BoolList:
      return list_of(value.bools(), value.length());
    case Value::Tag::TensorList:
      return list_of(value.tensors(), value.length());
    case Value::Tag::String:
      return Object(value.string());
    case Value::Tag::Opaque: {
      if (const auto* carried = dynamic_cast<const Carried*>(value.opaque())) return carried->object;
      Object object;
      object.type = Type::Foreign;
      object.foreign = Ref<Opaque>(value.opaque());
      return object;
    }
  }
  return {};
}

bool truth(const Object& o) {
  switch (o.type) {
    case Type::None:
      return false;
    case Type::Bool:
    case Type::Int:
      return o.integer != 0;
    case Type::Float:
      return o.number != 0;
    case Type::Complex:
      return o.number != 0 || o.imaginary != 0;
    case Type::String:
      return !o.text().empty();
    case Type::List:
    case Type::Tuple:
    case Type::Dict:
    case Type::Set:
      return !o.items().empty();
    case Type::Tensor:
      FL_CHECK(o.tensor.numel() == 1, "[bool] expected a tensor with one element, got the shape ",
               o.tensor.sizes());
      return item(o.tensor).to<bool>();
    default:
      return true;
  }
}

bool same(const Object& a, const Object& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integer() && b.is_integer()) return a.integer == b.integer;
    return a.to_double() == b.to_double() && a.imaginary == b.imaginary;
  }
  if (a.type != b.type) return false;
  switch (a.type) {
    case Type::None:
    case Type::Ellipsis:
      return true;
    case Type::String:
    case Type::Class:
      return a.text() == b.text();
    case Type::Tensor:
      return a.tensor.same(b.tensor);
    case Type::List:
    case Type::Tuple:
    case Type::Set:
    case Type::Dict:
      if (a.items().size() != b.items().size()) return false;
      for (size_t i = 0; i < a.items().size(); ++i)
        if (!same(a.items()[i], b.items()[i])) return false;
      return true;
    case Type::DType:
    case Type::Layout:
    case Type::MemoryFormat:
      return a.integer == b.integer;
    case Type::Device:
      return a.device() == b.device();
    case Type::Foreign:
      return a.foreign.get() == b.foreign.get();
    default:
      return a.heap == b.heap;
  }
}

const char* type_name(const Object& o) {
  static const char* const names[] = {
      "NoneType", "bool",        "int",          "float",        "complex",
      "str",      "Tensor",      "list",         "tuple",        "dict",
      "set",      "torch.dtype", "torch.device", "torch.layout", "torch.memory_format",
      "slice",    "ellipsis",    "function",     "function",     "type",
      "type",     "instance",    "object"};
  return names[static_cast<size_t>(o.type)];
}

namespace {

std::string show_all(const Objects& items, const char* open, const char* close, bool lonely_comma) {
  std::string text = open;
  for (size_t i = 0; i < items.size(); ++i) text += (i ? ", " : "") + show(items[i], true);
  return text + (lonely_comma && items.size() == 1 ? "," : "") + close;
}

std::string show_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  for (int digits = 1; digits <= 17; ++digits) {
    std::snprintf(buffer, sizeof buffer, "%.*g", digits, value);
    if (std::strtod(buffer, nullptr) == value) break;
  }
  std::string text = buffer;
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

}  // namespace

std::string show(const Object& o, bool quoted) {
  switch (o.type) {
    case Type::None:
      return "None";
    case Type::Bool:
      return o.integer ? "True" : "False";
    case Type::Int:
      return std::to_string(o.integer);
    case Type::Float:
      return show_float(o.number);
    case Type::Complex:
      return "(" + show_float(o.number) + (o.imaginary < 0 ? "" : "+") + show_float(o.imaginary) + "j)";
    case Type::String:
      return quoted ? "'" + o.text() + "'" : o.text();
    case Type::Tensor:
      return message("tensor(..., size=", o.tensor.sizes(), ")");
    case Type::List:
      return show_all(o.items(), "[", "]", false);
    case Type::Tuple:
      return show_all(o.items(), "(", ")", true);
    case Type::DType:
      return std::string("torch.") + name_of(o.dtype());
    case Type::Device:
      return to_string(o.device());
    default:
      return std::string("<") + type_name(o) + ">";
  }
}

Objects iterate(const Object& o) {
  switch (o.type) {
    case Type::List:
    case Type::Tuple:
    case Type::Dict:
    case Type::Set:
      return o.items();
    case Type::String: {
      Objects letters;
      for (char c : o.text()) letters.emplace_back(std::string(1, c));
      return letters;
    }
    case Type::Tensor:
      return iterate(call("unbind", {o, Object(int64_t(0))}));
    default:
      fail(ErrorKind::Type, "[definition] expected something to iterate over, got ", type_name(o));
  }
}

}  // namespace fl::definitions

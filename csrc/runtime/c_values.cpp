#include "runtime/c_values.h"

#include <cstdlib>
#include <limits>

namespace fl::runtime {

namespace {

Object slice_of(const int64_t* ends) {
  needed(ends, "the three numbers of a slice");
  Object slice = Object::of(Type::Slice, {});
  for (int i = 0; i < 3; ++i)
    slice.heap->items.push_back(ends[i] == std::numeric_limits<int64_t>::min() ? Object() : Object(ends[i]));
  return slice;
}

template <class T, class F>
Object list_of(const T* data, size_t n, const F& convert) {
  if (n) needed(data, "the items of a list");
  Objects items;
  for (size_t i = 0; i < n; ++i) items.push_back(convert(data[i]));
  return Object::list(std::move(items));
}

}  // namespace

Object to_object(const fl_value& v) {
  switch (v.kind) {
    case FL_NONE:
      return {};
    case FL_VALUE_TENSOR:
      return Object(borrow(v.as.tensor));
    case FL_VALUE_BOOL:
      return Object(v.as.integer != 0);
    case FL_VALUE_INT:
      return Object(v.as.integer);
    case FL_VALUE_FLOAT:
      return Object(v.as.number);
    case FL_VALUE_COMPLEX:
      return definitions::from_scalar(Scalar(complex128(v.as.complex_number[0], v.as.complex_number[1])));
    case FL_VALUE_STRING:
      return Object(&needed(v.as.string, "a string"));
    case FL_VALUE_DTYPE:
      return Object(dtype_of(static_cast<fl_dtype>(v.as.integer)));
    case FL_VALUE_DEVICE:
      return Object(parse_device(&needed(v.as.string, "the name of a device")));
    case FL_VALUE_INTS:
      return list_of(v.as.ints, v.length, [](int64_t x) { return Object(x); });
    case FL_VALUE_FLOATS:
      return list_of(v.as.floats, v.length, [](double x) { return Object(x); });
    case FL_VALUE_TENSORS:
      return list_of(v.as.tensors, v.length, [](fl_tensor* t) { return Object(borrow(t)); });
    case FL_VALUE_BOOLS:
      return list_of(v.as.bools, v.length, [](uint8_t x) { return Object(x != 0); });
    case FL_VALUE_MEMORY_FORMAT:
      return Object::enumerator(Type::MemoryFormat, v.as.integer);
    case FL_VALUE_INDEX:
      return slice_of(v.as.ints);
  }
  fail(ErrorKind::Type, "[fl_call] expected a kind of value, got the number ", static_cast<int>(v.kind));
}

fl_value from_object(const Object& o) {
  fl_value v{};
  switch (o.type) {
    case Type::None:
      return v;
    case Type::Tensor:
      v.kind = FL_VALUE_TENSOR;
      v.as.tensor = give(o.tensor);
      return v;
    case Type::Bool:
    case Type::Int:
      v.kind = o.is(Type::Bool) ? FL_VALUE_BOOL : FL_VALUE_INT;
      v.as.integer = o.integer;
      return v;
    case Type::Float:
      v.kind = FL_VALUE_FLOAT;
      v.as.number = o.number;
      return v;
    case Type::Complex:
      v.kind = FL_VALUE_COMPLEX;
      v.as.complex_number[0] = o.number;
      v.as.complex_number[1] = o.imaginary;
      return v;
    case Type::DType:
      v.kind = FL_VALUE_DTYPE;
      v.as.integer = number_of(o.dtype());
      return v;
    case Type::List:
    case Type::Tuple: {
      v.kind = FL_VALUE_TENSORS;
      v.length = o.items().size();
      v.as.tensors = static_cast<fl_tensor**>(std::calloc(v.length + 1, sizeof(fl_tensor*)));
      for (size_t i = 0; i < v.length; ++i) v.as.tensors[i] = give(o.items()[i].tensor);
      return v;
    }
    default:
      fail(ErrorKind::NotImplemented, "[fl_call] expected results of C's kinds, got ", type_name(o));
  }
}

}  // namespace fl::runtime

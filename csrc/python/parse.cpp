// The argument parser: one walk over the schema, positional and keyword arguments, varargs and NumPy-style
// aliases.
#include "python/parse.h"

#include <cstring>

#include "dispatch/builtin.h"

namespace fl::py {

namespace {

// Whether o is a NumPy-like scalar that is not one of Python's own numbers.
bool is_foreign_number(PyObject* o) {
  PyNumberMethods* m = Py_TYPE(o)->tp_as_number;
  return m && (m->nb_index || m->nb_float) && !PyUnicode_Check(o) && !PySequence_Check(o);
}

bool read_int(PyObject* o, int64_t& out) {
  if (PyLong_Check(o)) {
    int overflow = 0;
    out = PyLong_AsLongLongAndOverflow(o, &overflow);
    if (overflow)
      fail(ErrorKind::Runtime, "[parse] expected an integer that fits in 64 bits, got an overflow");
    return true;
  }
  if (PyFloat_Check(o) || !PyIndex_Check(o)) return false;
  if (is_tensor(o) && (impl_of(o)->numel != 1 || !is_integral(impl_of(o)->dtype, true))) return false;
  Object index = Object::steal(PyNumber_Index(o));
  if (!index) {
    PyErr_Clear();
    return false;
  }
  out = PyLong_AsLongLong(index.get());
  if (out == -1 && PyErr_Occurred()) throw PythonError();
  return true;
}

bool read_float(PyObject* o, double& out) {
  if (PyFloat_Check(o)) {
    out = PyFloat_AS_DOUBLE(o);
    return true;
  }
  if (PyLong_Check(o)) {
    out = PyLong_AsDouble(o);
    if (out == -1 && PyErr_Occurred()) throw PythonError();
    return true;
  }
  if (is_tensor(o) && (impl_of(o)->numel != 1 || is_complex(impl_of(o)->dtype))) return false;
  if (!is_foreign_number(o) && !is_tensor(o)) return false;
  out = PyFloat_AsDouble(o);
  if (out == -1 && PyErr_Occurred()) {
    PyErr_Clear();
    return false;
  }
  return true;
}

bool is_sequence(PyObject* o) {
  return PyTuple_Check(o) || PyList_Check(o);
}

bool read_list(const Argument& arg, PyObject* const* items, Py_ssize_t n, Value& value, Arena& arena) {
  switch (arg.type) {
    case ArgType::Int: {
      int64_t* at = arena.take_ints(n);
      for (Py_ssize_t i = 0; i < n; ++i)
        if (!read_int(items[i], at[i])) return false;
      value = Value::borrow(IntSpan(at, n));
      return true;
    }
    case ArgType::Float:
    case ArgType::Scalar: {
      arena.float_lists.emplace_back(n);
      auto& list = arena.float_lists.back();
      for (Py_ssize_t i = 0; i < n; ++i)
        if (!read_float(items[i], list[i])) return false;
      value = Value::borrow(list.data(), n);
      return true;
    }
    case ArgType::Bool: {
      arena.bool_lists.emplace_back(new bool[n ? n : 1]);
      bool* list = arena.bool_lists.back().get();
      for (Py_ssize_t i = 0; i < n; ++i) {
        if (!PyBool_Check(items[i])) return false;
        list[i] = items[i] == Py_True;
      }
      value = Value::borrow(list, n);
      return true;
    }
    case ArgType::Tensor:
    case ArgType::TensorOrScalar: {
      arena.tensor_lists.emplace_back();
      auto& list = arena.tensor_lists.back();
      list.reserve(n);
      for (Py_ssize_t i = 0; i < n; ++i) {
        if (is_tensor(items[i])) {
          list.emplace_back(impl_of(items[i]));
        } else if (items[i] == Py_None && arg.list_optional) {
          list.emplace_back();
        } else {
          Value number;
          if (arg.type == ArgType::Tensor || !number_value(items[i], number)) return false;
          list.push_back(wrapped_number(number.to_scalar()));
        }
      }
      value = Value::borrow(list.data(), n);
      return true;
    }
    default:
      return false;
  }
}

// A dtype, or the Python type of numbers that stands for one.
bool read_dtype(PyObject* o, Value& value) {
  if (is_dtype(o)) {
    value = Value(dtype_value(o));
  } else if (o == reinterpret_cast<PyObject*>(&PyFloat_Type)) {
    value = Value(DType::Double);
  } else if (o == reinterpret_cast<PyObject*>(&PyLong_Type)) {
    value = Value(DType::Int64);
  } else if (o == reinterpret_cast<PyObject*>(&PyBool_Type)) {
    value = Value(DType::Bool);
  } else if (o == reinterpret_cast<PyObject*>(&PyComplex_Type)) {
    value = Value(DType::ComplexDouble);
  } else {
    return false;
  }
  return true;
}

bool read_single(const Argument& arg, PyObject* o, Value& value, Arena& arena) {
  switch (arg.type) {
    case ArgType::Tensor:
      if (!is_tensor(o)) return false;
      value = Value::borrow(impl_of(o));
      return true;
    case ArgType::TensorOrScalar:
      if (is_tensor(o)) {
        value = Value::borrow(impl_of(o));
        return true;
      }
      return number_value(o, value);
    case ArgType::Scalar:
      if (is_tensor(o)) {
        if (impl_of(o)->numel != 1) return false;
        if (impl_of(o)->device.type == DeviceType::Meta) return false;
        if (unwrap(o).requires_grad()) return false;  // its gradient would be lost
        value = Value(item(unwrap(o)));
        return true;
      }
      return number_value(o, value);
    case ArgType::Int: {
      int64_t i;
      if (!read_int(o, i)) return false;
      value = Value(i);
      return true;
    }
    case ArgType::Float: {
      double d;
      if (is_tensor(o) && unwrap(o).requires_grad()) return false;  // its gradient would be lost
      if (!read_float(o, d)) return false;
      value = Value(d);
      return true;
    }
    case ArgType::Bool:
      if (PyBool_Check(o)) {
        value = Value(o == Py_True);
        return true;
      }
      if (std::strncmp(Py_TYPE(o)->tp_name, "numpy.bool", 10) == 0) {
        value = Value(PyObject_IsTrue(o) == 1);
        return true;
      }
      return false;
    case ArgType::String: {
      if (!PyUnicode_Check(o)) return false;
      Py_ssize_t n;
      const char* text = PyUnicode_AsUTF8AndSize(o, &n);
      if (!text) throw PythonError();
      value = Value::borrow(std::string_view(text, n));
      return true;
    }
    case ArgType::DType:
      return read_dtype(o, value);
    case ArgType::Device:
      if (!is_device(o) && !PyUnicode_Check(o) && !(PyLong_Check(o) && !PyBool_Check(o))) return false;
      value = Value(device_from(o));
      return true;
    case ArgType::Layout:
      if (!is_layout(o)) return false;
      value = Value(layout_value(o));
      return true;
    case ArgType::MemoryFormat:
      if (!is_memory_format(o)) return false;
      value = Value(memory_format_value(o));
      return true;
    case ArgType::Generator:
      if (!is_generator(o)) return false;
      value = Value(Ref<Opaque>(new PyOpaque(o)));
      return true;
    case ArgType::Any: {
      value = Value(Ref<Opaque>(new PyOpaque(o)));
      return true;
    }
  }
  return false;
}

bool read(const Argument& arg, PyObject* o, Value& value, Arena& arena) {
  if (o == Py_None && (arg.optional || (arg.type == ArgType::Any && !arg.list))) {
    value = Value();
    return true;
  }
  // Dimensions of a reduction: none are all, as an empty list says.
  if (o == Py_None && arg.list && arg.type == ArgType::Int && arg.broadcast == 1 && arg.has_default) {
    value = arg.default_value;
    return true;
  }
  if (!arg.list) return read_single(arg, o, value, arena);
  if (is_sequence(o)) {
    return read_list(arg, PySequence_Fast_ITEMS(o), PySequence_Fast_GET_SIZE(o), value, arena);
  }
  if (arg.broadcast) {  // one value stands for all
    std::vector<PyObject*> all(arg.broadcast, o);
    return read_list(arg, all.data(), arg.broadcast, value, arena);
  }
  if (is_tensor(o) && arg.type != ArgType::Tensor && arg.type != ArgType::TensorOrScalar) {
    // A 1-d integer tensor as a list of sizes.
    if (impl_of(o)->sizes.size() != 1 || !is_integral(impl_of(o)->dtype)) return false;
    Object list = own(tensor_tolist(o, nullptr));
    arena.objects.push_back(list);
    return read(arg, list.get(), value, arena);
  }
  if (!PyUnicode_Check(o) && !is_tensor(o) &&
      (PySequence_Check(o) || PyIter_Check(o) || PyObject_HasAttrString(o, "__iter__"))) {
    Object list = Object::steal(PySequence_List(o));
    if (!list) {
      PyErr_Clear();
      return false;
    }
    arena.objects.push_back(list);
    return read(arg, list.get(), value, arena);
  }
  return false;
}

// NumPy-style and functional spellings of argument names.
bool same_name(const std::string& formal, const char* name) {
  if (formal == name) return true;
  if (formal == "self")
    return !std::strcmp(name, "input") || !std::strcmp(name, "x") || !std::strcmp(name, "x1") ||
           !std::strcmp(name, "a");
  if (formal == "input") return !std::strcmp(name, "self");
  if (formal == "dim") return !std::strcmp(name, "axis");
  if (formal == "keepdim") return !std::strcmp(name, "keepdims");
  if (formal == "other") return !std::strcmp(name, "x2");
  return false;
}

const char* type_text(const Argument& arg) {
  switch (arg.type) {
    case ArgType::Tensor:
      return "Tensor";
    case ArgType::TensorOrScalar:
      return "Tensor or number";
    case ArgType::Scalar:
      return "number";
    case ArgType::Int:
      return "int";
    case ArgType::Float:
      return "float";
    case ArgType::Bool:
      return "bool";
    case ArgType::String:
      return "str";
    case ArgType::DType:
      return "dtype";
    case ArgType::Device:
      return "device";
    case ArgType::Layout:
      return "layout";
    case ArgType::MemoryFormat:
      return "memory_format";
    case ArgType::Generator:
      return "Generator";
    default:
      return "object";
  }
}

std::string describe(const Argument& arg) {
  std::string s = type_text(arg);
  if (arg.list) s = "list of " + s;
  if (arg.optional) s += " or None";
  return s;
}

// What came instead: its type, or that of the first item of a list that does not fit.
std::string describe_given(const Argument& arg, PyObject* argument) {
  const std::string type = Py_TYPE(argument)->tp_name;
  if (arg.list && arg.type == ArgType::Tensor && is_tensor(argument))
    return type + ": must be tuple of Tensors, not Tensor";
  if (arg.type == ArgType::Tensor && !arg.list) {
    if (type == "numpy.ndarray") return type + "; convert it with from_numpy() or tensor()";
    if (PyList_Check(argument) || PyTuple_Check(argument))
      return type + "; make it a tensor with tensor() or stack()";
  }
  if (arg.type == ArgType::DType && PyUnicode_Check(argument))
    return type + "; write it without quotes, as in torch.float32";
  if (arg.type == ArgType::DType && PyType_Check(argument))
    return type + "; write a dtype of this library, as in torch.float32";
  // Classes of PyTorch's that bear the names of ours.
  if (arg.type == ArgType::DType && type == "torch.dtype")
    return "a dtype of PyTorch; write flambeau's, as in flambeau.float32";
  if (arg.type == ArgType::Device && type == "torch.device")
    return "a device of PyTorch; write its name, as in 'cpu'";
  if (!arg.list || !(PyList_Check(argument) || PyTuple_Check(argument))) return type;
  Argument item = arg;
  item.list = item.optional = false;
  Arena arena;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(argument); ++i) {
    PyObject* o = PySequence_Fast_GET_ITEM(argument, i);
    Value value;
    if (!read(item, o, value, arena))
      return message("a ", type, " with ", std::string(Py_TYPE(o)->tp_name), " at index ",
                     static_cast<int64_t>(i));
  }
  return type;
}

std::string argument_names(const Operator& op) {
  std::string names;
  for (const auto& arg : op.schema.args) names += (names.empty() ? "" : ", ") + arg.name;
  return op.out ? names + ", out" : names;
}

}  // namespace

// Functions that make a tensor: they take the device it goes to.
bool makes_tensor(const Operator& op) {
  for (const auto& arg : op.schema.args)
    if (arg.keyword_only && arg.type == ArgType::Device) return true;
  return false;
}

DefaultDevice& default_device() {
  static thread_local DefaultDevice device;
  return device;
}

namespace {
// Functions that make a tensor from none; `ones_like` and such follow the tensor they are given.
template <class Formals>
bool takes_default_device(const Formals& formals, size_t i) {
  return formals[i].keyword_only && formals[i].type == ArgType::Device && formals[0].type != ArgType::Tensor;
}
// Whether the record of an operator has a tag; for what is asked only when a call does not fit otherwise.
bool has_tag(const Operator& op, const char* wanted) {
  const Operator& base = op.functional ? *op.functional : op;
  if (base.record == nullptr) return false;
  const size_t length = std::strlen(wanted);
  const char* tags = base.record->tags;
  for (const char* at = std::strstr(tags, wanted); at; at = std::strstr(at + 1, wanted))
    if ((at == tags || at[-1] == ' ') && (at[length] == ' ' || at[length] == 0)) return true;
  return false;
}

// torch.add(2, x): a number in place of a tensor.
bool read_number_as_tensor(const Operator& op, const Argument& arg, PyObject* o, Value& value) {
  Value number;
  if (arg.type != ArgType::Tensor || arg.list || arg.mutated || is_tensor(o) || !number_value(o, number))
    return false;
  if (!has_tag(op, "takes_numbers")) return false;
  value = Value(wrapped_number(number.to_scalar()));
  return true;
}

// One call being parsed: the arguments seen so far are bits of `seen`.
struct Parse {
  const Operator& op;
  const std::vector<Argument>& formals;
  Value* values;
  Arena& arena;
  std::string* why;  // what was expected, for messages; or null
  uint64_t seen = 0;

  bool positional(PyObject* const* args, Py_ssize_t nargs);
  bool keyword(const char* name, PyObject* o, PyObject** out);
  bool defaults();
};

bool Parse::positional(PyObject* const* args, Py_ssize_t nargs) {
  size_t most = 0;  // formals that may be passed by position
  while (most < formals.size() && !formals[most].keyword_only) ++most;
  for (Py_ssize_t i = 0; i < nargs; ++i) {
    if (static_cast<size_t>(i) >= most) {
      if (why)
        *why = message("at most ", static_cast<int64_t>(most), " positional arguments, got ",
                       static_cast<int64_t>(nargs));
      return false;
    }
    const Argument& arg = formals[i];
    // x.view(2, 3): the rest of the positional arguments is the list.
    if (arg.list && arg.broadcast == 0 && !is_sequence(args[i]) && static_cast<size_t>(i) + 1 == most &&
        args[i] != Py_None) {
      if ((arg.type == ArgType::Int &&
           (PyIndex_Check(args[i]) && !(is_tensor(args[i]) && impl_of(args[i])->sizes.size() == 1))) ||
          (arg.type == ArgType::Tensor && is_tensor(args[i]) && op.flags & kVariadic)) {
        if (!read_list(arg, args + i, nargs - i, values[i], arena)) {
          if (why) *why = message(describe(arg), " for '", arg.name, "', got other types");
          return false;
        }
        seen |= uint64_t(1) << i;
        break;
      }
    }
    if (!read(arg, args[i], values[i], arena) && !read_number_as_tensor(op, arg, args[i], values[i])) {
      if (why)
        *why = message(describe(arg), " for '", arg.name, "' (position ", static_cast<int64_t>(i + 1),
                       "), got ", describe_given(arg, args[i]));
      return false;
    }
    seen |= uint64_t(1) << i;
  }
  return true;
}

bool Parse::keyword(const char* name, PyObject* o, PyObject** out) {
  const size_t n = formals.size();
  size_t at = 0;
  while (at < n && formals[at].name != name) ++at;
  if (at == n) {
    at = 0;
    while (at < n && !same_name(formals[at].name, name)) ++at;
  }
  if (at == n) {
    if (out && !std::strcmp(name, "out")) {
      if (o != Py_None) *out = o;
      return true;
    }
    // Not an argument of the operator: the caller marks the result (see wants_grad in call.cpp).
    if (!std::strcmp(name, "requires_grad") && PyBool_Check(o) && (o == Py_False || makes_tensor(op)))
      return true;
    if (why) *why = message("one of the arguments ", argument_names(op), ", got '", name, "'");
    return false;
  }
  if (seen >> at & 1) {
    if (why) *why = message("one value for '", name, "', got two");
    return false;
  }
  if (!read(formals[at], o, values[at], arena)) {
    if (why)
      *why = message(describe(formals[at]), " for '", formals[at].name, "', got ",
                     describe_given(formals[at], o));
    return false;
  }
  if (__builtin_expect(default_device().active, 0) && o == Py_None && takes_default_device(formals, at))
    values[at] = Value(default_device().device);
  seen |= uint64_t(1) << at;
  return true;
}

bool Parse::defaults() {
  for (size_t i = 0; i < formals.size(); ++i) {
    if (seen >> i & 1) continue;
    if (!formals[i].has_default) {
      if (why) *why = message("a value for '", formals[i].name, "', got none");
      return false;
    }
    const Value& d = formals[i].default_value;
    switch (d.tag()) {
      case Value::Tag::IntList:
        values[i] = Value::borrow(d.ints());
        break;
      case Value::Tag::FloatList:
        values[i] = Value::borrow(d.floats(), d.length());
        break;
      case Value::Tag::String:
        values[i] = Value::borrow(d.string());
        break;
      default:
        values[i] = d;
    }
    if (__builtin_expect(default_device().active, 0) && takes_default_device(formals, i))
      values[i] = Value(default_device().device);
  }
  return true;
}

}  // namespace

bool parse(const Operator& op, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames, Value* values,
           Arena& arena, PyObject** out, std::string* why) {
  Parse call{op, op.schema.args, values, arena, why};
  if (!call.positional(args, nargs)) return false;
  for (Py_ssize_t k = 0, n = kwnames ? PyTuple_GET_SIZE(kwnames) : 0; k < n; ++k)
    if (!call.keyword(PyUnicode_AsUTF8(PyTuple_GET_ITEM(kwnames, k)), args[nargs + k], out)) return false;
  return call.defaults();
}

bool number_value(PyObject* o, Value& out) {
  if (PyBool_Check(o)) {
    out = Value(o == Py_True);
  } else if (PyLong_Check(o)) {
    int overflow = 0;
    const int64_t i = PyLong_AsLongLongAndOverflow(o, &overflow);
    if (overflow) {
      const unsigned long long u = overflow > 0 ? PyLong_AsUnsignedLongLong(o) : 0;
      if (overflow < 0 || (u == static_cast<unsigned long long>(-1) && PyErr_Occurred())) {
        PyErr_Clear();
        fail(ErrorKind::Runtime, "[parse] expected an integer that fits in 64 bits, got an overflow");
      }
      out = Value(static_cast<int64_t>(u));
    } else {
      out = Value(i);
    }
  } else if (PyFloat_Check(o)) {
    out = Value(PyFloat_AS_DOUBLE(o));
  } else if (PyComplex_Check(o)) {
    out = Value(complex128(PyComplex_RealAsDouble(o), PyComplex_ImagAsDouble(o)));
  } else if (std::strncmp(Py_TYPE(o)->tp_name, "numpy.", 6) == 0 && is_foreign_number(o)) {
    const char* name = Py_TYPE(o)->tp_name + 6;
    if (!std::strncmp(name, "bool", 4)) {
      out = Value(PyObject_IsTrue(o) == 1);
      return true;
    }
    Object number;
    if (!std::strncmp(name, "complex", 7))
      number = own(PyObject_CallOneArg(reinterpret_cast<PyObject*>(&PyComplex_Type), o));
    else if (Py_TYPE(o)->tp_as_number->nb_index)
      number = own(PyNumber_Index(o));
    else if (!std::strcmp(name, "ndarray"))
      return false;
    else
      number = own(PyNumber_Float(o));
    return number_value(number.get(), out);
  } else {
    return false;
  }
  return true;
}

int64_t int_value(PyObject* o) {
  Object index = own(PyNumber_Index(o));
  const int64_t i = PyLong_AsLongLong(index.get());
  if (i == -1 && PyErr_Occurred()) throw PythonError();
  return i;
}

}  // namespace fl::py

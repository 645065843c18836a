// Operators from Python: overload objects, definitions, kernels and fallbacks written in Python, registered
// devices.
#include "python/library.h"

#include <structmember.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "core/allocator.h"
#include "core/private_use.h"
#include "dispatch/builtin.h"
#include "dispatch/record_places.h"
#include "dispatch/shared_key.h"
#include "ops/promotion.h"
#include "python/parse.h"

namespace fl::py {

namespace {

// ---------------------------------------------------------------- overload objects

// The base of flambeau._ops.OpOverload: the operator and the call. Names and schema are added in Python.
struct OverloadObject {
  PyObject_HEAD vectorcallfunc vectorcall;
  Operator* op;
};

PyObject* call_overload(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  const Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
  const Py_ssize_t total = nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
  return guarded([&]() -> PyObject* {
    if (__builtin_expect(any_override(args, total), 0)) return call_override(self, args, nargs, kwnames);
    const Operator& op = *reinterpret_cast<OverloadObject*>(self)->op;
    Value values[kMaxArgs];
    Arena arena;
    std::string why;
    // Operators called by their own objects refuse arguments as PyTorch's do, with RuntimeError.
    if (!parse(op, args, nargs, kwnames, values, arena, nullptr, &why))
      fail(ErrorKind::Runtime, "[", op.schema.full_name(), "] expected ", why);
    return call_operator(op, values);
  });
}

PyObject* overload_new(PyTypeObject* type, PyObject* args, PyObject*) {
  const char* name;
  if (!PyArg_ParseTuple(args, "s", &name)) return nullptr;
  return guarded([&]() -> PyObject* {
    Operator& op = OperatorTable::get().at(name);
    auto* self = reinterpret_cast<OverloadObject*>(check(type->tp_alloc(type, 0)));
    self->vectorcall = call_overload;
    self->op = &op;
    return reinterpret_cast<PyObject*>(self);
  });
}

}  // namespace

Operator* operator_of(PyObject* o) {
  static PyObject* base = nullptr;
  if (!base) {
    Object module = own(PyImport_ImportModule("flambeau._C"));
    base = check(PyObject_GetAttrString(module.get(), "_OpBase"));
  }
  if (check(PyObject_IsInstance(o, base))) return reinterpret_cast<OverloadObject*>(o)->op;
  FL_CHECK_KIND(PyUnicode_Check(o), Type, "[library] expected an operator or its name, got ",
                std::string(Py_TYPE(o)->tp_name));
  return &OperatorTable::get().at(PyUnicode_AsUTF8(o));
}

namespace {

PyMemberDef overload_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(OverloadObject, vectorcall), READONLY, nullptr}, {}};

// ---------------------------------------------------------------- kernels in Python

struct PythonKernel {
  PyObject* function;
  bool with_keys;      // the key set is the first argument
  bool with_operator;  // so is the operator: fallbacks serve many
  bool of_device;      // a kernel of a registered device
};

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    const Scalar x = a.to_scalar(), y = b.to_scalar();
    if (x.is_integral() && y.is_integral())
      return (x.kind == Scalar::Kind::Bool) == (y.kind == Scalar::Kind::Bool) && x.i == y.i;
    return x.kind == y.kind && x.to<complex128>() == y.to<complex128>();
  }
  if (a.tag() != b.tag()) return false;
  switch (a.tag()) {
    case Value::Tag::None:
      return true;
    case Value::Tag::DType:
      return a.to_dtype() == b.to_dtype();
    case Value::Tag::Device:
      return a.to_device() == b.to_device();
    case Value::Tag::MemoryFormat:
      return a.to_memory_format() == b.to_memory_format();
    case Value::Tag::Layout:
      return a.to_layout() == b.to_layout();
    case Value::Tag::String:
      return a.string() == b.string();
    case Value::Tag::IntList:
      return a.ints() == b.ints();
    case Value::Tag::FloatList:
      return a.length() == b.length() && std::equal(a.floats(), a.floats() + a.length(), b.floats());
    default:
      return false;
  }
}

void run_python_kernel(const Operator& op, void* context, KeySet keys, Value* args, Value* results) {
  WithGIL gil;
  const auto& kernel = *static_cast<PythonKernel*>(context);
  std::optional<BelowModes> below;
  if (kernel.of_device) below.emplace();
  Object positional, keywords;
  unparse_given(op, args, positional, keywords);
  if (kernel.with_keys || kernel.with_operator) {
    Object head = own(PyTuple_New(kernel.with_keys + kernel.with_operator));
    if (kernel.with_keys) PyTuple_SET_ITEM(head.get(), 0, check(PyLong_FromUnsignedLong(keys.bits())));
    if (kernel.with_operator) PyTuple_SET_ITEM(head.get(), kernel.with_keys, Py_NewRef(overload_object(op)));
    positional = own(PySequence_Concat(head.get(), positional.get()));
  }
  Object result = own(PyObject_Call(kernel.function, positional.get(), keywords.get()));
  store_python_results(op, result.get(), args, results);
}

// Devices that share a key are numbered from here.
constexpr int kSharedNumbers = 64;

Key key_argument(int key) {
  if (key >= kSharedNumbers && key < kSharedNumbers + kMaxDeviceTypes) return Key::Shared;
  FL_CHECK_KIND(key >= 0 && key < kKeys, Value, "[library] expected a dispatch key, got ", key);
  return static_cast<Key>(key);
}

int key_number(DeviceType type) {
  const Key key = backend_key(type);
  return static_cast<int>(key) +
         (key == Key::Shared ? kSharedNumbers - static_cast<int>(key) + static_cast<int>(type) : 0);
}

// The device of a key number; null for keys of other things than registered devices.
std::optional<DeviceType> device_of_number(int key) {
  if (key >= kSharedNumbers) return static_cast<DeviceType>(key - kSharedNumbers);
  if (key >= static_cast<int>(Key::Custom0) && key < static_cast<int>(Key::Shared))
    return static_cast<DeviceType>(key);
  return std::nullopt;
}

Kernel kernel_at(const Operator& op, int key) {
  const auto device = device_of_number(key);
  return device ? device_kernel(op, *device) : op.kernel(key_argument(key));
}

void set_kernel_at(Operator& op, int key, Kernel kernel) {
  if (const auto device = device_of_number(key))
    set_device_kernel(op, *device, kernel);
  else
    op.set_kernel(key_argument(key), kernel);
}

// Kernels replaced by Python ones, to be put back when a library goes away.
struct Replaced {
  Operator* op;
  int key;
  Kernel before;
};
std::vector<Replaced>& replaced() {
  static auto* list = new std::vector<Replaced>;
  return *list;
}

PyObject* define_operator(PyObject*, PyObject* args) {
  // _define_operator(schema): a new operator; one whose library went away may be defined again.
  const char* schema;
  int again = 0;
  if (!PyArg_ParseTuple(args, "s|p", &schema, &again)) return nullptr;
  return guarded([&]() -> PyObject* {
    auto& table = OperatorTable::get();
    if (again) {
      Schema parsed = Schema::parse(schema);
      Operator& op = table.at(parsed.full_name());
      for (int k = 0; k < kKeys; ++k) op.set_kernel(static_cast<Key>(k), {});
      op.schema = std::move(parsed);
      if (op.python) Py_DECREF(static_cast<PyObject*>(op.python));
      op.python = nullptr;
    } else {
      table.define(schema);
    }
    Py_RETURN_NONE;
  });
}

PyObject* set_kernel(PyObject*, PyObject* args) {
  // _set_kernel(name, key, function, with_keys, only_if_missing) -> handle for _restore_kernel, or None
  const char* name;
  int key, with_keys = 0, if_missing = 0;
  PyObject* function;
  if (!PyArg_ParseTuple(args, "siO|pp", &name, &key, &function, &with_keys, &if_missing)) return nullptr;
  return guarded([&]() -> PyObject* {
    Operator& op = OperatorTable::get().at(name);
    if (if_missing && kernel_at(op, key)) Py_RETURN_NONE;
    replaced().push_back({&op, key, kernel_at(op, key)});
    const bool of_device = device_of_number(key).has_value();
    Kernel kernel;  // an empty one lets the call fall through
    if (function != Py_None)
      kernel =
          Kernel{run_python_kernel, new PythonKernel{Py_NewRef(function), with_keys != 0, false, of_device}};
    set_kernel_at(op, key, kernel);
    return PyLong_FromSize_t(replaced().size() - 1);
  });
}

PyObject* restore_kernel(PyObject*, PyObject* arg) {
  return guarded([&]() -> PyObject* {
    const int64_t handle = int_value(arg);
    FL_CHECK(handle >= 0 && handle < static_cast<int64_t>(replaced().size()),
             "[library] expected the handle of a kernel, got ", handle);
    Replaced& r = replaced()[handle];
    set_kernel_at(*r.op, r.key, r.before);
    Py_RETURN_NONE;
  });
}

PyObject* set_fallback(PyObject*, PyObject* args) {
  int key, with_keys = 0;
  PyObject* function;
  if (!PyArg_ParseTuple(args, "iO|p", &key, &function, &with_keys)) return nullptr;
  return guarded([&]() -> PyObject* {
    Kernel kernel;
    const auto device = device_of_number(key);
    if (function != Py_None)
      kernel = Kernel{run_python_kernel,
                      new PythonKernel{Py_NewRef(function), with_keys != 0, true, device.has_value()}};
    if (device)
      set_device_fallback(*device, kernel);
    else
      OperatorTable::get().set_fallback(key_argument(key), kernel);
    Py_RETURN_NONE;
  });
}

PyObject* has_kernel(PyObject*, PyObject* args) {
  PyObject* name;
  int key;
  if (!PyArg_ParseTuple(args, "Oi", &name, &key)) return nullptr;
  return guarded([&]() -> PyObject* { return PyBool_FromLong(bool(kernel_at(*operator_of(name), key))); });
}

PyObject* operator_info(PyObject*, PyObject* name) {
  // _operator_info(name) -> (schema text, flags, name of the op it derives from or None)
  return guarded([&]() -> PyObject* {
    Operator* op = operator_of(name);
    Object base = op->functional ? own(PyUnicode_FromString(op->functional->schema.full_name().c_str()))
                                 : Object::borrow(Py_None);
    return Py_BuildValue("(sIO)", op->schema.text.c_str(), op->flags, base.get());
  });
}

PyObject* find_operator(PyObject*, PyObject* arg) {
  const char* name = PyUnicode_AsUTF8(arg);
  if (!name) return nullptr;
  return PyBool_FromLong(OperatorTable::get().find(name) != nullptr);
}

PyObject* operator_object(PyObject*, PyObject* name) {
  return guarded([&]() -> PyObject* { return Py_NewRef(overload_object(*operator_of(name))); });
}

PyObject* make_packet(PyObject*, PyObject* args) {
  // _make_packet(name, module, [full names]): a function that picks among overloads.
  const char *name, *module;
  PyObject* names;
  if (!PyArg_ParseTuple(args, "ssO!", &name, &module, &PyList_Type, &names)) return nullptr;
  return guarded([&]() -> PyObject* {
    std::vector<Operator*> overloads;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(names); ++i)
      overloads.push_back(operator_of(PyList_GET_ITEM(names, i)));
    return make_function(name, module, overloads, false);
  });
}

// Parses arguments for an operator and calls it with given keys (redispatch), or with one kernel only
// (decompose).
PyObject* call_keys(PyObject*, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  // _call_with_keys(op, bits, *args, **kwargs)
  return guarded([&]() -> PyObject* {
    FL_CHECK_KIND(nargs >= 2, Type, "[redispatch] expected an operator and a key set, got fewer arguments");
    const Operator& op = *operator_of(args[0]);
    const uint32_t bits = static_cast<uint32_t>(int_value(args[1]));
    Value values[kMaxArgs];
    Arena arena;
    std::string why;
    if (!parse(op, args + 2, nargs - 2, kwnames, values, arena, nullptr, &why))
      fail(ErrorKind::Type, "[", op.schema.full_name(), "] expected ", why);
    Value results[8];
    if (bits == uint32_t(1) << static_cast<int>(Key::Composite)) {
      const Kernel kernel = op.kernel(Key::Composite);
      if (!kernel) return Py_NewRef(Py_NotImplemented);
      kernel.fn(op, kernel.context, KeySet(bits), values, results);
    } else {
      op.call_with(KeySet(bits), values, results);
    }
    return wrap_results(op, results);
  });
}

PyObject* keys_of_call(PyObject*, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  // _keys_of_call(op, *args, **kwargs): the key set with which the call would be dispatched.
  return guarded([&]() -> PyObject* {
    const Operator& op = *operator_of(args[0]);
    Value values[kMaxArgs];
    Arena arena;
    std::string why;
    if (!parse(op, args + 1, nargs - 1, kwnames, values, arena, nullptr, &why))
      fail(ErrorKind::Type, "[", op.schema.full_name(), "] expected ", why);
    return PyLong_FromUnsignedLong(op.keys_of(values).bits());
  });
}

// ---------------------------------------------------------------- keys and devices

PyObject* swap_excluded(PyObject*, PyObject* arg) {
  return guarded([&]() -> PyObject* {
    const KeySet fresh(static_cast<uint32_t>(int_value(arg)));
    return PyLong_FromUnsignedLong(std::exchange(thread_state().excluded, fresh).bits());
  });
}
PyObject* swap_included(PyObject*, PyObject* arg) {
  return guarded([&]() -> PyObject* {
    const KeySet fresh(static_cast<uint32_t>(int_value(arg)));
    return PyLong_FromUnsignedLong(std::exchange(thread_state().included, fresh).bits());
  });
}
PyObject* local_keys(PyObject*, PyObject*) {
  return Py_BuildValue("(II)", thread_state().included.bits(), thread_state().excluded.bits());
}
PyObject* tensor_keys(PyObject*, PyObject* o) {
  return guarded([&]() -> PyObject* {
    FL_CHECK_KIND(is_tensor(o), Type, "[keys] expected a Tensor, got ", std::string(Py_TYPE(o)->tp_name));
    return PyLong_FromUnsignedLong(impl_of(o)->keys.bits());
  });
}

PyObject* alias_device_name(PyObject*, PyObject* args) {
  // _alias_device(alias, name): the alias means this device from now on.
  const char *alias, *name;
  if (!PyArg_ParseTuple(args, "ss", &alias, &name)) return nullptr;
  alias_device(alias, name);
  Py_RETURN_NONE;
}

PyObject* register_device_type(PyObject*, PyObject* args) {
  // _register_device(name, allocate or None, free or None, pooled) -> dispatch key of the device
  const char* name;
  PyObject *allocate = Py_None, *free = Py_None;
  int pooled = 0;
  if (!PyArg_ParseTuple(args, "s|OOp", &name, &allocate, &free, &pooled)) return nullptr;
  return guarded([&]() -> PyObject* {
    FL_CHECK_KIND(
        name[0] != 0 && std::strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == std::strlen(name),
        Value, "[register_device] expected a name of lower-case letters, digits and underscores, got '",
        std::string(name), "'");
    const DeviceType type = register_device(name);
    FL_CHECK_KIND(type >= DeviceType::Custom0, Value, "[register_device] expected a new device name, got '",
                  std::string(name), "'");
    set_device_memory(type, allocate, free, pooled != 0);
    return PyLong_FromLong(key_number(type));
  });
}

PyObject* device_key(PyObject*, PyObject* arg) {
  return guarded([&]() -> PyObject* { return PyLong_FromLong(key_number(device_from(arg).type)); });
}

PyObject* promote_operands(PyObject*, PyObject* arg) {
  // _promote_operands([tensors and numbers]): the dtype of an elementwise op over them.
  return guarded([&]() -> PyObject* {
    Object fast = own(PySequence_Fast(arg, "[promote] expected a sequence of tensors and numbers"));
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(fast.get());
    std::vector<Value> values(n);
    std::vector<const Value*> operands(n);
    for (Py_ssize_t i = 0; i < n; ++i) {
      PyObject* o = PySequence_Fast_GET_ITEM(fast.get(), i);
      if (is_tensor(o))
        values[i] = Value(unwrap(o));
      else
        FL_CHECK_KIND(number_value(o, values[i]), Type, "[promote] expected tensors and numbers, got ",
                      std::string(Py_TYPE(o)->tp_name));
      operands[i] = &values[i];
    }
    return Py_NewRef(dtype_object(result_type(operands.data(), static_cast<int>(n))));
  });
}

PyObject* record_place(PyObject*, PyObject* name) {
  return guarded([&]() -> PyObject* {
    const char* wanted = PyUnicode_AsUTF8(name);
    if (!wanted) throw PythonError();
    const RecordPlace* end = record_places + record_place_count;
    const RecordPlace* place =
        std::lower_bound(record_places, end, wanted,
                         [](const RecordPlace& p, const char* n) { return std::strcmp(p.name, n) < 0; });
    if (place == end || std::strcmp(place->name, wanted) != 0) Py_RETURN_NONE;
    return check(Py_BuildValue("ss", place->module, place->base));
  });
}

bool has_tag(const char* tags, const char* wanted) {
  const size_t length = std::strlen(wanted);
  for (const char* at = std::strstr(tags, wanted); at; at = std::strstr(at + 1, wanted))
    if ((at == tags || at[-1] == ' ') && (at[length] == ' ' || at[length] == 0)) return true;
  return false;
}

PyObject* tagged(PyObject*, PyObject* tag) {
  return guarded([&]() -> PyObject* {
    const char* wanted = PyUnicode_AsUTF8(tag);
    if (!wanted) throw PythonError();
    Object name_list = own(PyList_New(0));
    for (int i = 0; i < builtin_operator_count; ++i) {
      const BuiltinOperator& row = builtin_operators[i];
      if (!has_tag(row.tags, wanted)) continue;
      Object names = own(Py_BuildValue("ss", builtin_operator(i).schema.full_name().c_str(), row.name));
      check(PyList_Append(name_list.get(), names.get()));
    }
    return name_list.release();
  });
}

PyObject* aten_overloads(PyObject*, PyObject*) {
  return guarded([&]() -> PyObject* {
    Object registered = own(PyDict_New());
    for (int i = 0; i < builtin_operator_count; ++i) {
      const BuiltinOperator& row = builtin_operators[i];
      if (row.aten[0] == 0) continue;
      Object overload = own(PyUnicode_FromString(row.aten));
      const std::string name = builtin_operator(i).schema.full_name();
      check(PyDict_SetItemString(registered.get(), name.c_str(), overload.get()));
    }
    return registered.release();
  });
}

PyMethodDef library_functions[] = {
    {"_promote_operands", promote_operands, METH_O, nullptr},
    {"_define_operator", define_operator, METH_VARARGS, nullptr},
    {"_tagged", tagged, METH_O,
     "(full name, public name) of the operators whose records have a tag or are of a kind."},
    {"_aten_overloads", aten_overloads, METH_NOARGS,
     "The overload ATen has for an operator, where it is another."},
    {"_record_place", record_place, METH_O, "(module, base) of the record of an operator, or None."},
    {"_set_kernel", set_kernel, METH_VARARGS, nullptr},
    {"_restore_kernel", restore_kernel, METH_O, nullptr},
    {"_set_fallback", set_fallback, METH_VARARGS, nullptr},
    {"_has_kernel", has_kernel, METH_VARARGS, nullptr},
    {"_operator_info", operator_info, METH_O, nullptr},
    {"_operator_exists", find_operator, METH_O, nullptr},
    {"_operator_object", operator_object, METH_O, nullptr},
    {"_make_packet", make_packet, METH_VARARGS, nullptr},
    {"_call_with_keys", reinterpret_cast<PyCFunction>(call_keys), METH_FASTCALL | METH_KEYWORDS, nullptr},
    {"_keys_of_call", reinterpret_cast<PyCFunction>(keys_of_call), METH_FASTCALL | METH_KEYWORDS, nullptr},
    {"_swap_excluded_keys", swap_excluded, METH_O, nullptr},
    {"_swap_included_keys", swap_included, METH_O, nullptr},
    {"_local_keys", local_keys, METH_NOARGS, nullptr},
    {"_tensor_keys", tensor_keys, METH_O, nullptr},
    {"_register_device", register_device_type, METH_VARARGS, nullptr},
    {"_alias_device", alias_device_name, METH_VARARGS, nullptr},
    {"_device_key", device_key, METH_O, nullptr},
    {}};

bool returns_written(const Operator& op) {
  const auto& args = op.schema.args;
  return op.n_results() == 1 && !args.empty() && args[0].mutated && args[0].type == ArgType::Tensor &&
         !args[0].list && op.schema.name.back() == '_' && op.schema.returns[0].compare(0, 6, "Tensor") == 0;
}

}  // namespace

PyObject* overload_object(const Operator& op) {
  if (!op.python) {
    static PyObject* make = nullptr;
    if (!make) {
      Object module = own(PyImport_ImportModule("flambeau._ops"));
      make = check(PyObject_GetAttrString(module.get(), "OpOverload"));
    }
    Object operator_object = own(PyObject_CallFunction(make, "s", op.schema.full_name().c_str()));
    if (!op.python) const_cast<Operator&>(op).python = operator_object.release();
  }
  return static_cast<PyObject*>(op.python);
}

void unparse_given(const Operator& op, const Value* args, Object& positional, Object& keywords) {
  const auto& formals = op.schema.args;
  size_t n = 0;
  while (n < formals.size() && !formals[n].keyword_only) ++n;
  size_t count = n;
  const auto is_default = [&](size_t i) {
    return formals[i].has_default && equal(formals[i].default_value, args[i]);
  };
  while (count > 0 && is_default(count - 1)) --count;
  positional = own(PyTuple_New(count));
  for (size_t i = 0; i < count; ++i) PyTuple_SET_ITEM(positional.get(), i, check(to_python(args[i])));
  keywords = own(PyDict_New());
  for (size_t i = n; i < formals.size(); ++i) {
    if (is_default(i)) continue;
    Object v = own(to_python(args[i]));
    check(PyDict_SetItemString(keywords.get(), formals[i].name.c_str(), v.get()));
  }
}

void store_python_results(const Operator& op, PyObject* result, Value* args, Value* results) {
  if (returns_written(op)) {
    results[0] = Value(args[0].tensor());
    return;
  }
  if (op.flags & kOut) {
    const int n = op.n_results();
    for (int i = 0; i < n; ++i) results[i] = Value(args[op.schema.args.size() - n + i].tensor());
    return;
  }
  store_results(op, result, results);
}

void add_library(PyObject* module) {
  PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(overload_new)},
                         {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                         {Py_tp_members, overload_members},
                         {0, nullptr}};
  PyType_Spec spec{"torch._C._OpBase", sizeof(OverloadObject), 0,
                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_VECTORCALL, slots};
  Object type = own(PyType_FromSpec(&spec));
  check(PyModule_AddObjectRef(module, "_OpBase", type.get()));
  check(PyModule_AddFunctions(module, library_functions));
}

}  // namespace fl::py

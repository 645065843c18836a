// Operators as Python callables: overload choice, the dispatcher call, results as Python objects.
#include "python/common.h"

#include <structmember.h>

#include <cstddef>
#include <deque>
#include <map>

#include "dispatch/builtin.h"
#include "python/library.h"
#include "python/parse.h"

namespace fl::py {

// ---------------------------------------------------------------- values to Python

PyObject* from_scalar(const Scalar& s) {
  switch (s.kind) {
    case Scalar::Kind::Bool:
      return PyBool_FromLong(s.i != 0);
    case Scalar::Kind::Int:
      return PyLong_FromLongLong(s.i);
    case Scalar::Kind::Float:
      return PyFloat_FromDouble(s.re);
    default:
      return PyComplex_FromDoubles(s.re, s.im);
  }
}

PyObject* to_python(const Value& v, const std::string* type) {
  switch (v.tag()) {
    case Value::Tag::None:
      Py_RETURN_NONE;
    case Value::Tag::Tensor:
      return wrap(v.tensor());
    case Value::Tag::Bool:
    case Value::Tag::Int:
    case Value::Tag::Float:
    case Value::Tag::Complex:
      return from_scalar(v.to_scalar());
    case Value::Tag::DType:
      return Py_NewRef(dtype_object(v.to_dtype()));
    case Value::Tag::Device:
      return make_device(v.to_device());
    case Value::Tag::MemoryFormat:
      return Py_NewRef(memory_format_object(v.to_memory_format()));
    case Value::Tag::Layout:
      return Py_NewRef(layout_object(v.to_layout()));
    case Value::Tag::String:
      return PyUnicode_FromStringAndSize(v.string().data(), v.string().size());
    case Value::Tag::Opaque: {
      const auto* opaque = dynamic_cast<const PyOpaque*>(v.opaque());
      FL_CHECK_KIND(opaque != nullptr, Type,
                    "[library] expected an object of Python, got one of another language");
      return Py_NewRef(opaque->object);
    }
    case Value::Tag::IntList: {
      PyObject* list = check(PyList_New(v.length()));
      for (size_t i = 0; i < v.length(); ++i) PyList_SET_ITEM(list, i, PyLong_FromLongLong(v.ints()[i]));
      return list;
    }
    case Value::Tag::FloatList: {
      PyObject* list = check(PyList_New(v.length()));
      for (size_t i = 0; i < v.length(); ++i) PyList_SET_ITEM(list, i, PyFloat_FromDouble(v.floats()[i]));
      return list;
    }
    case Value::Tag::BoolList: {
      PyObject* list = check(PyList_New(v.length()));
      for (size_t i = 0; i < v.length(); ++i) PyList_SET_ITEM(list, i, PyBool_FromLong(v.bools()[i]));
      return list;
    }
    case Value::Tag::TensorList: {
      const bool as_tuple = type != nullptr;  // results are tuples, arguments are lists
      PyObject* list = check(as_tuple ? PyTuple_New(v.length()) : PyList_New(v.length()));
      for (size_t i = 0; i < v.length(); ++i) {
        PyObject* t = check(wrap(v.tensors()[i]));
        if (as_tuple)
          PyTuple_SET_ITEM(list, i, t);
        else
          PyList_SET_ITEM(list, i, t);
      }
      return list;
    }
  }
  Py_RETURN_NONE;
}

namespace {

// torch.return_types.topk( and a line for each field, because they are tensors.
PyObject* show_result(PyObject* self) {
  return guarded([&]() -> PyObject* {
    Object members =
        own(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(self)), "__match_args__"));
    std::string text = std::string(Py_TYPE(self)->tp_name) + "(";
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(members.get()); ++i) {
      Object shown = own(PyObject_Repr(PyTuple_GET_ITEM(self, i)));
      text += i ? ",\n" : "\n";
      text += PyUnicode_AsUTF8(PyTuple_GET_ITEM(members.get(), i));
      text += "=";
      text += PyUnicode_AsUTF8(shown.get());
    }
    return PyUnicode_FromString((text + ")").c_str());
  });
}

// Named results are structseqs, one type for each operator name.
PyTypeObject* result_type(const Operator& op) {
  static auto* types = new std::map<std::string, PyTypeObject*>;
  const std::string& name = op.functional ? op.functional->schema.name : op.schema.name;
  auto& slot = (*types)[name];
  if (!slot) {
    static auto* names = new std::deque<std::string>;
    auto* fields = new std::vector<PyStructSequence_Field>;
    for (const auto& n : op.schema.return_names) {
      names->push_back(n);
      fields->push_back({names->back().c_str(), nullptr});
    }
    fields->push_back({nullptr, nullptr});
    names->push_back("torch.return_types." + name);
    PyStructSequence_Desc desc{names->back().c_str(), nullptr, fields->data(),
                               static_cast<int>(op.schema.return_names.size())};
    slot = PyStructSequence_NewType(&desc);
    if (!slot) throw PythonError();
    slot->tp_repr = &show_result;
  }
  return slot;
}

}  // namespace

PyObject* wrap_results(const Operator& op, Value* results) {
  const int n = op.n_results();
  if (n == 0) Py_RETURN_NONE;
  if (n == 1) {
    if (results[0].is_tensor()) return wrap(results[0].take_tensor());
    return to_python(results[0], &op.schema.returns[0]);
  }
  Object wrapped;
  const bool named = !op.schema.return_names[0].empty();
  wrapped = named ? own(PyStructSequence_New(result_type(op))) : own(PyTuple_New(n));
  for (int i = 0; i < n; ++i) {
    PyObject* item = check(to_python(results[i], &op.schema.returns[i]));
    if (named)
      PyStructSequence_SetItem(wrapped.get(), i, item);
    else
      PyTuple_SET_ITEM(wrapped.get(), i, item);
  }
  return wrapped.release();
}

namespace {

// Work for which giving other Python threads a turn is worth the exchange of the lock.
constexpr int64_t kReleaseNumel = 1 << 16;

bool is_large(const Operator& op, const Value* args) {
  if (op.is_composite()) return false;
  for (size_t i = 0; i < op.schema.args.size(); ++i)
    if (args[i].is_tensor() && args[i].tensor_impl()->numel >= kReleaseNumel) return true;
  return false;
}

}  // namespace

PyObject* call_operator(const Operator& op, Value* args) {
  ValueStack stack(op.n_results());
  Value* const results = stack.data();
  const KeySet keys = op.keys_of(args);
  // Only plain backend kernels run without the interpreter lock.
  if (keys.bits() < (uint32_t(1) << kBackendKeys) && is_large(op, args)) {
    PyThreadState* state = PyEval_SaveThread();
    try {
      op.call_with(keys, args, results);
    } catch (...) {
      PyEval_RestoreThread(state);
      throw;
    }
    PyEval_RestoreThread(state);
  } else {
    op.call_with(keys, args, results);
  }
  return wrap_results(op, results);
}

// ---------------------------------------------------------------- the function object

namespace {

struct FunctionObject {
  PyObject_HEAD vectorcallfunc vectorcall;
  std::vector<Operator*>* overloads;
  PyObject* name;
  PyObject* module;
  bool method;
  ErrorKind misfit;      // raised when no overload fits the arguments
  PyObject* attributes;  // what programs store, as in functions of Python
};

PyTypeObject* function_type;
PyTypeObject* method_type;

// A dtype= that is asked for beside out= has to be that of `out`; for norms of complex numbers, its real one.
void check_out_dtype(const Operator& op, const Value* values, const TensorImpl& out) {
  const size_t n = op.schema.args.size() - op.n_results();
  for (size_t i = 0; i < n; ++i) {
    const Argument& arg = op.schema.args[i];
    if (arg.type != ArgType::DType || !arg.keyword_only || values[i].is_none()) continue;
    const DType wanted = values[i].to_dtype();
    FL_CHECK(wanted == out.dtype || real_of(wanted) == out.dtype, "[", op.schema.name, "] expected out of ",
             name_of(wanted), ", the dtype that is asked for, got ", name_of(out.dtype),
             ": Expected out tensor to have dtype ", name_of(wanted), ", but got ", name_of(out.dtype),
             " instead");
  }
}

void append_out(const Operator& op, PyObject* out, Value* values, Arena& arena) {
  const int n = op.n_results();
  const size_t first = op.schema.args.size() - n;
  if (n == 1) {
    FL_CHECK_KIND(is_tensor(out), Type, "[", op.schema.name, "] expected a Tensor for 'out', got ",
                  std::string(Py_TYPE(out)->tp_name));
    values[first] = Value::borrow(impl_of(out));
    check_out_dtype(op, values, *impl_of(out));
    // A function that makes tensors makes what `out` holds.
    if (op.schema.args[0].type != ArgType::Tensor && makes_tensor(op))
      for (size_t i = 0; i < first; ++i) {
        const Argument& arg = op.schema.args[i];
        if (!arg.keyword_only) continue;
        if (arg.type == ArgType::DType) values[i] = Value(impl_of(out)->dtype);
        if (arg.type == ArgType::Device) values[i] = Value(impl_of(out)->device);
      }
    return;
  }
  FL_CHECK_KIND((PyTuple_Check(out) || PyList_Check(out)) && PySequence_Fast_GET_SIZE(out) == n, Type, "[",
                op.schema.name, "] expected a tuple of ", n, " Tensors for 'out', got ",
                std::string(Py_TYPE(out)->tp_name));
  for (int i = 0; i < n; ++i) {
    PyObject* o = PySequence_Fast_GET_ITEM(out, i);
    FL_CHECK_KIND(is_tensor(o), Type, "[", op.schema.name, "] expected Tensors in 'out', got ",
                  std::string(Py_TYPE(o)->tp_name));
    values[first + i] = Value::borrow(impl_of(o));
  }
}

// Whether a call of a function that makes tensors asks for one that requires grad.
bool wants_grad(const Operator& op, PyObject* const* keyword_args, PyObject* kwnames) {
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(kwnames); ++k)
    if (keyword_args[k] == Py_True &&
        PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, k), "requires_grad") == 0)
      return makes_tensor(op);
  return false;
}

PyObject* mark_requires_grad(PyObject* result) {
  Object wrapped = own(result);
  return PyObject_SetAttrString(wrapped.get(), "requires_grad", Py_True) ? nullptr : wrapped.release();
}

// A function over lists that works in place (_foreach_add_) returns the list that it was called with.
PyObject* call_without_results(const Operator& op, Value* values, PyObject* const* args, Py_ssize_t nargs,
                               PyObject* kwnames) {
  Object none = own(call_operator(op, values));
  if (op.schema.name.rfind("_foreach_", 0) != 0) return none.release();
  if (nargs > 0) return Py_NewRef(args[0]);
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(kwnames); ++k)
    if (op.schema.args[0].name == PyUnicode_AsUTF8(PyTuple_GET_ITEM(kwnames, k))) return Py_NewRef(args[k]);
  return none.release();
}

PyObject* call_overloads(const std::vector<Operator*>& overloads, PyObject* const* args, Py_ssize_t nargs,
                         PyObject* kwnames, ErrorKind misfit = ErrorKind::Type) {
  size_t most = 0;
  for (const Operator* op : overloads)
    most = std::max(most, op->schema.args.size() + (op->out ? op->n_results() : 0));
  ValueStack stack(most);
  Value* const values = stack.data();
  Arena arena;
  for (Operator* op : overloads) {
    PyObject* out = nullptr;
    arena.used = 0;
    if (!parse(*op, args, nargs, kwnames, values, arena, op->out ? &out : nullptr, nullptr)) continue;
    if (out) {
      append_out(*op->out, out, values, arena);
      return call_operator(*op->out, values);
    }
    if (kwnames && wants_grad(*op, args + nargs, kwnames))
      return mark_requires_grad(call_operator(*op, values));
    if (op->n_results() == 0) return call_without_results(*op, values, args, nargs, kwnames);
    return call_operator(*op, values);
  }
  // Nothing fits: say why for each.
  std::string text = "[" + overloads[0]->schema.name + "] expected ";
  bool first = true;
  for (Operator* op : overloads) {
    std::string why;
    PyObject* out = nullptr;
    parse(*op, args, nargs, kwnames, values, arena, op->out ? &out : nullptr, &why);
    text += (first ? "" : "; or ") + why;
    if (overloads.size() > 1) text += " (in " + op->schema.text + ")";
    first = false;
  }
  fail(misfit, text);
}

// The overload of a function or method that a call with these arguments would reach.
PyObject* resolve_call(PyObject*, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  // _resolve_call(function, *args, **kwargs) -> overload; None when `function` is no operator's
  return guarded([&]() -> PyObject* {
    FL_CHECK_KIND(nargs > 0, Type, "[resolve_call] expected a function, got no argument");
    PyTypeObject* type = Py_TYPE(args[0]);
    if (type != function_type && type != method_type) Py_RETURN_NONE;
    const auto& overloads = *reinterpret_cast<FunctionObject*>(args[0])->overloads;
    ValueStack stack(kMaxArgs);
    Arena arena;
    for (Operator* op : overloads) {
      PyObject* out = nullptr;
      arena.used = 0;
      if (!parse(*op, args + 1, nargs - 1, kwnames, stack.data(), arena, op->out ? &out : nullptr, nullptr))
        continue;
      return Py_NewRef(overload_object(out ? *op->out : *op));
    }
    return call_overloads(overloads, args + 1, nargs - 1, kwnames);  // says why nothing fits
  });
}

PyObject* function_vectorcall(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  const Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
  const Py_ssize_t total = nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
  return guarded([&]() -> PyObject* {
    if (__builtin_expect(any_override(args, total), 0)) return call_override(self, args, nargs, kwnames);
    auto* f = reinterpret_cast<FunctionObject*>(self);
    return call_overloads(*f->overloads, args, nargs, kwnames, f->misfit);
  });
}

PyObject* function_get(PyObject* self, PyObject* instance, PyObject*) {
  if (instance == nullptr || instance == Py_None) return Py_NewRef(self);
  return PyMethod_New(self, instance);
}
PyObject* function_repr(PyObject* self) {
  auto* f = reinterpret_cast<FunctionObject*>(self);
  return f->method ? PyUnicode_FromFormat("<method '%U' of 'torch._C.TensorBase' objects>", f->name)
                   : PyUnicode_FromFormat("<built-in method %U of %U>", f->name, f->module);
}
void function_dealloc(PyObject* self) {
  auto* f = reinterpret_cast<FunctionObject*>(self);
  PyTypeObject* type = Py_TYPE(self);
  delete f->overloads;
  Py_XDECREF(f->name);
  Py_XDECREF(f->module);
  Py_XDECREF(f->attributes);
  type->tp_free(self);
  Py_DECREF(type);
}
// The family of a function that PyTorch keeps in a native module under a longer name (torch.special.xlogy is
// torch._C._special.special_xlogy there, which is what it says its name is), or null.
const char* native_family(const FunctionObject* f) {
  if (f->method) return nullptr;
  for (const char* family : {"special", "linalg", "fft"})
    if (PyUnicode_CompareWithASCIIString(f->module, (std::string("torch.") + family).c_str()) == 0)
      return family;
  return nullptr;
}

PyObject* function_name(PyObject* self, void*) {
  auto* f = reinterpret_cast<FunctionObject*>(self);
  if (const char* family = native_family(f)) return PyUnicode_FromFormat("%s_%U", family, f->name);
  return Py_NewRef(f->name);
}
PyObject* function_qualname(PyObject* self, void*) {
  auto* f = reinterpret_cast<FunctionObject*>(self);
  return f->method ? PyUnicode_FromFormat("Tensor.%U", f->name) : function_name(self, nullptr);
}
PyObject* function_overloads(PyObject* self, void*) {
  auto* f = reinterpret_cast<FunctionObject*>(self);
  PyObject* list = PyList_New(0);
  for (Operator* op : *f->overloads) {
    Object text = Object::steal(PyUnicode_FromString(op->schema.text.c_str()));
    PyList_Append(list, text.get());
  }
  return list;
}
PyObject* function_getattr(PyObject* self, PyObject* name) {
  // No getter: its descriptor would be what the class itself says its module is.
  if (PyUnicode_CompareWithASCIIString(name, "__module__") == 0) {
    auto* f = reinterpret_cast<FunctionObject*>(self);
    if (const char* family = native_family(f)) return PyUnicode_FromFormat("torch._C._%s", family);
    return Py_NewRef(f->module);
  }
  // Programs ask `isinstance(f, types.BuiltinFunctionType)` and `inspect.isbuiltin(f)`, which look at this.
  if (PyUnicode_CompareWithASCIIString(name, "__class__") == 0 &&
      !reinterpret_cast<FunctionObject*>(self)->method)
    return Py_NewRef(reinterpret_cast<PyObject*>(&PyCFunction_Type));
  return PyObject_GenericGetAttr(self, name);
}
// `help` asks with object.__getattribute__, which finds getters alone.
PyObject* function_doc(PyObject* self, void*) {
  Object module = Object::steal(PyImport_ImportModule("flambeau.ops.documentation"));
  return module ? PyObject_CallMethod(module.get(), "text_of", "O", self) : nullptr;
}
PyObject* function_signature(PyObject* self, void*) {
  Object module = Object::steal(PyImport_ImportModule("flambeau.fx.operator_schemas"));
  return module ? PyObject_CallMethod(module.get(), "signature_of", "O", self) : nullptr;
}
PyObject* function_reduce(PyObject* self, PyObject*) {
  auto* f = reinterpret_cast<FunctionObject*>(self);
  Object module = Object::steal(PyImport_ImportModule("flambeau._utils"));
  if (!module) return nullptr;
  Object fn = Object::steal(PyObject_GetAttrString(module.get(), "_find_function"));
  return Py_BuildValue("N(OOO)", fn.release(), f->module, f->name, f->method ? Py_True : Py_False);
}

PyGetSetDef function_getset[] = {
    {"__doc__", function_doc, nullptr, nullptr, nullptr},
    {"__name__", function_name, nullptr, nullptr, nullptr},
    {"__qualname__", function_qualname, nullptr, nullptr, nullptr},
    {"__signature__", function_signature, nullptr, nullptr, nullptr},
    {"_schemas", function_overloads, nullptr, nullptr, nullptr},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {}};
PyMethodDef function_methods[] = {{"__reduce__", function_reduce, METH_NOARGS, nullptr}, {}};
PyMemberDef function_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(FunctionObject, vectorcall), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(FunctionObject, attributes), READONLY, nullptr},
    {}};

PyTypeObject* make_function_type(const char* name, bool method) {
  PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(function_dealloc)},
                         {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                         {Py_tp_repr, reinterpret_cast<void*>(function_repr)},
                         {Py_tp_getattro, reinterpret_cast<void*>(function_getattr)},
                         {Py_tp_getset, function_getset},
                         {Py_tp_methods, function_methods},
                         {Py_tp_members, function_members},
                         {method ? Py_tp_descr_get : 0, reinterpret_cast<void*>(function_get)},
                         {0, nullptr}};
  const unsigned flags =
      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | (method ? Py_TPFLAGS_METHOD_DESCRIPTOR : 0);
  PyType_Spec spec{name, sizeof(FunctionObject), 0, flags, slots};
  return reinterpret_cast<PyTypeObject*>(check(PyType_FromSpec(&spec)));
}

}  // namespace

PyObject* make_function(const std::string& name, const std::string& module,
                        const std::vector<Operator*>& overloads, bool method) {
  PyTypeObject* type = method ? method_type : function_type;
  auto* f = reinterpret_cast<FunctionObject*>(check(type->tp_alloc(type, 0)));
  f->vectorcall = function_vectorcall;
  f->overloads = new std::vector<Operator*>(overloads);
  f->name = check(PyUnicode_InternFromString(name.c_str()));
  f->module = check(PyUnicode_InternFromString(module.c_str()));
  f->method = method;
  // A packet of torch.ops refuses arguments with RuntimeError, as PyTorch's dispatcher does; functions with
  // TypeError.
  f->misfit = module.compare(0, 11, "torch._ops.") == 0 ? ErrorKind::Runtime : ErrorKind::Type;
  return reinterpret_cast<PyObject*>(f);
}

// ---------------------------------------------------------------- Python decompositions as kernels

void unparse(const Operator& op, const Value* args, Object& positional, Object& keywords) {
  const auto& formals = op.schema.args;
  size_t n = 0;
  while (n < formals.size() && !formals[n].keyword_only) ++n;
  positional = own(PyTuple_New(n));
  for (size_t i = 0; i < n; ++i) PyTuple_SET_ITEM(positional.get(), i, check(to_python(args[i])));
  if (n == formals.size()) return;
  keywords = own(PyDict_New());
  for (size_t i = n; i < formals.size(); ++i) {
    Object v = own(to_python(args[i]));
    check(PyDict_SetItemString(keywords.get(), formals[i].name.c_str(), v.get()));
  }
}

namespace {
Value value_of(PyObject* o) {
  if (is_tensor(o)) return Value(unwrap(o));
  Value v;
  if (o == Py_None) return v;
  if (number_value(o, v)) return v;
  if (is_dtype(o)) return Value(dtype_value(o));
  if (PyTuple_Check(o) || PyList_Check(o)) {
    std::vector<Tensor> list;
    std::vector<int64_t> ints;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); ++i) {
      PyObject* item = PySequence_Fast_GET_ITEM(o, i);
      if (is_tensor(item))
        list.push_back(unwrap(item));
      else if (PyLong_Check(item))
        ints.push_back(PyLong_AsLongLong(item));
      else
        return Value(Ref<Opaque>(new PyOpaque(o)));
    }
    if (ints.size() && list.size()) return Value(Ref<Opaque>(new PyOpaque(o)));
    return ints.empty() ? Value(list) : Value(ints);
  }
  return Value(Ref<Opaque>(new PyOpaque(o)));
}
}  // namespace

void store_results(const Operator& op, PyObject* result, Value* results) {
  const int n = op.n_results();
  if (n == 0) return;
  if (n == 1) {
    results[0] = value_of(result);
    return;
  }
  FL_CHECK((PyTuple_Check(result) || PyList_Check(result)) && PySequence_Fast_GET_SIZE(result) == n, "[",
           op.schema.name, "] expected its Python kernel to return ", n, " results, got ",
           std::string(Py_TYPE(result)->tp_name));
  for (int i = 0; i < n; ++i) results[i] = value_of(PySequence_Fast_GET_ITEM(result, i));
}

namespace {

// A decomposition is imported when it is first needed.
struct LazyFunction {
  const BuiltinOperator* row;
  PyObject* function = nullptr;
};

void python_kernel(const Operator& op, void* context, KeySet, Value* args, Value* results) {
  WithGIL gil;
  auto* lazy = static_cast<LazyFunction*>(context);
  if (!lazy->function) {
    Object module = own(PyImport_ImportModule(lazy->row->python_module));
    lazy->function = check(PyObject_GetAttrString(module.get(), lazy->row->python_function));
  }
  TorchFunctionSwitch not_the_user(true);
  Object positional, keywords;
  unparse(op, args, positional, keywords);
  Object result = own(PyObject_Call(lazy->function, positional.get(), keywords.get()));
  store_results(op, result.get(), results);
}

// ---------------------------------------------------------------- installing the API

// One function may live in several modules: `;nn.functional` is the top level and nn.functional.
std::vector<std::string> split_modules(const std::string& text) {
  std::vector<std::string> names;
  size_t begin = 0;
  for (size_t end = text.find(';'); end != std::string::npos; end = text.find(';', begin)) {
    names.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  names.push_back(text.substr(begin));
  return names;
}

PyObject* install(PyObject*, PyObject* args) {
  // _install(get_module, tensor_class): fills the package's modules and the Tensor class from the table.
  PyObject *get_module, *cls;
  if (!PyArg_ParseTuple(args, "OO", &get_module, &cls)) return nullptr;
  return guarded([&]() -> PyObject* {
    std::map<std::pair<std::string, std::string>, std::vector<Operator*>> functions;
    std::map<std::string, std::vector<Operator*>> methods;
    for (int i = 0; i < builtin_operator_count; ++i) {
      const BuiltinOperator& row = builtin_operators[i];
      Operator* op = &builtin_operator(i);
      const std::vector<std::string> modules = split_modules(row.module);
      if (row.function)
        for (const auto& m : modules) functions[{m, row.name}].push_back(op);
      if (row.method) methods[row.name].push_back(op);
      if (op->inplace) {
        const std::string name = std::string(row.name) + "_";
        if (row.method) methods[name].push_back(op->inplace);
        if (row.function)
          for (const auto& m : modules) functions[{m, name}].push_back(op->inplace);
      }
    }
    Object module;
    std::string last;
    for (auto& [key, overloads] : functions) {
      const std::string full = key.first.empty() ? "torch" : "torch." + key.first;
      Object f = own(make_function(key.second, full, overloads, false));
      if (!module || last != key.first) {  // the functions are sorted by module
        module = own(PyObject_CallFunction(get_module, "s", key.first.c_str()));
        last = key.first;
      }
      check(PyDict_SetItemString(PyModule_GetDict(module.get()), key.second.c_str(), f.get()));
    }
    for (auto& [name, overloads] : methods) {
      Object f = own(make_function(name, "torch", overloads, true));
      check(PyDict_SetItemString(reinterpret_cast<PyTypeObject*>(cls)->tp_dict, name.c_str(), f.get()));
    }
    PyType_Modified(reinterpret_cast<PyTypeObject*>(cls));
    Py_RETURN_NONE;
  });
}

PyObject* named_result_type(PyObject*, PyObject* name) {
  // _named_result_type(name) -> the type of the named results of an operator's overloads, or None
  return guarded([&]() -> PyObject* {
    const char* wanted = PyUnicode_AsUTF8(name);
    if (!wanted) throw PythonError();
    for (const Operator* op : OperatorTable::get().all())
      if (op->schema.name == wanted && op->schema.returns.size() > 1 && !op->schema.return_names[0].empty())
        return Py_NewRef(reinterpret_cast<PyObject*>(result_type(*op)));
    Py_RETURN_NONE;
  });
}

PyObject* operator_definition(PyObject*, PyObject* name) {
  // _operator_definition(full name) -> (is it pointwise, is it its definition only, the definition or None)
  return guarded([&]() -> PyObject* {
    const char* text = PyUnicode_AsUTF8(name);
    if (!text) throw PythonError();
    const Operator& op = OperatorTable::get().at(text);
    const BuiltinOperator* row = op.functional ? nullptr : op.record;
    Object function = Object::borrow(Py_None);
    if (row && row->python_module[0] != 0) {
      Object module = own(PyImport_ImportModule(row->python_module));
      function = own(PyObject_GetAttrString(module.get(), row->python_function));
    }
    return Py_BuildValue("(OOO)", row && row->pointwise ? Py_True : Py_False,
                         op.is_composite() ? Py_True : Py_False, function.get());
  });
}

PyObject* operator_derivative(PyObject*, PyObject* name) {
  // _operator_derivative(full name) -> the module with the derivative in ops, "" for a pointwise one, else
  // None
  return guarded([&]() -> PyObject* {
    const char* text = PyUnicode_AsUTF8(name);
    if (!text) throw PythonError();
    const Operator& op = OperatorTable::get().at(text);
    const BuiltinOperator* row = op.functional ? nullptr : op.record;
    if (!row || (!row->derivative && row->vjp_function[0] == 0)) Py_RETURN_NONE;
    return PyUnicode_FromString(row->derivative ? "" : row->vjp_module);
  });
}

PyObject* list_operators(PyObject*, PyObject*) {
  return guarded([&]() -> PyObject* {
    Object list = own(PyList_New(0));
    for (Operator* op : OperatorTable::get().all()) {
      Object text = own(PyUnicode_FromString(op->schema.text.c_str()));
      check(PyList_Append(list.get(), text.get()));
    }
    return list.release();
  });
}

PyMethodDef call_functions[] = {
    {"_install", install, METH_VARARGS, nullptr},
    {"_resolve_call", reinterpret_cast<PyCFunction>(resolve_call), METH_FASTCALL | METH_KEYWORDS, nullptr},
    {"_operator_definition", operator_definition, METH_O, nullptr},
    {"_named_result_type", named_result_type, METH_O, nullptr},
    {"_operator_derivative", operator_derivative, METH_O, nullptr},
    {"_list_operators", list_operators, METH_NOARGS, nullptr},
    {}};

}  // namespace

PyObject* call_packet(const char* full_name, PyObject* const* args, Py_ssize_t nargs) {
  Value values[kMaxArgs];
  Arena arena;
  const Operator& op = OperatorTable::get().at(full_name);
  std::string why;
  if (!parse(op, args, nargs, nullptr, values, arena, nullptr, &why))
    fail(ErrorKind::Type, "[", op.schema.name, "] expected ", why);
  return call_operator(op, values);
}

void add_calls(PyObject* module) {
  function_type = make_function_type("torch._C.Function", false);
  method_type = make_function_type("torch._C.Method", true);
  check(PyModule_AddObjectRef(module, "Function", reinterpret_cast<PyObject*>(function_type)));
  check(PyModule_AddObjectRef(module, "Method", reinterpret_cast<PyObject*>(method_type)));
  check(PyModule_AddFunctions(module, call_functions));
  define_builtin_operators();
  for (int i = 0; i < builtin_operator_count; ++i) {
    const BuiltinOperator& row = builtin_operators[i];
    if (row.python_module[0] == 0) continue;
    Operator& op = builtin_operator(i);
    op.set_kernel(Key::Composite, Kernel{python_kernel, new LazyFunction{&row}});
  }
}

}  // namespace fl::py

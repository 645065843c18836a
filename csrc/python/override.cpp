// __torch_function__: finding the arguments that override a call, the mode stack, and the protocol itself.
#include "python/guards.h"
#include "python/library.h"

#include <structmember.h>

#include <array>
#include <cstddef>
#include <cstring>

namespace fl::py {

namespace {

PyObject* hook_name = nullptr;  // "__torch_function__"
PyObject* disabled_impl;        // the function that means "no override"
// Everything that makes a call of plain tensors special, in one word: calls of the usual kind look at nothing
// else.
enum : unsigned { kAllDisabled = 1, kModes = 2, kSubclassesDisabled = 4, kSkipNext = 8 };
thread_local unsigned state __attribute__((tls_model("initial-exec"))) = 0;
thread_local std::vector<Object>* mode_stack = nullptr;

bool swap_flag(unsigned flag, bool on) {
  const bool before = state & flag;
  state = on ? state | flag : state & ~flag;
  return before;
}

std::vector<Object>& modes() {
  if (!mode_stack) mode_stack = new std::vector<Object>;
  return *mode_stack;
}
void push(Object mode) {
  modes().push_back(std::move(mode));
  state |= kModes;
}
Object pop() {
  Object mode = modes().back();
  modes().pop_back();
  swap_flag(kModes, !modes().empty());
  return mode;
}

// The class-level __torch_function__ of an object, borrowed; null when it has none of interest.
PyObject* hook_of(PyTypeObject* type) {
  if (type == tensor_type || type == parameter_type) return nullptr;
  PyObject* hook = _PyType_Lookup(type, hook_name);
  return hook == disabled_impl ? nullptr : hook;
}

// Tensor's own hook: it calls the function and views tensors in the result as the subclass.
bool is_default_hook(PyObject* hook) {
  return hook && hook == _PyType_Lookup(tensor_type, hook_name);
}

bool is_plain(PyObject* o) {
  PyTypeObject* t = Py_TYPE(o);
  return t == tensor_type || t == &PyLong_Type || t == &PyFloat_Type || t == &PyBool_Type || o == Py_None ||
         t == &PyUnicode_Type || t == parameter_type;
}

// The ends of a slice; a symbolic one overrides as an index of its own does.
std::array<PyObject*, 3> ends_of(PyObject* o) {
  auto* s = reinterpret_cast<PySliceObject*>(o);
  return {s->start, s->stop, s->step};
}

// A tensor of PyTorch, which lives in the same process.
bool is_of_pytorch(PyTypeObject* type) {
  if (PyType_IsSubtype(type, tensor_type)) return false;
  for (PyTypeObject* base = type; base; base = base->tp_base)
    if (std::strcmp(base->tp_name, "torch._C.TensorBase") == 0) return true;
  return false;
}

bool overrides_alone(PyObject* o) {
  if (is_plain(o)) return false;
  if (!PySlice_Check(o)) return hook_of(Py_TYPE(o)) != nullptr;
  for (PyObject* end : ends_of(o))
    if (!is_plain(end) && hook_of(Py_TYPE(end))) return true;
  return false;
}

bool overrides(PyObject* o) {
  if (is_plain(o)) return false;
  PyTypeObject* t = Py_TYPE(o);
  if (t == &PyTuple_Type || t == &PyList_Type) {
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
    PyObject** items = PySequence_Fast_ITEMS(o);
    for (Py_ssize_t i = 0; i < n; ++i)
      if (overrides_alone(items[i])) return true;
    return false;
  }
  return overrides_alone(o);
}

void collect(PyObject* o, std::vector<PyObject*>& overriding) {
  PyTypeObject* t = Py_TYPE(o);
  if (t == &PyTuple_Type || t == &PyList_Type) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); ++i) {
      PyObject* item = PySequence_Fast_GET_ITEM(o, i);
      if (!PyTuple_Check(item) && !PyList_Check(item)) collect(item, overriding);
    }
    return;
  }
  if (PySlice_Check(o)) {
    for (PyObject* end : ends_of(o))
      if (!PySlice_Check(end)) collect(end, overriding);
    return;
  }
  if (is_plain(o) || !hook_of(t)) return;
  for (PyObject* seen : overriding)
    if (Py_TYPE(seen) == t) return;
  // Subclasses come before the classes they refine.
  size_t at = 0;
  while (at < overriding.size() && !PyType_IsSubtype(t, Py_TYPE(overriding[at]))) ++at;
  overriding.insert(overriding.begin() + at, o);
}

}  // namespace

bool function_modes_active() {
  return state & kModes;
}

bool any_override(PyObject* const* args, Py_ssize_t n) {
  if (__builtin_expect(state != 0, 0)) {
    if (state & kAllDisabled) return false;
    if (state & kModes) return true;
    if (state & kSubclassesDisabled) return false;
  }
  for (Py_ssize_t i = 0; i < n; ++i)
    if (overrides(args[i])) return true;
  return false;
}

PyObject* call_override(PyObject* function, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  Object positional = own(PyTuple_New(nargs));
  for (Py_ssize_t i = 0; i < nargs; ++i) PyTuple_SET_ITEM(positional.get(), i, Py_NewRef(args[i]));
  Object keywords = own(PyDict_New());
  const Py_ssize_t nkw = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  for (Py_ssize_t k = 0; k < nkw; ++k)
    check(PyDict_SetItem(keywords.get(), PyTuple_GET_ITEM(kwnames, k), args[nargs + k]));

  std::vector<PyObject*> overriding;
  if (!(state & kSubclassesDisabled))
    for (Py_ssize_t i = 0; i < nargs + nkw; ++i) collect(args[i], overriding);
  for (PyObject* o : overriding)
    if (is_of_pytorch(Py_TYPE(o))) {
      Object module = own(PyImport_ImportModule("flambeau._tensor.beside_torch"));
      return check(
          PyObject_CallMethod(module.get(), "mixed", "OOO", function, positional.get(), keywords.get()));
    }
  Object types = own(PyTuple_New(overriding.size()));
  for (size_t i = 0; i < overriding.size(); ++i)
    PyTuple_SET_ITEM(types.get(), i, Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(overriding[i]))));

  const auto ask = [&](PyObject* hook) {
    return own(
        PyObject_CallFunctionObjArgs(hook, function, types.get(), positional.get(), keywords.get(), nullptr));
  };
  if (state & kModes) {
    // The innermost mode handles the call with itself taken off the stack.
    Object mode = pop();
    Object result;
    try {
      Object hook = own(PyObject_GetAttr(mode.get(), hook_name));
      result = ask(hook.get());
    } catch (...) {
      push(mode);
      throw;
    }
    push(mode);
    if (result.get() != Py_NotImplemented) return result.release();
  }
  for (PyObject* o : overriding) {
    Object hook = own(PyObject_GetAttr(reinterpret_cast<PyObject*>(Py_TYPE(o)), hook_name));
    if (PyFunction_Check(hook.get()))
      hook = own(PyObject_GetAttr(o, hook_name));  // an instance method: deprecated but seen
    Object result = ask(hook.get());
    if (result.get() != Py_NotImplemented) return result.release();
  }
  if (overriding.empty()) {  // modes only, and all of them declined
    fail(ErrorKind::Type, "[torch_function] expected a mode to handle the call", kAllDeclined);
  }
  Object repr = own(PyObject_Repr(function));
  std::string names;
  for (PyObject* o : overriding) names += (names.empty() ? "" : ", ") + std::string(Py_TYPE(o)->tp_name);
  fail(ErrorKind::Type, "[torch_function] expected one of the types (", names, ") to implement ",
       std::string(PyUnicode_AsUTF8(repr.get())), kAllDeclined);
}

namespace {

PyObject* disabled(PyObject*, PyObject* args, PyObject*) {
  // _disabled_torch_function_impl(func, types, args, kwargs): call without overrides of subclasses.
  PyObject *func, *types, *positional, *keywords = nullptr;
  if (!PyArg_ParseTuple(args, "OOO|O", &func, &types, &positional, &keywords)) return nullptr;
  const bool saved = swap_flag(kSubclassesDisabled, true);
  PyObject* result = PyObject_Call(func, positional, keywords && keywords != Py_None ? keywords : nullptr);
  swap_flag(kSubclassesDisabled, saved);
  return result;
}

PyObject* push_mode(PyObject*, PyObject* mode) {
  push(Object::borrow(mode));
  Py_RETURN_NONE;
}
PyObject* pop_mode(PyObject*, PyObject*) {
  if (modes().empty()) {
    PyErr_SetString(PyExc_RuntimeError, "[torch_function] expected a mode on the stack, got an empty stack");
    return nullptr;
  }
  return pop().release();
}
PyObject* mode_count(PyObject*, PyObject*) {
  return PyLong_FromSize_t(mode_stack ? mode_stack->size() : 0);
}
PyObject* mode_at(PyObject*, PyObject* arg) {
  const Py_ssize_t i = PyLong_AsSsize_t(arg);
  if (i < 0 || !mode_stack || static_cast<size_t>(i) >= mode_stack->size()) {
    PyErr_SetString(PyExc_IndexError, "[torch_function] expected the index of a mode, got one out of range");
    return nullptr;
  }
  return Py_NewRef((*mode_stack)[i].get());
}
PyObject* set_subclasses_disabled(PyObject*, PyObject* arg) {
  return PyBool_FromLong(swap_flag(kSubclassesDisabled, arg == Py_True));
}
PyObject* set_all_disabled(PyObject*, PyObject* arg) {
  return PyBool_FromLong(swap_flag(kAllDisabled, arg == Py_True));
}
PyObject* is_enabled(PyObject*, PyObject*) {
  return PyBool_FromLong(!(state & (kAllDisabled | kSubclassesDisabled)));
}

// A handler runs the body of a function written in Python, which asks first whether it is overridden: once,
// no.
bool skipped() {
  return swap_flag(kSkipNext, false);
}
PyObject* skip_next(PyObject*, PyObject*) {
  swap_flag(kSkipNext, true);
  Py_RETURN_NONE;
}

PyObject* has_override(PyObject*, PyObject* relevant) {
  if (__builtin_expect(state != 0, 0) && skipped()) Py_RETURN_FALSE;
  Object fast = Object::steal(PySequence_Fast(relevant, "[has_torch_function] expected a sequence"));
  if (!fast) return nullptr;
  return PyBool_FromLong(
      any_override(PySequence_Fast_ITEMS(fast.get()), PySequence_Fast_GET_SIZE(fast.get())));
}
PyObject* has_override_variadic(PyObject*, PyObject* const* args, Py_ssize_t n) {
  if (__builtin_expect(state != 0, 0) && skipped()) Py_RETURN_FALSE;
  return PyBool_FromLong(any_override(args, n));
}

PyMethodDef override_functions[] = {
    {"_disabled_torch_function_impl", reinterpret_cast<PyCFunction>(disabled), METH_VARARGS | METH_KEYWORDS,
     nullptr},
    {"_skip_next_torch_function", skip_next, METH_NOARGS, nullptr},
    {"_push_torch_function_mode", push_mode, METH_O, nullptr},
    {"_pop_torch_function_mode", pop_mode, METH_NOARGS, nullptr},
    {"_len_torch_function_stack", mode_count, METH_NOARGS, nullptr},
    {"_get_function_stack_at", mode_at, METH_O, nullptr},
    {"_set_torch_function_subclasses_disabled", set_subclasses_disabled, METH_O, nullptr},
    {"_set_torch_function_all_disabled", set_all_disabled, METH_O, nullptr},
    {"_is_torch_function_enabled", is_enabled, METH_NOARGS, nullptr},
    {"_has_torch_function", has_override, METH_O, nullptr},
    {"_has_torch_function_unary", reinterpret_cast<PyCFunction>(has_override_variadic), METH_FASTCALL,
     nullptr},
    {"_has_torch_function_variadic", reinterpret_cast<PyCFunction>(has_override_variadic), METH_FASTCALL,
     nullptr},
    {}};

}  // namespace

TorchFunctionSwitch::TorchFunctionSwitch(bool disabled) : saved_(swap_flag(kAllDisabled, disabled)) {}
TorchFunctionSwitch::~TorchFunctionSwitch() {
  swap_flag(kAllDisabled, saved_);
}

// ---------------------------------------------------------------- attributes, methods and slots of Tensor

namespace {

// What an attribute or method returns for a plain subclass: tensors are viewed as the subclass.
PyObject* as_subclass(PyObject* self, const char* name, PyObject* result) {
  if (!result || Py_TYPE(result) != tensor_type) return result;
  for (const char* attribute : {"grad", "_grad", "_base"})
    if (!std::strcmp(name, attribute)) return result;
  static PyObject* convert = nullptr;
  Object value = Object::steal(result);
  if (!convert) {
    Object module = own(PyImport_ImportModule("flambeau.overrides"));
    convert = check(PyObject_GetAttrString(module.get(), "_convert"));
  }
  return PyObject_CallFunctionObjArgs(convert, value.get(), reinterpret_cast<PyObject*>(Py_TYPE(self)),
                                      nullptr);
}

bool modes_active() {
  return state & kModes;
}
bool has_default_hook(PyObject* self) {
  return !modes_active() && is_default_hook(hook_of(Py_TYPE(self)));
}

Object accessor(const char* name, const char* which) {
  Object descriptor = own(PyObject_GetAttrString(reinterpret_cast<PyObject*>(tensor_type), name));
  return own(PyObject_GetAttrString(descriptor.get(), which));
}

PyObject* get_attribute(PyObject* self, void* closure) {
  const auto& original = *static_cast<PyGetSetDef*>(closure);
  if (__builtin_expect(!any_override(&self, 1), 1)) return original.get(self, original.closure);
  return guarded([&]() -> PyObject* {
    if (has_default_hook(self)) return as_subclass(self, original.name, original.get(self, original.closure));
    return call_override(accessor(original.name, "__get__").get(), &self, 1, nullptr);
  });
}

int set_attribute(PyObject* self, PyObject* value, void* closure) {
  const auto& original = *static_cast<PyGetSetDef*>(closure);
  if (__builtin_expect(!any_override(&self, 1), 1) || has_default_hook(self))
    return original.set(self, value, original.closure);
  return guarded_int([&]() -> int {
    PyObject* pair[2] = {self, value};
    own(call_override(accessor(original.name, value ? "__set__" : "__delete__").get(), pair, value ? 2 : 1,
                      nullptr));
    return 0;
  });
}

// A method written in C, with the question whether somebody overrides it in front.
struct MethodObject {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyMethodDef* definition;
};

PyObject* call_plain(const PyMethodDef& def, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  const bool keywords = kwnames && PyTuple_GET_SIZE(kwnames);
  switch (def.ml_flags & (METH_NOARGS | METH_O | METH_FASTCALL | METH_VARARGS | METH_KEYWORDS)) {
    case METH_NOARGS:
      if (nargs == 1 && !keywords) return def.ml_meth(args[0], nullptr);
      break;
    case METH_O:
      if (nargs == 2 && !keywords) return def.ml_meth(args[0], args[1]);
      break;
    case METH_FASTCALL:
      if (!keywords) return reinterpret_cast<_PyCFunctionFast>(def.ml_meth)(args[0], args + 1, nargs - 1);
      break;
    case METH_FASTCALL | METH_KEYWORDS:
      return reinterpret_cast<_PyCFunctionFastWithKeywords>(def.ml_meth)(args[0], args + 1, nargs - 1,
                                                                         kwnames);
    default: {
      Object rest = own(PyTuple_New(nargs - 1));
      for (Py_ssize_t i = 1; i < nargs; ++i) PyTuple_SET_ITEM(rest.get(), i - 1, Py_NewRef(args[i]));
      if (!(def.ml_flags & METH_KEYWORDS) && !keywords) return def.ml_meth(args[0], rest.get());
      if (!(def.ml_flags & METH_KEYWORDS)) break;
      Object dict = own(PyDict_New());
      for (Py_ssize_t k = 0; keywords && k < PyTuple_GET_SIZE(kwnames); ++k)
        check(PyDict_SetItem(dict.get(), PyTuple_GET_ITEM(kwnames, k), args[nargs + k]));
      return reinterpret_cast<PyCFunctionWithKeywords>(def.ml_meth)(args[0], rest.get(), dict.get());
    }
  }
  fail(ErrorKind::Type, "[", def.ml_name, "] expected ",
       def.ml_flags & METH_O ? "one argument" : "no arguments", ", got ",
       static_cast<int64_t>(nargs - 1 + (keywords ? PyTuple_GET_SIZE(kwnames) : 0)));
}

PyObject* call_method_object(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  const Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
  return guarded([&]() -> PyObject* {
    const PyMethodDef& def = *reinterpret_cast<MethodObject*>(self)->definition;
    FL_CHECK_KIND(nargs > 0, Type, "[", def.ml_name, "] expected a Tensor, got no argument");
    const Py_ssize_t total = nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
    if (__builtin_expect(any_override(args, total), 0)) {
      if (total > 1 || !has_default_hook(args[0])) return call_override(self, args, nargs, kwnames);
      return as_subclass(args[0], def.ml_name, call_plain(def, args, nargs, kwnames));
    }
    FL_CHECK_KIND(is_tensor(args[0]), Type, "[", def.ml_name, "] expected a Tensor, got ",
                  std::string(Py_TYPE(args[0])->tp_name));
    return call_plain(def, args, nargs, kwnames);
  });
}

PyObject* method_get(PyObject* self, PyObject* instance, PyObject*) {
  if (instance == nullptr || instance == Py_None) return Py_NewRef(self);
  return PyMethod_New(self, instance);
}
const char* method_text(PyObject* self) {
  return reinterpret_cast<MethodObject*>(self)->definition->ml_name;
}
PyObject* method_repr(PyObject* self) {
  return PyUnicode_FromFormat("<method '%s' of 'torch._C.TensorBase' objects>", method_text(self));
}
PyObject* method_name(PyObject* self, void*) {
  return PyUnicode_FromString(method_text(self));
}
PyObject* method_qualname(PyObject* self, void*) {
  return PyUnicode_FromFormat("Tensor.%s", method_text(self));
}
PyObject* method_owner(PyObject*, void*) {
  return Py_NewRef(reinterpret_cast<PyObject*>(tensor_type));
}

// The docstring of a method of Tensor by its name, or None.
PyObject* documented(PyObject* name) {
  Object module = Object::steal(PyImport_ImportModule("flambeau.ops.documentation"));
  return module ? PyObject_CallMethod(module.get(), "find", "sO", "torch", name) : nullptr;
}
PyObject* method_doc(PyObject* self, void*) {
  Object own_name = Object::steal(method_name(self, nullptr));
  return own_name ? documented(own_name.get()) : nullptr;
}

PyGetSetDef method_getset[] = {{"__doc__", method_doc, nullptr, nullptr, nullptr},
                               {"__name__", method_name, nullptr, nullptr, nullptr},
                               {"__qualname__", method_qualname, nullptr, nullptr, nullptr},
                               {"__objclass__", method_owner, nullptr, nullptr, nullptr},
                               {}};
PyMemberDef method_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(MethodObject, vectorcall), READONLY, nullptr}, {}};

PyTypeObject* method_object_type() {
  static PyTypeObject* type = [] {
    PyType_Slot slots[] = {{Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                           {Py_tp_repr, reinterpret_cast<void*>(method_repr)},
                           {Py_tp_descr_get, reinterpret_cast<void*>(method_get)},
                           {Py_tp_getset, method_getset},
                           {Py_tp_members, method_members},
                           {0, nullptr}};
    PyType_Spec spec{"torch._C.TensorMethod", sizeof(MethodObject), 0,
                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR, slots};
    return reinterpret_cast<PyTypeObject*>(check(PyType_FromSpec(&spec)));
  }();
  return type;
}

// A function written in Python, with the same question in front. Methods of Tensor bind; functions do not.
struct WrappedObject {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* function;
  PyObject* dict;
};

PyObject* call_wrapped(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  const Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
  const Py_ssize_t total = nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
  if (__builtin_expect(any_override(args, total), 0))
    return guarded([&] { return call_override(self, args, nargs, kwnames); });
  return PyObject_Vectorcall(reinterpret_cast<WrappedObject*>(self)->function, args,
                             nargsf & ~PY_VECTORCALL_ARGUMENTS_OFFSET, kwnames);
}

int wrapped_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(reinterpret_cast<WrappedObject*>(self)->function);
  Py_VISIT(reinterpret_cast<WrappedObject*>(self)->dict);
  return 0;
}
int wrapped_clear(PyObject* self) {
  Py_CLEAR(reinterpret_cast<WrappedObject*>(self)->function);
  Py_CLEAR(reinterpret_cast<WrappedObject*>(self)->dict);
  return 0;
}
void wrapped_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  wrapped_clear(self);
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}
PyObject* wrapped_doc(PyObject* self, void*) {
  PyObject* function = reinterpret_cast<WrappedObject*>(self)->function;
  Object text = Object::steal(PyObject_GetAttrString(function, "__doc__"));
  if (!text || text.get() != Py_None) return text.release();
  Object own_name = Object::steal(PyObject_GetAttrString(function, "__name__"));
  return own_name ? documented(own_name.get()) : nullptr;
}
int wrapped_set_doc(PyObject* self, PyObject* text, void*) {
  return PyObject_SetAttrString(reinterpret_cast<WrappedObject*>(self)->function, "__doc__", text);
}
PyObject* wrapped_getattr(PyObject* self, PyObject* name) {
  // Name, module and the rest are the function's; a getter for the module would be what the class itself
  // says.
  PyObject* function = reinterpret_cast<WrappedObject*>(self)->function;
  if (PyUnicode_CompareWithASCIIString(name, "__module__") == 0) return PyObject_GetAttr(function, name);
  PyObject* own_attribute = PyObject_GenericGetAttr(self, name);
  if (own_attribute || !PyErr_ExceptionMatches(PyExc_AttributeError)) return own_attribute;
  PyErr_Clear();
  return PyObject_GetAttr(reinterpret_cast<WrappedObject*>(self)->function, name);
}
PyObject* wrapped_repr(PyObject* self) {
  return PyObject_Repr(reinterpret_cast<WrappedObject*>(self)->function);
}
PyObject* wrapped_reduce(PyObject* self, PyObject*) {
  return PyObject_GetAttrString(reinterpret_cast<WrappedObject*>(self)->function,
                                "__qualname__");  // pickles by name
}

PyGetSetDef wrapped_getset[] = {
    {"__doc__", wrapped_doc, wrapped_set_doc, nullptr, nullptr},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {}};
PyMethodDef wrapped_methods[] = {{"__reduce__", wrapped_reduce, METH_NOARGS, nullptr}, {}};
PyMemberDef wrapped_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(WrappedObject, vectorcall), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(WrappedObject, dict), READONLY, nullptr},
    {"__wrapped__", T_OBJECT_EX, offsetof(WrappedObject, function), READONLY, nullptr},
    {}};

PyTypeObject* wrapped_type(bool method) {
  const auto make = [](const char* name, bool binds) {
    PyType_Slot slots[] = {{Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                           {Py_tp_repr, reinterpret_cast<void*>(wrapped_repr)},
                           {Py_tp_getattro, reinterpret_cast<void*>(wrapped_getattr)},
                           {Py_tp_getset, wrapped_getset},
                           {Py_tp_methods, wrapped_methods},
                           {Py_tp_members, wrapped_members},
                           {Py_tp_traverse, reinterpret_cast<void*>(wrapped_traverse)},
                           {Py_tp_clear, reinterpret_cast<void*>(wrapped_clear)},
                           {Py_tp_dealloc, reinterpret_cast<void*>(wrapped_dealloc)},
                           {binds ? Py_tp_descr_get : 0, reinterpret_cast<void*>(method_get)},
                           {0, nullptr}};
    const unsigned flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                           (binds ? Py_TPFLAGS_METHOD_DESCRIPTOR : 0);
    PyType_Spec spec{name, sizeof(WrappedObject), 0, flags, slots};
    return reinterpret_cast<PyTypeObject*>(check(PyType_FromSpec(&spec)));
  };
  static PyTypeObject* const bound = make("torch._C.OverridableMethod", true);
  static PyTypeObject* const free = make("torch._C.OverridableFunction", false);
  return method ? bound : free;
}

PyObject* overridable(PyObject*, PyObject* args) {
  // _overridable(function, is_method): the function, asking __torch_function__ first.
  PyObject* function;
  int method;
  if (!PyArg_ParseTuple(args, "Op", &function, &method)) return nullptr;
  return guarded([&]() -> PyObject* {
    PyTypeObject* type = wrapped_type(method != 0);
    auto* wrapped = reinterpret_cast<WrappedObject*>(check(type->tp_alloc(type, 0)));
    wrapped->vectorcall = call_wrapped;
    wrapped->function = Py_NewRef(function);
    return reinterpret_cast<PyObject*>(wrapped);
  });
}

// An attribute computed in Python. `Tensor.T.__get__` is what __torch_function__ receives.
struct PropertyObject {
  PyObject_HEAD PyObject *name, *get, *set, *doc;
};

PyObject* property_get(PyObject* self, PyObject* instance, PyObject*) {
  auto* p = reinterpret_cast<PropertyObject*>(self);
  if (instance == nullptr || instance == Py_None) return Py_NewRef(self);
  if (__builtin_expect(any_override(&instance, 1), 0))
    return guarded([&] {
      return call_override(own(PyObject_GetAttrString(self, "__get__")).get(), &instance, 1, nullptr);
    });
  return PyObject_CallOneArg(p->get, instance);
}
int property_set(PyObject* self, PyObject* instance, PyObject* value) {
  auto* p = reinterpret_cast<PropertyObject*>(self);
  return guarded_int([&]() -> int {
    FL_CHECK_KIND(p->set != Py_None && value, Type, "[", std::string(PyUnicode_AsUTF8(p->name)),
                  "] expected an attribute that can be written, got one that cannot");
    PyObject* pair[2] = {instance, value};
    if (any_override(&instance, 1)) {
      own(call_override(own(PyObject_GetAttrString(self, "__set__")).get(), pair, 2, nullptr));
      return 0;
    }
    own(PyObject_Vectorcall(p->set, pair, 2, nullptr));
    return 0;
  });
}
PyMemberDef property_members[] = {
    {"__name__", T_OBJECT_EX, offsetof(PropertyObject, name), READONLY, nullptr},
    {"fget", T_OBJECT_EX, offsetof(PropertyObject, get), READONLY, nullptr},
    {"fset", T_OBJECT_EX, offsetof(PropertyObject, set), READONLY, nullptr},
    {"__doc__", T_OBJECT_EX, offsetof(PropertyObject, doc), READONLY, nullptr},
    {}};
PyObject* property_qualname(PyObject* self, void*) {
  return PyUnicode_FromFormat("TensorBase.%U", reinterpret_cast<PropertyObject*>(self)->name);
}
PyGetSetDef property_getset[] = {{"__qualname__", property_qualname, nullptr, nullptr, nullptr}, {}};

PyObject* overridable_property(PyObject*, PyObject* args) {
  // _overridable_property(name, property)
  PyObject *name, *source;
  if (!PyArg_ParseTuple(args, "OO", &name, &source)) return nullptr;
  return guarded([&]() -> PyObject* {
    static PyTypeObject* const type = [] {
      PyType_Slot slots[] = {{Py_tp_descr_get, reinterpret_cast<void*>(property_get)},
                             {Py_tp_descr_set, reinterpret_cast<void*>(property_set)},
                             {Py_tp_members, property_members},
                             {Py_tp_getset, property_getset},
                             {0, nullptr}};
      PyType_Spec spec{"torch._C.TensorProperty", sizeof(PropertyObject), 0, Py_TPFLAGS_DEFAULT, slots};
      return reinterpret_cast<PyTypeObject*>(check(PyType_FromSpec(&spec)));
    }();
    auto* property = reinterpret_cast<PropertyObject*>(check(type->tp_alloc(type, 0)));
    property->name = Py_NewRef(name);
    property->get = check(PyObject_GetAttrString(source, "fget"));
    property->set = check(PyObject_GetAttrString(source, "fset"));
    property->doc = check(PyObject_GetAttrString(source, "__doc__"));
    return reinterpret_cast<PyObject*>(property);
  });
}

PyMethodDef wrapping_functions[] = {{"_overridable", overridable, METH_VARARGS, nullptr},
                                    {"_overridable_property", overridable_property, METH_VARARGS, nullptr},
                                    {}};

}  // namespace

void make_overridable(PyGetSetDef* attributes) {
  for (PyGetSetDef* row = attributes; row->name; ++row) {
    if (row->name[0] == '_' && row->name[1] == '_') continue;
    row->closure = new PyGetSetDef(*row);
    row->get = get_attribute;
    if (row->set) row->set = set_attribute;
  }
}

// Programs know the class of native attributes as TensorBase, which reprs name as well.
void name_attributes(PyTypeObject* type) {
  PyObject *name, *value;
  Py_ssize_t at = 0;
  while (PyDict_Next(type->tp_dict, &at, &name, &value)) {
    if (!Py_IS_TYPE(value, &PyGetSetDescr_Type)) continue;
    PyObject*& qualname = reinterpret_cast<PyDescrObject*>(value)->d_qualname;
    Py_XSETREF(qualname, check(PyUnicode_FromFormat("TensorBase.%U", name)));
  }
}

void make_overridable(PyTypeObject* type, PyMethodDef* methods) {
  for (PyMethodDef* row = methods; row->ml_name; ++row) {
    if (row->ml_flags & (METH_STATIC | METH_CLASS)) continue;
    auto* method =
        reinterpret_cast<MethodObject*>(check(method_object_type()->tp_alloc(method_object_type(), 0)));
    method->vectorcall = call_method_object;
    method->definition = row;
    Object object = Object::steal(reinterpret_cast<PyObject*>(method));
    check(PyObject_SetAttrString(reinterpret_cast<PyObject*>(type), row->ml_name, object.get()));
  }
}

bool overrides_slot(PyObject* self) {
  return any_override(&self, 1) && !has_default_hook(self);
}

PyObject* call_slot_override(const char* name, PyObject* self, PyObject* other) {
  Object method = own(PyObject_GetAttrString(reinterpret_cast<PyObject*>(tensor_type), name));
  PyObject* pair[2] = {self, other};
  return call_override(method.get(), pair, other ? 2 : 1, nullptr);
}

void add_overrides(PyObject* module) {
  if (!hook_name) hook_name = check(PyUnicode_InternFromString("__torch_function__"));
  check(PyModule_AddFunctions(module, override_functions));
  check(PyModule_AddFunctions(module, wrapping_functions));
  disabled_impl = check(PyObject_GetAttrString(module, "_disabled_torch_function_impl"));
}

}  // namespace fl::py

// __torch_function__: finding the arguments that override a call, the mode stack, and the protocol itself.
#include <cstring>

#include "python/common.h"

namespace fl::py {

namespace {

PyObject* hook_name;          // "__torch_function__"
PyObject* disabled_impl;      // the function that means "no override"
thread_local bool subclasses_disabled = false;
thread_local bool all_disabled = false;
thread_local std::vector<Object>* mode_stack = nullptr;

std::vector<Object>& modes() {
  if (!mode_stack) mode_stack = new std::vector<Object>;
  return *mode_stack;
}

// The class-level __torch_function__ of an object, borrowed; null when it has none of interest.
PyObject* hook_of(PyTypeObject* type) {
  if (type == tensor_type || type == parameter_type) return nullptr;
  PyObject* hook = _PyType_Lookup(type, hook_name);
  return hook == disabled_impl ? nullptr : hook;
}

bool is_plain(PyObject* o) {
  PyTypeObject* t = Py_TYPE(o);
  return t == tensor_type || t == &PyLong_Type || t == &PyFloat_Type || t == &PyBool_Type || o == Py_None || t == &PyUnicode_Type ||
         t == parameter_type;
}

bool overrides(PyObject* o) {
  if (is_plain(o)) return false;
  PyTypeObject* t = Py_TYPE(o);
  if (t == &PyTuple_Type || t == &PyList_Type) {
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
    PyObject** items = PySequence_Fast_ITEMS(o);
    for (Py_ssize_t i = 0; i < n; ++i)
      if (!is_plain(items[i]) && hook_of(Py_TYPE(items[i]))) return true;
    return false;
  }
  return hook_of(t) != nullptr;
}

void collect(PyObject* o, std::vector<PyObject*>& found) {
  PyTypeObject* t = Py_TYPE(o);
  if (t == &PyTuple_Type || t == &PyList_Type) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); ++i) {
      PyObject* item = PySequence_Fast_GET_ITEM(o, i);
      if (!PyTuple_Check(item) && !PyList_Check(item)) collect(item, found);
    }
    return;
  }
  if (is_plain(o) || !hook_of(t)) return;
  for (PyObject* seen : found)
    if (Py_TYPE(seen) == t) return;
  // Subclasses come before the classes they refine.
  size_t at = 0;
  while (at < found.size() && !PyType_IsSubtype(t, Py_TYPE(found[at]))) ++at;
  found.insert(found.begin() + at, o);
}

}  // namespace

bool any_override(PyObject* const* args, Py_ssize_t n) {
  if (__builtin_expect(all_disabled, 0)) return false;
  if (__builtin_expect(mode_stack && !mode_stack->empty(), 0)) return true;
  if (__builtin_expect(subclasses_disabled, 0)) return false;
  for (Py_ssize_t i = 0; i < n; ++i)
    if (overrides(args[i])) return true;
  return false;
}

PyObject* call_override(PyObject* function, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  Object positional = own(PyTuple_New(nargs));
  for (Py_ssize_t i = 0; i < nargs; ++i) PyTuple_SET_ITEM(positional.get(), i, Py_NewRef(args[i]));
  Object keywords = own(PyDict_New());
  const Py_ssize_t nkw = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  for (Py_ssize_t k = 0; k < nkw; ++k) check(PyDict_SetItem(keywords.get(), PyTuple_GET_ITEM(kwnames, k), args[nargs + k]));

  std::vector<PyObject*> found;
  if (!subclasses_disabled)
    for (Py_ssize_t i = 0; i < nargs + nkw; ++i) collect(args[i], found);
  Object types = own(PyTuple_New(found.size()));
  for (size_t i = 0; i < found.size(); ++i) PyTuple_SET_ITEM(types.get(), i, Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(found[i]))));

  const auto ask = [&](PyObject* hook) {
    return own(PyObject_CallFunctionObjArgs(hook, function, types.get(), positional.get(), keywords.get(), nullptr));
  };
  if (mode_stack && !mode_stack->empty()) {
    // The innermost mode handles the call with itself taken off the stack.
    Object mode = modes().back();
    modes().pop_back();
    Object result;
    try {
      Object hook = own(PyObject_GetAttr(mode.get(), hook_name));
      result = ask(hook.get());
    } catch (...) {
      modes().push_back(mode);
      throw;
    }
    modes().push_back(mode);
    if (result.get() != Py_NotImplemented) return result.release();
  }
  for (PyObject* o : found) {
    Object hook = own(PyObject_GetAttr(reinterpret_cast<PyObject*>(Py_TYPE(o)), hook_name));
    if (PyFunction_Check(hook.get())) hook = own(PyObject_GetAttr(o, hook_name));  // an instance method: deprecated but seen
    Object result = ask(hook.get());
    if (result.get() != Py_NotImplemented) return result.release();
  }
  if (found.empty()) {  // modes only, and all of them declined
    fail(ErrorKind::Type, "[torch_function] expected a mode to handle the call, got NotImplemented from all");
  }
  Object repr = own(PyObject_Repr(function));
  std::string names;
  for (PyObject* o : found) names += (names.empty() ? "" : ", ") + std::string(Py_TYPE(o)->tp_name);
  fail(ErrorKind::Type, "[torch_function] expected one of the types (", names, ") to implement ", std::string(PyUnicode_AsUTF8(repr.get())),
       ", got NotImplemented from all");
}

namespace {

PyObject* disabled(PyObject*, PyObject* args, PyObject*) {
  // _disabled_torch_function_impl(func, types, args, kwargs): call without overrides of subclasses.
  PyObject *func, *types, *positional, *keywords = nullptr;
  if (!PyArg_ParseTuple(args, "OOO|O", &func, &types, &positional, &keywords)) return nullptr;
  const bool saved = std::exchange(subclasses_disabled, true);
  PyObject* result = PyObject_Call(func, positional, keywords && keywords != Py_None ? keywords : nullptr);
  subclasses_disabled = saved;
  return result;
}

PyObject* push_mode(PyObject*, PyObject* mode) {
  modes().push_back(Object::borrow(mode));
  Py_RETURN_NONE;
}
PyObject* pop_mode(PyObject*, PyObject*) {
  if (modes().empty()) {
    PyErr_SetString(PyExc_RuntimeError, "[torch_function] expected a mode on the stack, got an empty stack");
    return nullptr;
  }
  Object mode = modes().back();
  modes().pop_back();
  return mode.release();
}
PyObject* mode_count(PyObject*, PyObject*) { return PyLong_FromSize_t(mode_stack ? mode_stack->size() : 0); }
PyObject* mode_at(PyObject*, PyObject* arg) {
  const Py_ssize_t i = PyLong_AsSsize_t(arg);
  if (i < 0 || !mode_stack || static_cast<size_t>(i) >= mode_stack->size()) {
    PyErr_SetString(PyExc_IndexError, "[torch_function] expected the index of a mode, got one out of range");
    return nullptr;
  }
  return Py_NewRef((*mode_stack)[i].get());
}
PyObject* set_subclasses_disabled(PyObject*, PyObject* arg) { return PyBool_FromLong(std::exchange(subclasses_disabled, arg == Py_True)); }
PyObject* set_all_disabled(PyObject*, PyObject* arg) { return PyBool_FromLong(std::exchange(all_disabled, arg == Py_True)); }
PyObject* is_enabled(PyObject*, PyObject*) { return PyBool_FromLong(!subclasses_disabled && !all_disabled); }

PyObject* has_override(PyObject*, PyObject* relevant) {
  Object fast = Object::steal(PySequence_Fast(relevant, "[has_torch_function] expected a sequence"));
  if (!fast) return nullptr;
  return PyBool_FromLong(any_override(PySequence_Fast_ITEMS(fast.get()), PySequence_Fast_GET_SIZE(fast.get())));
}
PyObject* has_override_variadic(PyObject*, PyObject* const* args, Py_ssize_t n) { return PyBool_FromLong(any_override(args, n)); }

PyMethodDef override_functions[] = {
    {"_disabled_torch_function_impl", reinterpret_cast<PyCFunction>(disabled), METH_VARARGS | METH_KEYWORDS, nullptr},
    {"_push_torch_function_mode", push_mode, METH_O, nullptr},
    {"_pop_torch_function_mode", pop_mode, METH_NOARGS, nullptr},
    {"_len_torch_function_stack", mode_count, METH_NOARGS, nullptr},
    {"_get_function_stack_at", mode_at, METH_O, nullptr},
    {"_set_torch_function_subclasses_disabled", set_subclasses_disabled, METH_O, nullptr},
    {"_set_torch_function_all_disabled", set_all_disabled, METH_O, nullptr},
    {"_is_torch_function_enabled", is_enabled, METH_NOARGS, nullptr},
    {"_has_torch_function", has_override, METH_O, nullptr},
    {"_has_torch_function_unary", reinterpret_cast<PyCFunction>(has_override_variadic), METH_FASTCALL, nullptr},
    {"_has_torch_function_variadic", reinterpret_cast<PyCFunction>(has_override_variadic), METH_FASTCALL, nullptr},
    {}};

}  // namespace

void add_overrides(PyObject* module) {
  hook_name = check(PyUnicode_InternFromString("__torch_function__"));
  check(PyModule_AddFunctions(module, override_functions));
  disabled_impl = check(PyObject_GetAttrString(module, "_disabled_torch_function_impl"));
}

}  // namespace fl::py

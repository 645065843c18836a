// The quick way into compiled scripts. A front holds the compiled form of a scripted function or of a
// module's forward, and where the attributes that it reads are stored. Calls with plain tensors go through
// it; any other call takes the way in Python, which checks and converts.
#include "python/script_front.h"

#include "python/common.h"
#include "python/guards.h"

#include <structmember.h>

#include <memory>
#include <vector>

namespace fl::py {
namespace {

struct Source {
  Object table;  // null: the attributes of the module that is called
  Object name;
};

struct FrontState {
  Object compiled;  // a GuardedFunction over the arguments and what the sources hold
  Py_ssize_t inputs = 0;
  std::vector<Source> sources;
  std::vector<size_t> off;  // sources that must be false
};

struct FrontObject {
  PyObject_HEAD FrontState* state;
};

PyTypeObject* front_type;
PyObject *name_front, *name_slow, *name_tracing, *name_optimize;
PyObject* jit_names = nullptr;  // the dictionary of flambeau.jit

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  const FrontState* state = reinterpret_cast<FrontObject*>(self)->state;
  if (state == nullptr) return 0;
  Py_VISIT(state->compiled.get());
  for (const Source& source : state->sources) Py_VISIT(source.table.get());
  return 0;
}

int clear(PyObject* self) {
  delete std::exchange(reinterpret_cast<FrontObject*>(self)->state, nullptr);
  return 0;
}

void dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  PyTypeObject* type = Py_TYPE(self);
  clear(self);
  type->tp_free(self);
  Py_DECREF(type);
}

// (compiled, number of tensors, [(dict or None, name), ...], [index, ...])
PyObject* create(PyTypeObject* type, PyObject* args, PyObject*) {
  return guarded([&]() -> PyObject* {
    PyObject *compiled, *sources, *off;
    Py_ssize_t inputs;
    if (!PyArg_ParseTuple(args, "OnO!O!:ScriptFront", &compiled, &inputs, &PyList_Type, &sources,
                          &PyList_Type, &off))
      throw PythonError();
    auto state = std::make_unique<FrontState>();
    state->compiled = Object::borrow(compiled);
    state->inputs = inputs;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(sources); ++i) {
      PyObject *table, *name;
      if (!PyArg_ParseTuple(PyList_GET_ITEM(sources, i), "OU", &table, &name)) throw PythonError();
      FL_CHECK_KIND(table == Py_None || PyDict_Check(table), Type, "[ScriptFront] expected dicts");
      state->sources.push_back({table == Py_None ? Object() : Object::borrow(table), Object::borrow(name)});
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(off); ++i) {
      const int64_t index = int_value(PyList_GET_ITEM(off, i));
      FL_CHECK_KIND(index >= 0 && index < static_cast<int64_t>(state->sources.size()), Index,
                    "[ScriptFront] expected the index of a source, got ", index);
      state->off.push_back(static_cast<size_t>(index));
    }
    PyObject* self = check(type->tp_alloc(type, 0));
    reinterpret_cast<FrontObject*>(self)->state = state.release();
    return self;
  });
}

// Whether nothing but the program itself wants to know of the call.
bool undisturbed() {
  if (jit_names == nullptr) {
    Object module = own(PyImport_ImportModule("flambeau.jit"));
    jit_names = Py_NewRef(PyModule_GetDict(module.get()));
  }
  PyObject* tracing = PyDict_GetItemWithError(jit_names, name_tracing);
  return tracing != nullptr && PyObject_IsTrue(tracing) == 0 &&
         PyDict_GetItemWithError(jit_names, name_optimize) == Py_True;
}

// Runs the compiled form; null without an error when the call has to take the way in Python.
Object quick_call(const FrontState& state, PyObject* attributes, PyObject* args) {
  if (PyTuple_GET_SIZE(args) != state.inputs || !undisturbed()) return {};
  std::vector<PyObject*> values;
  values.reserve(state.inputs + state.sources.size());
  for (Py_ssize_t i = 0; i < state.inputs; ++i) {
    PyObject* value = PyTuple_GET_ITEM(args, i);
    if (Py_TYPE(value) != tensor_type) return {};
    values.push_back(value);
  }
  for (const Source& source : state.sources) {
    PyObject* value =
        PyDict_GetItemWithError(source.table ? source.table.get() : attributes, source.name.get());
    if (value == nullptr) return {};
    values.push_back(value);
  }
  for (const size_t index : state.off)
    if (PyObject_IsTrue(values[state.inputs + index]) != 0) return {};
  std::vector<Object> alive;  // guards may run code that replaces attributes
  for (size_t i = state.inputs; i < values.size(); ++i) alive.push_back(Object::borrow(values[i]));
  const PauseFrameHook pause;
  Object result;
  if (!call_compiled(state.compiled.get(), values.data(), static_cast<Py_ssize_t>(values.size()), result))
    return {};
  return result;
}

// `__call__` of scripted modules and functions: (self, *args, **kwargs).
PyObject* call_scripted(PyObject*, PyObject* all, PyObject* kwargs) {
  return guarded([&]() -> PyObject* {
    PyObject* self = PyTuple_GET_ITEM(all, 0);
    Object args = own(PyTuple_GetSlice(all, 1, PyTuple_GET_SIZE(all)));
    Object attributes = own(PyObject_GenericGetDict(self, nullptr));
    PyObject* front = PyDict_GetItemWithError(attributes.get(), name_front);
    const bool plain = kwargs == nullptr || PyDict_GET_SIZE(kwargs) == 0;
    if (front != nullptr && Py_TYPE(front) == front_type && plain) {
      Object holder = Object::borrow(front);
      const FrontState* state = reinterpret_cast<FrontObject*>(front)->state;
      if (state != nullptr && !module_needs_hooks(attributes.get())) {
        try {
          Object result = quick_call(*state, attributes.get(), args.get());
          if (result) return result.release();
        } catch (...) {  // raised again, with its line, by the way in Python
          translate_exception();
          if (!PyErr_ExceptionMatches(PyExc_Exception)) return nullptr;
          PyErr_Clear();
        }
      }
    }
    Object slow = own(PyObject_GetAttr(self, name_slow));
    return PyObject_Call(slow.get(), args.get(), kwargs);
  });
}

PyMethodDef call_definition = {"__call__", reinterpret_cast<PyCFunction>(call_scripted),
                               METH_VARARGS | METH_KEYWORDS, nullptr};

PyObject* retire(PyObject* self, PyObject*) {
  clear(self);
  Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"retire", retire, METH_NOARGS, "Lets every call take the way in Python."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(create)},
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(clear)},
    {Py_tp_methods, methods},
    {0, nullptr},
};
PyType_Spec spec = {"flambeau._C.ScriptFront", sizeof(FrontObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};

}  // namespace

void add_script_fronts(PyObject* module) {
  name_front = check(PyUnicode_InternFromString("_script_front"));
  name_slow = check(PyUnicode_InternFromString("_call_in_python"));
  name_tracing = check(PyUnicode_InternFromString("_tracing"));
  name_optimize = check(PyUnicode_InternFromString("_optimize"));
  front_type = reinterpret_cast<PyTypeObject*>(check(PyType_FromSpec(&spec)));
  check(PyModule_AddObjectRef(module, "ScriptFront", reinterpret_cast<PyObject*>(front_type)));
  Object function = own(PyCFunction_New(&call_definition, nullptr));
  Object method = own(PyInstanceMethod_New(function.get()));
  check(PyModule_AddObjectRef(module, "_call_scripted", method.get()));
}

}  // namespace fl::py

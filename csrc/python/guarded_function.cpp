// The callable that compile() returns. A call binds its arguments to the function's parameters, asks the
// guards of each artifact in turn, and calls the first one that is valid; a miss goes to the Python compiler.
#include "python/guards.h"

#include <structmember.h>

#include <algorithm>
#include <cstddef>

#include "core/keys.h"

namespace fl::py {
namespace {

struct Entry {
  std::shared_ptr<GuardTree> guards;  // null: always valid
  Object artifact;
};

struct GuardedObject {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* function;  // the original
  PyObject* compiler;  // called with (self, arguments) on a miss; returns (guards, artifact) or None
  PyObject* dict;
  PyObject* weakrefs;
  std::vector<Entry>* entries;
  bool skipped;  // run the original from now on
  int compiling;
};

// A call that an artifact leaves to its caller, so that loops do not grow the stack.
struct TailObject {
  PyObject_HEAD PyObject* function;
  PyObject* state;
};

PyTypeObject* guarded_type;
PyTypeObject* tail_type;
thread_local int disabled = 0;

int traverse(PyObject* self, visitproc visit, void* arg) {
  auto* c = reinterpret_cast<GuardedObject*>(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(c->function);
  Py_VISIT(c->compiler);
  Py_VISIT(c->dict);
  for (const Entry& entry : *c->entries) {
    Py_VISIT(entry.artifact.get());
    if (!entry.guards) continue;
    if (const int result = entry.guards->traverse(visit, arg)) return result;
  }
  return 0;
}

int clear(PyObject* self) {
  auto* c = reinterpret_cast<GuardedObject*>(self);
  Py_CLEAR(c->function);
  Py_CLEAR(c->compiler);
  Py_CLEAR(c->dict);
  std::vector<Entry> entries;
  entries.swap(*c->entries);
  return 0;
}

void dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  auto* c = reinterpret_cast<GuardedObject*>(self);
  if (c->weakrefs) PyObject_ClearWeakRefs(self);
  PyTypeObject* type = Py_TYPE(self);
  clear(self);
  delete c->entries;
  type->tp_free(self);
  Py_DECREF(type);
}

// Arguments in the order of the code's parameters: positional, keyword-only, *args, **kwargs.
class Bound {
 public:
  // False when the call does not fit the signature; the original then raises the proper error.
  bool bind(PyObject* function, PyObject* const* args, Py_ssize_t count, PyObject* names) {
    auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
    const Py_ssize_t positional = code->co_argcount, keyword_only = code->co_kwonlyargcount;
    const bool takes_args = code->co_flags & CO_VARARGS, takes_kwargs = code->co_flags & CO_VARKEYWORDS;
    const Py_ssize_t named = positional + keyword_only;
    total = named + takes_args + takes_kwargs;
    if (total > kInline) {
      spilled.resize(total);
      values = spilled.data();
    }
    const Py_ssize_t n_names = names ? PyTuple_GET_SIZE(names) : 0;
    if (count == positional && n_names == 0 && total == positional) {  // the usual call
      for (Py_ssize_t i = 0; i < count; ++i) values[i] = args[i];
      return true;
    }
    std::fill(values, values + total, nullptr);
    if (count > positional && !takes_args) return false;
    const Py_ssize_t direct = std::min(count, positional);
    for (Py_ssize_t i = 0; i < direct; ++i) values[i] = args[i];
    if (takes_args) {
      const Py_ssize_t extra = count - direct;
      PyObject* rest = check(PyTuple_New(extra));
      for (Py_ssize_t i = 0; i < extra; ++i) PyTuple_SET_ITEM(rest, i, Py_NewRef(args[direct + i]));
      owned.push_back(Object::steal(rest));
      values[named] = rest;
    }
    PyObject* keywords = nullptr;
    if (takes_kwargs) {
      keywords = check(PyDict_New());
      owned.push_back(Object::steal(keywords));
      values[named + takes_args] = keywords;
    }
    if (n_names > 0) {
      Object variables = own(PyCode_GetVarnames(code));
      for (Py_ssize_t k = 0; k < n_names; ++k) {
        PyObject* name = PyTuple_GET_ITEM(names, k);
        Py_ssize_t index = -1;
        for (Py_ssize_t i = code->co_posonlyargcount; i < named && index < 0; ++i) {
          PyObject* parameter = PyTuple_GET_ITEM(variables.get(), i);
          if (parameter == name || PyUnicode_Compare(parameter, name) == 0) index = i;
        }
        if (index >= 0) {
          if (values[index]) return false;
          values[index] = args[count + k];
        } else if (keywords) {
          check(PyDict_SetItem(keywords, name, args[count + k]));
        } else {
          return false;
        }
      }
    }
    PyObject* defaults = PyFunction_GET_DEFAULTS(function);
    const Py_ssize_t n_defaults = defaults ? PyTuple_GET_SIZE(defaults) : 0;
    for (Py_ssize_t i = 0; i < positional; ++i)
      if (!values[i]) {
        if (i < positional - n_defaults) return false;
        values[i] = PyTuple_GET_ITEM(defaults, i - (positional - n_defaults));
      }
    if (keyword_only > 0) {
      Object variables = own(PyCode_GetVarnames(code));
      PyObject* keyword_defaults = PyFunction_GET_KW_DEFAULTS(function);
      for (Py_ssize_t i = positional; i < named; ++i)
        if (!values[i]) {
          PyObject* value = keyword_defaults ? PyDict_GetItemWithError(keyword_defaults,
                                                                       PyTuple_GET_ITEM(variables.get(), i))
                                             : nullptr;
          if (!value) return false;
          values[i] = value;
        }
    }
    return true;
  }

  static constexpr Py_ssize_t kInline = 16;
  PyObject* inlined[kInline];
  PyObject** values = inlined;
  Py_ssize_t total = 0;

 private:
  std::vector<PyObject*> spilled;
  std::vector<Object> owned;
};

PyObject* call_original(GuardedObject* c, PyObject* const* args, size_t flags, PyObject* names) {
  return PyObject_Vectorcall(c->function, args, flags, names);
}

bool runs_original(GuardedObject* c) {
  return c->skipped || disabled || !PyFunction_Check(c->function) ||
         thread_state().included.has(Key::Python) || function_modes_active();
}

// Guards that have no native form: the program runs as it is from now on.
Object refuse(GuardedObject* c, const char* why) {
  c->skipped = true;
  PyErr_Clear();
  if (PyErr_WarnFormat(PyExc_RuntimeWarning, 1, "[compile] a function runs in plain Python: %s", why) < 0)
    throw PythonError();
  return {};
}

// The artifact for these arguments, made if there is none; null when the original is to run.
Object artifact_for(GuardedObject* c, PyObject* const* values, Py_ssize_t total) {
  Object artifact;
  auto& entries = *c->entries;
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::shared_ptr<GuardTree> guards = entries[i].guards;  // a check may run Python code
    Object candidate = entries[i].artifact;
    if (guards && guards->busy())
      return {};  // its own code came here, or another thread's in the midst of it
    if (!guards || guards->check(values, total)) {
      artifact = std::move(candidate);
      if (i > 0 && i < entries.size()) std::swap(entries[i], entries[0]);
      break;
    }
  }
  if (!artifact) {
    Object arguments = own(PyTuple_New(total));
    for (Py_ssize_t i = 0; i < total; ++i) PyTuple_SET_ITEM(arguments.get(), i, Py_NewRef(values[i]));
    Object compiler = Object::borrow(c->compiler);
    PyObject* parts[3] = {nullptr, reinterpret_cast<PyObject*>(c), arguments.get()};
    const size_t before = entries.size();
    Object function =
        own(PyObject_Vectorcall(compiler.get(), parts + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
    if (function.get() == Py_None) return {};
    if (function.get() == Py_True) {  // another thread was quicker
      return entries.size() > before ? artifact_for(c, values, total) : Object();
    }
    FL_CHECK_KIND(PyTuple_Check(function.get()) && PyTuple_GET_SIZE(function.get()) == 2, Type,
                  "[compile] expected (guards, artifact) from the compiler");
    artifact = Object::borrow(PyTuple_GET_ITEM(function.get(), 1));
    Entry entry;
    if (PyTuple_GET_ITEM(function.get(), 0) != Py_None) {
      try {
        entry.guards = GuardTree::build(PyTuple_GET_ITEM(function.get(), 0));
      } catch (const std::exception& error) {
        return refuse(c, error.what());
      } catch (const ForeignError& error) {
        error.forget();
        return refuse(c, "its guards raise");
      }
    }
    entry.artifact = artifact;
    entries.insert(entries.begin(), std::move(entry));
  }
  return artifact;
}

// The compiled function that this thread runs.
struct Running {
  explicit Running(PyObject* c) : before(std::exchange(current, c)) {}
  ~Running() { current = before; }
  PyObject* const before;
  static thread_local PyObject* current;
};
thread_local PyObject* Running::current = nullptr;

// One step: the result, or a tail call.
PyObject* step(GuardedObject* c, PyObject* const* args, size_t flags, PyObject* names) {
  if (runs_original(c)) return call_original(c, args, flags, names);
  Bound bound;
  if (!bound.bind(c->function, args, PyVectorcall_NARGS(flags), names))
    return call_original(c, args, flags, names);
  const PauseFrameHook pause;
  const Object artifact = artifact_for(c, bound.values, bound.total);
  if (!artifact) return call_original(c, args, flags, names);
  const Running running(reinterpret_cast<PyObject*>(c));
  return PyObject_Vectorcall(artifact.get(), bound.values, bound.total, nullptr);
}

// Performs tail calls until there is a result.
Object finish(Object result) {
  while (Py_TYPE(result.get()) == tail_type) {
    auto* tail = reinterpret_cast<TailObject*>(result.get());
    Object function = Object::borrow(tail->function), state = Object::borrow(tail->state);
    result = Object();  // the state's values must not outlive the call that takes them
    PyObject* parts[2] = {nullptr, state.get()};
    const size_t one = 1 | PY_VECTORCALL_ARGUMENTS_OFFSET;
    if (Py_TYPE(function.get()) == guarded_type) {
      result = own(step(reinterpret_cast<GuardedObject*>(function.get()), parts + 1, one, nullptr));
    } else {
      result = own(PyObject_Vectorcall(function.get(), parts + 1, one, nullptr));
    }
  }
  return result;
}

PyObject* call(PyObject* self, PyObject* const* args, size_t flags, PyObject* names) {
  return guarded([&]() -> PyObject* {
    return finish(own(step(reinterpret_cast<GuardedObject*>(self), args, flags, names))).release();
  });
}

PyObject* create(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  return guarded([&]() -> PyObject* {
    PyObject *function, *compiler;
    if (!PyArg_ParseTuple(args, "OO:GuardedFunction", &function, &compiler)) throw PythonError();
    PyObject* self = check(type->tp_alloc(type, 0));
    auto* c = reinterpret_cast<GuardedObject*>(self);
    c->vectorcall = call;
    c->function = Py_NewRef(function);
    c->compiler = Py_NewRef(compiler);
    c->entries = new std::vector<Entry>;
    return self;
  });
}

PyObject* descriptor_get(PyObject* self, PyObject* owner, PyObject*) {
  if (owner == nullptr || owner == Py_None) return Py_NewRef(self);
  return PyMethod_New(self, owner);
}

PyObject* reset(PyObject* self, PyObject*) {
  auto* c = reinterpret_cast<GuardedObject*>(self);
  std::vector<Entry> entries;
  entries.swap(*c->entries);
  c->skipped = false;
  Py_RETURN_NONE;
}

PyObject* count(PyObject* self, PyObject*) {
  return PyLong_FromSize_t(reinterpret_cast<GuardedObject*>(self)->entries->size());
}

// Why each artifact was refused: the places of the last failed checks.
PyObject* failures(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    Object list = own(PyList_New(0));
    for (const Entry& entry : *reinterpret_cast<GuardedObject*>(self)->entries) {
      PyObject* place = entry.guards ? entry.guards->failed() : nullptr;
      check(PyList_Append(list.get(), place ? place : Py_None));
    }
    return list.release();
  });
}

PyObject* skip(PyObject* self, PyObject*) {
  reinterpret_cast<GuardedObject*>(self)->skipped = true;
  Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"_reset", reset, METH_NOARGS, "Forgets all artifacts."},
    {"_count", count, METH_NOARGS, "How many artifacts there are."},
    {"_failures", failures, METH_NOARGS, "The place of each artifact's last failed check."},
    {"_skip", skip, METH_NOARGS, "Runs the original from now on."},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef members[] = {
    {"__wrapped__", T_OBJECT, offsetof(GuardedObject, function), READONLY, nullptr},
    {"_dynamo_function", T_OBJECT, offsetof(GuardedObject, function), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(GuardedObject, dict), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(GuardedObject, weakrefs), READONLY, nullptr},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(GuardedObject, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyGetSetDef properties[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(create)},
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(clear)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_descr_get, reinterpret_cast<void*>(descriptor_get)},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_getset, properties},
    {0, nullptr},
};

PyType_Spec spec = {"flambeau._C.GuardedFunction", sizeof(GuardedObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, slots};

int tail_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(reinterpret_cast<TailObject*>(self)->function);
  Py_VISIT(reinterpret_cast<TailObject*>(self)->state);
  return 0;
}

int tail_clear(PyObject* self) {
  Py_CLEAR(reinterpret_cast<TailObject*>(self)->function);
  Py_CLEAR(reinterpret_cast<TailObject*>(self)->state);
  return 0;
}

void tail_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  PyTypeObject* type = Py_TYPE(self);
  tail_clear(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyType_Slot tail_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(tail_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(tail_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(tail_clear)},
    {0, nullptr},
};
PyType_Spec tail_spec = {"flambeau._C.TailCall", sizeof(TailObject), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, tail_slots};

PyObject* tail_call(PyObject*, PyObject* const* args, Py_ssize_t n) {
  return guarded([&]() -> PyObject* {
    FL_CHECK_KIND(n == 2, Type, "[_tail_call] expected a function and its state");
    PyObject* self = check(tail_type->tp_alloc(tail_type, 0));
    reinterpret_cast<TailObject*>(self)->function = Py_NewRef(args[0]);
    reinterpret_cast<TailObject*>(self)->state = Py_NewRef(args[1]);
    return self;
  });
}

// Compiled functions of this thread run their originals while the count is above zero.
PyObject* disable_compiled(PyObject*, PyObject* change) {
  return guarded([&]() -> PyObject* {
    disabled += static_cast<int>(int_value(change));
    return PyLong_FromLong(disabled);
  });
}

PyMethodDef functions[] = {
    {"_tail_call", reinterpret_cast<PyCFunction>(tail_call), METH_FASTCALL, nullptr},
    {"_disable_compiled", disable_compiled, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool call_compiled(PyObject* compiled, PyObject* const* values, Py_ssize_t count, Object& result) {
  if (Py_TYPE(compiled) != guarded_type) return false;
  auto* c = reinterpret_cast<GuardedObject*>(compiled);
  if (runs_original(c)) return false;
  const Object artifact = artifact_for(c, values, count);
  if (!artifact) return false;
  const Running running(compiled);
  result = finish(own(PyObject_Vectorcall(artifact.get(), values, count, nullptr)));
  return true;
}

Object running_chooser() {
  if (Running::current == nullptr) return {};
  Object place = Object::borrow(reinterpret_cast<GuardedObject*>(Running::current)->compiler);
  for (const char* name : {"__self__", "settings", "choose"}) {
    place = Object::steal(PyObject_GetAttrString(place.get(), name));
    if (!place) {
      PyErr_Clear();
      return {};
    }
  }
  return place;
}

void add_guarded_function(PyObject* module) {
  guarded_type = reinterpret_cast<PyTypeObject*>(check(PyType_FromSpec(&spec)));
  tail_type = reinterpret_cast<PyTypeObject*>(check(PyType_FromSpec(&tail_spec)));
  check(PyModule_AddObjectRef(module, "GuardedFunction", reinterpret_cast<PyObject*>(guarded_type)));
  check(PyModule_AddFunctions(module, functions));
}

}  // namespace fl::py

// The base type of nn.Module. Two things of a module are on the hot path and therefore here: a call that no
// hook looks at goes straight to `forward`, and parameters, buffers and submodules are found without running
// Python code.
#include "python/common.h"
#include "python/script_front.h"

namespace fl::py {
namespace {

PyObject* member_tables[3];  // names of the tables that attributes are looked up in
PyObject* hook_tables[4];    // names of the tables that must be empty for the direct call
PyObject *name_forward, *name_call_impl, *name_compiled;
bool global_hooks = false;  // hooks for all modules are registered

// The attribute dictionary; borrowed, the module keeps it.
PyObject* attributes(PyObject* self) {
  Object dict = own(PyObject_GenericGetDict(self, nullptr));
  return dict.get();
}

// Whether a table of hooks is missing or holds something; a subclass may have replaced it.
bool has_entries(PyObject* dict, PyObject* name) {
  PyObject* table = PyDict_GetItemWithError(dict, name);
  return table == nullptr || !PyDict_Check(table) || PyDict_GET_SIZE(table) != 0;
}

bool needs_hooks(PyObject* dict) {
  if (global_hooks) return true;
  for (PyObject* name : hook_tables)
    if (has_entries(dict, name)) return true;
  return false;
}

// Lets the message of the error that is set say which module it came from.
void locate_error(PyObject* self, PyObject* args) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (PyObject* module = PyImport_ImportModule("flambeau.nn.modules.blame")) {
    Py_XDECREF(PyObject_CallMethod(module, "locate", "OOO", self, value, args));
    Py_DECREF(module);
  }
  PyErr_Clear();  // an error without its place is better than an error in finding it
  PyErr_Restore(type, value, traceback);
}

PyObject* call(PyObject* self, PyObject* args, PyObject* kwargs) {
  return guarded([&]() -> PyObject* {
    PyObject* dict = attributes(self);
    PyObject* compiled = PyDict_GetItemWithError(dict, name_compiled);
    PyObject* name = name_forward;
    if (compiled != nullptr && compiled != Py_None) {
      name = name_compiled;
    } else if (needs_hooks(dict)) {
      name = name_call_impl;
    }
    Object target = own(PyObject_GetAttr(self, name));
    PyObject* result = PyObject_Call(target.get(), args, kwargs);
    if (result == nullptr) locate_error(self, args);
    return result;
  });
}

PyObject* get_attribute(PyObject* self, PyObject* name) {
  return guarded([&]() -> PyObject* {
    PyObject* dict = attributes(self);
    for (PyObject* table_name : member_tables) {
      PyObject* table = PyDict_GetItemWithError(dict, table_name);
      if (table == nullptr || !PyDict_Check(table)) continue;
      if (PyObject* value = PyDict_GetItemWithError(table, name)) return Py_NewRef(value);
    }
    if (PyErr_Occurred() == nullptr)
      PyErr_Format(PyExc_AttributeError, "'%s' object has no attribute '%U'", Py_TYPE(self)->tp_name, name);
    return nullptr;
  });
}

PyObject* set_global_hooks(PyObject*, PyObject* value) {
  return guarded([&]() -> PyObject* {
    global_hooks = check(PyObject_IsTrue(value)) != 0;
    Py_RETURN_NONE;
  });
}

PyMethodDef type_methods[] = {
    {"__getattr__", get_attribute, METH_O, "A parameter, buffer or submodule."},
    {nullptr, nullptr, 0, nullptr},
};

PyMethodDef functions[] = {
    {"_set_global_module_hooks", set_global_hooks, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyTypeObject base_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

}  // namespace

// A table that is missing is one of something that is no module.
bool module_needs_hooks(PyObject* attributes) {
  return PyDict_GetItemWithError(attributes, hook_tables[0]) != nullptr && needs_hooks(attributes);
}

void add_nn_module(PyObject* module) {
  const char* members[] = {"_parameters", "_buffers", "_modules"};
  const char* hooks[] = {"_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks"};
  for (int i = 0; i < 3; ++i) member_tables[i] = check(PyUnicode_InternFromString(members[i]));
  for (int i = 0; i < 4; ++i) hook_tables[i] = check(PyUnicode_InternFromString(hooks[i]));
  name_forward = check(PyUnicode_InternFromString("forward"));
  name_call_impl = check(PyUnicode_InternFromString("_call_impl"));
  name_compiled = check(PyUnicode_InternFromString("_compiled_call_impl"));

  base_type.tp_name = "flambeau._C.ModuleBase";
  base_type.tp_basicsize = sizeof(PyObject);
  base_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE;
  base_type.tp_doc = "What nn.Module does natively: calls and attribute lookup.";
  base_type.tp_new = PyBaseObject_Type.tp_new;  // which refuses classes with abstract methods
  base_type.tp_call = call;
  base_type.tp_methods = type_methods;
  check(PyType_Ready(&base_type));
  // `super().__new__(cls, ...)` of a module goes on to the classes beside it, as it would over a class of
  // Python.
  check(PyDict_DelItemString(base_type.tp_dict, "__new__"));
  PyType_Modified(&base_type);
  check(PyModule_AddObjectRef(module, "ModuleBase", reinterpret_cast<PyObject*>(&base_type)));
  check(PyModule_AddFunctions(module, functions));
}

}  // namespace fl::py

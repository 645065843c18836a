// Mixed precision as Python sees it: the thread's state by type of device, and the table of rules.
#include "autograd/autocast.h"

#include <cstring>

#include "dispatch/builtin.h"
#include "python/common.h"

namespace fl::py {

namespace {

DeviceType type_from(PyObject* o) {
  const char* text = PyUnicode_AsUTF8(o);
  if (!text) throw PythonError();
  return parse_device(text).type;
}

PyObject* is_enabled(PyObject*, PyObject* device) {
  return guarded([&] { return PyBool_FromLong(autocast::enabled(type_from(device))); });
}

PyObject* set_enabled(PyObject*, PyObject* args) {
  PyObject* device;
  int on;
  if (!PyArg_ParseTuple(args, "Up", &device, &on)) return nullptr;
  return guarded([&] {
    autocast::set_enabled(type_from(device), on);
    return Py_NewRef(Py_None);
  });
}

PyObject* get_dtype(PyObject*, PyObject* device) {
  return guarded([&] { return Py_NewRef(dtype_object(autocast::lower_dtype(type_from(device)))); });
}

PyObject* set_dtype(PyObject*, PyObject* args) {
  PyObject *device, *dtype;
  if (!PyArg_ParseTuple(args, "UO", &device, &dtype)) return nullptr;
  return guarded([&] {
    FL_CHECK_KIND(is_dtype(dtype), Type, "[set_autocast_dtype] expected a dtype, got ",
                  std::string(Py_TYPE(dtype)->tp_name));
    autocast::set_lower_dtype(type_from(device), dtype_value(dtype));
    return Py_NewRef(Py_None);
  });
}

PyObject* is_cache_enabled(PyObject*, PyObject*) {
  return PyBool_FromLong(autocast::cache_enabled());
}

PyObject* set_cache_enabled(PyObject*, PyObject* on) {
  const int yes = PyObject_IsTrue(on);
  if (yes < 0) return nullptr;
  autocast::set_cache_enabled(yes);
  Py_RETURN_NONE;
}

PyObject* increment_nesting(PyObject*, PyObject*) {
  return PyLong_FromLong(autocast::increment_nesting());
}
PyObject* decrement_nesting(PyObject*, PyObject*) {
  return PyLong_FromLong(autocast::decrement_nesting());
}

PyObject* clear_cache(PyObject*, PyObject*) {
  return guarded([&] {
    autocast::clear_cache();
    return Py_NewRef(Py_None);
  });
}

PyObject* install_rules(PyObject*, PyObject* device) {
  // _install_autocast_rules(device)
  return guarded([&] {
    autocast::install_rules(type_from(device));
    return Py_NewRef(Py_None);
  });
}

PyObject* rules(PyObject*, PyObject* device) {
  // _autocast_rules(device): by full name, the number of the rule of each operator that has one.
  return guarded([&] {
    const DeviceType type = type_from(device);
    Object table = own(PyDict_New());
    for (int i = 0; i < builtin_operator_count; ++i) {
      const BuiltinOperator& row = builtin_operators[i];
      const int rule = type == DeviceType::CPU ? row.on_cpu : row.on_accelerator;
      if (rule == 0) continue;
      Object number = own(PyLong_FromLong(rule));
      if (PyDict_SetItemString(table.get(), builtin_operator(i).schema.full_name().c_str(), number.get()) < 0)
        throw PythonError();
    }
    return table.release();
  });
}

PyObject* set_recorded_device(PyObject*, PyObject* device) {
  return guarded([&] {
    const DeviceType before = autocast::set_recorded_device(type_from(device));
    return PyUnicode_FromString(device_type_name(before).c_str());
  });
}

PyMethodDef functions[] = {{"_set_autocast_recorded_device", set_recorded_device, METH_O, nullptr},
                           {"_autocast_rules", rules, METH_O, nullptr},
                           {"_is_autocast_enabled", is_enabled, METH_O, nullptr},
                           {"_set_autocast_enabled", set_enabled, METH_VARARGS, nullptr},
                           {"_get_autocast_dtype", get_dtype, METH_O, nullptr},
                           {"_set_autocast_dtype", set_dtype, METH_VARARGS, nullptr},
                           {"_is_autocast_cache_enabled", is_cache_enabled, METH_NOARGS,
                            "Whether casts of leaves are kept until the outermost autocast block ends.\n"
                            "\n"
                            ">>> flambeau.is_autocast_cache_enabled()\n"
                            "True"},
                           {"_set_autocast_cache_enabled", set_cache_enabled, METH_O,
                            "Sets whether casts of leaves are kept until the outermost autocast block ends.\n"
                            "\n"
                            ">>> flambeau.set_autocast_cache_enabled(True)"},
                           {"_autocast_increment_nesting", increment_nesting, METH_NOARGS,
                            "Enters one more autocast block; gives how many there are.\n"
                            "\n"
                            ">>> flambeau.autocast_increment_nesting()\n"
                            "1\n"
                            ">>> flambeau.autocast_decrement_nesting()\n"
                            "0"},
                           {"_autocast_decrement_nesting", decrement_nesting, METH_NOARGS,
                            "Leaves an autocast block; gives how many are left.\n"
                            "\n"
                            ">>> flambeau.autocast_increment_nesting()\n"
                            "1\n"
                            ">>> flambeau.autocast_decrement_nesting()\n"
                            "0"},
                           {"_clear_autocast_cache", clear_cache, METH_NOARGS,
                            "Forgets the casts of leaves.\n"
                            "\n"
                            ">>> flambeau.clear_autocast_cache()"},
                           {"_install_autocast_rules", install_rules, METH_O, nullptr},
                           {}};

}  // namespace

void add_autocast(PyObject* module) {
  check(PyModule_AddFunctions(module, functions));
}

}  // namespace fl::py

// Gathers what an optimizer's step works on: parameters that have gradients, the gradients and the
// parameters' state, as lists in one order. In C++ because it is all that a step costs for each small
// parameter.
#include "python/common.h"

namespace fl::py {

namespace {

enum Found { kComplex = 1, kSeveralDevices = 2, kMissing = 4 };

PyObject* gather_state(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  // _gather_state(parameters, state, names) -> parameters, gradients, a list for each name, parameters
  // without state, what was found. State that a parameter's dict lacks is None in the list.
  return guarded([&]() -> PyObject* {
    FL_CHECK_KIND(nargs == 3 && PyList_Check(args[0]) && PyDict_Check(args[1]) && PyTuple_Check(args[2]),
                  Type, "[_gather_state] expected a list, a dict and a tuple of names");
    static PyObject* const grad_name = check(PyUnicode_InternFromString("grad"));
    PyObject *all = args[0], *state = args[1], *names = args[2];
    const Py_ssize_t n_names = PyTuple_GET_SIZE(names);
    Object parameters = own(PyList_New(0)), gradients = own(PyList_New(0)), fresh = own(PyList_New(0));
    Object lists = own(PyTuple_New(n_names));
    for (Py_ssize_t k = 0; k < n_names; ++k) PyTuple_SET_ITEM(lists.get(), k, check(PyList_New(0)));
    long position = 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(all); ++i) {
      PyObject* parameter = PyList_GET_ITEM(all, i);
      FL_CHECK_KIND(is_tensor(parameter), Type, "[_gather_state] expected Tensors, got ",
                    std::string(Py_TYPE(parameter)->tp_name));
      Object gradient = own(PyObject_GetAttr(parameter, grad_name));
      if (gradient.get() == Py_None) continue;
      PyObject* entry = PyDict_GetItemWithError(state, parameter);
      if (!entry && PyErr_Occurred()) throw PythonError();
      const bool has_entry = entry && PyDict_Check(entry) && PyDict_GET_SIZE(entry) > 0;
      const TensorImpl* impl = impl_of(parameter);
      if (is_complex(impl->dtype)) position |= kComplex;
      if (const Py_ssize_t before = PyList_GET_SIZE(parameters.get());
          before && impl_of(PyList_GET_ITEM(parameters.get(), before - 1))->device != impl->device)
        position |= kSeveralDevices;
      check(PyList_Append(parameters.get(), parameter));
      check(PyList_Append(gradients.get(), gradient.get()));
      if (!has_entry) check(PyList_Append(fresh.get(), parameter));
      for (Py_ssize_t k = 0; k < n_names; ++k) {
        PyObject* value = has_entry ? PyDict_GetItemWithError(entry, PyTuple_GET_ITEM(names, k)) : nullptr;
        if (!value || value == Py_None) position |= kMissing;
        check(PyList_Append(PyTuple_GET_ITEM(lists.get(), k), value ? value : Py_None));
      }
    }
    return Py_BuildValue("NNNNl", parameters.release(), gradients.release(), lists.release(), fresh.release(),
                         position);
  });
}

PyMethodDef functions[] = {
    {"_gather_state", reinterpret_cast<PyCFunction>(gather_state), METH_FASTCALL, nullptr}, {}};

}  // namespace

void add_optimizer(PyObject* module) {
  check(PyModule_AddFunctions(module, functions));
}

}  // namespace fl::py

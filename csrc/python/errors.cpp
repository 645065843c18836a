// C++ exceptions as Python errors.
#include <cstring>
#include <new>

#include "core/error.h"
#include "python/common.h"

namespace fl::py {

PyOpaque::~PyOpaque() {
  const PyGILState_STATE state = PyGILState_Ensure();
  Py_DECREF(object);
  PyGILState_Release(state);
}

namespace {
// Operators behind a public function have its name with a prefix, which says nothing to the caller: `[_mse]`,
// `[nn_pad]`.
std::string with_public_name(std::string text) {
  for (const char* prefix : {"_", "nn_"})
    if (text.compare(1, std::strlen(prefix), prefix) == 0 && text[0] == '[')
      text.erase(1, std::strlen(prefix));
  return text;
}
}  // namespace

void PythonError::forget() const noexcept {
  const PyGILState_STATE state = PyGILState_Ensure();
  PyErr_Clear();
  PyGILState_Release(state);
}

void translate_exception() {
  try {
    throw;
  } catch (const ForeignError&) {
    if (!PyErr_Occurred())
      PyErr_SetString(PyExc_SystemError, "[flambeau] expected a Python error to be set, got none");
  } catch (const Error& e) {
    PyObject* type = PyExc_RuntimeError;
    switch (e.kind) {
      case ErrorKind::Runtime:
        break;
      case ErrorKind::Type:
        type = PyExc_TypeError;
        break;
      case ErrorKind::Value:
        type = PyExc_ValueError;
        break;
      case ErrorKind::Index:
        type = PyExc_IndexError;
        break;
      case ErrorKind::NotImplemented:
        type = PyExc_NotImplementedError;
        break;
      case ErrorKind::OutOfMemory:
        type = PyExc_RuntimeError;
        // The class that programs catch lies in a module that is loaded when a device is there.
        if (PyObject* module = PyDict_GetItemString(PyImport_GetModuleDict(), "flambeau.cuda")) {
          PyObject* error_class = PyObject_GetAttrString(module, "OutOfMemoryError");
          if (error_class) type = error_class;
          PyErr_Clear();
        }
        break;
    }
    PyErr_SetString(type, with_public_name(e.what()).c_str());
  } catch (const std::bad_alloc&) {
    PyErr_SetString(PyExc_MemoryError, "[flambeau] expected memory to be available, got none");
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
  }
}

}  // namespace fl::py

// What the files of flambeau._distributed share: objects that hold native ones, and errors.
#pragma once

#include "distributed/process_group.h"
#include "python/common.h"

namespace fl::dist::py {

using fl::py::impl_of;
using fl::py::Object;

// Thrown when a Python error is set already.
struct PythonError final : ForeignError {
  void forget() const noexcept override;
};

inline PyObject* check(PyObject* p) {
  if (p == nullptr) throw PythonError();
  return p;
}
inline int check(int status) {
  if (status < 0) throw PythonError();
  return status;
}
inline Object own(PyObject* p) {
  return Object::steal(check(p));
}

extern PyTypeObject* tensor_type;
extern PyTypeObject *store_type, *group_type, *work_type, *reducer_type;

class Released {
 public:
  Released() : state_(PyEval_SaveThread()) {}
  ~Released() { PyEval_RestoreThread(state_); }

 private:
  PyThreadState* state_;
};

class WithGIL {
 public:
  WithGIL() : state_(PyGILState_Ensure()) {}
  ~WithGIL() { PyGILState_Release(state_); }

 private:
  PyGILState_STATE state_;
};

void set_error(std::exception_ptr error);

template <class F>
PyObject* guarded(F&& f) {
  try {
    return f();
  } catch (...) {
    set_error(std::current_exception());
    return nullptr;
  }
}

template <class T>
struct Held {
  PyObject_HEAD std::shared_ptr<T>* value;
};

template <class T>
T& value_of(PyObject* self) {
  return **reinterpret_cast<Held<T>*>(self)->value;
}

template <class T>
PyObject* hold(PyTypeObject* type, std::shared_ptr<T> value) {
  PyObject* self = check(type->tp_alloc(type, 0));
  reinterpret_cast<Held<T>*>(self)->value = new std::shared_ptr<T>(std::move(value));
  return self;
}

template <class T>
void dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  if (auto* value = reinterpret_cast<Held<T>*>(self)->value) {
    Released released;  // threads that are joined may want the GIL
    delete value;
  }
  type->tp_free(self);
  Py_DECREF(type);
}

inline Tensor tensor_of(PyObject* o) {
  if (!PyObject_TypeCheck(o, tensor_type))
    fail(ErrorKind::Type, "[distributed] expected a Tensor, got ", std::string(Py_TYPE(o)->tp_name));
  return Tensor(impl_of(o));
}

inline Tensors tensors_of(PyObject* o) {
  Object sequence = own(PySequence_Fast(o, "[distributed] expected a list of tensors"));
  Tensors list;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence.get()); ++i)
    list.push_back(tensor_of(PySequence_Fast_GET_ITEM(sequence.get(), i)));
  return list;
}

inline int64_t int_of(PyObject* o) {
  const long long value = PyLong_AsLongLong(o);
  if (value == -1 && PyErr_Occurred()) throw PythonError();
  return value;
}

inline std::string bytes_of(PyObject* o) {
  char* data;
  Py_ssize_t size;
  check(PyBytes_AsStringAndSize(o, &data, &size));
  return {data, static_cast<size_t>(size)};
}

// ---------------------------------------------------------------- types

using Arguments = PyObject* const*;

template <class F>
PyCFunction fast(F* f) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(f));
}

template <class T>
PyTypeObject* make_type(PyObject* module, const char* name, PyMethodDef* methods) {
  PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(dealloc<T>)}, {Py_tp_methods, methods}, {}};
  PyType_Spec spec{name, sizeof(Held<T>), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  PyObject* type = check(PyType_FromSpec(&spec));
  check(PyModule_AddObjectRef(module, std::strrchr(name, '.') + 1, type));
  return reinterpret_cast<PyTypeObject*>(type);
}

PyObject* make_reducer(PyObject*, PyObject* args);  // reducer.cpp
void make_reducer_type(PyObject* module);

}  // namespace fl::dist::py

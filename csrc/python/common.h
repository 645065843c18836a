// Shared by the binding's files: owned Python references, error translation, and the types' accessors.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"
#include "dispatch/operator.h"

namespace fl::compiled {
struct CompiledGraph;
}

namespace fl::py {

// An owned reference.
class Object {
 public:
  Object() = default;
  Object(const Object& o) : p_(o.p_) { Py_XINCREF(p_); }
  Object(Object&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  Object& operator=(Object o) noexcept {
    std::swap(p_, o.p_);
    return *this;
  }
  ~Object() { Py_XDECREF(p_); }
  static Object steal(PyObject* p) {
    Object o;
    o.p_ = p;
    return o;
  }
  static Object borrow(PyObject* p) {
    Py_XINCREF(p);
    return steal(p);
  }
  PyObject* get() const { return p_; }
  PyObject* release() { return std::exchange(p_, nullptr); }
  explicit operator bool() const { return p_ != nullptr; }

 private:
  PyObject* p_ = nullptr;
};

// Thrown when a Python error is set already.
struct PythonError final : ForeignError {
  void forget() const noexcept override;
};

// Returns p, or throws when it is null.
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

// Sets the Python error for the C++ exception in flight.
void translate_exception();

// Runs f and turns exceptions into Python errors.
template <class F>
PyObject* guarded(F&& f) {
  try {
    return f();
  } catch (...) {
    translate_exception();
    return nullptr;
  }
}
template <class F>
int guarded_int(F&& f) {
  try {
    return f();
  } catch (...) {
    translate_exception();
    return -1;
  }
}

// Carries a Python object through the dispatcher.
struct PyOpaque final : Opaque {
  explicit PyOpaque(PyObject* o) : object(o) { Py_INCREF(o); }
  ~PyOpaque() override;
  Generator* generator() override;
  PyObject* object;
};

// ---------------------------------------------------------------- tensors

struct TensorObject {
  PyObject_HEAD TensorImpl* impl;  // owned, unless the impl owns this object
  PyObject* dict;
  PyObject* weakrefs;
};

extern PyTypeObject* tensor_type;     // flambeau.Tensor
extern PyTypeObject* parameter_type;  // nn.Parameter once it exists: no __torch_function__ of its own

inline bool is_tensor(PyObject* o) {
  return Py_TYPE(o) == tensor_type || PyType_IsSubtype(Py_TYPE(o), tensor_type);
}
inline TensorImpl* impl_of(PyObject* o) {
  return reinterpret_cast<TensorObject*>(o)->impl;
}
inline Tensor unwrap(PyObject* o) {
  return Tensor(impl_of(o));
}
const Ref<compiled::CompiledGraph>& compiled_graph(PyObject* o);  // what `_compiled_graph` made
PyObject* wrap(Tensor t);                         // new reference; None for an undefined tensor
PyObject* wrap_as(PyTypeObject* type, Tensor t);  // a fresh object of a subclass

// ---------------------------------------------------------------- small types (types.cpp)

PyObject* dtype_object(DType t);  // borrowed
bool is_dtype(PyObject* o);
DType dtype_value(PyObject* o);
PyObject* make_device(Device d);
bool is_device(PyObject* o);
Device device_value(PyObject* o);
Device device_from(PyObject* o);  // device, str or int
PyObject* make_size(IntSpan sizes);
PyObject* layout_object(Layout l);
bool is_layout(PyObject* o);
Layout layout_value(PyObject* o);
PyObject* memory_format_object(MemoryFormat f);
bool is_memory_format(PyObject* o);
MemoryFormat memory_format_value(PyObject* o);
void add_types(PyObject* module);

// ---------------------------------------------------------------- values (convert.cpp)

PyObject* to_python(const Value& v, const std::string* type = nullptr);
// Scalars from Python numbers (bool, int, float, complex, NumPy scalars); false when o is not a number.
bool number_value(PyObject* o, Value& out);
int64_t int_value(PyObject* o);  // through __index__; raises TypeError
PyObject* from_scalar(const Scalar& s);

// ---------------------------------------------------------------- calls (call.cpp)

// Calls an operator with parsed values; wraps the results.
PyObject* call_operator(const Operator& op, Value* args);
// The Python function object for a group of overloads; `method` binds to its first argument.
PyObject* make_function(const std::string& name, const std::string& module,
                        const std::vector<Operator*>& overloads, bool method);
PyObject* call_packet(const char* name, PyObject* const* args, Py_ssize_t nargs);  // by operator name
void add_functions(PyObject* module);
void add_calls(PyObject* module);
// Values of results as one Python object, as a call returns them.
PyObject* wrap_results(const Operator& op, Value* results);
// Positional and keyword arguments of a schema as Python objects.
void unparse(const Operator& op, const Value* args, Object& positional, Object& keywords);
// Python results (a tensor, or a sequence) back as values.
void store_results(const Operator& op, PyObject* result, Value* results);

// __torch_function__ (override.cpp): whether any argument overrides, and the call of the override.
bool any_override(PyObject* const* args, Py_ssize_t n);
PyObject* call_override(PyObject* function, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
// How the error ends that says that nobody took the call.
constexpr std::string_view kAllDeclined = ", got NotImplemented from all";
void add_overrides(PyObject* module);

// ---------------------------------------------------------------- the rest

PyObject* tensor_getitem(PyObject* self, PyObject* key);
int tensor_setitem(PyObject* self, PyObject* key, PyObject* value);
void add_tensor(PyObject* module);
void add_interop(PyObject* module);
void add_autograd(PyObject* module);
void add_library(PyObject* module);
bool is_generator(PyObject* o);
void add_random(PyObject* module);
void add_compiled(PyObject* module);     // compiled graphs (compiled.cpp)
void add_packages(PyObject* module);     // packages of them (package.cpp)
void add_definitions(PyObject* module);  // definitions without Python (definitions.cpp)
void add_nn_module(PyObject* module);    // the base type of nn.Module (nn_module.cpp)
void add_optimizer(PyObject* module);    // what optimizers gather for a step (optimizer.cpp)
void add_autocast(PyObject* module);     // mixed precision (autocast.cpp)
PyObject* tensor_tolist(PyObject* self, PyObject*);
PyObject* tensor_item(PyObject* self, PyObject*);
extern PyNumberMethods* tensor_number_methods();

}  // namespace fl::py

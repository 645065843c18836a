// Operators seen from Python: overload objects, Python functions as kernels, and calls made on behalf of
// both.
#pragma once

#include "python/common.h"

namespace fl::py {

// Holds the interpreter lock while alive, whichever thread this is.
class WithGIL {
 public:
  WithGIL() : state_(PyGILState_Ensure()) {}
  ~WithGIL() { PyGILState_Release(state_); }
  WithGIL(const WithGIL&) = delete;

 private:
  PyGILState_STATE state_;
};

// The overload object of an operator (torch.ops.aten.add.Tensor), borrowed; made when first asked for.
PyObject* overload_object(const Operator& op);

// The operator of an overload object or of a name; raises when there is none.
Operator* operator_of(PyObject* o);

// Arguments as Python objects, without those that equal their defaults: what kernels and handlers written in
// Python get.
void unparse_given(const Operator& op, const Value* args, Object& positional, Object& keywords);

// Results of a Python kernel or handler as values. Written arguments are returned themselves, whatever Python
// returned.
void store_python_results(const Operator& op, PyObject* result, Value* args, Value* results);

// Suspends or restores __torch_function__ while alive: decompositions are not calls of the user.
class TorchFunctionSwitch {
 public:
  explicit TorchFunctionSwitch(bool disabled);
  ~TorchFunctionSwitch();
  TorchFunctionSwitch(const TorchFunctionSwitch&) = delete;

 private:
  bool saved_;
};

// While a kernel of a registered device runs: neither function modes, dispatch modes nor the default device
// of the program concern what it calls.
class BelowModes {
 public:
  BelowModes();
  ~BelowModes();
  BelowModes(const BelowModes&) = delete;

 private:
  TorchFunctionSwitch functions_;
  ExcludeKeys modes_;
  bool had_default_device_;
  Device default_device_;
};

// Makes the attributes and methods of Tensor known to __torch_function__. The table of attributes is changed
// before the type is made from it; the methods are replaced on the finished type.
void make_overridable(PyGetSetDef* attributes);
void make_overridable(PyTypeObject* type, PyMethodDef* methods);
void name_attributes(PyTypeObject* type);
// For the type's slots (len(), bool(), ...): true when `self` or a mode takes over what `name` does. The
// default hook of plain subclasses does not, since results that are not tensors are the same with it.
bool overrides_slot(PyObject* self);
PyObject* call_slot_override(const char* name, PyObject* self, PyObject* other = nullptr);

void add_dispatch_modes(PyObject* module);
void add_memory(PyObject* module);
void add_lazy(PyObject* module);
void add_device_memory(PyObject* module);

// Where the tensors of a device registered from outside get memory: from Python's functions, or, where these
// are None, from the CPU's allocator.
void set_device_memory(DeviceType type, PyObject* allocate, PyObject* free, bool pooled);
void add_outside(PyObject* module);
void add_opencl(PyObject* module);
void add_pjrt(PyObject* module);
void add_profiling(PyObject* module);

}  // namespace fl::py

// Devices registered from Python: what fronts ask of them becomes calls of methods of `RegisteredDevice`.
#include "ops/outside.h"

#include <unordered_map>

#include "python/library.h"
#include "python/parse.h"

namespace fl::py {

BelowModes::BelowModes()
    : functions_(true),
      modes_(Key::Python),
      had_default_device_(default_device().active),
      default_device_(default_device().device) {
  default_device() = {};
}

BelowModes::~BelowModes() {
  default_device() = {had_default_device_, default_device_};
}

namespace {

PyObject* name_object(const std::string& name) {
  static auto* names = new std::unordered_map<const std::string*, PyObject*>;
  PyObject*& object = (*names)[&name];
  if (!object) object = check(PyUnicode_InternFromString(name.c_str()));
  return object;
}

// An operand as a device gets it: a tensor of the shape of the result, or a number.
PyObject* operand_object(const Value& v, const Tensor& out) {
  if (!v.is_tensor()) return check(to_python(v));
  const Tensor t = v.tensor();
  if (t.is_cpu() && !out.is_cpu()) return check(to_python(Value(item(t))));
  if (t->sizes == out->sizes) return wrap(t);
  Dims strides;
  const int64_t lead = out.dim() - t.dim();
  for (int64_t d = 0; d < out.dim(); ++d)
    strides.push_back(d < lead || (t.size(d - lead) == 1 && out.size(d) != 1) ? 0 : t.stride(d - lead));
  return wrap(alias(t, out.sizes(), strides, t.offset()));
}

class PythonDevice final : public OutsideDevice {
 public:
  explicit PythonDevice(PyObject* device)
      : pointwise_(own(PyObject_GetAttrString(device, "_pointwise")).release()),
        reduction_(own(PyObject_GetAttrString(device, "_reduction")).release()),
        update_(own(PyObject_GetAttrString(device, "_update")).release()),
        random_(own(PyObject_GetAttrString(device, "_random")).release()) {}

  void pointwise(const std::string& record, const PointwiseCall& call) override {
    const WithGIL gil;
    const BelowModes below;
    const PointwiseDef& def = call.def;
    Object operands = own(PyTuple_New(def.operands + def.params));
    for (int i = 0; i < def.operands; ++i)
      PyTuple_SET_ITEM(operands.get(), i, operand_object(*call.operand[i], call.out));
    for (int i = 0; i < def.params; ++i)
      PyTuple_SET_ITEM(operands.get(), def.operands + i, check(to_python(Value(call.params[i]))));
    Object variant = def.select_arg < 0 ? Object::borrow(Py_None)
                                        : own(PyUnicode_FromString(def.variant_names[call.variant]));
    Object out = own(wrap(call.out));
    PyObject* args[] = {name_object(record), variant.get(), operands.get(), out.get(),
                        dtype_object(call.common)};
    own(PyObject_Vectorcall(pointwise_, args, 5, nullptr));
  }

  void reduce(const std::string& record, const ReduceCall& call) override {
    const WithGIL gil;
    const BelowModes below;
    const Tensor& self = call.self;
    Object dims = own(PyList_New(0));
    Dims sizes, strides = contiguous_strides(reduced_sizes(self, call.mask, true));
    for (int64_t d = 0; d < self.dim(); ++d) {
      const bool reduced = call.mask >> d & 1;
      sizes.push_back(reduced ? 1 : self.size(d));
      if (reduced) check(PyList_Append(dims.get(), own(PyLong_FromLongLong(d)).get()));
    }
    Object params = own(PyTuple_New(call.def.params));
    for (int i = 0; i < call.def.params; ++i)
      PyTuple_SET_ITEM(params.get(), i, check(to_python(Value(call.params[i]))));
    Object source = own(wrap(self)), out = own(wrap(alias(call.out, sizes, strides, call.out.offset())));
    PyObject* args[] = {name_object(record), params.get(), dims.get(),
                        source.get(),        out.get(),    dtype_object(reduce_element(call.slot))};
    own(PyObject_Vectorcall(reduction_, args, 6, nullptr));
  }

  void update(const std::string& record, const UpdateCall& call) override {
    const WithGIL gil;
    const BelowModes below;
    const UpdateDef& def = call.def;
    Object lists = own(PyTuple_New(def.lists));
    for (int k = 0; k < def.lists; ++k) {
      PyObject* list = check(PyList_New(static_cast<Py_ssize_t>(call.length)));
      PyTuple_SET_ITEM(lists.get(), k, list);
      for (size_t i = 0; i < call.length; ++i) PyList_SET_ITEM(list, i, wrap(call.lists[k][i]));
    }
    Object states = own(PyList_New(static_cast<Py_ssize_t>(call.length)));
    for (size_t i = 0; i < call.length; ++i)
      PyList_SET_ITEM(states.get(), i, numbers(call.values[i] + def.values + def.scalars, def.scalars));
    Object constants = own(numbers(call.numbers, def.numbers));
    PyObject* args[] = {name_object(record), lists.get(), states.get(), constants.get()};
    own(PyObject_Vectorcall(update_, args, 4, nullptr));
  }

  void random(const Tensor& out, const RandomCall& call) override {
    const WithGIL gil;
    const BelowModes below;
    const RandomParams& p = call.params;
    Object tensor = own(wrap(out));
    own(PyObject_CallFunction(random_, "OiiKKddiKL", tensor.get(), static_cast<int>(call.kind),
                              static_cast<int>(call.wide), static_cast<unsigned long long>(call.seed),
                              static_cast<unsigned long long>(call.offset), p.a, p.b, p.bits,
                              static_cast<unsigned long long>(p.range), static_cast<long long>(p.low)));
  }

 private:
  static PyObject* numbers(const double* values, int n) {
    PyObject* tuple = check(PyTuple_New(n));
    for (int i = 0; i < n; ++i) PyTuple_SET_ITEM(tuple, i, check(PyFloat_FromDouble(values[i])));
    return tuple;
  }

  PyObject *pointwise_, *reduction_, *update_, *random_;
};

PyObject* serve_device(PyObject*, PyObject* args) {
  // _serve_device(name, device, fronts): fronts ask the methods of `device` from now on.
  const char* name;
  PyObject* device;
  unsigned fronts;
  if (!PyArg_ParseTuple(args, "sOI", &name, &device, &fronts)) return nullptr;
  return guarded([&]() -> PyObject* {
    serve_outside(register_device(name), std::make_shared<PythonDevice>(device), fronts);
    Py_RETURN_NONE;
  });
}

// A device that is not known may be one that an installed package brings.
bool load_by_name(const std::string& name) {
  if (!Py_IsInitialized()) return false;
  const WithGIL gil;
  const BelowModes below;
  Object module = own(PyImport_ImportModule("flambeau.backends"));
  Object loaded = own(PyObject_CallMethod(module.get(), "load", "s", name.c_str()));
  return check(PyObject_IsTrue(loaded.get()));
}

PyMethodDef outside_functions[] = {{"_serve_device", serve_device, METH_VARARGS, nullptr}, {}};

}  // namespace

void add_outside(PyObject* module) {
  check(PyModule_AddFunctions(module, outside_functions));
  load_device = load_by_name;
}

}  // namespace fl::py

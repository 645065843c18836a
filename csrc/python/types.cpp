// dtype, device, Size, layout and memory_format: the small value types of the API.
#include <cstring>

#include "python/common.h"

namespace fl::py {

namespace {

// ---------------------------------------------------------------- named constants: dtype, layout,
// memory_format

struct NamedObject {
  PyObject_HEAD int value;
  const char* name;
};

PyTypeObject *dtype_type, *layout_type, *memory_format_type;
PyObject* dtypes[kAllDTypes];
PyObject* layouts[6];
PyObject* memory_formats[4];

PyObject* named_repr(PyObject* self) {
  return PyUnicode_FromFormat("torch.%s", reinterpret_cast<NamedObject*>(self)->name);
}
PyObject* named_reduce(PyObject* self, PyObject*) {
  // Pickles as a global of the top-level module, as PyTorch's do.
  return PyUnicode_FromString(reinterpret_cast<NamedObject*>(self)->name);
}

DType self_dtype(PyObject* o) {
  return static_cast<DType>(reinterpret_cast<NamedObject*>(o)->value);
}

PyObject* dtype_is_floating(PyObject* self, void*) {
  return PyBool_FromLong(is_floating(self_dtype(self)));
}
PyObject* dtype_is_complex(PyObject* self, void*) {
  return PyBool_FromLong(is_complex(self_dtype(self)));
}
PyObject* dtype_is_signed(PyObject* self, void*) {
  const DType t = self_dtype(self);
  return PyBool_FromLong(!is_unsigned(t));
}
PyObject* dtype_itemsize(PyObject* self, void*) {
  return PyLong_FromLongLong(size_of(self_dtype(self)));
}
PyObject* dtype_to_real(PyObject* self, PyObject*) {
  PyObject* o = dtype_object(real_of(self_dtype(self)));
  return Py_NewRef(o);
}
PyObject* dtype_to_complex(PyObject* self, PyObject*) {
  PyObject* o = dtype_object(complex_of(self_dtype(self)));
  return Py_NewRef(o);
}

PyGetSetDef dtype_getset[] = {{"is_floating_point", dtype_is_floating, nullptr, nullptr, nullptr},
                              {"is_complex", dtype_is_complex, nullptr, nullptr, nullptr},
                              {"is_signed", dtype_is_signed, nullptr, nullptr, nullptr},
                              {"itemsize", dtype_itemsize, nullptr, nullptr, nullptr},
                              {}};
PyMethodDef named_methods[] = {{"__reduce__", named_reduce, METH_NOARGS, nullptr}, {}};
PyMethodDef dtype_methods[] = {{"__reduce__", named_reduce, METH_NOARGS, nullptr},
                               {"to_real", dtype_to_real, METH_NOARGS, nullptr},
                               {"to_complex", dtype_to_complex, METH_NOARGS, nullptr},
                               {}};

PyTypeObject* make_named_type(const char* name, PyMethodDef* methods, PyGetSetDef* getset) {
  PyType_Slot slots[] = {{Py_tp_repr, reinterpret_cast<void*>(named_repr)},
                         {Py_tp_methods, methods},
                         {getset ? Py_tp_getset : 0, getset},
                         {0, nullptr}};
  PyType_Spec spec{name, sizeof(NamedObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                   slots};
  return reinterpret_cast<PyTypeObject*>(check(PyType_FromSpec(&spec)));
}

PyObject* make_named(PyTypeObject* type, int value, const char* name) {
  auto* o = reinterpret_cast<NamedObject*>(check(type->tp_alloc(type, 0)));
  o->value = value;
  o->name = name;
  return reinterpret_cast<PyObject*>(o);
}

// ---------------------------------------------------------------- device

struct DeviceObject {
  PyObject_HEAD Device device;
};
PyTypeObject* device_type;

PyObject* device_new(PyTypeObject*, PyObject* args, PyObject* kwargs) {
  return guarded([&]() -> PyObject* {
    static const char* names[] = {"type", "index", nullptr};
    PyObject *type = nullptr, *index = nullptr;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:device", const_cast<char**>(names), &type, &index))
      throw PythonError();
    Device d = device_from(type);
    if (index && index != Py_None) {
      FL_CHECK(d.index < 0, "[device] expected no index beside a device that names one, got ", to_string(d));
      const long i = PyLong_AsLong(index);
      if (i == -1 && PyErr_Occurred()) throw PythonError();
      FL_CHECK(i >= 0 && i < 128, "[device] expected an index in [0, 127], got ", static_cast<int64_t>(i));
      d.index = static_cast<int8_t>(i);
    }
    return make_device(d);
  });
}
PyObject* device_repr(PyObject* self) {
  const Device d = device_value(self);
  const std::string type = device_type_name(d.type);
  return d.index < 0 ? PyUnicode_FromFormat("device(type='%s')", type.c_str())
                     : PyUnicode_FromFormat("device(type='%s', index=%d)", type.c_str(), d.index);
}
PyObject* device_str(PyObject* self) {
  return PyUnicode_FromString(to_string(device_value(self)).c_str());
}
// The first device of a kind from outside needs no number, and is its number 0.
int place(Device d) {
  return d.index < 0 && d.type > DeviceType::CUDA ? 0 : d.index;
}
Py_hash_t device_hash(PyObject* self) {
  const Device d = device_value(self);
  return static_cast<int>(d.type) * 256 + place(d) + 2;
}
PyObject* device_compare(PyObject* a, PyObject* b, int op) {
  if (!is_device(b) || (op != Py_EQ && op != Py_NE)) Py_RETURN_NOTIMPLEMENTED;
  const Device x = device_value(a), y = device_value(b);
  return PyBool_FromLong((x.type == y.type && place(x) == place(y)) == (op == Py_EQ));
}
PyObject* device_get_type(PyObject* self, void*) {
  return PyUnicode_FromString(device_type_name(device_value(self).type).c_str());
}
PyObject* device_get_index(PyObject* self, void*) {
  const Device d = device_value(self);
  if (d.index < 0) Py_RETURN_NONE;
  return PyLong_FromLong(d.index);
}
PyObject* device_reduce(PyObject* self, PyObject*) {
  const Device d = device_value(self);
  return Py_BuildValue("O(s)", device_type, to_string(d).c_str());
}
PyObject* call_python_helper(const char* name, PyObject* self, PyObject* args) {
  Object module = Object::steal(PyImport_ImportModule("flambeau._tensor.device"));
  if (!module) return nullptr;
  Object fn = Object::steal(PyObject_GetAttrString(module.get(), name));
  if (!fn) return nullptr;
  Object all = args ? Object::steal(PySequence_Concat(Object::steal(PyTuple_Pack(1, self)).get(), args))
                    : Object::steal(PyTuple_Pack(1, self));
  return PyObject_CallObject(fn.get(), all.get());
}
PyObject* device_enter(PyObject* self, PyObject*) {
  return call_python_helper("enter", self, nullptr);
}
PyObject* device_exit(PyObject* self, PyObject* args) {
  return call_python_helper("exit", self, args);
}
PyObject* device_call(PyObject* self, PyObject* args, PyObject*) {
  return call_python_helper("decorate", self, args);
}

PyGetSetDef device_getset[] = {{"type", device_get_type, nullptr, nullptr, nullptr},
                               {"index", device_get_index, nullptr, nullptr, nullptr},
                               {}};
PyMethodDef device_methods[] = {{"__reduce__", device_reduce, METH_NOARGS, nullptr},
                                {"__enter__", device_enter, METH_NOARGS, nullptr},
                                {"__exit__", device_exit, METH_VARARGS, nullptr},
                                {}};

// ---------------------------------------------------------------- Size

PyTypeObject* size_type;

PyObject* size_from_tuple(PyObject* tuple) {  // steals
  if (tuple == nullptr) return nullptr;
  Object args = Object::steal(PyTuple_Pack(1, tuple));
  Py_DECREF(tuple);
  return PyTuple_Type.tp_new(size_type, args.get(), nullptr);
}
PyObject* size_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  Object size = Object::steal(PyTuple_Type.tp_new(type, args, kwargs));
  if (!size) return nullptr;
  const Py_ssize_t n = PyTuple_GET_SIZE(size.get());
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject* item = PyTuple_GET_ITEM(size.get(), i);
    if (PyLong_Check(item) || !PyIndex_Check(item)) {
      if (PyLong_Check(item)) continue;
      PyErr_Format(PyExc_TypeError, "[Size] expected integers, got %.100s at position %zd",
                   Py_TYPE(item)->tp_name, i);
      return nullptr;
    }
    PyObject* index = PyNumber_Index(item);
    if (!index) return nullptr;
    PyTuple_SET_ITEM(size.get(), i, index);
    Py_DECREF(item);
  }
  return size.release();
}
PyObject* size_repr(PyObject* self) {
  std::string s = "torch.Size([";
  const Py_ssize_t n = PyTuple_GET_SIZE(self);
  for (Py_ssize_t i = 0; i < n; ++i) {
    Object r = Object::steal(PyObject_Repr(PyTuple_GET_ITEM(self, i)));
    if (!r) return nullptr;
    s += (i ? ", " : "") + std::string(PyUnicode_AsUTF8(r.get()));
  }
  return PyUnicode_FromString((s + "])").c_str());
}
PyObject* size_numel(PyObject* self, PyObject*) {
  int64_t n = 1;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self); ++i) n *= PyLong_AsLongLong(PyTuple_GET_ITEM(self, i));
  if (PyErr_Occurred()) return nullptr;
  return PyLong_FromLongLong(n);
}
PyObject* size_concat(PyObject* a, PyObject* b) {
  if (!PyTuple_Check(b)) {
    PyErr_Format(PyExc_TypeError,
                 "[Size] expected a tuple to concatenate, got %.100s: can only concatenate tuple (not "
                 "%.100s) to torch.Size",
                 Py_TYPE(b)->tp_name, Py_TYPE(b)->tp_name);
    return nullptr;
  }
  return size_from_tuple(PyTuple_Type.tp_as_sequence->sq_concat(a, b));
}
PyObject* size_add(PyObject* a, PyObject* b) {
  if (!PyTuple_Check(a) || !PyTuple_Check(b)) Py_RETURN_NOTIMPLEMENTED;
  return size_concat(a, b);
}
PyObject* size_repeat(PyObject* self, Py_ssize_t n) {
  return size_from_tuple(PyTuple_Type.tp_as_sequence->sq_repeat(self, n));
}
PyObject* size_subscript(PyObject* self, PyObject* key) {
  PyObject* got = PyTuple_Type.tp_as_mapping->mp_subscript(self, key);
  return got && PyTuple_CheckExact(got) ? size_from_tuple(got) : got;
}
PyObject* size_reduce(PyObject* self, PyObject*) {
  Object plain = Object::steal(PySequence_Tuple(self));
  Object copy = Object::steal(PyTuple_GetSlice(self, 0, PyTuple_GET_SIZE(self)));
  return Py_BuildValue("O(O)", size_type, copy.get());
}
PyMethodDef size_methods[] = {
    {"numel", size_numel, METH_NOARGS, nullptr}, {"__reduce__", size_reduce, METH_NOARGS, nullptr}, {}};

}  // namespace

PyObject* dtype_object(DType t) {
  return dtypes[static_cast<int>(t)];
}
bool is_dtype(PyObject* o) {
  return Py_TYPE(o) == dtype_type;
}
DType dtype_value(PyObject* o) {
  const DType dtype = self_dtype(o);
  if (__builtin_expect(dtype == DType::ComplexHalf, 0)) note_complex_half();
  return dtype;
}
PyObject* layout_object(Layout l) {
  return layouts[static_cast<int>(l)];
}
bool is_layout(PyObject* o) {
  return Py_TYPE(o) == layout_type;
}
Layout layout_value(PyObject* o) {
  return static_cast<Layout>(reinterpret_cast<NamedObject*>(o)->value);
}
PyObject* memory_format_object(MemoryFormat f) {
  return memory_formats[static_cast<int>(f)];
}
bool is_memory_format(PyObject* o) {
  return Py_TYPE(o) == memory_format_type;
}
MemoryFormat memory_format_value(PyObject* o) {
  return static_cast<MemoryFormat>(reinterpret_cast<NamedObject*>(o)->value);
}

PyObject* make_device(Device d) {
  static PyObject* cpu = nullptr;
  if (d == Device{} && cpu) return Py_NewRef(cpu);
  auto* o = reinterpret_cast<DeviceObject*>(check(device_type->tp_alloc(device_type, 0)));
  o->device = d;
  if (d == Device{}) cpu = Py_NewRef(reinterpret_cast<PyObject*>(o));
  return reinterpret_cast<PyObject*>(o);
}
bool is_device(PyObject* o) {
  return Py_TYPE(o) == device_type;
}
Device device_value(PyObject* o) {
  return reinterpret_cast<DeviceObject*>(o)->device;
}
Device device_from(PyObject* o) {
  if (is_device(o)) return device_value(o);
  if (PyUnicode_Check(o)) {
    const char* text = PyUnicode_AsUTF8(o);
    if (text == nullptr) throw PythonError();
    return parse_device(text);
  }
  if (PyLong_Check(o) && !PyBool_Check(o)) {
    const long i = PyLong_AsLong(o);
    FL_CHECK(i >= 0 && i < 128, "[device] expected an index in [0, 127], got ", static_cast<int64_t>(i));
    return Device{DeviceType::CUDA, static_cast<int8_t>(i)};
  }
  fail(ErrorKind::Type, "[device] expected a device, a string or an index, got ",
       std::string(Py_TYPE(o)->tp_name));
}

PyObject* make_size(IntSpan sizes) {
  PyObject* size = check(size_type->tp_alloc(size_type, static_cast<Py_ssize_t>(sizes.size())));
  for (size_t i = 0; i < sizes.size(); ++i)
    PyTuple_SET_ITEM(size, static_cast<Py_ssize_t>(i), PyLong_FromLongLong(sizes[i]));
  return size;
}

void add_types(PyObject* module) {
  dtype_type = make_named_type("flambeau.dtype", dtype_methods, dtype_getset);
  layout_type = make_named_type("flambeau.layout", named_methods, nullptr);
  memory_format_type = make_named_type("flambeau.memory_format", named_methods, nullptr);
  check(PyModule_AddObjectRef(module, "dtype", reinterpret_cast<PyObject*>(dtype_type)));
  check(PyModule_AddObjectRef(module, "layout", reinterpret_cast<PyObject*>(layout_type)));
  check(PyModule_AddObjectRef(module, "memory_format", reinterpret_cast<PyObject*>(memory_format_type)));
  for (int i = 0; i < kAllDTypes; ++i) {
    dtypes[i] = make_named(dtype_type, i, name_of(static_cast<DType>(i)));
    check(PyModule_AddObjectRef(module, name_of(static_cast<DType>(i)), dtypes[i]));
  }
  const char* layout_names[] = {"strided",    "sparse_coo", "sparse_csr",
                                "sparse_csc", "sparse_bsr", "sparse_bsc"};
  for (int i = 0; i < 6; ++i) {
    layouts[i] = make_named(layout_type, i, layout_names[i]);
    check(PyModule_AddObjectRef(module, layout_names[i], layouts[i]));
  }
  const char* format_names[] = {"contiguous_format", "preserve_format", "channels_last", "channels_last_3d"};
  for (int i = 0; i < 4; ++i) {
    memory_formats[i] = make_named(memory_format_type, i, format_names[i]);
    check(PyModule_AddObjectRef(module, format_names[i], memory_formats[i]));
  }

  PyType_Slot device_slots[] = {{Py_tp_new, reinterpret_cast<void*>(device_new)},
                                {Py_tp_repr, reinterpret_cast<void*>(device_repr)},
                                {Py_tp_str, reinterpret_cast<void*>(device_str)},
                                {Py_tp_hash, reinterpret_cast<void*>(device_hash)},
                                {Py_tp_call, reinterpret_cast<void*>(device_call)},
                                {Py_tp_richcompare, reinterpret_cast<void*>(device_compare)},
                                {Py_tp_getset, device_getset},
                                {Py_tp_methods, device_methods},
                                {0, nullptr}};
  PyType_Spec device_spec{"flambeau.device", sizeof(DeviceObject), 0, Py_TPFLAGS_DEFAULT, device_slots};
  device_type = reinterpret_cast<PyTypeObject*>(check(PyType_FromSpec(&device_spec)));
  check(PyModule_AddObjectRef(module, "device", reinterpret_cast<PyObject*>(device_type)));

  PyType_Slot size_slots[] = {{Py_tp_new, reinterpret_cast<void*>(size_new)},
                              {Py_tp_repr, reinterpret_cast<void*>(size_repr)},
                              {Py_sq_concat, reinterpret_cast<void*>(size_concat)},
                              {Py_sq_repeat, reinterpret_cast<void*>(size_repeat)},
                              {Py_nb_add, reinterpret_cast<void*>(size_add)},
                              {Py_mp_subscript, reinterpret_cast<void*>(size_subscript)},
                              {Py_tp_methods, size_methods},
                              {0, nullptr}};
  PyType_Spec size_spec{"flambeau.Size", 0, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, size_slots};
  Object bases = own(PyTuple_Pack(1, &PyTuple_Type));
  size_type = reinterpret_cast<PyTypeObject*>(check(PyType_FromSpecWithBases(&size_spec, bases.get())));
  check(PyModule_AddObjectRef(module, "Size", reinterpret_cast<PyObject*>(size_type)));
}

}  // namespace fl::py

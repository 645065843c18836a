// The Tensor type: object life time, attributes and subclasses. What Python's operators and built-in
// functions call is in tensor_numbers.cpp; everything that is an operator of ours is attached by the operator
// table.
#include "compiled/kept_value.h"
#include "core/sparse.h"
#include "python/common.h"

#include <structmember.h>

#include <cstddef>

#include "python/autograd.h"
#include "python/interpreter.h"
#include "python/library.h"
#include "python/parse.h"
#include "python/tensor_numbers.h"

namespace fl::py {

PyTypeObject* tensor_type;
PyTypeObject* parameter_type;

// ---------------------------------------------------------------- life time
//
// One Python object for each TensorImpl. Normally the object owns the impl. When the object is about to die
// while C++ still holds the impl, ownership turns round: the impl keeps the object, so that attributes,
// subclass and identity are there when the tensor comes back to Python.

namespace {

TensorObject* object_of(PyObject* o) {
  return reinterpret_cast<TensorObject*>(o);
}

// True when the object was saved from destruction.
bool try_resurrect(PyObject* self) {
  TensorImpl* impl = object_of(self)->impl;
  if (impl == nullptr || impl->owns_python || impl->use_count() <= 1) return false;
  Py_INCREF(self);
  impl->owns_python = true;
  impl->release();  // the object's own reference
  return true;
}

void attach_released(PyObject* self);

void release_from_impl(TensorImpl* impl) {
  // The collector of an interpreter that ends must not find an object without its impl.
  if (!Py_IsInitialized() && !(interpreter_is_ending() && PyGILState_Check())) return;
  const PyGILState_STATE state = PyGILState_Ensure();
  auto* self = static_cast<PyObject*>(impl->python);
  impl->owns_python = false;
  impl->python = nullptr;
  object_of(self)->impl = nullptr;
  // A weak reference may have handed the object out meanwhile: it becomes a tensor whose memory is gone.
  if (Py_REFCNT(self) > 1) attach_released(self);
  Py_DECREF(self);
  PyGILState_Release(state);
}

void tensor_finalize(PyObject* self) {
  try_resurrect(self);
}

int tensor_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(object_of(self)->dict);
  Py_VISIT(Py_TYPE(self));
  TensorImpl* impl = object_of(self)->impl;
  if (impl && impl->autograd && !impl->owns_python && impl->use_count() == 1)
    return traverse_autograd(impl, visit, arg);
  return 0;
}
int tensor_clear(PyObject* self) {
  Py_CLEAR(object_of(self)->dict);
  TensorImpl* impl = object_of(self)->impl;
  if (impl && impl->autograd && !impl->owns_python && impl->use_count() == 1) clear_autograd(impl);
  return 0;
}

// Free list of plain tensors: they are made and dropped with every operation.
constexpr int kFreeMost = 64;
PyObject* free_objects[kFreeMost];
int free_count = 0;

void tensor_dealloc(PyObject* self) {
  TensorObject* t = object_of(self);
  PyTypeObject* type = Py_TYPE(self);
  if (type == tensor_type && try_resurrect(self)) return;
  PyObject_GC_UnTrack(self);
  if (t->weakrefs) PyObject_ClearWeakRefs(self);
  Py_CLEAR(t->dict);
  if (TensorImpl* impl = t->impl) {
    t->impl = nullptr;
    impl->python = nullptr;
    impl->release();
  }
  if (type == tensor_type && free_count < kFreeMost) {
    free_objects[free_count++] = self;
    return;  // keeps its reference to the type
  }
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* attach(PyObject* self, Tensor&& t) {
  TensorImpl* impl = t.ref().leak();
  object_of(self)->impl = impl;
  impl->python = self;
  return self;
}

void attach_released(PyObject* self) {
  Tensor released = empty(std::vector<int64_t>{1}, Options{});
  released.impl()->storage->resize(0);
  attach(self, std::move(released));
}

}  // namespace

PyObject* wrap(Tensor t) {
  if (!t.defined()) Py_RETURN_NONE;
  TensorImpl* impl = t.impl();
  if (impl->python) {
    auto* self = static_cast<PyObject*>(impl->python);
    if (impl->owns_python) {
      impl->owns_python = false;
      impl->retain();  // the object owns the impl again; the caller gets the reference the impl held
      // The interpreter noted that the finaliser ran; it has to run at the next death too. The mark is bit 0
      // of the second word of the collector's header.
      if (Py_TYPE(self) != tensor_type) reinterpret_cast<uintptr_t*>(self)[-1] &= ~uintptr_t(1);
      return self;
    }
    return Py_NewRef(self);
  }
  PyObject* self;
  if (free_count) {
    self = free_objects[--free_count];
    PyObject_Init(self, tensor_type);
    Py_DECREF(tensor_type);  // the free-listed object kept its reference
    object_of(self)->dict = nullptr;
    object_of(self)->weakrefs = nullptr;
    PyObject_GC_Track(self);
  } else {
    self = check(tensor_type->tp_alloc(tensor_type, 0));
  }
  return attach(self, std::move(t));
}

PyObject* wrap_as(PyTypeObject* type, Tensor t) {
  PyObject* self = check(type->tp_alloc(type, 0));
  return attach(self, std::move(t));
}

namespace {

// ---------------------------------------------------------------- attributes

void check_strided(const char* op, const Tensor& t) {
  FL_CHECK(!t->sparse, "[", op,
           "] expected a strided tensor, got a sparse one, whose parts have memory of their own");
}

#define GETTER(name, expression)                \
  PyObject* get_##name(PyObject* self, void*) { \
    return guarded([&]() -> PyObject* {         \
      const Tensor t = unwrap(self);            \
      return expression;                        \
    });                                         \
  }
GETTER(shape, make_size(t.sizes()))
GETTER(dtype, Py_NewRef(dtype_object(t.dtype())))
GETTER(device, make_device(t.device()))
GETTER(layout, Py_NewRef(layout_object(layout_of(t))))
GETTER(is_sparse, PyBool_FromLong(layout_of(t) == Layout::Sparse))
GETTER(_cdata, PyLong_FromVoidPtr(t.impl()))
GETTER(is_sparse_csr, PyBool_FromLong(layout_of(t) == Layout::SparseCsr))
GETTER(ndim, PyLong_FromLongLong(t.dim()))
GETTER(itemsize, PyLong_FromLongLong(t.itemsize()))
GETTER(nbytes, (check_strided("nbytes", t), PyLong_FromLongLong(t.itemsize() * t.numel())))
GETTER(is_cuda, PyBool_FromLong(t.device().type == DeviceType::CUDA))
GETTER(is_cpu, PyBool_FromLong(t.is_cpu()))
GETTER(is_meta, PyBool_FromLong(t.is_meta()))
GETTER(false, ((void)t, PyBool_FromLong(0)))
GETTER(version, PyLong_FromUnsignedLong(t->inference ? 0 : t->version()))
GETTER(none, ((void)t, Py_NewRef(Py_None)))
#undef GETTER

PyGetSetDef tensor_getset[] = {
    {"shape", get_shape, nullptr, "Sizes of the dimensions, as a torch.Size; size() gives the same.",
     nullptr},
    {"dtype", get_dtype, nullptr, "What the elements are, such as torch.float32.", nullptr},
    {"device", get_device, nullptr, "Where the elements are: torch.device of a type and an index.", nullptr},
    {"layout", get_layout, nullptr,
     "How the elements are stored: torch.strided, or one of the sparse layouts.", nullptr},
    {"_cdata", get__cdata, nullptr, nullptr, nullptr},
    {"ndim", get_ndim, nullptr, "How many dimensions there are; dim() gives the same.", nullptr},
    {"itemsize", get_itemsize, nullptr, "Bytes of one element.", nullptr},
    {"nbytes", get_nbytes, nullptr, "Bytes of all elements: numel() * itemsize.", nullptr},
    {"is_cuda", get_is_cuda, nullptr, "Whether the elements are on a CUDA device.", nullptr},
    {"is_cpu", get_is_cpu, nullptr, "Whether the elements are in the memory of the CPU.", nullptr},
    {"is_meta", get_is_meta, nullptr, "Whether the tensor has a shape and a dtype, but no elements.",
     nullptr},
    {"is_sparse", get_is_sparse, nullptr, "Whether the layout is torch.sparse_coo.", nullptr},
    {"is_sparse_csr", get_is_sparse_csr, nullptr, "Whether the layout is torch.sparse_csr.", nullptr},
    {"is_quantized", get_false, nullptr, "Whether the dtype is quantized, such as torch.qint8.", nullptr},
    {"is_mkldnn", get_false, nullptr, "Whether the layout is that of oneDNN; always False here.", nullptr},
    {"is_mps", get_false, nullptr, "Whether the elements are on a device of Apple; always False here.",
     nullptr},
    {"is_xpu", get_false, nullptr, "Whether the elements are on a device of Intel; always False here.",
     nullptr},
    {"is_xla", get_false, nullptr, "Whether the elements are on an XLA device.", nullptr},
    {"is_nested", get_false, nullptr, "Whether the tensor is nested: a batch of tensors of several shapes.",
     nullptr},
    {"is_vulkan", get_false, nullptr, "Whether the elements are on a Vulkan device; always False here.",
     nullptr},
    {"is_ipu", get_false, nullptr, "Whether the elements are on an IPU; always False here.", nullptr},
    {"_version", get_version, nullptr, nullptr, nullptr},
    {"name", get_none, nullptr, "None: parameters have their names in modules (named_parameters).", nullptr},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {}};

PyMemberDef tensor_members[] = {
    {"__dictoffset__", T_PYSSIZET, offsetof(TensorObject, dict), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(TensorObject, weakrefs), READONLY, nullptr},
    {}};

// ---------------------------------------------------------------- metadata methods

PyObject* tensor_size(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return guarded([&]() -> PyObject* {
    const TensorImpl* t = impl_of(self);
    const Py_ssize_t total = nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
    if (total == 0 || args[0] == Py_None) return make_size(t->sizes);
    return PyLong_FromLongLong(t->sizes[wrap_dim("size", int_value(args[0]), t->sizes.size())]);
  });
}
PyObject* tensor_stride(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return guarded([&]() -> PyObject* {
    const TensorImpl* t = impl_of(self);
    FL_CHECK(!t->sparse,
             "[stride] expected a strided tensor, got a sparse one: sparse tensors do not have strides");
    const Py_ssize_t total = nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
    if (total == 0 || args[0] == Py_None) {
      PyObject* tuple = check(PyTuple_New(t->strides.size()));
      for (size_t i = 0; i < t->strides.size(); ++i)
        PyTuple_SET_ITEM(tuple, i, PyLong_FromLongLong(t->strides[i]));
      return tuple;
    }
    return PyLong_FromLongLong(t->strides[wrap_dim("stride", int_value(args[0]), t->strides.size())]);
  });
}
PyObject* tensor_dim(PyObject* self, PyObject*) {
  return PyLong_FromSize_t(impl_of(self)->sizes.size());
}
PyObject* tensor_numel(PyObject* self, PyObject*) {
  return PyLong_FromLongLong(impl_of(self)->numel);
}
PyObject* tensor_element_size(PyObject* self, PyObject*) {
  return PyLong_FromLongLong(size_of(impl_of(self)->dtype));
}
PyObject* tensor_storage_offset(PyObject* self, PyObject*) {
  return PyLong_FromLongLong(impl_of(self)->offset);
}
PyObject* tensor_data_ptr(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    const TensorImpl* t = impl_of(self);
    check_strided("data_ptr", unwrap(self));
    if (t->numel == 0 || t->device.type == DeviceType::Meta) return PyLong_FromLong(0);
    if (any_unusual_storage()) t->storage->materialize();  // whoever asks may write there
    return PyLong_FromVoidPtr(t->data());
  });
}
PyObject* tensor_is_contiguous(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return guarded([&]() -> PyObject* {
    MemoryFormat format = MemoryFormat::Contiguous;
    const Py_ssize_t total = nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
    if (total) {
      FL_CHECK_KIND(is_memory_format(args[0]), Type, "[is_contiguous] expected a memory_format, got ",
                    std::string(Py_TYPE(args[0])->tp_name));
      format = memory_format_value(args[0]);
    }
    const Tensor& t = unwrap(self);
    const bool coordinates = t->sparse && layout_of(t) == Layout::Sparse;
    return PyBool_FromLong(!coordinates && t.is_contiguous(format));
  });
}
PyObject* tensor_bool_method(PyObject* self, bool (*test)(DType)) {
  return PyBool_FromLong(test(impl_of(self)->dtype));
}
PyObject* tensor_is_floating_point(PyObject* self, PyObject*) {
  return tensor_bool_method(self, [](DType t) { return is_floating(t); });
}
PyObject* tensor_is_complex(PyObject* self, PyObject*) {
  return tensor_bool_method(self, [](DType t) { return is_complex(t); });
}
PyObject* tensor_is_signed(PyObject* self, PyObject*) {
  return tensor_bool_method(self, [](DType t) { return !is_unsigned(t); });
}
PyObject* tensor_is_inference(PyObject* self, PyObject*) {
  return PyBool_FromLong(impl_of(self)->inference);
}
PyObject* tensor_storage_id(PyObject* self, PyObject*) {
  return PyLong_FromVoidPtr(impl_of(self)->storage.get());
}
PyObject* tensor_storage_bytes(PyObject* self, PyObject*) {
  return PyLong_FromSize_t(impl_of(self)->storage->bytes);
}
PyObject* tensor_storage_address(PyObject* self, PyObject*) {
  impl_of(self)->storage->materialize();
  return PyLong_FromVoidPtr(impl_of(self)->storage->data);
}
PyObject* tensor_storage_resizable(PyObject* self, PyObject*) {
  return PyBool_FromLong(impl_of(self)->storage->resizable);
}
PyObject* tensor_storage_resize(PyObject* self, PyObject* bytes) {
  return guarded([&]() -> PyObject* {
    const int64_t n = int_value(bytes);
    FL_CHECK(n >= 0, "[resize_] expected a size that is not negative, got ", n);
    impl_of(self)->storage->resize(static_cast<size_t>(n));
    Py_RETURN_NONE;
  });
}
// The whole storage as a tensor of bytes.
PyObject* tensor_storage_view(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    const Tensor t = unwrap(self);
    FL_CHECK_KIND(!t->sparse, NotImplemented,
                  "[storage] expected a strided tensor, got a sparse one without storage");
    Tensor bytes = alias(t, {static_cast<int64_t>(t->storage->bytes)}, {1}, 0);
    bytes->dtype = DType::UInt8;
    bytes->keys = bytes->keys - kDeferred;
    return wrap(bytes);
  });
}
PyObject* tensor_is_number(PyObject* self, PyObject*) {
  return PyBool_FromLong(impl_of(self)->wrapped_number);
}
// Makes a tensor of one element take part in promotion as a Python number does.
PyObject* tensor_mark_number(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    FL_CHECK_KIND(impl_of(self)->sizes.size() == 0, Value,
                  "[_mark_wrapped_number] expected a tensor of no dimensions");
    impl_of(self)->wrapped_number = true;
    return Py_NewRef(self);
  });
}
PyObject* tensor_bump(PyObject* self, PyObject*) {
  unwrap(self).bump_version();
  Py_RETURN_NONE;
}

PyMethodDef tensor_methods[] = {
    {"size", reinterpret_cast<PyCFunction>(tensor_size), METH_FASTCALL | METH_KEYWORDS, nullptr},
    {"stride", reinterpret_cast<PyCFunction>(tensor_stride), METH_FASTCALL | METH_KEYWORDS, nullptr},
    {"is_contiguous", reinterpret_cast<PyCFunction>(tensor_is_contiguous), METH_FASTCALL | METH_KEYWORDS,
     nullptr},
    {"dim", tensor_dim, METH_NOARGS, nullptr},
    {"ndimension", tensor_dim, METH_NOARGS, nullptr},
    {"numel", tensor_numel, METH_NOARGS, nullptr},
    {"nelement", tensor_numel, METH_NOARGS, nullptr},
    {"element_size", tensor_element_size, METH_NOARGS, nullptr},
    {"storage_offset", tensor_storage_offset, METH_NOARGS, nullptr},
    {"data_ptr", tensor_data_ptr, METH_NOARGS, nullptr},
    {"is_floating_point", tensor_is_floating_point, METH_NOARGS, nullptr},
    {"is_complex", tensor_is_complex, METH_NOARGS, nullptr},
    {"is_signed", tensor_is_signed, METH_NOARGS, nullptr},
    {"is_inference", tensor_is_inference, METH_NOARGS, nullptr},
    {"item", tensor_item, METH_NOARGS, nullptr},
    {"tolist", tensor_tolist, METH_NOARGS, nullptr},
    {"_storage_id", tensor_storage_id, METH_NOARGS, nullptr},
    {"_storage_bytes", tensor_storage_bytes, METH_NOARGS, nullptr},
    {"_storage_address", tensor_storage_address, METH_NOARGS, nullptr},
    {"_storage_resizable", tensor_storage_resizable, METH_NOARGS, nullptr},
    {"_storage_resize", tensor_storage_resize, METH_O, nullptr},
    {"_storage_view", tensor_storage_view, METH_NOARGS, nullptr},
    {"_is_wrapped_number", tensor_is_number, METH_NOARGS, nullptr},
    {"_mark_wrapped_number", tensor_mark_number, METH_NOARGS, nullptr},
    {"_bump_version", tensor_bump, METH_NOARGS, nullptr},
    {}};

PyObject* tensor_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static PyObject* construct = nullptr;
  if (!construct) {
    Object module = Object::steal(PyImport_ImportModule("flambeau._tensor"));
    if (!module) return nullptr;
    construct = PyObject_GetAttrString(module.get(), "construct");
    if (!construct) return nullptr;
  }
  Object first = Object::steal(PyTuple_Pack(1, reinterpret_cast<PyObject*>(type)));
  Object all = Object::steal(PySequence_Concat(first.get(), args));
  return PyObject_Call(construct, all.get(), kwargs);
}
int tensor_init(PyObject*, PyObject*, PyObject*) {
  return 0;
}

// Wraps a tensor that no Python object stands for yet as one of a subclass.
PyObject* wrap_subclass(PyObject* cls, Tensor view) {
  static PyObject* dispatch_name = PyUnicode_InternFromString("__torch_dispatch__");
  if (PyObject* hook = _PyType_Lookup(reinterpret_cast<PyTypeObject*>(cls), dispatch_name);
      hook && hook != Py_None) {
    Object module = own(PyImport_ImportModule("flambeau._C"));
    Object disabled = own(PyObject_GetAttrString(module.get(), "_disabled_torch_dispatch_impl"));
    if (hook != disabled.get()) view->keys |= Key::Python;
  }
  return wrap_as(reinterpret_cast<PyTypeObject*>(cls), std::move(view));
}

void check_subclass(const char* op, PyObject* cls, PyObject* data) {
  FL_CHECK_KIND(PyType_Check(cls) && PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(cls), tensor_type),
                Type, "[", op, "] expected a subclass of Tensor, got another object");
  FL_CHECK_KIND(is_tensor(data), Type, "[", op, "] expected a Tensor, got ",
                std::string(Py_TYPE(data)->tp_name));
}

PyObject* make_subclass(PyObject*, PyObject* args, PyObject* kwargs) {
  // _make_subclass(cls, data): a fresh object of class cls over the same memory, without history.
  static const char* names[] = {"cls", "data", "require_grad", nullptr};
  PyObject *cls, *data;
  int require_grad = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|p", const_cast<char**>(names), &cls, &data,
                                   &require_grad))
    return nullptr;
  return guarded([&]() -> PyObject* {
    check_subclass("_make_subclass", cls, data);
    const Tensor t = unwrap(data);
    Tensor view = alias(t, t.sizes(), t.strides(), t.offset());
    view->inference = false;
    Object tensor = own(wrap_subclass(cls, view));
    if (require_grad) own(PyObject_CallMethod(tensor.get(), "requires_grad_", "O", Py_True));
    return tensor.release();
  });
}

PyObject* as_subclass(PyObject*, PyObject* args) {
  // _as_subclass(data, cls): a view as an object of class cls; derivatives flow through it.
  PyObject *data, *cls;
  if (!PyArg_ParseTuple(args, "OO", &data, &cls)) return nullptr;
  return guarded([&]() -> PyObject* {
    check_subclass("as_subclass", cls, data);
    static const Operator& op = OperatorTable::get().at("alias");
    Value values[1] = {Value::borrow(impl_of(data))}, results[1];
    op.call(values, results);
    Tensor view = results[0].take_tensor();
    if (view->python) {  // a handler of a subclass made the result
      const Tensor t = view;
      view = alias(t, t.sizes(), t.strides(), t.offset());
    }
    return wrap_subclass(cls, std::move(view));
  });
}

PyObject* set_parameter_type(PyObject*, PyObject* cls) {
  parameter_type = reinterpret_cast<PyTypeObject*>(Py_NewRef(cls));
  Py_RETURN_NONE;
}

PyMethodDef tensor_functions[] = {
    {"_make_subclass", reinterpret_cast<PyCFunction>(make_subclass), METH_VARARGS | METH_KEYWORDS, nullptr},
    {"_as_subclass", as_subclass, METH_VARARGS, nullptr},
    {"_set_parameter_type", set_parameter_type, METH_O, nullptr},
    {}};

}  // namespace

void add_tensor(PyObject* module) {
  release_python_object = release_from_impl;
  make_overridable(tensor_getset);
#define SLOT(s, f) {s, reinterpret_cast<void*>(f)}
  std::vector<PyType_Slot> slots{SLOT(Py_tp_new, tensor_new),           SLOT(Py_tp_init, tensor_init),
                                 SLOT(Py_tp_dealloc, tensor_dealloc),   SLOT(Py_tp_finalize, tensor_finalize),
                                 SLOT(Py_tp_traverse, tensor_traverse), SLOT(Py_tp_clear, tensor_clear),
                                 SLOT(Py_tp_getset, tensor_getset),     SLOT(Py_tp_members, tensor_members),
                                 SLOT(Py_tp_methods, tensor_methods)};
#undef SLOT
  add_number_slots(slots);
  slots.push_back({0, nullptr});
  PyType_Spec spec{"flambeau.Tensor", sizeof(TensorObject), 0,
                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots.data()};
  tensor_type = reinterpret_cast<PyTypeObject*>(check(PyType_FromSpec(&spec)));
  make_overridable(tensor_type, tensor_methods);
  check(PyModule_AddObjectRef(module, "Tensor", reinterpret_cast<PyObject*>(tensor_type)));
  check(PyModule_AddFunctions(module, tensor_functions));
}

}  // namespace fl::py

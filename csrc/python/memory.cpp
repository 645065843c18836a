// Bytes below tensors as files and other processes see them: shared memory, checksums, and plain views of
// memory.
#include "compiled/specialized_function.h"
#include "core/accelerator.h"
#include "core/changes.h"
#include "core/crc32.h"
#include "core/determinism.h"
#include "core/shared_memory.h"
#include "ops/uninitialized.h"
#include "python/common.h"

namespace fl::py {

namespace {

Storage& storage_of(PyObject* o, const char* op) {
  FL_CHECK_KIND(is_tensor(o), Type, "[", op, "] expected a Tensor, got ", std::string(Py_TYPE(o)->tp_name));
  return *impl_of(o)->storage;
}

PyObject* as_bytes(Ref<Storage> storage) {
  Ref<TensorImpl> impl(new TensorImpl);
  const int64_t bytes = static_cast<int64_t>(storage->bytes);
  impl->storage = std::move(storage);
  impl->sizes = Dims(IntSpan(&bytes, 1));
  const int64_t one = 1;
  impl->strides = Dims(IntSpan(&one, 1));
  impl->dtype = DType::UInt8;
  impl->keys = KeySet(Key::CPU);
  impl->refresh();
  return wrap(Tensor(std::move(impl)));
}

PyObject* empty_shared(PyObject*, PyObject* o) {
  return guarded([&]() -> PyObject* {
    const int64_t bytes = int_value(o);
    FL_CHECK(bytes >= 0, "[share_memory_] expected a size that is not negative, got ", bytes);
    return as_bytes(allocate_shared(static_cast<size_t>(bytes)));
  });
}

PyObject* share_storage(PyObject*, PyObject* o) {
  return guarded([&]() -> PyObject* {
    share(storage_of(o, "share_memory_"));
    Py_RETURN_NONE;
  });
}

PyObject* storage_is_shared(PyObject*, PyObject* o) {
  return guarded([&]() -> PyObject* { return PyBool_FromLong(is_shared(storage_of(o, "is_shared"))); });
}

PyObject* storage_descriptor(PyObject*, PyObject* o) {
  return guarded(
      [&]() -> PyObject* { return PyLong_FromLong(shared_descriptor(storage_of(o, "is_shared"))); });
}

// _map_shared(descriptor, bytes, keep_descriptor)
PyObject* map_shared_(PyObject*, PyObject* args) {
  int descriptor, keep;
  long long bytes;
  if (!PyArg_ParseTuple(args, "iLp", &descriptor, &bytes, &keep)) return nullptr;
  return guarded([&]() -> PyObject* {
    FL_CHECK(bytes >= 0, "[shared memory] expected a size that is not negative, got ",
             static_cast<int64_t>(bytes));
    return as_bytes(map_shared(descriptor, static_cast<size_t>(bytes), keep != 0));
  });
}

// _shared_window(mapped, bytes, owner): the first bytes of mapped memory; lets go of `owner` when they go.
PyObject* shared_window_(PyObject*, PyObject* args) {
  PyObject *mapped, *owner;
  long long bytes;
  if (!PyArg_ParseTuple(args, "OLO", &mapped, &bytes, &owner)) return nullptr;
  return guarded([&]() -> PyObject* {
    FL_CHECK_KIND(is_tensor(mapped) && bytes >= 0, Type,
                  "[shared memory] expected a tensor and a size, got other values");
    Py_INCREF(owner);
    return as_bytes(shared_window(impl_of(mapped)->storage, static_cast<size_t>(bytes), [owner] {
      if (!Py_IsInitialized()) return;
      const PyGILState_STATE state = PyGILState_Ensure();
      Py_DECREF(owner);
      PyGILState_Release(state);
    }));
  });
}

// _swap_tensors(a, b): each object gets the tensor of the other; classes and attributes are swapped by the
// caller.
PyObject* swap_tensors(PyObject*, PyObject* args) {
  PyObject *a, *b;
  if (!PyArg_ParseTuple(args, "OO", &a, &b)) return nullptr;
  return guarded([&]() -> PyObject* {
    FL_CHECK_KIND(is_tensor(a) && is_tensor(b), Type,
                  "[swap_tensors] expected two tensors, got other values");
    auto* left = reinterpret_cast<TensorObject*>(a);
    auto* right = reinterpret_cast<TensorObject*>(b);
    compiled::forget_edges();
    count_tensor_change();
    for (TensorObject* one : {left, right})
      FL_CHECK(
          one->impl->use_count() == 1 && !one->impl->owns_python,
          "[swap_tensors] expected tensors that only Python refers to, got one that a graph or a container "
          "of the engine holds too");
    std::swap(left->impl, right->impl);
    left->impl->python = a;
    right->impl->python = b;
    Py_RETURN_NONE;
  });
}

// _storage_memory(tensor): all bytes of the storage as a memoryview, which does not keep the tensor alive.
PyObject* storage_memory(PyObject*, PyObject* o) {
  return guarded([&]() -> PyObject* {
    Storage& s = storage_of(o, "storage");
    s.materialize();
    FL_CHECK(s.device.type == DeviceType::CPU, "[storage] expected memory of the CPU, got ",
             to_string(s.device));
    static char nothing[1];
    return PyMemoryView_FromMemory(s.bytes ? static_cast<char*>(s.data) : nothing,
                                   static_cast<Py_ssize_t>(s.bytes), PyBUF_WRITE);
  });
}

// _fill_uninitialized(bool): whether memory of new tensors is filled.
PyObject* set_fill_uninitialized(PyObject*, PyObject* on) {
  return guarded([&]() -> PyObject* {
    fill_uninitialized = check(PyObject_IsTrue(on)) != 0;
    Py_RETURN_NONE;
  });
}

// _set_determinism(int): 0 not asked for, 1 warn, 2 raise.
PyObject* set_determinism(PyObject*, PyObject* mode) {
  return guarded([&]() -> PyObject* {
    determinism = static_cast<Determinism>(PyLong_AsLong(mode));
    Py_RETURN_NONE;
  });
}
PyObject* alert_if_not_deterministic(PyObject*, PyObject* op) {
  return guarded([&]() -> PyObject* {
    alert_not_deterministic(PyUnicode_AsUTF8(op));
    Py_RETURN_NONE;
  });
}

PyObject* count_unusual_storages(PyObject*, PyObject*) {
  return PyLong_FromLongLong(unusual_storages.load());
}

// Of tensors whose storage is copied on write: addresses without a copy, and whether it is one.
PyObject* storage_address(PyObject*, PyObject* o) {
  return guarded([&]() -> PyObject* { return PyLong_FromVoidPtr(&storage_of(o, "storage")); });
}
PyObject* data_address(PyObject*, PyObject* o) {
  return guarded([&]() -> PyObject* {
    storage_of(o, "storage");
    return PyLong_FromVoidPtr(impl_of(o)->data());
  });
}
PyObject* is_copied_on_write(PyObject*, PyObject* o) {
  return guarded(
      [&]() -> PyObject* { return PyBool_FromLong(bool(storage_of(o, "storage").copy_on_write)); });
}

// _crc32(buffer, start=0), _crc32c(buffer, start=0)
template <uint32_t (*function)(uint32_t, const void*, size_t)>
PyObject* checksum(PyObject*, PyObject* args) {
  Py_buffer buffer;
  unsigned int start = 0;
  if (!PyArg_ParseTuple(args, "y*|I", &buffer, &start)) return nullptr;
  uint32_t crc;
  Py_BEGIN_ALLOW_THREADS;
  crc = function(start, buffer.buf, static_cast<size_t>(buffer.len));
  Py_END_ALLOW_THREADS;
  PyBuffer_Release(&buffer);
  return PyLong_FromUnsignedLong(crc);
}

// _accelerator() -> (number of devices, why there is none)
PyObject* accelerator_state(PyObject*, PyObject*) {
  return guarded([&]() -> PyObject* {
    Accelerator* a = accelerator();
    return Py_BuildValue("(is)", a ? a->device_count() : 0, accelerator_error().c_str());
  });
}

PyObject* pin_memory(PyObject*, PyObject* o) {
  return guarded([&]() -> PyObject* {
    FL_CHECK_KIND(is_tensor(o), Type, "[pin_memory] expected a Tensor, got ",
                  std::string(Py_TYPE(o)->tp_name));
    const Tensor t = unwrap(o);
    FL_CHECK(t.is_cpu(), "[pin_memory] expected a CPU tensor, got one on ", to_string(t.device()));
    Accelerator& a = the_accelerator();
    if (a.is_pinned(t->storage->data)) return Py_NewRef(o);
    Tensor fresh = empty_like(t, t.dtype());
    fresh->storage = a.allocate_pinned(fresh->storage->bytes);
    copy_into(fresh, t);
    return wrap(fresh);
  });
}

PyObject* is_pinned(PyObject*, PyObject* o) {
  return guarded([&]() -> PyObject* {
    FL_CHECK_KIND(is_tensor(o), Type, "[is_pinned] expected a Tensor, got ",
                  std::string(Py_TYPE(o)->tp_name));
    const Tensor t = unwrap(o);
    Accelerator* a = t.is_cpu() ? accelerator() : nullptr;
    return PyBool_FromLong(a && a->is_pinned(t->storage->data));
  });
}

// Kernels that only Python can supply, for the operators that the accelerator's library lacks.
void register_fallback() {
  const PyGILState_STATE state = PyGILState_Ensure();
  PyObject* module = PyImport_ImportModule("flambeau.cuda._device");
  if (module)
    Py_DECREF(module);
  else
    PyErr_WriteUnraisable(nullptr);
  PyGILState_Release(state);
}

PyMethodDef memory_functions[] = {{"_accelerator", accelerator_state, METH_NOARGS, nullptr},
                                  {"_pin_memory", pin_memory, METH_O, nullptr},
                                  {"_is_pinned", is_pinned, METH_O, nullptr},
                                  {"_empty_shared", empty_shared, METH_O, nullptr},
                                  {"_share_storage", share_storage, METH_O, nullptr},
                                  {"_storage_is_shared", storage_is_shared, METH_O, nullptr},
                                  {"_storage_descriptor", storage_descriptor, METH_O, nullptr},
                                  {"_map_shared", map_shared_, METH_VARARGS, nullptr},
                                  {"_shared_window", shared_window_, METH_VARARGS, nullptr},
                                  {"_swap_tensors", swap_tensors, METH_VARARGS, nullptr},
                                  {"_storage_memory", storage_memory, METH_O, nullptr},
                                  {"_fill_uninitialized", set_fill_uninitialized, METH_O, nullptr},
                                  {"_set_determinism", set_determinism, METH_O, nullptr},
                                  {"_alert_not_deterministic", alert_if_not_deterministic, METH_O, nullptr},
                                  {"_unusual_storages", count_unusual_storages, METH_NOARGS, nullptr},
                                  {"_storage_address", storage_address, METH_O, nullptr},
                                  {"_data_address", data_address, METH_O, nullptr},
                                  {"_is_cow_tensor", is_copied_on_write, METH_O, nullptr},
                                  {"_crc32", checksum<crc32>, METH_VARARGS, nullptr},
                                  {"_crc32c", checksum<crc32c>, METH_VARARGS, nullptr},
                                  {}};

}  // namespace

void add_memory(PyObject* module) {
  on_accelerator = register_fallback;
  check(PyModule_AddFunctions(module, memory_functions));
}

}  // namespace fl::py

// Memory of devices registered from outside: what Python's functions hand out, kept in a pool if wanted, and
// how much of it is in use.
#include "python/common.h"
// Python.h must come first.

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>

#include "core/allocator.h"
#include "core/block_pool.h"
#include "python/library.h"
#include "python/parse.h"

namespace fl::py {
namespace {

// Bytes and blocks that are in use now, and the most bytes that were.
struct Usage {
  std::atomic<int64_t> bytes{0}, most{0}, blocks{0}, blocks_ever{0}, bytes_ever{0};

  void add(size_t size) {
    const int64_t now = bytes.fetch_add(static_cast<int64_t>(size)) + static_cast<int64_t>(size);
    for (int64_t before = most; before < now && !most.compare_exchange_weak(before, now);) {
    }
    blocks.fetch_add(1);
    blocks_ever.fetch_add(1);
    bytes_ever.fetch_add(static_cast<int64_t>(size));
  }
  void remove(size_t size) {
    bytes.fetch_sub(static_cast<int64_t>(size));
    blocks.fetch_sub(1);
  }
};

struct DeviceMemory {
  Usage allocated, reserved;  // by tensors; from the device, with what a pool keeps
  std::shared_ptr<BlockPool> pool;
};

std::map<DeviceType, DeviceMemory*>& memories() {
  static auto* all = new std::map<DeviceType, DeviceMemory*>;
  return *all;
}

DeviceAllocator counted(DeviceAllocator allocator, Usage& usage) {
  return {[allocator, &usage](size_t bytes) {
            void* block = allocator.allocate(bytes);
            usage.add(bytes);
            return block;
          },
          [allocator, &usage](void* block, size_t bytes) {
            usage.remove(bytes);
            allocator.free(block, bytes);
          }};
}

// Python callables hand out addresses.
DeviceAllocator python_allocator(PyObject* allocate_function, PyObject* free_function) {
  PyObject *const allocate = Py_NewRef(allocate_function), *const free = Py_NewRef(free_function);
  return {[allocate](size_t bytes) -> void* {
            WithGIL gil;
            Object address = own(PyObject_CallFunction(allocate, "n", static_cast<Py_ssize_t>(bytes)));
            void* block = PyLong_AsVoidPtr(address.get());
            if (!block && PyErr_Occurred()) throw PythonError();
            return block;
          },
          [free](void* block, size_t bytes) {
            if (!Py_IsInitialized()) return;
            WithGIL gil;
            PyObject *kind, *value, *trace;  // freeing must not disturb an error on its way
            PyErr_Fetch(&kind, &value, &trace);
            Object done = Object::steal(
                PyObject_CallFunction(free, "Nn", PyLong_FromVoidPtr(block), static_cast<Py_ssize_t>(bytes)));
            if (!done) PyErr_WriteUnraisable(free);
            PyErr_Restore(kind, value, trace);
          }};
}

DeviceMemory* memory_of(PyObject* name) {
  const auto at = memories().find(parse_device(PyUnicode_AsUTF8(name)).type);
  return at == memories().end() ? nullptr : at->second;
}

PyObject* empty_pool(PyObject*, PyObject* name) {
  // _empty_pool(name): blocks of a pooled device that nobody uses are freed.
  return guarded([&]() -> PyObject* {
    DeviceMemory* memory = memory_of(name);
    if (memory && memory->pool) memory->pool->empty();
    Py_RETURN_NONE;
  });
}

PyObject* usage_object(const Usage& u) {
  return Py_BuildValue("(LLLLL)", static_cast<long long>(u.bytes), static_cast<long long>(u.most),
                       static_cast<long long>(u.blocks), static_cast<long long>(u.bytes_ever),
                       static_cast<long long>(u.blocks_ever));
}

PyObject* device_memory(PyObject*, PyObject* name) {
  // _device_memory(name) -> of tensors, then of the device: (bytes, most bytes, blocks, bytes and blocks
  // ever).
  return guarded([&]() -> PyObject* {
    static const Usage nothing;
    const DeviceMemory* memory = memory_of(name);
    return Py_BuildValue("(NN)", usage_object(memory ? memory->allocated : nothing),
                         usage_object(memory ? memory->reserved : nothing));
  });
}

PyObject* reset_device_memory(PyObject*, PyObject* args) {
  // _reset_device_memory(name, peak): the most bytes, or what there was ever, count from now on.
  PyObject* name;
  int peak;
  if (!PyArg_ParseTuple(args, "Up", &name, &peak)) return nullptr;
  return guarded([&]() -> PyObject* {
    DeviceMemory* memory = memory_of(name);
    if (!memory) Py_RETURN_NONE;
    for (Usage* usage : {&memory->allocated, &memory->reserved}) {
      if (peak)
        usage->most = usage->bytes.load();
      else
        usage->bytes_ever = usage->blocks_ever = 0;
    }
    Py_RETURN_NONE;
  });
}

PyMethodDef memory_functions[] = {{"_empty_pool", empty_pool, METH_O, nullptr},
                                  {"_device_memory", device_memory, METH_O, nullptr},
                                  {"_reset_device_memory", reset_device_memory, METH_VARARGS, nullptr},
                                  {}};

}  // namespace

void set_device_memory(DeviceType type, PyObject* allocate, PyObject* free, bool pooled) {
  DeviceMemory*& memory = memories()[type];
  if (!memory) memory = new DeviceMemory;
  const bool own_memory = allocate != Py_None;
  DeviceAllocator allocator =
      own_memory ? python_allocator(allocate, free) : DeviceAllocator{cpu_allocate, cpu_free};
  allocator = counted(std::move(allocator), memory->reserved);
  if (own_memory && pooled) {
    const auto pool = memory->pool = std::make_shared<BlockPool>(std::move(allocator));
    allocator = {[pool](size_t bytes) {
                   try {
                     return pool->allocate(bytes);
                   } catch (const PythonError&) {  // full: what the pool keeps may be enough
                     const WithGIL gil;
                     PyErr_Clear();
                   }
                   pool->empty();
                   return pool->allocate(bytes);
                 },
                 [pool](void* block, size_t bytes) { pool->free(block, bytes); }};
  }
  set_device_allocator(type, counted(std::move(allocator), memory->allocated));
}

void add_device_memory(PyObject* module) {
  check(PyModule_AddFunctions(module, memory_functions));
}

}  // namespace fl::py

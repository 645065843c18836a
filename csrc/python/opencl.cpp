// Launches of OpenCL kernels, by operators and by native programs. The driver's entry points come as
// addresses, so that nothing here needs its headers or its library.
#include "python/common.h"
// Python.h must come first.

#include <cstring>
#include <mutex>
#include <vector>

#include "python/native_launch.h"

namespace fl::py {
namespace {

// Entry points of the driver.
using SetPointer = int (*)(void* kernel, unsigned index, const void* pointer);
using SetArgument = int (*)(void* kernel, unsigned index, size_t size, const void* value);
using Enqueue = int (*)(void* queue, void* kernel, unsigned dimensions, const size_t* offset,
                        const size_t* global, const size_t* local, unsigned waits, const void* events,
                        void* event);

constexpr const char* kKernel = "flambeau.opencl.kernel";
constexpr const char* kFailed = "[opencl] expected the driver to take a kernel, got an error";

// A kernel object. It takes pointers, 64-bit integers, real numbers, and the number of work items.
struct Kernel {
  SetPointer set_pointer;
  SetArgument set_argument;
  Enqueue enqueue;
  void *queue, *kernel;
  size_t group;  // work items that run together
  bool single;   // real numbers have single precision
  Object owner;  // keeps the kernel
  std::mutex mutex;
  std::vector<int64_t> set;  // the bits of the arguments that were set last

  // Notes that an argument gets a value; says whether it had another.
  bool changes(size_t index, int64_t bits) {
    if (set[index] == bits) return false;
    set[index] = bits;
    return true;
  }
  void expect(size_t arguments) {
    if (set.size() != arguments) set.assign(arguments, INT64_MIN + 1);  // a value that nobody passes
  }
  bool pointer(size_t index, void* value) {
    return !changes(index, reinterpret_cast<int64_t>(value)) ||
           set_pointer(kernel, static_cast<unsigned>(index), value) == 0;
  }
  bool integer(size_t index, int64_t value) {
    return !changes(index, value) ||
           set_argument(kernel, static_cast<unsigned>(index), sizeof value, &value) == 0;
  }
  bool real(size_t index, double value) {
    int64_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    if (!changes(index, bits)) return true;
    const float narrow = static_cast<float>(value);
    return single ? set_argument(kernel, static_cast<unsigned>(index), sizeof narrow, &narrow) == 0
                  : set_argument(kernel, static_cast<unsigned>(index), sizeof value, &value) == 0;
  }
  bool launch(int64_t items) {
    const size_t global = (static_cast<size_t>(items) + group - 1) / group * group;
    return enqueue(queue, kernel, 1, nullptr, &global, &group, 0, nullptr, nullptr) == 0;
  }
};

Kernel& kernel_of(PyObject* capsule) {
  void* kernel = PyCapsule_GetPointer(capsule, kKernel);
  if (!kernel) throw PythonError();
  return *static_cast<Kernel*>(kernel);
}

// A launch of which everything but the addresses is known.
struct BoundLaunch {
  NativeLaunch launch;
  Object owner;  // keeps the kernel, which is no other launch's
  Kernel* kernel;
  int64_t items;
  int64_t* count;  // of launches on the device
};

const char* run_bound(void* context, void* const* pointers, size_t count) {
  auto& bound = *static_cast<BoundLaunch*>(context);
  Kernel& kernel = *bound.kernel;
  const std::lock_guard<std::mutex> held(kernel.mutex);
  for (size_t i = 0; i < count; ++i)
    if (!kernel.pointer(i, pointers[i])) return kFailed;
  ++*bound.count;
  return kernel.launch(bound.items) ? nullptr : kFailed;
}

PyObject* opencl_kernel(PyObject*, PyObject* args) {
  // _opencl_kernel((clSetKernelArgSVMPointer, clSetKernelArg, clEnqueueNDRangeKernel), queue, kernel, owner,
  // group, single) -> a kernel that can be launched. Handles and functions are addresses.
  unsigned long long set_pointer, set_argument, enqueue, queue, kernel;
  PyObject* owner;
  Py_ssize_t group;
  int single;
  if (!PyArg_ParseTuple(args, "(KKK)KKOnp", &set_pointer, &set_argument, &enqueue, &queue, &kernel, &owner,
                        &group, &single))
    return nullptr;
  return guarded([&]() -> PyObject* {
    auto* bound_kernel = new Kernel{reinterpret_cast<SetPointer>(set_pointer),
                                    reinterpret_cast<SetArgument>(set_argument),
                                    reinterpret_cast<Enqueue>(enqueue),
                                    reinterpret_cast<void*>(queue),
                                    reinterpret_cast<void*>(kernel),
                                    static_cast<size_t>(group),
                                    single != 0,
                                    Object::borrow(owner),
                                    {},
                                    {}};
    return check(PyCapsule_New(bound_kernel, kKernel, [](PyObject* capsule) { delete &kernel_of(capsule); }));
  });
}

PyObject* opencl_run(PyObject*, PyObject* args) {
  // _opencl_run(kernel, pointers, integers, reals, items): queues a kernel.
  PyObject *capsule, *pointers, *integers, *reals;
  Py_ssize_t items;
  if (!PyArg_ParseTuple(args, "OOOOn", &capsule, &pointers, &integers, &reals, &items)) return nullptr;
  return guarded([&]() -> PyObject* {
    Kernel& kernel = kernel_of(capsule);
    const Object lists[] = {own(PySequence_Fast(pointers, "[opencl] expected a list of addresses")),
                            own(PySequence_Fast(integers, "[opencl] expected a list of integers")),
                            own(PySequence_Fast(reals, "[opencl] expected a list of numbers"))};
    const auto size = [&](int k) { return static_cast<size_t>(PySequence_Fast_GET_SIZE(lists[k].get())); };
    const auto at = [&](int k, size_t i) {
      return PySequence_Fast_GET_ITEM(lists[k].get(), static_cast<Py_ssize_t>(i));
    };
    const std::lock_guard<std::mutex> held(kernel.mutex);
    kernel.expect(size(0) + size(1) + size(2) + 1);
    size_t n = 0;
    bool fine = true;
    for (size_t i = 0; i < size(0); ++i) fine &= kernel.pointer(n++, PyLong_AsVoidPtr(at(0, i)));
    for (size_t i = 0; i < size(1); ++i) fine &= kernel.integer(n++, PyLong_AsLongLong(at(1, i)));
    for (size_t i = 0; i < size(2); ++i) fine &= kernel.real(n++, PyFloat_AsDouble(at(2, i)));
    if (PyErr_Occurred()) throw PythonError();
    fine = fine && kernel.integer(n, items) && kernel.launch(items);
    FL_CHECK(fine, kFailed);
    Py_RETURN_NONE;
  });
}

PyObject* opencl_bound(PyObject*, PyObject* args) {
  // _opencl_bound(kernel, pointers, integers, items, count) -> a capsule for a step of a program, for a
  // kernel with so many pointers that nobody else launches.
  PyObject *capsule, *integers;
  Py_ssize_t pointers, items;
  unsigned long long count;
  if (!PyArg_ParseTuple(args, "OnOnK", &capsule, &pointers, &integers, &items, &count)) return nullptr;
  return guarded([&]() -> PyObject* {
    Kernel& kernel = kernel_of(capsule);
    const Object list = own(PySequence_Fast(integers, "[opencl] expected a list of integers"));
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(list.get());
    kernel.expect(static_cast<size_t>(pointers + n + 1));
    bool fine = true;
    for (Py_ssize_t i = 0; i < n; ++i)
      fine &= kernel.integer(static_cast<size_t>(pointers + i),
                             PyLong_AsLongLong(PySequence_Fast_GET_ITEM(list.get(), i)));
    if (PyErr_Occurred()) throw PythonError();
    fine &= kernel.integer(static_cast<size_t>(pointers + n), items);
    FL_CHECK(fine, kFailed);
    auto* bound =
        new BoundLaunch{{}, Object::borrow(capsule), &kernel, items, reinterpret_cast<int64_t*>(count)};
    bound->launch = {run_bound, bound};
    return check(PyCapsule_New(&bound->launch, kNativeLaunch, [](PyObject* launch_capsule) {
      auto* launch = static_cast<NativeLaunch*>(PyCapsule_GetPointer(launch_capsule, kNativeLaunch));
      delete static_cast<BoundLaunch*>(launch->context);
    }));
  });
}

PyMethodDef opencl_functions[] = {{"_opencl_kernel", opencl_kernel, METH_VARARGS, nullptr},
                                  {"_opencl_run", opencl_run, METH_VARARGS, nullptr},
                                  {"_opencl_bound", opencl_bound, METH_VARARGS, nullptr},
                                  {}};

}  // namespace

void add_opencl(PyObject* module) {
  check(PyModule_AddFunctions(module, opencl_functions));
}

}  // namespace fl::py

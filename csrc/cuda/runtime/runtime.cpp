// Devices, streams and errors of the calling thread, and the accelerator that libflambeau sees.
#include "cuda/runtime/runtime.h"

#include <dlfcn.h>

#include <cstdlib>
#include <mutex>

#include "cuda/engine/kernels.h"
#include "cuda/linalg/solver.h"
#include "cuda/runtime/driver.h"
#include "cuda/runtime/launch.h"

namespace fl::cuda {

namespace {

struct ThreadDevice {
  int device = 0;
  cudaStream_t streams[kMaxDevices] = {};
};
thread_local ThreadDevice here;

class Cuda final : public Accelerator {
 public:
  int device_count() override {
    static const int count = [] {
      int n = 0;
      if (cudaGetDeviceCount(&n) != cudaSuccess) {
        cudaGetLastError();
        return 0;
      }
      return n < kMaxDevices ? n : kMaxDevices;
    }();
    return count;
  }
  int current_device() override { return cuda::current_device(); }

  void* allocate(size_t bytes, Device device) override {
    FL_CHECK(device.index < device_count(), "[empty] CUDA error: invalid device ordinal; expected one of ",
             device_count(), " devices, got ", to_string(device));
    if (bytes == 0) return nullptr;
    return cuda::allocate(bytes, device.index, current_stream(device.index));
  }
  void free(void* block, Device device) override { cuda::free(block, device.index); }

  Ref<Storage> allocate_pinned(size_t bytes) override {
    void* data = nullptr;
    check(cudaHostAlloc(&data, bytes ? bytes : 1, cudaHostAllocPortable), "pin_memory");
    return Storage::adopt(data, bytes, Device{}, [](void* p) { cudaFreeHost(p); });
  }
  bool is_pinned(const void* address) override {
    cudaPointerAttributes attributes{};
    if (cudaPointerGetAttributes(&attributes, address) != cudaSuccess) {
      cudaGetLastError();
      return false;
    }
    return attributes.type == cudaMemoryTypeHost;
  }

  void copy(const Tensor& dst, const Tensor& src, bool non_blocking) override {
    cuda::copy(dst, src, non_blocking);
  }
  void fill(const Tensor& t, const void* pattern) override { cuda::fill(t, pattern); }

  void fill_range(const Tensor& t, const Scalar& start, const Scalar& step) override {
    cuda::fill_range(t, start, step);
  }

  void* stream(Device device) override {
    return current_stream(device.index < 0 ? cuda::current_device() : device.index);
  }
  void synchronize(Device device) override {
    OnDevice on(device.index < 0 ? cuda::current_device() : device.index);
    check(cudaDeviceSynchronize(), "synchronize");
    check_indices();
  }

  void* load(const void* image, const char* function, int shared) override {
    check(cudaFree(nullptr), "load");  // makes the context
    const Driver& driver = cuda::driver();
    CUmodule module;
    CUfunction loaded;
    driver.check(driver.module_load(&module, image), "load");
    driver.check(driver.module_function(&loaded, module, function), "load");
    if (shared > 48 * 1024)
      driver.check(driver.function_set(loaded, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared),
                   "load");
    return loaded;
  }
  void launch(void* function, const unsigned* grid, const unsigned* block, unsigned shared, void* stream,
              void** params, const void* bytes, size_t size, bool waits) override {
    launch_loaded(function, {{grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]}, shared, waits},
                  static_cast<cudaStream_t>(stream), {params, bytes, size});
  }

  int* failure_flag() override { return cuda::failure_flag(); }

  void random_state(const Tensor& to, uint64_t seed, uint64_t offset) override {
    cuda::random_state(to, seed, offset);
  }
};

}  // namespace

bool launch_blocking() {
  static const bool on = [] {
    const char* value = std::getenv("CUDA_LAUNCH_BLOCKING");
    return value && value[0] && value[0] != '0';
  }();
  return on;
}

extern "C" __attribute__((visibility("default"))) void flcuda_open() {
  static Cuda cuda;
  if (cuda.device_count() == 0) return;
  set_accelerator(&cuda);
  attach_generated_kernels();
}

const Driver& driver() {
  static const Driver driver = [] {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    FL_CHECK(library != nullptr, "[cuda] expected the CUDA driver, got none");
    bool all = true;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
      all = all && function != nullptr;
    };
    Driver d;
    find(d.module_load, "cuModuleLoadData");
    find(d.module_function, "cuModuleGetFunction");
    find(d.function_set, "cuFuncSetAttribute");
    find(d.launch, "cuLaunchKernel");
    find(d.error_string, "cuGetErrorString");
    find(d.graph_create, "cuGraphCreate");
    find(d.graph_add_kernel, "cuGraphAddKernelNode_v2");
    find(d.graph_instantiate, "cuGraphInstantiateWithFlags");
    find(d.graph_set_kernel, "cuGraphExecKernelNodeSetParams_v2");
    find(d.graph_launch, "cuGraphLaunch");
    find(d.graph_destroy, "cuGraphDestroy");
    find(d.executable_destroy, "cuGraphExecDestroy");
    d.graphs = all;
    all = true;
    find(d.launch_with, "cuLaunchKernelEx");
    find(d.capture_info, "cuStreamGetCaptureInfo_v3");
    find(d.node_type, "cuGraphNodeGetType");
    d.early = all;
    find(d.tensor_map, "cuTensorMapEncodeTiled");
    return d;
  }();
  return driver;
}

void Driver::raise(CUresult status, const char* what) const {
  const char* text = nullptr;
  error_string(status, &text);
  fail("[", what, "] CUDA error: ", text ? text : "unknown");
}

void raise(cudaError_t status, const char* what) {
  cudaGetLastError();
  if (status == cudaErrorMemoryAllocation)
    fail(ErrorKind::OutOfMemory, "CUDA out of memory. [", what, "] the driver has no memory left");
  fail("[", what, "] CUDA error: ", cudaGetErrorString(status),
       launch_blocking() ? ""
                         : "; kernels run asynchronously, so an earlier call may be at fault: "
                           "CUDA_LAUNCH_BLOCKING=1 makes each call wait for its kernel");
}

void check_launch(const char* what) {
  check(cudaPeekAtLastError(), what);
  launched(what);
}

void launched(const char* what) {
  if (__builtin_expect(launch_blocking(), 0)) {
    cudaStreamCaptureStatus status;
    if (cudaStreamIsCapturing(current_stream(), &status) == cudaSuccess &&
        status == cudaStreamCaptureStatusNone) {
      check(cudaDeviceSynchronize(), what);
      check_indices();
    }
  }
}

int current_device() {
  return here.device;
}
void set_current_device(int index) {
  if (index == here.device) return;
  check(cudaSetDevice(index), "set_device");
  here.device = index;
}
OnDevice::OnDevice(int index) : before_(here.device) {
  set_current_device(index);
}
OnDevice::~OnDevice() {
  if (before_ != here.device) {
    cudaSetDevice(before_);
    here.device = before_;
  }
}
cudaStream_t current_stream(int device) {
  return here.streams[device];
}
void set_current_stream(int device, cudaStream_t stream) {
  here.streams[device] = stream;
}

const cudaDeviceProp& properties(int device) {
  static cudaDeviceProp all[kMaxDevices];
  static std::once_flag known[kMaxDevices];
  std::call_once(known[device], [&] { check(cudaGetDeviceProperties(&all[device], device), "properties"); });
  return all[device];
}

}  // namespace fl::cuda

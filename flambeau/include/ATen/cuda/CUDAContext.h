// The stream and the device that an extension's kernels run on.
#pragma once
#include <c10/cuda/CUDAException.h>

namespace c10::cuda {

class CUDAStream {
 public:
  explicit CUDAStream(cudaStream_t stream) : stream_(stream) {}
  operator cudaStream_t() const { return stream_; }
  cudaStream_t stream() const { return stream_; }

 private:
  cudaStream_t stream_;
};
inline CUDAStream getCurrentCUDAStream(int device = -1) {
  const py::object cuda = library().attr("cuda");
  const py::object stream = device < 0 ? cuda.attr("current_stream")() : cuda.attr("current_stream")(device);
  return CUDAStream(reinterpret_cast<cudaStream_t>(stream.attr("cuda_stream").cast<uintptr_t>()));
}

// Makes a device current for the calls of a scope.
class CUDAGuard {
 public:
  explicit CUDAGuard(int device) : before_(library().attr("cuda").attr("current_device")().cast<int>()) {
    set(device);
  }
  explicit CUDAGuard(const Device& device) : CUDAGuard(device.has_index() ? device.index() : 0) {}
  ~CUDAGuard() { set(before_); }
  CUDAGuard(const CUDAGuard&) = delete;

 private:
  static void set(int device) {
    library().attr("cuda").attr("set_device")(device);
    cudaSetDevice(device);
  }
  int before_;
};
using OptionalCUDAGuard = CUDAGuard;

}  // namespace c10::cuda

namespace at::cuda {
using namespace c10::cuda;
using OptionalCUDAGuard = c10::cuda::CUDAGuard;
}  // namespace at::cuda

namespace at {
inline Device device_of(const Tensor& t) {
  return t.device();
}
}  // namespace at

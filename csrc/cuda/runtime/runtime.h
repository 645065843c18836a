// What the CUDA library shares: checked runtime calls, the device and stream of the thread, and its memory.
// The runtime is linked statically and opens the driver itself; nothing here is linked against it.
#pragma once

#include <cuda_runtime_api.h>

#include "core/accelerator.h"

namespace fl::cuda {

constexpr int kMaxDevices = 16;

[[noreturn]] void raise(cudaError_t status, const char* what);
inline void check(cudaError_t status, const char* what) {
  if (__builtin_expect(status != cudaSuccess, 0)) raise(status, what);
}
// Whether CUDA_LAUNCH_BLOCKING makes each call wait for its kernel.
bool launch_blocking();
// After a launch: errors of the launch itself, and with CUDA_LAUNCH_BLOCKING=1 those of the kernel too.
void check_launch(const char* what);
// The same where the launch itself has been checked.
void launched(const char* what);

// Makes a device current for the calls of a scope.
class OnDevice {
 public:
  explicit OnDevice(int index);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;

 private:
  int before_;
};

int current_device();
void set_current_device(int index);
cudaStream_t current_stream(int device);
void set_current_stream(int device, cudaStream_t stream);
inline cudaStream_t current_stream() {
  return current_stream(current_device());
}
const cudaDeviceProp& properties(int device);

// Whether words of 16 bytes can be read there.
inline bool is_aligned(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

// ---------------------------------------------------------------- memory

struct Statistic {
  int64_t current = 0, peak = 0, total = 0, freed = 0;
  void add(int64_t n) {
    current += n;
    total += n;
    if (current > peak) peak = current;
  }
  void remove(int64_t n) {
    current -= n;
    freed += n;
  }
};
struct DeviceStatistics {
  Statistic allocated, reserved, active, requested;  // bytes
  Statistic allocations, segments;                   // counts
  int64_t retries = 0, out_of_memory = 0;
};

void* allocate(size_t bytes, int device, cudaStream_t stream);
void free(void* block, int device);
void record_stream(void* block, int device, cudaStream_t stream);
void empty_cache();
DeviceStatistics statistics(int device);
void reset_peak(int device);
// One line for each block: segment address, segment size, stream, block address, size, state.
std::string snapshot(int device);
// Allocations on `stream` come from a private pool until the capture ends; blocks of the pool are returned to
// it for ever after, and freed when it is released.
void begin_pool(int device, cudaStream_t stream, uint64_t pool);
void end_pool(int device, cudaStream_t stream);
void release_pool(int device, uint64_t pool);
bool capturing(int device);
bool capturing();  // on any device
void set_memory_limit(int device, int64_t bytes);

// Scratch memory for one call.
class Scratch {
 public:
  Scratch(size_t bytes, int device, cudaStream_t stream)
      : data_(bytes ? allocate(bytes, device, stream) : nullptr), device_(device) {}
  ~Scratch() {
    if (data_) cuda::free(data_, device_);
  }
  Scratch(const Scratch&) = delete;
  void* get() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_;
  int device_;
};

}  // namespace fl::cuda

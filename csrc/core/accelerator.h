// What libflambeau asks of an accelerator's library (libflambeau_cuda) below the operators: memory, copies,
// streams and launches. Kernels are attached to device functions (core/device_function.h). The library is
// opened when a CUDA device is first named and the machine has a driver.
#pragma once

#include "core/tensor.h"

namespace fl {

class Accelerator {
 public:
  virtual ~Accelerator() = default;

  virtual int device_count() = 0;
  virtual int current_device() = 0;

  // Device memory, ordered with the current stream.
  virtual void* allocate(size_t bytes, Device device) = 0;
  virtual void free(void* block, Device device) = 0;
  // Host memory that the device reads and writes directly.
  virtual Ref<Storage> allocate_pinned(size_t bytes) = 0;
  virtual bool is_pinned(const void* address) = 0;

  // Copies with conversion and broadcasting; at least one side is on the device. What the host reads or may
  // change next is waited for, unless `non_blocking` and the host's memory is pinned.
  virtual void copy(const Tensor& dst, const Tensor& src, bool non_blocking) = 0;
  // One bit pattern of the tensor's item size, everywhere.
  virtual void fill(const Tensor& t, const void* pattern) = 0;

  // start + i * step in a contiguous tensor of a real dtype.
  virtual void fill_range(const Tensor& t, const Scalar& start, const Scalar& step) = 0;

  // The stream (a CUstream) on which work of this thread goes.
  virtual void* stream(Device device) = 0;
  virtual void synchronize(Device device) = 0;

  // A function of a compiled module (cubin or PTX image), kept for ever; `shared` is the most dynamic shared
  // memory that launches will ask for.
  virtual void* load(const void* image, const char* function, int shared) = 0;
  // `bytes` are the values that `params` point to, by which a repeated launch is known. A kernel that `waits`
  // for the one before it itself may be started while that one ends.
  virtual void launch(void* function, const unsigned* grid, const unsigned* block, unsigned shared,
                      void* stream, void** params, const void* bytes, size_t size, bool waits) = 0;

  // Where kernels say that an index does not exist; what waits for the device raises then.
  virtual int* failure_flag() = 0;

  // Seed and offset of a stream of random numbers, in a tensor of two integers.
  virtual void random_state(const Tensor& to, uint64_t seed, uint64_t offset) = 0;
};

// The accelerator of this machine, opened at the first call; null when there is none.
Accelerator* accelerator();
// Raises when there is none.
Accelerator& the_accelerator();
// Why there is none.
const std::string& accelerator_error();
// Called by the library's `flcuda_open`.
void set_accelerator(Accelerator* a);
// Called once after an accelerator was opened; set by the binding.
extern void (*on_accelerator)();

// "cuda" without an index is the current device. The first device of a kind from outside has no index,
// however it was named.
inline Device canonical(Device d) {
  if (d.index == 0 && d.type > DeviceType::CUDA) d.index = -1;
  if (__builtin_expect(d.type == DeviceType::CUDA && d.index < 0, 0))
    if (Accelerator* a = accelerator()) d.index = static_cast<int8_t>(a->current_device());
  return d;
}

}  // namespace fl

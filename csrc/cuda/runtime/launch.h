// Launching kernels in little time of the host's.
//
// The driver needs half as long for a graph of one kernel as for a launch (beside an H200: 1.8 us
// against 4.0; 2.4 with other parameters than the last time), and the device no longer. So a kernel that a
// thread launches again is a graph from then on. While a stream is captured, on another stream than the
// kernel's own and with CUDA_LAUNCH_BLOCKING=1, kernels are launched as such.
//
// A captured kernel that waits itself (programmatic dependent launch, from capability 9.0 on) overlaps its
// start with the end of the kernel before it, which hides most of the microsecond between two kernels.
#pragma once

#include <atomic>
#include <tuple>

#include "cuda/runtime/runtime.h"

namespace fl::cuda {

struct Shape {
  unsigned grid[3], block[3], shared;
  unsigned waits =
      0;  // the kernel itself waits for the one before it, so that its blocks may be started earlier
};

// `bytes` are the values of all parameters: it is by them that a repeated launch is known.
struct Parameters {
  void** list;
  const void* bytes;
  size_t size;
};

// A kernel of this library, by its address on the host, or one of a loaded module.
void launch_kernel(const void* kernel, const Shape& shape, cudaStream_t stream, Parameters arguments,
                   const char* what);
void launch_loaded(void* function, const Shape& shape, cudaStream_t stream, Parameters arguments);

template <class... P, class... A>
void launch_shaped(void (*kernel)(P...), const Shape& shape, cudaStream_t stream, const char* what,
                   const A&... arguments) {
  std::tuple<std::decay_t<P>...> values(arguments...);
  std::apply(
      [&](auto&... value) {
        void* list[] = {&value...};
        launch_kernel(reinterpret_cast<const void*>(kernel), shape, stream, {list, &values, sizeof values},
                      what);
      },
      values);
}

template <class... P, class... A>
void launch_shared(void (*kernel)(P...), dim3 grid, dim3 block, unsigned shared, cudaStream_t stream,
                   const char* what, const A&... arguments) {
  launch_shaped(kernel, {{grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared}, stream, what,
                arguments...);
}

// A kernel that begins with wait_for_kernel_before().
template <class... P, class... A>
void launch_early(void (*kernel)(P...), dim3 grid, dim3 block, cudaStream_t stream, const char* what,
                  const A&... arguments) {
  launch_shaped(kernel, {{grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, 0, 1}, stream, what,
                arguments...);
}

template <class... P, class... A>
void launch(void (*kernel)(P...), dim3 grid, dim3 block, cudaStream_t stream, const char* what,
            const A&... arguments) {
  launch_shared(kernel, grid, block, 0, stream, what, arguments...);
}

// A kernel that has its own size of shared memory; more than 48 KiB a device gives on request only.
template <auto kernel, class... A>
void launch_with(dim3 grid, dim3 block, unsigned shared, cudaStream_t stream, const char* what,
                 const A&... arguments) {
  static std::atomic<bool> allowed[kMaxDevices];
  std::atomic<bool>& here = allowed[current_device()];
  if (!here) {
    check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                               cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)),
          what);
    here = true;
  }
  launch_shared(kernel, grid, block, shared, stream, what, arguments...);
}

}  // namespace fl::cuda

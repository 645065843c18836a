// Launches that run at once.
#pragma once

#include "cuda/runtime/runtime.h"

namespace fl::cuda {

template <auto kernel, class... A>
void launch_with(dim3 grid, dim3 block, unsigned shared, cudaStream_t, const char*, const A&... given) {
  emulated::run(grid, block.x, shared, [&] { kernel(given...); });
}

template <class... P, class... A>
void launch_shared(void (*kernel)(P...), dim3 grid, dim3 block, unsigned shared, cudaStream_t, const char*,
                   const A&... given) {
  emulated::run(grid, block.x, shared, [&] { kernel(given...); });
}

}  // namespace fl::cuda

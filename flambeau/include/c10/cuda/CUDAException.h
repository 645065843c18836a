// Errors of the CUDA runtime in extensions.
#pragma once
#include <cuda_runtime.h>
#include <torch/tensor.h>

#define C10_CUDA_CHECK(call)                                                              \
  do {                                                                                    \
    const cudaError_t fl_status = (call);                                                 \
    TORCH_CHECK(fl_status == cudaSuccess, "CUDA error: ", cudaGetErrorString(fl_status)); \
  } while (false)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
#define AT_CUDA_CHECK(call) C10_CUDA_CHECK(call)

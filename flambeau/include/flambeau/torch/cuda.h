// What there is of CUDA: torch::cuda.
#pragma once

#include <flambeau/torch/functions.h>

namespace torch {

namespace cuda {
inline int64_t device_count() {
  return fl_cuda_devices();
}
inline bool is_available() {
  return device_count() > 0;
}
inline bool cudnn_is_available() {
  return is_available();
}
inline void manual_seed(uint64_t seed) {
  fl_manual_seed(seed);
}
inline void manual_seed_all(uint64_t seed) {
  fl_manual_seed(seed);
}
// Waits for all that was begun on a device, the current one without an index.
inline void synchronize(int64_t device_index = -1) {
  const at::Tensor one =
      at::zeros({1}, TensorOptions(Device(DeviceType::CUDA, static_cast<int>(device_index))));
  one.item<float>();  // comes after the rest
}
}  // namespace cuda
inline bool hasCUDA() {
  return cuda::is_available();
}
}  // namespace torch

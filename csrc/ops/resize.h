// What interpolation asks of a device: every mode is a weighted sum of a few input elements along each axis,
// so one implementation serves nearest, linear, cubic and antialiased filters in one to three dimensions.
#pragma once

#include <cstdint>
#include <vector>

#include "core/device_function.h"
#include "core/dtype.h"
#include "math/resize_taps.h"

namespace fl {

// Output element o is the sum over t < taps of weight[t * out + o] * input[index[t * out + o]].
struct ResizeAxis : ResizeRule {
  std::vector<int32_t> index;
  std::vector<double> weight;
};

struct ResizeArgs {
  DType dtype = DType::Float;  // Float, Double, Half, BFloat16 or UInt8; the gradient's: Float or Double
  int64_t batch = 0, channels = 0;
  const ResizeAxis* axes = nullptr;  // three: depth, height, width
  const void* input = nullptr;
  void* output = nullptr;
  bool channels_last = false;
  int device = -1;  // index of the accelerator's device that holds input and output; it makes the taps itself
};

namespace device {
// Backward: `input` is the gradient that arrives, of the axes' out sizes; `output` the gradient of the in
// sizes.
extern DeviceFunction<void(const ResizeArgs& args, bool backward)> resize;
}  // namespace device

}  // namespace fl

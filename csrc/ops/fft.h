// What Fourier transforms ask of a device.
#pragma once

#include "core/device_function.h"
#include "core/tensor.h"

namespace fl::device {

// Transforms the dimensions `dims` of `from`, the last of which is halved in the complex tensor when the
// other is real; which of the three kinds it is, the tensors' dtypes say. `forward` is the sign of the
// exponent.
extern DeviceFunction<void(const Tensor& to, const Tensor& from, IntSpan dims, bool forward, double scale)>
    fft;

}  // namespace fl::device

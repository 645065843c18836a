// What copies ask of a device.
#pragma once

#include "core/device_function.h"
#include "core/tensor.h"

namespace fl::device {

// Copies with conversion and broadcasting, within the memory of the device. Accelerators copy by
// core/accelerator.h, from and to the host as well.
extern DeviceFunction<void(const Tensor& dst, const Tensor& src)> copy;

}  // namespace fl::device

// What sampling at the positions of a grid asks of an accelerator, forward and, where `grad` is set,
// backward.
#pragma once

#include "core/device_function.h"
#include "math/grid_taps.h"

namespace fl::device {

extern DeviceFunction<void(const GridArgs&)> grid_sample;

}  // namespace fl::device

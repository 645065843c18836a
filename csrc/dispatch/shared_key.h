// Kernels of registered devices. The first dozen of them have dispatch keys of their own; all others share
// one, behind which the kernel is found by the device of the arguments.
#pragma once

#include "dispatch/operator.h"

namespace fl {

// The device from outside that the arguments of a call lie on or name.
DeviceType outside_device_of(const Operator& op, const Value* args);

void set_device_kernel(Operator& op, DeviceType type, Kernel kernel);
Kernel device_kernel(const Operator& op, DeviceType type);
void set_device_fallback(DeviceType type, Kernel kernel);

}  // namespace fl

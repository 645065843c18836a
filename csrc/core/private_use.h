// The device that PyTorch's name for a device from outside, `privateuseone`, stands for.
#pragma once

#include <string>

#include "core/device.h"

namespace fl {

void name_private_use(const std::string& name);
// CPU as long as there is none.
DeviceType private_use_type();

}  // namespace fl

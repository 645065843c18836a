// Further names of devices; PyTorch's name for a device from outside, `privateuseone`, is one.
#pragma once

#include <string>

#include "core/device.h"

namespace fl {

// Another name for a device, which is registered under its own.
void alias_device(const std::string& alias, const std::string& name);
// CPU as long as there is none.
DeviceType private_use_type();

}  // namespace fl

// The error of a device function that a device lacks.
#include "core/device_function.h"

#include "core/error.h"

namespace fl {

void fail_without_implementation(const char* name, DeviceType device) {
  fail(ErrorKind::NotImplemented, "[", name, "] expected a device with a kernel for it, got ",
       device_type_name(device));
}

}  // namespace fl

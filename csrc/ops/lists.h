// What operators on lists of tensors ask of a device.
#pragma once

#include <vector>

#include "core/device_function.h"
#include "core/tensor.h"

namespace fl {

// A tensor as rows of bytes that lie side by side.
struct JoinPart {
  const char* data;
  int64_t bytes;  // of one row
};

namespace device {
// out = row 0 of each part, then row 1 of each, ...; false where the kernel does not take it.
extern DeviceFunction<bool(const std::vector<JoinPart>& parts, int64_t rows, const Tensor& out)> join;
// Of dense tensors of one floating dtype on one device; order is 1, 2 or infinity.
extern DeviceFunction<std::vector<Tensor>(const Tensor* list, size_t n, double order)> norms;
}  // namespace device

}  // namespace fl

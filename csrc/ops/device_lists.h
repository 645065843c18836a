// Work on lists of tensors that an accelerator does in few launches; its library fills this in when it is
// opened.
#pragma once

#include <vector>

#include "core/tensor.h"

namespace fl {

// A tensor as rows of bytes that lie side by side.
struct JoinPart {
  const char* data;
  int64_t bytes;  // of one row
};

struct DeviceLists {
  // out = row 0 of each part, then row 1 of each, ...; false where it is not for the device's kernel.
  bool (*join)(const std::vector<JoinPart>& parts, int64_t rows, char* out, int device) = nullptr;
  // Of dense tensors of one floating dtype on one device; order is 1, 2 or infinity.
  std::vector<Tensor> (*norms)(const Tensor* list, size_t n, double order) = nullptr;
};
DeviceLists& device_lists();

}  // namespace fl

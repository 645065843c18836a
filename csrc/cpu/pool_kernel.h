// Pooling loops: windows described axis by axis, so that one implementation serves one to three dimensions
// and plain, adaptive and fractional windows alike. Tensors are dense, either channels first or channels
// last.
#pragma once

#include <cstdint>
#include <vector>

#include "core/dtype.h"
#include "cpu/arch.h"

namespace fl {

// The windows along one axis, clipped to the input: elements begin[o], begin[o] + step, ... below end[o].
struct PoolAxis {
  int64_t in = 1, out = 1, step = 1;
  std::vector<int64_t> begin, end;
  std::vector<int64_t> extent;  // what the axis contributes to the divisor of an average
  // Regular windows start at o * stride - pad and take `kernel` elements before clipping.
  bool regular = false;
  int64_t stride = 1, pad = 0, kernel = 1;
  bool adaptive = false;  // windows o * in / out to (o + 1) * in / out, rounded outwards
  bool padded = false;    // padding counts in the extent
};

struct PoolArgs {
  DType dtype = DType::Float;  // Float, Double, Half, BFloat16 or Int64
  int64_t batch = 0, channels = 0;
  const PoolAxis* axes = nullptr;  // three: depth, height, width
  const void* input = nullptr;
  void* output = nullptr;
  int64_t* indices = nullptr;  // position of the maximum in its plane, or null
  int64_t divisor = 0;         // of an average; 0: the extents' product
  bool channels_last = false;
};

struct MaxPoolTable {
  void (*run)(const PoolArgs& args);
};
struct AveragePoolTable {
  void (*run)(const PoolArgs& args);
  // `output` is the gradient that arrives (read), `input` the gradient of the input (written); no
  // integers, and channels last Float or Double only.
  void (*backward)(const PoolArgs& args);
};

// The same on an accelerator, by its library when that is opened; windows are plain or adaptive.
struct DevicePools {
  void (*max)(const PoolArgs& args, int device) = nullptr;
  void (*average)(const PoolArgs& args, int device) = nullptr;
  void (*average_backward)(const PoolArgs& args, int device) = nullptr;
};
DevicePools& device_pools();

FL_DECLARE_ARCH(const MaxPoolTable, max_pool_table)
FL_DECLARE_ARCH(const AveragePoolTable, average_pool_table)

}  // namespace fl

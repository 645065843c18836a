// What pooling fronts ask of a device: windows described axis by axis, so that one implementation serves one
// to three dimensions and plain, adaptive and fractional windows alike. Tensors are dense, either channels
// first or channels last.
#pragma once

#include <cstdint>
#include <vector>

#include "core/device_function.h"
#include "core/dtype.h"
#include "math/math_basics.h"

namespace fl {

// Where windows along an axis lie: `kernel` elements, `step` apart, from o * stride - pad on; or, adaptive,
// from o * in / out to (o + 1) * in / out, rounded outwards. Products of sizes are to fit in I.
template <class I>
struct PoolRule {
  I in = 1, out = 1, step = 1, stride = 1, pad = 0, kernel = 1;
  bool adaptive = false;
  bool padded = false;  // padding counts in the extent

  struct Window {
    I begin, end, extent;  // clipped to the input; the extent is the share in the divisor of an average
  };
  FL_MATH_INLINE Window window(I o) const {
    using U = std::make_unsigned_t<I>;
    if (adaptive) {
      const I begin = I(U(o * in) / U(out)), end = I(U((o + 1) * in + out - 1) / U(out));
      return {begin, end, end - begin};
    }
    const I first = o * stride - pad, after = first + step * (kernel - 1) + 1;
    const I begin = first >= 0 ? first : first + (-first + step - 1) / step * step,
            end = after < in ? after : in;
    const I counted = first + kernel < in + pad ? first + kernel : in + pad;
    const I extent = padded ? counted - first : end - begin;
    return {begin, end, extent > 0 ? extent : 0};
  }
};

struct PoolAxis : PoolRule<int64_t> {
  bool regular = false;  // all windows have `kernel` elements, `stride` apart, before they are clipped
  // All windows: elements begin[o], begin[o] + step, ... below end[o].
  std::vector<int64_t> begin, end, extent;

  void list_windows() {
    begin.resize(out);
    end.resize(out);
    extent.resize(out);
    for (int64_t o = 0; o < out; ++o) {
      const Window w = window(o);
      begin[o] = w.begin;
      end[o] = w.end;
      extent[o] = w.extent;
    }
  }
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

namespace device {
// `index` is that of the device; on an accelerator windows are plain or adaptive.
extern DeviceFunction<void(const PoolArgs& args, int index)> max_pool, average_pool;
// The gradient of maxima of plain windows, by their indices, on an accelerator; arguments as below, no
// integers.
extern DeviceFunction<void(const PoolArgs& args, int index)> max_pool_backward;
// `output` is the gradient that arrives (read), `input` the gradient of the input (written); no integers, and
// on the CPU channels last Float or Double only.
extern DeviceFunction<void(const PoolArgs& args, int index)> average_pool_backward;
}  // namespace device

}  // namespace fl

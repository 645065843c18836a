// What random operators ask of a device: elements of a distribution from a Philox stream.
#pragma once

#include <cstdint>

#include "core/device_function.h"
#include "core/tensor.h"

namespace fl {

// Parameters of a distribution; their meaning depends on it.
struct RandomParams {
  double a = 0, b = 1;
  int bits = 24;  // random bits of a floating uniform number
  uint64_t range = 0;
  int64_t low = 0;
};

// Floating ones come in float or double, as `wide` says.
enum class RandomKind : int8_t {
  Uniform,
  Normal,
  Exponential,
  Cauchy,
  LogNormal,
  Geometric,
  Range32,
  Range64,
  Bernoulli
};
struct RandomCall {
  RandomKind kind;
  bool wide;
  uint64_t seed, offset;
  RandomParams params;
};

namespace device {
// Fills a contiguous tensor of a real dtype.
extern DeviceFunction<void(const Tensor& out, const RandomCall& call)> random;
// mask = Bernoulli, output = input * mask * scale; all three dense and alike. Devices without it multiply.
extern DeviceFunction<void(const Tensor& input, const RandomCall& call, double scale, const Tensor& output,
                           const Tensor& mask)>
    dropout;
}  // namespace device

}  // namespace fl

// Devices registered from outside. Fronts serve them as they serve the CPU: arguments are checked, shapes and
// dtypes settled and results allocated here, and the device evaluates what is left.
#pragma once

#include <memory>

#include "ops/pointwise.h"
#include "ops/random.h"
#include "ops/reduce.h"
#include "ops/updates.h"

namespace fl {

// What such a device brings; `record` is the full name of the operator whose record is evaluated.
class OutsideDevice {
 public:
  virtual ~OutsideDevice() = default;
  virtual void pointwise(const std::string& record, const PointwiseCall& call) = 0;
  virtual void reduce(const std::string& record, const ReduceCall& call) = 0;
  virtual void update(const std::string& record, const UpdateCall& call) = 0;
  virtual void random(const Tensor& out, const RandomCall& call) = 0;
};

enum OutsideFronts : unsigned { kPointwiseFront = 1, kReduceFront = 2, kUpdateFront = 4, kRandomFront = 8 };

// Gives a device type the fronts it can serve. Operators for which the device has a kernel of its own keep
// that.
void serve_outside(DeviceType type, std::shared_ptr<OutsideDevice> device, unsigned fronts);

}  // namespace fl

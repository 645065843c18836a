// Steps of operators that each device implements for itself: the one seam between operator fronts and
// kernels.
//
// A front (csrc/ops) checks arguments, settles shapes and dtypes and allocates results. Then it calls a
// device function with the type of the device its tensors are on. csrc/cpu and csrc/cuda attach their
// implementations beside the code:
//
//   ops/pooling.h        namespace device { extern DeviceFunction<void(const PoolArgs&, int)> max_pool; }
//   ops/pooling.cpp      device::max_pool(self.device().type, args, index);
//   cpu/.../pooling.cpp  FL_ATTACH(max_pool, CPU, max_pool_on_cpu);
//   cuda/ops/pooling.cu  FL_ATTACH(max_pool, CUDA, max_pool);
//
// Those of libflambeau_cuda are attached when the library is opened.
#pragma once

#include "core/device.h"

namespace fl {

// Raises: the device has no implementation of the step.
[[noreturn]] void fail_without_implementation(const char* name, DeviceType device);

template <class Signature>
class DeviceFunction;

template <class R, class... A>
class DeviceFunction<R(A...)> {
 public:
  using Implementation = R (*)(A...);

  // Initialised before any code runs, so that implementations may be attached by static initialisers.
  constexpr explicit DeviceFunction(const char* name) : name_(name) {}

  R operator()(DeviceType device, A... args) const {
    const Implementation run = by_device_[device_slot(device)];
    if (__builtin_expect(run == nullptr, 0)) fail_without_implementation(name_, device);
    return run(static_cast<A>(args)...);
  }
  bool exists_on(DeviceType device) const { return by_device_[device_slot(device)] != nullptr; }

  bool attach(DeviceType device, Implementation implementation) {
    by_device_[device_slot(device)] = implementation;
    return true;
  }

 private:
  const char* name_;  // of the operator, for messages
  Implementation by_device_[kDeviceSlots] = {};
};

// Makes `function` the implementation of device::name on a device, CPU or CUDA.
#define FL_ATTACH(name, type, function)                            \
  [[maybe_unused]] static const bool fl_attached_##name##_##type = \
      ::fl::device::name.attach(::fl::DeviceType::type, function)

}  // namespace fl

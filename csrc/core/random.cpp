// Generator state and the default generators.
#include "core/random.h"

#include <random>

namespace fl {

Generator::State Generator::state() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return state_;
}

void Generator::set_state(State s) {
  std::lock_guard<std::mutex> lock(mutex_);
  state_ = s;
}

uint64_t Generator::reseed() {
  std::random_device entropy;
  const uint64_t seed = (uint64_t(entropy()) << 32 | entropy()) & 0x1fffffffffffffull;  // exact in a double
  manual_seed(seed);
  return seed;
}

Generator::State Generator::take(uint64_t count) {
  std::lock_guard<std::mutex> lock(mutex_);
  const State s = state_;
  state_.offset += count;
  return s;
}

Generator& default_generator(DeviceType device) {
  static auto* all = [] {
    auto* generators = new Ref<Generator>[kMaxDeviceTypes];
    for (int i = 0; i < kMaxDeviceTypes; ++i)
      generators[i] = Ref<Generator>(new Generator(Device{static_cast<DeviceType>(i)}));
    return generators;
  }();
  return *all[static_cast<int>(device)];
}

}  // namespace fl

// Generators: the seed and position from which random operators draw. Every operator call takes one offset,
// and within it the number of an element depends only on the element's index (see philox.h).
#pragma once

#include <mutex>

#include "core/device.h"
#include "core/intrusive.h"
#include "core/philox.h"

namespace fl {

struct Generator : Counted {
  struct State {
    uint64_t seed, offset;
  };

  explicit Generator(Device d = {}) : device(d) {}

  Device device;
  State state() const;
  void set_state(State s);
  uint64_t initial_seed() const { return state().seed; }
  void manual_seed(uint64_t seed) { set_state({seed, 0}); }
  uint64_t reseed();  // from the system's entropy; returns the seed
  // The state for one operator call, which moves on by `count` streams.
  State take(uint64_t count = 1);

 private:
  mutable std::mutex mutex_;
  State state_{67280421310721ull, 0};
};

// The generator of operators that are given none. One for each device type.
Generator& default_generator(DeviceType device = DeviceType::CPU);

}  // namespace fl

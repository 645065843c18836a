// The loops of update records as data: what generated code defines and the front looks up.
#pragma once

#include <cstdint>

namespace fl {

// What depends on scalar states s and numbers h alone: the values u that the loop uses, the new scalar states
// o.
using UpdateOnce = void (*)(const double* s, const double* h, double* o, double* u);
// New values of n elements of each list's tensor, in place.
using UpdateLoop = void (*)(void* const* a, int64_t n, const double* u);

struct UpdateLoops {
  UpdateOnce once;
  UpdateLoop single, twice;  // in float, in double
};

}  // namespace fl

// The loops of elementwise operators as data: what generated code defines and fronts look up.
#pragma once

#include <cstdint>

#include "core/scalar.h"

namespace fl {

// Computes out[i] of in[k][i] for i < n; operands lie contiguously in the type the loop computes with.
using PointwiseLoop = void (*)(const void* const* in, void* out, int64_t n, const Scalar* params);

// Loops are stored by compute type.
enum LoopSlot {
  kSlotFloat,
  kSlotDouble,
  kSlotInt,
  kSlotBool,
  kSlotComplexFloat,
  kSlotComplexDouble,
  kLoopSlots
};

}  // namespace fl

// The generator that a random operator draws from.
#pragma once

#include "core/random.h"
#include "dispatch/value.h"

namespace fl {

// The one that the call names, or the default one of the device.
Generator& generator_of(Opaque* named, Device device);

}  // namespace fl

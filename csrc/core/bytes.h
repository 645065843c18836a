// Code that only moves elements needs to know how large they are, not what they mean.
#pragma once

#include "core/dtype.h"

namespace fl {

struct Bytes16 {
  uint64_t parts[2];
};

// Calls f(Type<U>{}) for a type of the given size that can be copied.
template <class F>
void dispatch_bytes(int64_t itemsize, const F& f) {
  switch (itemsize) {
    case 1:
      return f(Type<uint8_t>{});
    case 2:
      return f(Type<uint16_t>{});
    case 4:
      return f(Type<uint32_t>{});
    case 8:
      return f(Type<uint64_t>{});
    default:
      return f(Type<Bytes16>{});
  }
}

}  // namespace fl

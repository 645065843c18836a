// Kernels of devices from outside that native programs launch without Python: the contents of a capsule named
// "flambeau.launch".
#pragma once

#include <cstddef>

namespace fl::py {

constexpr const char* kNativeLaunch = "flambeau.launch";

struct NativeLaunch {
  // Queues the kernel on these addresses; returns null, or what went wrong.
  const char* (*run)(void* context, void* const* pointers, size_t count);
  void* context;
};

}  // namespace fl::py

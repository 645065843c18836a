// Operators whose results may depend on the order of threads, or that PyTorch's programs may not call while
// deterministic algorithms are asked for.
#pragma once

#include <atomic>

namespace fl {

enum class Determinism { NotAsked, Warn, Raise };

extern std::atomic<Determinism> determinism;

[[gnu::cold]] void tell_not_deterministic(const char* op);

inline void alert_not_deterministic(const char* op) {
  if (__builtin_expect(determinism.load(std::memory_order_relaxed) != Determinism::NotAsked, 0))
    tell_not_deterministic(op);
}

}  // namespace fl

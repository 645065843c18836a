// Dispatch keys: why a call takes a detour before it reaches a device's kernel. Higher keys are handled
// first.
#pragma once

#include <cstdint>

#include "core/device.h"

namespace fl {

enum class Key : uint8_t {
  CPU = 0,
  Meta = 1,
  CUDA = 2,
  Custom0 = 3,  // registered devices follow: 3..14
  Shared = 15,  // of all registered devices beyond those (dispatch/shared_key.h)
  Python = 16,  // tensor subclasses with __torch_dispatch__, and dispatch modes: they see what autograd has
                // recorded
  Autograd = 17,
  Autocast = 18,
  Functionalize = 19,
  Sparse = 20,     // tensors made of parts: calls are rewritten as calls on the parts, before anything else
  Conjugate = 21,  // what lies in memory is the conjugate of the elements (csrc/ops/deferred.cpp)
  Negative = 22,   // what lies in memory is the negative of the elements
  Composite = 31,  // not a key of tensors: where an op's decomposition is stored
};
constexpr int kKeys = 32;
constexpr int kBackendKeys = kDeviceSlots;

class KeySet {
 public:
  constexpr KeySet() = default;
  constexpr KeySet(Key k) : bits_(uint32_t(1) << static_cast<int>(k)) {}
  constexpr explicit KeySet(uint32_t bits) : bits_(bits) {}
  constexpr KeySet operator|(KeySet o) const { return KeySet(bits_ | o.bits_); }
  constexpr KeySet operator&(KeySet o) const { return KeySet(bits_ & o.bits_); }
  constexpr KeySet operator-(KeySet o) const { return KeySet(bits_ & ~o.bits_); }
  KeySet& operator|=(KeySet o) {
    bits_ |= o.bits_;
    return *this;
  }
  constexpr bool has(Key k) const { return bits_ >> static_cast<int>(k) & 1; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr uint32_t bits() const { return bits_; }
  // The highest key; the set must not be empty.
  Key highest() const { return static_cast<Key>(31 - __builtin_clz(bits_)); }
  // Keys below k.
  constexpr KeySet below(Key k) const { return KeySet(bits_ & ((uint32_t(1) << static_cast<int>(k)) - 1)); }

 private:
  uint32_t bits_ = 0;
};

// Of tensors whose elements are made of what lies in memory when they are read. Kernels do not meet them.
constexpr KeySet kDeferred = KeySet(Key::Conjugate) | KeySet(Key::Negative);

constexpr Key backend_key(DeviceType t) {
  return static_cast<Key>(device_slot(t));
}

// Thread-local state that changes how calls are dispatched.
struct ThreadState {
  KeySet included, excluded;
  bool grad_mode = true;
  bool inference_mode = false;
};
ThreadState& thread_state();

// Excludes keys while alive.
class ExcludeKeys {
 public:
  explicit ExcludeKeys(KeySet keys) : saved_(thread_state().excluded) { thread_state().excluded |= keys; }
  ~ExcludeKeys() { thread_state().excluded = saved_; }
  ExcludeKeys(const ExcludeKeys&) = delete;

 private:
  KeySet saved_;
};

}  // namespace fl

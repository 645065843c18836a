// Intrusive reference counting for the objects that tensors are made of.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace fl {

// Base of counted objects. `release` is virtual so that a Python-aware subclass or hook may intervene.
struct Counted {
  std::atomic<int64_t> refcount{0};

  Counted() = default;
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  virtual ~Counted() = default;

  void retain() { refcount.fetch_add(1, std::memory_order_relaxed); }
  void release() {
    if (refcount.fetch_sub(1, std::memory_order_acq_rel) == 1) destroy();
  }
  int64_t use_count() const { return refcount.load(std::memory_order_acquire); }

 protected:
  virtual void destroy() { delete this; }
};

template <class T>
class Ref {
 public:
  Ref() = default;
  Ref(std::nullptr_t) {}
  explicit Ref(T* object) : p_(object) {
    if (p_) p_->retain();
  }
  Ref(const Ref& other) : Ref(other.p_) {}
  Ref(Ref&& other) noexcept : p_(std::exchange(other.p_, nullptr)) {}
  ~Ref() {
    if (p_) p_->release();
  }
  Ref& operator=(Ref other) noexcept {
    std::swap(p_, other.p_);
    return *this;
  }

  // Takes over a reference that the caller already owns.
  static Ref steal(T* object) {
    Ref r;
    r.p_ = object;
    return r;
  }
  // Gives the reference up to the caller.
  T* leak() { return std::exchange(p_, nullptr); }

  T* get() const { return p_; }
  T* operator->() const { return p_; }
  T& operator*() const { return *p_; }
  explicit operator bool() const { return p_ != nullptr; }
  bool operator==(const Ref& other) const { return p_ == other.p_; }

 private:
  T* p_ = nullptr;
};

}  // namespace fl

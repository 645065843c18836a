// A vector with room for the first few elements in place: what hangs on graph nodes is short and made with
// every op.
#pragma once

#include <cstddef>
#include <new>
#include <utility>

namespace fl {

template <class T, size_t N>
class Small {
 public:
  Small() = default;
  Small(const Small& o) { *this = o; }
  Small& operator=(const Small& o) {
    if (this == &o) return *this;
    clear();
    reserve(o.size_);
    for (const T& x : o) push_back(x);
    return *this;
  }
  ~Small() {
    clear();
    if (data_ != inline_data()) ::operator delete(data_);
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  T& back() { return data_[size_ - 1]; }

  template <class... A>
  T& emplace_back(A&&... args) {
    if (size_ == room_) reserve(room_ * 2);
    return *new (data_ + size_++) T{std::forward<A>(args)...};
  }
  void push_back(const T& x) { emplace_back(x); }
  void push_back(T&& x) { emplace_back(std::move(x)); }
  void resize(size_t n) {
    reserve(n);
    while (size_ < n) new (data_ + size_++) T();
    while (size_ > n) data_[--size_].~T();
  }
  void clear() { resize(0); }
  void reserve(size_t n) {
    if (n <= room_) return;
    T* fresh = static_cast<T*>(::operator new(n * sizeof(T)));
    for (size_t i = 0; i < size_; ++i) {
      new (fresh + i) T(std::move(data_[i]));
      data_[i].~T();
    }
    if (data_ != inline_data()) ::operator delete(data_);
    data_ = fresh;
    room_ = n;
  }

 private:
  T* inline_data() { return reinterpret_cast<T*>(inline_); }
  alignas(T) unsigned char inline_[N * sizeof(T)];
  T* data_ = inline_data();
  size_t size_ = 0, room_ = N;
};

}  // namespace fl

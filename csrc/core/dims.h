// Small vectors and views for sizes and strides.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <utility>
#include <vector>

namespace fl {

// A read-only view of integers, as arguments travel through kernels.
class IntSpan {
 public:
  IntSpan() = default;
  IntSpan(const int64_t* data, size_t size) : data_(data), size_(size) {}
  IntSpan(const std::vector<int64_t>& v) : data_(v.data()), size_(v.size()) {}
  IntSpan(std::initializer_list<int64_t> v) : data_(v.begin()), size_(v.size()) {}

  const int64_t* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  int64_t operator[](size_t i) const { return data_[i]; }
  const int64_t* begin() const { return data_; }
  const int64_t* end() const { return data_ + size_; }
  bool operator==(IntSpan o) const { return size_ == o.size_ && std::equal(begin(), end(), o.begin()); }
  bool operator!=(IntSpan o) const { return !(*this == o); }
  std::vector<int64_t> vec() const { return {begin(), end()}; }

 private:
  const int64_t* data_ = nullptr;
  size_t size_ = 0;
};

// Owned integers with room for six in place, so that ordinary tensors need no second allocation.
class Dims {
 public:
  Dims() = default;
  explicit Dims(size_t n, int64_t value = 0) { resize(n, value); }
  Dims(IntSpan s) { assign(s); }
  Dims(const std::vector<int64_t>& v) { assign(IntSpan(v)); }
  Dims(std::initializer_list<int64_t> v) { assign(IntSpan(v)); }
  Dims(const Dims& o) { assign(o); }
  Dims(Dims&& o) noexcept { take(o); }
  Dims& operator=(const Dims& o) {
    if (this != &o) assign(o);
    return *this;
  }
  Dims& operator=(Dims&& o) noexcept {
    if (this != &o) {
      if (data_ != inline_) std::free(data_);
      take(o);
    }
    return *this;
  }
  ~Dims() {
    if (data_ != inline_) std::free(data_);
  }

  operator IntSpan() const { return {data_, size_}; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  int64_t& operator[](size_t i) { return data_[i]; }
  int64_t operator[](size_t i) const { return data_[i]; }
  int64_t* data() { return data_; }
  const int64_t* data() const { return data_; }
  int64_t* begin() { return data_; }
  int64_t* end() { return data_ + size_; }
  const int64_t* begin() const { return data_; }
  const int64_t* end() const { return data_ + size_; }
  int64_t& back() { return data_[size_ - 1]; }
  int64_t back() const { return data_[size_ - 1]; }
  bool operator==(const Dims& o) const { return IntSpan(*this) == IntSpan(o); }
  bool operator!=(const Dims& o) const { return !(*this == o); }

  void assign(IntSpan s) {
    reserve(s.size());
    if (s.size()) std::memmove(data_, s.data(), s.size() * sizeof(int64_t));
    size_ = static_cast<uint32_t>(s.size());
  }
  void resize(size_t n, int64_t value = 0) {
    reserve(n);
    for (size_t i = size_; i < n; ++i) data_[i] = value;
    size_ = static_cast<uint32_t>(n);
  }
  void push_back(int64_t v) {
    if (size_ == capacity_) reserve(size_ * 2);
    data_[size_++] = v;
  }
  void insert(size_t at, int64_t v) {
    push_back(v);
    std::rotate(data_ + at, data_ + size_ - 1, data_ + size_);
  }
  void erase(size_t at) {
    std::memmove(data_ + at, data_ + at + 1, (size_ - at - 1) * sizeof(int64_t));
    --size_;
  }
  void clear() { size_ = 0; }
  std::vector<int64_t> vec() const { return {begin(), end()}; }

 private:
  static constexpr uint32_t kInline = 6;
  void reserve(size_t n) {
    if (n <= capacity_) return;
    auto* fresh = static_cast<int64_t*>(std::malloc(n * sizeof(int64_t)));
    if (size_) std::memcpy(fresh, data_, size_ * sizeof(int64_t));
    if (data_ != inline_) std::free(data_);
    data_ = fresh;
    capacity_ = static_cast<uint32_t>(n);
  }
  void take(Dims& o) {
    size_ = o.size_;
    if (o.data_ == o.inline_) {
      std::memcpy(inline_, o.inline_, size_ * sizeof(int64_t));
      data_ = inline_;
      capacity_ = kInline;
    } else {
      data_ = o.data_;
      capacity_ = o.capacity_;
    }
    o.data_ = o.inline_;
    o.size_ = 0;
    o.capacity_ = kInline;
  }

  int64_t inline_[kInline];
  int64_t* data_ = inline_;
  uint32_t size_ = 0;
  uint32_t capacity_ = kInline;
};

}  // namespace fl

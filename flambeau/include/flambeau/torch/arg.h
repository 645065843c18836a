// An option of a struct of options: a member with a setter, which returns the options, and getters.
#pragma once

#include <utility>

#define TORCH_ARG(T, name)                \
 public:                                  \
  auto name(T value) -> decltype(*this) { \
    this->name##_ = std::move(value);     \
    return *this;                         \
  }                                       \
  const T& name() const noexcept {        \
    return this->name##_;                 \
  }                                       \
  T& name() noexcept {                    \
    return this->name##_;                 \
  }                                       \
                                          \
 private:                                 \
  T name##_

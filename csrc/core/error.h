// Typed errors. Messages have the form `[op] expected ..., got ...`; the binding turns the kind into a Python
// exception.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace fl {

enum class ErrorKind { Runtime, Type, Value, Index, NotImplemented, OutOfMemory };

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind(kind) {}
  ErrorKind kind;
};

// Thrown where the error itself is kept by another language; who catches it for good makes that forget it.
struct ForeignError {
  virtual ~ForeignError() = default;
  virtual void forget() const noexcept = 0;
};

namespace detail {
inline void append(std::string& s, std::string_view v) {
  s += v;
}
inline void append(std::string& s, const char* v) {
  s += v;
}
inline void append(std::string& s, const std::string& v) {
  s += v;
}
inline void append(std::string& s, char v) {
  s += v;
}
inline void append(std::string& s, bool v) {
  s += v ? "True" : "False";
}
std::string number(double v);
template <class T, std::enable_if_t<std::is_arithmetic_v<T>, int> = 0>
void append(std::string& s, T v) {
  if constexpr (std::is_floating_point_v<T>)
    s += number(v);
  else
    s += std::to_string(v);
}
template <class T>
auto append(std::string& s, const T& v) -> decltype(v.begin(), v.end(), void()) {
  s += '(';
  bool first = true;
  for (const auto& x : v) {
    if (!first) s += ", ";
    append(s, x);
    first = false;
  }
  s += ')';
}
}  // namespace detail

template <class... A>
std::string message(const A&... parts) {
  std::string s;
  (detail::append(s, parts), ...);
  return s;
}

template <class... A>
[[noreturn]] void fail(ErrorKind kind, const A&... parts) {
  throw Error(kind, message(parts...));
}
template <class... A>
[[noreturn]] void fail(const A&... parts) {
  throw Error(ErrorKind::Runtime, message(parts...));
}

}  // namespace fl

// Check that holds on good input; the rest are the parts of the message.
#define FL_CHECK(cond, ...)                                    \
  do {                                                         \
    if (__builtin_expect(!(cond), 0)) ::fl::fail(__VA_ARGS__); \
  } while (0)
#define FL_CHECK_KIND(cond, kind_, ...)                                                \
  do {                                                                                 \
    if (__builtin_expect(!(cond), 0)) ::fl::fail(::fl::ErrorKind::kind_, __VA_ARGS__); \
  } while (0)

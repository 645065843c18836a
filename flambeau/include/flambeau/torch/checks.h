// Macros of programs: checks, warnings, and code for the C++ type of a dtype.
#pragma once

#include <flambeau/torch/types.h>

#include <iostream>

namespace c10 {

namespace detail {
// What a failed check says: the message of the program, or else what did not hold.
template <class... Parts>
std::string check_message(const char* condition, const Parts&... parts) {
  if constexpr (sizeof...(Parts) == 0)
    return str("Expected ", condition, " to be true, but got false.");
  else
    return str(parts...);
}
}  // namespace detail

class Warning {
 public:
  static void write(const char* file, int line, const std::string& message) {
    std::cerr << "Warning: " << message << " (" << file << ":" << line << ")" << std::endl;
  }
};

}  // namespace c10

#define FL_CHECK_AS(Kind, condition, ...)                                                     \
  do {                                                                                        \
    if (!(condition))                                                                         \
      throw ::c10::Kind(::c10::detail::check_message(#condition __VA_OPT__(, ) __VA_ARGS__)); \
  } while (false)
#define TORCH_CHECK(condition, ...) FL_CHECK_AS(Error, condition, __VA_ARGS__)
#define TORCH_CHECK_INDEX(condition, ...) FL_CHECK_AS(IndexError, condition, __VA_ARGS__)
#define TORCH_CHECK_VALUE(condition, ...) FL_CHECK_AS(ValueError, condition, __VA_ARGS__)
#define TORCH_CHECK_TYPE(condition, ...) FL_CHECK_AS(TypeError, condition, __VA_ARGS__)
#define TORCH_CHECK_NOT_IMPLEMENTED(condition, ...) FL_CHECK_AS(NotImplementedError, condition, __VA_ARGS__)
#define TORCH_CHECK_ARG(condition, place, ...) FL_CHECK_AS(ValueError, condition, __VA_ARGS__)
#define TORCH_INTERNAL_ASSERT(...) TORCH_CHECK(__VA_ARGS__)
#define AT_ASSERT(...) TORCH_CHECK(__VA_ARGS__)
#define AT_ASSERTM(...) TORCH_CHECK(__VA_ARGS__)
#define AT_ERROR(...) throw ::c10::Error(::c10::str(__VA_ARGS__))
#define FL_COMPARED(a, b, symbol)                                                                      \
  do {                                                                                                 \
    const auto& fl_left = (a);                                                                         \
    const auto& fl_right = (b);                                                                        \
    if (!(fl_left symbol fl_right))                                                                    \
      throw ::c10::Error(                                                                              \
          ::c10::str("Check failed: " #a " " #symbol " " #b " (", fl_left, " vs. ", fl_right, "). ")); \
  } while (false)
#define TORCH_CHECK_EQ(a, b) FL_COMPARED(a, b, ==)
#define TORCH_CHECK_NE(a, b) FL_COMPARED(a, b, !=)
#define TORCH_CHECK_LT(a, b) FL_COMPARED(a, b, <)
#define TORCH_CHECK_LE(a, b) FL_COMPARED(a, b, <=)
#define TORCH_CHECK_GT(a, b) FL_COMPARED(a, b, >)
#define TORCH_CHECK_GE(a, b) FL_COMPARED(a, b, >=)
#define TORCH_WARN(...) ::c10::Warning::write(__FILE__, __LINE__, ::c10::str(__VA_ARGS__))
#define TORCH_WARN_ONCE(...)                                       \
  do {                                                             \
    static const bool fl_warned = (TORCH_WARN(__VA_ARGS__), true); \
    (void)fl_warned;                                               \
  } while (false)

// ---------------------------------------------------------------- dispatch by dtype

#define AT_DISPATCH_CASE(dtype, ...)                                                    \
  case dtype: {                                                                         \
    using scalar_t [[maybe_unused]] = typename ::c10::ScalarTypeToCPPType<dtype>::type; \
    return __VA_ARGS__();                                                               \
  }
#define AT_DISPATCH_SWITCH(dtype, name, ...)                                                        \
  [&] {                                                                                             \
    const ::c10::ScalarType fl_dtype_of = (dtype);                                                  \
    switch (fl_dtype_of) {                                                                          \
      __VA_ARGS__                                                                                   \
      default:                                                                                      \
        throw ::c10::NotImplementedError(                                                           \
            ::c10::str('"', name, "\" not implemented for '", ::c10::toString(fl_dtype_of), '\'')); \
    }                                                                                               \
  }()
#define AT_DISPATCH_CASE_FLOATING_TYPES(...)               \
  AT_DISPATCH_CASE(::c10::ScalarType::Double, __VA_ARGS__) \
  AT_DISPATCH_CASE(::c10::ScalarType::Float, __VA_ARGS__)
#define AT_DISPATCH_CASE_COMPLEX_TYPES(...)                       \
  AT_DISPATCH_CASE(::c10::ScalarType::ComplexDouble, __VA_ARGS__) \
  AT_DISPATCH_CASE(::c10::ScalarType::ComplexFloat, __VA_ARGS__)
#define AT_DISPATCH_CASE_INTEGRAL_TYPES(...)             \
  AT_DISPATCH_CASE(::c10::ScalarType::Byte, __VA_ARGS__) \
  AT_DISPATCH_CASE(::c10::ScalarType::Char, __VA_ARGS__) \
  AT_DISPATCH_CASE(::c10::ScalarType::Int, __VA_ARGS__)  \
  AT_DISPATCH_CASE(::c10::ScalarType::Long, __VA_ARGS__) \
  AT_DISPATCH_CASE(::c10::ScalarType::Short, __VA_ARGS__)
#define AT_DISPATCH_FLOATING_TYPES(dtype, name, ...) \
  AT_DISPATCH_SWITCH(dtype, name, AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__))
#define AT_DISPATCH_COMPLEX_TYPES(dtype, name, ...) \
  AT_DISPATCH_SWITCH(dtype, name, AT_DISPATCH_CASE_COMPLEX_TYPES(__VA_ARGS__))
#define AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(dtype, name, ...) \
  AT_DISPATCH_SWITCH(                                            \
      dtype, name, AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__) AT_DISPATCH_CASE_COMPLEX_TYPES(__VA_ARGS__))
#define AT_DISPATCH_INTEGRAL_TYPES(dtype, name, ...) \
  AT_DISPATCH_SWITCH(dtype, name, AT_DISPATCH_CASE_INTEGRAL_TYPES(__VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES(dtype, name, ...)                   \
  AT_DISPATCH_SWITCH(dtype, name,                                 \
                     AT_DISPATCH_CASE_INTEGRAL_TYPES(__VA_ARGS__) \
                         AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES_AND(extra, dtype, name, ...)        \
  AT_DISPATCH_SWITCH(dtype, name,                                 \
                     AT_DISPATCH_CASE_INTEGRAL_TYPES(__VA_ARGS__) \
                         AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__) AT_DISPATCH_CASE(extra, __VA_ARGS__))

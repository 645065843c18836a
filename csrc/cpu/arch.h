// Kernel sources are compiled once for each instruction set, with FL_ARCH naming it; FL_ARCH_TABLE picks at
// run time.
#pragma once

#ifndef FL_ARCH
#define FL_ARCH v3
#endif

namespace fl {

// Whether the kernels built for x86-64-v4 (AVX-512) can run here.
inline bool has_v4() {
#if defined(FL_HAS_V4)
  static const bool yes = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return yes;
#else
  return false;
#endif
}

}  // namespace fl

// Declares `type name` once for each instruction set, and `picked_name()` returning a pointer to the best.
#if defined(FL_HAS_V4)
#define FL_DECLARE_ARCH(type, name)        \
  namespace v3 {                           \
  extern type name;                        \
  }                                        \
  namespace v4 {                           \
  extern type name;                        \
  }                                        \
  inline type& picked_##name() {           \
    return has_v4() ? v4::name : v3::name; \
  }
#else
#define FL_DECLARE_ARCH(type, name) \
  namespace v3 {                    \
  extern type name;                 \
  }                                 \
  inline type& picked_##name() {    \
    return v3::name;                \
  }
#endif

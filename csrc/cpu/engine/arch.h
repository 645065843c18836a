// Kernel sources are compiled once for each instruction set, with FL_ARCH naming it. Each defines a table of
// its loops in the namespace of that name; the source that calls them declares the table with FL_DECLARE_ARCH
// and picks at run time.
#pragma once

namespace fl {

#if defined(FL_HAS_V4)
// Whether AVX-512 (x86-64-v4) can run here.
inline bool has_v4() {
  static const bool yes = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return yes;
}
#endif

}  // namespace fl

// What `name` is in the best instruction set that was built and runs here. FL_HAS_V3, FL_HAS_V4 and
// FL_HAS_NEON say which were.
#if defined(FL_HAS_V3) && defined(FL_HAS_V4)
#define FL_PICK(name) (has_v4() ? v4::name : v3::name)
#elif defined(FL_HAS_V4)
#define FL_PICK(name) v4::name
#elif defined(FL_HAS_NEON)
#define FL_PICK(name) neon::name
#else
#define FL_PICK(name) v3::name
#endif

// Declares `type name` for each instruction set, and `picked_name()` returning a reference to the best.
#define FL_DECLARE_ARCH(type, name) \
  namespace v3 {                    \
  extern type name;                 \
  }                                 \
  namespace v4 {                    \
  extern type name;                 \
  }                                 \
  namespace neon {                  \
  extern type name;                 \
  }                                 \
  inline type& picked_##name() {    \
    return FL_PICK(name);           \
  }

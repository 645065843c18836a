// Intrinsics of x86, where the compiler is for it: FL_X86 says so. What stands under FL_X86 has a portable
// form beside it, or is asked for by has_capability.
#pragma once

#if defined(__x86_64__)
#define FL_X86 1
#include <immintrin.h>
#endif

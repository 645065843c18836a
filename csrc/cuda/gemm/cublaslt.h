// cuBLASLt, which is opened at run time: the few declarations of it that are needed, as it is documented.
#pragma once

#include <library_types.h>

#include <cstring>
#include <utility>

#include "cuda/runtime/library.h"
#include "cuda/runtime/runtime.h"

namespace fl::cuda::lt {

using Handle = void*;
using Desc = void*;
using Layout_ = void*;
using Preference = void*;
struct Algorithm {
  uint64_t data[8];
};
struct Heuristic {
  Algorithm algorithm;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};
enum ComputeType { kCompute32F = 68, kCompute64F = 70, kComputeTF32 = 77 };
enum DescAttribute {
  kTransA = 3,
  kTransB = 4,
  kEpilogue = 7,
  kBiasPointer = 8,
  kScaleA = 17,
  kScaleB = 18,
  kScaleD = 20,
  kFastAccumulation = 25,
  kBiasType = 26,
  kScaleModeA = 31,
  kScaleModeB = 32
};
enum ScaleMode { kOneScale = 0, kScalePerRow = 3 };
enum LayoutAttribute { kBatchCount = 5, kBatchStride = 6 };
enum PreferenceAttribute { kMaxWorkspace = 1, kAlignA = 5, kAlignB = 6, kAlignC = 7, kAlignD = 8 };
enum Epilogue { kEpilogueNone = 1, kEpilogueRelu = 2, kEpilogueBias = 4, kEpilogueReluBias = 6 };

struct Lt {
  int (*create)(Handle*);
  int (*desc_create)(Desc*, int, int);
  int (*desc_set)(Desc, int, const void*, size_t);
  int (*layout_create)(Layout_*, int, uint64_t, uint64_t, int64_t);
  int (*layout_set)(Layout_, int, const void*, size_t);
  int (*preference_create)(Preference*);
  int (*preference_set)(Preference, int, const void*, size_t);
  int (*preference_destroy)(Preference);
  int (*heuristic)(Handle, Desc, Layout_, Layout_, Layout_, Layout_, Preference, int, Heuristic*, int*);
  int (*matmul)(Handle, Desc, const void*, const void*, Layout_, const void*, Layout_, const void*,
                const void*, Layout_, void*, Layout_, const Algorithm*, void*, size_t, cudaStream_t);
  bool found = false;

  static Lt& get();
  // Made at first use.
  Handle handle(int device);

 private:
  Handle handles[kMaxDevices] = {};
};

inline void check_lt(int status, const char* what) {
  FL_CHECK(status == 0, "[matmul] cuBLASLt error ", status, " in ", what);
}

// Alignment of an address, as far as the library looks.
inline int alignment(const void* p) {
  const uintptr_t bits = reinterpret_cast<uintptr_t>(p) | 256;
  return static_cast<int>(bits & -bits);
}

// What products are planned and found again by: a struct of integers, compared and hashed as its words.
template <class Key>
struct Hash {
  size_t operator()(const Key& k) const {
    const auto* words = reinterpret_cast<const uint32_t*>(&k);
    uint64_t h = 1469598103934665603ull;
    for (size_t i = 0; i < sizeof k / 4; ++i) h = (h ^ words[i]) * 1099511628211ull;
    return h ^ h >> 29;
  }
};

constexpr size_t kWorkspace = size_t(32) << 20;

struct Alignments {
  int a, b, c, d;
};
// The library's first choice for a product; false when it has none. C may lie otherwise than D.
bool choose(Lt& lt, Handle handle, Desc desc, Layout_ a, Layout_ b, Layout_ c, Layout_ d,
            const Alignments& aligned, Algorithm& algorithm, size_t& workspace);

}  // namespace fl::cuda::lt

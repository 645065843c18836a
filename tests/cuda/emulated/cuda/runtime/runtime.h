// Kernels on the host: the threads of a block are coroutines that wait for each other where the instructions
// of a warp or block do. With the headers beside this one in place of the device's, the sources of kernels on
// tensor cores are compiled as they are. Asynchronous copies happen when they are waited for, and what they
// will overwrite is spoilt at once, so that a missing wait shows.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <stdexcept>
#include <vector>

#include "core/dtype.h"

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
using std::max;
using std::min;

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
struct uint2 {
  uint32_t x, y;
};
struct uint4 {
  uint32_t x, y, z, w;
};
struct float2 {
  float x, y;
};
using cudaStream_t = void*;
extern dim3 threadIdx, blockIdx, gridDim;

namespace emulated {

struct Copy {
  uint32_t to;
  const char* from;
  int bytes;
  bool exists;
};
struct Thread {
  ucontext_t context;
  std::vector<char> stack;
  std::vector<Copy> copies;
  bool done = false;
};
// What a lane shows to the others of its warp.
struct Slot {
  uint32_t a[4], b[2], address;
  float c[4], x;
};
struct Barrier {
  int arrived = 0;
  long passed = 0;
};
// A barrier in shared memory: it passes when all have arrived and the announced bytes have come.
struct Counted {
  int arrivals = 0, missing = 0;
  long bytes = 0, passed = 0;
  std::vector<std::function<int()>> boxes;  // on their way; each returns its bytes
  void arrive();
  void deliver();
};

constexpr uint32_t kShared = 1024;  // the address of shared memory
extern std::vector<Thread> threads;
extern std::vector<Slot> slots;
extern std::vector<Barrier> warps, groups;
extern Barrier block;
extern std::map<uint32_t, Counted> counted;
extern long progress;

void yield();
char* shared_at(uint32_t address, int bytes);
void run(dim3 grid, unsigned count, unsigned shared, const std::function<void()>& kernel);

// The last of n threads to come here does the work, and all go on.
template <class F>
void meet(Barrier& barrier, int n, F work) {
  const long before = barrier.passed;
  if (++barrier.arrived == n) {
    work();
    barrier.arrived = 0;
    ++barrier.passed;
    ++progress;
  } else {
    while (barrier.passed == before) yield();
  }
}
inline Barrier& warp() {
  return warps[threadIdx.x / 32];
}
inline Slot* lanes() {
  return &slots[threadIdx.x / 32 * 32];
}

}  // namespace emulated

inline void __syncthreads() {
  emulated::meet(emulated::block, static_cast<int>(emulated::threads.size()), [] {});
}
inline void __syncwarp() {
  emulated::meet(emulated::warp(), 32, [] {});
}
template <class T>
T __ldg(const T* p) {
  return *p;
}
inline uint32_t __float_as_uint(float x) {
  uint32_t y;
  std::memcpy(&y, &x, 4);
  return y;
}

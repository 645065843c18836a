// Products of four warps together, and copies of boxes, as the manual of PTX describes them; products are
// done when they start.
#pragma once

#include "cuda/attention/matrix.cuh"

namespace fl::cuda::matrix {

inline void start_products() {}
inline void end_products() {}
template <int kLeft>
void wait_for_products() {}
template <int kN>
void settle(float (&)[kN][4]) {}
inline void publish_shared() {}

inline uint64_t describe(uint32_t address, uint32_t plane = 16) {
  if (address % 1024) throw std::runtime_error("a tile is not aligned");
  return address >> 4 | uint64_t(plane) << 32;
}

template <bool kBrain>
float element(uint64_t tile, int row, int column) {
  const uint32_t start = (static_cast<uint32_t>(tile) << 4) + column / 64 * static_cast<uint32_t>(tile >> 32);
  const uint32_t plain = start + row * 128 + column % 64 * 2;
  uint16_t bits;
  std::memcpy(&bits, emulated::shared_at(plain ^ (plain >> 7 & 7) << 4, 2), 2);
  return widen<kBrain>(bits);
}

// `left` gives the element of a row and column of the left side.
template <bool kBrain, bool kTurned, int kN, class F>
void multiply_four(float (&c)[kN][4], uint64_t b, bool add, F left) {
  static float (*all[1024])[4];
  all[threadIdx.x] = c;
  auto* results = all + threadIdx.x / 128 * 128;
  emulated::meet(emulated::groups[threadIdx.x / 128], 128, [&] {
    for (int m = 0; m < 64; ++m)
      for (int n = 0; n < kN * 8; ++n) {
        float sum = 0;
        for (int k = 0; k < 16; ++k)
          sum += left(m, k) * (kTurned ? element<kBrain>(b, k, n) : element<kBrain>(b, n, k));
        float& to = results[m / 16 * 32 + m % 8 * 4 + n % 8 / 2][n / 8][m % 16 / 8 * 2 + n % 2];
        to = add ? to + sum : sum;
      }
  });
}
template <bool kBrain, int kN>
void multiply_group(float (&c)[kN][4], const uint32_t (&a)[4], uint64_t b) {
  static const uint32_t* all[1024];
  all[threadIdx.x] = a;
  const uint32_t** lefts = all + threadIdx.x / 128 * 128;
  multiply_four<kBrain, true>(c, b, true, [&](int m, int k) {
    const uint32_t* held = lefts[m / 16 * 32 + m % 8 * 4 + k % 8 / 2];
    return widen<kBrain>(held[m % 16 / 8 + k / 8 * 2] >> k % 2 * 16);
  });
}
template <bool kBrain, int kN>
void multiply_group(float (&c)[kN][4], uint64_t a, uint64_t b, bool add) {
  multiply_four<kBrain, false>(c, b, add, [&](int m, int k) { return element<kBrain>(a, m, k); });
}

// Boxes come when somebody waits for their barrier; their place is spoilt when they are sent for.
struct Box {
  const char* data;
  int64_t strides[3];
  int sizes[4], rows;
};
inline void make_barrier(uint32_t barrier, int arrivals) {
  emulated::shared_at(barrier, 8);
  emulated::counted[barrier] = {arrivals, arrivals};
}
inline void publish_barriers() {}
inline void arrive(uint32_t barrier) {
  emulated::counted.at(barrier).arrive();
}
inline void announce(uint32_t barrier, int bytes) {
  emulated::counted.at(barrier).bytes += bytes;
  arrive(barrier);
}
inline void await(uint32_t barrier, int turn) {
  emulated::Counted& b = emulated::counted.at(barrier);
  while ((b.passed & 1) == turn) {
    b.deliver();
    if ((b.passed & 1) == turn) emulated::yield();
  }
}
inline void copy_box(uint32_t to, const Box& box, int column, int row, int head, int batch,
                     uint32_t barrier) {
  if (to % 1024) throw std::runtime_error("a box is not aligned");
  for (int r = 0; r < box.rows; ++r) std::memset(emulated::shared_at(to + r * 128, 16), 0xff, 128);
  emulated::counted.at(barrier).boxes.push_back([=, &box] {
    const int place[] = {column, row, head, batch};
    for (int r = 0; r < box.rows; ++r)
      for (int c = 0; c < 64; ++c) {
        const bool exists = column + c < box.sizes[0] && row + r < box.sizes[1] && place[2] < box.sizes[2] &&
                            place[3] < box.sizes[3];
        const char* from = box.data + (row + r) * box.strides[0] + head * box.strides[1] +
                           batch * box.strides[2] + (column + c) * 2;
        const uint32_t plain = to + r * 128 + c * 2;
        char* at = emulated::shared_at(plain ^ (plain >> 7 & 7) << 4, 2);
        if (exists)
          std::memcpy(at, from, 2);
        else
          std::memset(at, 0, 2);
      }
    return box.rows * 128;
  });
}

template <int kRegisters>
void give_registers() {}
template <int kRegisters>
void take_registers() {}

}  // namespace fl::cuda::matrix

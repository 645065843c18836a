// The instructions of the device's header of this name, as the manual of PTX describes them.
#pragma once

#include "cuda/engine/device.cuh"

namespace fl::cuda::matrix {

using emulated::Slot;

inline uint32_t shared_memory() {
  return emulated::kShared;
}

template <bool kBrain>
float widen(uint32_t bits) {
  const uint16_t half = static_cast<uint16_t>(bits);
  return kBrain ? float(*reinterpret_cast<const BFloat16*>(&half))
                : float(*reinterpret_cast<const Half*>(&half));
}
template <bool kBrain>
uint32_t narrow(float x) {
  const BFloat16 brain(x);
  const Half half(x);
  uint16_t bits;
  std::memcpy(&bits, kBrain ? static_cast<const void*>(&brain) : &half, 2);
  return bits;
}
template <bool kBrain>
uint32_t round_pair(float x, float y) {
  return narrow<kBrain>(x) | narrow<kBrain>(y) << 16;
}
template <bool kBrain>
float2 widen_pair(uint32_t pair) {
  return {widen<kBrain>(pair & 0xffff), widen<kBrain>(pair >> 16)};
}

template <bool kBrain>
void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  Slot* lanes = emulated::lanes();
  Slot& mine = lanes[threadIdx.x % 32];
  std::memcpy(mine.a, a, sizeof a);
  std::memcpy(mine.c, c, sizeof c);
  mine.b[0] = b0;
  mine.b[1] = b1;
  emulated::meet(emulated::warp(), 32, [&] {
    float left[16][16], right[16][8];
    for (int i = 0; i < 32; ++i) {
      const int g = i / 4, t = i % 4;
      for (int half = 0; half < 2; ++half) {
        for (int e = 0; e < 4; ++e)
          left[g + e % 2 * 8][2 * t + e / 2 * 8 + half] = widen<kBrain>(lanes[i].a[e] >> 16 * half);
        for (int e = 0; e < 2; ++e)
          right[2 * t + 8 * e + half][g] = widen<kBrain>(lanes[i].b[e] >> 16 * half);
      }
    }
    for (int i = 0; i < 32; ++i)
      for (int e = 0; e < 4; ++e)
        for (int k = 0; k < 16; ++k)
          lanes[i].c[e] += left[i / 4 + e / 2 * 8][k] * right[k][i % 4 * 2 + e % 2];
  });
  std::memcpy(c, mine.c, sizeof c);
  __syncwarp();
}

// Raises also where eight rows of a tile share a bank: they would be read one after the other.
template <bool kTurned>
void load_four(uint32_t (&r)[4], uint32_t row) {
  Slot* lanes = emulated::lanes();
  Slot& mine = lanes[threadIdx.x % 32];
  mine.address = row;
  emulated::meet(emulated::warp(), 32, [&] {
    for (int tile = 0; tile < 4; ++tile) {
      unsigned banks = 0;
      for (int i = 0; i < 8; ++i) banks |= 1u << lanes[tile * 8 + i].address / 16 % 8;
      if (banks != 255) throw std::runtime_error("rows of a tile share a bank");
      for (int i = 0; i < 32; ++i) {
        uint16_t half[2];
        for (int k = 0; k < 2; ++k) {
          const int pair = i % 4 * 2 + k, from = kTurned ? pair : i / 4, column = kTurned ? i / 4 : pair;
          std::memcpy(&half[k], emulated::shared_at(lanes[tile * 8 + from].address, 16) + column * 2, 2);
        }
        lanes[i].a[tile] = half[0] | uint32_t(half[1]) << 16;
      }
    }
  });
  std::memcpy(r, mine.a, sizeof r);
  __syncwarp();
}
inline void load_tiles(uint32_t (&r)[4], uint32_t row) {
  load_four<false>(r, row);
}
inline void load_tiles_turned(uint32_t (&r)[4], uint32_t row) {
  load_four<true>(r, row);
}

inline float power_of_two(float x) {
  return std::exp2(x);
}

inline void start_copy(uint32_t to, const void* from, int bytes, bool exists) {
  std::memset(emulated::shared_at(to, bytes), 0xff, bytes);
  emulated::threads[threadIdx.x].copies.push_back({to, static_cast<const char*>(from), bytes, exists});
}
inline void copy_async(uint32_t to, const char* from, bool exists) {
  start_copy(to, from, 16, exists);
}
inline void copy_async_float(uint32_t to, const float* from, bool exists) {
  start_copy(to, from, 4, exists);
}
inline void wait_for_copies() {
  auto& copies = emulated::threads[threadIdx.x].copies;
  for (const auto& copy : copies) {
    char* to = emulated::shared_at(copy.to, copy.bytes);
    if (copy.exists)
      std::memcpy(to, copy.from, copy.bytes);
    else
      std::memset(to, 0, copy.bytes);
  }
  copies.clear();
}

template <class T>
T get_shared(uint32_t from) {
  T x;
  std::memcpy(&x, emulated::shared_at(from, sizeof x), sizeof x);
  return x;
}
inline void put_shared(uint32_t to, uint32_t x) {
  std::memcpy(emulated::shared_at(to, 4), &x, 4);
}
inline float get_shared_float(uint32_t from) {
  return get_shared<float>(from);
}
inline float2 get_shared_pair(uint32_t from) {
  return get_shared<float2>(from);
}
inline uint4 get_shared_vector(uint32_t from) {
  return get_shared<uint4>(from);
}

}  // namespace fl::cuda::matrix

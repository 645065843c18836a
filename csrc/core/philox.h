// Philox4x32-10, the counter-based generator behind every random number. A number is a function of (seed,
// offset, element index) alone: the same on any device, with any number of threads, in eager and in compiled
// code.
//
// The stream of one call, (seed, offset), is a sequence of 32-bit words in groups of 64. A group is made from
// sixteen blocks of four words; word e of group g is word e / 16 of block 16 g + e % 16, so that sixteen (or
// twice eight) lanes of a vector unit make a group without shuffling. Numbers that need 64 bits use words e
// and e + 16 of their group. This header stands alone: generated code may include it.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define FL_PHILOX __host__ __device__ inline
#else
#define FL_PHILOX inline
#endif

namespace fl {
namespace philox {

constexpr uint32_t kMultiplier0 = 0xD2511F53u, kMultiplier1 = 0xCD9E8D57u;
constexpr uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
constexpr int kRounds = 10;
constexpr int64_t kGroup = 64;  // words
constexpr int64_t kLanes = 16;  // blocks in a group

struct Block {
  uint32_t w[4];
};

FL_PHILOX Block block(uint64_t seed, uint64_t offset, uint64_t index) {
  uint32_t c0 = static_cast<uint32_t>(index), c1 = static_cast<uint32_t>(index >> 32);
  uint32_t c2 = static_cast<uint32_t>(offset), c3 = static_cast<uint32_t>(offset >> 32);
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int r = 0; r < kRounds; ++r) {
    const uint64_t p0 = uint64_t(kMultiplier0) * c0, p1 = uint64_t(kMultiplier1) * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0,
                   n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
  return {{c0, c1, c2, c3}};
}

// Word of element i, for numbers made from one word each.
FL_PHILOX uint32_t word(uint64_t seed, uint64_t offset, int64_t i) {
  const int64_t e = i % kGroup;
  return block(seed, offset, i / kGroup * kLanes + e % kLanes).w[e / kLanes];
}

// Words of element i, for numbers made from two words each: 32 elements to a group.
FL_PHILOX uint64_t word64(uint64_t seed, uint64_t offset, int64_t i) {
  const int64_t e = i % (kGroup / 2);
  const Block b = block(seed, offset, i / (kGroup / 2) * kLanes + e % kLanes);
  const int64_t at = e / kLanes * 2;
  return uint64_t(b.w[at]) << 32 | b.w[at + 1];
}

// A stream of its own for one element, for distributions that reject: draws of different elements never meet
// as long as a tensor has fewer than 2**40 elements and an element takes fewer than 2**24 blocks.
class Stream {
 public:
  FL_PHILOX Stream(uint64_t seed, uint64_t offset, int64_t element)
      : seed_(seed), offset_(offset), element_(element) {}
  FL_PHILOX uint32_t next() {
    if (used_ == 4) {
      block_ = block(seed_, offset_, element_ | draw_++ << 40);
      used_ = 0;
    }
    return block_.w[used_++];
  }
  // In the open interval (0, 1).
  FL_PHILOX double uniform() {
    const uint64_t high = next(), low = next();
    return (static_cast<double>((high << 32 | low) >> 12) + 0.5) * 0x1p-52;
  }

 private:
  uint64_t seed_, offset_, element_, draw_ = 0;
  int used_ = 4;
  Block block_{};
};

}  // namespace philox
}  // namespace fl

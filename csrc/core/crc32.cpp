// CRC-32 (reflected polynomial 0xEDB88320): by carry-less multiplication where the processor has it, so that
// the checksum of a checkpoint costs less than writing it; else by tables, eight bytes at a time.
#include "core/crc32.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace fl {

namespace {

constexpr uint32_t kPolynomial = 0xEDB88320u;

// tables[k][b]: the effect of byte b followed by k zero bytes.
using Tables = std::array<std::array<uint32_t, 256>, 8>;
constexpr Tables make_tables() {
  Tables t{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t c = b;
    for (int i = 0; i < 8; ++i) c = (c & 1) ? (c >> 1) ^ kPolynomial : c >> 1;
    t[0][b] = c;
  }
  for (int k = 1; k < 8; ++k)
    for (uint32_t b = 0; b < 256; ++b) t[k][b] = (t[k - 1][b] >> 8) ^ t[0][t[k - 1][b] & 0xff];
  return t;
}
constexpr Tables kTables = make_tables();

// On the inverted register.
uint32_t by_tables(uint32_t c, const uint8_t* p, size_t n) {
  for (; n >= 8; p += 8, n -= 8) {
    uint64_t x;
    std::memcpy(&x, p, 8);
    x ^= c;
    c = 0;
    for (int k = 0; k < 8; ++k) c ^= kTables[7 - k][(x >> (8 * k)) & 0xff];
  }
  for (; n; ++p, --n) c = (c >> 8) ^ kTables[0][(c ^ *p) & 0xff];
  return c;
}

#if defined(__x86_64__)
// Folds 64 bytes at a time into four registers, those into one, and that by Barrett reduction into 32 bits.
// The constants are powers of x modulo the polynomial, bit-reflected. Needs at least 64 bytes, a multiple
// of 16.
__attribute__((target("pclmul,sse4.1"))) uint32_t by_folding(uint32_t c, const uint8_t* p, size_t n) {
  const __m128i by_64 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);
  const __m128i by_16 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
  const auto load = [](const uint8_t* at) __attribute__((target("pclmul,sse4.1"))) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  };
  const auto fold = [](__m128i x, __m128i k, __m128i next) __attribute__((target("pclmul,sse4.1"))) {
    const __m128i low = _mm_clmulepi64_si128(x, k, 0x00), high = _mm_clmulepi64_si128(x, k, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
  };
  __m128i x0 = _mm_xor_si128(load(p), _mm_cvtsi32_si128(static_cast<int>(c)));
  __m128i x1 = load(p + 16), x2 = load(p + 32), x3 = load(p + 48);
  p += 64;
  n -= 64;
  for (; n >= 64; p += 64, n -= 64) {
    x0 = fold(x0, by_64, load(p));
    x1 = fold(x1, by_64, load(p + 16));
    x2 = fold(x2, by_64, load(p + 32));
    x3 = fold(x3, by_64, load(p + 48));
  }
  x0 = fold(x0, by_16, x1);
  x0 = fold(x0, by_16, x2);
  x0 = fold(x0, by_16, x3);
  for (; n >= 16; p += 16, n -= 16) x0 = fold(x0, by_16, load(p));
  // 128 bits to 64.
  const __m128i low_32 = _mm_set_epi32(0, 0, 0, -1);
  __m128i folded = _mm_clmulepi64_si128(x0, by_16, 0x10);
  x0 = _mm_xor_si128(_mm_srli_si128(x0, 8), folded);
  const __m128i by_4 = _mm_set_epi64x(0, 0x163cd6124);
  folded = _mm_clmulepi64_si128(_mm_and_si128(x0, low_32), by_4, 0x00);
  x0 = _mm_xor_si128(_mm_srli_si128(x0, 4), folded);
  // Barrett: the polynomial and the inverse of it.
  const __m128i barrett = _mm_set_epi64x(0x1f7011641, 0x1db710641);
  __m128i t = _mm_clmulepi64_si128(_mm_and_si128(x0, low_32), barrett, 0x10);
  t = _mm_clmulepi64_si128(_mm_and_si128(t, low_32), barrett, 0x00);
  return static_cast<uint32_t>(_mm_extract_epi32(_mm_xor_si128(t, x0), 1));
}
#endif

}  // namespace

namespace {

constexpr uint32_t kCastagnoli = 0x82F63B78u;

uint32_t castagnoli_by_table(uint32_t c, const uint8_t* p, size_t n) {
  static const auto table = [] {
    std::array<uint32_t, 256> t{};
    for (uint32_t b = 0; b < 256; ++b) {
      uint32_t x = b;
      for (int i = 0; i < 8; ++i) x = (x & 1) ? (x >> 1) ^ kCastagnoli : x >> 1;
      t[b] = x;
    }
    return t;
  }();
  for (; n; ++p, --n) c = (c >> 8) ^ table[(c ^ *p) & 0xff];
  return c;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t castagnoli_by_instruction(uint32_t c, const uint8_t* p, size_t n) {
  uint64_t wide = c;
  for (; n >= 8; p += 8, n -= 8) {
    uint64_t x;
    std::memcpy(&x, p, 8);
    wide = _mm_crc32_u64(wide, x);
  }
  c = static_cast<uint32_t>(wide);
  for (; n; ++p, --n) c = _mm_crc32_u8(c, *p);
  return c;
}
#endif

}  // namespace

uint32_t crc32c(uint32_t crc, const void* data, size_t bytes) {
  const auto* p = static_cast<const uint8_t*>(data);
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  if (has_instruction) return ~castagnoli_by_instruction(~crc, p, bytes);
#endif
  return ~castagnoli_by_table(~crc, p, bytes);
}

uint32_t crc32(uint32_t crc, const void* data, size_t bytes) {
  const auto* p = static_cast<const uint8_t*>(data);
  uint32_t c = ~crc;
#if defined(__x86_64__)
  static const bool folds = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
  if (folds && bytes >= 64) {
    const size_t whole = bytes & ~size_t(15);
    c = by_folding(c, p, whole);
    p += whole;
    bytes -= whole;
  }
#endif
  return ~by_tables(c, p, bytes);
}

}  // namespace fl

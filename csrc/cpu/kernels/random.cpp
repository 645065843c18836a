// Philox words by vector, and the loops that turn them into numbers. See core/philox.h for the order of the
// words.
#include "cpu/random/table.h"

#include <algorithm>
#include <type_traits>

#include "core/philox.h"
#include "math/random_math.h"

#if defined(__AVX2__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 warns of its own intrinsics
#include <immintrin.h>
#endif

namespace fl {
namespace FL_ARCH {
namespace {

using namespace philox;
using namespace random_math;

// ---------------------------------------------------------------- words

#if defined(__AVX512F__)
struct Vector {
  static constexpr int lanes = 16;
  __m512i v;
  static Vector load(const uint32_t* p) { return {_mm512_loadu_si512(p)}; }
  static Vector splat(uint32_t x) { return {_mm512_set1_epi32(static_cast<int>(x))}; }
  void store(uint32_t* p) const { _mm512_storeu_si512(p, v); }
  friend Vector operator^(Vector a, Vector b) { return {_mm512_xor_si512(a.v, b.v)}; }
};
inline void multiply(Vector x, Vector m, Vector& high, Vector& low) {
  const __m512i even = _mm512_mul_epu32(x.v, m.v), odd = _mm512_mul_epu32(_mm512_srli_epi64(x.v, 32), m.v);
  high.v = _mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64(even, 32), odd);
  low.v = _mm512_mask_blend_epi32(0xAAAA, even, _mm512_slli_epi64(odd, 32));
}
#elif defined(__AVX2__)
struct Vector {
  static constexpr int lanes = 8;
  __m256i v;
  static Vector load(const uint32_t* p) { return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))}; }
  static Vector splat(uint32_t x) { return {_mm256_set1_epi32(static_cast<int>(x))}; }
  void store(uint32_t* p) const { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v); }
  friend Vector operator^(Vector a, Vector b) { return {_mm256_xor_si256(a.v, b.v)}; }
};
inline void multiply(Vector x, Vector m, Vector& high, Vector& low) {
  const __m256i even = _mm256_mul_epu32(x.v, m.v), odd = _mm256_mul_epu32(_mm256_srli_epi64(x.v, 32), m.v);
  high.v = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
  low.v = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
}
#else
struct Vector {
  static constexpr int lanes = 1;
  uint32_t v;
  static Vector load(const uint32_t* p) { return {*p}; }
  static Vector splat(uint32_t x) { return {x}; }
  void store(uint32_t* p) const { *p = v; }
  friend Vector operator^(Vector a, Vector b) { return {a.v ^ b.v}; }
};
inline void multiply(Vector x, Vector m, Vector& high, Vector& low) {
  const uint64_t p = uint64_t(x.v) * m.v;
  high.v = static_cast<uint32_t>(p >> 32);
  low.v = static_cast<uint32_t>(p);
}
#endif

void words(uint64_t seed, uint64_t offset, int64_t group, int64_t groups, uint32_t* out) {
  constexpr int kParts = static_cast<int>(kLanes) / Vector::lanes;
  const Vector m0 = Vector::splat(kMultiplier0), m1 = Vector::splat(kMultiplier1);
  for (int64_t g = group; g < group + groups; ++g, out += kGroup) {
    alignas(64) uint32_t low[kLanes];
    const uint64_t first =
        static_cast<uint64_t>(g) * kLanes;  // sixteen blocks never carry into the high word
    for (int l = 0; l < kLanes; ++l) low[l] = static_cast<uint32_t>(first) + l;
    for (int part = 0; part < kParts; ++part) {
      Vector c0 = Vector::load(low + part * Vector::lanes),
             c1 = Vector::splat(static_cast<uint32_t>(first >> 32));
      Vector c2 = Vector::splat(static_cast<uint32_t>(offset)),
             c3 = Vector::splat(static_cast<uint32_t>(offset >> 32));
      uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
#pragma GCC unroll 10
      for (int r = 0; r < kRounds; ++r) {
        Vector h0, l0, h1, l1;
        multiply(c0, m0, h0, l0);
        multiply(c2, m1, h1, l1);
        c0 = h1 ^ c1 ^ Vector::splat(k0);
        c2 = h0 ^ c3 ^ Vector::splat(k1);
        c1 = l1;
        c3 = l0;
        k0 += kWeyl0;
        k1 += kWeyl1;
      }
      uint32_t* at = out + part * Vector::lanes;
      c0.store(at);
      c1.store(at + kLanes);
      c2.store(at + 2 * kLanes);
      c3.store(at + 3 * kLanes);
    }
  }
}

// ---------------------------------------------------------------- uniform numbers

// Calls f(e, high, low) for elements made of two words.
template <class F>
inline void for_pairs(const uint32_t* w, int64_t n, const F& f) {
  for (int64_t first = 0; first < n; first += kGroup / 2, w += kGroup) {
    for (int64_t half = 0; half < 2; ++half) {
      const int64_t start = first + half * kLanes;
      const int64_t count = std::min<int64_t>(kLanes, n - start);
      const uint32_t *high = w + half * 2 * kLanes, *low = high + kLanes;
      if (count == kLanes) {
#pragma GCC ivdep
        for (int64_t l = 0; l < kLanes; ++l) f(start + l, high[l], low[l]);
      } else {
        for (int64_t l = 0; l < count; ++l) f(start + l, high[l], low[l]);
      }
    }
  }
}

void uniform_float(const uint32_t* w, int64_t n, const RandomParams& p, void* out) {
  float* o = static_cast<float*>(out);
  const float low = static_cast<float>(p.a), high = static_cast<float>(p.b), range = high - low;
  const int shift = 32 - p.bits;
  const float scale = 1.0f / static_cast<float>(int64_t(1) << p.bits);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const float x = unit(w[i], shift, scale) * range + low;
    o[i] = x < high ? x : low;  // rounding may reach the open end
  }
}
void uniform_double(const uint32_t* w, int64_t n, const RandomParams& p, void* out) {
  double* o = static_cast<double*>(out);
  const double low = p.a, high = p.b, range = high - low;
  for_pairs(w, n, [=](int64_t i, uint32_t h, uint32_t l) {
    const double x = unit(h, l) * range + low;
    o[i] = x < high ? x : low;
  });
}

// ---------------------------------------------------------------- normal numbers (Box and Muller)

template <class Store>
inline void normal_float_groups(const uint32_t* w, int64_t n, const RandomParams& p, float* o,
                                const Store& store) {
  const float mean = static_cast<float>(p.a), deviation = static_cast<float>(p.b);
  const auto pairs = [&](const uint32_t* u, float* to) {
    for (int64_t half = 0; half < 2; ++half) {
      const uint32_t *first = u + half * 2 * kLanes, *second = first + kLanes;
      float *a = to + half * 2 * kLanes, *b = a + kLanes;
#pragma GCC ivdep
      for (int64_t l = 0; l < kLanes; ++l) {
        const float radius = math::detail::sqrt_of(-2.0f * math::log(positive_unit(first[l]))) * deviation;
        float s, c;
        sin_cos_turns(unit(second[l], 8, 0x1p-24f), s, c);
        a[l] = store(radius * c + mean);
        b[l] = store(radius * s + mean);
      }
    }
  };
  int64_t at = 0;
  for (; at + kGroup <= n; at += kGroup) pairs(w + at, o + at);
  if (at < n) {
    alignas(64) float rest[kGroup];
    pairs(w + at, rest);
    std::copy(rest, rest + (n - at), o + at);
  }
}
template <class Store>
inline void normal_double_groups(const uint32_t* w, int64_t n, const RandomParams& p, double* o,
                                 const Store& store) {
  const double mean = p.a, deviation = p.b;
  const auto pairs = [&](const uint32_t* u, double* to) {
#pragma GCC ivdep
    for (int64_t l = 0; l < kLanes; ++l) {
      const double radius =
          math::detail::sqrt_of(-2.0 * math::log(positive_unit(u[l], u[kLanes + l]))) * deviation;
      double s, c;
      sin_cos_turns(unit(u[2 * kLanes + l], u[3 * kLanes + l]), s, c);
      to[l] = store(radius * c + mean);
      to[kLanes + l] = store(radius * s + mean);
    }
  };
  constexpr int64_t step = kGroup / 2;
  int64_t at = 0;
  for (; at + step <= n; at += step, w += kGroup) pairs(w, o + at);
  if (at < n) {
    double rest[step];
    pairs(w, rest);
    std::copy(rest, rest + (n - at), o + at);
  }
}

void normal_float(const uint32_t* w, int64_t n, const RandomParams& p, void* out) {
  normal_float_groups(w, n, p, static_cast<float*>(out), [](float x) { return x; });
}
void normal_double(const uint32_t* w, int64_t n, const RandomParams& p, void* out) {
  normal_double_groups(w, n, p, static_cast<double*>(out), [](double x) { return x; });
}
void log_normal_float(const uint32_t* w, int64_t n, const RandomParams& p, void* out) {
  normal_float_groups(w, n, p, static_cast<float*>(out), [](float x) { return math::exp(x); });
}
void log_normal_double(const uint32_t* w, int64_t n, const RandomParams& p, void* out) {
  normal_double_groups(w, n, p, static_cast<double*>(out), [](double x) { return math::exp(x); });
}

// ---------------------------------------------------------------- the rest, by inversion

void exponential_float(const uint32_t* w, int64_t n, const RandomParams& p, void* out) {
  float* o = static_cast<float*>(out);
  const float scale = static_cast<float>(-1.0 / p.a);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    // Strictly inside (0, 1), so that the result is never zero.
    const float u = (static_cast<float>(static_cast<int32_t>(w[i] >> 9)) + 0.5f) * 0x1p-23f;
    o[i] = math::log(u) * scale;
  }
}
void exponential_double(const uint32_t* w, int64_t n, const RandomParams& p, void* out) {
  double* o = static_cast<double*>(out);
  const double scale = -1.0 / p.a;
  for_pairs(w, n, [=](int64_t i, uint32_t h, uint32_t l) { o[i] = math::log(unit(h, l) + 0x1p-54) * scale; });
}
void cauchy_float(const uint32_t* w, int64_t n, const RandomParams& p, void* out) {
  float* o = static_cast<float*>(out);
  const float median = static_cast<float>(p.a), sigma = static_cast<float>(p.b);
  for (int64_t i = 0; i < n; ++i) {
    float s, c;
    sin_cos_turns((static_cast<float>(static_cast<int32_t>(w[i] >> 9)) + 0.5f) * 0x1p-24f, s,
                  c);  // half a turn
    o[i] = median + sigma * (-c / s);
  }
}
void cauchy_double(const uint32_t* w, int64_t n, const RandomParams& p, void* out) {
  double* o = static_cast<double*>(out);
  const double median = p.a, sigma = p.b;
  for_pairs(w, n, [=](int64_t i, uint32_t h, uint32_t l) {
    double s, c;
    sin_cos_turns((unit(h, l) + 0x1p-53) * 0.5, s, c);
    o[i] = median + sigma * (-c / s);
  });
}
void geometric(const uint32_t* w, int64_t n, const RandomParams& p, void* out) {
  double* o = static_cast<double*>(out);
  const double scale = 1.0 / math::log1p(-p.a);
  for_pairs(w, n, [=](int64_t i, uint32_t h, uint32_t l) {
    const double x = __builtin_ceil(math::log(positive_unit(h, l)) * scale);
    o[i] = x < 1 ? 1 : x;
  });
}

void range32(const uint32_t* w, int64_t n, const RandomParams& p, void* out) {
  int64_t* o = static_cast<int64_t*>(out);
  const uint64_t range = p.range;
  const int64_t low = p.low;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) o[i] = low + static_cast<int64_t>(w[i] * range >> 32);
}
void range64(const uint32_t* w, int64_t n, const RandomParams& p, void* out) {
  int64_t* o = static_cast<int64_t*>(out);
  const uint64_t range = p.range;  // 0 stands for 2**64
  const uint64_t low = static_cast<uint64_t>(p.low);
  for_pairs(w, n, [=](int64_t i, uint32_t h, uint32_t l) {
    const uint64_t x = uint64_t(h) << 32 | l;
    const uint64_t inside =
        range ? static_cast<uint64_t>(static_cast<unsigned __int128>(x) * range >> 64) : x;
    o[i] = static_cast<int64_t>(low + inside);
  });
}
void bernoulli(const uint32_t* w, int64_t n, const RandomParams& p, void* out) {
  bool* o = static_cast<bool*>(out);
  if (p.range > 0xffffffffull) {
    std::fill(o, o + n, true);
    return;
  }
  const uint32_t threshold = static_cast<uint32_t>(p.range);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) o[i] = w[i] < threshold;
}

}  // namespace

extern const RandomTable random_table;
const RandomTable random_table = {
    words,
    {uniform_float, uniform_double},
    {normal_float, normal_double},
    {exponential_float, exponential_double},
    {cauchy_float, cauchy_double},
    {log_normal_float, log_normal_double},
    geometric,
    range32,
    range64,
    bernoulli,
};

}  // namespace FL_ARCH
}  // namespace fl

// Convolutions of bfloat16 with 3 x 3 kernels by Winograd's F(2 x 2, 3 x 3), for processors that multiply
// pairs of 16-bit integers as quickly as pairs of bfloat16.
//
// Sums of four activations have too many digits for bfloat16: its rounding would double the error of the
// result. As integers they are exact. The activations of a strip are multiplied by a power of two that makes
// them integers of at most 13 bits and a sign; those above 1/32 of the largest stay exactly what they are.
// Transformed kernels become integers as large as 32-bit sums of kDepth channels allow, one scale for each
// output channel. Those sums are added up as floats.
#include "cpu/convolution/winograd_pairs.h"

#include <atomic>
#include <climits>
#include <cmath>

#include "cpu/gemm/bfloat16_lanes.h"

#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 warns of its own intrinsics
#pragma GCC diagnostic ignored "-Wuninitialized"

namespace fl::cpu::winograd {

#ifdef FL_X86
namespace {

#define FL_PAIRS __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma")))

constexpr int64_t kLanes = 32;  // channels that are transformed together
constexpr int64_t kDepth = 128;
constexpr int kBits = 13;  // of activations as integers; four of them fit in 16 bits
constexpr int64_t kLargest = int64_t(4) << kBits;
constexpr int64_t kStrip = 8;     // tiles whose activations have a factor in common
constexpr int kLeastDigits = 64;  // the root mean square, as an integer, of activations under a result
constexpr Limits kLimits{kDepth, 500'000, 2, kStrip};
constexpr int kMostShift = 40;  // of powers of two, so that squares stay within float's range

int64_t panel_units(int64_t outputs, int64_t channels) {
  return kPlaces * (channels / 2) * round_up(outputs, word_units()->width);
}

// ---- kernels -----------------------------------------------------------------------------------

// 4 G g G', which is exact.
void transform_kernel(const BFloat16* taps, double to[kPlaces]) {
  double half[kSide][3];
  for (int j = 0; j < 3; ++j) {
    const double a = float(taps[j]), b = float(taps[3 + j]), c = float(taps[6 + j]);
    half[0][j] = 2 * a, half[1][j] = a + b + c, half[2][j] = a - b + c, half[3][j] = 2 * c;
  }
  for (int i = 0; i < kSide; ++i) {
    const double a = half[i][0], b = half[i][1], c = half[i][2];
    double* const line = to + i * kSide;
    line[0] = 2 * a, line[1] = a + b + c, line[2] = a - b + c, line[3] = 2 * c;
  }
}

// The factor that makes integers of the numbers of an output's kernels, so that no sum overflows.
double scale_of(const BFloat16* kernels, int64_t channels) {
  double sums[kPlaces] = {}, most_sum = 0, most = 0;
  for (int64_t c = 0; c < channels; ++c) {
    if (c % kDepth == 0) std::fill_n(sums, kPlaces, 0.0);
    double values[kPlaces];
    transform_kernel(kernels + c * 9, values);
    for (int64_t p = 0; p < kPlaces; ++p) {
      if (!std::isfinite(values[p])) return HUGE_VAL;
      sums[p] += std::fabs(values[p]);
      most_sum = std::max(most_sum, sums[p]), most = std::max(most, std::fabs(values[p]));
    }
  }
  const double limit = double(INT32_MAX) / double(kLargest) - double(kDepth) / 2;  // rounding adds halves
  return most > 0 ? std::min(limit / most_sum, INT16_MAX / most) : 1;
}

// ---- activations -------------------------------------------------------------------------------

using Bits = uint16_t[kLanes];

// Raises `largest`, bits without sign, to those of pixels that lie one after the other; the sum of the
// squares of each.
FL_PAIRS void measure(const BFloat16* from, int64_t pixels, int64_t channels, Bits& largest, float* squares) {
  __m512i most = _mm512_loadu_si512(largest);
  for (int64_t i = 0; i < pixels; ++i) {
    __m512 sums = _mm512_setzero_ps();
    for (int64_t c = 0; c < channels; c += kLanes) {
      const __m512i x = _mm512_loadu_si512(from + i * channels + c);
      most = _mm512_max_epu16(most, _mm512_and_si512(x, _mm512_set1_epi16(0x7fff)));
      sums = _mm512_dpbf16_ps(sums, (__m512bh)x, (__m512bh)x);
    }
    squares[i] = _mm512_reduce_add_ps(sums);
  }
  _mm512_storeu_si512(largest, most);
}

FL_PAIRS inline __m256i half_as_integers(const BFloat16* from, __m512 scale) {
  constexpr __mmask16 kAll = 0xffff;
  return _mm512_maskz_cvtepi32_epi16(
      kAll, _mm512_maskz_cvtps_epi32(kAll, _mm512_mul_ps(load_widened(from, kAll), scale)));
}

// Zeros for null.
FL_PAIRS inline __m512i as_integers(const BFloat16* from, __m512 scale) {
  if (!from) return _mm512_setzero_si512();
  const __m512i low = _mm512_castsi256_si512(half_as_integers(from, scale));
  return _mm512_maskz_inserti64x4(0xff, low, half_as_integers(from + kLanes / 2, scale), 1);
}

// Four positions of a column of the image to the four lines of B' d.
FL_PAIRS void transform_column(const BFloat16* const positions[kSide], int64_t channels, float scale,
                               int16_t* to, int64_t line) {
  const __m512 factor = _mm512_set1_ps(scale);
  for (int64_t c = 0; c < channels; c += kLanes) {
    const __m512i a = as_integers(positions[0] ? positions[0] + c : nullptr, factor),
                  b = as_integers(positions[1] ? positions[1] + c : nullptr, factor),
                  e = as_integers(positions[2] ? positions[2] + c : nullptr, factor),
                  f = as_integers(positions[3] ? positions[3] + c : nullptr, factor);
    _mm512_storeu_si512(to + c, _mm512_sub_epi16(a, e));
    _mm512_storeu_si512(to + line + c, _mm512_add_epi16(b, e));
    _mm512_storeu_si512(to + 2 * line + c, _mm512_sub_epi16(e, b));
    _mm512_storeu_si512(to + 3 * line + c, _mm512_sub_epi16(b, f));
  }
}

// Lines of columns to the places of tiles, (B' d) B.
FL_PAIRS void transform_lines(const int16_t* columns, int64_t channels, int64_t line, int16_t* to,
                              int64_t place) {
  for (int64_t i = 0; i < kSide; ++i)
    for (int64_t c = 0; c < channels; c += kLanes) {
      const int16_t* at = columns + i * line + c;
      const __m512i a = _mm512_loadu_si512(at), b = _mm512_loadu_si512(at + channels),
                    e = _mm512_loadu_si512(at + 2 * channels), f = _mm512_loadu_si512(at + 3 * channels);
      int16_t* const places = to + i * kSide * place + c;
      _mm512_storeu_si512(places, _mm512_sub_epi16(a, e));
      _mm512_storeu_si512(places + place, _mm512_add_epi16(b, e));
      _mm512_storeu_si512(places + 2 * place, _mm512_sub_epi16(e, b));
      _mm512_storeu_si512(places + 3 * place, _mm512_sub_epi16(b, f));
    }
}

class Activations {
 public:
  Activations(const Planes& planes, const BFloat16* data) : p_(planes), data_(data) {}

  // Returns the inverse of the factor.
  float read(const Strip& strip, int16_t* to, int64_t row, int64_t place) const {
    const int64_t columns = kOutputs * strip.tiles + 2, line = columns * p_.channels;
    const int shift = shift_of(strip, columns);
    auto* lines = static_cast<int16_t*>(scratch(1).get(size_t(kSide * line) * sizeof(int16_t)));
    for (int64_t x = 0; x < columns; ++x) {
      const BFloat16* positions[kSide];
      for (int64_t i = 0; i < kSide; ++i) positions[i] = at(strip, i, x);
      transform_column(positions, p_.channels, std::ldexp(1.0f, shift), lines + x * p_.channels, line);
    }
    for (int64_t t = 0; t < strip.tiles; ++t)
      transform_lines(lines + kOutputs * t * p_.channels, p_.channels, line, to + t * row, place);
    return std::ldexp(1.0f, -shift);
  }

  bool fits() const { return fits_.load(std::memory_order_relaxed); }

 private:
  // A position of the image under a strip, null outside of it.
  const BFloat16* at(const Strip& strip, int64_t row, int64_t column) const {
    const int64_t y = strip.y * kOutputs - p_.padding[0] + row;
    const int64_t x = strip.x * kOutputs - p_.padding[1] + column;
    const bool inside = p_.inside(0, y) && p_.inside(1, x);
    return inside ? data_ + ((strip.image * p_.in[0] + y) * p_.in[1] + x) * p_.channels : nullptr;
  }

  // The power of two for a strip.
  int shift_of(const Strip& strip, int64_t columns) const {
    float squares[kSide][kOutputs * kStrip + 2] = {};
    Bits bits = {};
    const int64_t x0 = strip.x * kOutputs - p_.padding[1];
    const int64_t first = std::clamp<int64_t>(-x0, 0, columns), last = std::min(columns, p_.in[1] - x0);
    for (int64_t i = 0; i < kSide; ++i)
      if (const BFloat16* from = first < last ? at(strip, i, first) : nullptr)
        measure(from, last - first, p_.channels, bits, squares[i] + first);
    BFloat16 largest;
    std::memcpy(&largest, std::max_element(bits, bits + kLanes), sizeof largest);
    const float peak = float(largest);
    if (peak == 0) return 0;
    const int shift = std::isfinite(peak) ? kBits - 1 - std::ilogb(peak) : INT_MAX;
    const bool fits = std::abs(shift) <= kMostShift &&
                      digits_suffice(squares, columns, std::ldexp(float(kLeastDigits), -shift));
    if (!fits) fits_.store(false, std::memory_order_relaxed);
    return fits ? shift : 0;
  }

  // Whether the root mean square of the activations under each result is at least so much, or zero.
  bool digits_suffice(const float (&squares)[kSide][kOutputs * kStrip + 2], int64_t columns,
                      float least) const {
    const float least_sum = least * least * 9 * float(p_.channels);
    bool suffices = true;
    for (int64_t i = 0; i < kOutputs; ++i)
      for (int64_t j = 0; j + 2 < columns; ++j) {
        float sum = 0;
        for (int64_t t = 0; t < 9; ++t) sum += squares[i + t / 3][j + t % 3];
        suffices &= sum >= least_sum || sum == 0;
      }
    return suffices;
  }

  const Planes& p_;
  const BFloat16* data_;
  mutable std::atomic<bool> fits_{true};
};

// ---- results -----------------------------------------------------------------------------------

class Results {
 public:
  Results(const Planes& planes, const PairFinish& finish, const float* inverses, int64_t width)
      : p_(planes), finish_(finish), inverses_(inverses), width_(width) {}

  FL_PAIRS void write(const Strip& strip, const void* products, int64_t place, int64_t column,
                      int64_t used) const {
    for (int64_t t = 0; t < strip.tiles; ++t)
      for (int64_t c = 0; c < used; c += 16) {
        const auto lanes = __mmask16(used - c >= 16 ? 0xffff : (1u << (used - c)) - 1);
        write_tile(strip, t, static_cast<const float*>(products) + t * width_ + c, place, column + c, lanes);
      }
  }

 private:
  FL_PAIRS void write_tile(const Strip& strip, int64_t tile, const float* products, int64_t place,
                           int64_t column, __mmask16 lanes) const {
    __m512 half[kOutputs][kSide];
    for (int64_t j = 0; j < kSide; ++j) {
      const __m512 a = _mm512_loadu_ps(products + j * place),
                   b = _mm512_loadu_ps(products + (kSide + j) * place),
                   c = _mm512_loadu_ps(products + (2 * kSide + j) * place),
                   d = _mm512_loadu_ps(products + (3 * kSide + j) * place);
      half[0][j] = _mm512_add_ps(_mm512_add_ps(a, b), c);
      half[1][j] = _mm512_sub_ps(_mm512_sub_ps(b, c), d);
    }
    const __m512 factor =
        _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, inverses_ + column), _mm512_set1_ps(strip.told));
    const __m512 offset = _mm512_maskz_loadu_ps(lanes, finish_.offset + column);
    const int64_t y0 = strip.y * kOutputs, x0 = (strip.x + tile) * kOutputs;
    for (int64_t i = 0; i < kOutputs && y0 + i < p_.out[0]; ++i)
      for (int64_t j = 0; j < kOutputs && x0 + j < p_.out[1]; ++j) {
        const __m512* h = half[i];
        const __m512 sum = j == 0 ? _mm512_add_ps(_mm512_add_ps(h[0], h[1]), h[2])
                                  : _mm512_sub_ps(_mm512_sub_ps(h[1], h[2]), h[3]);
        const int64_t pixel = (strip.image * p_.out[0] + y0 + i) * p_.out[1] + x0 + j;
        __m512 x = _mm512_fmadd_ps(sum, factor, offset);
        if (finish_.residual)
          x = _mm512_add_ps(x, load_widened(finish_.residual + pixel * p_.outputs + column, lanes));
        if (finish_.relu) x = _mm512_max_ps(_mm512_setzero_ps(), x);  // NaN stays
        store_rounded(finish_.output + pixel * p_.outputs + column, x, lanes);
      }
  }

  const Planes& p_;
  const PairFinish& finish_;
  const float* inverses_;  // of the scales of kernels, times what follows the sums
  const int64_t width_;
};

}  // namespace

int64_t packed_pair_units(int64_t outputs, int64_t channels) {
  const bool fits = word_units() && channels > 0 && channels % kLanes == 0 && outputs > 0;
  return fits ? outputs + panel_units(outputs, channels) : 0;
}

void pack_pair_kernels(const BFloat16* kernels, int64_t outputs, int64_t channels, uint32_t* to) {
  std::vector<double> scales(static_cast<size_t>(outputs));
  parallel_for(outputs, 1, [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      const double scale = scale_of(kernels + o * channels * 9, channels);
      const auto inverse = float(1 / (4 * scale));  // kernels are transformed to four times their numbers
      const float kept = std::isnormal(inverse) ? inverse : NAN;
      std::memcpy(to + o, &kept, sizeof kept);
      scales[size_t(o)] = std::isnan(kept) ? 0 : scale;
    }
  });
  pack_panels_of_kernels(*word_units(), outputs, channels, to + outputs,
                         [&](int64_t output, int64_t channel, int16_t (&values)[kPlaces]) {
                           const double scale = scales[size_t(output)];
                           double numbers[kPlaces];
                           transform_kernel(kernels + (output * channels + channel) * 9, numbers);
                           for (int64_t p = 0; p < kPlaces; ++p)
                             values[p] = scale > 0 ? int16_t(std::lrint(numbers[p] * scale)) : int16_t(0);
                         });
}

bool convolve_pairs(const Planes& planes, const BFloat16* input, const uint32_t* packed,
                    const PairFinish& finish) {
  std::vector<float> inverses(static_cast<size_t>(planes.outputs));
  std::memcpy(inverses.data(), packed, inverses.size() * sizeof(float));
  for (size_t c = 0; c < inverses.size(); ++c) {
    if (std::isnan(inverses[c])) return false;
    inverses[c] *= finish.factor[c];
  }
  const UnitSet& set = *word_units();
  const Activations activations(planes, input);
  const Results results(planes, finish, inverses.data(), set.width);
  Walk(set, planes, kLimits, packed + planes.outputs, activations, results).run();
  return activations.fits();
}

#else

int64_t packed_pair_units(int64_t, int64_t) {
  return 0;
}
void pack_pair_kernels(const BFloat16*, int64_t, int64_t, uint32_t*) {}
bool convolve_pairs(const Planes&, const BFloat16*, const uint32_t*, const PairFinish&) {
  return false;
}

#endif  // FL_X86

}  // namespace fl::cpu::winograd

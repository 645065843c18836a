// Where an element of a resized axis is sampled from, for every mode: the positions and weights of its taps.
// The same functions serve the CPU, which fills tables with them, and kernels on the device.
#pragma once

#include <algorithm>
#include <cstdint>

#include "math/math.h"

namespace fl {

enum class ResizeMode : int8_t { Nearest, NearestExact, Linear, Cubic, Lanczos };

struct ResizeRule {
  int64_t in = 1, out = 1, taps = 1;
  double factor = 0;  // of the sizes, when positions are to follow it rather than them
  ResizeMode mode = ResizeMode::Nearest;
  bool align_corners = false, antialias = false;
};

namespace resize {

// The cubic convolution kernel with parameter a.
template <class C>
FL_MATH_FUNCTION C cubic(C x, C a) {
  x = x < 0 ? -x : x;
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return 0;
}

// The sinc function windowed by a three times wider one.
template <class C>
FL_MATH_FUNCTION C lanczos(C x) {
  if (x == 0) return 1;
  if (x >= 3 || x <= -3) return 0;
  const C t = x * static_cast<C>(3.14159265358979323846);
  return 3 * math::sin(t) * math::sin(t / 3) / (t * t);
}

// Input elements between two neighbours of the output.
template <class C>
FL_MATH_FUNCTION C step(const ResizeRule& r) {
  if (r.align_corners) return r.out > 1 ? static_cast<C>(r.in - 1) / static_cast<C>(r.out - 1) : C(0);
  return r.factor > 0 ? static_cast<C>(1.0 / r.factor) : static_cast<C>(r.in) / static_cast<C>(r.out);
}

// How far an antialiasing filter reaches to each side.
template <class C>
FL_MATH_FUNCTION C reach(const ResizeRule& r, C step) {
  const C half = r.mode == ResizeMode::Linear ? C(1) : r.mode == ResizeMode::Cubic ? C(2) : C(3);
  return step >= 1 ? half * step : half;
}

template <class C>
FL_MATH_FUNCTION int64_t count_taps(const ResizeRule& r) {
  if (r.mode == ResizeMode::Nearest || r.mode == ResizeMode::NearestExact) return 1;
  if (!r.antialias) return r.mode == ResizeMode::Linear ? 2 : 4;
  const int64_t wanted = static_cast<int64_t>(math::ceil(reach(r, step<C>(r)))) * 2 + 1,
                most = r.in > 1 ? r.in : 1;
  return wanted < most ? wanted : most;
}

FL_MATH_FUNCTION int64_t clamped(int64_t i, int64_t size) {
  return i < 0 ? 0 : i < size ? i : size - 1;
}

template <class C>
FL_MATH_FUNCTION void find_filtered(const ResizeRule& r, int64_t o, int32_t* index, double* weight) {
  const C scale = step<C>(r), support = reach(r, scale), inverse = scale >= 1 ? 1 / scale : C(1);
  const C center = scale * (static_cast<C>(o) + C(0.5));
  const int64_t low = static_cast<int64_t>(center - support + C(0.5)), first = low > 0 ? low : 0;
  const int64_t high = static_cast<int64_t>(center + support + C(0.5));
  const int64_t seen = (high < r.in ? high : r.in) - first, count = seen < r.taps ? seen : r.taps;
  C total = 0;
  for (int64_t t = 0; t < r.taps; ++t) {
    C w = 0;
    if (t < count) {
      const C x = (static_cast<C>(t + first) - center + C(0.5)) * inverse, away = 1 - (x < 0 ? -x : x);
      w = r.mode == ResizeMode::Linear  ? (away > 0 ? away : C(0))
          : r.mode == ResizeMode::Cubic ? cubic<C>(x, C(-0.5))
                                        : lanczos<C>(x);
    }
    total += w;
    index[t * r.out + o] = static_cast<int32_t>(clamped(first + t, r.in));
    weight[t * r.out + o] = w;
  }
  for (int64_t t = 0; t < r.taps; ++t) {
    double& w = weight[t * r.out + o];
    w = total != 0 ? static_cast<C>(w) / total : C(0);
  }
}

// Tap t of output element o goes to index and weight [t * out + o]. Positions are computed in the precision
// of the elements, so that borders fall where they do elsewhere.
template <class C>
FL_MATH_FUNCTION void find_taps(const ResizeRule& r, int64_t o, int32_t* index, double* weight) {
  if (r.mode == ResizeMode::Nearest || r.mode == ResizeMode::NearestExact) {
    const float scale = r.factor > 0 ? static_cast<float>(1.0 / r.factor)
                                     : static_cast<float>(r.in) / static_cast<float>(r.out);
    const float shift = r.mode == ResizeMode::Nearest ? 0.0f : 0.5f;
    const int64_t at = static_cast<int64_t>(math::floor((static_cast<float>(o) + shift) * scale));
    index[o] = static_cast<int32_t>(at < r.in ? at : r.in - 1);
    weight[o] = 1;
    return;
  }
  if (r.antialias) return find_filtered<C>(r, o, index, weight);
  const C scale = step<C>(r);
  C at = r.align_corners ? scale * static_cast<C>(o) : scale * (static_cast<C>(o) + C(0.5)) - C(0.5);
  if (r.mode == ResizeMode::Linear) {
    if (r.in == r.out) at = static_cast<C>(o);
    if (!(at > 0)) at = 0;
    const int64_t whole = static_cast<int64_t>(at), low = whole < r.in ? whole : r.in - 1;
    C high = at - static_cast<C>(low);
    high = high < 0 ? C(0) : high > 1 ? C(1) : high;
    index[o] = static_cast<int32_t>(low);
    index[r.out + o] = static_cast<int32_t>(clamped(low + 1, r.in));
    weight[o] = 1 - high;
    weight[r.out + o] = high;
    return;
  }
  const int64_t whole = static_cast<int64_t>(math::floor(at)), low = whole < r.in ? whole : r.in - 1;
  C t = at - static_cast<C>(low);
  t = t < 0 ? C(0) : t > 1 ? C(1) : t;
  for (int64_t k = 0; k < 4; ++k) {
    index[k * r.out + o] = static_cast<int32_t>(clamped(low - 1 + k, r.in));
    weight[k * r.out + o] = cubic<C>(t + 1 - static_cast<C>(k), C(-0.75));
  }
}

}  // namespace resize
}  // namespace fl

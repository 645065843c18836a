// The loops of narrow.h, on unsigned numbers, whose overflow is defined.
#include "cpu/engine/narrow.h"

#include <cmath>
#include <limits>

namespace fl {
namespace FL_ARCH {
extern const NarrowLoops narrow_loops;
extern const BooleanLoops boolean_loops;
extern const ComplexLoops complex_loops;

namespace {

template <class T, class F>
inline void each(const void* const* in, void* out, int64_t n, const F& f) {
  const T *a = static_cast<const T*>(in[0]), *b = static_cast<const T*>(in[1]);
  T* o = static_cast<T*>(out);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) o[i] = static_cast<T>(f(a[i], b[i]));
}

template <class T>
void multiplied(const void* const* in, void* out, int64_t n, const Scalar*) {
  each<T>(in, out, n, [](unsigned a, unsigned b) { return a * b; });
}

// a + sign * alpha * b
template <class T, int sign>
void added(const void* const* in, void* out, int64_t n, const Scalar* params) {
  const T alpha = static_cast<T>(sign * params[0].to<int64_t>());
  if (alpha == T(1)) return each<T>(in, out, n, [](unsigned a, unsigned b) { return a + b; });
  if (alpha == T(-1)) return each<T>(in, out, n, [](unsigned a, unsigned b) { return a - b; });
  each<T>(in, out, n, [alpha](unsigned a, unsigned b) { return a + alpha * b; });
}

// Bytes other than zero are true, also those that a view of other numbers has.
template <class F>
inline void booleans(const void* const* in, void* out, int64_t n, const F& f) {
  each<uint8_t>(in, out, n, [&f](uint8_t a, uint8_t b) -> uint8_t { return f(a != 0, b != 0); });
}
void both(const void* const* in, void* out, int64_t n, const Scalar*) {
  booleans(in, out, n, [](uint8_t a, uint8_t b) -> uint8_t { return a & b; });
}
void either(const void* const* in, void* out, int64_t n, const Scalar*) {
  each<uint8_t>(in, out, n, [](uint8_t a, uint8_t b) -> uint8_t { return (a | b) != 0; });
}
void differ(const void* const* in, void* out, int64_t n, const Scalar*) {
  booleans(in, out, n, [](uint8_t a, uint8_t b) -> uint8_t { return a ^ b; });
}
void equal(const void* const* in, void* out, int64_t n, const Scalar*) {
  booleans(in, out, n, [](uint8_t a, uint8_t b) -> uint8_t { return a ^ b ^ 1; });
}
void negate(const void* const* in, void* out, int64_t n, const Scalar*) {
  const uint8_t* a = static_cast<const uint8_t*>(in[0]);
  uint8_t* o = static_cast<uint8_t*>(out);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) o[i] = a[i] == 0;
}

void multiply_complex(const void* const* in, void* out, int64_t n, const Scalar*) {
  const float *a = static_cast<const float*>(in[0]), *b = static_cast<const float*>(in[1]);
  float* o = static_cast<float*>(out);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const float x = a[2 * i], y = a[2 * i + 1], u = b[2 * i], v = b[2 * i + 1];
    o[2 * i] = x * u - y * v;
    o[2 * i + 1] = x * v + y * u;
  }
}

// Squares of floats neither overflow nor vanish in double precision. Infinite parts outweigh a NaN.
void length_of_complex(const void* const* in, void* out, int64_t n, const Scalar*) {
  const float* a = static_cast<const float*>(in[0]);
  float* o = static_cast<float*>(out);
  constexpr float infinite = std::numeric_limits<float>::infinity();
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const float x = std::fabs(a[2 * i]), y = std::fabs(a[2 * i + 1]);
    const double square = static_cast<double>(x) * x + static_cast<double>(y) * y;
    const float length = static_cast<float>(__builtin_sqrt(square));
    o[i] = (x == infinite) | (y == infinite) ? infinite : length;
  }
}

}  // namespace

const ComplexLoops complex_loops = {&multiply_complex, &length_of_complex};
const BooleanLoops boolean_loops = {&both, &either, &differ, &equal, &negate};
const NarrowLoops narrow_loops = {
    {&added<uint8_t, 1>, &added<uint16_t, 1>, &added<uint32_t, 1>},
    {&added<uint8_t, -1>, &added<uint16_t, -1>, &added<uint32_t, -1>},
    {&multiplied<uint8_t>, &multiplied<uint16_t>, &multiplied<uint32_t>},
};

}  // namespace FL_ARCH
}  // namespace fl

// Rows of recurrent layers: see rnn_kernel.h. The loops are plain arithmetic that the compiler turns into
// vectors.
#include "cpu/rnn_kernel.h"

#include "cpu/math.h"

namespace fl {
namespace FL_ARCH {
namespace {

template <class T>
void plain(const T* g, T* h, int64_t n, bool relu) {
  if (relu) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) h[i] = g[i] <= 0 ? T(0) : g[i];
  } else {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) h[i] = math::tanh(g[i]);
  }
}

template <class T>
void plain_gradient(const T* h, const T* dh, T* dg, int64_t n, bool relu) {
  if (relu) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) dg[i] = h[i] <= 0 ? T(0) : dh[i];
  } else {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) dg[i] = dh[i] * (T(1) - h[i] * h[i]);
  }
}

template <class T>
void lstm(T* g, T* c, T* kept, T* h, int64_t n) {
  T *in = g, *forget = g + n, *cell = g + 2 * n, *out = g + 3 * n;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const T a = math::sigmoid(in[i]), f = math::sigmoid(forget[i]), u = math::tanh(cell[i]),
            o = math::sigmoid(out[i]);
    in[i] = a, forget[i] = f, cell[i] = u, out[i] = o;
    const T next = f * c[i] + a * u;
    c[i] = next;
    kept[i] = next;
    h[i] = o * math::tanh(next);
  }
}

template <class T>
void lstm_gradient(const T* g, const T* c, const T* before, const T* dh, T* dc, T* dg, int64_t n) {
  const T *in = g, *forget = g + n, *cell = g + 2 * n, *out = g + 3 * n;
  T *d_in = dg, *d_forget = dg + n, *d_cell = dg + 2 * n, *d_out = dg + 3 * n;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const T a = in[i], f = forget[i], u = cell[i], o = out[i], s = math::tanh(c[i]);
    const T d = dc[i] + dh[i] * o * (T(1) - s * s);
    d_in[i] = d * u * a * (T(1) - a);
    d_forget[i] = d * before[i] * f * (T(1) - f);
    d_cell[i] = d * a * (T(1) - u * u);
    d_out[i] = dh[i] * s * o * (T(1) - o);
    dc[i] = d * f;
  }
}

template <class T>
void lstm_hidden(const T* g, const T* c, T* h, int64_t n) {
  const T* out = g + 3 * n;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) h[i] = out[i] * math::tanh(c[i]);
}

template <class T>
void gru(T* g, const T* r, T* kept, T* h, int64_t n) {
  T *reset = g, *update = g + n, *fresh = g + 2 * n;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const T a = math::sigmoid(reset[i] + r[i]), z = math::sigmoid(update[i] + r[n + i]);
    const T last = r[2 * n + i];
    const T u = math::tanh(fresh[i] + a * last);
    reset[i] = a, update[i] = z, fresh[i] = u;
    kept[i] = last;
    h[i] = u + z * (h[i] - u);
  }
}

template <class T>
void gru_gradient(const T* g, const T* kept, const T* before, T* dh, T* dg, T* dr, int64_t n) {
  const T *reset = g, *update = g + n, *fresh = g + 2 * n;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const T a = reset[i], z = update[i], u = fresh[i], d = dh[i];
    const T d_fresh = d * (T(1) - z) * (T(1) - u * u);
    const T d_update = d * (before[i] - u) * z * (T(1) - z);
    const T d_reset = d_fresh * kept[i] * a * (T(1) - a);
    dg[i] = d_reset, dg[n + i] = d_update, dg[2 * n + i] = d_fresh;
    dr[i] = d_reset, dr[n + i] = d_update, dr[2 * n + i] = d_fresh * a;
    dh[i] = d * z;
  }
}

template <class T>
constexpr RecurrentRows<T> rows() {
  return {plain<T>, plain_gradient<T>, lstm<T>, lstm_gradient<T>, lstm_hidden<T>, gru<T>, gru_gradient<T>};
}

}  // namespace

extern const RecurrentTable recurrent_table;
const RecurrentTable recurrent_table = {rows<float>(), rows<double>()};

}  // namespace FL_ARCH
}  // namespace fl

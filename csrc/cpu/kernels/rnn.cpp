// Rows of recurrent layers: see rnn_kernel.h. The loops are plain arithmetic that the compiler turns into
// vectors.
#include "cpu/rnn/kernel.h"

#include "math/rnn_cell.h"

namespace fl {
namespace FL_ARCH {
namespace {

template <class T>
void plain(const T* g, T* h, int64_t n, bool relu) {
  if (relu) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) h[i] = cell::plain(g[i], true);
  } else {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) h[i] = cell::plain(g[i], false);
  }
}

template <class T>
void plain_gradient(const T* h, const T* dh, T* dg, int64_t n, bool relu) {
  if (relu) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) dg[i] = cell::plain_gradient(h[i], dh[i], true);
  } else {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) dg[i] = cell::plain_gradient(h[i], dh[i], false);
  }
}

template <class T>
void lstm(T* g, T* c, T* new_cells, T* h, int64_t n) {
  T *in = g, *forget = g + n, *cell = g + 2 * n, *out = g + 3 * n;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const auto r = fl::cell::lstm(in[i], forget[i], cell[i], out[i], c[i]);
    in[i] = r.in, forget[i] = r.forget, cell[i] = r.cell, out[i] = r.out;
    c[i] = new_cells[i] = r.state;
    h[i] = r.hidden;
  }
}

template <class T>
void lstm_gradient(const T* g, const T* c, const T* before, const T* dh, T* dc, T* dg, int64_t n) {
  const T *in = g, *forget = g + n, *cell = g + 2 * n, *out = g + 3 * n;
  T *d_in = dg, *d_forget = dg + n, *d_cell = dg + 2 * n, *d_out = dg + 3 * n;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const auto r = fl::cell::lstm_gradient(in[i], forget[i], cell[i], out[i], c[i], before[i], dh[i], dc[i]);
    d_in[i] = r.in, d_forget[i] = r.forget, d_cell[i] = r.cell, d_out[i] = r.out;
    dc[i] = r.before;
  }
}

template <class T>
void lstm_hidden(const T* g, const T* c, T* h, int64_t n) {
  const T* out = g + 3 * n;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) h[i] = out[i] * math::tanh(c[i]);
}

template <class T>
void gru(T* g, const T* r, T* saved, T* h, int64_t n) {
  T *reset = g, *update = g + n, *fresh = g + 2 * n;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const T last = r[2 * n + i];
    const auto c = cell::gru(reset[i] + r[i], update[i] + r[n + i], fresh[i], last, h[i]);
    reset[i] = c.reset, update[i] = c.update, fresh[i] = c.fresh;
    saved[i] = last;
    h[i] = c.hidden;
  }
}

template <class T>
void gru_gradient(const T* g, const T* saved, const T* before, T* dh, T* dg, T* dr, int64_t n) {
  const T *reset = g, *update = g + n, *fresh = g + 2 * n;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const auto r = cell::gru_gradient(reset[i], update[i], fresh[i], saved[i], before[i], dh[i]);
    dg[i] = r.reset, dg[n + i] = r.update, dg[2 * n + i] = r.fresh;
    dr[i] = r.reset, dr[n + i] = r.update, dr[2 * n + i] = r.fresh * reset[i];
    dh[i] = r.before;
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

// The arithmetic of recurrent cells, element by element, for the loops of the CPU and the kernels of the
// accelerator: gates to states, and gradients of states to gradients of gates.
#pragma once

#include "math/math.h"

namespace fl::cell {

template <class T>
struct Lstm {
  T in, forget, cell, out;  // gates after activation
  T state, hidden;
};
template <class T>
FL_MATH_INLINE Lstm<T> lstm(T in, T forget, T cell, T out, T before) {
  Lstm<T> r;
  r.in = math::sigmoid(in), r.forget = math::sigmoid(forget), r.cell = math::tanh(cell),
  r.out = math::sigmoid(out);
  r.state = r.forget * before + r.in * r.cell;
  r.hidden = r.out * math::tanh(r.state);
  return r;
}

template <class T>
struct LstmGradient {
  T in, forget, cell, out, before;
};
// `state` is the cell state after the step, dh and dc are gradients of both states after it.
template <class T>
FL_MATH_INLINE LstmGradient<T> lstm_gradient(T in, T forget, T cell, T out, T state, T before, T dh, T dc) {
  const T s = math::tanh(state), d = dc + dh * out * (T(1) - s * s);
  LstmGradient<T> r;
  r.in = d * cell * in * (T(1) - in);
  r.forget = d * before * forget * (T(1) - forget);
  r.cell = d * in * (T(1) - cell * cell);
  r.out = dh * s * out * (T(1) - out);
  r.before = d * forget;
  return r;
}

template <class T>
struct Gru {
  T reset, update, fresh;  // gates after activation
  T hidden;
};
// Sums of the input's and the hidden state's parts for two gates; both parts for the third.
template <class T>
FL_MATH_INLINE Gru<T> gru(T reset, T update, T fresh, T last, T before) {
  Gru<T> r;
  r.reset = math::sigmoid(reset), r.update = math::sigmoid(update);
  r.fresh = math::tanh(fresh + r.reset * last);
  r.hidden = r.fresh + r.update * (before - r.fresh);
  return r;
}

template <class T>
struct GruGradient {
  T reset, update,
      fresh;  // of the gates before activation; through the hidden state the third is times reset
  T before;   // the part that does not go through the gates
};
template <class T>
FL_MATH_INLINE GruGradient<T> gru_gradient(T reset, T update, T fresh, T last, T before, T dh) {
  GruGradient<T> r;
  r.fresh = dh * (T(1) - update) * (T(1) - fresh * fresh);
  r.update = dh * (before - fresh) * update * (T(1) - update);
  r.reset = r.fresh * last * reset * (T(1) - reset);
  r.before = dh * update;
  return r;
}

template <class T>
FL_MATH_INLINE T plain(T g, bool relu) {
  return relu ? (g <= 0 ? T(0) : g) : math::tanh(g);
}
template <class T>
FL_MATH_INLINE T plain_gradient(T h, T dh, bool relu) {
  return relu ? (h <= 0 ? T(0) : dh) : dh * (T(1) - h * h);
}

}  // namespace fl::cell

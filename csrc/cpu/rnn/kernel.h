// The arithmetic of one row of a recurrent layer: gates to states, and gradients of states to gradients of
// gates.
#pragma once

#include <cstdint>

namespace fl {

template <class T>
struct RecurrentRows {
  // h = tanh(g) or max(g, 0).
  void (*plain)(const T* g, T* h, int64_t n, bool relu);
  void (*plain_gradient)(const T* h, const T* dh, T* dg, int64_t n, bool relu);
  // g holds input, forget, cell and output gates before activation and afterwards; c is updated, a copy kept.
  void (*lstm)(T* g, T* c, T* kept, T* h, int64_t n);
  // dc comes as the gradient of c and leaves as that of before.
  void (*lstm_gradient)(const T* g, const T* c, const T* before, const T* dh, T* dc, T* dg, int64_t n);
  // o tanh(c), which a projection then takes to the hidden state.
  void (*lstm_hidden)(const T* g, const T* c, T* h, int64_t n);
  // g: reset, update and new gates of the input, activated in place; r: those of the hidden state h, which is
  // updated. kept gets the last third of r.
  void (*gru)(T* g, const T* r, T* kept, T* h, int64_t n);
  // dh leaves as the part of the gradient of before that does not go through the gates.
  void (*gru_gradient)(const T* g, const T* kept, const T* before, T* dh, T* dg, T* dr, int64_t n);
};

struct RecurrentTable {
  RecurrentRows<float> f;
  RecurrentRows<double> d;
};
}  // namespace fl

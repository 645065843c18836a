// One step of a recurrent layer: a thread for each hidden feature of each sample.
#include "cuda/engine/kernels.h"
#include "math/rnn_cell.h"
#include "ops/rnn.h"

namespace fl::cuda {

namespace {

using rnn::Step;

template <class T>
__global__ void __launch_bounds__(256) step_kernel(const __grid_constant__ Step s) {
  const int64_t n = s.hidden, at = int64_t(blockIdx.x) * 256 + threadIdx.x;
  if (at >= s.count * n) return;
  const int64_t b = at / n, i = at % n;
  const auto of = [](auto* p) { return static_cast<T*>(const_cast<void*>(static_cast<const void*>(p))); };
  T *h = of(s.h), *out = of(s.out), *saved = of(s.kept);
  const T *bias = of(s.bias), *before = of(s.before);
  const auto offset = [&](int gate) { return bias ? bias[gate * n + i] : T(0); };
  const auto finish = [&](T value) {
    if (h) h[at] = value;
    if (out) out[at] = value;
  };
  const auto gradient = [&] { return of(s.d_out)[at] + (s.more ? of(s.more)[at] : T(0)); };
  switch (s.kind) {
    case Step::Plain:
      return finish(cell::plain(of(s.gates)[at] + offset(0), s.relu));
    case Step::Lstm: {
      T *g = of(s.gates) + b * 4 * n + i, *c = of(s.cell) + at;
      const auto r =
          cell::lstm(g[0] + offset(0), g[n] + offset(1), g[2 * n] + offset(2), g[3 * n] + offset(3), *c);
      g[0] = r.in, g[n] = r.forget, g[2 * n] = r.cell, g[3 * n] = r.out;
      *c = saved[at] = r.state;
      return finish(r.hidden);
    }
    case Step::Gru: {
      T* g = of(s.gates) + b * 3 * n + i;
      const T *p = of(s.recurrent) + b * 3 * n + i, last = p[2 * n] + offset(2);
      const auto r = cell::gru(g[0] + p[0] + offset(0), g[n] + p[n] + offset(1), g[2 * n], last, h[at]);
      g[0] = r.reset, g[n] = r.update, g[2 * n] = r.fresh;
      saved[at] = last;
      return finish(r.hidden);
    }
    case Step::PlainGradient:
      of(s.d_gates)[at] = cell::plain_gradient(out[at], gradient(), s.relu);
      return;
    case Step::LstmGradient: {
      const T* g = of(s.gates) + b * 4 * n + i;
      T *d = of(s.d_gates) + b * 4 * n + i, *dc = of(s.d_cell) + at;
      const auto r =
          cell::lstm_gradient(g[0], g[n], g[2 * n], g[3 * n], saved[at], before[at], gradient(), *dc);
      d[0] = r.in, d[n] = r.forget, d[2 * n] = r.cell, d[3 * n] = r.out;
      *dc = r.before;
      return;
    }
    case Step::GruGradient: {
      const T* g = of(s.gates) + b * 3 * n + i;
      T *d = of(s.d_gates) + b * 3 * n + i, *through = of(s.d_recurrent) + b * 3 * n + i;
      const T reset = g[0];  // the gradients may take the place of the gates
      const auto r = cell::gru_gradient(reset, g[n], g[2 * n], saved[at], before[at], gradient());
      d[0] = through[0] = r.reset, d[n] = through[n] = r.update, d[2 * n] = r.fresh;
      through[2 * n] = r.fresh * reset;
      of(s.d_h)[at] = r.before;
      return;
    }
    case Step::LstmHidden:
      h[at] = of(s.gates)[b * 4 * n + 3 * n + i] * math::tanh(saved[at]);
      return;
    case Step::Add:
      of(s.d_h)[at] += of(s.more)[at];
      return;
  }
}

}  // namespace

void recurrent(const Step& step) {
  const int64_t blocks = (step.count * step.hidden + 255) / 256;
  if (blocks == 0) return;
  FL_CHECK(blocks < int64_t(1) << 31, "[rnn] expected fewer than 2**39 elements, got ",
           step.count * step.hidden);
  OnDevice on(step.device.index);
  if (step.dtype == DType::Double)
    step_kernel<double><<<static_cast<unsigned>(blocks), 256, 0, current_stream()>>>(step);
  else
    step_kernel<float><<<static_cast<unsigned>(blocks), 256, 0, current_stream()>>>(step);
  check_launch("rnn");
}

FL_ATTACH(recurrent_step, CUDA, recurrent);

}  // namespace fl::cuda

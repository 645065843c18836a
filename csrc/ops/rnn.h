// What recurrent layers share between the CPU and the accelerator: where rows lie, sizes, and one step on the
// accelerator.
#pragma once

#include <vector>

#include "core/device_function.h"
#include "core/tensor.h"

namespace fl::rnn {

enum class Mode : int64_t { Tanh, Relu, Lstm, Gru };

inline int64_t gates_of(Mode mode) {
  return mode == Mode::Lstm ? 4 : mode == Mode::Gru ? 3 : 1;
}

// Where the rows of each step lie.
struct Steps {
  std::vector<int64_t> first, count;  // row of the first sample, and how many samples the step has
  int64_t apart = 1;                  // between samples of a step
  int64_t batch = 0, rows = 0;
  bool packed = false, batch_major = false, reverse = false;

  int64_t size() const { return static_cast<int64_t>(first.size()); }
  // The i-th step in the order of processing.
  int64_t at(int64_t i) const { return reverse ? size() - 1 - i : i; }
  // The row whose state a sample of step i starts from, or -1: the initial state.
  int64_t before(int64_t i, int64_t sample) const {
    if (i == 0) return -1;
    const int64_t t = at(i - 1);
    return sample < count[t] ? first[t] + sample * apart : -1;
  }
};

struct Sizes {
  int64_t input, hidden, state,
      gates;  // state: of h, smaller than hidden with a projection; gates: of all together
};

// All samples of one step at once, on the accelerator: pointers are to the step's first row, elements are
// float or double.
struct Step {
  enum Kind { Plain, Lstm, Gru, PlainGradient, LstmGradient, GruGradient, LstmHidden, Add } kind;
  DType dtype;
  Device device;
  int64_t count, hidden;
  bool relu;

  void* gates;            // activated in place by LSTM and GRU
  const void* recurrent;  // GRU: products of the hidden state
  const void* bias;       // of the hidden state, or null
  void *cell, *kept;      // LSTM: state, updated, and its copy; GRU: the third part of `recurrent`
  void *h, *out;          // state, updated, and its copy; null where not wanted

  // Gradients.
  const void *before, *d_out, *more;  // state before the step; gradient of the state after it, in two parts
  void *d_cell, *d_gates, *d_recurrent, *d_h;
};

// The loops of the layer and of its derivative; tensors are contiguous, of the step's dtype, with time before
// batch.
struct Layer {
  const Steps& steps;
  Mode mode;
  Sizes sizes;
  Tensor input, w_ih, w_hh, b_ih, b_hh, w_hr;
  Tensor output, gates, kept;
  bool narrow = false;  // the tensors that the operator got have 16 bits an element
};
void forward_elsewhere(const Layer& layer, const Tensor& h, const Tensor& c);
struct Gradients {
  Tensor input, h, c, w_ih, w_hh, b_ih, b_hh, w_hr;  // h and c come with the gradients of the last states
};
void backward_elsewhere(const Layer& layer, const Tensor& hx, const Tensor& cx, const Tensor& d_output,
                        const Gradients& d);

}  // namespace fl::rnn

namespace fl::device {
extern DeviceFunction<void(const rnn::Step&)> recurrent_step;
}

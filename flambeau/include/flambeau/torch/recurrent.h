// Recurrent networks and their cells, and sequences of several lengths.
#pragma once

#include <flambeau/torch/nn.h>

#include <tuple>

namespace torch::nn {

struct RNNOptionsBase {
  RNNOptionsBase(int64_t input, int64_t hidden) : input_size_(input), hidden_size_(hidden) {}
  TORCH_ARG(int64_t, input_size);
  TORCH_ARG(int64_t, hidden_size);
  TORCH_ARG(int64_t, num_layers) = 1;
  TORCH_ARG(bool, bias) = true;
  TORCH_ARG(bool, batch_first) = false;
  TORCH_ARG(double, dropout) = 0;
  TORCH_ARG(bool, bidirectional) = false;
  TORCH_ARG(std::string, nonlinearity) = "tanh";  // of RNN
};
using RNNOptions = RNNOptionsBase;
using LSTMOptions = RNNOptionsBase;
using GRUOptions = RNNOptionsBase;

namespace detail {

// The weights of gates of an input and a state, and biases.
inline void register_gates(Module& module, int64_t gates, int64_t input, int64_t hidden, bool bias,
                           const std::string& end) {
  const double bound = 1 / std::sqrt(static_cast<double>(hidden));
  const auto add = [&](const char* name, std::vector<int64_t> sizes) {
    init::uniform_(module.register_parameter(name + end, torch::empty(sizes)), -bound, bound);
  };
  add("weight_ih", {gates * hidden, input});
  add("weight_hh", {gates * hidden, hidden});
  if (!bias) return;
  add("bias_ih", {gates * hidden});
  add("bias_hh", {gates * hidden});
}

}  // namespace detail

// Weights as operators take them: for each layer and direction, of the input, of the state, and biases.
template <class Derived, int64_t GATES>
class RecurrentBase : public Cloneable<Derived> {
 public:
  RecurrentBase(const char* name, const RNNOptionsBase& o) : Cloneable<Derived>(name), options(o) { reset(); }
  void reset() override {
    const int64_t directions = options.bidirectional() ? 2 : 1, hidden = options.hidden_size();
    for (int64_t layer = 0; layer < options.num_layers(); ++layer)
      for (int64_t d = 0; d < directions; ++d)
        detail::register_gates(*this, GATES, layer ? hidden * directions : options.input_size(), hidden,
                               options.bias(), c10::str("_l", layer, d ? "_reverse" : ""));
  }
  void flatten_parameters() {}
  std::vector<Tensor> all_weights() const { return this->parameters(); }
  RNNOptionsBase options;

 protected:
  // Runs an operator on an input and a state; without a batch, on a batch of one.
  template <class State>
  std::vector<Tensor> compute(const char* op, const Tensor& input, const State& states,
                              size_t results_wanted) {
    const bool batched = input.dim() == 3;
    const int64_t place = options.batch_first() ? 0 : 1;
    const Tensor x = batched ? input : input.unsqueeze(place);
    at::detail::Results results;
    at::detail::run(results, false, op, x, states(x, batched), this->parameters(), options.bias(),
                    options.num_layers(), options.dropout(), this->is_training(), options.bidirectional(),
                    options.batch_first());
    std::vector<Tensor> all;
    for (size_t i = 0; i < results_wanted; ++i) {
      const Tensor t = results.tensor(i);
      all.push_back(batched ? t : t.squeeze(i == 0 ? place : int64_t(1)));
    }
    return all;
  }
  Tensor state_or_zeros(const Tensor& state, const Tensor& x, bool batched) const {
    if (state.defined()) return batched ? state : state.unsqueeze(1);
    return torch::zeros({options.num_layers() * (options.bidirectional() ? 2 : 1),
                         x.size(options.batch_first() ? 0 : 1), options.hidden_size()},
                        TensorOptions(x.scalar_type()));
  }
};

class LSTMImpl : public RecurrentBase<LSTMImpl, 4> {
 public:
  LSTMImpl(int64_t input, int64_t hidden) : LSTMImpl(LSTMOptions(input, hidden)) {}
  explicit LSTMImpl(const LSTMOptions& o) : RecurrentBase("torch::nn::LSTM", o) {}
  std::tuple<Tensor, std::tuple<Tensor, Tensor>> forward(
      const Tensor& input, std::optional<std::tuple<Tensor, Tensor>> state = {}) {
    const auto states = [&](const Tensor& x, bool batched) {
      return std::vector<Tensor>{state_or_zeros(state ? std::get<0>(*state) : Tensor(), x, batched),
                                 state_or_zeros(state ? std::get<1>(*state) : Tensor(), x, batched)};
    };
    const std::vector<Tensor> all = compute("lstm", input, states, 3);
    return {all[0], {all[1], all[2]}};
  }
};
TORCH_MODULE(LSTM);

class GRUImpl : public RecurrentBase<GRUImpl, 3> {
 public:
  GRUImpl(int64_t input, int64_t hidden) : GRUImpl(GRUOptions(input, hidden)) {}
  explicit GRUImpl(const GRUOptions& o) : RecurrentBase("torch::nn::GRU", o) {}
  std::tuple<Tensor, Tensor> forward(const Tensor& input, const Tensor& state = {}) {
    const auto states = [&](const Tensor& x, bool batched) { return state_or_zeros(state, x, batched); };
    const std::vector<Tensor> all = compute("gru", input, states, 2);
    return {all[0], all[1]};
  }
};
TORCH_MODULE(GRU);

class RNNImpl : public RecurrentBase<RNNImpl, 1> {
 public:
  RNNImpl(int64_t input, int64_t hidden) : RNNImpl(RNNOptions(input, hidden)) {}
  explicit RNNImpl(const RNNOptions& o) : RecurrentBase("torch::nn::RNN", o) {}
  std::tuple<Tensor, Tensor> forward(const Tensor& input, const Tensor& state = {}) {
    const auto states = [&](const Tensor& x, bool batched) { return state_or_zeros(state, x, batched); };
    const std::string op = "rnn_" + options.nonlinearity();
    const std::vector<Tensor> all = compute(op.c_str(), input, states, 2);
    return {all[0], all[1]};
  }
};
TORCH_MODULE(RNN);

// ---------------------------------------------------------------- cells

struct RNNCellOptionsBase {
  RNNCellOptionsBase(int64_t input, int64_t hidden) : input_size_(input), hidden_size_(hidden) {}
  TORCH_ARG(int64_t, input_size);
  TORCH_ARG(int64_t, hidden_size);
  TORCH_ARG(bool, bias) = true;
  TORCH_ARG(std::string, nonlinearity) = "tanh";  // of RNNCell
};
using RNNCellOptions = RNNCellOptionsBase;
using LSTMCellOptions = RNNCellOptionsBase;
using GRUCellOptions = RNNCellOptionsBase;

template <class Derived, int64_t GATES>
class CellBase : public Cloneable<Derived> {
 public:
  CellBase(const char* name, const RNNCellOptionsBase& o) : Cloneable<Derived>(name), options(o) { reset(); }
  void reset() override {
    detail::register_gates(*this, GATES, options.input_size(), options.hidden_size(), options.bias(), "");
    const auto named = this->named_parameters(false);
    weight_ih = named["weight_ih"], weight_hh = named["weight_hh"];
    if (options.bias()) bias_ih = named["bias_ih"], bias_hh = named["bias_hh"];
  }
  RNNCellOptionsBase options;
  Tensor weight_ih, weight_hh, bias_ih, bias_hh;

 protected:
  Tensor state_or_zeros(const Tensor& state, const Tensor& x) const {
    if (state.defined()) return state;
    std::vector<int64_t> sizes(x.sizes().begin(), x.sizes().end());
    sizes.back() = options.hidden_size();
    return torch::zeros(sizes, TensorOptions(x.scalar_type()));
  }
};

class LSTMCellImpl : public CellBase<LSTMCellImpl, 4> {
 public:
  LSTMCellImpl(int64_t input, int64_t hidden) : LSTMCellImpl(LSTMCellOptions(input, hidden)) {}
  explicit LSTMCellImpl(const LSTMCellOptions& o) : CellBase("torch::nn::LSTMCell", o) {}
  std::tuple<Tensor, Tensor> forward(const Tensor& input,
                                     std::optional<std::tuple<Tensor, Tensor>> state = {}) {
    const std::vector<Tensor> hidden = {state_or_zeros(state ? std::get<0>(*state) : Tensor(), input),
                                        state_or_zeros(state ? std::get<1>(*state) : Tensor(), input)};
    at::detail::Results results;
    at::detail::run(results, false, "lstm_cell", input, hidden, weight_ih, weight_hh, bias_ih, bias_hh);
    return {results.tensor(0), results.tensor(1)};
  }
};
TORCH_MODULE(LSTMCell);

class GRUCellImpl : public CellBase<GRUCellImpl, 3> {
 public:
  GRUCellImpl(int64_t input, int64_t hidden) : GRUCellImpl(GRUCellOptions(input, hidden)) {}
  explicit GRUCellImpl(const GRUCellOptions& o) : CellBase("torch::nn::GRUCell", o) {}
  Tensor forward(const Tensor& input, const Tensor& state = {}) {
    return at::detail::call("gru_cell", input, state_or_zeros(state, input), weight_ih, weight_hh, bias_ih,
                            bias_hh);
  }
};
TORCH_MODULE(GRUCell);

class RNNCellImpl : public CellBase<RNNCellImpl, 1> {
 public:
  RNNCellImpl(int64_t input, int64_t hidden) : RNNCellImpl(RNNCellOptions(input, hidden)) {}
  explicit RNNCellImpl(const RNNCellOptions& o) : CellBase("torch::nn::RNNCell", o) {}
  Tensor forward(const Tensor& input, const Tensor& state = {}) {
    const std::string op = "rnn_" + options.nonlinearity() + "_cell";
    return at::detail::call(op.c_str(), input, state_or_zeros(state, input), weight_ih, weight_hh, bias_ih,
                            bias_hh);
  }
};
TORCH_MODULE(RNNCell);

// ---------------------------------------------------------------- sequences of several lengths

namespace utils::rnn {

inline Tensor pad_sequence(const std::vector<Tensor>& sequences, bool batch_first = false,
                           double padding_value = 0) {
  if (sequences.empty()) throw c10::Error("[pad_sequence] expected sequences, got none");
  int64_t longest = 0;
  for (const Tensor& s : sequences) longest = std::max(longest, s.size(0));
  std::vector<Tensor> rows;
  for (const Tensor& s : sequences) {
    std::vector<int64_t> sizes = s.sizes().vec();
    sizes[0] = longest - s.size(0);
    rows.push_back(torch::cat({s, torch::full(sizes, padding_value, TensorOptions(s.scalar_type()))}));
  }
  return torch::stack(rows, batch_first ? 0 : 1);
}

}  // namespace utils::rnn

}  // namespace torch::nn

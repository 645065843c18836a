// More layers of torch::nn: transposed convolution, recurrent networks, functions as modules.
#pragma once

#include <flambeau/torch/nn.h>

namespace torch::nn {

#define FL_OPTION(Class, type, name) \
  Class& name(const type& value) {   \
    name##_ = value;                 \
    return *this;                    \
  }                                  \
  const type& name() const {         \
    return name##_;                  \
  }

struct ConvTranspose2dOptions {
  ConvTranspose2dOptions(int64_t in, int64_t out, ExpandingArray<2> kernel)
      : in_channels_(in), out_channels_(out), kernel_size_(kernel) {}
  FL_OPTION(ConvTranspose2dOptions, int64_t, in_channels)
  FL_OPTION(ConvTranspose2dOptions, int64_t, out_channels)
  FL_OPTION(ConvTranspose2dOptions, ExpandingArray<2>, kernel_size)
  FL_OPTION(ConvTranspose2dOptions, ExpandingArray<2>, stride)
  FL_OPTION(ConvTranspose2dOptions, ExpandingArray<2>, padding)
  FL_OPTION(ConvTranspose2dOptions, ExpandingArray<2>, output_padding)
  FL_OPTION(ConvTranspose2dOptions, int64_t, groups)
  FL_OPTION(ConvTranspose2dOptions, bool, bias)
  FL_OPTION(ConvTranspose2dOptions, ExpandingArray<2>, dilation)
  int64_t in_channels_, out_channels_;
  ExpandingArray<2> kernel_size_, stride_ = 1, padding_ = 0, output_padding_ = 0, dilation_ = 1;
  int64_t groups_ = 1;
  bool bias_ = true;
};

class ConvTranspose2dImpl : public Module {
 public:
  ConvTranspose2dImpl(int64_t in, int64_t out, ExpandingArray<2> kernel)
      : ConvTranspose2dImpl(ConvTranspose2dOptions(in, out, kernel)) {}
  explicit ConvTranspose2dImpl(const ConvTranspose2dOptions& o)
      : Module("torch::nn::ConvTranspose2d"), options(o) {
    const IntArrayRef kernel = o.kernel_size();
    weight = register_parameter(
        "weight", torch::empty({o.in_channels(), o.out_channels() / o.groups(), kernel[0], kernel[1]}));
    if (o.bias()) bias = register_parameter("bias", torch::empty({o.out_channels()}));
    init::kaiming_uniform_(weight, std::sqrt(5.0));
    const double bound = 1 / std::sqrt(init::fans(weight).first);
    if (bias.defined()) init::uniform_(bias, -bound, bound);
  }
  Tensor forward(const Tensor& input) {
    return at::detail::call("conv_transpose2d", input, weight, bias, IntArrayRef(options.stride()),
                            IntArrayRef(options.padding()), IntArrayRef(options.output_padding()),
                            options.groups(), IntArrayRef(options.dilation()));
  }
  ConvTranspose2dOptions options;
  Tensor weight, bias;
};
TORCH_MODULE(ConvTranspose2d);

// ---------------------------------------------------------------- recurrent networks

struct RNNOptionsBase {
  RNNOptionsBase(int64_t input, int64_t hidden) : input_size_(input), hidden_size_(hidden) {}
  FL_OPTION(RNNOptionsBase, int64_t, input_size)
  FL_OPTION(RNNOptionsBase, int64_t, hidden_size)
  FL_OPTION(RNNOptionsBase, int64_t, num_layers)
  FL_OPTION(RNNOptionsBase, bool, bias)
  FL_OPTION(RNNOptionsBase, bool, batch_first)
  FL_OPTION(RNNOptionsBase, double, dropout)
  FL_OPTION(RNNOptionsBase, bool, bidirectional)
  int64_t input_size_, hidden_size_, num_layers_ = 1;
  bool bias_ = true, batch_first_ = false, bidirectional_ = false;
  double dropout_ = 0;
};
using LSTMOptions = RNNOptionsBase;
using GRUOptions = RNNOptionsBase;

// Weights as operators take them: for each layer and direction, of the input, of the state, and biases.
class RecurrentImpl : public Module {
 public:
  RecurrentImpl(const char* name, const RNNOptionsBase& o, int64_t gates) : Module(name), options(o) {
    const int64_t directions = o.bidirectional() ? 2 : 1, hidden = o.hidden_size();
    const double bound = 1 / std::sqrt(static_cast<double>(hidden));
    for (int64_t layer = 0; layer < o.num_layers(); ++layer)
      for (int64_t d = 0; d < directions; ++d) {
        const std::string end = c10::str("_l", layer, d ? "_reverse" : "");
        const int64_t width = layer ? hidden * directions : o.input_size();
        add("weight_ih" + end, {gates * hidden, width}, bound);
        add("weight_hh" + end, {gates * hidden, hidden}, bound);
        if (!o.bias()) continue;
        add("bias_ih" + end, {gates * hidden}, bound);
        add("bias_hh" + end, {gates * hidden}, bound);
      }
  }
  RNNOptionsBase options;

 protected:
  Tensor no_state(const Tensor& input) const {
    const int64_t batch = input.size(options.batch_first() ? 0 : 1);
    return torch::zeros(
        {options.num_layers() * (options.bidirectional() ? 2 : 1), batch, options.hidden_size()},
        TensorOptions(input.scalar_type()));
  }

 private:
  void add(const std::string& name, std::vector<int64_t> sizes, double bound) {
    init::uniform_(register_parameter(name, torch::empty(sizes)), -bound, bound);
  }
};

class LSTMImpl : public RecurrentImpl {
 public:
  LSTMImpl(int64_t input, int64_t hidden) : LSTMImpl(LSTMOptions(input, hidden)) {}
  explicit LSTMImpl(const LSTMOptions& o) : RecurrentImpl("torch::nn::LSTM", o, 4) {}
  std::tuple<Tensor, std::tuple<Tensor, Tensor>> forward(
      const Tensor& input, std::optional<std::tuple<Tensor, Tensor>> state = {}) {
    const Tensor zero = state ? Tensor() : no_state(input);
    const std::vector<Tensor> hidden = {state ? std::get<0>(*state) : zero,
                                        state ? std::get<1>(*state) : zero};
    at::detail::Results results;
    at::detail::run(results, false, "lstm", input, hidden, parameters(), options.bias(), options.num_layers(),
                    options.dropout(), is_training(), options.bidirectional(), options.batch_first());
    return {results.tensor(0), {results.tensor(1), results.tensor(2)}};
  }
};
TORCH_MODULE(LSTM);

class GRUImpl : public RecurrentImpl {
 public:
  GRUImpl(int64_t input, int64_t hidden) : GRUImpl(GRUOptions(input, hidden)) {}
  explicit GRUImpl(const GRUOptions& o) : RecurrentImpl("torch::nn::GRU", o, 3) {}
  std::tuple<Tensor, Tensor> forward(const Tensor& input, const Tensor& state = {}) {
    at::detail::Results results;
    at::detail::run(results, false, "gru", input, state.defined() ? state : no_state(input), parameters(),
                    options.bias(), options.num_layers(), options.dropout(), is_training(),
                    options.bidirectional(), options.batch_first());
    return {results.tensor(0), results.tensor(1)};
  }
};
TORCH_MODULE(GRU);

// ---------------------------------------------------------------- functions as modules

class FunctionalImpl : public Module {
 public:
  using Function = std::function<Tensor(Tensor)>;
  explicit FunctionalImpl(Function function)
      : Module("torch::nn::Functional"), function_(std::move(function)) {}
  template <class F, class First, class... A>
  FunctionalImpl(F function, First first, A... a)
      : FunctionalImpl(Function([=](Tensor x) { return function(x, first, a...); })) {}
  Tensor forward(const Tensor& input) { return function_(input); }

 private:
  Function function_;
};
TORCH_MODULE(Functional);
#undef FL_OPTION

}  // namespace torch::nn

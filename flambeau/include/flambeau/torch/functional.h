// torch::nn::functional: functions of layers and losses, by the names that Python has.
#pragma once

#include <flambeau/torch/options.h>

namespace torch::nn::functional {

// clang-format off
#define FL_FUNCTIONS_OF_ONE(_) \
  _(relu) _(relu6) _(gelu) _(silu) _(mish) _(elu) _(selu) _(celu) _(leaky_relu) _(softplus) _(softsign) \
  _(tanhshrink) _(hardsigmoid) _(hardswish) _(hardtanh) _(sigmoid) _(tanh) _(logsigmoid) _(softmax) \
  _(log_softmax) _(softmin) _(normalize) _(one_hot) _(linear) _(bilinear) _(conv1d) _(conv2d) _(conv3d) \
  _(conv_transpose2d) _(max_pool1d) _(max_pool2d) _(max_pool3d) _(avg_pool1d) _(avg_pool2d) _(avg_pool3d) \
  _(adaptive_avg_pool1d) _(adaptive_avg_pool2d) _(dropout) _(embedding) _(layer_norm) _(batch_norm) \
  _(group_norm) _(instance_norm) _(mse_loss) _(l1_loss) _(smooth_l1_loss) _(huber_loss) _(cross_entropy) \
  _(nll_loss) _(binary_cross_entropy) _(binary_cross_entropy_with_logits) _(kl_div) _(cosine_similarity) \
  _(pairwise_distance) _(pixel_shuffle) _(glu) _(prelu) _(interpolate) _(conv_transpose1d) \
  _(conv_transpose3d) _(fold) _(unfold) _(adaptive_avg_pool3d) _(adaptive_max_pool1d) \
  _(adaptive_max_pool2d) _(embedding_bag) _(ctc_loss) _(cosine_embedding_loss) _(triplet_margin_loss) \
  _(margin_ranking_loss) _(hinge_embedding_loss) _(soft_margin_loss) _(multi_margin_loss) \
  _(poisson_nll_loss) _(local_response_norm) _(hardshrink) _(softshrink) _(threshold) _(alpha_dropout) \
  _(dropout2d) _(grid_sample) _(rrelu) _(pixel_unshuffle) _(gumbel_softmax) _(lp_pool2d)
// clang-format on
#define FL_FUNCTION(name)                                         \
  template <class... A>                                           \
  Tensor name(const Tensor& first, const A&... a) {               \
    return at::detail::call("nn.functional." #name, first, a...); \
  }
FL_FUNCTIONS_OF_ONE(FL_FUNCTION)
#undef FL_FUNCTION

inline Tensor pad(const Tensor& input, IntArrayRef pads, std::string_view mode = "constant",
                  std::optional<double> value = {}) {
  return at::detail::call("nn.functional.pad", input, pads, mode, value);
}
inline Tensor pad(const Tensor& input, const PadFuncOptions& options) {
  return at::detail::call("nn.functional.pad", input, options);
}
inline Tensor affine_grid(const Tensor& theta, IntArrayRef size, bool align_corners = false) {
  return at::detail::call("nn.functional.affine_grid", theta, size, align_corners);
}
using torch::scaled_dot_product_attention;
inline Tensor max_pool2d(const Tensor& input, IntArrayRef kernel, IntArrayRef stride = {},
                         IntArrayRef padding = {0, 0}) {
  return torch::max_pool2d(input, kernel, stride, padding);
}
inline Tensor layer_norm(const Tensor& input, IntArrayRef shape, const Tensor& weight = {},
                         const Tensor& bias = {}, double eps = 1e-5) {
  return torch::layer_norm(input, shape, weight, bias, eps);
}

}  // namespace torch::nn::functional

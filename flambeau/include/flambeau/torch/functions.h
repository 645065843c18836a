// Functions over tensors: creation, operators by name, gradients, modes.
#pragma once

#include <flambeau/torch/checks.h>
#include <flambeau/torch/parallel.h>
#include <flambeau/torch/tensor.h>

#include <functional>

namespace at {

// ---------------------------------------------------------------- creation

#define FL_SIZED(name)                                                      \
  inline Tensor name(IntArrayRef size, const TensorOptions& options = {}) { \
    return detail::call(#name, size, options);                              \
  }
FL_SIZED(empty)
FL_SIZED(ones)
FL_SIZED(rand)
FL_SIZED(randn)
FL_SIZED(zeros)
#undef FL_SIZED
inline Tensor full(IntArrayRef size, const Scalar& value, const TensorOptions& options = {}) {
  return detail::call("full", size, value, options);
}
inline Tensor eye(int64_t n, const TensorOptions& options = {}) {
  return detail::call("eye", n, options);
}
inline Tensor eye(int64_t n, int64_t m, const TensorOptions& options = {}) {
  return detail::call("eye", n, m, options);
}
inline Tensor arange(const Scalar& end, const TensorOptions& options = {}) {
  return detail::call("arange", end, options);
}
inline Tensor arange(const Scalar& start, const Scalar& end, const TensorOptions& options = {}) {
  return detail::call("arange", start, end, options);
}
inline Tensor arange(const Scalar& start, const Scalar& end, const Scalar& step,
                     const TensorOptions& options = {}) {
  return detail::call("arange", start, end, step, options);
}
inline Tensor logspace(const Scalar& start, const Scalar& end, int64_t steps, double base = 10,
                       const TensorOptions& options = {}) {
  return detail::call("logspace", start, end, steps, base, options);
}
inline Tensor empty_strided(IntArrayRef size, IntArrayRef stride, const TensorOptions& options = {}) {
  return detail::call("empty_strided", size, stride, options);
}
inline Tensor normal(double mean, double std, IntArrayRef size, const TensorOptions& options = {}) {
  return detail::call("normal", mean, std, size, options);
}
#define FL_INDICES(name)                                                    \
  inline Tensor name(int64_t rows, int64_t columns, int64_t offset = 0,     \
                     const TensorOptions& options = TensorOptions(kLong)) { \
    return detail::call(#name, rows, columns, offset, options);             \
  }
FL_INDICES(tril_indices)
FL_INDICES(triu_indices)
#undef FL_INDICES
#define FL_WINDOW(name)                                                   \
  inline Tensor name(int64_t length, const TensorOptions& options = {}) { \
    return detail::call(#name, length, options);                          \
  }
FL_WINDOW(hann_window)
FL_WINDOW(hamming_window)
FL_WINDOW(blackman_window)
FL_WINDOW(bartlett_window)
#undef FL_WINDOW
inline Tensor linspace(const Scalar& start, const Scalar& end, int64_t steps,
                       const TensorOptions& options = {}) {
  return detail::call("linspace", start, end, steps, options);
}
inline Tensor randint(int64_t high, IntArrayRef size, const TensorOptions& options = {}) {
  return detail::call("randint", int64_t(0), high, size, options);
}
inline Tensor randint(int64_t low, int64_t high, IntArrayRef size, const TensorOptions& options = {}) {
  return detail::call("randint", low, high, size, options);
}
inline Tensor randperm(int64_t n, const TensorOptions& options = {}) {
  return detail::call("randperm", n, options);
}
inline Tensor scalar_tensor(const Scalar& s, const TensorOptions& options = {}) {
  return detail::call("scalar_tensor", s, options);
}
#define FL_ALIKE(name)                                                     \
  inline Tensor name(const Tensor& t, const TensorOptions& options = {}) { \
    return detail::call(#name, t, options);                                \
  }
FL_ALIKE(empty_like)
FL_ALIKE(ones_like)
FL_ALIKE(rand_like)
FL_ALIKE(randn_like)
FL_ALIKE(zeros_like)
#undef FL_ALIKE
inline Tensor full_like(const Tensor& t, const Scalar& value, const TensorOptions& options = {}) {
  return detail::call("full_like", t, value, options);
}

// A tensor on memory of the caller, which must outlive it.
inline Tensor from_blob(void* data, IntArrayRef sizes, IntArrayRef strides,
                        const std::function<void(void*)>& deleter, const TensorOptions& options = {}) {
  fl_tensor* handle = nullptr;
  auto* held = deleter ? new std::function<void(void*)>(deleter) : nullptr;
  const auto finish = [](void* memory, void* context) {
    auto* function = static_cast<std::function<void(void*)>*>(context);
    if (function) (*function)(memory);
    delete function;
  };
  check(fl_tensor_from_blob(data, static_cast<fl_dtype>(options.dtype()), sizes.data(),
                            strides.empty() ? nullptr : strides.data(), sizes.size(), finish, held, &handle));
  Tensor made = Tensor::adopt(handle);
  if (options.requires_grad()) made.requires_grad_();
  return made;
}
inline Tensor from_blob(void* data, IntArrayRef sizes, const TensorOptions& options = {}) {
  return from_blob(data, sizes, IntArrayRef(), nullptr, options);
}
inline Tensor from_blob(void* data, IntArrayRef sizes, const std::function<void(void*)>& deleter,
                        const TensorOptions& options = {}) {
  return from_blob(data, sizes, IntArrayRef(), deleter, options);
}
inline Tensor from_blob(void* data, IntArrayRef sizes, IntArrayRef strides,
                        const TensorOptions& options = {}) {
  return from_blob(data, sizes, strides, nullptr, options);
}

namespace detail {

template <class T>
Tensor tensor_of(const T* data, size_t n, std::vector<int64_t> sizes, TensorOptions options) {
  // Floats of a program become the default dtype, as in Python.
  using Stored = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;
  std::vector<Stored> copy(data, data + n);
  constexpr ScalarType own = CppTypeToScalarType<T>::value;
  const ScalarType wanted = options.has_dtype() ? options.dtype()
                            : own == kDouble    ? static_cast<ScalarType>(fl_default_dtype())
                            : own == kInt       ? kLong
                                                : own;
  if (sizes.empty() && n != 1) sizes = {static_cast<int64_t>(n)};
  Tensor made = from_blob(copy.data(), sizes, TensorOptions(own)).clone().to(wanted);
  if (options.requires_grad()) made.requires_grad_();
  return made;
}

// Data in nested braces: {{1, 2}, {3, 4}}.
class Nested {
 public:
  template <class T, std::enable_if_t<std::is_arithmetic_v<T>, int> = 0>
  Nested(T value)
      : values_{static_cast<double>(value)}, type_(CppTypeToScalarType<T>::value), is_scalar_(true) {}
  Nested(std::initializer_list<Nested> parts) {
    sizes_.push_back(static_cast<int64_t>(parts.size()));
    for (const Nested& part : parts) {
      if (values_.empty()) {
        sizes_.insert(sizes_.end(), part.sizes_.begin(), part.sizes_.end());
        type_ = part.type_;
      } else if (!std::equal(part.sizes_.begin(), part.sizes_.end(), sizes_.begin() + 1, sizes_.end())) {
        throw ValueError("[tensor] expected lists of one length, got several");
      }
      values_.insert(values_.end(), part.values_.begin(), part.values_.end());
    }
  }
  Tensor tensor(const TensorOptions& options) const {
    const bool integral = !isFloatingType(type_);
    const TensorOptions chosen =
        options.has_dtype() ? options
                            : options.dtype(type_ == kBool ? kBool
                                            : integral     ? kLong
                                                           : static_cast<ScalarType>(fl_default_dtype()));
    std::vector<double> copy = values_;
    Tensor made = from_blob(copy.data(), sizes_, TensorOptions(kDouble)).clone().to(chosen.dtype());
    if (options.requires_grad()) made.requires_grad_();
    return made;
  }

 private:
  std::vector<double> values_;
  std::vector<int64_t> sizes_;
  ScalarType type_ = kFloat;
  bool is_scalar_ = false;
};

}  // namespace detail

inline Tensor tensor(std::initializer_list<detail::Nested> data, const TensorOptions& options = {}) {
  return detail::Nested(data).tensor(options);
}
template <class T, std::enable_if_t<std::is_arithmetic_v<T>, int> = 0>
Tensor tensor(T value, const TensorOptions& options = {}) {
  return detail::tensor_of(&value, 1, {}, options);
}
template <class T>
Tensor tensor(const std::vector<T>& data, const TensorOptions& options = {}) {
  if constexpr (std::is_same_v<T, bool>) {
    const std::vector<uint8_t> copy(data.begin(), data.end());
    return detail::tensor_of(copy.data(), copy.size(), {static_cast<int64_t>(copy.size())},
                             options.has_dtype() ? options : options.dtype(kBool));
  } else {
    return detail::tensor_of(data.data(), data.size(), {static_cast<int64_t>(data.size())}, options);
  }
}
template <class T>
Tensor tensor(ArrayRef<T> data, const TensorOptions& options = {}) {
  return detail::tensor_of(data.data(), data.size(), {static_cast<int64_t>(data.size())}, options);
}

// ---------------------------------------------------------------- operators

inline Tensor cat(TensorList tensors, int64_t dim = 0) {
  return detail::call("cat", tensors, dim);
}
inline Tensor concat(TensorList tensors, int64_t dim = 0) {
  return cat(tensors, dim);
}
inline Tensor stack(TensorList tensors, int64_t dim = 0) {
  return detail::call("stack", tensors, dim);
}
inline Tensor hstack(TensorList tensors) {
  return detail::call("hstack", tensors);
}
inline Tensor vstack(TensorList tensors) {
  return detail::call("vstack", tensors);
}
inline Tensor einsum(std::string_view equation, TensorList tensors) {
  detail::Arguments arguments;
  arguments.add(equation);
  for (const Tensor& t : tensors) arguments.add(t);
  detail::Results results;
  results.run(false, "einsum", arguments);
  return results.tensor(0);
}
inline std::vector<Tensor> meshgrid(TensorList tensors, std::string_view indexing = "ij") {
  detail::Arguments arguments;
  arguments.add(tensors).add(indexing, "indexing");
  detail::Results results;
  results.run(false, "meshgrid", arguments);
  return results.tensors(0);
}
inline Tensor pow(const Scalar& base, const Tensor& exponent) {
  return detail::call("pow", base, exponent);
}
inline Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  return detail::call("where", condition, a, b);
}
inline Tensor where(const Tensor& condition, const Tensor& a, const Scalar& b) {
  return detail::call("where", condition, a, b);
}
inline Tensor where(const Tensor& condition, const Scalar& a, const Tensor& b) {
  return detail::call("where", condition, a, b);
}
inline std::tuple<Tensor, Tensor> max(const Tensor& t, int64_t dim, bool keepdim = false) {
  return t.max(dim, keepdim);
}
inline std::tuple<Tensor, Tensor> min(const Tensor& t, int64_t dim, bool keepdim = false) {
  return t.min(dim, keepdim);
}
inline Tensor max(const Tensor& t) {
  return t.max();
}
inline Tensor min(const Tensor& t) {
  return t.min();
}
inline Tensor max(const Tensor& a, const Tensor& b) {
  return a.max(b);
}
inline Tensor min(const Tensor& a, const Tensor& b) {
  return a.min(b);
}
inline std::tuple<Tensor, Tensor> sort(const Tensor& t, int64_t dim = -1, bool descending = false) {
  return t.sort(dim, descending);
}
inline std::tuple<Tensor, Tensor> topk(const Tensor& t, int64_t k, int64_t dim = -1, bool largest = true,
                                       bool sorted = true) {
  return t.topk(k, dim, largest, sorted);
}
inline std::vector<Tensor> split(const Tensor& t, int64_t size, int64_t dim = 0) {
  return t.split(size, dim);
}
inline std::vector<Tensor> chunk(const Tensor& t, int64_t chunks, int64_t dim = 0) {
  return t.chunk(chunks, dim);
}
inline std::vector<Tensor> unbind(const Tensor& t, int64_t dim = 0) {
  return t.unbind(dim);
}
inline bool equal(const Tensor& a, const Tensor& b) {
  return a.equal(b);
}
inline bool allclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8,
                     bool equal_nan = false) {
  return a.allclose(b, rtol, atol, equal_nan);
}
#define FL_LISTED(name)                                   \
  inline Tensor name(const Tensor& t, IntArrayRef list) { \
    return detail::call(#name, t, list);                  \
  }
FL_LISTED(reshape)
FL_LISTED(permute)
FL_LISTED(flip)
FL_LISTED(tile)
#undef FL_LISTED
inline Tensor sum(const Tensor& t, IntArrayRef dims, bool keepdim = false) {
  return t.sum(dims, keepdim);
}
inline Tensor mean(const Tensor& t, IntArrayRef dims, bool keepdim = false) {
  return t.mean(dims, keepdim);
}
inline Tensor sum(const Tensor& t) {
  return detail::call("sum", t);
}
inline Tensor mean(const Tensor& t) {
  return detail::call("mean", t);
}
inline Tensor conv2d(const Tensor& input, const Tensor& weight, const Tensor& bias = {},
                     IntArrayRef stride = {1, 1}, IntArrayRef padding = {0, 0}, IntArrayRef dilation = {1, 1},
                     int64_t groups = 1) {
  return detail::call("conv2d", input, weight, bias, stride, padding, dilation, groups);
}
inline Tensor max_pool2d(const Tensor& input, IntArrayRef kernel, IntArrayRef stride = {},
                         IntArrayRef padding = {0, 0}, IntArrayRef dilation = {1, 1},
                         bool ceil_mode = false) {
  return detail::call("max_pool2d", input, kernel, stride, padding, dilation, ceil_mode);
}
inline Tensor layer_norm(const Tensor& input, IntArrayRef shape, const Tensor& weight = {},
                         const Tensor& bias = {}, double eps = 1e-5) {
  return detail::call("layer_norm", input, shape, weight, bias, eps);
}

inline Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                           const Tensor& attn_mask = {}, double dropout_p = 0,
                                           bool is_causal = false, std::optional<double> scale = {}) {
  detail::Arguments arguments;
  arguments.add(query).add(key).add(value).add(attn_mask).add(dropout_p).add(is_causal);
  if (scale) arguments.add(*scale, "scale");
  detail::Results results;
  results.run(false, "scaled_dot_product_attention", arguments);
  return results.tensor(0);
}
inline Tensor gelu(const Tensor& self, const char* approximate = "none") {
  detail::Arguments arguments;
  arguments.add(self).add(approximate, "approximate");
  detail::Results results;
  results.run(false, "gelu", arguments);
  return results.tensor(0);
}

// Functions of one tensor have one address each, for what takes a function (torch::nn::Functional).
// clang-format off
#define FL_UNARY_FUNCTIONS(_) \
  _(abs) _(acos) _(asin) _(atan) _(ceil) _(cos) _(cosh) _(det) _(erf) _(exp) _(expm1) _(floor) _(inverse) \
  _(isfinite) _(isinf) _(isnan) _(log) _(log10) _(log1p) _(log2) _(logical_not) _(neg) _(reciprocal) \
  _(relu) _(rsqrt) _(selu) _(sigmoid) _(sign) _(silu) _(sin) _(sinh) _(sqrt) _(square) _(t) _(tan) _(tanh) \
  _(trace) _(trunc) _(relu6) _(hardswish) _(mish) _(log_sigmoid) _(relu_) _(sigmoid_) _(tanh_) _(zero_) \
  _(real) _(imag) _(view_as_real) _(bitwise_not) _(angle) _(sgn) _(special_expit) _(erfc) _(erfinv) \
  _(lgamma) _(digamma) _(exp2) _(frac) _(i0) _(sinc) _(asinh) _(acosh) _(atanh) _(deg2rad) _(rad2deg) \
  _(signbit) _(isneginf) _(isposinf) _(isreal) _(ravel) _(fliplr) _(flipud) _(view_as_complex) _(conj) \
  _(positive) _(absolute) _(atleast_1d) _(atleast_2d) _(atleast_3d) _(adjoint) _(logdet) _(matrix_exp) \
  _(abs_) _(exp_) _(log_) _(sqrt_) _(neg_) _(selu_) _(hardsigmoid) _(nonzero)
#define FL_FUNCTIONS(_) \
  _(add) _(addcmul) _(addmm) _(all) _(amax) _(amin) _(any) _(argmax) _(argmin) _(argsort) _(atan2) \
  _(avg_pool1d) _(baddbmm) _(batch_norm) _(bernoulli) _(bilinear) _(bincount) _(bmm) _(cdist) _(celu) \
  _(clamp) _(clamp_max) _(clamp_min) _(clone) _(conv1d) _(conv3d) _(conv_transpose2d) _(cosine_similarity) \
  _(cross) _(cumprod) _(cumsum) _(diag) _(diagonal) _(div) _(dot) _(dropout) _(elu) _(embedding) _(eq) \
  _(flatten) _(floor_divide) _(fmod) _(frobenius_norm) _(gather) _(ge) _(group_norm) _(gt) \
  _(hardtanh) _(index_select) _(isclose) _(kron) _(le) _(leaky_relu) _(lerp) _(log_softmax) _(logical_and) \
  _(logical_or) _(logsumexp) _(lt) _(masked_fill) _(masked_select) _(matmul) _(matrix_power) _(maximum) \
  _(median) _(minimum) _(mm) _(mse_loss) _(mul) _(multinomial) _(mv) _(nan_to_num) _(narrow) _(ne) \
  _(nll_loss) _(norm) _(normal) _(one_hot) _(outer) _(pinverse) _(pow) _(prelu) _(prod) \
  _(remainder) _(repeat_interleave) _(rms_norm) _(roll) _(round) _(scatter) _(scatter_add) _(select) \
  _(softmax) _(softplus) _(squeeze) _(std) _(sub) _(take) _(tensordot) _(threshold) _(transpose) _(tril) \
  _(triu) _(unsqueeze) _(var) _(xlogy) _(linear) _(logit) _(multiply) _(divide) \
  _(subtract) _(complex) _(bitwise_and) _(bitwise_or) _(count_nonzero) _(rot90) _(diff) _(trapezoid) \
  _(searchsorted) _(histc) _(dropout_) _(fill_) \
  _(binary_cross_entropy_with_logits) _(adaptive_avg_pool1d) _(max_pool1d) _(instance_norm) \
  _(broadcast_to) _(swapaxes) _(smooth_l1_loss) _(l1_loss) _(huber_loss) _(binary_cross_entropy) _(kl_div) \
  _(soft_margin_loss) _(poisson_nll_loss) _(cosine_embedding_loss) _(margin_ranking_loss) \
  _(hinge_embedding_loss) _(triplet_margin_loss) _(cross_entropy) _(movedim) _(vander) _(cov) _(corrcoef) \
  _(quantile) _(renorm) _(polar) _(logaddexp) _(logaddexp2) _(hypot) _(fmax) _(fmin) _(copysign) _(inner) \
  _(vdot) _(ger) _(addmv) _(addbmm) _(addr) _(cholesky) _(cholesky_inverse) _(cholesky_solve) _(diag_embed) \
  _(diagflat) _(nansum) _(nanmean) _(logcumsumexp) _(cumulative_trapezoid) _(trapz) _(fill) _(index_add) \
  _(index_copy) _(index_fill) _(masked_scatter) _(scatter_reduce) _(take_along_dim) _(swapdims) _(moveaxis) \
  _(unflatten) _(pairwise_distance) _(pdist) _(pixel_shuffle) _(pixel_unshuffle) _(channel_shuffle) \
  _(adaptive_max_pool1d) _(avg_pool2d) _(avg_pool3d) _(max_pool3d) _(conv_transpose1d) \
  _(conv_transpose3d) _(isin) _(bucketize) _(heaviside) _(nextafter) _(gcd) _(lcm) _(true_divide) \
  _(rrelu) _(alpha_dropout) _(feature_dropout) _(embedding_bag) _(ctc_loss) \
  _(multi_margin_loss) _(multilabel_margin_loss) _(randint_like) _(sum_to_size) \
  _(not_equal) _(greater) _(greater_equal) _(less) \
  _(less_equal) _(bitwise_left_shift) _(bitwise_right_shift) _(clip) _(float_power)
// clang-format on
#define FL_UNARY_FUNCTION(name)            \
  inline Tensor name(const Tensor& self) { \
    return detail::call(#name, self);      \
  }
FL_UNARY_FUNCTIONS(FL_UNARY_FUNCTION)
#undef FL_UNARY_FUNCTION
#define FL_FUNCTION(name)                           \
  template <class... A>                             \
  Tensor name(const Tensor& first, const A&... a) { \
    return detail::call(#name, first, a...);        \
  }
FL_FUNCTIONS(FL_FUNCTION)
#undef FL_FUNCTION

// ---------------------------------------------------------------- functions of several results

namespace detail {
template <size_t... I>
auto tuple_of(const Results& results, std::index_sequence<I...>) {
  return std::make_tuple(results.tensor(I)...);
}
// A function that returns N tensors.
template <size_t N, class... A>
auto tuple(const char* name, const A&... a) {
  Results results;
  run(results, false, name, a...);
  return tuple_of(results, std::make_index_sequence<N>());
}
template <class... A>
std::vector<Tensor> list(const char* name, const A&... a) {
  Results results;
  run(results, false, name, a...);
  return results.tensors(0);
}
}  // namespace detail

// clang-format off
#define FL_PAIRS(_) \
  _(std_mean) _(var_mean) _(aminmax) _(cummax) _(cummin) _(kthvalue) _(mode) _(nanmedian) _(slogdet) _(frexp) \
  _(triangular_solve) _(gru) _(rnn_tanh) _(rnn_relu) _(max_pool2d_with_indices) _(qr) _(geqrf)
#define FL_TRIPLES(_) _(svd) _(native_layer_norm) _(native_batch_norm) _(lstm)
#define FL_LISTS(_) _(tensor_split) _(hsplit) _(vsplit) _(dsplit)
// clang-format on
#define FL_FUNCTION(name)                         \
  template <class... A>                           \
  auto name(const Tensor& first, const A&... a) { \
    return detail::tuple<2>(#name, first, a...);  \
  }
FL_PAIRS(FL_FUNCTION)
#undef FL_FUNCTION
#define FL_FUNCTION(name)                         \
  template <class... A>                           \
  auto name(const Tensor& first, const A&... a) { \
    return detail::tuple<3>(#name, first, a...);  \
  }
FL_TRIPLES(FL_FUNCTION)
#undef FL_FUNCTION
#define FL_FUNCTION(name)                                        \
  template <class... A>                                          \
  std::vector<Tensor> name(const Tensor& first, const A&... a) { \
    return detail::list(#name, first, a...);                     \
  }
FL_LISTS(FL_FUNCTION)
#undef FL_FUNCTION
// Functions that are known by a longer name.
#define FL_FUNCTION(name, full)                     \
  template <class... A>                             \
  Tensor name(const Tensor& first, const A&... a) { \
    return detail::call(full, first, a...);         \
  }
FL_FUNCTION(cross_entropy_loss, "nn.functional.cross_entropy")
FL_FUNCTION(glu, "nn.functional.glu")
FL_FUNCTION(softmin, "nn.functional.softmin")
#undef FL_FUNCTION
inline Tensor softsign(const Tensor& self) {
  return detail::call("nn.functional.softsign", self);
}

// The different values of a vector whose equal values are neighbours, where each element is among them, and
// how often they are there.
inline std::tuple<Tensor, Tensor, Tensor> unique_consecutive(const Tensor& self, bool = false, bool = false) {
  const Tensor flat = self.reshape({-1});
  if (flat.numel() == 0) return {flat, empty({0}, kLong), empty({0}, kLong)};
  const Tensor changes = flat.slice(0, 1).ne(flat.slice(0, 0, flat.numel() - 1));
  const Tensor begins = cat({ones({1}, kBool), changes});
  const Tensor places = begins.to(kLong).cumsum(int64_t(0)) - 1;
  return {flat.masked_select(begins), places.reshape(self.sizes()), places.bincount()};
}
inline std::tuple<Tensor, Tensor, Tensor> _unique2(const Tensor& self, bool = true, bool = false,
                                                   bool = false) {
  const auto [values, order] = self.reshape({-1}).sort();
  const auto [different, places, counts] = unique_consecutive(values);
  return {different, empty_like(places).scatter(int64_t(0), order, places).reshape(self.sizes()), counts};
}
inline std::tuple<Tensor, Tensor> median(const Tensor& t, int64_t dim, bool keepdim = false) {
  return t.median(dim, keepdim);
}
inline std::vector<Tensor> split(const Tensor& t, IntArrayRef sizes, int64_t dim = 0) {
  return t.split(sizes, dim);
}
inline std::vector<Tensor> split_with_sizes(const Tensor& t, IntArrayRef sizes, int64_t dim = 0) {
  return t.split(sizes, dim);
}
inline std::vector<Tensor> where(const Tensor& condition) {
  return condition.nonzero().unbind(1);
}
#define FL_OF_LIST(name)                   \
  inline Tensor name(TensorList tensors) { \
    return detail::call(#name, tensors);   \
  }
FL_OF_LIST(block_diag)
FL_OF_LIST(cartesian_prod)
FL_OF_LIST(column_stack)
FL_OF_LIST(dstack)
FL_OF_LIST(row_stack)
#undef FL_OF_LIST
inline std::vector<Tensor> broadcast_tensors(TensorList tensors) {
  detail::Arguments arguments;
  for (const Tensor& t : tensors) arguments.add(t);
  detail::Results results;
  results.run(false, "broadcast_tensors", arguments);
  return results.tensors(0);
}

// ---------------------------------------------------------------- losses with a way to reduce

namespace Reduction {
enum Reduction { None, Mean, Sum };
}

namespace detail {
inline Tensor loss(const char* name, const Tensor& input, const Tensor& target, const Tensor& weight,
                   Reduction::Reduction reduction) {
  static const char* const words[] = {"none", "mean", "sum"};
  Arguments arguments;
  arguments.add(input).add(target);
  if (weight.defined()) arguments.add(weight, "weight");
  arguments.add(words[reduction], "reduction");
  Results results;
  results.run(false, name, arguments);
  return results.tensor(0);
}
}  // namespace detail

#define FL_LOSSES(_) _(mse_loss) _(l1_loss) _(smooth_l1_loss) _(huber_loss) _(kl_div) _(soft_margin_loss)
#define FL_LOSS(name)                                                                             \
  inline Tensor name(const Tensor& input, const Tensor& target, Reduction::Reduction reduction) { \
    return detail::loss("nn.functional." #name, input, target, Tensor(), reduction);              \
  }
FL_LOSSES(FL_LOSS)
#undef FL_LOSS
#define FL_WEIGHTED_LOSSES(_) \
  _(nll_loss) _(binary_cross_entropy) _(binary_cross_entropy_with_logits) _(cross_entropy)
#define FL_LOSS(name)                                                                 \
  inline Tensor name(const Tensor& input, const Tensor& target, const Tensor& weight, \
                     Reduction::Reduction reduction) {                                \
    return detail::loss("nn.functional." #name, input, target, weight, reduction);    \
  }
FL_WEIGHTED_LOSSES(FL_LOSS)
#undef FL_LOSS

// torch::linalg_inv and torch::linalg::inv; torch::fft_rfft and torch::fft::rfft.
// clang-format off
#define FL_LINALG(_) \
  _(det) _(inv) _(solve) _(norm) _(cholesky) _(eigvalsh) _(eigvals) _(svdvals) _(matrix_exp) _(matrix_norm) \
  _(vector_norm) _(pinv) _(matrix_rank) _(cross) _(matmul) _(cond) _(matrix_power) _(solve_triangular) \
  _(diagonal) _(vecdot) _(vander) _(householder_product) _(tensorinv) _(tensorsolve)
#define FL_LINALG_PAIRS(_) _(qr) _(eigh) _(eig) _(slogdet) _(lu_factor) _(inv_ex) _(cholesky_ex)
#define FL_LINALG_TRIPLES(_) _(svd) _(lu)
#define FL_FFT(_) \
  _(fft) _(ifft) _(rfft) _(irfft) _(hfft) _(ihfft) _(fft2) _(ifft2) _(rfft2) _(irfft2) _(fftn) _(ifftn) \
  _(rfftn) _(irfftn) _(fftshift) _(ifftshift)
// clang-format on
#define FL_MEMBER(space, name, statement)                   \
  namespace space {                                         \
  template <class... A>                                     \
  auto name(const Tensor& first, const A&... a) {           \
    statement;                                              \
  }                                                         \
  }                                                         \
  template <class... A>                                     \
  auto space##_##name(const Tensor& first, const A&... a) { \
    statement;                                              \
  }
#define FL_FUNCTION(name) FL_MEMBER(linalg, name, return at::detail::call("linalg." #name, first, a...))
FL_LINALG(FL_FUNCTION)
#undef FL_FUNCTION
#define FL_FUNCTION(name) FL_MEMBER(linalg, name, return at::detail::tuple<2>("linalg." #name, first, a...))
FL_LINALG_PAIRS(FL_FUNCTION)
#undef FL_FUNCTION
#define FL_FUNCTION(name) FL_MEMBER(linalg, name, return at::detail::tuple<3>("linalg." #name, first, a...))
FL_LINALG_TRIPLES(FL_FUNCTION)
#undef FL_FUNCTION
FL_MEMBER(linalg, lstsq, return at::detail::tuple<4>("linalg.lstsq", first, a...))
#define FL_FUNCTION(name) FL_MEMBER(fft, name, return at::detail::call("fft." #name, first, a...))
FL_FFT(FL_FUNCTION)
#undef FL_FUNCTION
#undef FL_MEMBER
namespace linalg {
// The same with `{}` for all dimensions, whose type nobody else could tell.
inline Tensor norm(const Tensor& t, const Scalar& ord, std::initializer_list<int64_t> dim,
                   bool keepdim = false, std::optional<ScalarType> dtype = {}) {
  const Tensor input = dtype ? t.to(*dtype) : t;
  if (dim.size() > 0) return detail::call("linalg.norm", input, ord, IntArrayRef(dim), keepdim);
  return detail::call("linalg.norm", input, ord, std::nullopt, keepdim);
}
}  // namespace linalg
inline Tensor linalg_multi_dot(TensorList tensors) {
  return detail::call("linalg.multi_dot", tensors);
}

// ---------------------------------------------------------------- printing

std::ostream& operator<<(std::ostream& out, const Tensor& t);

namespace detail {

inline std::string shown(const Tensor& t, bool integral) {
  std::ostringstream text;
  if (integral) {
    text << t.item().toLong();
  } else {
    text.precision(4);
    text << std::fixed << t.item().toDouble();
  }
  return text.str();
}

// Whether numbers are whole, and print without a fraction.
inline bool is_whole(const Tensor& t) {
  return !t.is_complex() && t.numel() > 0 && (t.to(kDouble).frac() == 0.0).all().item<bool>() &&
         (t.to(kDouble).abs() < 1e15).all().item<bool>();
}

inline void print_rows(std::ostream& out, const Tensor& t, bool integral) {
  integral = integral || is_whole(t);
  const int64_t columns = t.dim() == 2 ? t.size(1) : 1;
  const Tensor flat = t.reshape({-1});
  std::vector<std::string> cells;
  size_t width = 0;
  for (int64_t i = 0; i < flat.numel(); ++i) {
    cells.push_back(shown(flat[i], integral));
    width = std::max(width, cells.back().size());
  }
  for (size_t i = 0; i < cells.size(); ++i) {
    const bool starts = static_cast<int64_t>(i) % columns == 0;
    out << (starts ? " " : "  ") << std::string(width - cells[i].size(), ' ') << cells[i];
    if (static_cast<int64_t>(i) % columns == columns - 1) out << '\n';
  }
}

inline void print_blocks(std::ostream& out, const Tensor& t, const std::string& place, bool integral) {
  if (t.dim() > 2) {
    for (int64_t i = 0; i < t.size(0); ++i)
      print_blocks(out, t[i], place + std::to_string(i + 1) + ",", integral);
    return;
  }
  out << "(" << place << ".,.) = \n";
  print_rows(out, t, integral);
  out << '\n';
}

}  // namespace detail

inline std::ostream& operator<<(std::ostream& out, const Tensor& t) {
  if (!t.defined()) return out << "[ Tensor (undefined) ]";
  const Tensor plain = t.detach();
  const bool integral = !plain.is_floating_point();
  if (plain.dim() == 0)
    out << plain.item() << '\n';
  else if (plain.dim() <= 2)
    detail::print_rows(out, plain, integral);
  else
    detail::print_blocks(out, plain, "", integral);
  out << "[ CPU" << toString(t.scalar_type()) << "Type{";
  for (int64_t d = 0; d < t.dim(); ++d) out << (d ? "," : "") << t.size(d);
  return out << "} ]";
}

}  // namespace at

// ---------------------------------------------------------------- modes

namespace c10 {

struct GradMode {
  static bool is_enabled() { return fl_grad_enabled() != 0; }
  static void set_enabled(bool on) { fl_set_grad_enabled(on); }
};

}  // namespace c10

namespace at {

class AutoGradMode {
 public:
  explicit AutoGradMode(bool enabled) : before_(fl_grad_enabled()) { fl_set_grad_enabled(enabled); }
  ~AutoGradMode() { fl_set_grad_enabled(before_); }
  AutoGradMode(const AutoGradMode&) = delete;

 private:
  int before_;
};
// Nothing is recorded while one lives.
class NoGradGuard : public AutoGradMode {
 public:
  NoGradGuard() : AutoGradMode(false) {}
};

}  // namespace at

namespace c10 {

class InferenceMode : public at::AutoGradMode {
 public:
  explicit InferenceMode(bool enabled = true) : AutoGradMode(enabled ? false : fl_grad_enabled() != 0) {}
};

}  // namespace c10

// ---------------------------------------------------------------- torch::

namespace torch {

using namespace at;
using c10::InferenceMode;
using c10::nullopt;
using c10::optional;
using Dtype = c10::ScalarType;

inline TensorOptions dtype(ScalarType t) {
  return TensorOptions(t);
}
inline TensorOptions device(Device d) {
  return TensorOptions(d);
}
inline TensorOptions requires_grad(bool yes = true) {
  return TensorOptions().requires_grad(yes);
}
inline TensorOptions layout(Layout) {
  return TensorOptions();
}

inline void manual_seed(uint64_t seed) {
  fl_manual_seed(seed);
}
inline void set_num_threads(int threads) {
  fl_set_num_threads(threads);
}
inline int get_num_threads() {
  return fl_num_threads();
}
inline void set_default_dtype(ScalarType t) {
  c10::check(fl_set_default_dtype(static_cast<fl_dtype>(t)));
}
inline ScalarType get_default_dtype() {
  return static_cast<ScalarType>(fl_default_dtype());
}

using at::AutoGradMode;
using at::NoGradGuard;
using c10::GradMode;

// The dtype that two dtypes become together.
inline ScalarType promote_types(ScalarType a, ScalarType b) {
  return (at::empty({1}, a) + at::empty({1}, b)).scalar_type();
}

namespace autograd {

using Variable = Tensor;
using variable_list = std::vector<Tensor>;

inline variable_list grad(const variable_list& outputs, const variable_list& inputs,
                          const variable_list& grad_outputs = {},
                          std::optional<bool> retain_graph = std::nullopt, bool create_graph = false,
                          bool allow_unused = false) {
  std::vector<fl_tensor*> roots, given, wanted, found(inputs.size());
  for (const Tensor& t : outputs) roots.push_back(t.handle());
  for (const Tensor& t : grad_outputs) given.push_back(t.handle());
  for (const Tensor& t : inputs) wanted.push_back(t.handle());
  c10::check(fl_backward(roots.data(), given.empty() ? nullptr : given.data(), roots.size(), wanted.data(),
                         wanted.size(), retain_graph.value_or(create_graph), create_graph, found.data()));
  variable_list gradients;
  for (fl_tensor* handle : found) {
    gradients.push_back(Tensor::adopt(handle));
    if (!gradients.back().defined() && !allow_unused)
      throw c10::Error(
          "[grad] expected inputs that the outputs depend on, got one that they do not; allow_unused returns "
          "none for it");
  }
  return gradients;
}
inline void backward(const variable_list& tensors, const variable_list& grad_tensors = {},
                     std::optional<bool> retain_graph = std::nullopt, bool create_graph = false) {
  std::vector<fl_tensor*> roots, given;
  for (const Tensor& t : tensors) roots.push_back(t.handle());
  for (const Tensor& t : grad_tensors) given.push_back(t.handle());
  c10::check(fl_backward(roots.data(), given.empty() ? nullptr : given.data(), roots.size(), nullptr, 0,
                         retain_graph.value_or(create_graph), create_graph, nullptr));
}

}  // namespace autograd
}  // namespace torch

// torch::Tensor for programs without Python: a counted handle of the C interface.
#pragma once

#include <flambeau/torch/accessor.h>
#include <flambeau/torch/call.h>

#include <array>
#include <tuple>

namespace at {

namespace indexing {

struct NoneType {};
struct EllipsisType {};
constexpr NoneType None{};
constexpr EllipsisType Ellipsis{};
struct Slice {
  static constexpr int64_t kAbsent = std::numeric_limits<int64_t>::min();
  Slice() = default;
  template <class A>
  Slice(A start) : ends{end(start), kAbsent, kAbsent} {}
  template <class A, class B>
  Slice(A start, B stop) : ends{end(start), end(stop), kAbsent} {}
  template <class A, class B>
  Slice(A start, B stop, int64_t step) : ends{end(start), end(stop), step} {}
  int64_t ends[3] = {kAbsent, kAbsent, kAbsent};

 private:
  static int64_t end(int64_t at) { return at; }
  static int64_t end(NoneType) { return kAbsent; }
};
class TensorIndex;

}  // namespace indexing

// clang-format off
#define FL_MORE_METHODS(_) \
  _(logit) _(erfinv) _(erfc) _(digamma) _(exp2) _(frac) _(i0) _(sinc) _(asinh) _(acosh) _(atanh) _(deg2rad) \
  _(rad2deg) _(sgn) _(angle) _(fmax) _(fmin) _(hypot) _(copysign) _(heaviside) _(logaddexp) _(inner) _(vdot) \
  _(ger) _(addmv) _(addbmm) _(addr) _(matrix_power) _(matrix_exp) _(adjoint) _(nansum) _(nanmean) _(quantile) \
  _(count_nonzero) _(cov) _(corrcoef) _(diff) _(fliplr) _(flipud) _(rot90) _(ravel) _(swapdims) _(moveaxis) \
  _(diag_embed) _(diagflat) _(fill_diagonal_) _(tril_) _(triu_) _(clip_) _(not_equal) _(greater_equal) \
  _(less_equal) _(scatter_reduce) _(take_along_dim) _(put_) _(masked_scatter) _(masked_scatter_) _(index_copy) \
  _(index_fill) _(bincount) _(histc) _(logcumsumexp) _(square_) _(sign_) _(atan2_) _(fmod_) _(remainder_) \
  _(hardshrink) _(log2_) _(log1p_) _(expm1_) _(tan_) _(sinh_) _(cosh_) _(addmv_) _(baddbmm_) \
  _(logical_and_) _(logical_or_) _(logical_not_) _(eq_) _(ne_) _(lt_) _(le_) _(gt_) _(ge_) _(bitwise_and_) \
  _(bitwise_or_) _(bitwise_xor) _(bitwise_left_shift) _(bitwise_right_shift) _(cauchy_) _(log_normal_) \
  _(geometric_) _(renorm_) _(cumprod_) _(true_divide) _(isneginf) _(isposinf) _(signbit) _(nanquantile) \
  _(logdet) _(cholesky_inverse) _(cholesky_solve) _(resize_as_) _(index_reduce_) _(scatter_reduce_) \
  _(nan_to_num_) _(prelu) _(conj_physical) _(resolve_conj)
// clang-format on
// clang-format off
#define FL_METHODS(_) \
  _(abs) _(acos) _(add) _(addcdiv) _(addcmul) _(addmm) _(all) _(amax) _(amin) _(any) _(argmax) _(argmin) \
  _(argsort) _(asin) _(atan) _(atan2) _(baddbmm) _(bernoulli) _(bitwise_and) _(bitwise_not) _(bitwise_or) \
  _(bmm) _(ceil) _(clamp) _(clamp_max) _(clamp_min) _(clip) _(clone) _(conj) _(contiguous) _(cos) _(cosh) \
  _(cross) _(cumprod) _(cumsum) _(diag) _(diagonal) _(div) _(dot) _(eq) _(erf) _(exp) _(expand_as) \
  _(expm1) _(fill) _(flatten) _(float_power) _(floor) _(floor_divide) _(fmod) _(gather) _(ge) _(greater) \
  _(gt) _(index_add) _(index_select) _(inverse) _(isclose) _(isfinite) _(isinf) _(isnan) _(kron) _(le) \
  _(lerp) _(less) _(lgamma) _(log) _(log10) _(log1p) _(log2) _(log_softmax) _(logical_and) _(logical_not) \
  _(logical_or) _(logical_xor) _(logsumexp) _(lt) _(masked_fill) _(masked_select) _(matmul) _(maximum) \
  _(minimum) _(mm) _(movedim) _(mul) _(multinomial) _(mv) _(nan_to_num) _(narrow) _(ne) _(neg) _(nonzero) \
  _(norm) _(outer) _(pow) _(prod) _(reciprocal) _(relu) _(remainder) _(renorm) _(repeat_interleave) \
  _(reshape_as) _(round) _(rsqrt) _(scatter) _(scatter_add) _(select) _(sigmoid) _(sign) _(sin) _(sinh) \
  _(softmax) _(sqrt) _(square) _(squeeze) _(std) _(sub) _(subtract) _(swapaxes) _(t) _(take) _(tan) \
  _(tanh) _(trace) _(transpose) _(tril) _(triu) _(trunc) _(type_as) _(unflatten) _(unfold) _(unsqueeze) \
  _(var) _(view_as) _(where) _(xlogy) _(multiply) _(divide) _(cholesky) _(det) _(pinverse) _(detach) \
  _(positive) _(absolute) _(zero_) _(relu_) _(abs_) _(add_) _(addcdiv_) _(addcmul_) _(addmm_) \
  _(bernoulli_) _(ceil_) _(clamp_) _(clamp_min_) _(clamp_max_) _(cos_) _(copy_) _(cumsum_) _(div_) _(exp_) \
  _(exponential_) _(fill_) _(floor_) _(index_add_) _(index_copy_) _(index_fill_) _(lerp_) _(log_) \
  _(masked_fill_) _(mul_) _(neg_) _(normal_) _(pow_) _(random_) _(reciprocal_) _(round_) _(rsqrt_) \
  _(scatter_) _(scatter_add_) _(sigmoid_) _(sin_) _(sqrt_) _(squeeze_) _(sub_) _(tanh_) _(uniform_) \
  _(unsqueeze_) _(t_) _(transpose_) _(trunc_) _(sum) _(mean) _(median) _(view_as_real) _(view_as_complex) \
  _(real) _(imag) \
  FL_MORE_METHODS(_)
// clang-format on

class Tensor {
 public:
  Tensor() = default;
  Tensor(const Tensor& o) : handle_(fl_tensor_retain(o.handle_)) {}
  Tensor(Tensor&& o) noexcept : handle_(std::exchange(o.handle_, nullptr)) {}
  Tensor& operator=(const Tensor& o) & {
    Tensor copy(o);
    std::swap(handle_, copy.handle_);
    return *this;
  }
  Tensor& operator=(Tensor&& o) & noexcept {
    std::swap(handle_, o.handle_);
    return *this;
  }
  // Writes into what an index shows: x[0] = y.
  Tensor& operator=(const Tensor& o) && {
    copy_(o);
    return *this;
  }
  Tensor& operator=(const Scalar& s) && {
    fill_(s);
    return *this;
  }
  ~Tensor() { fl_tensor_release(handle_); }

  // Where a tensor comes from; null for one without history.
  struct Node {
    std::string text;
    std::string name() const { return text; }
  };
  std::shared_ptr<Node> grad_fn() const {
    const char* name = fl_tensor_grad_fn(handle_);
    return name ? std::make_shared<Node>(Node{name}) : nullptr;
  }

  // Takes over a handle of the C interface.
  static Tensor adopt(fl_tensor* handle) {
    Tensor t;
    t.handle_ = handle;
    return t;
  }
  fl_tensor* handle() const { return handle_; }
  bool defined() const { return handle_ != nullptr; }
  void reset() { *this = Tensor(); }
  bool is_same(const Tensor& o) const { return handle_ == o.handle_; }
  const Tensor& expect() const {
    if (!handle_) throw Error("[tensor] expected a tensor, got an undefined one");
    return *this;
  }

  int64_t dim() const { return fl_tensor_dim(expect().handle_); }
  int64_t ndimension() const { return dim(); }
  int64_t numel() const { return fl_tensor_numel(expect().handle_); }
  int64_t size(int64_t d) const { return sizes()[wrapped(d)]; }
  int64_t stride(int64_t d) const { return strides()[wrapped(d)]; }
  IntArrayRef sizes() const {
    return IntArrayRef(fl_tensor_sizes(expect().handle_), static_cast<size_t>(dim()));
  }
  IntArrayRef strides() const {
    return IntArrayRef(fl_tensor_strides(expect().handle_), static_cast<size_t>(dim()));
  }
  int64_t storage_offset() const { return fl_tensor_offset(expect().handle_); }
  ScalarType scalar_type() const {
    const auto dtype = static_cast<ScalarType>(fl_tensor_dtype(expect().handle_));
    if (static_cast<int>(dtype) < 0)
      throw c10::TypeError("[dtype] expected a dtype of the C++ interface, got another one");
    return dtype;
  }
  ScalarType dtype() const { return scalar_type(); }
  int64_t element_size() const { return elementSize(scalar_type()); }
  int64_t itemsize() const { return element_size(); }
  size_t nbytes() const { return static_cast<size_t>(numel() * element_size()); }
  bool is_contiguous() const { return fl_tensor_is_contiguous(expect().handle_) != 0; }
  bool is_floating_point() const { return isFloatingType(scalar_type()); }
  bool is_complex() const { return isComplexType(scalar_type()); }
  Layout layout() const { return kStrided; }
  bool is_sparse() const { return false; }
  bool is_quantized() const { return false; }
  bool is_signed() const { return scalar_type() != kByte && scalar_type() != kBool; }
  bool has_storage() const { return defined(); }
  // The memory behind a tensor, from its first element on.
  struct StorageView {
    size_t bytes;
    void* memory;
    size_t nbytes() const { return bytes; }
    void* data() const { return memory; }
  };
  StorageView storage() const {
    int64_t last = numel() ? 1 : 0;
    for (int64_t d = 0; d < dim() && numel(); ++d) last += (size(d) - 1) * stride(d);
    return {static_cast<size_t>(last * element_size()), data_ptr()};
  }
  // The kind of tensor, such as CPUFloatType.
  std::string toString() const {
    return std::string(is_cuda()   ? "CUDA"
                       : is_meta() ? "Meta"
                                   : "CPU") +
           c10::toString(scalar_type()) + "Type";
  }
  void print() const {
    std::cerr << (defined() ? c10::str("[", toString(), " ", sizes(), "]") : "[UndefinedTensor]")
              << std::endl;
  }
  bool is_cuda() const { return device().is_cuda(); }
  bool is_cpu() const { return device().is_cpu(); }
  bool is_meta() const { return device().type() == kMeta; }
  Device device() const {
    int index = -1;
    const int type = fl_tensor_device(expect().handle_, &index);
    return Device(type == kDLCPU ? kCPU : type == kDLCUDA ? kCUDA : kMeta, index);
  }
  TensorOptions options() const { return TensorOptions().dtype(scalar_type()).device(device()); }

  void* data_ptr() const { return fl_tensor_data(expect().handle_); }
  void* mutable_data_ptr() const { return data_ptr(); }
  const void* const_data_ptr() const { return data_ptr(); }
  template <class T>
  T* data_ptr() const {
    constexpr ScalarType wanted = CppTypeToScalarType<std::remove_const_t<T>>::value;
    if (scalar_type() != wanted)
      throw Error(c10::str("expected scalar type ", c10::toString(wanted), " but found ",
                           c10::toString(scalar_type())));
    return static_cast<T*>(data_ptr());
  }
  template <class T>
  T* mutable_data_ptr() const {
    return data_ptr<T>();
  }
  template <class T>
  const T* const_data_ptr() const {
    return data_ptr<T>();
  }
  template <class T, size_t N>
  TensorAccessor<T, N> accessor() const {
    if (dim() != int64_t(N)) throw Error(c10::str("expected ", N, " dimensions but found ", dim()));
    return TensorAccessor<T, N>(data_ptr<T>(), sizes().data(), strides().data());
  }
  Scalar item() const {
    double value[2];
    int64_t integer = 0;
    check(fl_tensor_item(expect().handle_, value, &integer));
    if (is_complex()) return Scalar(std::complex<double>(value[0], value[1]));
    if (is_floating_point()) return Scalar(value[0]);
    return scalar_type() == kBool ? Scalar(integer != 0) : Scalar(integer);
  }
  template <class T>
  T item() const {
    return item().to<T>();
  }

  // ---- gradients

  bool requires_grad() const { return fl_tensor_requires_grad(expect().handle_) != 0; }
  const Tensor& requires_grad_(bool yes = true) const {
    check(fl_tensor_set_requires_grad(expect().handle_, yes));
    return *this;
  }
  const Tensor& set_requires_grad(bool yes) const { return requires_grad_(yes); }
  bool is_leaf() const { return fl_tensor_is_leaf(expect().handle_) != 0; }
  Tensor grad() const { return adopt(fl_tensor_grad(expect().handle_)); }
  // The gradient as something to assign to.
  class MutableGrad;
  MutableGrad mutable_grad() const;
  void set_grad(const Tensor& g) const { check(fl_tensor_set_grad(expect().handle_, g.handle_)); }
  void retain_grad() const { check(fl_tensor_retain_grad(expect().handle_)); }
  // The tensor shows the memory of another one from now on, wherever it is known.
  void set_data(const Tensor& data) const {
    check(fl_tensor_set_data(expect().handle_, data.expect().handle_));
  }
  // Calls a function with the gradient in each backward. What it returns, if anything, takes its place.
  template <class F>
  size_t register_hook(F hook) const {
    size_t number = 0;
    check(fl_tensor_register_hook(
        expect().handle_, run_hook<F>, [](void* context) { delete static_cast<F*>(context); },
        new F(std::move(hook)), &number));
    return number;
  }
  void remove_hook(size_t number) const { check(fl_tensor_remove_hook(expect().handle_, number)); }
  Tensor detach() const { return adopt(fl_tensor_detach(expect().handle_)); }
  Tensor data() const { return detach(); }
  template <class T>
  T* data() const {
    return data_ptr<T>();
  }
  void backward() const { backward(Tensor()); }
  void backward(const Tensor& gradient, std::optional<bool> retain_graph = std::nullopt,
                bool create_graph = false) const {
    fl_tensor *const root = expect().handle_, *const given = gradient.handle_;
    check(fl_backward(&root, gradient.defined() ? &given : nullptr, 1, nullptr, 0,
                      retain_graph.value_or(create_graph), create_graph, nullptr));
  }

  // ---- methods with lists of sizes or dimensions

#define FL_LIST_METHODS(_) _(view) _(reshape) _(expand) _(permute) _(repeat) _(flip) _(tile)
#define FL_METHOD(name)                 \
  Tensor name(IntArrayRef list) const { \
    return call(#name, list);           \
  }
  FL_LIST_METHODS(FL_METHOD)
#undef FL_METHOD
  Tensor sum(IntArrayRef dims, bool keepdim = false) const { return call("sum", dims, keepdim); }
  Tensor mean(IntArrayRef dims, bool keepdim = false) const { return call("mean", dims, keepdim); }
  Tensor sum(ScalarType dtype) const { return named("sum", dtype, "dtype"); }
  Tensor mean(ScalarType dtype) const { return named("mean", dtype, "dtype"); }
  Tensor roll(IntArrayRef shifts, IntArrayRef dims = {}) const { return call("roll", shifts, dims); }
  Tensor contiguous(MemoryFormat format) const { return named("contiguous", format, "memory_format"); }

  // ---- methods with other results

  std::tuple<Tensor, Tensor> max(int64_t dim, bool keepdim = false) const {
    return pair("max", dim, keepdim);
  }
  std::tuple<Tensor, Tensor> min(int64_t dim, bool keepdim = false) const {
    return pair("min", dim, keepdim);
  }
  Tensor max() const { return call("max"); }
  Tensor min() const { return call("min"); }
  Tensor max(const Tensor& other) const { return call("maximum", other); }
  Tensor min(const Tensor& other) const { return call("minimum", other); }
  std::tuple<Tensor, Tensor> sort(int64_t dim = -1, bool descending = false) const {
    return pair("sort", dim, descending);
  }
  std::tuple<Tensor, Tensor> topk(int64_t k, int64_t dim = -1, bool largest = true,
                                  bool sorted = true) const {
    return pair("topk", k, dim, largest, sorted);
  }
  std::tuple<Tensor, Tensor> median(int64_t dim, bool keepdim = false) const {
    return pair("median", dim, keepdim);
  }
  Tensor median() const { return call("median"); }
  std::vector<Tensor> split(int64_t size, int64_t dim = 0) const { return list("split", size, dim); }
  std::vector<Tensor> split(IntArrayRef sizes, int64_t dim = 0) const { return list("split", sizes, dim); }
  std::vector<Tensor> split_with_sizes(IntArrayRef sizes, int64_t dim = 0) const { return split(sizes, dim); }
  std::vector<Tensor> tensor_split(int64_t sections, int64_t dim = 0) const {
    return list("tensor_split", sections, dim);
  }
  std::tuple<Tensor, Tensor> cummax(int64_t dim) const { return pair("cummax", dim); }
  std::tuple<Tensor, Tensor> cummin(int64_t dim) const { return pair("cummin", dim); }
  std::tuple<Tensor, Tensor> kthvalue(int64_t k, int64_t dim = -1, bool keepdim = false) const {
    return pair("kthvalue", k, dim, keepdim);
  }
  std::tuple<Tensor, Tensor> mode(int64_t dim = -1, bool keepdim = false) const {
    return pair("mode", dim, keepdim);
  }
  std::tuple<Tensor, Tensor> aminmax() const { return pair("aminmax"); }
  std::vector<Tensor> chunk(int64_t chunks, int64_t dim = 0) const { return list("chunk", chunks, dim); }
  std::vector<Tensor> unbind(int64_t dim = 0) const { return list("unbind", dim); }
  bool equal(const Tensor& other) const;
  bool allclose(const Tensor& other, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false) const;
  Tensor slice(int64_t dim = 0, std::optional<int64_t> start = std::nullopt,
               std::optional<int64_t> end = std::nullopt, int64_t step = 1) const;

  Tensor to(ScalarType t) const { return named("to", t, "dtype"); }
  Tensor to(ScalarType t, bool) const { return to(t); }
  Tensor to(Device d) const { return named("to", d, "device"); }
  Tensor to(DeviceType t) const { return to(Device(t)); }
  Tensor to(Device d, ScalarType t) const { return to(d).to(t); }
  Tensor to(const TensorOptions& o) const { return o.has_dtype() ? to(o.dtype()) : *this; }
  Tensor to(const Tensor& other) const { return to(other.scalar_type()); }
  Tensor to(DeviceType d, ScalarType t) const { return to(Device(d), t); }
  Tensor new_empty(IntArrayRef size, const TensorOptions& o = {}) const {
    return fresh("new_empty", o, size);
  }
  Tensor new_zeros(IntArrayRef size, const TensorOptions& o = {}) const {
    return fresh("new_zeros", o, size);
  }
  Tensor new_ones(IntArrayRef size, const TensorOptions& o = {}) const { return fresh("new_ones", o, size); }
  Tensor new_full(IntArrayRef size, const Scalar& value, const TensorOptions& o = {}) const {
    return fresh("new_full", o, size, value);
  }
  Tensor cuda() const { return to(Device(kCUDA)); }
  Tensor toType(ScalarType t) const { return to(t); }
  Tensor cpu() const { return *this; }
  Tensor mT() const { return transpose(-2, -1); }
  Tensor view(ScalarType t) const { return named("view", t, "dtype"); }
  const Tensor& resize_(IntArrayRef size) const {
    call("resize_", size);
    return *this;
  }

  Tensor operator-() const { return call("neg"); }
  Tensor operator~() const { return call("bitwise_not"); }
  Tensor operator[](int64_t i) const { return call("select", int64_t(0), i); }
  Tensor operator[](const Tensor& i) const { return call("__getitem__", i); }
  Tensor index(std::initializer_list<indexing::TensorIndex> indices) const;
  Tensor index(const std::vector<indexing::TensorIndex>& indices) const;
  const Tensor& index_put_(std::initializer_list<indexing::TensorIndex> indices, const Tensor& value) const;
  const Tensor& index_put_(std::initializer_list<indexing::TensorIndex> indices, const Scalar& value) const;

#define FL_IN_PLACE(symbol, name)                \
  Tensor& operator symbol(const Tensor& other) { \
    name(other);                                 \
    return *this;                                \
  }                                              \
  Tensor& operator symbol(const Scalar& other) { \
    name(other);                                 \
    return *this;                                \
  }
  FL_IN_PLACE(+=, add_)
  FL_IN_PLACE(-=, sub_)
  FL_IN_PLACE(*=, mul_)
  FL_IN_PLACE(/=, div_)
#undef FL_IN_PLACE

#define FL_METHOD(name)              \
  template <class... A>              \
  Tensor name(const A&... a) const { \
    return call(#name, a...);        \
  }
  FL_METHODS(FL_METHOD)
#undef FL_METHOD

  // Any method by its name.
  template <class... A>
  Tensor call(const char* name, const A&... a) const {
    detail::Results results;
    detail::run(results, true, name, expect(), a...);
    return results.tensor(0);
  }
  template <class... A>
  std::tuple<Tensor, Tensor> pair(const char* name, const A&... a) const {
    detail::Results results;
    detail::run(results, true, name, expect(), a...);
    return {results.tensor(0), results.tensor(1)};
  }
  template <class... A>
  std::vector<Tensor> list(const char* name, const A&... a) const {
    detail::Results results;
    detail::run(results, true, name, expect(), a...);
    return results.tensors(0);
  }

 private:
  template <class T>
  Tensor named(const char* method, const T& value, const char* keyword) const {
    detail::Arguments arguments;
    arguments.add(expect()).add(value, keyword);
    detail::Results results;
    results.run(true, method, arguments);
    return results.tensor(0);
  }
  // A new tensor of this dtype, where the options say nothing else.
  template <class... A>
  Tensor fresh(const char* method, const TensorOptions& options, const A&... a) const {
    return call(method, a..., options.has_dtype() ? options : options.dtype(scalar_type()));
  }
  template <class F>
  static fl_status run_hook(void* context, fl_tensor* gradient, fl_tensor** result) {
    try {
      F& hook = *static_cast<F*>(context);
      const Tensor given = adopt(fl_tensor_retain(gradient));
      if constexpr (std::is_void_v<decltype(hook(given))>) {
        hook(given);
      } else {
        const Tensor computed = hook(given);
        *result = fl_tensor_retain(computed.handle_);
      }
      return FL_OK;
    } catch (const std::exception& error) {
      return fl_fail(error.what());
    }
  }
  size_t wrapped(int64_t d) const {
    const int64_t n = dim();
    if (d < -n || d >= n)
      throw IndexError(c10::str("[size] expected a dimension in [", -n, ", ", n - 1, "], got ", d));
    return static_cast<size_t>(d < 0 ? d + n : d);
  }
  mutable fl_tensor* handle_ = nullptr;
};

class Tensor::MutableGrad {
 public:
  explicit MutableGrad(Tensor owner) : owner_(std::move(owner)) {}
  operator Tensor() const { return owner_.grad(); }
  MutableGrad& operator=(const Tensor& g) {
    owner_.set_grad(g);
    return *this;
  }
  Tensor zero_() const { return owner_.grad().zero_(); }
  bool defined() const { return owner_.grad().defined(); }
  void reset() const { owner_.set_grad(Tensor()); }

 private:
  Tensor owner_;
};
inline Tensor::MutableGrad Tensor::mutable_grad() const {
  return MutableGrad(*this);
}

// ---------------------------------------------------------------- calls

namespace detail {

inline Arguments& Arguments::add(const Tensor& t, const char* name) {
  fl_value& v = next(t.defined() ? FL_VALUE_TENSOR : FL_NONE, name);
  v.as.tensor = t.handle();
  return *this;
}
inline Arguments& Arguments::add(const TensorList& list, const char* name) {
  lists_.push_back(std::make_unique<std::vector<fl_tensor*>>());
  for (const Tensor& t : list) lists_.back()->push_back(t.handle());
  fl_value& v = next(FL_VALUE_TENSORS, name);
  v.as.tensors = lists_.back()->data();
  v.length = list.size();
  return *this;
}
inline Arguments& Arguments::add(const std::vector<Tensor>& list, const char* name) {
  return add(TensorList(list), name);
}
inline Tensor Results::tensor(size_t i) const {
  if (i >= count_) return Tensor();
  if (values_[i].kind != FL_VALUE_TENSOR && values_[i].kind != FL_NONE)
    throw TypeError("[call] expected a tensor as the result, got another value");
  return Tensor::adopt(values_[i].kind == FL_NONE ? nullptr : fl_tensor_retain(values_[i].as.tensor));
}
inline std::vector<Tensor> Results::tensors(size_t i) const {
  std::vector<Tensor> list;
  if (i >= count_ || values_[i].kind != FL_VALUE_TENSORS) {
    for (size_t k = 0; k < count_; ++k) list.push_back(tensor(k));
    return list;
  }
  for (size_t k = 0; k < values_[i].length; ++k)
    list.push_back(Tensor::adopt(fl_tensor_retain(values_[i].as.tensors[k])));
  return list;
}

// A function of the library by its name.
template <class... A>
Tensor call(const char* name, const A&... a) {
  Results results;
  run(results, false, name, a...);
  return results.tensor(0);
}

}  // namespace detail

inline bool Tensor::equal(const Tensor& other) const {
  detail::Results results;
  detail::run(results, false, "equal", expect(), other);
  return results.boolean(0);
}
inline bool Tensor::allclose(const Tensor& other, double rtol, double atol, bool equal_nan) const {
  detail::Results results;
  detail::run(results, false, "allclose", expect(), other, rtol, atol, equal_nan);
  return results.boolean(0);
}

// ---------------------------------------------------------------- indexing

namespace indexing {

class TensorIndex {
 public:
  TensorIndex(NoneType) : kind_(Kind::None) {}
  TensorIndex(EllipsisType) : kind_(Kind::Ellipsis) {}
  TensorIndex(const char* text) : kind_(Kind::Ellipsis) {
    if (std::string(text) != "...") throw ValueError("[index] expected \"...\" as a string");
  }
  TensorIndex(Slice slice) : kind_(Kind::Slice), slice_(slice) {}
  TensorIndex(const Tensor& t) : kind_(Kind::Tensor), tensor_(t) {}
  template <class T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
  TensorIndex(T i) : kind_(Kind::Integer), integer_(static_cast<int64_t>(i)) {}

  bool is_ellipsis() const { return kind_ == Kind::Ellipsis; }
  bool takes_dimension() const { return kind_ != Kind::None && kind_ != Kind::Ellipsis; }
  void add_to(detail::Arguments& arguments) const {
    switch (kind_) {
      case Kind::None:
        arguments.add(std::nullopt);
        return;
      case Kind::Slice:
        arguments.add_slice(slice_.ends);
        return;
      case Kind::Tensor:
        arguments.add(tensor_);
        return;
      default:
        arguments.add(integer_);
    }
  }

 private:
  enum class Kind { None, Ellipsis, Integer, Slice, Tensor } kind_;
  int64_t integer_ = 0;
  Slice slice_;
  Tensor tensor_;
};

}  // namespace indexing

inline Tensor Tensor::index(const std::vector<indexing::TensorIndex>& indices) const {
  detail::Arguments arguments;
  arguments.add(expect());
  int64_t used = 0;
  for (const auto& i : indices) used += i.takes_dimension();
  for (const auto& i : indices) {
    if (!i.is_ellipsis()) {
      i.add_to(arguments);
      continue;
    }
    const int64_t everything[3] = {indexing::Slice::kAbsent, indexing::Slice::kAbsent,
                                   indexing::Slice::kAbsent};
    for (int64_t d = used; d < dim(); ++d) arguments.add_slice(everything);
  }
  detail::Results results;
  results.run(true, "__getitem__", arguments);
  return results.tensor(0);
}
inline Tensor Tensor::index(std::initializer_list<indexing::TensorIndex> indices) const {
  return index(std::vector<indexing::TensorIndex>(indices));
}
inline const Tensor& Tensor::index_put_(std::initializer_list<indexing::TensorIndex> indices,
                                        const Tensor& value) const {
  detail::Arguments arguments;
  arguments.add(expect());
  arguments.add(value, "value");
  for (const auto& i : indices) i.add_to(arguments);
  detail::Results results;
  results.run(true, "__setitem__", arguments);
  return *this;
}
inline const Tensor& Tensor::index_put_(std::initializer_list<indexing::TensorIndex> indices,
                                        const Scalar& value) const {
  return index_put_(indices, detail::call("scalar_tensor", value, TensorOptions(scalar_type())));
}
inline Tensor Tensor::slice(int64_t dim, std::optional<int64_t> start, std::optional<int64_t> end,
                            int64_t step) const {
  return call("slice", dim, start, end, step);
}

// ---------------------------------------------------------------- operators

#define FL_OPERATOR(symbol, name)                                   \
  inline Tensor operator symbol(const Tensor& a, const Tensor& b) { \
    return detail::call(#name, a, b);                               \
  }                                                                 \
  inline Tensor operator symbol(const Tensor& a, const Scalar& b) { \
    return detail::call(#name, a, b);                               \
  }                                                                 \
  inline Tensor operator symbol(const Scalar& a, const Tensor& b) { \
    return detail::call(#name, detail::number(a, b), b);            \
  }
namespace detail {
// A number on the left of an operator; it takes the dtype of the tensor on the right where that can hold it.
inline Tensor number(const Scalar& s, const Tensor& like) {
  const bool keeps = like.is_complex() || s.isIntegral(true) || (like.is_floating_point() && !s.isComplex());
  return keeps ? call("scalar_tensor", s, TensorOptions(like.scalar_type())) : call("scalar_tensor", s);
}
}  // namespace detail
FL_OPERATOR(+, add)
FL_OPERATOR(-, sub)
FL_OPERATOR(*, mul)
FL_OPERATOR(/, div)
FL_OPERATOR(%, remainder)
FL_OPERATOR(==, eq)
FL_OPERATOR(!=, ne)
FL_OPERATOR(<, lt)
FL_OPERATOR(<=, le)
FL_OPERATOR(>, gt)
FL_OPERATOR(>=, ge)
FL_OPERATOR(&, bitwise_and)
FL_OPERATOR(|, bitwise_or)
FL_OPERATOR(^, bitwise_xor)
FL_OPERATOR(&&, logical_and)
FL_OPERATOR(||, logical_or)
#undef FL_OPERATOR

}  // namespace at

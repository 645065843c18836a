// Derivatives of the ops that training spends its time in, natively. Each does what the record's `vjp` in
// flambeau/ops says; a test compares the two.
#include "autograd/node.h"
#include "dispatch/kernel.h"

namespace fl::autograd {

namespace {

using Grads = std::vector<Tensor>;

const Operator& op(const char* name) {
  return OperatorTable::get().at(name);
}

// Calls an operator by name, looked up once at each place.
#define CALL(name, ...)                       \
  [&] {                                       \
    static const Operator& target = op(name); \
    return call_tensor(target, __VA_ARGS__);  \
  }()

Tensor reshape(const Tensor& t, IntSpan sizes) {
  if (t.sizes() == sizes) return t;
  static const Operator& target = op("reshape");
  Value args[2] = {Value::borrow(t.impl()), Value::borrow(sizes)};
  Value result[1];
  target.call(args, result);
  return result[0].take_tensor();
}
Tensor sum_over(const Tensor& t, IntSpan dims, bool keepdim) {
  static const Operator& target = op("sum");
  Value args[4] = {Value::borrow(t.impl()), Value::borrow(dims), Value(keepdim), Value()};
  Value result[1];
  target.call(args, result);
  return result[0].take_tensor();
}
Tensor adjoint(const Tensor& t) {
  if (is_complex(t.dtype())) return CALL("_mH", t);
  return CALL("transpose", t, int64_t(-2), int64_t(-1));
}
Tensor conj(const Tensor& t) {
  return is_complex(t.dtype()) ? CALL("conj_physical", t) : t;
}
Tensor mm(const Tensor& a, const Tensor& b) {
  return CALL("mm", a, b);
}

struct Entry {
  const char* name;
  std::vector<Tensor> (*apply)(const Derivative&, OperatorNode&, Grads&&);
  std::vector<uint64_t> saves_args_for;  // for the gradient of each argument, the arguments it needs
  uint32_t saves_results = 0;
};

std::vector<Entry>& entries() {
  static auto* list = new std::vector<Entry>;
  return *list;
}
struct Derives {
  explicit Derives(Entry entry) { entries().push_back(std::move(entry)); }
};
// The derivative of an operator: FL_DERIVATIVE(name, function, arguments that are saved, results that are
// saved).
#define FL_DERIVATIVE(...)                                      \
  static const Derives FL_CONCAT(fl_derivative_, __COUNTER__) { \
    Entry {                                                     \
      __VA_ARGS__                                               \
    }                                                           \
  }

Grads same(const Derivative&, OperatorNode& node, Grads&& g) {
  return {std::move(g[0])};
}
FL_DERIVATIVE("alias", same);
FL_DERIVATIVE("clone", same);
Grads overwritten(const Derivative&, OperatorNode& node, Grads&& g) {
  Grads out(node.next.size());
  if (node.needs(0)) out[0] = CALL("zeros_like", g[0], Value(), Value(), Value(), Value(), Value());
  if (out.size() > 1 && node.needs(1)) out[1] = std::move(g[0]);
  return out;
}
FL_DERIVATIVE("copy_", overwritten);
Grads reshaped(const Derivative&, OperatorNode& node, Grads&& g) {
  return {reshape(g[0], node.inputs[0].sizes)};
}
FL_DERIVATIVE("view", reshaped);
FL_DERIVATIVE("squeeze", reshaped);
FL_DERIVATIVE("squeeze.dim", reshaped);
FL_DERIVATIVE("squeeze.dims", reshaped);
FL_DERIVATIVE("unsqueeze", reshaped);
Grads expanded(const Derivative&, OperatorNode& node, Grads&& g) {
  return {sum_to(g[0], node.inputs[0].sizes)};
}
FL_DERIVATIVE("expand", expanded);
Grads transposed(const Derivative&, OperatorNode& node, Grads&& g) {
  return {CALL("transpose", g[0], node.args[1], node.args[2])};
}
FL_DERIVATIVE("transpose", transposed);
Grads permuted(const Derivative&, OperatorNode& node, Grads&& g) {
  const IntSpan dims = node.args[1].ints();
  const int64_t n = static_cast<int64_t>(dims.size());
  Dims inverse(dims.size());
  for (int64_t i = 0; i < n; ++i) inverse[dims[i] < 0 ? dims[i] + n : dims[i]] = i;
  return {CALL("permute", g[0], inverse.vec())};
}
FL_DERIVATIVE("permute", permuted);
Grads selected(const Derivative&, OperatorNode& node, Grads&& g) {
  return {CALL("_select_backward", g[0], node.inputs[0].sizes.vec(), node.args[1], node.args[2])};
}
FL_DERIVATIVE("select", selected);
Grads sliced(const Derivative&, OperatorNode& node, Grads&& g) {
  return {CALL("_slice_backward", g[0], node.inputs[0].sizes.vec(), node.args[1], node.args[2], node.args[3],
               node.args[4])};
}
FL_DERIVATIVE("slice", sliced);
Grads converted(const Derivative&, OperatorNode& node, Grads&& g) {
  const OutputMeta& in = node.inputs[0];
  if (is_complex(g[0].dtype()) && !is_complex(in.dtype)) g[0] = CALL("real", g[0]);
  return {CALL("to.device", g[0], Value(in.device), Value(in.dtype), false, false, Value())};
}
FL_DERIVATIVE("_to_copy", converted);

Grads mm_gradient(const Derivative&, OperatorNode& node, Grads&& g) {
  Grads out(2);
  if (node.needs(0)) out[0] = mm(g[0], adjoint(node.saved_arg(1)));
  if (node.needs(1)) out[1] = mm(adjoint(node.saved_arg(0)), g[0]);
  return out;
}
FL_DERIVATIVE("mm", mm_gradient, {2, 1});
Grads bmm_gradient(const Derivative&, OperatorNode& node, Grads&& g) {
  Grads out(2);
  if (node.needs(0)) out[0] = CALL("bmm", g[0], adjoint(node.saved_arg(1)));
  if (node.needs(1)) out[1] = CALL("bmm", adjoint(node.saved_arg(0)), g[0]);
  return out;
}
FL_DERIVATIVE("bmm", bmm_gradient, {2, 1});
Grads addmm_gradient(const Derivative&, OperatorNode& node, Grads&& g) {
  const auto scaled = [&](int at) {
    const Scalar s = node.args[at].to_scalar();
    if (s.is_complex()) return CALL("mul.Tensor", g[0], Value(complex128(s.re, -s.im)));
    return s.to<double>() == 1 ? g[0] : CALL("mul.Tensor", g[0], node.args[at]);
  };
  Grads out(3);
  if (node.needs(0)) out[0] = sum_to(scaled(3), node.inputs[0].sizes);
  const Tensor s = scaled(4);
  if (node.needs(1)) out[1] = mm(s, adjoint(node.saved_arg(2)));
  if (node.needs(2)) out[2] = mm(adjoint(node.saved_arg(1)), s);
  return out;
}
FL_DERIVATIVE("addmm", addmm_gradient, {0, 4, 2, 0, 0});

Tensor rows_of(const Tensor& t) {
  if (t.dim() == 2) return t;
  static const Operator& target = op("reshape");
  const int64_t width = t.size(-1);
  int64_t rows = 1;
  for (int64_t d = 0; d + 1 < t.dim(); ++d) rows *= t.size(d);
  return call_tensor(target, t, std::vector<int64_t>{rows, width});
}

Grads linear_gradient(const Derivative&, OperatorNode& node, Grads&& g) {
  Grads out(node.next.size());
  Tensor grad = std::move(g[0]);
  const bool vector = node.inputs[1].sizes.size() == 1;
  const Dims &input_sizes = node.inputs[0].sizes, &weight_sizes = node.inputs[1].sizes;
  if (vector) grad = CALL("unsqueeze", grad, int64_t(-1));
  const Tensor flat = grad.dim() == 1 ? CALL("unsqueeze", grad, int64_t(0)) : rows_of(grad);
  if (node.needs(0)) {
    Tensor weight = conj(node.saved_arg(1));
    if (vector) weight = CALL("unsqueeze", weight, int64_t(0));
    out[0] = reshape(mm(flat, weight), input_sizes);
  }
  if (node.needs(1)) {
    const Tensor input = conj(node.saved_arg(0));
    const Tensor rows = input.dim() == 1 ? CALL("unsqueeze", input, int64_t(0)) : rows_of(input);
    out[1] = reshape(mm(CALL("transpose", flat, int64_t(0), int64_t(1)), rows), weight_sizes);
  }
  if (node.needs(2)) out[2] = reshape(sum_over(flat, {0}, false), node.inputs[2].sizes);
  return out;
}
FL_DERIVATIVE("linear", linear_gradient, {2, 1, 0});

Grads matmul_gradient(const Derivative&, OperatorNode& node, Grads&& g) {
  Grads out(2);
  Tensor a = node.saved_arg(0), b = node.saved_arg(1), grad = std::move(g[0]);
  if (b.dim() == 1) {
    b = CALL("unsqueeze", b, int64_t(-1));
    grad = CALL("unsqueeze", grad, int64_t(-1));
  }
  if (a.dim() == 1) {
    a = CALL("unsqueeze", a, int64_t(0));
    grad = CALL("unsqueeze", grad, int64_t(-2));
  }
  if (node.needs(0))
    out[0] = reshape(sum_to(CALL("matmul", grad, adjoint(b)), a.sizes()), node.inputs[0].sizes);
  if (node.needs(1)) {
    Tensor right;
    if (b.dim() == 2 && a.dim() > 2)
      right = mm(adjoint(rows_of(a)), rows_of(grad));
    else
      right = sum_to(CALL("matmul", adjoint(a), grad), b.sizes());
    out[1] = reshape(right, node.inputs[1].sizes);
  }
  return out;
}
FL_DERIVATIVE("matmul", matmul_gradient, {3, 3});

// ---------------------------------------------------------------- reductions

// The gradient of a reduction, with the reduced dimensions back as ones.
Tensor restored(const Tensor& g, const Dims& sizes, const Value& dim, bool keepdim) {
  const int64_t n = static_cast<int64_t>(sizes.size());
  if (keepdim || n == 0) return g;
  uint64_t reduced = 0;
  if (dim.is_none() || (dim.tag() == Value::Tag::IntList && dim.length() == 0))
    reduced = ~uint64_t(0);
  else if (dim.tag() == Value::Tag::Int)
    reduced = uint64_t(1) << (dim.to_int() < 0 ? dim.to_int() + n : dim.to_int());
  else
    for (int64_t d : dim.ints()) reduced |= uint64_t(1) << (d < 0 ? d + n : d);
  Dims full(sizes);
  for (int64_t d = 0; d < n; ++d)
    if (reduced >> d & 1) full[d] = 1;
  return reshape(g, full);
}
Tensor spread(const Tensor& g, const Dims& sizes) {
  if (g->sizes == sizes) return g;
  static const Operator& target = op("expand");
  Value args[3] = {Value::borrow(g.impl()), Value::borrow(IntSpan(sizes)), Value(false)};
  Value result[1];
  target.call(args, result);
  return result[0].take_tensor();
}
Grads sum_gradient(const Derivative&, OperatorNode& node, Grads&& g) {
  const Dims& sizes = node.inputs[0].sizes;
  return {spread(restored(g[0], sizes, node.args[1], node.args[2].to_bool()), sizes)};
}
FL_DERIVATIVE("sum", sum_gradient);
Grads mean_gradient(const Derivative&, OperatorNode& node, Grads&& g) {
  const Dims& sizes = node.inputs[0].sizes;
  const double count =
      static_cast<double>(numel_of(sizes)) / std::max<double>(1, static_cast<double>(g[0].numel()));
  const Tensor small = CALL("div.Tensor", g[0], Value(count));
  return {spread(restored(small, sizes, node.args[1], node.args[2].to_bool()), sizes)};
}
FL_DERIVATIVE("mean", mean_gradient);

// ---------------------------------------------------------------- softmax

Tensor sum_kept(const Tensor& t, int64_t dim) {
  return sum_over(t, {dim}, true);
}

Grads softmax_gradient(const Derivative&, OperatorNode& node, Grads&& g) {
  const Tensor out = node.saved_result(0);
  if (!thread_state().grad_mode)
    return {CALL("_softmax_backward_data", g[0], out, node.args[1], Value(out.dtype()))};
  const Tensor product = CALL("mul.Tensor", g[0], out);
  return {CALL("sub.Tensor", product, CALL("mul.Tensor", out, sum_kept(product, node.args[1].to_int())),
               int64_t(1))};
}
FL_DERIVATIVE("_softmax", softmax_gradient, {}, 1);
Grads log_softmax_gradient(const Derivative&, OperatorNode& node, Grads&& g) {
  const Tensor out = node.saved_result(0);
  if (!thread_state().grad_mode)
    return {CALL("_log_softmax_backward_data", g[0], out, node.args[1], Value(out.dtype()))};
  return {CALL("sub.Tensor", g[0],
               CALL("mul.Tensor", CALL("exp", out), sum_kept(g[0], node.args[1].to_int())), int64_t(1))};
}
FL_DERIVATIVE("_log_softmax", log_softmax_gradient, {}, 1);

// ---------------------------------------------------------------- joining

Grads cat_gradient(const Derivative&, OperatorNode& node, Grads&& g) {
  Grads out(node.next.size());
  const Tensor& grad = g[0];
  int64_t dim = node.args[1].to_int(), at = 0;
  if (dim < 0) dim += grad.dim();
  for (size_t i = 0; i < out.size(); ++i) {
    const Dims& sizes = node.inputs[i].sizes;
    if (sizes.size() == 1 && sizes[0] == 0 && grad.dim() != 1) {
      if (node.needs(i))
        out[i] = CALL("zeros", sizes.vec(), Value(grad.dtype()), Value(), Value(grad.device()), Value());
      continue;
    }
    const int64_t length = sizes[dim];
    if (node.needs(i)) out[i] = CALL("slice", grad, dim, at, at + length, int64_t(1));
    at += length;
  }
  return out;
}
FL_DERIVATIVE("cat", cat_gradient);
Grads stack_gradient(const Derivative&, OperatorNode& node, Grads&& g) {
  Grads out(node.next.size());
  for (size_t i = 0; i < out.size(); ++i)
    if (node.needs(i)) out[i] = CALL("select", g[0], node.args[1], static_cast<int64_t>(i));
  return out;
}
FL_DERIVATIVE("stack", stack_gradient);

// Gradients of the pieces, with zeros for those that have none.
std::vector<Tensor> filled(OperatorNode& node, Grads&& g) {
  g.resize(node.outputs.size());
  for (size_t i = 0; i < g.size(); ++i) {
    const OutputMeta& m = node.outputs[i];
    if (!g[i].defined())
      g[i] = CALL("zeros", m.sizes.vec(), Value(m.dtype), Value(), Value(m.device), Value());
  }
  return std::move(g);
}
Grads split_gradient(const Derivative&, OperatorNode& node, Grads&& g) {
  return {CALL("cat", filled(node, std::move(g)), node.args[2])};
}
FL_DERIVATIVE("split.Tensor", split_gradient);
FL_DERIVATIVE("split.sizes", split_gradient);
FL_DERIVATIVE("split_with_sizes", split_gradient);
Grads unbind_gradient(const Derivative&, OperatorNode& node, Grads&& g) {
  if (node.outputs.empty()) return {};
  return {CALL("stack", filled(node, std::move(g)), node.args[1])};
}
FL_DERIVATIVE("unbind.int", unbind_gradient);

}  // namespace

Tensor sum_to(const Tensor& t, IntSpan sizes) {
  if (t.sizes() == sizes) return t;
  const int64_t lead = t.dim() - static_cast<int64_t>(sizes.size());
  Dims dims;
  for (int64_t d = 0; d < t.dim(); ++d)
    if (d < lead || (sizes[d - lead] == 1 && t.size(d) != 1)) dims.push_back(d);
  return reshape(sum_over(t, dims, false), sizes);
}

namespace {
// The records' own derivatives, so that tests can compare the two.
struct Choice {
  Operator* op;
  void *native, *written;
};
std::vector<Choice>& choices() {
  static auto* list = new std::vector<Choice>;
  return *list;
}
}  // namespace

void use_native_derivatives(bool native) {
  for (const Choice& c : choices()) c.op->autograd = native || !c.written ? c.native : c.written;
}

void install_native_derivatives() {
  for (const Entry& entry : entries()) {
    Operator* target = OperatorTable::get().find(entry.name);
    if (!target) continue;
    auto* d = new Derivative;
    d->apply = entry.apply;
    d->saves_args_for = entry.saves_args_for;
    if (!d->saves_args_for.empty()) {
      d->saves_args_for.resize(target->schema.args.size());
      d->saves_results_for.resize(target->schema.args.size());
    }
    d->saves_results = entry.saves_results;
    choices().push_back({target, d, target->autograd});
    set_derivative(*target, d);
  }
}

}  // namespace fl::autograd

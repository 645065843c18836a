// The generic autograd kernel: one for all operators. It runs the op below autograd, records what the
// derivative needs and hangs the node on the results.
#include <algorithm>

#include "autograd/node.h"
#include "dispatch/kernel.h"

namespace fl::autograd {

namespace {

// Results that no gradient flows through.
bool differentiable(DType t) {
  return is_floating(t) || is_complex(t);
}

struct Missing final : Node {
  std::string op;
  std::string name() const override { return "NotImplemented"; }
  std::vector<Tensor> apply(std::vector<Tensor>&&) override {
    fail("[", op, "] expected an op with a derivative, got one without; the derivative for '", op,
         "' is not implemented");
  }
};

// The gradient of a window's or a class's choice does not depend on the input, up to where the choice
// changes: its derivative is zero rather than absent, though the input was not kept. This node leads there.
struct Unvarying final : Node {
  OutputMeta input;
  std::string name() const override { return "UnvaryingBackward0"; }
  std::vector<Tensor> apply(std::vector<Tensor>&& grads) override {
    static const Operator& zeros = OperatorTable::get().at("zeros");
    std::vector<Tensor> out(2);
    if (next[1])
      out[1] =
          call_tensor(zeros, input.sizes.vec(), Value(input.dtype), Value(), Value(input.device), Value());
    out[0] = std::move(grads[0]);
    return out;
  }
};

// Gives a gradient that was just computed a history that leads to the input as well.
void lead_to(const Edge& input, const OutputMeta& geometry, const Tensor& grad) {
  Ref<Unvarying> node(new Unvarying);
  node->input = geometry;
  node->next.push_back(gradient_edge(grad));
  node->next.push_back(input);
  const uint32_t at = node->add_output(grad);
  set_history(grad, Ref<Node>(node.get()), at);
}

template <class F>
void each_tensor(const Operator& op, Value* args, const F& f) {
  for (size_t i = 0; i < op.schema.args.size(); ++i) {
    if (args[i].is_tensor())
      f(i, args[i].tensor());
    else if (args[i].is_tensor_list())
      for (size_t j = 0; j < args[i].length(); ++j) f(i, args[i].tensors()[j]);
  }
}

// A copy that has the history of the tensor as it is now.
Tensor copy_of(const Tensor& t) {
  static const Operator& clone = OperatorTable::get().at("clone");
  Tensor copy;
  {
    ExcludeKeys below{KeySet(Key::Autograd)};
    copy = call_tensor(clone, detach(t), Value());
  }
  if (const Edge edge = gradient_edge(t)) set_history(copy, edge.node, edge.input);
  return copy;
}

// A call that autograd records.
struct Recorded {
  const Operator& op;
  const Operator& base;  // the form that writes to nothing
  const Derivative* derivative;
  Value* args;
  bool inplace;
  bool moves;  // gives an argument another geometry and writes nothing
  Ref<OperatorNode> node;
  uint32_t saves_results = 0;

  Recorded(const Operator& op, Value* args)
      : op(op),
        base(op.functional ? *op.functional : op),
        derivative(static_cast<const Derivative*>(op.autograd ? op.autograd : base.autograd)),
        args(args),
        inplace(op.flags & kInplace || (!op.schema.args.empty() && op.schema.args[0].mutated)),
        moves(inplace && op.flags & kView) {}

  bool any_wants_grad() const {
    bool any = false;
    each_tensor(op, args, [&](size_t, const Tensor& t) {
      any |= t.defined() && wants_grad(t) && differentiable(t.dtype());
    });
    return any;
  }
  void check_writes(bool any) const;
  void make_node();
  void add_input(size_t argument, const Tensor& t, bool keep);
  void add_missing(const Tensor& result) const;
  void add_result(const Tensor& t);
  void add_results(Value* results);
};

void Recorded::check_writes(bool any) const {
  if (op.flags & kOut)
    FL_CHECK(
        !any, "[", base.schema.name,
        "] expected arguments that do not require grad with out=, got one that does; "
        "out= functions are not differentiable: functions with out=... arguments don't support automatic "
        "differentiation, but one of the arguments requires grad");
  if ((!inplace && !(op.flags & kOut)) || thread_state().inference_mode) return;
  each_tensor(op, args, [&](size_t i, const Tensor& t) {
    if (!t.defined() || !t->inference || !(op.schema.args[i].mutated || (inplace && i == 0))) return;
    fail("[", op.schema.name,
         "] expected a normal tensor to write to, got an inference tensor: Inplace update to inference "
         "tensor outside "
         "InferenceMode is not allowed; clone() it to get a normal tensor before doing inplace update");
  });
}

// An edge for each tensor among the arguments, and of those that the derivative needs the value before the
// call.
void Recorded::make_node() {
  node = Ref<OperatorNode>(new OperatorNode);
  node->op = &op;
  node->derivative = derivative;
  const size_t n = op.schema.args.size();
  node->args.resize(n);
  node->arg_begin.resize(n + 1);
  uint64_t saves = derivative->saves_args;
  saves_results = derivative->saves_results;
  if (!derivative->saves_args_for.empty()) {
    saves = saves_results = 0;
    each_tensor(op, args, [&](size_t i, const Tensor& t) {
      if (t.defined() && t.requires_grad()) {
        saves |= derivative->saves_args_for[i];
        saves_results |= derivative->saves_results_for[i];
      }
    });
  }
  for (size_t i = 0; i < n; ++i) {
    node->arg_begin[i] = static_cast<uint16_t>(node->inputs.size());
    const bool keep = saves >> i & 1;
    if (args[i].is_tensor()) {
      add_input(i, args[i].tensor(), keep);
    } else if (args[i].is_tensor_list()) {
      for (size_t j = 0; j < args[i].length(); ++j) add_input(i, args[i].tensors()[j], keep);
    } else {
      node->args[i] = args[i];
    }
  }
  node->arg_begin[n] = static_cast<uint16_t>(node->inputs.size());
}

void Recorded::add_input(size_t argument, const Tensor& t, bool keep) {
  if (!t.defined()) {
    node->inputs.emplace_back();
    node->saved_args.emplace_back();
    node->next.emplace_back();
    return;
  }
  node->inputs.emplace_back(t->sizes, t.dtype(), t.device());
  if (t.requires_grad() && differentiable(t.dtype()))
    node->next.push_back(gradient_edge(t));
  else
    node->next.emplace_back();
  if (!keep)
    node->saved_args.emplace_back();
  else if (!(inplace && (argument == 0 || t.same(args[0].tensor()))))
    node->saved_args.push_back(SavedTensor(t, false));
  else if (moves)
    node->saved_args.push_back(SavedTensor(detach(t), false));
  else  // the value before the write: a copy, since the write destroys it
    node->saved_args.push_back(SavedTensor(copy_of(t), false));
}

void Recorded::add_missing(const Tensor& result) const {
  Ref<Missing> missing(new Missing);
  missing->op = base.schema.name;
  each_tensor(op, args, [&](size_t, const Tensor& in) {
    missing->next.push_back(in.defined() ? gradient_edge(in) : Edge());
  });
  missing->add_output(result);
  const bool own = inplace && result.same(args[0].tensor());
  (own ? rebase_history : set_history)(result, Ref<Node>(missing.get()), 0);
}

void Recorded::add_result(const Tensor& t) {
  if (!t.defined()) {
    if (node) node->outputs.emplace_back();
  } else if (!differentiable(t.dtype())) {
    if (node) node->outputs.emplace_back(t->sizes, t.dtype(), t.device());
  } else if (!node) {
    if (!derivative || derivative->differentiable) add_missing(t);
  } else if (!moves || !follow_base(t)) {
    const uint32_t at = node->add_output(t);
    const bool own = inplace && t.same(args[0].tensor());
    (own ? rebase_history : set_history)(t, Ref<Node>(node.get()), at);
  }
}

void Recorded::add_results(Value* results) {
  const int n = op.n_results();
  for (int i = 0; i < n; ++i) {
    if (results[i].is_tensor()) {
      add_result(results[i].tensor());
    } else if (results[i].is_tensor_list()) {
      for (size_t j = 0; j < results[i].length(); ++j) add_result(results[i].tensors()[j]);
    } else if (node) {
      node->outputs.emplace_back();
    }
  }
  if (node && saves_results)
    for (int i = 0; i < n; ++i) {
      if (results[i].is_tensor() && saves_results >> i & 1)
        node->saved_results.push_back(SavedTensor(results[i].tensor(), true));
      else
        node->saved_results.emplace_back();
    }
}

void autograd_kernel(const Operator& op, void*, KeySet keys, Value* args, Value* results) {
  Recorded call(op, args);
  const bool any = call.any_wants_grad();
  const auto run_below = [&] {
    ExcludeKeys below{KeySet(Key::Autograd)};
    op.call_with(keys.below(Key::Autograd), args, results);
  };
  call.check_writes(any);
  if (!any || op.flags & kNoGrad || op.n_results() == 0) {
    if (call.inplace && args[0].is_tensor()) check_inplace(args[0].tensor(), op.schema.name.c_str(), any);
    return run_below();
  }
  if (!call.derivative) {
    // Without a derivative of its own, an op that is defined by others is differentiated through them.
    if (const Kernel composite = op.kernel(Key::Composite))
      return composite.fn(op, composite.context, keys, args, results);
  }
  if (call.inplace) check_inplace(args[0].tensor(), op.schema.name.c_str(), any);
  if (call.derivative && call.derivative->differentiable) call.make_node();
  run_below();
  call.add_results(results);
}

}  // namespace

std::vector<Tensor> OperatorNode::apply(std::vector<Tensor>&& grads) {
  bool any = false;
  for (const Tensor& g : grads) any |= g.defined();
  if (!any) return std::vector<Tensor>(next.size());
  std::vector<Tensor> out = derivative->apply(*derivative, *this, std::move(grads));
  out.resize(next.size());
  if (thread_state().grad_mode && out[0].defined() && needs(0) && op->flags & kConstantGradient)
    lead_to(next[0], inputs[0], out[0]);
  return out;
}

void OperatorNode::release_saved() {
  for (auto& s : saved_args)
    if (s.defined()) s.reset();
  for (auto& s : saved_results)
    if (s.defined()) s.reset();
}

void set_derivative(Operator& op, Derivative* derivative) {
  op.autograd = derivative;
}

void install_view_tracking();
void install_kernels() {
  OperatorTable::get().set_fallback(Key::Autograd, Kernel{autograd_kernel, nullptr});
  install_view_tracking();
}

}  // namespace fl::autograd

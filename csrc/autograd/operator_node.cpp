// The generic autograd kernel: one for all operators. It runs the op below autograd, records what the derivative needs
// and hangs the node on the results.
#include <algorithm>

#include "autograd/node.h"
#include "dispatch/kernel.h"

namespace fl::autograd {

namespace {

// Results that no gradient flows through.
bool differentiable(DType t) { return is_floating(t) || is_complex(t); }

struct Missing final : Node {
  std::string op;
  std::string name() const override { return "NotImplemented"; }
  std::vector<Tensor> apply(std::vector<Tensor>&&) override {
    fail("[", op, "] expected an op with a derivative, got one without; the derivative for '", op, "' is not implemented");
  }
};

template <class F>
void each_tensor(const Operator& op, Value* args, const F& f) {
  for (size_t i = 0; i < op.schema.args.size(); ++i) {
    if (args[i].is_tensor())
      f(i, args[i].tensor());
    else if (args[i].is_tensor_list())
      for (size_t j = 0; j < args[i].length(); ++j) f(i, args[i].tensors()[j]);
  }
}

void autograd_kernel(const Operator& op, void*, KeySet keys, Value* args, Value* results) {
  const bool inplace = op.flags & kInplace || (!op.schema.args.empty() && op.schema.args[0].mutated);
  const Operator& base = op.functional ? *op.functional : op;
  const Derivative* derivative = static_cast<const Derivative*>(op.autograd ? op.autograd : base.autograd);
  bool any = false;
  each_tensor(op, args, [&](size_t, const Tensor& t) { any |= t.defined() && t.requires_grad() && differentiable(t.dtype()); });
  if (op.flags & kOut)
    FL_CHECK(!any, "[", base.schema.name, "] expected arguments that do not require grad with out=, got one that does; "
                                          "out= functions are not differentiable");
  Ref<OperatorNode> node;
  uint32_t saves_results = 0;
  if (inplace && any) check_inplace(args[0].tensor(), op.schema.name.c_str());
  if (any && derivative && derivative->differentiable && !(op.flags & kNoGrad)) {
    node = Ref<OperatorNode>(new OperatorNode);
    node->op = &op;
    node->derivative = derivative;
    const size_t n = op.schema.args.size();
    node->args.resize(n);
    node->arg_begin.resize(n + 1);
    uint16_t flat = 0;
    uint64_t saves = derivative->saves_args;
    if (!derivative->saves_args_for.empty()) {
      saves = 0;
      each_tensor(op, args, [&](size_t i, const Tensor& t) {
        if (t.defined() && t.requires_grad()) {
          saves |= derivative->saves_args_for[i];
          saves_results |= derivative->saves_results_for[i];
        }
      });
    } else {
      saves_results = derivative->saves_results;
    }
    for (size_t i = 0; i < n; ++i) {
      node->arg_begin[i] = flat;
      const bool keep = saves >> i & 1;
      const auto add = [&](const Tensor& t) {
        Edge edge;
        if (t.defined()) {
          node->inputs.push_back({t->sizes, t.dtype(), t.device()});
          if (t.requires_grad() && differentiable(t.dtype())) edge = gradient_edge(t);
          if (keep && !(inplace && i == 0))
            node->saved_args.emplace_back(t, false);
          else if (keep)  // the value before the write: a copy, since the write destroys it
            node->saved_args.emplace_back([&] {
              ExcludeKeys below{KeySet(Key::Autograd)};
              Tensor copy = empty_like(t, t.dtype());
              static const Operator& copy_ = OperatorTable::get().at("copy_");
              call_tensor(copy_, copy, detach(t), false);
              return copy;
            }(), false);
          else
            node->saved_args.emplace_back();
        } else {
          node->inputs.emplace_back();
          node->saved_args.emplace_back();
        }
        node->next.push_back(std::move(edge));
        ++flat;
      };
      if (args[i].is_tensor()) {
        add(args[i].tensor());
      } else if (args[i].is_tensor_list()) {
        for (size_t j = 0; j < args[i].length(); ++j) add(args[i].tensors()[j]);
      } else {
        node->args[i] = args[i];
      }
    }
    node->arg_begin[n] = flat;
  }
  {
    ExcludeKeys below{KeySet(Key::Autograd)};
    op.call_with(keys.below(Key::Autograd), args, results);
  }
  const int n_results = op.n_results();
  const bool is_view = op.flags & kView;
  const auto record = [&](const Tensor& t, bool multi) {
    if (!t.defined()) return;
    const bool own = inplace && t.same(args[0].tensor());
    if (is_view && !own) make_view(t, args[0].tensor(), multi);
    if (!any || !differentiable(t.dtype()) || (op.flags & kNoGrad)) {
      if (node) node->outputs.push_back({t->sizes, t.dtype(), t.device()});
      return;
    }
    if (!node) {
      if (derivative && !derivative->differentiable) return;
      Ref<Missing> missing(new Missing);
      missing->op = base.schema.name;
      each_tensor(op, args, [&](size_t, const Tensor& in) { missing->next.push_back(in.defined() ? gradient_edge(in) : Edge()); });
      missing->add_output(t);
      own ? rebase_history(t, Ref<Node>(missing.get()), 0) : set_history(t, Ref<Node>(missing.get()), 0);
      return;
    }
    const uint32_t at = node->add_output(t);
    if (own)
      rebase_history(t, Ref<Node>(node.get()), at);
    else
      set_history(t, Ref<Node>(node.get()), at);
  };
  for (int i = 0; i < n_results; ++i) {
    if (results[i].is_tensor()) {
      record(results[i].tensor(), false);
    } else if (results[i].is_tensor_list()) {
      for (size_t j = 0; j < results[i].length(); ++j) record(results[i].tensors()[j], true);
    }
  }
  if (node)
    for (int i = 0; i < n_results; ++i) {
      const bool keep = saves_results >> i & 1;
      if (results[i].is_tensor() && keep)
        node->saved_results.emplace_back(results[i].tensor(), true);
      else
        node->saved_results.emplace_back();
    }
}

}  // namespace

std::string OperatorNode::op_name() const { return op->schema.name; }

std::string OperatorNode::name() const {
  // add_ -> AddBackward0, native_layer_norm -> NativeLayerNormBackward0
  std::string out;
  bool upper = true;
  for (char c : (op->functional ? op->functional : op)->schema.name) {
    if (c == '_') {
      upper = true;
      continue;
    }
    out += upper ? static_cast<char>(std::toupper(c)) : c;
    upper = false;
  }
  return out + "Backward0";
}

std::vector<Tensor> OperatorNode::apply(std::vector<Tensor>&& grads) {
  FL_CHECK(!released, "[backward] expected saved tensors of ", op_name(),
           " to be there, got a graph that was freed when it was backwarded the first time; pass retain_graph=True to run "
           "backward a second time");
  bool any = false;
  for (const Tensor& g : grads) any |= g.defined();
  if (!any) return std::vector<Tensor>(next.size());
  std::vector<Tensor> out = derivative->apply(*derivative, *this, std::move(grads));
  out.resize(next.size());
  return out;
}

void OperatorNode::release_saved() {
  released = true;
  for (auto& s : saved_args) s.reset();
  for (auto& s : saved_results) s.reset();
}

void set_derivative(Operator& op, Derivative* derivative) { op.autograd = derivative; }

void install_kernels() { OperatorTable::get().set_fallback(Key::Autograd, Kernel{autograd_kernel, nullptr}); }

}  // namespace fl::autograd

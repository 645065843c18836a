// Derivatives of pointwise operators: which fused kernel computes the gradient of which operand, from the
// generated table.
#include "autograd/derivative.h"
#include "autograd/node.h"
#include "dispatch/builtin.h"
#include "dispatch/kernel.h"

namespace fl::autograd {

Tensor (*expression_gradient)(const Operator&, int, const Tensor&, OperatorNode&) = nullptr;
Tensor (*defined_gradient)(const Operator&, Value*, int) = nullptr;

namespace {

struct Entry {
  const PointwiseDerivative* table;
  std::vector<int> operand_args;              // schema positions of the operands
  std::vector<const Operator*> gradient_ops;  // one for each operand, null where there is none
  bool sum = false;                           // self + alpha * other
};

// Whether `other` was added as it is: its gradient is then the incoming one.
bool is_plain_sum(const Entry& entry, const OperatorNode& node, size_t operand) {
  constexpr int alpha = 2;
  if (!entry.sum || operand != 1) return false;
  const Scalar by = node.args[alpha].to_scalar();
  return !by.is_complex() && by.to<double>() == 1;
}

std::vector<Tensor> apply_pointwise(const Derivative& self, OperatorNode& node, std::vector<Tensor>&& grads) {
  const Entry& entry = *static_cast<const Entry*>(self.context);
  std::vector<Tensor> out(node.next.size());
  const Operator& base = node.op->functional ? *node.op->functional : *node.op;
  for (size_t k = 0; k < entry.operand_args.size(); ++k) {
    const int arg = entry.operand_args[k];
    const size_t flat = node.arg_begin[arg];
    if (node.arg_begin[arg + 1] == flat || !node.needs(flat)) continue;  // a number, or not wanted
    const PointwiseGradient& g = entry.table->gradient[k];
    if (g.identity || is_plain_sum(entry, node, k)) {
      out[flat] = grads[0];
      continue;
    }
    FL_CHECK_KIND(g.n_sources >= 0, NotImplemented, "[", base.schema.name,
                  "] expected a gradient that is known, got one with respect to '",
                  base.schema.args[arg].name, "': the derivative for '", base.schema.name, ": ",
                  base.schema.args[arg].name, "' is not implemented");
    if (!entry.gradient_ops[k]) {
      static const Operator& zeros = OperatorTable::get().at("zeros");
      const OutputMeta& in = node.inputs[flat];
      out[flat] = call_tensor(zeros, in.sizes.vec(), Value(in.dtype), Value(), Value(in.device), Value());
      continue;
    }
    if (thread_state().grad_mode && expression_gradient) {
      out[flat] = expression_gradient(base, static_cast<int>(k), grads[0], node);
      continue;
    }
    Value args[12], result[1];
    for (int s = 0; s < g.n_sources; ++s) {
      const int from = g.source[s];
      if (from == -1)
        args[s] = Value(grads[0]);
      else if (from == -2)
        args[s] = Value(node.saved_result(0));
      else if (node.arg_begin[from + 1] > node.arg_begin[from])
        args[s] = Value(node.saved_arg(node.arg_begin[from]));
      else
        args[s] = node.args[from];
    }
    if (thread_state().grad_mode && defined_gradient) {
      out[flat] = defined_gradient(*entry.gradient_ops[k], args, g.n_sources);
      if (out[flat].defined()) continue;
    }
    entry.gradient_ops[k]->call(args, result);
    out[flat] = result[0].take_tensor();
  }
  return out;
}

}  // namespace

void install_pointwise_derivatives() {
  auto& table = OperatorTable::get();
  for (int i = 0; i < builtin_operator_count; ++i) {
    const BuiltinOperator& row = builtin_operators[i];
    Operator& op = builtin_operator(i);
    if (!row.derivative) continue;
    auto* entry = new Entry{row.derivative, {}, {}};
    entry->sum = op.schema.name == "add" && op.schema.overload == "Tensor";
    auto* d = new Derivative;
    const auto& args = op.schema.args;
    d->saves_args_for.resize(args.size());
    d->saves_results_for.resize(args.size());
    for (size_t a = 0; a < args.size(); ++a) {
      if (args[a].type != ArgType::Tensor && args[a].type != ArgType::TensorOrScalar) continue;
      const size_t k = entry->operand_args.size();
      entry->operand_args.push_back(static_cast<int>(a));
      const PointwiseGradient& g = row.derivative->gradient[k];
      entry->gradient_ops.push_back(g.op ? &table.at(g.op) : nullptr);
      for (int s = 0; s < g.n_sources; ++s) {
        if (g.source[s] >= 0) d->saves_args_for[a] |= uint64_t(1) << g.source[s];
        if (g.source[s] == -2) d->saves_results_for[a] |= 1;
      }
    }
    d->apply = apply_pointwise;
    d->context = entry;
    set_derivative(op, d);
  }
}

}  // namespace fl::autograd

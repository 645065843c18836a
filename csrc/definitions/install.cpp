// Definitions and derivatives as kernels of the dispatcher, for processes without Python.
#include "autograd/node.h"
#include "autograd/written_derivative.h"
#include "definitions/object.h"
#include "dispatch/builtin.h"

namespace fl::definitions {
namespace {

Value to_value(const Object& o) {
  switch (o.type) {
    case Type::None:
      return {};
    case Type::Tensor:
      return Value(o.tensor);
    case Type::String:
      return Value(std::string_view(o.text()));
    case Type::DType:
      return Value(o.dtype());
    case Type::Device:
      return Value(o.device());
    case Type::List:
    case Type::Tuple: {
      std::vector<Tensor> tensors;
      std::vector<int64_t> integers;
      for (const Object& part : o.items()) {
        if (part.is_integer())
          integers.push_back(part.integer);
        else
          tensors.push_back(part.tensor);
      }
      return integers.empty() ? Value(tensors) : Value(integers);
    }
    default:
      return Value(o.scalar());
  }
}

void definition_kernel(const Operator& op, void* context, KeySet, Value* args, Value* results) {
  run_definition(op, *static_cast<const BuiltinOperator*>(context), args, results);
}

}  // namespace

namespace {

// Operators whose names end in _copy are made by one function: what the view shows, in memory of its own.
Object copy_of_view(const Operator& op, Objects positional) {
  std::string name = op.schema.name;
  name.erase(name.rfind("_copy"));
  const Packet* view = find_method(name);
  if (!view) view = find_operator(name);
  FL_CHECK_KIND(view != nullptr, NotImplemented, "[", op.schema.name,
                "] expected a definition that runs without Python");
  const Object shown = call(*view, positional);
  const auto clone = [](const Object& t) { return call("clone", {call("contiguous", {t})}); };
  if (shown.is(Type::Tensor)) return clone(shown);
  Objects copies;
  for (const Object& part : shown.items()) copies.push_back(clone(part));
  return Object::tuple(std::move(copies));
}

}  // namespace

void run_definition(const Operator& op, const BuiltinOperator& row, Value* args, Value* results) {
  Objects positional;
  Keywords keywords;
  for (size_t i = 0; i < op.schema.args.size(); ++i) {
    if (op.schema.args[i].keyword_only)
      keywords.emplace_back(op.schema.args[i].name, from_value(args[i]));
    else
      positional.push_back(from_value(args[i]));
  }
  const std::string place = message(row.python_module, ":", row.python_function);
  const bool copies = op.schema.name.find("_copy") != std::string::npos && find_definition(place) == nullptr;
  const Object result = copies ? copy_of_view(op, positional) : evaluate(place, positional, keywords);
  const int n = op.n_results();
  if (n == 1) {
    results[0] = to_value(result);
    return;
  }
  if (n == 0) return;
  FL_CHECK(result.is_sequence() && static_cast<int>(result.items().size()) == n, "[", op.schema.name,
           "] expected ", n, " results of its definition, got ", type_name(result));
  for (int i = 0; i < n; ++i) results[i] = to_value(result.items()[static_cast<size_t>(i)]);
}

// ---------------------------------------------------------------- derivatives

namespace {

using autograd::OperatorNode;
using autograd::WrittenDerivative;

bool takes_tensors(const Argument& arg) {
  return arg.type == ArgType::Tensor || arg.type == ArgType::TensorOrScalar;
}

Object argument_of(OperatorNode& node, int i) {
  const Argument& arg = node.op->schema.args[static_cast<size_t>(i)];
  const size_t begin = node.arg_begin[i], end = node.arg_begin[i + 1];
  if (takes_tensors(arg) && arg.list) {
    Objects tensors;
    for (size_t k = begin; k < end; ++k) tensors.emplace_back(node.saved_arg(k));
    return Object::list(std::move(tensors));
  }
  return end > begin ? Object(node.saved_arg(begin)) : from_value(node.args[i]);
}

Object sizes_of(const OperatorNode& node, int i) {
  const size_t begin = node.arg_begin[i], end = node.arg_begin[i + 1];
  if (!node.op->schema.args[static_cast<size_t>(i)].list)
    return end > begin ? Object::ints(node.inputs[begin].sizes) : Object();
  Objects all;
  for (size_t k = begin; k < end; ++k) all.push_back(Object::ints(node.inputs[k].sizes));
  return Object::list(std::move(all));
}

Object needs_of(const OperatorNode& node) {
  Objects all;
  for (size_t i = 0; i < node.op->schema.args.size(); ++i) {
    const Argument& arg = node.op->schema.args[i];
    if (!takes_tensors(arg)) continue;
    if (!arg.list) {
      all.emplace_back(node.has(i) && node.needs(node.arg_begin[i]));
      continue;
    }
    Objects entries;
    for (size_t k = node.arg_begin[i]; k < node.arg_begin[i + 1]; ++k) entries.emplace_back(node.needs(k));
    all.push_back(Object::tuple(std::move(entries)));
  }
  return Object::tuple(std::move(all));
}

Object source_value(const WrittenDerivative::Source& source, OperatorNode& node,
                    const std::vector<Tensor>& grads) {
  using S = WrittenDerivative::Source;
  const auto [kind, index] = source;
  switch (kind) {
    case S::Grad:
      if (node.op->schema.returns_list) return Object::tuple(Objects(grads.begin(), grads.end()));
      return Object(index < static_cast<int>(grads.size()) ? grads[static_cast<size_t>(index)] : Tensor());
    case S::Arg:
      return argument_of(node, index);
    case S::Sizes:
      return sizes_of(node, index);
    case S::DTypeOf:
      return Object(node.inputs[node.arg_begin[index]].dtype);
    case S::DeviceOf:
      return Object(node.inputs[node.arg_begin[index]].device);
    case S::Result:
      return Object(node.saved_result(static_cast<size_t>(index)));
    case S::Window:
      return Object(node.saved_args[node.arg_begin[index]].peek(&node, node.op_name()));
    case S::Needs:
      return needs_of(node);
  }
  return {};
}

// One gradient for each tensor argument, from what the function returned; lists laid out.
std::vector<Tensor> gradients_from(const OperatorNode& node, const Object& result) {
  const Schema& schema = node.op->schema;
  std::vector<Tensor> gradients(node.next.size());
  const Objects parts = result.is(Type::Tuple) ? result.items() : Objects{result};
  size_t next = 0;
  for (size_t i = 0; i < schema.args.size() && next < parts.size(); ++i) {
    if (!takes_tensors(schema.args[i])) continue;
    const Object& part = parts[next++];
    const size_t begin = node.arg_begin[i], end = node.arg_begin[i + 1];
    if (part.is_none()) continue;
    if (!schema.args[i].list) {
      if (end > begin) gradients[begin] = part.tensor;
      continue;
    }
    const Objects each = iterate(part);
    for (size_t k = begin; k < end && k - begin < each.size(); ++k) gradients[k] = each[k - begin].tensor;
  }
  return gradients;
}

std::vector<Tensor> apply(const autograd::Derivative& self, OperatorNode& node, std::vector<Tensor>&& grads) {
  const auto& written = *static_cast<const WrittenDerivative*>(self.context);
  if (!written.concerned(node, grads)) return std::vector<Tensor>(node.next.size());
  Objects arguments;
  for (const auto& source : written.sources) arguments.push_back(source_value(source, node, grads));
  const BuiltinOperator& row = *written.row;
  return gradients_from(node, evaluate(message(row.vjp_module, ":", row.vjp_function), arguments));
}

Tensor defined_gradient(const Operator& gradient, Value* args, int n) {
  const std::string place = message("flambeau.ops.gradient_definitions:", gradient.schema.name);
  if (find_definition(place) == nullptr) return {};
  Objects positional;
  for (int i = 0; i < n; ++i) {
    positional.push_back(from_value(args[i]));
    if (positional.back().is(Type::Tensor) && is_complex(positional.back().tensor.dtype())) return {};
  }
  return evaluate(place, positional, {}).tensor;
}

void install_derivatives() {
  for (int i = 0; i < builtin_operator_count; ++i) {
    const BuiltinOperator& row = builtin_operators[i];
    if (row.vjp_function[0] == 0) continue;
    auto* written = new WrittenDerivative;
    auto* derivative = new autograd::Derivative;
    autograd::read_sources(builtin_operator(i), row, *written, *derivative);
    derivative->apply = apply;
    derivative->context = written;
    autograd::set_derivative(builtin_operator(i), derivative);
  }
}

}  // namespace

void install() {
  static const bool once = [] {
    define_builtin_operators();
    // Where Python is, its functions are the kernels.
    if (OperatorTable::get().fallback(Key::Autograd)) return true;
    for (int i = 0; i < builtin_operator_count; ++i) {
      const BuiltinOperator& row = builtin_operators[i];
      if (row.python_module[0] == 0) continue;
      builtin_operator(i).set_kernel(Key::Composite,
                                     Kernel{definition_kernel, const_cast<BuiltinOperator*>(&row)});
    }
    autograd::install_kernels();
    autograd::install_pointwise_derivatives();
    install_derivatives();
    autograd::defined_gradient = &defined_gradient;
    autograd::install_native_derivatives();
    return true;
  }();
  (void)once;
}

}  // namespace fl::definitions

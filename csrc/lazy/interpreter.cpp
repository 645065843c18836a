#include "lazy/interpreter.h"

namespace fl::lazy {

Interpreter::Interpreter(const Graph& graph, std::vector<int> outputs, Device base)
    : calls_(graph.calls), outputs_(std::move(outputs)), base_(base) {
  roots_.reserve(graph.slots.size());
  for (const Slot& slot : graph.slots) {
    roots_.push_back({slot.kind, slot.root, slot.storage ? slot.storage->bytes : 0});
    given_ += slot.kind == Slot::Kind::Input || slot.kind == Slot::Kind::Host;
  }
}

std::vector<Tensor> Interpreter::run(const std::vector<Tensor>& inputs) {
  std::vector<Tensor> roots(roots_.size());
  size_t at = 0;
  for (size_t i = 0; i < roots_.size(); ++i) {
    const Root& root = roots_[i];
    if (root.kind == Slot::Kind::Input || root.kind == Slot::Kind::Host)
      roots[i] = inputs[at++];
    else if (root.kind == Slot::Kind::Empty)
      roots[i] = window_on(Storage::allocate(root.bytes, base_), base_, root.window);
  }
  for (position_ = 0; position_ < calls_.size(); ++position_) run_call(calls_[position_], inputs, roots);
  std::vector<Tensor> results;
  for (int slot : outputs_) results.push_back(roots[slot]);
  return results;
}

void Interpreter::run_call(const Call& call, const std::vector<Tensor>& inputs,
                           std::vector<Tensor>& roots) const {
  const Operator& op = *call.op;
  const size_t n = call.values.size();
  std::vector<Value> args = call.values;
  const auto wants_tensor = [&](size_t i) { return op.schema.args[i].type == ArgType::Tensor; };
  for (size_t i = 0; i < n; ++i)
    if (args[i].is_number() && wants_tensor(i)) args[i] = Value(wrapped_number(args[i].to_scalar()));
  for (auto [i, place] : call.parameters) {
    const Tensor& number = inputs[given_ + place];
    args[i] = wants_tensor(i) ? Value(number) : Value(item(number));
  }
  std::vector<std::vector<Tensor>> lists(n);
  for (size_t i = 0; i < call.list_lengths.size(); ++i)
    if (call.list_lengths[i] > 0) lists[i].resize(call.list_lengths[i]);
  for (const TensorArgument& t : call.tensors) {
    const Tensor& root = roots[t.window.storage];
    const Tensor window = window_on(root->storage, root.device(), t.window);
    if (t.element < 0)
      args[t.position] = Value(window);
    else
      lists[t.position][t.element] = window;
  }
  for (size_t i = 0; i < call.list_lengths.size(); ++i)
    if (call.list_lengths[i] >= 0) args[i] = Value::borrow(lists[i].data(), lists[i].size());
  std::vector<Value> results(op.n_results());
  op.call(args.data(), results.data());
  std::vector<Tensor> flat;
  for (const Value& result : results) {
    if (result.is_tensor()) flat.push_back(result.tensor());
    for (size_t k = 0; result.is_tensor_list() && k < result.length(); ++k)
      flat.push_back(result.tensors()[k]);
  }
  for (const NewResult& result : call.results) {
    const Window& root = result.window;
    FL_CHECK(result.place < static_cast<int>(flat.size()), "[lazy] expected ", result.place + 1,
             " results of ", op.schema.name, ", got ", int64_t(flat.size()));
    roots[root.storage] = laid_out(flat[result.place], root, roots_[root.storage].bytes, base_);
  }
}

}  // namespace fl::lazy

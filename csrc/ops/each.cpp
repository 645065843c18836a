// The one kernel of all operators that go through lists of tensors.
#include "ops/each.h"

#include <mutex>

#include "core/error.h"

namespace fl {

namespace {

void resolve(EachDef& def, const Operator& op) {
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  if (!def.position.empty()) return;
  const Operator& target = OperatorTable::get().at(def.target);
  std::vector<int> position;
  for (size_t i = 0; i < op.schema.args.size(); ++i) {
    int at = static_cast<int>(i);
    for (size_t k = 0; k < target.schema.args.size(); ++k)
      if (target.schema.args[k].name == op.schema.args[i].name) at = static_cast<int>(k);
    position.push_back(at);
  }
  def.op = &target;
  def.position = std::move(position);
}

// The number at a position of a one-dimensional tensor of them.
Value number_at(const char* name, const Tensor& numbers, int64_t i, int64_t n) {
  FL_CHECK(numbers.dim() == 1 && numbers.size(0) == n, "[", name, "] expected a one-dimensional tensor of ",
           n, " numbers, got the shape ", numbers.sizes());
  const int64_t at[1] = {0};
  return Value(
      item(alias(numbers, IntSpan(at, 0), IntSpan(at, 0), numbers.offset() + i * numbers.stride(0))));
}

}  // namespace

void each_kernel(const Operator& op, void* definition, KeySet, Value* args, Value* results) {
  EachDef& def = *static_cast<EachDef*>(definition);
  if (__builtin_expect(def.position.empty(), 0)) resolve(def, op);
  const char* name = op.schema.name.c_str();
  const auto& formals = op.schema.args;
  size_t n = 0;
  bool any_list = false;
  for (size_t i = 0; i < formals.size(); ++i) {
    if (!formals[i].list) continue;
    FL_CHECK(!any_list || args[i].length() == n, "[", name, "] expected lists of one length, got ",
             int64_t(n), " and ", int64_t(args[i].length()), ": ",
             args[i].length() == 0 ? "Tensor list must have same number of elements as scalar list."
                                   : "Tensor lists must have the same number of tensors, got ",
             int64_t(n), " and ", int64_t(args[i].length()));
    n = args[i].length();
    any_list = true;
  }
  FL_CHECK(n > 0, "[", name,
           "] expected at least one tensor, got an empty list: Tensor list must have at least one tensor.");

  const auto& target = def.op->schema.args;
  std::vector<Value> stack(target.size());
  for (size_t k = 0; k < target.size(); ++k) stack[k] = target[k].default_value;
  for (size_t i = 0; i < formals.size(); ++i) {
    if (formals[i].list) continue;
    FL_CHECK(!args[i].is_tensor() || formals[i].name != "other" || args[i].tensor_impl()->sizes.empty(), "[",
             name, "] expected a zero-dimensional tensor for 'other', got the shape ",
             args[i].tensor().sizes());
    stack[def.position[i]] = args[i];
  }
  const bool returns = !op.schema.returns.empty();
  std::vector<Tensor> tensors;
  tensors.reserve(returns ? n : 0);
  for (size_t at = 0; at < n; ++at) {
    for (size_t i = 0; i < formals.size(); ++i) {
      Value& slot = stack[def.position[i]];
      if (formals[i].list) {
        const Tensor& t = args[i].tensors()[at];
        slot = t->wrapped_number ? Value(item(t)) : Value::borrow(t.impl());
      } else if (formals[i].name == "scalars" && args[i].is_tensor()) {
        slot = number_at(name, args[i].tensor(), static_cast<int64_t>(at), static_cast<int64_t>(n));
      }
    }
    Value result[1];
    def.op->call(stack.data(), result);
    if (returns) tensors.push_back(result[0].take_tensor());
  }
  if (returns) results[0] = Value(tensors);
}

}  // namespace fl

// The state of mixed precision, the cache of converted parameters, and the kernel that converts arguments.
#include "autograd/autocast.h"

#include <unordered_map>

#include "autograd/node.h"
#include "core/error.h"
#include "dispatch/builtin.h"
#include "dispatch/kernel.h"

namespace fl::autocast {

namespace {

constexpr int kDevices = kBackendKeys;

struct State {
  bool on[kDevices] = {};
  DType lower[kDevices];
  bool cache_on = true;
  int nesting = 0;
  DeviceType recorded = DeviceType::Meta;                            // what tensors without data stand for
  std::unordered_map<TensorImpl*, std::pair<Tensor, Tensor>> cache;  // a parameter, and it converted

  State() {
    for (DType& d : lower) d = DType::BFloat16;
    lower[static_cast<int>(DeviceType::CUDA)] = DType::Half;
  }
};

State& state() {
  static thread_local State s;
  return s;
}

struct Rules {
  Rule by_device[kDevices] = {};
};

// Numbers in double precision were asked for; they are left alone.
bool eligible(const Tensor& t, DeviceType device) {
  if (!t.defined() || !is_floating(t.dtype()) || t.dtype() == DType::Double || t->wrapped_number)
    return false;
  return device_slot(t.device().type) == device_slot(device) || (t.is_meta() && state().recorded == device);
}

Tensor convert(const Tensor& t, DType dtype) {
  static const Operator& to = OperatorTable::get().at("to.dtype");
  if (t.dtype() == dtype) return t;
  State& s = state();
  const bool keep = s.cache_on && thread_state().grad_mode && t.dtype() == DType::Float &&
                    t.requires_grad() && dtype != DType::Float && autograd::is_leaf(t);
  if (keep) {
    const auto entry = s.cache.find(t.impl());
    if (entry != s.cache.end() && entry->second.second.dtype() == dtype) return entry->second.second;
  }
  Value args[5] = {Value(t), Value(dtype), Value(false), Value(false), Value()};
  Value result[1];
  to.call(args, result);
  Tensor converted = result[0].take_tensor();
  if (keep) s.cache[t.impl()] = {t, converted};
  return converted;
}

// Calls f for each tensor among the arguments.
template <class F>
void for_tensors(const Operator& op, Value* args, const F& f) {
  for (size_t i = 0; i < op.schema.args.size(); ++i) {
    if (args[i].is_tensor()) f(args[i].tensor());
    if (args[i].is_tensor_list())
      for (size_t k = 0; k < args[i].length(); ++k) f(args[i].tensors()[k]);
  }
}

void convert_arguments(const Operator& op, Value* args, DeviceType device, DType dtype) {
  for (size_t i = 0; i < op.schema.args.size(); ++i) {
    if (args[i].is_tensor()) {
      const Tensor t = args[i].tensor();
      if (eligible(t, device) && t.dtype() != dtype) args[i] = Value(convert(t, dtype));
    } else if (args[i].is_tensor_list()) {
      std::vector<Tensor> list(args[i].tensors(), args[i].tensors() + args[i].length());
      for (Tensor& t : list)
        if (eligible(t, device)) t = convert(t, dtype);
      args[i] = Value(list);
    }
  }
}

DeviceType device_of(KeySet keys) {
  for (int k = kBackendKeys; k-- > 0;)
    if (keys.has(static_cast<Key>(k)) && k != static_cast<int>(Key::Meta)) return static_cast<DeviceType>(k);
  return state().recorded;
}

void autocast_kernel(const Operator& op, void* context, KeySet keys, Value* args, Value* results) {
  const DeviceType device = device_of(keys);
  const Rule rule = static_cast<const Rules*>(context)->by_device[device_slot(device)];
  if (!enabled(device) || rule == Rule::None) return op.call_with(keys.below(Key::Autocast), args, results);
  FL_CHECK(
      rule != Rule::Refused, "[", op.schema.name,
      "] expected a call outside autocast, got one inside it: its results are unsafe in lower precision; "
      "use binary_cross_entropy_with_logits, or leave autocast for this call");
  ExcludeKeys inside(Key::Autocast);
  if (rule == Rule::Own) return op.call(args, results);
  DType dtype = rule == Rule::Single ? DType::Float : lower_dtype(device);
  if (rule == Rule::Widest)
    for_tensors(op, args, [&](const Tensor& t) {
      if (eligible(t, device) && t.dtype() != dtype) dtype = DType::Float;
    });
  if (rule == Rule::First) {
    if (!args[0].is_tensor() || !eligible(args[0].tensor(), device)) return op.call(args, results);
    dtype = args[0].tensor_impl()->dtype;
  }
  std::vector<Value> converted(args, args + op.schema.args.size());  // the caller may look at its own again
  convert_arguments(op, converted.data(), device, dtype);
  op.call(converted.data(), results);
}

}  // namespace

bool enabled(DeviceType device) {
  return state().on[device_slot(device)];
}
void set_enabled(DeviceType device, bool on) {
  State& s = state();
  s.on[device_slot(device)] = on;
  bool any = false;
  for (bool b : s.on) any |= b;
  KeySet& included = thread_state().included;
  included = any ? included | Key::Autocast : included - KeySet(Key::Autocast);
}
DType lower_dtype(DeviceType device) {
  return state().lower[device_slot(device)];
}
void set_lower_dtype(DeviceType device, DType dtype) {
  state().lower[device_slot(device)] = dtype;
}
DeviceType set_recorded_device(DeviceType device) {
  return std::exchange(state().recorded, device);
}
uint64_t signature() {
  if (!thread_state().included.has(Key::Autocast)) return 0;
  const State& s = state();
  uint64_t hash = 1;
  for (int k = 0; k < kDevices; ++k) hash = hash * 31 + (s.on[k] ? 1 + static_cast<uint64_t>(s.lower[k]) : 0);
  return hash;
}
bool cache_enabled() {
  return state().cache_on;
}
void set_cache_enabled(bool on) {
  state().cache_on = on;
}
int increment_nesting() {
  return ++state().nesting;
}
int decrement_nesting() {
  return --state().nesting;
}
void clear_cache() {
  state().cache.clear();
}

void set_rule(Operator& op, DeviceType device, Rule rule) {
  const Kernel present = op.kernel(Key::Autocast);
  Rules* rules =
      present.fn == autocast_kernel ? static_cast<Rules*>(present.context) : new Rules;  // for ever
  rules->by_device[device_slot(device)] = rule;
  if (present.fn != autocast_kernel) op.set_kernel(Key::Autocast, Kernel{autocast_kernel, rules});
}

void install_rules(DeviceType device) {
  for (int i = 0; i < builtin_operator_count; ++i) {
    const BuiltinOperator& row = builtin_operators[i];
    const auto rule = static_cast<Rule>(device == DeviceType::CPU ? row.on_cpu : row.on_accelerator);
    if (rule != Rule::None) set_rule(builtin_operator(i), device, rule);
  }
}

}  // namespace fl::autocast

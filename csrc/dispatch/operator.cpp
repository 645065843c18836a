// The operator table and the dispatch loop.
#include "dispatch/operator.h"

#include "core/error.h"
#include "core/view_tracking.h"
#include "dispatch/kernel.h"
#include "dispatch/profiling.h"

namespace fl {

void (*track_view)(const Tensor&, const Tensor&, bool) = nullptr;
KeySet (*keys_of_view)(const TensorImpl*) = nullptr;
void (*call_in_complex64)(const Operator&, KeySet, Value*,
                          Value*) = nullptr;  // set by csrc/ops/complex_half.cpp

// Defines a built-in operator when it is first looked for, while not all of them are defined; set by the
// table of built-in operators.
std::atomic<Operator* (*)(const std::string&)> define_on_demand{nullptr};

namespace {
struct Pending {
  std::string name;
  Key key;
  Kernel kernel;
};
std::vector<Pending>& pending() {
  static auto* list = new std::vector<Pending>;
  return *list;
}
}  // namespace

OperatorTable& OperatorTable::get() {
  static auto* table = new OperatorTable;
  return *table;
}

void OperatorTable::add_kernel(const char* full_name, Key key, Kernel kernel) {
  auto& self = get();
  Operator* op = nullptr;
  {
    // Only operators that are defined: static initialisers define none.
    std::lock_guard<std::mutex> lock(self.mutex_);
    const auto known = self.table_.find(full_name);
    if (known != self.table_.end()) op = known->second.get();
  }
  if (op)
    op->set_kernel(key, kernel);
  else
    pending().push_back({full_name, key, kernel});
}

Operator* OperatorTable::define(const std::string& schema, uint32_t flags) {
  Schema parsed = Schema::parse(schema);
  const std::string name = parsed.full_name();
  Operator* op;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    auto& slot = table_[name];
    FL_CHECK(!slot, "[library] expected a new operator name, got ", name, ", which is already defined");
    slot = std::make_unique<Operator>(std::move(parsed));
    op = slot.get();
    op->flags = flags;
    order_.push_back(op);
  }
  return op;
}

// Attaches the kernels that static initialisers left for one operator.
void attach_pending_kernels(Operator& op) {
  const std::string name = op.schema.full_name();
  for (const Pending& p : pending())
    if (p.name == name) op.set_kernel(p.key, p.kernel);
}

// Attaches all of them; called once all operators of the table are defined.
void attach_pending_kernels() {
  auto& table = OperatorTable::get();
  std::vector<Pending> rest;
  for (auto& p : pending()) {
    if (Operator* op = table.find(p.name))
      op->set_kernel(p.key, p.kernel);
    else
      rest.push_back(p);
  }
  pending().swap(rest);
  for (auto& p : pending())
    fail("[library] expected a record for the kernel ", p.name, ", got none in flambeau/ops");
}

Operator* OperatorTable::find(const std::string& full_name) const {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto it = table_.find(full_name);
    if (it != table_.end()) return it->second.get();
  }
  auto* const demand = define_on_demand.load(std::memory_order_acquire);
  return demand ? demand(full_name) : nullptr;
}

Operator& OperatorTable::at(const std::string& full_name) const {
  Operator* op = find(full_name);
  FL_CHECK(op, "[library] expected a defined operator, got ", full_name);
  return *op;
}

std::vector<Operator*> OperatorTable::all() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return order_;
}

void OperatorTable::set_fallback(Key key, Kernel kernel) {
  fallback_[static_cast<int>(key)] = kernel;
  invalidate();
}

void Operator::set_kernel(Key key, Kernel kernel) {
  own_[static_cast<int>(key)] = kernel;
  has_backend_ = false;
  for (int k = 0; k < kBackendKeys; ++k) has_backend_ |= bool(own_[k]);
  OperatorTable::get().invalidate();
}

void Operator::rebuild() const {
  auto& table = OperatorTable::get();
  const uint64_t generation = table.generation();
  const Kernel composite = own_[static_cast<int>(Key::Composite)];
  for (int k = 0; k < kKeys; ++k) {
    Kernel chosen = own_[k];
    if (!chosen) {
      // An op that is nothing but its decomposition is taken apart before autograd and subclasses see it.
      if (k >= kBackendKeys)
        chosen = is_composite() && k != static_cast<int>(Key::Composite)
                     ? composite
                     : table.fallback(static_cast<Key>(k));
      else
        chosen = composite ? composite : table.fallback(static_cast<Key>(k));
    }
    resolved_[k] = chosen;
  }
  // Functionality keys without anything to do fall through to the next key.
  built_.store(generation, std::memory_order_release);
}

KeySet Operator::keys_of(const Value* args) const {
  KeySet keys;
  const size_t n = schema.args.size();
  bool cpu_only_numbers = true;
  for (size_t i = 0; i < n; ++i) {
    const Value& v = args[i];
    if (v.is_tensor()) {
      keys |= keys_of_tensor(v.tensor_impl());
      cpu_only_numbers = false;
    } else if (v.is_tensor_list()) {
      const Tensor* list = v.tensors();
      for (size_t j = 0; j < v.length(); ++j)
        if (list[j].defined()) {
          keys |= keys_of_tensor(list[j].impl());
          cpu_only_numbers = false;
        }
    } else if (v.tag() == Value::Tag::Device) {
      keys |= backend_key(v.to_device().type);
      cpu_only_numbers = false;
    }
  }
  if (cpu_only_numbers) keys |= Key::CPU;
  const ThreadState& state = thread_state();
  keys = (keys | state.included) - state.excluded;
  if (!state.grad_mode && keys.has(Key::Autograd)) keys = keys - KeySet(Key::Autograd);
  return keys;
}

namespace {
void remember_views_of(const Value& base, Value* results, int n) {
  if (!base.is_tensor()) return;
  for (int i = 0; i < n; ++i) {
    if (results[i].is_tensor()) track_view(results[i].tensor(), base.tensor(), n > 1);
    if (results[i].is_tensor_list())
      for (size_t k = 0; k < results[i].length(); ++k)
        track_view(results[i].tensors()[k], base.tensor(), true);
  }
}

// Before a kernel touches memory: every argument's storage holds what its geometry says, and what is written
// to has bytes of its own. Views and operators that are taken apart do not touch it.
void check_storage(const Operator& op, const TensorImpl* t, bool written) {
  check_shrunk(op.schema.name.c_str(), t);
  if (written && t && t->storage) t->storage->materialize();
}
// Whether the kernels, which do not know complex32, would take an argument for another dtype.
bool has_complex_half(const Operator& op, const Value* args) {
  for (size_t i = 0; i < op.schema.args.size(); ++i) {
    if (args[i].is_tensor() && args[i].tensor_impl()->dtype == DType::ComplexHalf) return true;
    if (args[i].tag() == Value::Tag::DType && args[i].to_dtype() == DType::ComplexHalf) return true;
    if (args[i].is_tensor_list())
      for (size_t j = 0; j < args[i].length(); ++j)
        if (args[i].tensors()[j].defined() && args[i].tensors()[j].dtype() == DType::ComplexHalf) return true;
  }
  return false;
}
void check_storages(const Operator& op, const Value* args) {
  if (op.flags & (kView | kGeometry) || op.is_composite()) return;
  for (size_t i = 0; i < op.schema.args.size(); ++i) {
    const bool written = op.schema.args[i].mutated;
    if (args[i].is_tensor()) check_storage(op, args[i].tensor_impl(), written);
    if (args[i].is_tensor_list())
      for (size_t j = 0; j < args[i].length(); ++j) check_storage(op, args[i].tensors()[j].impl(), written);
  }
}
}  // namespace

void Operator::call_with(KeySet keys, Value* args, Value* results) const {
  const profiling::Scope recorded(*this, args);
  if (any_unusual_storage()) {
    if (flags & kWideComplex && has_complex_half(*this, args))
      return call_in_complex64(*this, keys, args, results);
    check_storages(*this, args);
  }
  if (__builtin_expect(built_.load(std::memory_order_acquire) != OperatorTable::get().generation(), 0))
    rebuild();
  // Devices: an explicit device wins over the CPU (zero-dim CPU operands may join any device).
  while (!keys.empty()) {
    const Key key = keys.highest();
    const Kernel kernel = resolved_[static_cast<int>(key)];
    if (__builtin_expect(bool(kernel), 1)) {
      kernel.fn(*this, kernel.context, keys, args, results);
      if ((flags & (kView | kNoGrad)) == kView && static_cast<int>(key) < kBackendKeys && track_view)
        remember_views_of(args[0], results, n_results());
      return;
    }
    if (static_cast<int>(key) < kBackendKeys) no_kernel(keys);
    keys = keys.below(key);
  }
  no_kernel(keys);
}

void Operator::no_kernel(KeySet keys) const {
  std::string device = "cpu";
  for (int k = kBackendKeys; k-- > 0;)
    if (keys.has(static_cast<Key>(k))) {
      device = device_type_name(static_cast<DeviceType>(k));
      break;
    }
  fail(ErrorKind::NotImplemented, "[", schema.name,
       "] expected a device with a kernel or decomposition for it, got ", device);
}

void detail::check_one_device(const Operator& op, const Value* args) {
  const TensorImpl* first = nullptr;
  const auto look = [&](const TensorImpl* t) {
    if (first == nullptr) first = t;
    FL_CHECK_KIND(
        t->device.type != DeviceType::Meta || t->device == first->device || op.schema.name != "copy_",
        NotImplemented,
        "[copy_] expected a source with data, got one on the meta device: Cannot copy out of meta "
        "tensor; no data!");
    FL_CHECK(t->device == first->device || (t->sizes.empty() && t->device.type == DeviceType::CPU) ||
                 first->device.type == DeviceType::Meta,
             "[", op.schema.name, "] expected all tensors on one device, got ", to_string(first->device),
             " and ", to_string(t->device), "; move them to one with .to(device)");
  };
  for (size_t i = 0; i < op.schema.args.size(); ++i) {
    if (args[i].is_tensor()) look(args[i].tensor_impl());
    if (args[i].is_tensor_list())
      for (size_t j = 0; j < args[i].length(); ++j)
        if (args[i].tensors()[j].defined()) look(args[i].tensors()[j].impl());
  }
}

}  // namespace fl

#include "lazy/recorder.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "core/ownership.h"
#include "dispatch/builtin.h"
#include "dispatch/shared_key.h"
#include "lazy/interpreter.h"
#include "ops/updates.h"

namespace fl::lazy {
namespace {

std::shared_ptr<Recorder>& recorder_at(DeviceType type) {
  static auto* table = new std::shared_ptr<Recorder>[kMaxDeviceTypes];
  return table[static_cast<int>(type)];
}

template <class F>
void each_tensor(const Operator& op, const Value* args, const F& f) {
  for (size_t i = 0; i < op.schema.args.size(); ++i) {
    if (args[i].is_tensor()) f(static_cast<int>(i), -1, args[i].tensor());
    for (size_t k = 0; args[i].is_tensor_list() && k < args[i].length(); ++k)
      if (args[i].tensors()[k].defined()) f(static_cast<int>(i), static_cast<int>(k), args[i].tensors()[k]);
  }
}

// The same window on memory that does not exist.
Tensor twin_of(const Tensor& t) {
  if (t->wrapped_number) return t;
  const Device nowhere{DeviceType::Meta};
  Ref<Storage> storage(new Storage);
  storage->device = nowhere;
  storage->bytes = t->storage ? t->storage->bytes : 0;
  return window_on(storage, nowhere, t.dtype(), t.sizes(), t.strides(), t.offset());
}

// A generator of a recording device, seen from the device below.
struct GeneratorBelow : Opaque {
  GeneratorBelow(Generator& original, Device base) : original(original), below(base) {
    below.set_state(original.state());
  }
  Generator* generator() override { return &below; }

  Generator& original;
  Generator below;
};

bool is_root(const Tensor& t, const Window& w) {
  return t.dtype() == w.dtype && t.sizes() == IntSpan(w.sizes) && t.strides() == IntSpan(w.strides) &&
         t.offset() == w.offset;
}

// While a program is made and run: what it calls was recorded below autograd, mixed precision and modes.
class Plainly {
 public:
  Plainly() : saved_(thread_state()) {
    ThreadState& s = thread_state();
    s.included = s.excluded = KeySet();
    s.grad_mode = false;
  }
  ~Plainly() { thread_state() = saved_; }
  Plainly(const Plainly&) = delete;

 private:
  ThreadState saved_;
};

}  // namespace

Recorder& Recorder::make(DeviceType type, Device base) {
  recorded_references = [](const Storage& storage) -> int64_t {
    return static_cast<const Recorded&>(*storage.recorded).slot >= 0;
  };
  auto& slot = recorder_at(type);
  if (!slot) slot = std::make_shared<Recorder>(type, base);
  set_device_fallback(type, Kernel{recording_kernel, slot.get()});
  set_device_allocator(type, {[](size_t) -> void* { return nullptr; }, [](void*, size_t) {}});
  // An optimizer step is one call; without a kernel it would be taken apart before it gets here.
  for (Operator* op : OperatorTable::get().all())
    if (op->kernel(Key::CPU).fn == update_kernel)
      set_device_kernel(*op, type, Kernel{recording_kernel, slot.get()});
  return *slot;
}

// Programs are made by Python under this lock, so nobody waits for it while holding Python's.
std::unique_lock<std::recursive_mutex> Recorder::lock() {
  std::unique_lock<std::recursive_mutex> held(mutex_, std::try_to_lock);
  if (!held) wait([&] { held.lock(); });
  return held;
}

Recorder* Recorder::find(DeviceType type) {
  return recorder_at(type).get();
}

void Recorder::set_base(Device base) {
  flush("the device below changes");
  const std::unique_lock<std::recursive_mutex> held = lock();
  base_ = base;
  forget_programs();
}

void Recorder::forget_programs() {
  leave_trace();
  programs_.clear();
  constants_.clear();
  traces_.clear();
}

Recorder::Known& Recorder::known(const Operator& op) {
  const auto at = known_.find(&op);
  if (at != known_.end()) return at->second;
  Known k;
  const std::string& name = op.schema.name;
  if (name == "copy_") {
    k.kind = Kind::Copy;
  } else if (name == "_to_copy") {
    k.kind = Kind::ToCopy;
  } else {
    bool plain = op.record != nullptr && !has_tag(op, "data_dependent");
    for (const std::string& type : op.schema.returns) plain &= type.compare(0, 6, "Tensor") == 0;
    k.kind = plain ? Kind::Record : Kind::Host;
  }
  k.update = op.kernel(Key::CPU).fn == update_kernel;
  for (size_t i = 0; i < op.schema.args.size(); ++i) {
    k.mutates |= op.schema.args[i].mutated;
    const ArgType type = op.schema.args[i].type;
    const bool operand = type == ArgType::TensorOrScalar || type == ArgType::Tensor;
    const bool number = type == ArgType::Scalar || type == ArgType::Float;
    if (operand) k.operands |= 1u << i;
    if ((k.update && type == ArgType::Float) ||
        ((operand || type == ArgType::Scalar) && has_tag(op, "scales")))
      k.parametric |= 1u << i;
    if ((operand || number) && (has_tag(op, "pointwise") || has_tag(op, "fill"))) k.candidates |= 1u << i;
  }
  return known_.emplace(&op, k).first->second;
}

Recorded& Recorder::state(const Tensor& t) {
  Ref<Counted>& recorded = t->storage->recorded;
  if (!recorded) recorded = Ref<Counted>(new Recorded);
  return static_cast<Recorded&>(*recorded);
}

// Raises the error of the program that would have computed the tensor, if that failed.
void Recorder::check_value(const Tensor& t) {
  if (const Ref<Failure> failure = state(t).failure) failure->raise();
}

int Recorder::slot_of(const Tensor& t) {
  Recorded& s = state(t);
  if (s.slot >= 0) return s.slot;
  s.slot = static_cast<int>(graph_.slots.size());
  const int64_t bytes = static_cast<int64_t>(t->storage->bytes), item = t.itemsize();
  Window root{s.slot, t.dtype(), {}, {}, 0};
  if (t.offset() == 0 && t.numel() * item == bytes && is_dense(t)) {
    root.sizes.assign(t.sizes());
    root.strides.assign(t.strides());
  } else {
    root.sizes.push_back(bytes / item);
    root.strides.push_back(1);
  }
  const auto kind = s.base.defined() ? Slot::Kind::Input : Slot::Kind::Empty;
  graph_.hash.add(0x51u + static_cast<uint64_t>(kind));
  graph_.hash.add(static_cast<uint64_t>(root.dtype));
  graph_.hash.add(IntSpan(root.sizes));
  graph_.hash.add(IntSpan(root.strides));
  graph_.slots.push_back({kind, t->storage, {}, std::move(root)});
  return s.slot;
}

// A tensor of the host without dimensions takes part as an input, with the value that it has now.
int Recorder::host_slot(const Tensor& t) {
  const int slot = static_cast<int>(graph_.slots.size());
  Tensor held = empty(t.sizes(), t.options());
  copy_into(held, t);
  Window root{slot, t.dtype(), Dims(t.sizes()), Dims(held.strides()), 0};
  graph_.hash.add(0x60u);
  graph_.hash.add(static_cast<uint64_t>(root.dtype));
  graph_.hash.add(IntSpan(root.sizes));
  graph_.slots.push_back({Slot::Kind::Host, {}, held, std::move(root)});
  return slot;
}

Window Recorder::window_of(const Tensor& t) {
  const int slot = is_here(t) ? slot_of(t) : host_slot(t);
  Window w{slot, t.dtype(), Dims(t.sizes()), Dims(t.strides()), is_here(t) ? t.offset() : 0};
  if (!is_here(t)) w.strides = graph_.slots[slot].root.strides;
  Hash& hash = graph_.hash;
  hash.add(static_cast<uint64_t>(slot) << 8 | static_cast<uint64_t>(t.dtype()));
  hash.add(IntSpan(w.sizes));
  hash.add(IntSpan(w.strides));
  hash.add(static_cast<uint64_t>(w.offset));
  return w;
}

// Fills in the arguments of a call. Those of a view take no part in the graph: their windows name no slots.
void Recorder::enter(const Operator& op, const Known& known, const Value* args, Call& call, bool is_view) {
  Hash unused;
  Hash& hash = is_view ? unused : graph_.hash;
  const auto window = [&](const Tensor& t) {
    return is_view ? Window{-1, t.dtype(), Dims(t.sizes()), Dims(t.strides()), t.offset()} : window_of(t);
  };
  hash.add(reinterpret_cast<uint64_t>(&op));
  const size_t n = op.schema.args.size();
  call.values.resize(n);
  for (size_t i = 0; i < n; ++i) {
    const Value& v = args[i];
    const bool wrapped = v.is_tensor() && v.tensor_impl()->wrapped_number;
    const bool number = wrapped || v.is_number();
    if (number) {
      Scalar scalar;
      if (is_parameter(known, i, v, scalar)) {
        call.parameters.emplace_back(static_cast<int>(i), static_cast<int>(graph_.parameters.size()));
        call.values[i] = Value(scalar);
        graph_.parameters.push_back(scalar);
        hash.add(scalar.is_integral() ? 0x73u : 0x70u);
        continue;
      }
    }
    if (wrapped) {
      call.values[i] = Value(item(v.tensor()));
      add_value(hash, call.values[i]);
    } else if (v.is_tensor()) {
      call.tensors.push_back({static_cast<int>(i), -1, window(v.tensor())});
    } else if (v.is_tensor_list()) {
      call.list_lengths.resize(n, -1);
      call.list_lengths[i] = static_cast<int>(v.length());
      hash.add(0x80u + v.length());
      for (size_t k = 0; k < v.length(); ++k)
        if (v.tensors()[k].defined())
          call.tensors.push_back({static_cast<int>(i), static_cast<int>(k), window(v.tensors()[k])});
    } else if (v.tag() == Value::Tag::Device) {
      call.values[i] = Value(base_);
    } else {
      call.values[i] = v;  // a copy of its own: lists may point to the caller's memory
      add_value(hash, v);
    }
  }
}

void Recorder::run_meta(const Operator& op, const Value* args, std::vector<Tensor>& twins, Value* results) {
  const size_t n = op.schema.args.size();
  Value on_meta[32];
  std::vector<std::vector<Tensor>> lists;
  lists.reserve(n);
  for (size_t i = 0; i < n; ++i) {
    const Value& v = args[i];
    if (v.is_tensor()) {
      twins.push_back(twin_of(v.tensor()));
      on_meta[i] = Value::borrow(twins.back().impl());
    } else if (v.is_tensor_list()) {
      lists.emplace_back();
      for (size_t k = 0; k < v.length(); ++k) {
        const Tensor& t = v.tensors()[k];
        lists.back().push_back(t.defined() ? twin_of(t) : Tensor());
        if (t.defined()) twins.push_back(lists.back().back());
      }
      on_meta[i] = Value::borrow(lists.back().data(), lists.back().size());
    } else if (v.tag() == Value::Tag::Device) {
      on_meta[i] = Value(Device{DeviceType::Meta});
    } else {
      on_meta[i] = v;
    }
  }
  op.call_with(KeySet(Key::Meta), on_meta, results);
}

void Recorder::take_results(const Operator& op, const Value* args, const std::vector<Tensor>& twins,
                            Value* results, Call& call, std::vector<TracedResult>& traced) {
  struct Original {
    int position, element;
    Tensor tensor;
  };
  std::vector<Original> originals;
  each_tensor(op, args, [&](int i, int k, const Tensor& t) { originals.push_back({i, k, t}); });
  using Kind = TracedResult::Kind;
  const auto take = [&](const Tensor& meta) -> Tensor {
    const int place = static_cast<int>(traced.size());
    Window w{-1, meta.dtype(), Dims(meta.sizes()), Dims(meta.strides()), meta.offset()};
    for (size_t i = 0; i < twins.size(); ++i) {
      const Original& o = originals[i];
      const bool same = twins[i].same(meta);
      if (!same && (twins[i]->storage.get() != meta->storage.get() || !is_here(o.tensor))) continue;
      traced.push_back({same ? Kind::Argument : Kind::View, o.position, o.element, std::move(w)});
      return same ? o.tensor : window_on(o.tensor->storage, Device{type_}, traced.back().window);
    }
    w.storage = static_cast<int>(graph_.slots.size());
    call.results.push_back({w, place});
    traced.push_back({Kind::New, -1, -1, std::move(w), meta->storage->bytes});
    return new_result(traced.back());
  };
  for (int i = 0; i < op.n_results(); ++i) {
    if (results[i].is_tensor()) {
      results[i] = Value(take(results[i].tensor()));
    } else if (results[i].is_tensor_list()) {
      std::vector<Tensor> list;
      for (size_t k = 0; k < results[i].length(); ++k) list.push_back(take(results[i].tensors()[k]));
      results[i] = Value(list);
    }
  }
}

// A tensor with memory that a call of the graph makes.
Tensor Recorder::new_result(const TracedResult& result) {
  Ref<Storage> storage(new Storage);
  storage->device = Device{type_};
  storage->bytes = result.bytes;
  Ref<Recorded> recorded(new Recorded);
  recorded->slot = result.window.storage;
  storage->recorded = Ref<Counted>(recorded.get());
  graph_.slots.push_back({Slot::Kind::Result, storage, {}, result.window});
  return window_on(storage, Device{type_}, result.window);
}

// A graph draws from successive streams; where the generator was set meanwhile, another graph begins.
void Recorder::check_generator() {
  if (graph_.draws == 0) return;
  const Generator::State next = default_generator(type_).state(), first = graph_.first_draw;
  if (next.seed != first.seed || next.offset != first.offset + static_cast<uint64_t>(graph_.draws))
    flush("the random generator was set");
}

void Recorder::draw() {
  const Generator::State s = default_generator(type_).take();
  if (graph_.draws == 0) graph_.first_draw = s;
  ++graph_.draws;
}

// Scalar states of optimizers in the host's memory change at once; the program gets them as they were.
void Recorder::advance_states(const Operator& op, Value* args, std::vector<std::vector<Tensor>>& before) {
  const size_t n = op.schema.args.size();
  const auto on_host = [](const Value& v) {
    return v.is_tensor_list() && v.length() && v.tensors()[0].is_cpu();
  };
  if (std::none_of(args, args + n, on_host)) return;
  Value changed[32];
  std::vector<std::vector<Tensor>> stand_ins;
  before.reserve(n);
  stand_ins.reserve(n);
  for (size_t i = 0; i < n; ++i) {
    changed[i] = args[i];
    if (!args[i].is_tensor_list() || args[i].length() == 0) continue;
    if (on_host(args[i])) {
      before.emplace_back();
      for (size_t k = 0; k < args[i].length(); ++k) {
        const Tensor& t = args[i].tensors()[k];
        before.back().push_back(empty(t.sizes(), t.options()));
        copy_into(before.back().back(), t);
      }
      args[i] = Value::borrow(before.back().data(), before.back().size());
    } else {
      stand_ins.emplace_back(args[i].length(), empty({0}, {DType::Float, Device{}}));
      changed[i] = Value::borrow(stand_ins.back().data(), stand_ins.back().size());
    }
  }
  Value nothing[1];
  op.call_with(KeySet(Key::CPU), changed, nothing);
}

// A view is a window on its argument's slot: the calls that use it say so, and nothing has to run.
bool Recorder::is_window(const Operator& op, const Value* args, const std::vector<Tensor>& twins,
                         const Value* results) const {
  if (!(op.flags & kView)) return false;
  for (size_t i = 0; i < op.schema.args.size(); ++i)
    if (op.schema.args[i].mutated || (args[i].is_tensor() && !is_here(args[i].tensor()))) return false;
  const auto shares = [&](const Tensor& t) {
    return std::any_of(twins.begin(), twins.end(),
                       [&](const Tensor& twin) { return twin->storage.get() == t->storage.get(); });
  };
  for (int i = 0; i < op.n_results(); ++i) {
    if (results[i].is_tensor() && !shares(results[i].tensor())) return false;
    for (size_t k = 0; results[i].is_tensor_list() && k < results[i].length(); ++k)
      if (!shares(results[i].tensors()[k])) return false;
  }
  return true;
}

bool Recorder::record(const Operator& op, const Known& known, Value* args, Value* results, int where) {
  bool foreign = false;
  for (size_t i = 0; i < op.schema.args.size(); ++i) foreign |= args[i].tag() == Value::Tag::Opaque;
  each_tensor(op, args, [&](int, int element, const Tensor& t) {
    if (is_here(t)) check_value(t);
    if (is_here(t) || t->wrapped_number || (t.is_cpu() && (t.dim() == 0 || known.update))) return;
    foreign |= has_tag(op, "mixed_devices") || element >= 0;
    FL_CHECK(foreign, "[", op.schema.name, "] expected all tensors on one device, got ",
             device_type_name(type_), " and ", to_string(t.device()));
  });
  if (foreign) return false;
  if (op.flags & kRandom) check_generator();
  if (follow(op, known, args, results, where)) return true;
  std::vector<Tensor> twins;
  try {
    run_meta(op, args, twins, results);  // checks the arguments before anything is recorded
  } catch (const Error& error) {
    if (error.kind == ErrorKind::NotImplemented) return false;
    throw;
  }
  if (is_window(op, args, twins, results)) {
    Call view{&op, {}, {}, {}, {}, {}, where};
    std::vector<TracedResult> traced;
    take_results(op, args, twins, results, view, traced);
    if (tracing_) trace_call(op, known, args, results, std::move(view), std::move(traced), true);
    return true;
  }
  if (op.flags & kRandom) draw();
  std::vector<std::vector<Tensor>> before;
  Value own_args[32];
  if (known.update) {
    for (size_t i = 0; i < op.schema.args.size(); ++i) own_args[i] = args[i];
    advance_states(op, own_args, before);
    args = own_args;
  }
  Call call{&op, {}, {}, {}, {}, {}, where};
  enter(op, known, args, call);
  std::vector<TracedResult> traced;
  take_results(op, args, twins, results, call, traced);
  if (tracing_) trace_call(op, known, args, results, call, std::move(traced), false);
  graph_.calls.push_back(std::move(call));
  finish_call(op, known, args, graph_.calls.size());
  return true;
}

// After a call was recorded or followed, the last of `calls`.
void Recorder::finish_call(const Operator& op, const Known& known, const Value* args, size_t calls) {
  for (size_t i = 0; known.mutates && i < op.schema.args.size(); ++i) {
    if (!op.schema.args[i].mutated) continue;
    if (args[i].is_tensor()) args[i].tensor().bump_version();
    for (size_t k = 0; args[i].is_tensor_list() && k < args[i].length(); ++k)
      if (args[i].tensors()[k].defined()) args[i].tensors()[k].bump_version();
  }
  ++metrics.operators;
  if (calls >= most_calls) flush("many operators were recorded");
}

void Recorder::call(const Operator& op, Value* args, Value* results) {
  const int where = line();  // takes Python's lock, so it comes before ours
  const std::unique_lock<std::recursive_mutex> held = lock();
  const Known& k = known(op);
  if (k.kind == Kind::Copy) return copy(op, args, results, where);
  if (k.kind == Kind::ToCopy) return to_copy(op, args, results, where);
  if (k.kind == Kind::Host || !record(op, k, args, results, where)) on_host(op, args, results);
}

void Recorder::copy(const Operator& op, Value* args, Value* results, int where) {
  const Tensor dst = args[0].tensor(), src = args[1].tensor();
  if (!is_here(dst)) {
    static const Operator& copy = OperatorTable::get().at("copy_");
    Value on_host[3] = {args[0], Value(on_base(src, "a tensor is copied to another device")), args[2]};
    return copy.call(on_host, results);
  }
  if (is_here(src)) check_value(src);
  // Who writes all of a tensor need not care that it had no value.
  if (dst.offset() == 0 && dst.numel() * dst.itemsize() == static_cast<int64_t>(dst->storage->bytes) &&
      is_dense(dst))
    state(dst).failure = {};
  Value own_args[3] = {args[0], args[1], args[2]};
  if (!is_here(src)) {
    Tensor held = empty(src.sizes(), {src.dtype(), base_});
    copy_into(held, src);
    own_args[1] = Value(wrapped(held));
  }
  record(op, known(op), own_args, results, where);
}

void Recorder::to_copy(const Operator& op, Value* args, Value* results, int where) {
  const Tensor self = args[0].tensor();
  const bool leaves = args[3].tag() == Value::Tag::Device && args[3].to_device().type != type_;
  Value own_args[32];
  for (size_t i = 0; i < op.schema.args.size(); ++i) own_args[i] = args[i];
  if (is_here(self) && !leaves) {
    own_args[3] = Value();
    record(op, known(op), own_args, results, where);
    return;
  }
  if (is_here(self)) own_args[0] = Value(on_base(self, "a tensor is copied to another device"));
  if (!leaves) own_args[3] = Value(base_);
  op.call(own_args, results);
  if (!leaves) results[0] = Value(wrapped(results[0].tensor()));
}

Tensor Recorder::wrapped(const Tensor& base) const {
  Ref<Storage> storage(new Storage);
  storage->device = Device{type_};
  storage->bytes = base->storage->bytes;
  Ref<Recorded> recorded(new Recorded);
  recorded->base = window_on(base->storage, base_, base.dtype(), base.sizes(), base.strides(), base.offset());
  storage->recorded = Ref<Counted>(recorded.get());
  return window_on(storage, Device{type_}, base.dtype(), base.sizes(), base.strides(), base.offset());
}

Tensor Recorder::on_base(const Tensor& t, const char* why) {
  const std::unique_lock<std::recursive_mutex> held = lock();
  if (state(t).slot >= 0) flush(why);
  check_value(t);
  Recorded& s = state(t);
  if (!s.base.defined())
    s.base = window_on(Storage::allocate(t->storage->bytes, base_), base_, t.dtype(), t.sizes(), t.strides(),
                       t.offset());
  return window_on(s.base->storage, base_, t.dtype(), t.sizes(), t.strides(), t.offset());
}

Tensor Recorder::shared_base(const Tensor& t, const char* why) {
  Tensor base = on_base(t, why);
  state(t).shared = true;
  return base;
}

// Operators whose results depend on values, and those of programs: they run at once on the device below.
void Recorder::on_host(const Operator& op, Value* args, Value* results) {
  ++metrics.host_calls;
  std::vector<Tensor> bases, originals;
  each_tensor(op, args, [&](int, int, const Tensor& t) {
    originals.push_back(t);
    bases.push_back(is_here(t) ? on_base(t, op.schema.name.c_str()) : t);
  });
  const size_t n = op.schema.args.size();
  Value own_args[32];
  std::vector<std::vector<Tensor>> lists;
  lists.reserve(n);
  std::vector<Ref<GeneratorBelow>> generators;
  size_t at = 0;
  for (size_t i = 0; i < n; ++i) {
    own_args[i] = args[i];
    if (args[i].tag() == Value::Tag::Opaque)
      if (Generator* g = args[i].opaque()->generator(); g && g->device.type == type_) {
        generators.emplace_back(new GeneratorBelow(*g, base_));
        own_args[i] = Value::borrow(static_cast<Opaque*>(generators.back().get()));
      }
    if (args[i].is_tensor()) own_args[i] = Value(bases[at++]);
    if (args[i].tag() == Value::Tag::Device && args[i].to_device().type == type_) own_args[i] = Value(base_);
    if (!args[i].is_tensor_list()) continue;
    lists.emplace_back();
    for (size_t k = 0; k < args[i].length(); ++k)
      lists.back().push_back(args[i].tensors()[k].defined() ? bases[at++] : Tensor());
    own_args[i] = Value::borrow(lists.back().data(), lists.back().size());
  }
  op.call(own_args, results);
  for (const Ref<GeneratorBelow>& g : generators) g->original.set_state(g->below.state());
  const auto back = [&](const Tensor& t) -> Tensor {
    for (size_t i = 0; i < bases.size(); ++i)
      if (bases[i].same(t)) return originals[i];
    if (t.device().type != base_.type) return t;
    Tensor result = wrapped(t);
    for (size_t i = 0; i < bases.size(); ++i)
      if (bases[i]->storage == t->storage && is_here(originals[i]))
        state(originals[i]).shared = state(result).shared = true;
    return result;
  };
  for (int i = 0; i < op.n_results(); ++i) {
    if (results[i].is_tensor()) results[i] = Value(back(results[i].tensor()));
    if (!results[i].is_tensor_list()) continue;
    std::vector<Tensor> list;
    for (size_t k = 0; k < results[i].length(); ++k) list.push_back(back(results[i].tensors()[k]));
    results[i] = Value(list);
  }
}

std::vector<Tensor> Recorder::inputs_of(const Graph& graph) const {
  std::vector<Tensor> inputs;
  for (const Slot& slot : graph.slots) {
    if (slot.kind == Slot::Kind::Host) inputs.push_back(slot.host);
    if (slot.kind != Slot::Kind::Input) continue;
    const Tensor& base = static_cast<const Recorded&>(*slot.storage->recorded).base;
    inputs.push_back(is_root(base, slot.root) ? base : window_on(base->storage, base_, slot.root));
  }
  for (const Scalar& number : graph.parameters) inputs.push_back(wrapped_number(number));
  return inputs;
}

Graph Recorder::recorded(std::vector<Tensor>& inputs, std::vector<int>& outputs) {
  const std::unique_lock<std::recursive_mutex> held = lock();
  leave_trace();
  outputs = graph_.outputs();
  inputs = inputs_of(graph_);
  return graph_;
}

void Recorder::store(const Graph& graph, const std::vector<int>& outputs, const std::vector<int>& replaced,
                     std::vector<Tensor>& results) {
  const size_t expected = outputs.size() + replaced.size();
  FL_CHECK(results.size() == expected, "[lazy] expected ", int64_t(expected), " results, got ",
           int64_t(results.size()));
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Slot& slot = graph.slots[outputs[i]];
    static_cast<Recorded&>(*slot.storage->recorded).base =
        laid_out(results[i], slot.root, slot.storage->bytes, base_);
  }
  if (replaced.empty()) return;
  std::vector<const Slot*> input_slots;
  for (const Slot& slot : graph.slots)
    if (slot.kind == Slot::Kind::Input || slot.kind == Slot::Kind::Host) input_slots.push_back(&slot);
  for (size_t i = 0; i < replaced.size(); ++i) {
    const Slot& slot = *input_slots[replaced[i]];
    if (slot.kind == Slot::Kind::Host) continue;  // changed when the call was recorded
    const Tensor& value = results[outputs.size() + i];
    auto& recorded = static_cast<Recorded&>(*slot.storage->recorded);
    if (recorded.shared)
      copy_into(window_on(recorded.base->storage, base_, slot.root), value);
    else
      recorded.base = laid_out(value, slot.root, slot.storage->bytes, base_);
  }
}

Ref<Executable> Recorder::program_of(const Graph& graph, const std::vector<int>& outputs,
                                     const std::vector<Tensor>& inputs, const char* why) {
  const auto known = programs_.find(graph.hash.value());
  if (known != programs_.end()) {
    ++metrics.hits;
    return known->second;
  }
  Ref<Executable> program;
  if (graph.calls.size() > 1 || !interprets_single_calls) {
    note_changes(graph, outputs);
    program = compile(graph, outputs, inputs, why);
  }
  if (!program) program = Ref<Executable>(new Interpreter(graph, outputs, base_));
  programs_.emplace(graph.hash.value(), program);
  return program;
}

// Random numbers of a program are those that its calls would have drawn when they were recorded.
std::vector<Tensor> Recorder::run(const Graph& graph, Executable& program,
                                  const std::vector<Tensor>& inputs) {
  if (graph.draws == 0) return program.run(inputs);
  struct Restored {
    Generator& generator;
    Generator::State state = generator.state();
    ~Restored() { generator.set_state(state); }
  } restored{default_generator(base_.type)};
  restored.generator.set_state(graph.first_draw);
  return program.run(inputs);
}

void Recorder::flush(const char* why) {
  const std::unique_lock<std::recursive_mutex> held = lock();
  const Ref<Trace> trace = finished_trace();
  const std::vector<int> lines = std::exchange(lines_, {});
  std::vector<Ref<TracedCall>> traced = std::exchange(traced_, {});
  if (graph_.calls.empty() && graph_.slots.empty()) return;
  Graph graph = std::exchange(graph_, Graph());
  const std::vector<int> outputs = trace ? trace->outputs : graph.outputs();
  for (const Slot& slot : graph.slots)
    if (slot.storage) static_cast<Recorded&>(*slot.storage->recorded).slot = -1;
  if (graph.calls.empty() && !trace) return;
  graph.hash.add(0x90u);
  for (int slot : outputs) graph.hash.add(static_cast<uint64_t>(slot));
  ++metrics.graphs;
  const Plainly plainly;
  std::vector<Tensor> inputs;
  bool ran = false;
  Ref<Failure> failure;
  try {
    inputs = inputs_of(graph);
    const uint64_t hits = metrics.hits;
    const Ref<Executable> program = trace ? trace->program : program_of(graph, outputs, inputs, why);
    metrics.hits += bool(trace);
    ran = true;
    const auto started = std::chrono::steady_clock::now();
    std::vector<Tensor> results = run(graph, *program, inputs);
    metrics.execute_ns += static_cast<uint64_t>((std::chrono::steady_clock::now() - started).count());
    store(graph, outputs, program->replaced, results);
    if (!trace && tracing_) keep_trace(graph, std::move(traced), outputs, program);
    tracing_ = metrics.hits > hits;
    return;
  } catch (...) {
    failure = caught();
  }
  if (trace) trace->enter_calls(graph, trace->calls.size(), lines);
  failure = located(graph, inputs, std::move(failure));
  forget_values(graph, outputs, ran, failure);
  failure->raise();
}

// Runs a graph that failed once more, call by call on copies of its inputs, to learn which call it was.
Ref<Failure> Recorder::located(const Graph& graph, const std::vector<Tensor>& inputs, Ref<Failure> failure) {
  const Ref<Interpreter> again(new Interpreter(graph, {}, base_));
  Ref<Failure> second;
  if (!failure->is_interruption()) {
    try {
      std::vector<Tensor> copies;
      for (const Tensor& t : inputs) {
        copies.push_back(t->wrapped_number ? t : empty_strided(t.sizes(), t.strides(), t.options()));
        if (!t->wrapped_number) copy_into(copies.back(), t);
      }
      run(graph, *again, copies);
    } catch (...) {
      second = caught();
    }
  }
  const bool exact = static_cast<bool>(second);
  if (exact) failure = std::move(second);
  failure->recorded_at(graph.calls[exact ? again->position() : 0].line, exact);
  return failure;
}

// Results of a graph that failed have no values, nor have inputs that it may have written by then.
void Recorder::forget_values(const Graph& graph, const std::vector<int>& outputs, bool ran,
                             const Ref<Failure>& failure) {
  const auto forget = [&](int slot) {
    auto& recorded = static_cast<Recorded&>(*graph.slots[slot].storage->recorded);
    recorded.base = {};
    recorded.failure = failure;
  };
  for (int slot : outputs) forget(slot);
  if (!ran) return;
  for (const Call& call : graph.calls)
    for (const TensorArgument& t : call.tensors)
      if (call.op->schema.args[t.position].mutated && graph.slots[t.window.storage].kind == Slot::Kind::Input)
        forget(t.window.storage);
}

void recording_kernel(const Operator& op, void* context, KeySet, Value* args, Value* results) {
  static_cast<Recorder*>(context)->call(op, args, results);
}

}  // namespace fl::lazy

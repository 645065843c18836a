// How the recorder follows traces, leaves them where the program does something else, and makes them.
#include "lazy/trace.h"

#include <algorithm>
#include <cstring>

#include "lazy/recorder.h"

namespace fl::lazy {
namespace {

constexpr size_t kMostTraces = 8;

bool same_bits(double a, double b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

Tensor argument(const Value* args, int position, int element) {
  return element < 0 ? args[position].tensor() : args[position].tensors()[element];
}

}  // namespace

bool same_value(const Value& a, const Value& b) {
  if (a.tag() != b.tag()) return false;
  switch (a.tag()) {
    case Value::Tag::None:
    case Value::Tag::Device:  // the recording device's own
      return true;
    case Value::Tag::Bool:
    case Value::Tag::Int:
      return a.to_int() == b.to_int();
    case Value::Tag::Float:
      return same_bits(a.to_float(), b.to_float());
    case Value::Tag::Complex: {
      const complex128 x = a.to_scalar().to<complex128>(), y = b.to_scalar().to<complex128>();
      return same_bits(x.real(), y.real()) && same_bits(x.imag(), y.imag());
    }
    case Value::Tag::DType:
      return a.to_dtype() == b.to_dtype();
    case Value::Tag::MemoryFormat:
      return a.to_memory_format() == b.to_memory_format();
    case Value::Tag::Layout:
      return a.to_layout() == b.to_layout();
    case Value::Tag::IntList:
      return a.ints() == b.ints();
    case Value::Tag::FloatList:
      return a.length() == b.length() &&
             std::equal(a.floats(), a.floats() + a.length(), b.floats(), same_bits);
    case Value::Tag::BoolList:
      return a.length() == b.length() && std::equal(a.bools(), a.bools() + a.length(), b.bools());
    case Value::Tag::String:
      return a.string() == b.string();
    default:
      return false;
  }
}

void Trace::enter_calls(Graph& graph, size_t count, const std::vector<int>& lines) const {
  for (size_t i = 0; i < count; ++i) {
    if (calls[i]->is_view) continue;
    graph.calls.push_back(calls[i]->call);
    Call& call = graph.calls.back();
    call.line = lines[graph.calls.size() - 1];
    for (auto [position, place] : call.parameters) call.values[position] = Value(graph.parameters[place]);
  }
}

// ---------------------------------------------------------------- following

// Whether a tensor is the expected one; memory that takes part for the first time becomes a slot.
bool Recorder::fits_tensor(const Trace& trace, const Tensor& t, const Window& w, size_t bytes) {
  if (t.dtype() != w.dtype || t.sizes() != IntSpan(w.sizes)) return false;
  const bool is_new = w.storage == static_cast<int>(graph_.slots.size());
  const auto enter_slot = [&](Slot::Kind kind, const Ref<Storage>& storage) {
    if (!is_new || trace.slot_kinds[w.storage] != kind) return false;
    graph_.slots.push_back({kind, storage, {}, trace.slot_roots[w.storage]});
    return true;
  };
  if (!is_here(t)) return w.storage >= 0 && enter_slot(Slot::Kind::Host, {});
  if (t.strides() != IntSpan(w.strides) || t.offset() != w.offset || t->storage->bytes != bytes) return false;
  if (w.storage < 0) return true;
  Recorded& s = state(t);
  if (s.slot >= 0) return s.slot == w.storage;
  if (!enter_slot(s.base.defined() ? Slot::Kind::Input : Slot::Kind::Empty, t->storage)) return false;
  s.slot = w.storage;
  return true;
}

bool Recorder::fits(const Trace& trace, const TracedCall& expected, const Known& known, const Value* args) {
  const Call& call = expected.call;
  const auto& tensors = call.tensors;
  size_t at = 0;  // among the tensors
  const auto is_expected = [&](size_t i, int element) {
    return at < tensors.size() && tensors[at].position == static_cast<int>(i) &&
           tensors[at].element == element;
  };
  size_t parameter = 0;
  for (size_t i = 0; i < call.values.size(); ++i) {
    const Value& v = args[i];
    Scalar number;
    const bool varies = is_parameter(known, i, v, number);
    const bool varied =
        parameter < call.parameters.size() && call.parameters[parameter].first == static_cast<int>(i);
    if (varies != varied) return false;
    if (varies) {
      if (number.is_integral() != call.values[i].to_scalar().is_integral()) return false;
      ++parameter;
    } else if (is_wrapped(v)) {
      if (!same_value(call.values[i], Value(item(v.tensor())))) return false;
    } else if (v.is_tensor()) {
      if (!is_expected(i, -1) || !fits_tensor(trace, v.tensor(), tensors[at].window, expected.bytes[at]))
        return false;
      ++at;
    } else if (v.is_tensor_list()) {
      const int length = call.list_lengths.empty() ? -1 : call.list_lengths[i];
      if (static_cast<int>(v.length()) != length) return false;
      for (size_t k = 0; k < v.length(); ++k) {
        const Tensor& t = v.tensors()[k];
        if (t.defined() != is_expected(i, static_cast<int>(k))) return false;
        if (!t.defined()) continue;
        if (!fits_tensor(trace, t, tensors[at].window, expected.bytes[at])) return false;
        ++at;
      }
    } else if ((!call.list_lengths.empty() && call.list_lengths[i] >= 0) || !same_value(call.values[i], v)) {
      return false;
    }
  }
  return at == tensors.size();
}

// Takes back slots that a call which does not fit has entered.
void Recorder::drop_slots(size_t count) {
  for (; graph_.slots.size() > count; graph_.slots.pop_back())
    if (const Slot& slot = graph_.slots.back(); slot.storage)
      static_cast<Recorded&>(*slot.storage->recorded).slot = -1;
}

// The call in the trace that is followed, or in another one that began in the same way.
const TracedCall* Recorder::expected_call(const Operator& op, const Known& known, const Value* args) {
  const size_t slots = graph_.slots.size();
  const DType default_dtype = fl::default_dtype();
  const auto call_of = [&](const Trace& trace) -> const TracedCall* {
    if (followed_ == trace.calls.size()) return nullptr;
    if (slots == 0) graph_.slots.reserve(trace.slot_kinds.size());
    const TracedCall& call = *trace.calls[followed_];
    if (call.call.op == &op && call.default_dtype == default_dtype && fits(trace, call, known, args))
      return &call;
    drop_slots(slots);
    return nullptr;
  };
  if (trace_)
    if (const TracedCall* call = call_of(*trace_)) return call;
  const auto before = trace_ ? trace_->hash_before(followed_) : Hash().value();
  for (const Ref<Trace>& trace : traces_) {
    if (trace == trace_ || trace->calls.size() <= followed_ || trace->hash_before(followed_) != before)
      continue;
    const TracedCall* call = call_of(*trace);
    if (!call) continue;
    trace_ = trace;
    return call;
  }
  return nullptr;
}

// What is of this run only: numbers, and values in the host's memory.
void Recorder::take_values(const TracedCall& expected, const Value* args) {
  const Call& call = expected.call;
  for (const auto& [position, place] : call.parameters)
    graph_.parameters.push_back(number_of(args[position]));
  for (const TensorArgument& t : call.tensors) {
    if (t.window.storage < 0) continue;
    Slot& slot = graph_.slots[t.window.storage];
    if (slot.kind != Slot::Kind::Host) continue;
    const Tensor value = argument(args, t.position, t.element);
    slot.host = empty(value.sizes(), value.options());
    copy_into(slot.host, value);
  }
}

void Recorder::make_results(const TracedCall& expected, const Value* args, Value* results) {
  auto next = expected.results.begin();
  const auto make = [&]() -> Tensor {
    const TracedResult& result = *next++;
    if (result.kind == TracedResult::Kind::New) return new_result(result);
    Tensor original = argument(args, result.position, result.element);
    if (result.kind == TracedResult::Kind::Argument) return original;
    return window_on(original->storage, Device{type_}, result.window);
  };
  for (size_t i = 0; i < expected.result_lengths.size(); ++i) {
    const int length = expected.result_lengths[i];
    if (length == TracedCall::kOneTensor) {
      results[i] = Value(make());
    } else if (length == TracedCall::kOtherValue) {
      results[i] = expected.other_values[i];
    } else {
      std::vector<Tensor> list;
      for (int k = 0; k < length; ++k) list.push_back(make());
      results[i] = Value(list);
    }
  }
}

bool Recorder::follow(const Operator& op, const Known& known, Value* args, Value* results, int where) {
  if (traces_.empty() || (!trace_ && !(graph_.calls.empty() && graph_.slots.empty()))) return false;
  const TracedCall* expected = expected_call(op, known, args);
  if (!expected) {
    leave_trace();
    return false;
  }
  ++followed_;
  if (expected->is_view) {
    make_results(*expected, args, results);
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
  take_values(*expected, args);
  make_results(*expected, args, results);
  lines_.push_back(where);
  finish_call(op, known, args, lines_.size());
  return true;
}

// From here the program goes its own way: its calls so far become those of the graph.
void Recorder::leave_trace() {
  const Ref<Trace> trace = std::exchange(trace_, Ref<Trace>());
  const size_t count = std::exchange(followed_, 0);
  if (!trace) return;
  trace->enter_calls(graph_, count, std::exchange(lines_, {}));
  if (count) graph_.hash = trace->calls[count - 1]->after;
  traced_.assign(trace->calls.begin(), trace->calls.begin() + static_cast<std::ptrdiff_t>(count));
  tracing_ = true;
}

// The trace that was followed to its end, of which the same values are wanted.
Ref<Trace> Recorder::finished_trace() {
  if (trace_ && followed_ == trace_->calls.size()) {
    const std::vector<int> outputs = graph_.outputs();
    const auto last = trace_->calls.back()->after.value();
    const auto is_same = [&](const Ref<Trace>& t) {
      return t->calls.size() == followed_ && t->outputs == outputs && t->calls.back()->after.value() == last;
    };
    const auto at = std::find_if(traces_.begin(), traces_.end(), is_same);
    if (at != traces_.end()) {
      std::rotate(traces_.begin(), at, at + 1);
      trace_ = {};
      followed_ = 0;
      return traces_.front();
    }
  }
  leave_trace();
  return {};
}

// ---------------------------------------------------------------- tracing

void Recorder::trace_call(const Operator& op, const Known& known, const Value* args, const Value* results,
                          Call call, std::vector<TracedResult> traced_results, bool is_view) {
  if (is_view) enter(op, known, args, call, true);
  Ref<TracedCall> traced(new TracedCall);
  traced->is_view = is_view;
  traced->default_dtype = default_dtype();
  traced->results = std::move(traced_results);
  traced->after = graph_.hash;
  for (const TensorArgument& t : call.tensors)
    traced->bytes.push_back(argument(args, t.position, t.element)->storage->bytes);
  for (int i = 0; i < op.n_results(); ++i) {
    const Value& result = results[i];
    const bool list = result.is_tensor_list(), tensor = result.is_tensor();
    traced->result_lengths.push_back(list     ? static_cast<int>(result.length())
                                     : tensor ? TracedCall::kOneTensor
                                              : TracedCall::kOtherValue);
    traced->other_values.push_back(list || tensor ? Value() : result);
  }
  traced->call = std::move(call);
  traced_.push_back(std::move(traced));
}

void Recorder::keep_trace(const Graph& graph, std::vector<Ref<TracedCall>> calls,
                          const std::vector<int>& outputs, const Ref<Executable>& program) {
  Ref<Trace> trace(new Trace);
  trace->calls = std::move(calls);
  for (const Slot& slot : graph.slots) {
    trace->slot_kinds.push_back(slot.kind);
    trace->slot_roots.push_back(slot.root);
  }
  trace->outputs = outputs;
  trace->program = program;
  if (traces_.size() == kMostTraces) traces_.pop_back();
  traces_.insert(traces_.begin(), std::move(trace));
}

}  // namespace fl::lazy

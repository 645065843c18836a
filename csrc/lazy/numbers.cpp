// Numbers of recorded calls: which are parameters of programs, so that other ones need no other program.
//
// Numbers that scale or shift are parameters from the start. Those of other pointwise operators are
// constants, of which compilers make the most, until a graph differs from an earlier one by them alone.
#include <cstring>

#include "lazy/recorder.h"

namespace fl::lazy {
namespace {

uint64_t bits_of(const Value& v) {
  if (v.tag() == Value::Tag::Float) {
    const double d = v.to_float();
    uint64_t bits;
    std::memcpy(&bits, &d, sizeof bits);
    return bits;
  }
  if (v.tag() == Value::Tag::Complex) {
    const complex128 c = v.to_scalar().to<complex128>();
    return std::hash<double>()(c.real()) * 31 + std::hash<double>()(c.imag());
  }
  return static_cast<uint64_t>(v.to_int());
}

bool same_number(const Scalar& a, const Scalar& b) {
  return bits_of(Value(a)) == bits_of(Value(b)) && a.is_integral() == b.is_integral();
}

}  // namespace

void add_value(Hash& hash, const Value& v) {
  hash.add(static_cast<uint64_t>(v.tag()));
  switch (v.tag()) {
    case Value::Tag::Bool:
    case Value::Tag::Int:
    case Value::Tag::Float:
    case Value::Tag::Complex:
      return hash.add(bits_of(v));
    case Value::Tag::DType:
      return hash.add(static_cast<uint64_t>(v.to_dtype()));
    case Value::Tag::MemoryFormat:
      return hash.add(static_cast<uint64_t>(v.to_memory_format()));
    case Value::Tag::Layout:
      return hash.add(static_cast<uint64_t>(v.to_layout()));
    case Value::Tag::IntList:
      return hash.add(v.ints());
    case Value::Tag::FloatList:
      for (size_t i = 0; i < v.length(); ++i) hash.add(bits_of(Value(v.floats()[i])));
      return;
    case Value::Tag::BoolList:
      for (size_t i = 0; i < v.length(); ++i) hash.add(static_cast<uint64_t>(v.bools()[i]));
      return;
    case Value::Tag::String:
      return hash.add(v.string());
    default:
      return;
  }
}

// What changes neither the types of results nor, as booleans would, which arithmetic is done.
bool Recorder::is_parameter(const Known& known, size_t argument, const Value& v, Scalar& number) {
  if (!(known.parametric >> argument & 1) || !(is_wrapped(v) || v.is_number())) return false;
  number = number_of(v);
  const bool integer = number.is_integral(false);
  if (number.is_complex() || number.is_integral() != integer) return false;
  return !integer || (known.integers >> argument & 1);
}

// Called with a graph that has no program. Where the last one of its form had other constants, these become
// parameters of what is recorded from now on.
void Recorder::note_changes(const Graph& graph, const std::vector<int>& outputs) {
  Hash form;
  const auto add_window = [&](const Window& w) {
    form.add(static_cast<uint64_t>(w.storage) << 8 | static_cast<uint64_t>(w.dtype));
    form.add(IntSpan(w.sizes));
    form.add(IntSpan(w.strides));
    form.add(static_cast<uint64_t>(w.offset));
  };
  struct Place {
    Known& known;
    size_t argument;
  };
  std::vector<Place> places;
  std::vector<Scalar> numbers;
  for (const Slot& slot : graph.slots) {
    form.add(static_cast<uint64_t>(slot.kind));
    add_window(slot.root);
  }
  for (int slot : outputs) form.add(static_cast<uint64_t>(slot));
  for (const Call& call : graph.calls) {
    form.add(reinterpret_cast<uint64_t>(call.op));
    Known& k = known(*call.op);
    for (const TensorArgument& t : call.tensors) {
      form.add(static_cast<uint64_t>(t.position) << 32 | static_cast<uint32_t>(t.element));
      add_window(t.window);
    }
    uint32_t parameters = 0;
    for (const auto& [position, place] : call.parameters) parameters |= 1u << position;
    for (size_t i = 0; i < call.values.size(); ++i) {
      const Value& v = call.values[i];
      const bool candidate = (k.candidates >> i & 1) && v.is_number() && !(parameters >> i & 1);
      const bool real = v.tag() == Value::Tag::Float;
      if (candidate && (real || (v.tag() == Value::Tag::Int && (k.operands >> i & 1)))) {
        form.add(real ? 0x71u : 0x72u);
        places.push_back({k, i});
        numbers.push_back(v.to_scalar());
      } else if (parameters >> i & 1) {
        form.add(v.tag() == Value::Tag::Int ? 0x73u : 0x70u);
      } else {
        add_value(form, v);
      }
    }
  }
  const auto [at, is_new] = constants_.emplace(form.value(), numbers);
  if (is_new) return;
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (same_number(at->second[i], numbers[i])) continue;
    auto& [known, argument] = places[i];
    known.parametric |= 1u << argument;
    if (numbers[i].is_integral()) known.integers |= 1u << argument;
  }
  at->second = std::move(numbers);
}

// Arguments that only numbers can be are the first to be suspected.
void Recorder::keep_constant(const Graph& graph) {
  for (const bool operands : {false, true}) {
    bool any = false;
    for (const Call& call : graph.calls) {
      Known& k = known(*call.op);
      for (const auto& [position, place] : call.parameters) {
        const uint32_t bit = 1u << position;
        if (!(k.candidates & bit) || bool(k.operands & bit) != operands) continue;
        any = true;
        k.candidates &= ~bit;
        k.integers &= ~bit;
        if (!operands || !has_tag(*call.op, "scales")) k.parametric &= ~bit;
      }
    }
    if (any) return;
  }
}

}  // namespace fl::lazy

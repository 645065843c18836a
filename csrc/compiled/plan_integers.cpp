#include "compiled/plan_integers.h"

#include <cstring>

namespace fl::compiled {
namespace {

// Structure of each kind of thing: everything but the integers that are visited.
bool same(const Location& a, const Location& b);
bool same(const AllocateStep& a, const AllocateStep& b);
bool same(const ViewStep& a, const ViewStep& b);
bool same(const ArenaTensorStep& a, const ArenaTensorStep& b);
bool same(const UnshareStep& a, const UnshareStep& b);
bool same(const LoopStep& a, const LoopStep& b);
bool same(const ConcurrentLoopsStep& a, const ConcurrentLoopsStep& b);
bool same(const KernelStep& a, const KernelStep& b);
bool same(const RandomStateStep& a, const RandomStateStep& b);
bool same(const ReleaseStep& a, const ReleaseStep& b);
bool same(const Value& a, const Value& b);
bool same(const CallStep::List& a, const CallStep::List& b);
bool same(const CallStep::Offered& a, const CallStep::Offered& b);
bool same(const CallStep& a, const CallStep& b);
bool same(const Step& a, const Step& b);
bool same(const Dims& a, const Dims& b);
bool same(const BlockSpan& a, const BlockSpan& b);
bool same(const Tensor& a, const Tensor& b);
bool same(const Room& a, const Room& b);
bool same(const InputSpec& a, const InputSpec& b);

template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const T& x, const T& y) { return same(x, y); });
}

bool same(const Location& a, const Location& b) {
  return a.slot == b.slot;
}

template <class S>
bool same_geometry(const S& a, const S& b) {
  return a.sizes.size() == b.sizes.size() && a.strides.size() == b.strides.size() && a.dtype == b.dtype;
}

bool same(const AllocateStep& a, const AllocateStep& b) {
  return a.slot == b.slot && same_geometry(a, b);
}
bool same(const ViewStep& a, const ViewStep& b) {
  return a.slot == b.slot && a.base == b.base && same_geometry(a, b);
}
bool same(const ArenaTensorStep& a, const ArenaTensorStep& b) {
  return a.slot == b.slot && same(a.location, b.location) && same_geometry(a, b);
}
bool same(const UnshareStep& a, const UnshareStep& b) {
  return a.slot == b.slot;
}
bool same(const LoopStep& a, const LoopStep& b) {
  return a.entry == b.entry && same(a.pointers, b.pointers) && a.numbers.size() == b.numbers.size();
}
bool same(const ConcurrentLoopsStep& a, const ConcurrentLoopsStep& b) {
  return same(a.loops, b.loops);
}
bool same(const KernelStep& a, const KernelStep& b) {
  return a.function == b.function && !a.outside && !b.outside && a.threads == b.threads &&
         a.shared == b.shared && a.wide == b.wide && a.waits == b.waits && same(a.pointers, b.pointers) &&
         a.numbers.size() == b.numbers.size();
}
bool same(const RandomStateStep& a, const RandomStateStep& b) {
  return a.slot == b.slot;
}
bool same(const ReleaseStep& a, const ReleaseStep& b) {
  return a.slots == b.slots;
}

// A number that stands for a tensor: 2.0 in 2.0 * x.
bool same_number(const TensorImpl& a, const TensorImpl& b) {
  return a.wrapped_number && b.wrapped_number && a.dtype == b.dtype && a.sizes.empty() && b.sizes.empty() &&
         a.device.type == DeviceType::CPU && b.device.type == DeviceType::CPU &&
         std::memcmp(a.data(), b.data(), size_of(a.dtype)) == 0;
}

bool same_bits(double a, double b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

bool same(const Value& a, const Value& b) {
  if (a.tag() != b.tag()) return false;
  switch (a.tag()) {
    case Value::Tag::None:
    case Value::Tag::Int:
      return true;
    case Value::Tag::IntList:
      return a.ints().size() == b.ints().size();
    case Value::Tag::Tensor:
      return same_number(*a.tensor_impl(), *b.tensor_impl());
    case Value::Tag::Bool:
      return a.to_bool() == b.to_bool();
    case Value::Tag::Float:
      return same_bits(a.to_float(), b.to_float());
    case Value::Tag::DType:
      return a.to_dtype() == b.to_dtype();
    case Value::Tag::Device:
      return a.to_device() == b.to_device();
    case Value::Tag::MemoryFormat:
      return a.to_memory_format() == b.to_memory_format();
    case Value::Tag::Layout:
      return a.to_layout() == b.to_layout();
    case Value::Tag::FloatList:
      return a.length() == b.length() &&
             std::equal(a.floats(), a.floats() + a.length(), b.floats(), same_bits);
    case Value::Tag::BoolList:
      return a.length() == b.length() && std::equal(a.bools(), a.bools() + a.length(), b.bools());
    case Value::Tag::String:
      return a.string() == b.string();
    case Value::Tag::Opaque:
      return a.opaque() == b.opaque();
    default:
      return false;
  }
}

bool same(const CallStep::List& a, const CallStep::List& b) {
  return a.argument == b.argument && a.slots == b.slots;
}
bool same(const CallStep::Offered& a, const CallStep::Offered& b) {
  return a.slot == b.slot && same(a.location, b.location);
}
bool same(const Dims& a, const Dims& b) {
  return a.size() == b.size();
}
bool same(const CallStep& a, const CallStep& b) {
  return a.op == b.op && same(a.arguments, b.arguments) && a.tensors == b.tensors && same(a.lists, b.lists) &&
         a.scalars == b.scalars && a.results == b.results && same(a.offers, b.offers) &&
         same(a.strides, b.strides);
}

bool same(const Step& a, const Step& b) {
  if (a.index() != b.index()) return false;
  return std::visit([&](const auto& step) { return same(step, std::get<std::decay_t<decltype(step)>>(b)); },
                    a);
}

bool same(const BlockSpan& a, const BlockSpan& b) {
  return a.first == b.first && a.last == b.last && a.extents.size() == b.extents.size();
}
bool same(const Tensor& a, const Tensor& b) {
  return a.impl() == b.impl();
}
bool same(const Room&, const Room&) {
  return true;
}

bool same(const Program& a, const Program& b) {
  return a.inputs == b.inputs && a.slots == b.slots && a.device == b.device && a.outputs == b.outputs &&
         a.written == b.written && a.kept == b.kept && same(a.constants, b.constants) &&
         same(a.blocks, b.blocks) && same(a.room, b.room) && same(a.steps, b.steps);
}

bool same(const InputSpec& a, const InputSpec& b) {
  return same_geometry(a, b) && a.requires_grad == b.requires_grad && a.device == b.device &&
         a.aligned == b.aligned;
}

}  // namespace

bool same_structure(const CompiledGraph& a, const CompiledGraph& b) {
  return same(a.inputs, b.inputs) && a.grad_mode == b.grad_mode && a.autocast == b.autocast &&
         a.results == b.results && a.gradients_of == b.gradients_of && a.gradients_from == b.gradients_from &&
         a.families == b.families && same(a.gradient_strides, b.gradient_strides) &&
         !a.recorded == !b.recorded && !a.backward == !b.backward && same(a.forward, b.forward) &&
         (!a.backward || same(*a.backward, *b.backward));
}

}  // namespace fl::compiled

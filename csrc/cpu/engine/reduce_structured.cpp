// Reductions with structured accumulators on the CPU: the engine with the loops of kernels/reduce_more.cpp.
#include "cpu/engine/arch.h"
#include "cpu/engine/reduce.h"
#include "cpu/engine/reduce_more.h"

namespace fl {

FL_DECLARE_ARCH(const ReduceMore, reduce_more);

namespace {

// The slot among those that reduce_more has.
ReduceSlot slot_of(DType t) {
  if (t == DType::Double) return kReduceDouble;
  if (t == DType::BFloat16) return kReduceBFloat16;
  return is_floating(t) ? kReduceFloat : kReduceInt;
}
DType computed_of(ReduceSlot slot) {
  return slot == kReduceDouble ? DType::Double : slot == kReduceInt ? DType::Int64 : DType::Float;
}

const ReduceLoops* loops_of(StructuredReduction kind) {
  const ReduceMore& all = picked_reduce_more();
  switch (kind) {
    case StructuredReduction::MaxWithIndex:
      return all.max_with_index;
    case StructuredReduction::MinWithIndex:
      return all.min_with_index;
    case StructuredReduction::ArgMax:
      return all.argmax;
    case StructuredReduction::ArgMin:
      return all.argmin;
    case StructuredReduction::Moments:
      return all.moments;
    default:
      return all.logsumexp;
  }
}

void reduce_structured(const StructuredReduceCall& call) {
  const ReduceSlot slot = slot_of(call.element);
  const bool only_index =
      call.kind == StructuredReduction::ArgMax || call.kind == StructuredReduction::ArgMin;
  const bool with_index =
      call.kind == StructuredReduction::MaxWithIndex || call.kind == StructuredReduction::MinWithIndex;
  ReduceOutput outputs[2];
  for (int k = 0; k < call.n_results; ++k) {
    const bool is_index = only_index || (with_index && k == 1);
    outputs[k] = {call.results[k], is_index ? DType::Int64 : computed_of(slot)};
  }
  reduce(call.self, call.mask, reduce_element(slot), loops_of(call.kind)[slot], call.params, outputs,
         call.n_results);
}
FL_ATTACH(reduce_structured, CPU, reduce_structured);

}  // namespace
}  // namespace fl

// Pointwise records on the CPU: a loop over the operands where they lie, or blocks of them converted to the
// type the loop computes with.
#include "ops/pointwise.h"

#include <cstring>

#include "core/parallel.h"
#include "cpu/engine/arch.h"
#include "cpu/engine/narrow.h"
#include "ops/iterator.h"

namespace fl {

FL_DECLARE_ARCH(const NarrowLoops, narrow_loops);
FL_DECLARE_ARCH(const BooleanLoops, boolean_loops);
FL_DECLARE_ARCH(const ComplexLoops, complex_loops);

// The loop for a dtype, or null.
static StridedIterator::Loop narrow_loop(StoredLoop loop, DType t) {
  if (loop == StoredLoop::None) return nullptr;
  const NarrowLoops& loops = picked_narrow_loops();
  const int64_t bytes = size_of(t);
  const int at = bytes == 1 ? 0 : bytes == 2 ? 1 : 2;
  return loop == StoredLoop::Add ? loops.add[at] : loop == StoredLoop::Sub ? loops.sub[at] : loops.mul[at];
}

// The same for operators whose operands and result are bool.
static StridedIterator::Loop boolean_loop(StoredLoop loop) {
  const BooleanLoops& loops = picked_boolean_loops();
  switch (loop) {
    case StoredLoop::And:
      return loops.both;
    case StoredLoop::Or:
      return loops.either;
    case StoredLoop::Xor:
      return loops.differ;
    case StoredLoop::Not:
      return loops.negate;
    case StoredLoop::Equal:
      return loops.equal;
    default:
      return nullptr;
  }
}

static StridedIterator::Loop complex_loop(StoredLoop loop) {
  if (loop == StoredLoop::Mul) return picked_complex_loops().multiply;
  if (loop == StoredLoop::Abs) return picked_complex_loops().length;
  return nullptr;
}

namespace math {
[[noreturn]] void integer_division_by_zero() {
  fail("[div] expected a divisor that is not zero for integers, got 0 (ZeroDivisionError)");
}
}  // namespace math

namespace {

// A loop, and the types of its operands and of its result.
struct Chosen {
  PointwiseLoop loop;
  DType compute, result;
};

// The loop of the record, or a narrower one where nothing has to be converted: integers of less than 64 bits
// are added and multiplied as they are stored, and so are booleans and complex numbers of single precision.
Chosen choose(const PointwiseCall& call) {
  const PointwiseDef& def = call.def;
  if ((call.slot == kSlotInt || call.slot == kSlotBool) && size_of(call.common) < 8 &&
      call.out.dtype() == call.common) {
    bool stored = true;
    for (int i = 0; i < call.operands; ++i)
      stored &= call.operand[i]->is_tensor() ? call.operand[i]->tensor_impl()->dtype == call.common
                                             : !def.mask && !is_stored_only(call.common);
    const PointwiseLoop narrow = !stored                  ? nullptr
                                 : call.slot == kSlotBool ? boolean_loop(def.boolean)
                                                          : narrow_loop(def.narrow, call.common);
    if (narrow) return {narrow, call.common, call.common};
  }
  if (call.slot == kSlotComplexFloat)
    if (const PointwiseLoop single = complex_loop(def.complex_float))
      return {single, call.compute, call.result};
  return {call.loop, call.compute, call.result};
}

// The common case: every operand is a contiguous tensor of one shape in the compute dtype, so that there is
// nothing to stage.
bool run_direct(const PointwiseCall& call, const Chosen& chosen) {
  const Tensor& out = call.out;
  if (call.common != chosen.compute || out.dtype() != chosen.result || !out.is_contiguous()) return false;
  const char* in[4];
  int64_t item[4];
  for (int i = 0; i < call.operands; ++i) {
    if (!call.operand[i]->is_tensor()) return false;
    const TensorImpl* t = call.operand[i]->tensor_impl();
    if (t->dtype != (call.def.mask >> i & 1 ? DType::Bool : chosen.compute) || t->device != out.device())
      return false;
    in[i] = t->data();
    item[i] = size_of(t->dtype);
  }
  char* to = out.raw();
  const int64_t out_item = out.itemsize();
  parallel_for(out.numel(), std::max<int64_t>(kGrain / call.def.cost, kBlock),
               [&](int64_t begin, int64_t end) {
                 const void* at[4];
                 for (int i = 0; i < call.operands; ++i) at[i] = in[i] + begin * item[i];
                 chosen.loop(at, to + begin * out_item, end - begin, call.params);
               });
  return true;
}

// Any operands: they are broadcast, walked in blocks and converted where they have to be.
void run_strided(const PointwiseCall& call, const Chosen& chosen) {
  alignas(16) char constants[4][16];
  Tensor wrapped[4];
  StridedIterator it(call.out.sizes());
  it.add(call.out, chosen.result);
  for (int i = 0; i < call.operands; ++i) {
    const Value& operand = *call.operand[i];
    const DType wanted = call.def.mask >> i & 1 ? DType::Bool : chosen.compute;
    if (operand.is_tensor()) {
      // A tensor without dimensions does not widen the others, so its value may have to wrap around first.
      wrapped[i] = operand.tensor();
      if (wanted == DType::Int64 && call.common != DType::Int64 && wrapped[i].dim() == 0 &&
          wrapped[i].dtype() != call.common)
        wrapped[i] = to_dtype(wrapped[i], call.common);
      it.add(wrapped[i], wanted);
    } else {
      const Scalar s = operand.to_scalar();
      dispatch(wanted, [&](auto type) {
        using T = typename decltype(type)::type;
        const T x = s.to<T>();
        std::memcpy(constants[i], &x, sizeof x);
      });
      it.add_scalar(constants[i], wanted);
    }
  }
  it.finish();
  it.run(chosen.loop, call.params, call.def.cost);
}

void run_pointwise(const PointwiseCall& call) {
  const Chosen chosen = choose(call);
  if (!call.same || !run_direct(call, chosen)) run_strided(call, chosen);
}
FL_ATTACH(pointwise, CPU, run_pointwise);

}  // namespace
}  // namespace fl

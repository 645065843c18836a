// Calls of operators whose kernels do not know complex32: computed as complex64, and rounded.
#include "ops/substitution.h"

namespace fl {

extern void (*call_in_complex64)(const Operator& op, KeySet keys, Value* args, Value* results);

namespace {

Tensor converted(const Tensor& t, DType dtype) {
  static const Operator& convert = OperatorTable::get().at("to.dtype");
  return call_tensor(convert, t, Value(dtype), false, false, Value());
}

void write(const Tensor& to, const Tensor& from) {
  static const Operator& copy = OperatorTable::get().at("copy_");
  call_tensor(copy, to, from, false);
}

constexpr Substitute kWide{[](const Tensor& t) { return t.dtype() == DType::ComplexHalf; },
                           [](const Tensor& t) { return converted(t, DType::ComplexFloat); }, write};

// Norms and variances are real: halves, too.
Value rounded(const Value& result) {
  if (!result.is_tensor()) return result;
  const Tensor t = result.tensor();
  if (t.dtype() == DType::ComplexFloat) return Value(converted(t, DType::ComplexHalf));
  return t.dtype() == DType::Float ? Value(converted(t, DType::Half)) : result;
}

void call_wide(const Operator& op, KeySet keys, Value* args, Value* results) {
  SubstitutedCall call(op, args, kWide);
  bool as_asked = false;  // results that are written to, or of a dtype that the caller chose
  for (size_t i = 0; i < op.schema.args.size(); ++i) {
    as_asked |= op.schema.args[i].mutated;
    if (call.args()[i].tag() != Value::Tag::DType) continue;
    if (call.args()[i].to_dtype() == DType::ComplexHalf)
      call.args()[i] = Value(DType::ComplexFloat);
    else
      as_asked = true;
  }
  op.call_with(keys, call.args(), results);
  call.finish(results, op.n_results());
  for (int i = 0; i < op.n_results() && !as_asked; ++i) results[i] = rounded(results[i]);
}

struct Install {
  Install() { call_in_complex64 = call_wide; }
} install;

}  // namespace
}  // namespace fl

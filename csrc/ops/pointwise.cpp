// The front of all pointwise records: settle dtypes and shapes, allocate the result, run the device's loops.
#include "ops/pointwise.h"

#include <cstring>

#include "dispatch/builtin.h"
#include "ops/iterator.h"
#include "ops/outputs.h"
#include "ops/promotion.h"

namespace fl {

DeviceFunction<void(const PointwiseCall&)> device::pointwise{"pointwise"};

namespace {

// What the operands of a call agree on.
struct Settled {
  const Value* operand[4];
  const TensorImpl* first = nullptr;  // tensor among the operands
  bool same = true;                   // all tensors have one shape and one layout
  bool only_scalars = true;  // every tensor is a CPU one without dimensions, which mixes with any device
  Device device;
  DType common, result;  // of the operands, of the result
  Scalar params[6];
  Dims shape;
};

// The operands, their device, and whether they lie alike.
void settle_device(const PointwiseDef& def, const Value* args, Settled& s) {
  for (int i = 0; i < def.operands; ++i) {
    s.operand[i] = &args[def.operand_arg[i]];
    if (!s.operand[i]->is_tensor()) continue;
    const TensorImpl* t = s.operand[i]->tensor_impl();
    if (s.first == nullptr) {
      s.first = t;
      s.device = t->device;
    } else {
      if (t->sizes != s.first->sizes || t->strides != s.first->strides) s.same = false;
      if (t->device != s.device) {
        if (s.only_scalars)
          s.device = t->device;
        else
          FL_CHECK(t->device.type == DeviceType::CPU && t->sizes.empty(), "[", def.name,
                   "] expected all tensors on one device, got ", to_string(s.device), " and ",
                   to_string(t->device), "; move them to one with .to(device)");
      }
    }
    s.only_scalars = s.only_scalars && t->device.type == DeviceType::CPU && t->sizes.empty();
  }
}

// The dtype that operands are converted to.
DType common_dtype(const PointwiseDef& def, const Settled& s) {
  const Value* promoted[4];
  int n = 0;
  for (int i = 0; i < def.operands; ++i)
    if (!(def.mask >> i & 1)) promoted[n++] = s.operand[i];
  const bool alike = n == 1 ? promoted[0]->is_tensor() && !promoted[0]->tensor_impl()->wrapped_number
                            : n == 2 && promoted[0]->is_tensor() && promoted[1]->is_tensor() &&
                                  promoted[0]->tensor_impl()->dtype == promoted[1]->tensor_impl()->dtype &&
                                  !promoted[0]->tensor_impl()->wrapped_number;
  const DType common = alike ? promoted[0]->tensor_impl()->dtype : result_type(promoted, n);
  if (def.promote == 'f' && is_integral(common, true)) return default_dtype();
  if (def.promote == 'i' && common == DType::Bool) return DType::Int64;
  if (def.promote == 'm') return promoted[0]->tensor_impl()->dtype;
  return common;
}

void settle(const PointwiseDef& def, const Value* args, Settled& s) {
  settle_device(def, args, s);
  s.common = common_dtype(def, s);
  for (int p = 0; p < def.params; ++p) {
    const Value& v = args[def.param_arg[p]];
    s.params[p] = v.is_tensor() ? item(v.tensor()) : v.to_scalar();
  }
  if (def.check) def.check(def, s.operand, s.params, s.common);
  FL_CHECK_KIND(std::strchr(def.classes, class_of(s.common)) != nullptr, NotImplemented, "[", def.name,
                "] expected a dtype it is defined for, got ", name_of(s.common));
  s.result = def.result == 'b' ? DType::Bool : def.result == 'r' ? real_of(s.common) : s.common;
  if (s.first) s.shape = s.first->sizes;
  if (!s.same || !s.first)
    for (int i = 0; i < def.operands; ++i)
      if (s.operand[i]->is_tensor())
        s.shape = broadcast_shapes(def.name, s.shape, s.operand[i]->tensor_impl()->sizes);
}

// Makes the tensor of an in-place or out= form fit. Answers whether it overlaps an operand of another dtype,
// such as a part of its own complex elements: what is written is then computed beside it.
bool prepare(const Operator& op, const PointwiseDef& def, Settled& s, const Tensor& out) {
  FL_CHECK(out.device() == s.device || s.only_scalars, "[", def.name, "] expected the output on ",
           to_string(s.device), ", got ", to_string(out.device()));
  s.device = out.device();
  prepare_out(def.name, out, s.shape, s.result, op.flags & kOut);
  if (std::strstr(op.record->tags, "overwrites"))
    advise_distinct(def.name, out);
  else
    check_distinct(def.name, out);
  bool beside = false;
  for (int i = 0; i < def.operands; ++i) {
    if (!s.operand[i]->is_tensor() || !overlaps_partially(out, s.operand[i]->tensor())) continue;
    beside = s.operand[i]->tensor_impl()->dtype != out.dtype();
    FL_CHECK(beside, "[", def.name,
             "] expected an output that does not partly overlap an input, got views of one memory; "
             "clone() one of them: unsupported operation: some elements of the input tensor and the "
             "written-to tensor refer to a single memory location");
  }
  out.bump_version();
  return beside;
}

// Whether a result has to be rounded to its own dtype, in which it is not computed, before it is converted to
// that of `out`: the sum of two half tensors written to a double tensor is a half number.
bool rounds_first(const Settled& s, const Tensor& out) {
  return out.dtype() != s.result && s.result != DType::Bool && compute_of(s.result) != s.result &&
         s.device.type != DeviceType::Meta && out.numel() != 0;
}

// Functions of one operand that keep its dtype (neg, floor) do not convert to that of `out`, as in PyTorch;
// square, a power there, does.
void check_out_dtype(const Operator& op, const PointwiseDef& def, const Settled& s, const Tensor& out) {
  const bool keeps = def.operands == 1 && def.promote == 'd' &&
                     (def.result == 's' || (def.result == 'r' && !is_complex(s.common)));
  if (!keeps || out.dtype() == s.result || std::strstr(op.record->tags, "converts_out")) return;
  fail("[", def.name, "] expected an out of dtype ", name_of(s.result), ", got ", name_of(out.dtype()),
       ": Found dtype ", name_of(out.dtype()), " but expected ", name_of(s.result));
}

// A new tensor for the result, laid out as the operands are.
Tensor allocate(const PointwiseDef& def, const Settled& s) {
  if (s.first == nullptr || def.contiguous) return empty(s.shape, {s.result, s.device});
  if (s.same && (s.first->contiguous || s.first->sizes == s.shape)) {
    if (s.first->device != s.device) return empty(s.shape, {s.result, s.device});
    return empty_like(Tensor(const_cast<TensorImpl*>(s.first)), s.result);
  }
  // The layout of the first operand that already has the result's shape, else contiguous.
  for (int i = 0; i < def.operands; ++i)
    if (s.operand[i]->is_tensor() && s.operand[i]->tensor_impl()->sizes == s.shape &&
        s.operand[i]->tensor_impl()->device == s.device)
      return empty_like(s.operand[i]->tensor(), s.result);
  return empty(s.shape, {s.result, s.device});
}

// The variant that a string argument selects.
int variant_of(const Operator& op, const PointwiseDef& def, const Value* args) {
  if (def.select_arg < 0) return 0;
  const std::string_view wanted = args[def.select_arg].string();
  for (int v = 0; v < def.variants; ++v)
    if (wanted == def.variant_names[v]) return v;
  std::string known;
  for (int v = 0; v < def.variants; ++v) known += message(v ? " or '" : "'", def.variant_names[v], "'");
  fail("[", def.name, "] expected ", op.schema.args[def.select_arg].name, " ", known, ", got '", wanted, "'");
}

LoopSlot slot_of(DType common, DType compute) {
  switch (compute) {
    case DType::Float:
      return kSlotFloat;
    case DType::Double:
      return kSlotDouble;
    case DType::ComplexFloat:
      return kSlotComplexFloat;
    case DType::ComplexDouble:
      return kSlotComplexDouble;
    default:
      return common == DType::Bool ? kSlotBool : kSlotInt;
  }
}

// The case of the record that the last operand is, or -1.
int case_of(const PointwiseDef& def, const Settled& s) {
  const Value& last = *s.operand[def.operands - 1];
  if (def.n_cases == 0 || last.is_tensor() || is_integral(s.common, true)) return -1;
  const Scalar value = last.to_scalar();
  // PyTorch raises half numbers to 0.5 by pow on the CPU, where (-inf) ** 0.5 is inf; a square root gives
  // NaN.
  if (s.common == DType::Half && s.device.type == DeviceType::CPU && !value.is_complex() &&
      value.to<double>() == 0.5)
    return -1;
  for (int c = 0; c < def.n_cases; ++c)
    if (!value.is_complex() && value.to<double>() == def.cases[c].value) return c;
  return -1;
}

void run(const Operator& op, const PointwiseDef& def, const Value* args, Settled& s, const Tensor& out) {
  const int variant = variant_of(op, def, args), chosen = case_of(def, s);
  const DType compute = compute_of(s.common);
  const LoopSlot slot = slot_of(s.common, compute);
  const int operands = def.operands - (chosen >= 0);
  const PointwiseLoop loop = chosen >= 0 ? def.cases[chosen].loops[0][slot] : def.loops[variant][slot];
  FL_CHECK_KIND(loop != nullptr, NotImplemented, "[", def.name, "] expected a dtype it is defined for, got ",
                name_of(s.common));
  FL_CHECK_KIND(s.common != DType::UInt64 || def.modular, NotImplemented, "[", def.name,
                "] expected a dtype that it computes with, got uint64; use .to(int64) or .to(float64)");
  // Among booleans a scalar is one, too: 0.5 is true.
  Value booleans[4];
  for (int i = 0; i < operands && s.common == DType::Bool; ++i)
    if (!s.operand[i]->is_tensor()) {
      booleans[i] = Value(s.operand[i]->to_scalar().to<bool>());
      s.operand[i] = &booleans[i];
    }
  const DType loop_result = def.result == 'b' ? DType::Bool : def.result == 'r' ? real_of(compute) : compute;
  device::pointwise(s.device.type,
                    {def, variant, chosen, slot, loop, s.operand, operands, out, s.common, compute,
                     loop_result, s.params, s.same && s.first && s.first->contiguous});
}

}  // namespace

void pointwise_kernel(const Operator& op, void* definition, KeySet, Value* args, Value* results) {
  const PointwiseDef& def = *static_cast<const PointwiseDef*>(definition);
  Settled s;
  settle(def, args, s);
  Tensor out;
  if (op.flags & (kInplace | kOut)) {
    out = args[op.flags & kInplace ? 0 : op.schema.args.size() - 1].tensor();
    if (op.flags & kOut) check_out_dtype(op, def, s, out);
    const bool beside = prepare(op, def, s, out) && s.device.type != DeviceType::Meta;
    if (beside || rounds_first(s, out)) {
      const Tensor rounded = empty(s.shape, {s.result, s.device});
      run(op, def, args, s, rounded);
      copy_into(out, rounded);
      results[0] = Value(std::move(out));
      return;
    }
  } else {
    out = allocate(def, s);
  }
  if (s.device.type != DeviceType::Meta && out.numel() != 0) run(op, def, args, s, out);
  results[0] = Value(std::move(out));
}

}  // namespace fl

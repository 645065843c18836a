// The shared part of all elementwise kernels.
#include "ops/pointwise.h"

#include <cstring>

#include "core/accelerator.h"
#include "core/parallel.h"
#include "core/scalar_range.h"
#include "cpu/engine/cast.h"
#include "cpu/engine/narrow.h"

namespace fl {

namespace math {
[[noreturn]] void integer_division_by_zero() {
  fail("[div] expected a divisor that is not zero for integers, got 0 (ZeroDivisionError)");
}
}  // namespace math

namespace {

// A higher category (tensors with dimensions over zero-dim tensors over numbers) decides unless its kind is
// lower.
DType combine(int higher, int lower) {
  if (higher < 0) return static_cast<DType>(lower);
  const DType h = static_cast<DType>(higher);
  if (lower < 0) return h;
  const DType l = static_cast<DType>(lower);
  if (is_complex(h)) return h;
  if (is_floating(h)) return is_complex(l) ? complex_of(h) : h;
  if (h == DType::Bool || is_floating(l) || is_complex(l)) return promote(h, l);
  return h;
}

DType wrapped_dtype(DType t) {
  if (is_complex(t)) return complex_of(default_dtype());
  return is_floating(t) ? default_dtype() : t;
}

void merge(int& slot, DType t) {
  slot = slot < 0 ? static_cast<int>(t) : static_cast<int>(promote(static_cast<DType>(slot), t));
}

// The common case: every operand is a contiguous tensor of one shape in the compute dtype, so there is
// nothing to stage.
bool run_direct(const PointwiseDef& def, const Value* const* operand, int operands, const Tensor& out,
                DType common, DType compute, DType loop_result, StridedIterator::Loop loop,
                const Scalar* params) {
  if (common != compute || out.dtype() != loop_result || !out.is_contiguous()) return false;
  const char* in[4];
  int64_t item[4];
  for (int i = 0; i < operands; ++i) {
    if (!operand[i]->is_tensor()) return false;
    const TensorImpl* t = operand[i]->tensor_impl();
    if (t->dtype != (def.mask >> i & 1 ? DType::Bool : compute) || t->device != out.device()) return false;
    in[i] = t->data();
    item[i] = size_of(t->dtype);
  }
  char* to = out.raw();
  const int64_t out_item = out.itemsize();
  parallel_for(out.numel(), std::max<int64_t>(kGrain / def.cost, kBlock), [&](int64_t begin, int64_t end) {
    const void* at[4];
    for (int i = 0; i < operands; ++i) at[i] = in[i] + begin * item[i];
    loop(at, to + begin * out_item, end - begin, params);
  });
  return true;
}

}  // namespace

DType result_type(const Value* const* operands, int count) {
  int dims = -1, zero = -1, number = -1;
  for (int i = 0; i < count; ++i) {
    const Value& v = *operands[i];
    if (v.is_tensor()) {
      const TensorImpl* t = v.tensor_impl();
      if (t->wrapped_number)
        merge(number, wrapped_dtype(t->dtype));
      else
        merge(t->sizes.empty() ? zero : dims, t->dtype);
    } else {
      merge(number, number_dtype(v.to_scalar()));
    }
  }
  DType low = DType::Bool;
  if (zero >= 0 || number >= 0) low = combine(zero, number);
  return dims >= 0 ? combine(dims, zero >= 0 || number >= 0 ? static_cast<int>(low) : -1) : low;
}

void resize_output(const Tensor& out, IntSpan sizes) {
  if (out.sizes() == sizes) return;
  const int64_t n = numel_of(sizes);
  TensorImpl* t = out.impl();
  const size_t bytes = static_cast<size_t>(n + t->offset) * size_of(t->dtype);
  if (bytes > t->storage->bytes) t->storage->resize(bytes);
  t->sizes.assign(sizes);
  t->strides = contiguous_strides(sizes);
  t->refresh();
}

void prepare_out(const char* op, const Tensor& out, IntSpan sizes, DType result, bool may_resize) {
  FL_CHECK(can_cast(result, out.dtype()), "[", op, "] expected an output dtype that can hold ",
           name_of(result), ", got ", name_of(out.dtype()));
  if (out.sizes() == sizes) return;
  FL_CHECK(may_resize, "[", op, "] expected an output of shape ", sizes,
           " (the operands' broadcast shape), got ", out.sizes());
  resize_output(out, sizes);
}

void pointwise_kernel(const Operator& op, void* definition, KeySet, Value* args, Value* results) {
  const PointwiseDef& def = *static_cast<const PointwiseDef*>(definition);
  const Value* operand[4];
  const bool has_out = op.flags & kOut, inplace = op.flags & kInplace;
  Tensor out;
  if (inplace)
    out = args[0].tensor();
  else if (has_out)
    out = args[op.schema.args.size() - 1].tensor();

  // Shape, device and dtype.
  const TensorImpl* first = nullptr;
  bool same = true,
       numbers =
           true;  // numbers: every tensor so far is a CPU one without dimensions, which mixes with any device
  Device device;
  const Value* promoted[4];
  int n_promoted = 0;
  for (int i = 0; i < def.operands; ++i) {
    operand[i] = &args[def.operand_arg[i]];
    if (!(def.mask >> i & 1)) promoted[n_promoted++] = operand[i];
    if (!operand[i]->is_tensor()) continue;
    const TensorImpl* t = operand[i]->tensor_impl();
    if (first == nullptr) {
      first = t;
      device = t->device;
    } else {
      if (t->sizes != first->sizes || t->strides != first->strides) same = false;
      if (t->device != device) {
        if (numbers)
          device = t->device;
        else
          FL_CHECK(t->device.type == DeviceType::CPU && t->sizes.empty(), "[", def.name,
                   "] expected all tensors on one device, got ", to_string(device), " and ",
                   to_string(t->device));
      }
    }
    numbers = numbers && t->device.type == DeviceType::CPU && t->sizes.empty();
  }
  DType common;
  const bool alike = n_promoted == 1
                         ? promoted[0]->is_tensor() && !promoted[0]->tensor_impl()->wrapped_number
                         : n_promoted == 2 && promoted[0]->is_tensor() && promoted[1]->is_tensor() &&
                               promoted[0]->tensor_impl()->dtype == promoted[1]->tensor_impl()->dtype &&
                               !promoted[0]->tensor_impl()->wrapped_number;
  common = alike ? promoted[0]->tensor_impl()->dtype : result_type(promoted, n_promoted);
  if (def.promote == 'f' && (is_integral(common, true))) common = default_dtype();
  if (def.promote == 'i' && common == DType::Bool) common = DType::Int64;
  if (def.promote == 'm') common = promoted[0]->tensor_impl()->dtype;
  Scalar params[6];
  for (int p = 0; p < def.params; ++p) {
    const Value& v = args[def.param_arg[p]];
    params[p] = v.is_tensor() ? item(v.tensor()) : v.to_scalar();
  }
  if (def.check) def.check(def, operand, params, common);
  FL_CHECK_KIND(std::strchr(def.classes, class_of(common)) != nullptr, NotImplemented, "[", def.name,
                "] expected a dtype it is defined for, got ", name_of(common));
  const DType result = def.result == 'b' ? DType::Bool : def.result == 'r' ? real_of(common) : common;

  Dims shape = first ? first->sizes : Dims();
  if (!same || !first)
    for (int i = 0; i < def.operands; ++i)
      if (operand[i]->is_tensor())
        shape = broadcast_shapes(def.name, shape, operand[i]->tensor_impl()->sizes);

  if (out.defined()) {
    FL_CHECK(out.device() == device || numbers, "[", def.name, "] expected the output on ", to_string(device),
             ", got ", to_string(out.device()));
    device = out.device();
    prepare_out(def.name, out, shape, result, has_out);
    FL_CHECK(!has_internal_overlap(out), "[", def.name,
             "] expected an output whose elements are distinct in memory, got an expanded tensor; clone() it "
             "first");
    for (int i = 0; i < def.operands; ++i)
      if (operand[i]->is_tensor())
        FL_CHECK(!overlaps_partially(out, operand[i]->tensor()), "[", def.name,
                 "] expected an output that does not partly overlap an input, got views of one memory; "
                 "clone() one of them");
  } else if (first == nullptr || def.contiguous) {
    out = empty(shape, {result, device});
  } else if (same && (first->contiguous || first->sizes == shape)) {
    out = empty_like(Tensor(const_cast<TensorImpl*>(first)), result);
    if (first->device != device) out = empty(shape, {result, device});
  } else {
    // The layout of the first operand that already has the result's shape, else contiguous.
    for (int i = 0; i < def.operands && !out.defined(); ++i)
      if (operand[i]->is_tensor() && operand[i]->tensor_impl()->sizes == shape &&
          operand[i]->tensor_impl()->device == device)
        out = empty_like(operand[i]->tensor(), result);
    if (!out.defined()) out = empty(shape, {result, device});
  }
  if (inplace || has_out) out.bump_version();
  if (device.type != DeviceType::Meta && out.numel() != 0) {
    int variant = 0;
    if (def.select_arg >= 0) {
      const std::string_view wanted = args[def.select_arg].string();
      while (variant < def.variants && wanted != def.variant_names[variant]) ++variant;
      if (variant == def.variants) {
        std::string known;
        for (int i = 0; i < def.variants; ++i) known += message(i ? " or '" : "'", def.variant_names[i], "'");
        fail("[", def.name, "] expected ", op.schema.args[def.select_arg].name, " ", known, ", got '", wanted,
             "'");
      }
    }
    DType compute = compute_of(common);
    LoopSlot slot;
    switch (compute) {
      case DType::Float:
        slot = kSlotFloat;
        break;
      case DType::Double:
        slot = kSlotDouble;
        break;
      case DType::ComplexFloat:
        slot = kSlotComplexFloat;
        break;
      case DType::ComplexDouble:
        slot = kSlotComplexDouble;
        break;
      default:
        slot = common == DType::Bool ? kSlotBool : kSlotInt;
    }
    StridedIterator::Loop loop = def.loops[variant][slot];
    int used = def.operands, chosen = -1;
    if (def.n_cases && !operand[used - 1]->is_tensor() && !is_integral(common, true)) {
      const Scalar last = operand[used - 1]->to_scalar();
      for (int c = 0; c < def.n_cases; ++c)
        if (!last.is_complex() && last.to<double>() == def.cases[c].value) {
          loop = def.cases[c].loops[0][slot];
          chosen = c;
          --used;
          break;
        }
    }
    FL_CHECK_KIND(loop != nullptr, NotImplemented, "[", def.name,
                  "] expected a dtype it is defined for, got ", name_of(common));
    // Among truth values a number is one, too: a half is true.
    Value truths[4];
    for (int i = 0; i < used && common == DType::Bool; ++i)
      if (!operand[i]->is_tensor()) {
        truths[i] = Value(operand[i]->to_scalar().to<bool>());
        operand[i] = &truths[i];
      }
    DType loop_result = def.result == 'b' ? DType::Bool : def.result == 'r' ? real_of(compute) : compute;
    if (device.type == DeviceType::CUDA) {
      the_accelerator().pointwise({def, variant, chosen, slot, operand, used, out, common, compute,
                                   loop_result, params, same && first && first->contiguous});
      results[0] = Value(std::move(out));
      return;
    }
    // Integers narrower than 64 bits that need no conversion are added up as they are; so are truth values.
    if ((slot == kSlotInt || slot == kSlotBool) && common != DType::Int64 && out.dtype() == common) {
      bool stored = true;
      for (int i = 0; i < used; ++i)
        stored &= operand[i]->is_tensor() ? operand[i]->tensor_impl()->dtype == common : !def.mask;
      const auto narrow = !stored             ? nullptr
                          : slot == kSlotBool ? truth_loop(def.name)
                                              : narrow_loop(def.name, common);
      if (narrow) {
        loop = narrow;
        compute = loop_result = common;
      }
    }
    if (slot == kSlotComplexFloat)
      if (const auto single = complex_loop(def.name)) loop = single;
    if (same && first && first->contiguous &&
        run_direct(def, operand, used, out, common, compute, loop_result, loop, params)) {
      results[0] = Value(std::move(out));
      return;
    }
    alignas(16) char constants[4][16];
    Tensor wrapped[4];
    StridedIterator it(out.sizes());
    it.add(out, loop_result);
    for (int i = 0; i < used; ++i) {
      const DType wanted = def.mask >> i & 1 ? DType::Bool : compute;
      if (operand[i]->is_tensor()) {
        // A tensor without dimensions does not widen the others, so its value may have to wrap around first.
        wrapped[i] = operand[i]->tensor();
        if (wanted == DType::Int64 && common != DType::Int64 && wrapped[i].dim() == 0 &&
            wrapped[i].dtype() != common)
          wrapped[i] = to_dtype(wrapped[i], common);
        it.add(wrapped[i], wanted);
      } else {
        const Scalar s = operand[i]->to_scalar();
        dispatch(wanted, [&](auto type) {
          using T = typename decltype(type)::type;
          const T x = s.to<T>();
          std::memcpy(constants[i], &x, sizeof x);
        });
        it.add_scalar(constants[i], wanted);
      }
    }
    it.finish();
    it.run(loop, params, def.cost);
  }
  results[0] = Value(std::move(out));
}

}  // namespace fl

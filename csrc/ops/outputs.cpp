// Checks of out= tensors, and out= forms that refuse one of another dtype instead of converting to it.
#include "ops/outputs.h"

#include "core/warning.h"
#include "dispatch/kernel.h"

namespace fl {

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

namespace {
// The word for a dtype in PyTorch's messages.
const char* scalar_name_of(DType t) {
  switch (t) {
    case DType::UInt8:
      return "Byte";
    case DType::Int8:
      return "Char";
    case DType::Int16:
      return "Short";
    case DType::Int32:
      return "Int";
    case DType::Int64:
      return "Long";
    case DType::Half:
      return "Half";
    case DType::Float:
      return "Float";
    case DType::Double:
      return "Double";
    case DType::ComplexHalf:
      return "ComplexHalf";
    case DType::ComplexFloat:
      return "ComplexFloat";
    case DType::ComplexDouble:
      return "ComplexDouble";
    case DType::Bool:
      return "Bool";
    case DType::BFloat16:
      return "BFloat16";
    default:
      return name_of(t);
  }
}
}  // namespace

void prepare_out(const char* op, const Tensor& out, IntSpan sizes, DType result, bool may_resize) {
  FL_CHECK(can_cast(result, out.dtype()), "[", op, "] expected an output dtype that can hold ",
           name_of(result), ", got ", name_of(out.dtype()), ": result type ", scalar_name_of(result),
           " can't be cast to the desired output type ", scalar_name_of(out.dtype()));
  if (out.sizes() == sizes) return;
  FL_CHECK(may_resize, "[", op, "] expected an output of shape ", sizes,
           " (the operands' broadcast shape), got ", out.sizes());
  resize_output(out, sizes);
}

void check_distinct(const char* op, const Tensor& out) {
  FL_CHECK(
      !has_internal_overlap(out), "[", op,
      "] expected a tensor whose elements are distinct in memory, got an expanded tensor; clone() it first: "
      "unsupported operation: more than one element of the written-to tensor refers to a single memory "
      "location");
}

void advise_distinct(const char* op, const Tensor& out) {
  if (!has_internal_overlap(out)) return;
  warn("[" + std::string(op) +
       "] expected a tensor whose elements are distinct in memory, got an expanded one: Use of " + op +
       "_ on expanded tensors is deprecated. Please clone() the tensor before performing this operation");
}

void check_apart(const char* op, const Tensor& out, const Tensor& argument) {
  if (out.is_meta() || out.numel() == 0 || argument.numel() == 0) return;
  const bool same = out->storage.get() == argument->storage.get() &&
                    (overlaps_partially(out, argument) ||
                     (out.offset() == argument.offset() && out.sizes() == argument.sizes() &&
                      out.strides() == argument.strides()));
  FL_CHECK(!same, "[", op,
           "] expected an argument that shares no memory with the tensor it is written to, got views of one "
           "memory; clone() it first: unsupported operation: some elements of the input tensor and the "
           "written-to tensor refer to a single memory location");
}

Tensor write_out(const char* op, const Tensor& out, const Tensor& value) {
  FL_CHECK(out.device() == value.device(), "[", op, "] expected out on ", to_string(value.device()), ", got ",
           to_string(out.device()));
  FL_CHECK(out.dtype() == value.dtype(), "[", op, "] expected an out of dtype ", name_of(value.dtype()),
           ", got ", name_of(out.dtype()), ": Expected object of scalar type ", scalar_name_of(value.dtype()),
           " as out argument, but got scalar type ", scalar_name_of(out.dtype()));
  prepare_out(op, out, value.sizes(), value.dtype(), true);
  out.bump_version();
  copy_into(out, value);
  return out;
}

namespace {

void check_overlap(const char* op, const Tensor& out, const Tensor& argument) {
  FL_CHECK(!overlaps_partially(out, argument), "[", op,
           "] expected an out that does not partly overlap an argument, got views of one memory: unsupported "
           "operation: some elements of the input tensor and the written-to tensor refer to a single memory "
           "location");
}

Tensor complex_out(const Tensor& real, const Tensor& imag, const Tensor& out) {
  static const Operator& complex = OperatorTable::get().at("complex");
  check_overlap("complex", out, real);
  check_overlap("complex", out, imag);
  Value args[2] = {Value(real), Value(imag)};
  Value value[1];
  complex.call(args, value);
  check_distinct("complex", out);
  return write_out("complex", out, value[0].tensor());
}

std::tuple<Tensor, Tensor> aminmax_out(const Tensor& self, std::optional<int64_t> dim, bool keepdim,
                                       const Tensor& min, const Tensor& max) {
  static const Operator& aminmax = OperatorTable::get().at("aminmax");
  check_overlap("aminmax", min, self);
  check_overlap("aminmax", max, self);
  Value args[3] = {Value(self), dim ? Value(*dim) : Value(), Value(keepdim)};
  Value extremes[2];
  aminmax.call(args, extremes);
  check_distinct("aminmax", min);
  check_distinct("aminmax", max);
  return {write_out("aminmax", min, extremes[0].tensor()), write_out("aminmax", max, extremes[1].tensor())};
}

Tensor nonzero_out(const Tensor& self, const Tensor& out) {
  static const Operator& nonzero = OperatorTable::get().at("nonzero");
  check_overlap("nonzero", out, self);
  Value args[1] = {Value(self)};
  Value value[1];
  nonzero.call(args, value);
  check_distinct("nonzero", out);
  return write_out("nonzero", out, value[0].tensor());
}

FL_KERNEL("nonzero.out", nonzero_out, kCpu);
FL_KERNEL("complex.out", complex_out, kCpu);
FL_KERNEL("aminmax.out", aminmax_out, kCpu);

}  // namespace
}  // namespace fl

// Packed weights of eight bits, and the arguments that quantized operators share: see packed.h.
#include "cpu/quantized/packed.h"

#include <cstring>

#include "dispatch/kernel.h"

namespace fl::cpu::quantized {
namespace {

constexpr int64_t kHeaderBytes = 64;

struct Header {
  int64_t instructions = 0;  // differs between instruction sets whose panels differ
  PackedShape shape;
};
static_assert(sizeof(Header) <= kHeaderBytes);

Header header_for(PackedShape shape) {
  const products::UnitSet& set = products::byte_units();
  return {set.elements * 65536 + set.width * 256 + set.unit_multiple, shape};
}

int64_t group_bytes(PackedShape s) {
  const int64_t n = s.rows / s.groups;
  return 4 * (products::packed_byte_panels(s.k, n) + products::packed_byte_columns(n));
}

FinishKind activation_of(const char* name, std::string_view activation) {
  if (activation == "relu") return FinishKind::Relu;
  if (activation == "gelu") return FinishKind::Gelu;
  if (activation == "gelu_tanh") return FinishKind::GeluTanh;
  if (activation == "silu") return FinishKind::Silu;
  if (activation == "sigmoid") return FinishKind::Sigmoid;
  if (activation == "tanh") return FinishKind::Tanh;
  fail(ErrorKind::Runtime, "[", name,
       "] expected a post_op among none, add, relu, gelu, gelu_tanh, silu, sigmoid, tanh "
       "and add_ with one of these, got ",
       activation);
}

Tensor as(const Tensor& t, DType dtype) {
  return contiguous(to_dtype(t, dtype));
}

}  // namespace

Tensor packed_rows(const int8_t* rows, PackedShape shape, Device device) {
  const int64_t bytes = group_bytes(shape), n = shape.rows / shape.groups;
  const Tensor out = empty({kHeaderBytes + shape.groups * bytes + 4 * shape.more}, {DType::UInt8, device});
  if (out.is_meta()) return out;
  const Header header = header_for(shape);
  auto* to = reinterpret_cast<uint8_t*>(out.raw());
  std::memset(to, 0, kHeaderBytes);
  std::memcpy(to, &header, sizeof header);
  for (int64_t g = 0; g < shape.groups; ++g) {
    auto* panels = reinterpret_cast<uint32_t*>(to + kHeaderBytes + g * bytes);
    products::pack_bytes(shape.k, n, rows + g * n * shape.k, 1, shape.k, panels,
                         reinterpret_cast<int32_t*>(panels + products::packed_byte_panels(shape.k, n)));
  }
  return out;
}

void check_packed(const char* name, const Tensor& packed, PackedShape shape) {
  if (packed.is_meta()) return;  // devices without these kernels do not pack
  FL_CHECK(packed.dtype() == DType::UInt8 && packed.dim() == 1 &&
               packed.numel() == kHeaderBytes + shape.groups * group_bytes(shape) + 4 * shape.more &&
               packed.stride(0) == 1,
           "[", name, "] expected packed weights of ", shape.rows, " rows of ", shape.k,
           " elements, got a tensor of shape ", packed.sizes(), " of ", name_of(packed.dtype()));
  const Header wanted = header_for(shape);
  FL_CHECK(std::memcmp(packed.raw(), &wanted, sizeof wanted) == 0, "[", name,
           "] expected weights that were packed in a process with the same instruction set, got others");
}

uint32_t* other_form(const Tensor& packed, PackedShape shape) {
  return reinterpret_cast<uint32_t*>(reinterpret_cast<uint8_t*>(packed.raw()) + kHeaderBytes +
                                     shape.groups * group_bytes(shape));
}

products::PackedBytes group_of(const Tensor& packed, PackedShape shape, int64_t group) {
  const int64_t n = shape.rows / shape.groups;
  const auto* panels = reinterpret_cast<const uint32_t*>(reinterpret_cast<const uint8_t*>(packed.raw()) +
                                                         kHeaderBytes + group * group_bytes(shape));
  return {shape.k, n, panels,
          reinterpret_cast<const int32_t*>(panels + products::packed_byte_panels(shape.k, n))};
}

Finishing::Finishing(const char* name, const Tensor& out, int64_t n, const Arguments& a) {
  FL_CHECK(a.weight_scales.numel() == 1 || a.weight_scales.numel() == n, "[", name,
           "] expected one scale of weights or ", n, ", got ", a.weight_scales.numel());
  FL_CHECK(!a.weight_zero_points.defined() || a.weight_zero_points.numel() == 1 ||
               a.weight_zero_points.numel() == n,
           "[", name, "] expected one zero point of weights or ", n, ", got ", a.weight_zero_points.numel());
  FL_CHECK(!a.bias.defined() || a.bias.numel() == n, "[", name, "] expected a bias of ", n, " elements, got ",
           a.bias.sizes());
  FL_CHECK(!a.other.defined() || (a.other.sizes() == out.sizes() && a.other.device() == out.device()), "[",
           name, "] expected an other operand of shape ", out.sizes(), ", got ", a.other.sizes());
  std::string_view activation = a.post_op;
  const bool adds = activation.substr(0, 3) == "add";
  if (adds) activation.remove_prefix(activation.substr(0, 4) == "add_" ? 4 : 3);
  FL_CHECK(adds == a.other.defined(), "[", name,
           "] expected an other operand for post_op add alone, got post_op ", a.post_op);
  if (activation != "none" && !activation.empty()) {
    finish_.activates = true;
    finish_.activation = activation_of(name, activation);
    finish_.relu = finish_.activation == FinishKind::Relu;
  }
  finish_.out_dtype = out.dtype();
  finish_.out_scale = float(a.output_scale), finish_.out_zero = int32_t(a.output_zero_point);
  if (out.is_meta()) return;
  scale_ = as(a.weight_scales, DType::Float);
  finish_.b_scales = scale_.data<float>(), finish_.one_scale = scale_.numel() == 1;
  if (a.weight_zero_points.defined()) {
    zero_ = as(a.weight_zero_points, DType::Int32);
    bool any = false;
    for (int64_t i = 0; i < zero_.numel(); ++i) any = any || zero_.data<int32_t>()[i] != 0;
    if (any && zero_.numel() == 1 && n != 1) {
      const Tensor all = empty({n}, {DType::Int32, Device()});
      std::fill_n(all.data<int32_t>(), n, zero_.data<int32_t>()[0]);
      zero_ = all;
    }
    if (any) finish_.b_zeros = zero_.data<int32_t>();
  }
  if (a.bias.defined()) bias_ = as(a.bias, DType::Float), finish_.bias = bias_.data<float>();
  finish_.out = out.raw();
  if (!a.other.defined()) return;
  const DType dtype = a.other.dtype();
  const bool known =
      dtype == DType::UInt8 || dtype == DType::Int8 || dtype == DType::Float || dtype == DType::BFloat16;
  other_ = known ? a.other : to_dtype(a.other, DType::Float);
  if (other_.strides() != out.strides()) {
    const Tensor moved =
        empty_strided(Dims(out.sizes()), Dims(out.strides()), {other_.dtype(), out.device()});
    copy_into(moved, other_);
    other_ = moved;
  }
  finish_.other = other_.raw(), finish_.other_dtype = other_.dtype();
  finish_.other_scale = float(a.other_scale), finish_.other_zero = int32_t(a.other_zero_point);
}

products::ByteFinish Finishing::columns_from(int64_t first, int64_t row) const {
  products::ByteFinish f = finish_;
  if (!f.one_scale) f.b_scales += first;
  if (f.b_zeros) f.b_zeros += first;
  if (f.bias) f.bias += first;
  f.out = static_cast<char*>(f.out) + first * size_of(f.out_dtype);
  if (f.other) f.other = static_cast<const char*>(f.other) + first * size_of(f.other_dtype);
  f.out_row = f.other_row = row;
  return f;
}

DType result_dtype(const char* name, std::optional<DType> dtype) {
  const DType wanted = dtype.value_or(DType::Float);
  FL_CHECK(
      wanted == DType::Float || wanted == DType::BFloat16 || wanted == DType::UInt8 || wanted == DType::Int8,
      "[", name, "] expected a result of float32, bfloat16, uint8 or int8, got ", name_of(wanted));
  return wanted;
}

void check_bytes(const char* name, const Tensor& x, int64_t zero_point) {
  FL_CHECK(x.dtype() == DType::UInt8 || x.dtype() == DType::Int8, "[", name,
           "] expected a tensor of uint8 or int8, got ", name_of(x.dtype()));
  const int64_t least = x.dtype() == DType::UInt8 ? 0 : -128;
  FL_CHECK(zero_point >= least && zero_point <= least + 255, "[", name, "] expected a zero point between ",
           least, " and ", least + 255, ", got ", zero_point);
}

}  // namespace fl::cpu::quantized

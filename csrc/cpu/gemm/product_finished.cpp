// A product of matrices together with what follows it in a compiled graph, and the packing of weights that
// stay: operators that compiled graphs call. See product_finish.h and gemm_packed.h.
#include <optional>

#include "core/tensor.h"
#include "cpu/gemm/packed.h"
#include "cpu/gemm/product_finish.h"
#include "dispatch/kernel.h"

namespace fl {
namespace {

using cpu::FinishKind;
using cpu::ProductFinish;

// The distance of rows, where leading dimensions are rows of one matrix whose elements lie next to each
// other.
std::optional<int64_t> row_stride(const Tensor& t) {
  bool regular = t.stride(-1) == 1 || t.size(-1) == 1;
  for (int64_t d = 0; d + 2 < t.dim(); ++d)
    regular = regular && t.stride(d) == t.size(d + 1) * t.stride(d + 1);
  return regular ? std::optional(t.stride(-2)) : std::nullopt;
}

// Steps being read, and what keeps operands that had to be copied.
class Steps {
 public:
  Steps(const Tensor& out, const Tensor& other, const Tensor& another)
      : out_(out), operands_{other, another} {
    finish_.dtype = out.dtype();
    finish_.columns = out.size(-1);
    finish_.start = out.is_meta() ? nullptr : out.raw();
  }

  void add_row(const Tensor& bias) { add_operand(FinishKind::Add, bias, true); }

  void add(int64_t number) {
    FL_CHECK(number >= 0 && number < static_cast<int64_t>(FinishKind::Count) &&
                 finish_.count < ProductFinish::kMost,
             "[_product_finished] expected fewer than ", ProductFinish::kMost, " steps of known kinds, got ",
             number);
    const auto kind = static_cast<FinishKind>(number);
    if (kind != FinishKind::Add && kind != FinishKind::Mul) return finish_.add(kind);
    FL_CHECK(next_ < 2 && operands_[next_].defined(),
             "[_product_finished] expected an operand for each sum and product, got ", next_);
    const Tensor operand = operands_[next_++];
    const bool row =
        operand.dim() > 0 && operand.numel() == out_.size(-1) && operand.numel() == operand.size(-1);
    FL_CHECK(operand.dtype() == out_.dtype() && operand.device() == out_.device() &&
                 (row || operand.sizes() == out_.sizes()),
             "[_product_finished] expected operands of shape ", out_.sizes(), " or one row of it in ",
             name_of(out_.dtype()), ", got ", operand.sizes(), " in ", name_of(operand.dtype()));
    add_operand(kind, operand, row);
  }

  const ProductFinish* finish() const {
    FL_CHECK(next_ == 2 || !operands_[next_].defined(), "[_product_finished] expected ", next_,
             " operands, got more");
    return finish_.count > 0 ? &finish_ : nullptr;
  }

 private:
  void add_operand(FinishKind kind, const Tensor& t, bool row) {
    const Tensor& laid = held_[kept_++] = out_.is_meta() ? t : contiguous(t);
    finish_.add(kind, out_.is_meta() ? nullptr : laid.raw(), row);
  }

  const Tensor& out_;
  const Tensor operands_[2];
  int next_ = 0, kept_ = 0;
  Tensor held_[3];
  ProductFinish finish_;
};

// self @ mat2 + bias, then steps (FinishKind), of which Add and Mul take the next operand: one like the
// result, or a row for all of its rows. `packed` is what _product_packed made of mat2.
Tensor product_finished(const Tensor& self, const Tensor& mat2, const Tensor& bias, const Tensor& packed,
                        const Tensor& other, const Tensor& another, IntSpan kinds) {
  FL_CHECK(self.dim() >= 2 && mat2.dim() == 2 && self.size(-1) == mat2.size(0),
           "[_product_finished] expected (..., m, k) @ (k, n), got ", self.sizes(), " @ ", mat2.sizes());
  FL_CHECK(self.dtype() == mat2.dtype() && self.device() == mat2.device() && cpu::can_pack(self.dtype()),
           "[_product_finished] expected operands of one dtype, float32 or bfloat16, got ",
           name_of(self.dtype()), " and ", name_of(mat2.dtype()));
  const int64_t k = mat2.size(0), n = mat2.size(1);
  FL_CHECK(!bias.defined() || (bias.numel() == n && bias.dim() == 1 && bias.dtype() == self.dtype()),
           "[_product_finished] expected a bias of ", n, " elements like the product's, got one of ",
           bias.sizes());
  FL_CHECK(!packed.defined() ||
               (packed.dtype() == DType::Float && packed.numel() == cpu::packed_count(self.dtype(), k, n)),
           "[_product_finished] expected the packed form of ", mat2.sizes(), ", got ", packed.sizes());
  Dims sizes(self.sizes());
  sizes.back() = n;
  const Tensor out = empty(sizes, self.options());
  const bool rounds =
      out.dtype() != DType::Float;  // then the bias belongs to the sums, which are rounded once
  Steps steps(out, other, another);
  if (bias.defined() && !rounds) steps.add_row(bias);
  for (int64_t kind : kinds) steps.add(kind);

  GemmArgs g;
  g.finish = steps.finish();
  if (out.is_meta() || out.numel() == 0) return out;
  const std::optional<int64_t> apart = row_stride(self);
  const Tensor a = apart ? self : contiguous(self);
  g.dtype = out.dtype();
  g.m = out.numel() / n, g.n = n, g.k = k;
  g.a = a.raw(), g.a_row = apart.value_or(k);
  g.b = mat2.raw(), g.b_row = mat2.stride(0), g.b_col = mat2.stride(1);
  g.c = out.raw(), g.c_row = n;
  if (bias.defined() && rounds) g.bias = bias.raw(), g.bias_stride = bias.stride(0);
  if (packed.defined() && k > 0)
    cpu::gemm_packed(g, packed.data<float>());
  else
    cpu::gemm(g);
  return out;
}

// A matrix as products read it fastest, and nothing else can.
Tensor product_packed(const Tensor& self) {
  FL_CHECK(self.dim() == 2 && cpu::can_pack(self.dtype()),
           "[_product_packed] expected a matrix of float32 or bfloat16, got shape ", self.sizes(), " in ",
           name_of(self.dtype()));
  const int64_t k = self.size(0), n = self.size(1);
  const Tensor out = empty({cpu::packed_count(self.dtype(), k, n)}, {DType::Float, self.device()});
  if (!out.is_meta() && out.numel() > 0)
    cpu::pack_matrix(self.dtype(), k, n, self.raw(), self.stride(0), self.stride(1), out.data<float>());
  return out;
}

FL_KERNEL("_product_finished", product_finished, kCpu);
FL_KERNEL("_product_packed", product_packed, kCpu);

}  // namespace
}  // namespace fl

// Matrix products: checks shapes and dtypes, merges or broadcasts batches, and hands the strides as they are
// to gemm.
#include "core/accelerator.h"
#include "dispatch/kernel.h"
#include "ops/gemm.h"
#include "ops/iterator.h"

namespace fl {

DeviceFunction<void(const GemmArgs&)> device::gemm{"matmul"};
DeviceFunction<void(DType, int64_t, const void*, int64_t, const void*, int64_t, void*)> device::dot{"dot"};

namespace {

void check_operands(const char* op, const Tensor& a, const Tensor& b) {
  FL_CHECK(a.dtype() == b.dtype(), "[", op, "] expected operands of one dtype, got ", name_of(a.dtype()),
           " and ", name_of(b.dtype()), "; convert one of them with .to(dtype)");
  FL_CHECK(a.device() == b.device(), "[", op, "] expected operands on one device, got ",
           to_string(a.device()), " and ", to_string(b.device()), "; move one of them with .to(device)");
  FL_CHECK_KIND(a.dtype() != DType::Bool, NotImplemented, "[", op, "] expected a numeric dtype, got bool");
}

// One batch dimension of a product, with its stride in each operand.
struct Axis {
  int64_t size, a, b, c;
};

// The batch dimensions of one product. Those that lie regularly in all three operands merge into one, a batch
// that shares B becomes rows of A, and what remains beyond gemm's single batch dimension is looped over.
class Batch {
 public:
  void add(int64_t size, int64_t a, int64_t b, int64_t c) {
    empty_ |= size == 0;
    if (size == 1) return;
    if (count_ > 0) {
      Axis& outer = axes_[count_ - 1];
      if (outer.a == size * a && outer.b == size * b && outer.c == size * c) {
        outer = {outer.size * size, a, b, c};
        return;
      }
    }
    FL_CHECK(count_ < kMost, "[matmul] expected at most ", kMost, " irregular batch dimensions, got more");
    axes_[count_++] = {size, a, b, c};
  }

  void run(GemmArgs g) {
    if (empty_) return;
    merge_rows(g);
    if (count_ > 0) {
      const Axis& inner = axes_[count_ - 1];
      g.batch = inner.size;
      g.a_batch = inner.a;
      g.b_batch = inner.b;
      g.c_batch = inner.c;
    }
    loop(g, 0, size_of(g.dtype));
  }

  // Calls of gemm that `run` makes.
  int64_t calls(GemmArgs g) const {
    Batch merged = *this;
    merged.merge_rows(g);
    int64_t product = empty_ ? 0 : 1;
    for (int i = 0; i + 1 < merged.count_; ++i) product *= merged.axes_[i].size;
    return product;
  }

 private:
  // A batch that shares B becomes rows of A.
  void merge_rows(GemmArgs& g) {
    while (count_ > 0) {
      const Axis& inner = axes_[count_ - 1];
      if (inner.b != 0) break;
      if (g.m == 1) {
        g.a_row = inner.a;
        g.c_row = inner.c;
      } else if (inner.a != g.m * g.a_row || inner.c != g.m * g.c_row) {
        break;
      }
      g.m *= inner.size;
      --count_;
    }
  }

  void loop(const GemmArgs& g, int level, int64_t item) {
    if (level >= count_ - 1) return device::gemm(g.device >= 0 ? DeviceType::CUDA : DeviceType::CPU, g);
    const Axis& axis = axes_[level];
    GemmArgs step = g;
    for (int64_t i = 0; i < axis.size; ++i) {
      step.a = static_cast<const char*>(g.a) + i * axis.a * item;
      step.b = static_cast<const char*>(g.b) + i * axis.b * item;
      step.c = static_cast<char*>(g.c) + i * axis.c * item;
      loop(step, level + 1, item);
    }
  }

  static constexpr int kMost = 16;
  Axis axes_[kMost];
  int count_ = 0;
  bool empty_ = false;
};

// alpha and beta as the dtype sees them: integers drop fractions, real dtypes refuse complex factors.
std::complex<double> factor(const char* op, const Scalar& value, DType dtype) {
  if (is_complex(dtype)) return value.to<complex128>();
  FL_CHECK(!value.is_complex() || value.im == 0, "[", op, "] expected a real factor for ", name_of(dtype),
           ", got a complex one");
  if (is_integral(dtype)) return static_cast<double>(value.to<int64_t>());
  return value.to<double>();
}

// Whether a batch of matrices is one matrix of all their rows.
bool rows_of_one_matrix(const Tensor& t) {
  int64_t rows = t.size(-2), step = t.stride(-2);
  for (int64_t d = t.dim() - 3; d >= 0; --d) {
    if (t.size(d) == 1) continue;
    if (rows == 1)
      step = t.stride(d);
    else if (t.stride(d) != rows * step)
      return false;
    rows *= t.size(d);
  }
  return true;
}

// An operand whose matrices lie at one distance from each other, over the batch of `out`: itself, or a copy.
Tensor in_one_batch(const Tensor& t, const Tensor& out) {
  const int64_t n = out.dim() - 2, lead = out.dim() - t.dim();
  Dims sizes(static_cast<size_t>(n)), strides(static_cast<size_t>(n));
  bool regular = true;
  int64_t inner = -1;  // the batch dimension before, from the innermost on
  for (int64_t d = n - 1; d >= 0; --d) {
    sizes[d] = out.size(d);
    strides[d] = d < lead || t.size(d - lead) == 1 ? 0 : t.stride(d - lead);
    if (sizes[d] == 1) continue;
    if (inner >= 0) regular = regular && strides[d] == sizes[inner] * strides[inner];
    inner = d;
  }
  if (regular) return t;
  for (const int64_t d : {-2, -1}) {
    sizes.push_back(t.size(d));
    strides.push_back(t.stride(d));
  }
  return contiguous(alias(t, sizes, strides, t.offset()));
}

// out = alpha * a @ b + beta * out for operands of two or more dimensions whose batches broadcast to that of
// out.
void multiply(const Tensor& a, const Tensor& b, const Tensor& out, std::complex<double> alpha = 1,
              std::complex<double> beta = 0, const Tensor& bias = Tensor()) {
  if (out.is_meta() || out.numel() == 0) return;
  // Few rows at a time would have the shared matrix packed over and over: sequences with the batch in the
  // middle, as attention layers hand them on.
  if (b.dim() == 2 && a.dim() > 2 && a.size(-2) < 128 && out.is_cpu() && !a.is_contiguous() &&
      !rows_of_one_matrix(a))
    return multiply(contiguous(a), b, out, alpha, beta, bias);
  GemmArgs g;
  g.dtype = a.dtype();
  g.widened = a.dtype() != out.dtype();
  g.m = out.size(-2);
  g.n = out.size(-1);
  g.k = a.size(-1);
  g.a = a.raw();
  g.b = b.raw();
  g.c = out.raw();
  g.a_row = a.stride(-2);
  g.a_col = a.stride(-1);
  g.b_row = b.stride(-2);
  g.b_col = b.stride(-1);
  g.c_row = out.stride(-2);
  g.c_col = out.stride(-1);
  g.alpha = alpha;
  g.beta = beta;
  if (out.device().type == DeviceType::CUDA) g.device = out.device().index;
  if (bias.defined()) {
    g.bias = bias.raw();
    g.bias_stride = bias.dim() == 0 || bias.size(-1) == 1 ? 0 : bias.stride(-1);
  }
  Batch batch;
  const int64_t n = out.dim() - 2, lead_a = out.dim() - a.dim(), lead_b = out.dim() - b.dim();
  for (int64_t d = 0; d < n; ++d) {
    const int64_t sa = d < lead_a || a.size(d - lead_a) == 1 ? 0 : a.stride(d - lead_a);
    const int64_t sb = d < lead_b || b.size(d - lead_b) == 1 ? 0 : b.stride(d - lead_b);
    batch.add(out.size(d), sa, sb, out.stride(d));
  }
  // On an accelerator a copy takes less time than a launch for each part of a batch.
  if (g.device >= 0 && batch.calls(g) > 1) {
    const Tensor one = in_one_batch(a, out), two = in_one_batch(b, out);
    if (!one.same(a) || !two.same(b)) return multiply(one, two, out, alpha, beta, bias);
  }
  batch.run(g);
}

Tensor with_dims(const Tensor& t, Dims sizes, Dims strides) {
  return alias(t, sizes, strides, t.offset());
}
Tensor row(const Tensor& v) {
  return with_dims(v, {1, v.size(0)}, {0, v.stride(0)});
}
Tensor column(const Tensor& v) {
  return with_dims(v, {v.size(0), 1}, {v.stride(0), 0});
}

void check_matrix_shapes(const char* op, const Tensor& a, const Tensor& b) {
  FL_CHECK(a.size(-1) == b.size(-2), "[", op, "] expected (m, k) @ (k, n), got ", a.sizes(), " @ ",
           b.sizes());
}

// What is added to a product: a fresh output holding `self` broadcast, unless beta makes it irrelevant.
Tensor start_from(const char* op, const Tensor& self, const Dims& sizes, const Tensor& like, bool wanted) {
  FL_CHECK(self.dtype() == like.dtype(), "[", op, "] expected self of the products' dtype ",
           name_of(like.dtype()), ", got ", name_of(self.dtype()));
  FL_CHECK(self.device() == like.device(), "[", op, "] expected operands on one device, got ",
           to_string(self.device()), " and ", to_string(like.device()));
  const int64_t lead = static_cast<int64_t>(sizes.size()) - self.dim();
  bool fits = lead >= 0;
  for (int64_t d = 0; fits && d < self.dim(); ++d)
    fits = self.size(d) == sizes[d + lead] || self.size(d) == 1;
  FL_CHECK(fits, "[", op, "] expected self to broadcast to ", sizes, ", got ", self.sizes());
  const Tensor out = empty(sizes, like.options());
  if (wanted && !out.is_meta() && out.numel() > 0) copy_into(out, self);
  return out;
}

// ---------------------------------------------------------------- products

Tensor mm(const Tensor& self, const Tensor& mat2) {
  FL_CHECK(self.dim() == 2 && mat2.dim() == 2, "[mm] expected two matrices, got ", self.sizes(), " and ",
           mat2.sizes());
  check_matrix_shapes("mm", self, mat2);
  check_operands("mm", self, mat2);
  const Tensor out = empty({self.size(0), mat2.size(1)}, self.options());
  multiply(self, mat2, out);
  return out;
}

Tensor bmm(const Tensor& self, const Tensor& mat2) {
  FL_CHECK(self.dim() == 3 && mat2.dim() == 3, "[bmm] expected two batches of matrices, got ", self.sizes(),
           " and ", mat2.sizes());
  FL_CHECK(self.size(0) == mat2.size(0), "[bmm] expected batches of one size, got ", self.sizes(), " and ",
           mat2.sizes());
  check_matrix_shapes("bmm", self, mat2);
  check_operands("bmm", self, mat2);
  const Tensor out = empty({self.size(0), self.size(1), mat2.size(2)}, self.options());
  multiply(self, mat2, out);
  return out;
}

Tensor mv(const Tensor& self, const Tensor& vec) {
  FL_CHECK(self.dim() == 2 && vec.dim() == 1, "[mv] expected a matrix and a vector, got ", self.sizes(),
           " and ", vec.sizes());
  FL_CHECK(self.size(1) == vec.size(0), "[mv] expected (m, k) @ (k), got ", self.sizes(), " @ ", vec.sizes());
  check_operands("mv", self, vec);
  const Tensor out = empty({self.size(0)}, self.options());
  multiply(self, column(vec), with_dims(out, {out.size(0), 1}, {1, 1}));
  return out;
}

Tensor dot(const Tensor& self, const Tensor& tensor) {
  FL_CHECK(self.dim() == 1 && tensor.dim() == 1, "[dot] expected two vectors, got ", self.sizes(), " and ",
           tensor.sizes());
  FL_CHECK(self.size(0) == tensor.size(0), "[dot] expected vectors of one length, got ", self.size(0),
           " and ", tensor.size(0));
  check_operands("dot", self, tensor);
  const Tensor out = empty({}, self.options());
  if (out.is_meta()) return out;
  if (device::dot.exists_on(out.device().type))
    device::dot(out.device().type, out.dtype(), self.size(0), self.raw(), self.stride(0), tensor.raw(),
                tensor.stride(0), out.raw());
  else
    multiply(row(self), column(tensor), with_dims(out, {1, 1}, {1, 1}));
  return out;
}

Tensor matmul(const Tensor& self, const Tensor& other) {
  const int64_t da = self.dim(), db = other.dim();
  FL_CHECK(da > 0 && db > 0, "[matmul] expected operands with at least one dimension, got ", self.sizes(),
           " and ", other.sizes());
  FL_CHECK(self.size(-1) == other.size(db == 1 ? 0 : db - 2),
           "[matmul] expected (..., m, k) @ (..., k, n), got ", self.sizes(), " @ ", other.sizes());
  check_operands("matmul", self, other);
  if (da == 2 && db == 2) {
    const Tensor out = empty({self.size(0), other.size(1)}, self.options());
    multiply(self, other, out);
    return out;
  }
  if (da == 1 && db == 1) return dot(self, other);
  const Tensor a = da == 1 ? row(self) : self, b = db == 1 ? column(other) : other;
  // The product as a batch of matrices, then without the dimension that a vector has not.
  const int64_t na = a.dim() - 2, nb = b.dim() - 2, n = std::max(na, nb);
  Dims sizes(n);
  for (int64_t d = 0; d < n; ++d) {
    const int64_t sa = d < n - na ? 1 : a.size(d - (n - na)), sb = d < n - nb ? 1 : b.size(d - (n - nb));
    FL_CHECK(sa == sb || sa == 1 || sb == 1, "[matmul] expected batch dimensions that broadcast, got ",
             self.sizes(), " @ ", other.sizes());
    sizes[d] = sa == 1 ? sb : sa;
  }
  Dims full = sizes;
  full.push_back(a.size(-2));
  full.push_back(b.size(-1));
  if (da > 1) sizes.push_back(a.size(-2));
  if (db > 1) sizes.push_back(b.size(-1));
  const Tensor out = empty(sizes, self.options());
  multiply(a, b, da > 1 && db > 1 ? out : with_dims(out, full, contiguous_strides(full)));
  return out;
}

// What to do about an input whose trailing dimensions together are the features.
const char* flatten_hint(IntSpan sizes, int64_t features) {
  int64_t trailing = 1;
  for (size_t d = sizes.size(); d-- > 1;)
    if ((trailing *= sizes[d]) == features) return "; flatten its trailing dimensions first";
  return "";
}

// x @ weight.T + bias over the last dimension of x; leading dimensions are flattened into rows.
Tensor linear(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  FL_CHECK(input.dim() > 0, "[linear] expected an input with at least one dimension, got ", input.sizes(),
           ": both arguments to linear need to be at least 1D");
  FL_CHECK(weight.dim() == 1 || weight.dim() == 2,
           "[linear] expected a weight of one or two dimensions, got ", weight.sizes());
  FL_CHECK(weight.dim() == 2 || !bias.defined() || bias.dim() == 0 || input.dim() != 2,
           "[linear] expected a weight matrix with a bias, got ", weight.sizes());
  FL_CHECK(input.size(-1) == weight.size(-1), "[linear] expected an input of ", weight.size(-1),
           " features for a weight of shape ", weight.sizes(), ", got shape ", input.sizes(),
           flatten_hint(input.sizes(), weight.size(-1)));
  check_operands("linear", input, weight);
  const Tensor a = input.dim() == 1 ? row(input) : input;
  const Tensor b = weight.dim() == 1 ? column(weight)
                                     : with_dims(weight, {weight.size(1), weight.size(0)},
                                                 {weight.stride(1), weight.stride(0)});
  Dims sizes(input.sizes());
  sizes.erase(sizes.size() - 1);
  if (weight.dim() == 2) sizes.push_back(weight.size(0));
  Dims full(a.sizes());
  full.back() = b.size(-1);
  const bool plain = sizes == full;
  if (!bias.defined()) {
    const Tensor out = empty(sizes, input.options());
    multiply(a, b, plain ? out : with_dims(out, full, contiguous_strides(full)));
    return out;
  }
  const bool per_column = weight.dim() == 2 && bias.dim() <= 1;
  const Tensor out = start_from("linear", bias, sizes, input, !per_column);
  multiply(a, b, plain ? out : with_dims(out, full, contiguous_strides(full)), 1, per_column ? 0 : 1,
           per_column ? bias : Tensor());
  return out;
}

// self @ mat2 (+ bias) with rows `pitch` elements apart, for compiled graphs that lay matrices out
// themselves.
Tensor product_pitched(const Tensor& self, const Tensor& mat2, const Tensor& bias, int64_t pitch) {
  FL_CHECK(self.dim() >= 2 && mat2.dim() == 2 && pitch >= mat2.size(1),
           "[_product_pitched] expected (..., m, k) @ (k, n) and a pitch of at least n, got ", self.sizes(),
           " @ ", mat2.sizes(), " and ", pitch);
  check_matrix_shapes("_product_pitched", self, mat2);
  check_operands("_product_pitched", self, mat2);
  FL_CHECK(!bias.defined() || (bias.dim() == 1 && bias.size(0) == mat2.size(1) &&
                               bias.dtype() == self.dtype() && bias.device() == self.device()),
           "[_product_pitched] expected a bias of ", mat2.size(1),
           " elements like the product's, got one of ", bias.sizes());
  Dims sizes(self.sizes());
  sizes.back() = pitch;
  const Dims strides = contiguous_strides(sizes);
  const Tensor rows = empty(sizes, self.options());
  sizes.back() = mat2.size(1);
  const Tensor out = alias(rows, sizes, strides, 0);
  multiply(self, mat2, out, 1, 0, bias);
  return out;
}

// A product of matrices of 16 bits whose result is not rounded to 16 bits.
Tensor product_widened(const Tensor& self, const Tensor& mat2) {
  FL_CHECK(self.dim() == 2 && mat2.dim() == 2 && size_of(self.dtype()) == 2 && is_floating(self.dtype()),
           "[_product_widened] expected two matrices of bfloat16 or half, got ", self.sizes(), " of ",
           name_of(self.dtype()), " and ", mat2.sizes());
  check_matrix_shapes("_product_widened", self, mat2);
  check_operands("_product_widened", self, mat2);
  const Tensor out = empty({self.size(0), mat2.size(1)}, {DType::Float, self.device()});
  if (self.device().type == DeviceType::CUDA)
    multiply(self, mat2, out);
  else
    multiply(to_dtype(self, DType::Float), to_dtype(mat2, DType::Float), out);
  return out;
}

// ---------------------------------------------------------------- products added to something

Tensor addmm(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
             const Scalar& alpha) {
  FL_CHECK(mat1.dim() == 2 && mat2.dim() == 2, "[addmm] expected two matrices, got ", mat1.sizes(), " and ",
           mat2.sizes());
  check_matrix_shapes("addmm", mat1, mat2);
  check_operands("addmm", mat1, mat2);
  const auto b = factor("addmm", beta, mat1.dtype()), a = factor("addmm", alpha, mat1.dtype());
  const bool bias = b == 1.0 && (self.dim() <= 1 || (self.dim() == 2 && self.size(0) == 1));
  const Tensor out = start_from("addmm", self, {mat1.size(0), mat2.size(1)}, mat1, b != 0.0 && !bias);
  multiply(mat1, mat2, out, a, bias ? 0.0 : b, bias ? self : Tensor());
  return out;
}

Tensor addmv(const Tensor& self, const Tensor& mat, const Tensor& vec, const Scalar& beta,
             const Scalar& alpha) {
  FL_CHECK(mat.dim() == 2 && vec.dim() == 1, "[addmv] expected a matrix and a vector, got ", mat.sizes(),
           " and ", vec.sizes());
  FL_CHECK(self.dim() <= 1, "[addmv] expected a vector to add to, got ", self.sizes());
  FL_CHECK(mat.size(1) == vec.size(0), "[addmv] expected (m, k) @ (k), got ", mat.sizes(), " @ ",
           vec.sizes());
  check_operands("addmv", mat, vec);
  const auto b = factor("addmv", beta, mat.dtype()), a = factor("addmv", alpha, mat.dtype());
  const Tensor out = start_from("addmv", self, {mat.size(0)}, mat, b != 0.0);
  multiply(mat, column(vec), with_dims(out, {out.size(0), 1}, {1, 1}), a, b);
  return out;
}

Tensor baddbmm(const Tensor& self, const Tensor& batch1, const Tensor& batch2, const Scalar& beta,
               const Scalar& alpha) {
  FL_CHECK(batch1.dim() == 3 && batch2.dim() == 3, "[baddbmm] expected two batches of matrices, got ",
           batch1.sizes(), " and ", batch2.sizes());
  FL_CHECK(batch1.size(0) == batch2.size(0), "[baddbmm] expected batches of one size, got ", batch1.sizes(),
           " and ", batch2.sizes());
  check_matrix_shapes("baddbmm", batch1, batch2);
  check_operands("baddbmm", batch1, batch2);
  const auto b = factor("baddbmm", beta, batch1.dtype()), a = factor("baddbmm", alpha, batch1.dtype());
  const Tensor out =
      start_from("baddbmm", self, {batch1.size(0), batch1.size(1), batch2.size(2)}, batch1, b != 0.0);
  multiply(batch1, batch2, out, a, b);
  return out;
}

Tensor addbmm(const Tensor& self, const Tensor& batch1, const Tensor& batch2, const Scalar& beta,
              const Scalar& alpha) {
  FL_CHECK(batch1.dim() == 3 && batch2.dim() == 3, "[addbmm] expected two batches of matrices, got ",
           batch1.sizes(), " and ", batch2.sizes());
  FL_CHECK(batch1.size(0) == batch2.size(0), "[addbmm] expected batches of one size, got ", batch1.sizes(),
           " and ", batch2.sizes());
  check_matrix_shapes("addbmm", batch1, batch2);
  check_operands("addbmm", batch1, batch2);
  const auto b = factor("addbmm", beta, batch1.dtype()), a = factor("addbmm", alpha, batch1.dtype());
  const Tensor out = start_from("addbmm", self, {batch1.size(1), batch2.size(2)}, batch1, b != 0.0);
  if (out.is_meta()) return out;
  // The sum over the batch is one product along batch and inner dimension together.
  const int64_t count = batch1.size(0), m = batch1.size(1), k = batch1.size(2), n = batch2.size(2);
  const Tensor wide =
      contiguous(with_dims(batch1, {m, count, k}, {batch1.stride(1), batch1.stride(0), batch1.stride(2)}));
  const Tensor tall = contiguous(batch2);
  multiply(with_dims(wide, {m, count * k}, {count * k, 1}), with_dims(tall, {count * k, n}, {n, 1}), out, a,
           b);
  return out;
}

// ---------------------------------------------------------------- cross product

Tensor cross(const Tensor& self, const Tensor& other, int64_t dim) {
  FL_CHECK(self.dim() == other.dim(), "[linalg.cross] expected operands with as many dimensions, got ",
           self.sizes(), " and ", other.sizes());
  FL_CHECK(self.dtype() == other.dtype(), "[linalg.cross] expected operands of one dtype, got ",
           name_of(self.dtype()), " and ", name_of(other.dtype()));
  FL_CHECK(self.device() == other.device(), "[linalg.cross] expected operands on one device, got ",
           to_string(self.device()), " and ", to_string(other.device()));
  const int64_t d = wrap_dim("linalg.cross", dim, self.dim());
  FL_CHECK(self.dim() > 0 && self.size(d) == 3 && other.size(d) == 3,
           "[linalg.cross] expected operands of size 3 in dimension ", dim, ", got ", self.sizes(), " and ",
           other.sizes());
  FL_CHECK_KIND(self.dtype() != DType::Bool, NotImplemented,
                "[linalg.cross] expected a numeric dtype, got bool");
  const Dims sizes = broadcast_shapes("linalg.cross", self.sizes(), other.sizes());
  const Tensor out = empty(sizes, self.options());
  if (out.is_meta() || out.numel() == 0) return out;
  const DType compute = compute_of(out.dtype());
  const auto prepared = [&](const Tensor& t) {
    Dims strides(sizes.size());
    for (size_t i = 0; i < sizes.size(); ++i) strides[i] = t.size(i) == 1 ? 0 : t.stride(i);
    return contiguous(to_dtype(with_dims(t, sizes, strides), compute));
  };
  const Tensor a = prepared(self), b = prepared(other);
  const Tensor result = compute == out.dtype() ? out : empty(sizes, {compute, out.device()});
  int64_t inner = 1;
  for (size_t i = d + 1; i < sizes.size(); ++i) inner *= sizes[i];
  const int64_t outer = out.numel() / (3 * inner);
  dispatch_compute(compute, [&](auto type) {
    using T = typename decltype(type)::type;
    const T *x = a.data<T>(), *y = b.data<T>();
    T* z = result.data<T>();
    for (int64_t o = 0; o < outer; ++o, x += 3 * inner, y += 3 * inner, z += 3 * inner)
      for (int64_t i = 0; i < inner; ++i)
        for (int64_t c = 0; c < 3; ++c) {
          const int64_t p = (c + 1) % 3 * inner + i, q = (c + 2) % 3 * inner + i;
          z[c * inner + i] = x[p] * y[q] - x[q] * y[p];
        }
  });
  if (!result.same(out)) copy_into(out, result);
  return out;
}

// Written in other ops, so that it promotes and differentiates as they do.
Tensor outer(const Tensor& self, const Tensor& vec2) {
  static const Operator& unsqueeze = OperatorTable::get().at("unsqueeze");
  static const Operator& mul = OperatorTable::get().at("mul.Tensor");
  FL_CHECK(self.dim() == 1 && vec2.dim() == 1, "[outer] expected two vectors, got ", self.sizes(), " and ",
           vec2.sizes());
  return call_tensor(mul, call_tensor(unsqueeze, self, int64_t(1)), vec2);
}

const detail::Register register_outer{"outer", {Key::Composite}, kernel_of<&outer>()};
const detail::Register register_ger{"ger", {Key::Composite}, kernel_of<&outer>()};
FL_KERNEL("mm", mm, kDevices);
FL_KERNEL("bmm", bmm, kDevices);
FL_KERNEL("mv", mv, kDevices);
FL_KERNEL("dot", dot, kDevices);
FL_KERNEL("matmul", matmul, kDevices);
FL_KERNEL("linear", linear, kDevices);
FL_KERNEL("_product_pitched", product_pitched, kDevices);
FL_KERNEL("_product_widened", product_widened, kDevices);
FL_KERNEL("addmm", addmm, kDevices);
FL_KERNEL("addmv", addmv, kDevices);
FL_KERNEL("baddbmm", baddbmm, kDevices);
FL_KERNEL("addbmm", addbmm, kDevices);
FL_KERNEL("linalg_cross", cross, kCpu);

}  // namespace
}  // namespace fl

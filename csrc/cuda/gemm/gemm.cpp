// Matrix products by cuBLASLt. Descriptors and the chosen algorithm are kept by shape, so that a product
// costs one call.
#include <unordered_map>

#include "cuda/engine/kernels.h"
#include "cuda/gemm/cublaslt.h"

namespace fl::cuda {

using namespace lt;

namespace {

// ---------------------------------------------------------------- one product and what is kept of it

// In cuBLAS's order of columns: D (rows x columns) = A (rows x inner) @ B (inner x columns).
struct Key_ {
  int64_t rows, columns, inner, batch;
  int64_t lda, ldb, ldd, stride_a, stride_b, stride_d;
  int32_t type, result, compute, trans_a, trans_b, epilogue, align_a, align_b, align_d, device, beta;
  bool operator==(const Key_& o) const { return std::memcmp(this, &o, sizeof o) == 0; }
};
struct Plan {
  Desc desc;
  Layout_ a, b, d;
  Algorithm algorithm;
  size_t workspace;
  bool usable;
};

std::atomic<bool> tf32{false};

Plan make_plan(Lt& lt, const Key_& k) {
  Plan p{};
  const int scale = k.compute == kCompute64F ? (k.type == CUDA_C_64F ? CUDA_C_64F : CUDA_R_64F)
                    : k.type == CUDA_C_32F   ? CUDA_C_32F
                                             : CUDA_R_32F;
  check_lt(lt.desc_create(&p.desc, k.compute, scale), "cublasLtMatmulDescCreate");
  check_lt(lt.desc_set(p.desc, kTransA, &k.trans_a, 4), "transa");
  check_lt(lt.desc_set(p.desc, kTransB, &k.trans_b, 4), "transb");
  check_lt(lt.desc_set(p.desc, kEpilogue, &k.epilogue, 4), "epilogue");
  const auto layout = [&](Layout_* descriptor, int type, int64_t rows, int64_t columns, int64_t ld,
                          int64_t stride) {
    check_lt(lt.layout_create(descriptor, type, rows, columns, ld), "cublasLtMatrixLayoutCreate");
    const int32_t count = static_cast<int32_t>(k.batch);
    if (count > 1) {
      check_lt(lt.layout_set(*descriptor, kBatchCount, &count, 4), "batch count");
      check_lt(lt.layout_set(*descriptor, kBatchStride, &stride, 8), "batch stride");
    }
  };
  layout(&p.a, k.type, k.trans_a ? k.inner : k.rows, k.trans_a ? k.rows : k.inner, k.lda, k.stride_a);
  layout(&p.b, k.type, k.trans_b ? k.columns : k.inner, k.trans_b ? k.inner : k.columns, k.ldb, k.stride_b);
  layout(&p.d, k.result, k.rows, k.columns, k.ldd, k.stride_d);
  p.usable = choose(lt, lt.handle(k.device), p.desc, p.a, p.b, p.d, p.d,
                    {k.align_a, k.align_b, k.align_d, k.align_d}, p.algorithm, p.workspace);
  return p;
}

int cuda_type(DType t) {
  switch (t) {
    case DType::Float:
      return CUDA_R_32F;
    case DType::Double:
      return CUDA_R_64F;
    case DType::Half:
      return CUDA_R_16F;
    case DType::BFloat16:
      return CUDA_R_16BF;
    case DType::ComplexFloat:
      return CUDA_C_32F;
    case DType::ComplexDouble:
      return CUDA_C_64F;
    default:
      return -1;
  }
}

// An operand of `rows` x `columns` in row-major words: unit stride in one of them, or it must be copied.
struct Side {
  const void* data;
  int64_t row, column, batch;
  bool fits(int64_t rows, int64_t columns) const {
    return ((column == 1 || columns == 1) && (row >= columns || rows == 1)) ||
           ((row == 1 || rows == 1) && (column >= rows || columns == 1));
  }
};

// Memory that somebody else owns as a tensor.
Tensor window(const Side& s, int64_t batch, int64_t rows, int64_t columns, DType dtype, int8_t device) {
  const Device place{DeviceType::CUDA, device};
  Tensor view = empty({0}, {dtype, place});
  view->storage = Storage::adopt(const_cast<void*>(s.data), 0, place, [](void*) {});
  return alias(view, {s.batch == 0 ? 1 : batch, rows, columns}, {s.batch, s.row, s.column}, 0);
}

// The operand gathered, when it lies in no way that cuBLAS reads.
Tensor gathered(Side& s, int64_t batch, int64_t rows, int64_t columns, DType dtype, int8_t device) {
  const Tensor fresh = contiguous(window(s, batch, rows, columns, dtype, device));
  s = {fresh.raw(), columns, 1, s.batch == 0 ? 0 : rows * columns};
  return fresh;
}

// The fast kernels ask for lines that begin at multiples of sixteen bytes. A large product of other operands
// is made on copies that do: 50,257 words of a language model cost 5 ms otherwise, and the copies half a
// millisecond.
constexpr double kWorthCopies = 1e10;  // multiplications
int64_t pitch_of(int64_t length, DType dtype) {
  const int64_t items = 128 / size_of(dtype);
  return (length + items - 1) / items * items;
}
bool uneven(const Side& s, DType dtype) {
  const int64_t line = s.column == 1 ? s.row : s.column;
  return line * size_of(dtype) % 16 != 0 || !is_aligned(s.data);
}
// A matrix of uninitialised elements in even lines, along its rows or its columns.
Tensor even(Side& s, int64_t rows, int64_t columns, bool by_rows, DType dtype, int8_t device) {
  const int64_t pitch = pitch_of(by_rows ? columns : rows, dtype);
  const Tensor padded = empty({(by_rows ? rows : columns) * pitch}, {dtype, {DeviceType::CUDA, device}});
  s = {padded.raw(), by_rows ? pitch : 1, by_rows ? 1 : pitch, 0};
  return padded;
}
Tensor evened(Side& s, int64_t rows, int64_t columns, DType dtype, int8_t device) {
  const Tensor source = window(s, 1, rows, columns, dtype, device);
  const Tensor padded = even(s, rows, columns, s.column == 1, dtype, device);
  copy_into(window(s, 1, rows, columns, dtype, device), source);
  return padded;
}

// Copies a product that was made in even lines to where it was asked for.
void spread(const GemmArgs& g, const Tensor& products, const Side& c) {
  if (!products.defined()) return;
  copy_into(window({g.c, g.c_row, g.c_col, 0}, 1, g.m, g.n, g.dtype, g.device),
            window(c, 1, g.m, g.n, g.dtype, g.device));
}

}  // namespace

void set_tf32(bool on) {
  tf32 = on;
}
bool get_tf32() {
  return tf32;
}

void gemm(const GemmArgs& g, DType result);

// The fast kernels ask for sizes that are multiples of eight, too: what is left of a large product is another
// one.
static bool split(const GemmArgs& g, DType result) {
  const int64_t item = size_of(g.dtype), n = g.n & ~int64_t(7), m = g.m & ~int64_t(7), k = g.k & ~int64_t(7);
  const auto at = [&](const void* data, int64_t offset) {
    return static_cast<const char*>(data) + offset * item;
  };
  GemmArgs first = g, rest = g;
  if (n != g.n) {
    first.n = n;
    rest.n = g.n - n;
    rest.b = at(g.b, n * g.b_col);
    rest.c = const_cast<char*>(at(g.c, n * g.c_col));
    if (g.bias) rest.bias = at(g.bias, n * g.bias_stride);
  } else if (m != g.m) {
    first.m = m;
    rest.m = g.m - m;
    rest.a = at(g.a, m * g.a_row);
    rest.c = const_cast<char*>(at(g.c, m * g.c_row));
  } else if (k != g.k && !g.relu) {
    first.k = k;
    rest.k = g.k - k;
    rest.a = at(g.a, k * g.a_col);
    rest.b = at(g.b, k * g.b_row);
    rest.beta = 1;
    rest.bias = nullptr;
  } else {
    return false;
  }
  gemm(first, result);
  gemm(rest, result);
  return true;
}

// What cuBLASLt's plan for a product depends on. The library counts by columns, so that the sides change
// places.
static Key_ key_of(const GemmArgs& g, const Side& a, const Side& b, const Side& c, const void* bias,
                   DType result) {
  Key_ key;
  std::memset(&key, 0, sizeof key);
  key.rows = g.n;
  key.columns = g.m;
  key.inner = g.k;
  key.batch = g.batch;
  const bool plain_b = (b.column == 1 || g.n == 1) && (b.row >= g.n || g.k == 1);
  key.trans_a = !plain_b;
  key.lda = plain_b ? std::max(b.row, g.n) : std::max(b.column, g.k);
  const bool plain_a = (a.column == 1 || g.k == 1) && (a.row >= g.k || g.m == 1);
  key.trans_b = !plain_a;
  key.ldb = plain_a ? std::max(a.row, g.k) : std::max(a.column, g.m);
  key.ldd = std::max(c.row, g.n);
  key.stride_a = b.batch;
  key.stride_b = a.batch;
  key.stride_d = c.batch;
  key.type = cuda_type(g.dtype);
  key.result = cuda_type(result);
  key.compute = g.dtype == DType::Double || g.dtype == DType::ComplexDouble ? kCompute64F
                : g.dtype == DType::Float && (tf32 || g.narrow)             ? kComputeTF32
                                                                            : kCompute32F;
  key.epilogue = bias ? (g.relu ? kEpilogueReluBias : kEpilogueBias) : g.relu ? kEpilogueRelu : kEpilogueNone;
  key.align_a = alignment(b.data);
  key.align_b = alignment(a.data);
  key.align_d = alignment(c.data);
  key.device = g.device;
  key.beta = g.beta != 0.0;
  return key;
}

void gemm(const GemmArgs& g, DType result) {
  OnDevice on(g.device);
  const int type = cuda_type(g.dtype);
  Lt& lt = Lt::get();
  const bool dot = is_complex(g.dtype) && g.m == 1 && g.n == 1;
  if (dot || g.k == 0 || type < 0 || !lt.found || g.c_col != 1 || g.batch > 65535 * 16) return gemm_plain(g);
  Side a{g.a, g.a_row, g.a_col, g.a_batch}, b{g.b, g.b_row, g.b_col, g.b_batch};
  Tensor hold_a, hold_b, hold_bias;
  if (!a.fits(g.m, g.k)) hold_a = gathered(a, g.batch, g.m, g.k, g.dtype, g.device);
  if (!b.fits(g.k, g.n)) hold_b = gathered(b, g.batch, g.k, g.n, g.dtype, g.device);
  // Matrices of a batch that begin anywhere would be multiplied element by element.
  if (g.batch > 1 && size_of(g.dtype) == 2) {
    if (!hold_a.defined() && g.k % 8 == 0 && uneven(a, g.dtype))
      hold_a = gathered(a, g.batch, g.m, g.k, g.dtype, g.device);
    if (!hold_b.defined() && g.n % 8 == 0 && uneven(b, g.dtype))
      hold_b = gathered(b, g.batch, g.k, g.n, g.dtype, g.device);
  }
  Side c{g.c, g.c_row, g.c_col, g.c_batch};
  Tensor hold_c;
  if (g.batch == 1 && size_of(g.dtype) == 2 && double(g.m) * g.n * g.k >= kWorthCopies && result == g.dtype) {
    if (uneven(a, g.dtype)) hold_a = evened(a, g.m, g.k, g.dtype, g.device);
    if (uneven(b, g.dtype)) hold_b = evened(b, g.k, g.n, g.dtype, g.device);
    if (uneven(c, g.dtype) && g.beta == 0.0) hold_c = even(c, g.m, g.n, true, g.dtype, g.device);
    GemmArgs even_sides = g;
    even_sides.a = a.data, even_sides.a_row = a.row, even_sides.a_col = a.column;
    even_sides.b = b.data, even_sides.b_row = b.row, even_sides.b_col = b.column;
    even_sides.c = const_cast<void*>(c.data), even_sides.c_row = c.row;
    if (split(even_sides, result)) return spread(g, hold_c, c);
  }
  const void* bias = g.bias;
  if (bias && g.bias_stride != 1 && g.n > 1) {
    Side one{bias, 0, g.bias_stride, 0};
    hold_bias = gathered(one, 1, 1, g.n, g.dtype, g.device);
    bias = one.data;
  }

  const Key_ key = key_of(g, a, b, c, bias, result);
  static thread_local std::unordered_map<Key_, Plan, Hash<Key_>> plans;
  auto it = plans.find(key);
  if (it == plans.end()) it = plans.emplace(key, make_plan(lt, key)).first;
  const Plan& plan = it->second;
  if (!plan.usable) {
    FL_CHECK(result == g.dtype, "[matmul] expected a product that cuBLASLt computes, got dtype ",
             name_of(g.dtype));
    return gemm_plain(g);
  }
  if (bias) check_lt(lt.desc_set(plan.desc, kBiasPointer, &bias, sizeof bias), "bias");
  const cudaStream_t stream = current_stream();
  Scratch workspace(plan.workspace, g.device, stream);
  // The library reads complex factors by aligned words.
  alignas(16) const float alpha_f[2] = {float(g.alpha.real()), float(g.alpha.imag())},
                          beta_f[2] = {float(g.beta.real()), float(g.beta.imag())};
  alignas(16) const double alpha_d[2] = {g.alpha.real(), g.alpha.imag()},
                           beta_d[2] = {g.beta.real(), g.beta.imag()};
  const bool wide = key.compute == kCompute64F;
  check_lt(
      lt.matmul(lt.handle(g.device), plan.desc, wide ? static_cast<const void*>(alpha_d) : alpha_f, b.data,
                plan.a, a.data, plan.b, wide ? static_cast<const void*>(beta_d) : beta_f, c.data, plan.d,
                const_cast<void*>(c.data), plan.d, &plan.algorithm, workspace.get(), plan.workspace, stream),
      "cublasLtMatmul");
  check_launch("matmul");
  spread(g, hold_c, c);
}

// Into floats. What has no such product is made in the dtype of its operands and converted.
static void gemm_widened(const GemmArgs& g) {
  if (g.k > 0 && Lt::get().found && g.c_col == 1) return gemm(g, DType::Float);
  GemmArgs narrow = g;
  const Tensor products = empty({g.batch, g.m, g.n}, {g.dtype, {DeviceType::CUDA, g.device}});
  narrow.c = products.raw(), narrow.c_batch = g.m * g.n, narrow.c_row = g.n, narrow.c_col = 1;
  gemm(narrow, g.dtype);
  copy_into(window({g.c, g.c_row, g.c_col, g.c_batch}, g.batch, g.m, g.n, DType::Float, g.device), products);
}

void gemm(const GemmArgs& g) {
  if (g.widened) return gemm_widened(g);
  FL_CHECK_KIND(!is_stored_only(g.dtype), NotImplemented, "[gemm] expected a dtype to multiply in, got ",
                name_of(g.dtype));
  gemm(g, g.dtype);
}
bool has_blas() {
  return Lt::get().found;
}

FL_ATTACH(gemm, CUDA, gemm);

}  // namespace fl::cuda

extern "C" __attribute__((visibility("default"))) void flcuda_set_tf32(int on) {
  fl::cuda::set_tf32(on != 0);
}
extern "C" __attribute__((visibility("default"))) int flcuda_get_tf32() {
  return fl::cuda::get_tf32();
}

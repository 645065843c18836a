// Products of matrices of 8-bit floats with scales, by cuBLASLt. The library multiplies a matrix of rows by
// one of columns, and the scales are read on the device. What it does not take (older devices, sizes that are
// no multiples of sixteen) goes by the operator's definition.
#include "ops/scaled_product.h"

#include <unordered_map>

#include "cuda/engine/kernels.h"
#include "cuda/gemm/cublaslt.h"
#include "dispatch/kernel.h"

namespace fl::cuda {

using namespace lt;

namespace {

constexpr int kE4M3 = 28, kE5M2 = 29;  // CUDA_R_8F_E4M3 and CUDA_R_8F_E5M2

int type_of(DType t) {
  switch (t) {
    case DType::Float8E4M3:
      return kE4M3;
    case DType::Float8E5M2:
      return kE5M2;
    case DType::BFloat16:
      return CUDA_R_16BF;
    case DType::Half:
      return CUDA_R_16F;
    case DType::Float:
      return CUDA_R_32F;
    default:
      return -1;
  }
}

// In cuBLAS's order of columns: D (rows x columns) = A' (rows x inner) @ B (inner x columns).
struct ScaledKey {
  int64_t rows, columns, inner, lda, ldb;
  int32_t type_a, type_b, result, bias, scales, scaled, fast, align_a, align_b, align_d, device;
  bool operator==(const ScaledKey& o) const { return std::memcmp(this, &o, sizeof o) == 0; }
};
enum Scales { kNone, kOne, kRows };
struct ScaledPlan {
  Desc desc;
  Layout_ a, b, c, d;
  Algorithm algorithm;
  size_t workspace;
  bool usable;
};

ScaledPlan make_plan(Lt& lt, const ScaledKey& k) {
  ScaledPlan p{};
  check_lt(lt.desc_create(&p.desc, kCompute32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
  const int32_t turned = 1, plain = 0, epilogue = k.bias >= 0 ? kEpilogueBias : kEpilogueNone;
  const int8_t fast = static_cast<int8_t>(k.fast);
  check_lt(lt.desc_set(p.desc, kTransA, &turned, 4), "transa");
  check_lt(lt.desc_set(p.desc, kTransB, &plain, 4), "transb");
  check_lt(lt.desc_set(p.desc, kEpilogue, &epilogue, 4), "epilogue");
  check_lt(lt.desc_set(p.desc, kFastAccumulation, &fast, 1), "fast accumulation");
  if (k.bias >= 0) check_lt(lt.desc_set(p.desc, kBiasType, &k.bias, 4), "type of the bias");
  // The heuristic wants to know which pointers there will be; none of them is read.
  const void* some = &p;
  if (k.scales != kNone)
    for (const int attribute : {int(kScaleA), int(kScaleB)})
      check_lt(lt.desc_set(p.desc, attribute, &some, sizeof some), "scale");
  if (k.scaled) check_lt(lt.desc_set(p.desc, kScaleD, &some, sizeof some), "scale of the result");
  if (k.bias >= 0) check_lt(lt.desc_set(p.desc, kBiasPointer, &some, sizeof some), "bias");
  if (k.scales == kRows) {
    const int32_t mode = kScalePerRow;  // older libraries do not know it
    if (lt.desc_set(p.desc, kScaleModeA, &mode, 4) != 0 || lt.desc_set(p.desc, kScaleModeB, &mode, 4) != 0)
      return p;
  }
  const bool narrow = k.result == kE4M3 || k.result == kE5M2;
  check_lt(lt.layout_create(&p.a, k.type_a, k.inner, k.rows, k.lda), "cublasLtMatrixLayoutCreate");
  check_lt(lt.layout_create(&p.b, k.type_b, k.inner, k.columns, k.ldb), "cublasLtMatrixLayoutCreate");
  check_lt(lt.layout_create(&p.c, narrow ? int(CUDA_R_16BF) : k.result, k.rows, k.columns, k.rows),
           "cublasLtMatrixLayoutCreate");
  check_lt(lt.layout_create(&p.d, k.result, k.rows, k.columns, k.rows), "cublasLtMatrixLayoutCreate");
  p.usable = choose(lt, lt.handle(k.device), p.desc, p.a, p.b, p.c, p.d,
                    {k.align_a, k.align_b, k.align_d, k.align_d}, p.algorithm, p.workspace);
  return p;
}

// Whether the library computes a product, and whether it adds the bias.
bool fits(const ScaledProduct& p) {
  const DType a = p.a.dtype(), b = p.b.dtype();
  const auto known = [](DType t) { return t == DType::Float8E4M3 || t == DType::Float8E5M2; };
  return known(a) && known(b) && (a == DType::Float8E4M3 || b == DType::Float8E4M3) && p.a.size(1) > 0 &&
         p.a.size(1) % 16 == 0 && p.b.size(1) % 16 == 0;
}
bool adds_bias(const ScaledProduct& p) {
  if (!p.bias.defined()) return true;
  const DType t = p.bias.dtype();
  return p.bias.dim() == 1 && (t == DType::BFloat16 || t == DType::Half) &&
         (is_float8(p.result) || t == p.result);
}

// A matrix of rows that begin at multiples of sixteen bytes, as the library reads them.
Tensor even(const Tensor& t) {
  const bool fitting =
      t.stride(1) == 1 && t.stride(0) >= t.size(1) && t.stride(0) % 16 == 0 && is_aligned(t.raw());
  return fitting ? t : contiguous(t);
}

// The product where cuBLASLt computes it; undefined where it does not.
Tensor product(const ScaledProduct& p, Scales scales) {
  Lt& lt = Lt::get();
  const int64_t m = p.a.size(0), n = p.b.size(1), k = p.a.size(1);
  const int8_t device = p.a.device().index;
  if (!lt.found) return Tensor();
  const Tensor a = even(p.a);
  const Tensor columns = even(alias(p.b, {n, k}, {p.b.stride(1), p.b.stride(0)}, p.b.offset()));
  const Tensor bias = p.bias.defined() ? contiguous(p.bias) : Tensor();
  const Tensor out = empty({m, n}, {p.result, p.a.device()});
  if (m == 0 || n == 0) return out;

  ScaledKey key;
  std::memset(&key, 0, sizeof key);
  key.rows = n, key.columns = m, key.inner = k;
  key.lda = columns.stride(0), key.ldb = a.stride(0);
  key.type_a = type_of(columns.dtype()), key.type_b = type_of(a.dtype()), key.result = type_of(p.result);
  key.bias = bias.defined() ? type_of(bias.dtype()) : -1;
  key.scales = scales;
  key.scaled = p.scale_result.defined() && is_float8(p.result);
  key.fast = p.fast;
  key.align_a = alignment(columns.raw()), key.align_b = alignment(a.raw()),
  key.align_d = alignment(out.raw());
  key.device = device;
  static thread_local std::unordered_map<ScaledKey, ScaledPlan, Hash<ScaledKey>> plans;
  auto it = plans.find(key);
  if (it == plans.end()) it = plans.emplace(key, make_plan(lt, key)).first;
  const ScaledPlan& plan = it->second;
  if (!plan.usable) return Tensor();

  const auto point = [&](int attribute, const Tensor& t, const char* what) {
    const void* at = t.raw();
    check_lt(lt.desc_set(plan.desc, attribute, &at, sizeof at), what);
  };
  if (scales != kNone) {
    point(kScaleA, p.scale_b, "scale");
    point(kScaleB, p.scale_a, "scale");
  }
  if (key.scaled) point(kScaleD, p.scale_result, "scale of the result");
  if (bias.defined()) point(kBiasPointer, bias, "bias");
  const cudaStream_t stream = current_stream();
  Scratch workspace(plan.workspace, device, stream);
  alignas(16) const float one[2] = {1, 0}, nothing[2] = {0, 0};
  check_lt(
      lt.matmul(lt.handle(device), plan.desc, one, columns.raw(), plan.a, a.raw(), plan.b, nothing, nullptr,
                plan.c, out.raw(), plan.d, &plan.algorithm, workspace.get(), plan.workspace, stream),
      "cublasLtMatmul");
  check_launch("_scaled_mm");
  return out;
}

// The product in single precision and then what the library does not do with it: other biases and results,
// and scales of rows and columns where it does not know them.
Tensor finished_later(const ScaledProduct& p) {
  static const Operator& mul = OperatorTable::get().at("mul.Tensor");
  static const Operator& add = OperatorTable::get().at("add.Tensor");
  ScaledProduct plain = p;
  plain.bias = plain.scale_result = Tensor();
  plain.result = DType::Float;
  Tensor result = product(plain, p.by_rows ? kRows : kOne);
  if (!result.defined() && p.by_rows) {
    result = product(plain, kNone);
    if (result.defined()) result = call_tensor(mul, call_tensor(mul, result, p.scale_a), p.scale_b);
  }
  if (!result.defined()) return result;
  if (p.bias.defined()) result = call_tensor(add, result, to_dtype(p.bias, DType::Float), Scalar(int64_t(1)));
  if (p.scale_result.defined() && is_float8(p.result)) result = call_tensor(mul, result, p.scale_result);
  return to_dtype(result, p.result);
}

// (self, mat2, scale_a, scale_b, bias, scale_result, out_dtype, use_fast_accum)
void scaled_mm(const Operator& op, void*, KeySet keys, Value* args, Value* results) {
  check_on_device(op, args);
  const auto optional = [&](int i) { return args[i].is_tensor() ? args[i].tensor() : Tensor(); };
  const auto result = args[6].is_none() ? std::nullopt : std::optional<DType>(args[6].to_dtype());
  const ScaledProduct p =
      checked_scaled_product(args[0].tensor(), args[1].tensor(), args[2].tensor(), args[3].tensor(),
                             optional(4), optional(5), result, args[7].to_bool());
  OnDevice on(p.a.device().index);
  Tensor product_tensor;
  if (fits(p)) {
    if (adds_bias(p) && type_of(p.result) >= 0) product_tensor = product(p, p.by_rows ? kRows : kOne);
    if (!product_tensor.defined()) product_tensor = finished_later(p);
  }
  if (product_tensor.defined())
    results[0] = Value(std::move(product_tensor));
  else
    by_definition(op, keys, args, results);
}

const detail::Register scaled{"_scaled_mm", {Key::CUDA}, Kernel{scaled_mm, nullptr}};

}  // namespace
}  // namespace fl::cuda

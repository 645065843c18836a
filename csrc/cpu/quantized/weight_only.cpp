// Products of floats with weights of eight or four bits, by PyTorch's schemas.
//
// Few rows, as when text is generated, read the weights once, at the speed of memory, and turn them into
// floats in registers. For more rows blocks of weights become matrices of floats that stay in the cache, and
// products follow.
#include <cstring>
#include <vector>

#include "core/parallel.h"
#include "cpu/engine/capability.h"
#include "cpu/gemm/gemm.h"
#include "cpu/gemm/tiles.h"
#include "cpu/quantized/int4.h"
#include "dispatch/kernel.h"

namespace fl {
namespace {

using namespace cpu::quantized;

constexpr int64_t kFewRows = 16, kFewDots = 8;  // that read weights of four and of eight bits as they are
constexpr int64_t kBlockColumns = 64;           // of weights that become floats at a time
constexpr double kByteTime = 0.06;              // nanoseconds for a byte of weights, on one thread

void check_matrices(const char* name, const Tensor& self, const Tensor& weight, DType dtype, int64_t k) {
  FL_CHECK(self.dim() == 2 && weight.dim() == 2 && self.size(1) == k && weight.dtype() == dtype, "[", name,
           "] expected (m, k) and weights of ", name_of(dtype), " for as many features, got ", self.sizes(),
           " and ", weight.sizes(), " of ", name_of(weight.dtype()));
  FL_CHECK(self.dtype() == DType::Float || self.dtype() == DType::BFloat16 || self.dtype() == DType::Half,
           "[", name, "] expected an input of float32, bfloat16 or float16, got ", name_of(self.dtype()));
}

Tensor as_floats(const Tensor& t) {
  return contiguous(to_dtype(t, DType::Float));
}

// Calls f(begin, end) for parts of so many items, each of which reads so many bytes of weights.
template <class F>
void over_weights(int64_t items, double bytes_each, const F& f) {
  const double time = double(items) * bytes_each * kByteTime;
  const int pieces = int(std::min<int64_t>(items, thread_model::pieces_for(time)));
  parallel_pieces(std::max(pieces, 1), time,
                  [&](int piece, int count) { f(items * piece / count, items * (piece + 1) / count); });
}

// out = A B in T, for blocks of columns of B that `fill(first, columns, to)` writes: in rows of
// kBlockColumns, or each column on its own.
template <class T, class Fill>
Tensor multiply_filled(const Tensor& a, int64_t n, bool in_rows, const Fill& fill) {
  const int64_t m = a.size(0), k = a.size(1), blocks = (n + kBlockColumns - 1) / kBlockColumns;
  const Tensor out = empty({m, n}, {a.dtype(), a.device()});
  const double time = double(m) * double(n) * double(k) / 50;
  const int pieces = int(std::min<int64_t>(blocks, thread_model::pieces_for(time)));
  parallel_pieces(std::max(pieces, 1), time, [&](int piece, int count) {
    std::vector<T> rows(size_t(kBlockColumns * k));
    for (int64_t block = blocks * piece / count; block < blocks * (piece + 1) / count; ++block) {
      const int64_t first = block * kBlockColumns, columns = std::min(kBlockColumns, n - first);
      fill(first, columns, rows.data());
      GemmArgs g;
      g.dtype = a.dtype();
      g.m = m, g.n = columns, g.k = k;
      g.a = a.raw(), g.a_row = k;
      g.b = rows.data(), g.b_row = in_rows ? kBlockColumns : 1, g.b_col = in_rows ? 1 : k;
      g.c = out.data<T>() + first, g.c_row = n;
      cpu::gemm(g);
    }
  });
  return out;
}

// Whether products of a dtype are quicker in it than in float.
bool multiplies_itself(DType dtype) {
  return dtype == DType::BFloat16 &&
         (cpu::has_capability(cpu::Capability::Avx512Bf16) || cpu::has_capability(cpu::Capability::NeonBf16));
}

// ---- eight bits --------------------------------------------------------------------------------

// Dots of a row with a row of weights.
float dot_row(const float* x, const int8_t* w, int64_t k) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t p = 0; p < k; ++p) sum += x[p] * float(w[p]);
  return sum;
}

// Where dots come from and go to; rows of x and of weights have k elements.
struct Dots {
  const float* x;
  const int8_t* weights;
  const float* scales;
  int64_t k;
  float* out;
  int64_t out_row;
};

#ifdef FL_X86
// Sums of ROWS rows with COLUMNS rows of weights, so many of each that loads and sums are in flight together.
template <int ROWS, int COLUMNS>
FL_AVX512 void dot_block(const Dots& d, int64_t row, int64_t column) {
  __m512 sums[ROWS][COLUMNS];
#pragma GCC unroll 4
  for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < COLUMNS; ++j) sums[i][j] = _mm512_setzero_ps();
  const float* x = d.x + row * d.k;
  const int8_t* w = d.weights + column * d.k;
  for (int64_t p = 0; p < d.k; p += 16) {
    const __mmask16 lanes = d.k - p >= 16 ? __mmask16(0xffff) : __mmask16((1u << (d.k - p)) - 1);
    __m512 values[ROWS];
#pragma GCC unroll 4
    for (int i = 0; i < ROWS; ++i) values[i] = _mm512_maskz_loadu_ps(lanes, x + i * d.k + p);
#pragma GCC unroll 8
    for (int j = 0; j < COLUMNS; ++j) {
      const __m128i bytes = _mm_maskz_loadu_epi8(lanes, w + j * d.k + p);
      const __m512 numbers = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
#pragma GCC unroll 4
      for (int i = 0; i < ROWS; ++i) sums[i][j] = _mm512_fmadd_ps(values[i], numbers, sums[i][j]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < COLUMNS; ++j)
      d.out[(row + i) * d.out_row + column + j] = _mm512_reduce_add_ps(sums[i][j]) * d.scales[column + j];
}

template <int COLUMNS>
FL_AVX512 void dot_rows(const Dots& d, int64_t m, int64_t column) {
  int64_t row = 0;
  for (; row + 4 <= m; row += 4) dot_block<4, COLUMNS>(d, row, column);
  if (m - row == 3) dot_block<3, COLUMNS>(d, row, column);
  if (m - row == 2) dot_block<2, COLUMNS>(d, row, column);
  if (m - row == 1) dot_block<1, COLUMNS>(d, row, column);
}
#endif

// Columns [begin, end) of the product of m rows.
void dot_columns(const Dots& d, int64_t m, int64_t begin, int64_t end) {
  int64_t column = begin;
#ifdef FL_X86
  if (cpu::products::isa() == cpu::products::Isa::Avx512) {
    for (; m == 1 && column + 8 <= end; column += 8) dot_block<1, 8>(d, 0, column);
    for (; column + 4 <= end; column += 4) dot_rows<4>(d, m, column);
    for (; column < end; ++column) dot_rows<1>(d, m, column);
  }
#endif
  for (; column < end; ++column)
    for (int64_t i = 0; i < m; ++i)
      d.out[i * d.out_row + column] =
          dot_row(d.x + i * d.k, d.weights + column * d.k, d.k) * d.scales[column];
}

template <class T>
Tensor multiply_int8(const Tensor& x, int64_t n, const int8_t* w, const float* scales) {
  const int64_t k = x.size(1);
  return multiply_filled<T>(x, n, false, [&](int64_t first, int64_t columns, T* to) {
    for (int64_t j = 0; j < columns; ++j) {
      const int8_t* row = w + (first + j) * k;
      for (int64_t p = 0; p < k; ++p) to[j * k + p] = T(float(row[p]) * scales[first + j]);
    }
  });
}

Tensor weight_int8pack_mm(const Tensor& self, const Tensor& mat2, const Tensor& scales) {
  const int64_t k = mat2.dim() == 2 ? mat2.size(1) : -1;
  check_matrices("_weight_int8pack_mm", self, mat2, DType::Int8, k);
  const int64_t m = self.size(0), n = mat2.size(0);
  FL_CHECK(scales.numel() == n, "[_weight_int8pack_mm] expected ", n, " scales, got ", scales.numel());
  if (self.is_meta()) return empty({m, n}, self.options());
  const Tensor steps = as_floats(scales), weights = contiguous(mat2);
  const int8_t* w = weights.data<int8_t>();
  if (m > kFewDots) {
    if (multiplies_itself(self.dtype()))
      return multiply_int8<BFloat16>(contiguous(self), n, w, steps.data<float>());
    return to_dtype(multiply_int8<float>(as_floats(self), n, w, steps.data<float>()), self.dtype());
  }
  const Tensor x = as_floats(self), out = empty({m, n}, {DType::Float, self.device()});
  const Dots dots{x.data<float>(), w, steps.data<float>(), k, out.data<float>(), n};
  over_weights(n, double(k), [&](int64_t begin, int64_t end) { dot_columns(dots, m, begin, end); });
  return to_dtype(out, self.dtype());
}

// ---- four bits ---------------------------------------------------------------------------------

Tensor convert_weight_to_int4pack(const Tensor& self, int64_t inner_k_tiles) {
  FL_CHECK(self.dim() == 2 && self.dtype() == DType::Int32 && self.size(0) % kInt4Panel == 0 &&
               self.size(1) % kInt4Step == 0,
           "[_convert_weight_to_int4pack_for_cpu] expected int32 numbers (n, k) with n a multiple of ",
           kInt4Panel, " and k of ", kInt4Step, ", got ", self.sizes(), " of ", name_of(self.dtype()));
  const int64_t n = self.size(0), k = self.size(1);
  const Tensor out = empty({n, k / 2}, {DType::UInt8, self.device()});
  if (!out.is_meta() && out.numel() > 0)
    pack_int4(contiguous(self).data<int32_t>(), n, k, out.data<uint8_t>());
  return out;
}

// Rows of A for multiply_int4, and what keeps them.
class PairedRows {
 public:
  PairedRows(const Tensor& x, bool splits, int64_t group) : k_(x.size(1)) {
    const int64_t m = x.size(0), groups = (k_ + group - 1) / group;
    high_.resize(size_t(m * k_)), low_.resize(splits ? size_t(m * k_) : 0), sums_.resize(size_t(m * groups));
    for (int64_t i = 0; i < m; ++i)
      for (int64_t p = 0; p < k_; ++p) {
        const float value = x.data<float>()[i * k_ + p];
        const BFloat16 high(value);
        std::memcpy(&high_[size_t(i * k_ + p)], &high, 2);
        float rounded = float(high);
        if (splits) {
          const BFloat16 low(value - rounded);
          std::memcpy(&low_[size_t(i * k_ + p)], &low, 2);
          rounded += float(low);
        }
        sums_[size_t(i * groups + p / group)] += rounded;
      }
    groups_ = groups;
  }
  Int4Rows from(int64_t row, int64_t rows) const {
    return {rows, high_.data() + row * k_, low_.empty() ? nullptr : low_.data() + row * k_,
            sums_.data() + row * groups_};
  }

 private:
  int64_t k_, groups_ = 0;
  std::vector<uint16_t> high_, low_;
  std::vector<float> sums_;
};

template <class T>
Tensor multiply_widened(const Tensor& x, const Int4Weights& b) {
  return multiply_filled<T>(x, b.n, true, [&](int64_t first, int64_t columns, T* to) {
    for (int64_t j = 0; j < columns; j += kInt4Panel)
      widen_int4(b, (first + j) / kInt4Panel, to + j, kBlockColumns);
  });
}

Tensor weight_int4pack_mm(const Tensor& self, const Tensor& mat2, int64_t group,
                          const Tensor& scales_and_zeros) {
  constexpr const char* name = "_weight_int4pack_mm_for_cpu";
  const int64_t k = mat2.dim() == 2 ? mat2.size(1) * 2 : -1;
  check_matrices(name, self, mat2, DType::UInt8, k);
  const int64_t m = self.size(0), n = mat2.size(0);
  FL_CHECK(group > 0 && group % kInt4Step == 0 && n % kInt4Panel == 0 && k % kInt4Step == 0, "[", name,
           "] expected groups of a multiple of ", kInt4Step, " elements, got ", group);
  const int64_t groups = (k + group - 1) / group;
  FL_CHECK(scales_and_zeros.dim() == 3 && scales_and_zeros.size(0) == groups &&
               scales_and_zeros.size(1) == n &&
               (scales_and_zeros.size(2) == 2 || scales_and_zeros.size(2) == 1),
           "[", name, "] expected scales and zeros of shape (", groups, ", ", n, ", 2), or scales of (",
           groups, ", ", n, ", 1), got ", scales_and_zeros.sizes());
  if (self.is_meta()) return empty({m, n}, self.options());
  const Tensor weights = contiguous(mat2);
  const bool narrow = scales_and_zeros.dtype() == DType::BFloat16;
  const Tensor grids = narrow ? contiguous(scales_and_zeros) : as_floats(scales_and_zeros);
  const bool zeros = scales_and_zeros.size(2) == 2;
  const Int4Weights b{n, k, group, weights.data<uint8_t>(), grids.raw(), narrow, zeros};
  if (m > kFewRows || !multiplies_int4()) {
    if (multiplies_itself(self.dtype())) return multiply_widened<BFloat16>(contiguous(self), b);
    return to_dtype(multiply_widened<float>(as_floats(self), b), self.dtype());
  }
  const Tensor out = empty({m, n}, {DType::Float, self.device()});
  const PairedRows rows(as_floats(self), self.dtype() != DType::BFloat16, group);
  over_weights(n / kInt4Panel, double(k) * 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < m; i += kMostInt4Rows)
      multiply_int4(rows.from(i, std::min(kMostInt4Rows, m - i)), b, begin, end, out.data<float>() + i * n);
  });
  return to_dtype(out, self.dtype());
}

FL_KERNEL("_weight_int8pack_mm", weight_int8pack_mm, kCpu);
FL_KERNEL("_convert_weight_to_int4pack_for_cpu", convert_weight_to_int4pack, kCpu);
FL_KERNEL("_weight_int4pack_mm_for_cpu", weight_int4pack_mm, kCpu);

}  // namespace
}  // namespace fl

// Linear layers of eight bits: on quantized inputs, and on floats that are quantized while they are packed.
#include <cmath>

#include "cpu/gemm/byte_finish.h"
#include "cpu/quantized/packed.h"
#include "dispatch/kernel.h"

namespace fl {
namespace {

using namespace cpu::quantized;
using cpu::products::ByteFinish;
using cpu::products::ByteRows;
using cpu::products::RowGrid;

// Bytes of a matrix; signed ones are moved up by 128.
class StoredRows : public ByteRows {
 public:
  StoredRows(const void* data, bool is_signed, int64_t k, int64_t row, RowGrid grid)
      : data_(static_cast<const uint8_t*>(data)), is_signed_(is_signed), k_(k), row_(row), grid_(grid) {
    if (is_signed) grid_.zero += 128;
    if (!is_signed) direct = data_, row_stride = row, direct_grid = grid_;
  }
  RowGrid fill(int64_t row, uint8_t* to) const override {
    const uint8_t* from = data_ + row * row_;
    if (is_signed_)
      cpu::products::flip_signs(from, to, k_);
    else
      std::copy_n(from, k_, to);
    return grid_;
  }

 private:
  const uint8_t* data_;
  const bool is_signed_;
  const int64_t k_, row_;
  RowGrid grid_;
};

template <class T>
void extend(const T* x, int64_t n, float& low, float& high) {
  float least = low, most = high;
#pragma omp simd reduction(min : least) reduction(max : most)
  for (int64_t i = 0; i < n; ++i) {
    const float v = float(x[i]);
    least = v < least ? v : least;
    most = v > most ? v : most;
  }
  low = least, high = most;
}

constexpr float kSmallestStep = 6.1e-5f;

// The grid of unsigned integers up to `steps` that has zero and both ends on it.
RowGrid grid_between(float low, float high, int steps) {
  low = std::min(low, 0.0f), high = std::max(high, 0.0f);
  RowGrid grid;
  grid.scale = float((double(high) - double(low)) / steps);
  if (!(grid.scale > 0) || std::isinf(1.0f / grid.scale)) grid.scale = 0.1f;
  const double at_low = -double(low) / grid.scale, at_high = steps - double(high) / grid.scale;
  const double from_low = std::fabs(double(low) / grid.scale),
               from_high = steps + std::fabs(double(high) / grid.scale);
  const double zero = from_low < from_high ? at_low : at_high;  // the end with the smaller error
  grid.zero = int32_t(std::nearbyint(std::clamp(zero, 0.0, double(steps))));
  grid.scale = std::max(grid.scale, kSmallestStep);
  return grid;
}

// Rows of floats, quantized on one grid or on one each.
template <class T>
class FloatRows : public ByteRows {
 public:
  FloatRows(const T* data, int64_t m, int64_t k, int64_t row, bool per_row, int steps)
      : data_(data), k_(k), row_(row), per_row_(per_row), steps_(steps) {
    if (per_row) return;
    float low = 0, high = 0;
    for (int64_t i = 0; i < m; ++i) extend(data + i * row, k, low, high);
    grid_ = grid_between(low, high, steps);
  }
  RowGrid fill(int64_t row, uint8_t* to) const override {
    const T* from = data_ + row * row_;
    RowGrid grid = grid_;
    if (per_row_) {
      float low = 0, high = 0;
      extend(from, k_, low, high);
      grid = grid_between(low, high, steps_);
    }
    constexpr int64_t chunk = 256;
    float line[chunk];
    for (int64_t p = 0; p < k_; p += chunk) {
      const int64_t n = std::min(chunk, k_ - p);
      const float* values = line;
      if constexpr (std::is_same_v<T, float>)
        values = from + p;
      else
        for (int64_t i = 0; i < n; ++i) line[i] = float(from[p + i]);
      cpu::products::quantize_row(values, n, grid.scale, grid.zero, to + p);
    }
    if (steps_ < 255)
      for (int64_t p = 0; p < k_; ++p) to[p] = std::min<uint8_t>(to[p], uint8_t(steps_));
    return grid;
  }

 private:
  const T* data_;
  const int64_t k_, row_;
  const bool per_row_;
  const int steps_;
  RowGrid grid_;
};

PackedShape shape_of(const char* name, const Tensor& weight) {
  FL_CHECK(weight.dim() == 2 && weight.dtype() == DType::Int8, "[", name,
           "] expected a matrix of int8 as weight, got ", weight.sizes(), " of ", name_of(weight.dtype()));
  return {weight.size(0), weight.size(1), 1};
}

Tensor int8_pack(const Tensor& weight) {
  const PackedShape shape = shape_of("_int8_pack", weight);
  if (weight.is_meta()) return packed_rows(nullptr, shape, weight.device());
  return packed_rows(contiguous(weight).data<int8_t>(), shape, weight.device());
}

// Checks packed weights, or packs them now.
Tensor packed_of(const char* name, const Tensor& weight, const Tensor& packed, PackedShape shape) {
  if (!packed.defined()) return int8_pack(weight);
  check_packed(name, packed, shape);
  return packed;
}

Tensor result_of(const char* name, const Tensor& x, PackedShape shape, DType dtype) {
  FL_CHECK(x.dim() >= 1 && x.size(-1) == shape.k, "[", name, "] expected an input with ", shape.k,
           " features, got ", x.sizes());
  Dims sizes(x.sizes());
  sizes.back() = shape.rows;
  return empty(sizes, {dtype, x.device()});
}

Tensor int8_linear(const Tensor& input, double input_scale, int64_t input_zero_point, const Tensor& weight,
                   const Tensor& packed, const Tensor& weight_scales, const Tensor& weight_zero_points,
                   const Tensor& bias, double output_scale, int64_t output_zero_point,
                   std::optional<DType> output_dtype, std::string_view post_op, const Tensor& other,
                   double other_scale, int64_t other_zero_point) {
  constexpr const char* name = "_int8_linear";
  check_bytes(name, input, input_zero_point);
  const PackedShape shape = shape_of(name, weight);
  const Tensor out = result_of(name, input, shape, result_dtype(name, output_dtype));
  const Finishing finishing(name, out, shape.rows,
                            {weight_scales, weight_zero_points, bias, output_scale, output_zero_point,
                             post_op, other, other_scale, other_zero_point});
  const Tensor laid = packed_of(name, weight, packed, shape);
  if (out.is_meta() || out.numel() == 0) return out;
  const Tensor rows = contiguous(input);
  const StoredRows source(rows.raw(), input.dtype() == DType::Int8, shape.k, shape.k,
                          {float(input_scale), int32_t(input_zero_point)});
  cpu::products::multiply_bytes(out.numel() / shape.rows, source, group_of(laid, shape, 0),
                                finishing.columns_from(0, shape.rows));
  return out;
}

Tensor int8_linear_dynamic(const Tensor& input, const Tensor& weight, const Tensor& packed,
                           const Tensor& weight_scales, const Tensor& weight_zero_points, const Tensor& bias,
                           bool reduce_range, bool per_row, std::string_view post_op) {
  constexpr const char* name = "_int8_linear_dynamic";
  FL_CHECK(input.dtype() == DType::Float || input.dtype() == DType::BFloat16,
           "[_int8_linear_dynamic] expected an input of float32 or bfloat16, got ", name_of(input.dtype()));
  const PackedShape shape = shape_of(name, weight);
  const Tensor out = result_of(name, input, shape, input.dtype());
  const Finishing finishing(name, out, shape.rows,
                            {weight_scales, weight_zero_points, bias, 1.0, 0, post_op, Tensor(), 1.0, 0});
  const Tensor laid = packed_of(name, weight, packed, shape);
  if (out.is_meta() || out.numel() == 0) return out;
  const Tensor rows = contiguous(input);
  const int64_t m = out.numel() / shape.rows, k = shape.k;
  const int steps = reduce_range ? 127 : 255;
  const auto multiply = [&](const ByteRows& source) {
    cpu::products::multiply_bytes(m, source, group_of(laid, shape, 0), finishing.columns_from(0, shape.rows));
  };
  if (input.dtype() == DType::Float)
    multiply(FloatRows<float>(rows.data<float>(), m, k, k, per_row, steps));
  else
    multiply(FloatRows<BFloat16>(rows.data<BFloat16>(), m, k, k, per_row, steps));
  return out;
}

Tensor int_mm(const Tensor& self, const Tensor& mat2) {
  FL_CHECK(self.dim() == 2 && mat2.dim() == 2 && self.size(1) == mat2.size(0),
           "[_int_mm] expected (m, k) @ (k, n), got ", self.sizes(), " @ ", mat2.sizes());
  FL_CHECK((self.dtype() == DType::Int8 || self.dtype() == DType::UInt8) && mat2.dtype() == DType::Int8,
           "[_int_mm] expected matrices of int8, got ", name_of(self.dtype()), " and ",
           name_of(mat2.dtype()));
  const int64_t m = self.size(0), k = self.size(1), n = mat2.size(1);
  const Tensor out = empty({m, n}, {DType::Int32, self.device()});
  if (out.is_meta() || out.numel() == 0) return out;
  const Tensor rows = contiguous(self);
  const StoredRows source(rows.raw(), self.dtype() == DType::Int8, k, k, {1.0f, 0});
  if (cpu::products::multiplies_few_rows(m, k, mat2.stride(0), mat2.stride(1))) {
    cpu::products::multiply_few_rows(m, source, k, n, mat2.data<int8_t>(), mat2.stride(0), mat2.stride(1),
                                     out.data<int32_t>());
    return out;
  }
  const int64_t panels = cpu::products::packed_byte_panels(k, n);
  const Tensor packed = empty({panels + cpu::products::packed_byte_columns(n)}, {DType::Int32, Device()});
  auto* to = reinterpret_cast<uint32_t*>(packed.data<int32_t>());
  int32_t* sums = packed.data<int32_t>() + panels;
  cpu::products::pack_bytes(k, n, mat2.data<int8_t>(), mat2.stride(0), mat2.stride(1), to, sums);
  ByteFinish finish;
  finish.out = out.raw(), finish.out_dtype = DType::Int32, finish.out_row = n;
  cpu::products::multiply_bytes(m, source, {k, n, to, sums}, finish);
  return out;
}

FL_KERNEL("_int_mm", int_mm, kCpu);
FL_KERNEL("_int8_pack", int8_pack, kCpu);
FL_KERNEL("_int8_linear", int8_linear, kCpu);
FL_KERNEL("_int8_linear_dynamic", int8_linear_dynamic, kCpu);

}  // namespace
}  // namespace fl

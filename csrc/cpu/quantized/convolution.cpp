// Convolutions of eight bits: products of rows of bytes, a row the window under a position of the output.
//
// Activations lie channels-last, so that a window is a few runs of memory. Kernels read these themselves
// (direct_convolution.cpp), or rows are gathered for some hundred positions at a time, while the kernel
// packs. Kernels of one channel each (depthwise) are added up tap by tap.
#include <cstring>
#include <vector>

#include "cpu/gemm/byte_finish.h"
#include "cpu/quantized/convolution.h"
#include "cpu/quantized/packed.h"
#include "dispatch/kernel.h"

namespace fl {
namespace {

using namespace cpu::quantized;
using cpu::products::ByteFinish;
using cpu::products::ByteRows;
using cpu::products::ByteWindow;
using cpu::products::kUnitWidth;
using cpu::products::Range;
using cpu::products::RowGrid;

int64_t argument(const char* name, IntSpan values, int i, int dims) {
  FL_CHECK(values.size() == 1 || static_cast<int>(values.size()) == dims, "[", name, "] expected 1 or ", dims,
           " numbers for each of stride, padding and dilation, got ", values.size());
  return values.size() == 1 ? values[0] : values[static_cast<size_t>(i)];
}

Geometry geometry_of(const char* name, const Tensor& input, const Tensor& weight, IntSpan stride,
                     IntSpan padding, IntSpan dilation, int64_t groups) {
  const int dims = static_cast<int>(weight.dim()) - 2;
  FL_CHECK(dims >= 1 && dims <= 3 && input.dim() == weight.dim() && weight.dtype() == DType::Int8 &&
               groups > 0 && input.size(1) == weight.size(1) * groups && weight.size(0) % groups == 0,
           "[", name,
           "] expected an input (n, c, ...) and a weight (o, c / groups, ...) of int8 with 1 to 3 spatial ",
           "dimensions, got ", input.sizes(), " and ", weight.sizes(), " in ", groups, " groups");
  Geometry g;
  g.batch = input.size(0), g.channels = input.size(1), g.outputs = weight.size(0), g.groups = groups;
  for (int i = 0; i < dims; ++i) {
    const int d = 3 - dims + i;
    g.in[d] = input.size(2 + i), g.kernel[d] = weight.size(2 + i);
    g.stride[d] = argument(name, stride, i, dims), g.padding[d] = argument(name, padding, i, dims);
    g.dilation[d] = argument(name, dilation, i, dims);
    FL_CHECK(g.stride[d] > 0 && g.dilation[d] > 0 && g.padding[d] >= 0, "[", name,
             "] expected positive strides and dilations and no negative padding, got ", stride, ", ",
             dilation, " and ", padding);
    const int64_t reach = g.in[d] + 2 * g.padding[d] - g.dilation[d] * (g.kernel[d] - 1) - 1;
    FL_CHECK(reach >= 0, "[", name, "] expected a kernel no larger than the padded input, got ",
             weight.sizes(), " for ", input.sizes());
    g.out[d] = reach / g.stride[d] + 1;
  }
  return g;
}

// A tensor of such sizes with channels last in memory.
Tensor channels_last(IntSpan sizes, Options options) {
  Dims strides(sizes);
  int64_t step = sizes[1];
  strides[1] = 1;
  for (size_t d = sizes.size() - 1; d >= 2; --d) strides[d] = step, step *= sizes[d];
  strides[0] = step;
  return empty_strided(sizes, strides, options);
}

Tensor in_channels_last(const Tensor& x) {
  const Tensor laid = channels_last(x.sizes(), {x.dtype(), x.is_meta() ? x.device() : Device()});
  if (laid.strides() == x.strides()) return x;
  copy_into(laid, x);
  return laid;
}

// The windows of one group's channels.
class WindowRows : public ByteRows {
 public:
  WindowRows(const Geometry& g, const void* data, bool is_signed, int64_t group, RowGrid grid)
      : g_(g),
        data_(static_cast<const uint8_t*>(data) + group * g.group_channels()),
        is_signed_(is_signed),
        grid_(grid) {
    if (is_signed) grid_.zero += 128;
    const bool whole = g.group_channels() % kRunMultiple == 0;
    if (!is_signed && whole && g.is_pointwise()) direct = data_, row_stride = g.channels, direct_grid = grid_;
  }

  RowGrid fill(int64_t row, uint8_t* to) const override {
    const int64_t n = row / g_.positions(), p = row % g_.positions();
    const int64_t z = p / (g_.out[1] * g_.out[2]), y = p / g_.out[2] % g_.out[1], x = p % g_.out[2];
    const int64_t each = g_.group_channels(), run = packed_run(g_.kernel[2], each);
    const int64_t rest = run - g_.kernel[2] * each;
    for (int64_t i = 0; i < g_.kernel[0]; ++i)
      for (int64_t j = 0; j < g_.kernel[1]; ++j, to += run) {
        const int64_t zi = g_.under(0, z, i), yi = g_.under(1, y, j);
        std::memset(to + run - rest, grid_.zero, size_t(rest));
        if (!g_.inside(0, zi) || !g_.inside(1, yi))
          std::memset(to, grid_.zero, size_t(run));
        else
          fill_run(data_ + ((n * g_.in[0] + zi) * g_.in[1] + yi) * g_.in[2] * g_.channels, x, to);
      }
    return grid_;
  }

 private:
  void copy(const uint8_t* from, uint8_t* to, int64_t n) const {
    if (is_signed_)
      cpu::products::flip_signs(from, to, n);
    else
      std::memcpy(to, from, size_t(n));
  }

  // The taps of one line of the kernel, over a line of the input.
  void fill_run(const uint8_t* line, int64_t x, uint8_t* to) const {
    const int64_t each = g_.group_channels(), first = g_.under(2, x, 0), taps = g_.kernel[2];
    if (g_.groups == 1 && g_.dilation[2] == 1 && first >= 0 && first + taps <= g_.in[2])
      return copy(line + first * each, to, taps * each);
    for (int64_t k = 0; k < taps; ++k, to += each) {
      const int64_t at = g_.under(2, x, k);
      if (g_.inside(2, at))
        copy(line + at * g_.channels, to, each);
      else
        std::memset(to, grid_.zero, size_t(each));
    }
  }

  const Geometry& g_;
  const uint8_t* data_;
  const bool is_signed_;
  RowGrid grid_;
};

PackedShape packed_shape(const Tensor& weight, int64_t groups) {
  int64_t lines = 1;
  for (int64_t d = 2; d + 1 < weight.dim(); ++d) lines *= weight.size(d);
  const bool squares = weight.dim() == 4 && weight.size(2) == 3 && weight.size(3) == 3 && groups == 1;
  return {weight.size(0), lines * packed_run(weight.size(-1), weight.size(1)), groups,
          squares ? winograd_units(weight.size(0), weight.size(1)) : 0};
}

// Rows of (kernel..., channels), as windows lie, whose lines are whole runs.
Tensor rows_of_runs(const Tensor& weight) {
  const Tensor laid = in_channels_last(weight);
  const int64_t line = weight.size(-1) * weight.size(1), run = packed_run(weight.size(-1), weight.size(1));
  if (line == run || weight.numel() == 0) return laid;
  const int64_t lines = weight.numel() / line;
  const Tensor rows = empty({lines, run}, {DType::Int8, Device()});
  const auto* from = reinterpret_cast<const int8_t*>(laid.raw());
  for (int64_t i = 0; i < lines; ++i) {
    int8_t* to = rows.data<int8_t>() + i * run;
    std::copy_n(from + i * line, line, to);
    std::fill(to + line, to + run, int8_t(0));
  }
  return rows;
}

bool is_depthwise(const Tensor& weight, int64_t groups) {
  return weight.size(1) == 1 && groups == weight.size(0) && groups > 1;
}

// Rows of runs; of depthwise kernels one row of channels for each tap.
Tensor int8_convolution_pack(const Tensor& weight, int64_t groups) {
  FL_CHECK(weight.dim() >= 3 && weight.dim() <= 5 && weight.dtype() == DType::Int8 && groups > 0 &&
               weight.size(0) % groups == 0,
           "[_int8_convolution_pack] expected a weight of int8 with 1 to 3 spatial dimensions for ", groups,
           " groups, got ", weight.sizes(), " of ", name_of(weight.dtype()));
  const PackedShape shape = packed_shape(weight, groups);
  if (is_depthwise(weight, groups)) {
    const int64_t taps = weight.numel() / shape.rows;
    const Tensor out = empty({weight.numel()}, {DType::UInt8, weight.device()});
    if (out.is_meta()) return out;
    const Tensor rows = contiguous(weight);
    for (int64_t c = 0; c < shape.rows; ++c)
      for (int64_t t = 0; t < taps; ++t)
        out.data<uint8_t>()[t * shape.rows + c] = uint8_t(rows.data<int8_t>()[c * taps + t]);
    return out;
  }
  if (weight.is_meta()) return packed_rows(nullptr, shape, weight.device());
  const Tensor rows = rows_of_runs(weight);
  const auto* bytes = reinterpret_cast<const int8_t*>(rows.raw());
  const Tensor out = packed_rows(bytes, shape, weight.device());
  if (shape.more > 0) pack_winograd(bytes, weight.size(0), weight.size(1), other_form(out, shape));
  return out;
}

// ---- depthwise ---------------------------------------------------------------------------------

// Sums of up to kUnitWidth channels of one position, over the taps within the input.
void add_taps(const Geometry& g, const uint8_t* image, int64_t position, int64_t c0, int64_t count,
              bool is_signed, int32_t zero, const int8_t* weights, const int32_t* weight_zeros,
              int32_t* sums) {
  const int64_t z = position / (g.out[1] * g.out[2]), y = position / g.out[2] % g.out[1],
                x = position % g.out[2];
  std::fill_n(sums, kUnitWidth, 0);
  int64_t tap = 0;
  for (int64_t i = 0; i < g.kernel[0]; ++i)
    for (int64_t j = 0; j < g.kernel[1]; ++j)
      for (int64_t k = 0; k < g.kernel[2]; ++k, ++tap) {
        const int64_t zi = g.under(0, z, i), yi = g.under(1, y, j), xi = g.under(2, x, k);
        if (!g.inside(0, zi) || !g.inside(1, yi) || !g.inside(2, xi)) continue;
        const uint8_t* a = image + ((zi * g.in[1] + yi) * g.in[2] + xi) * g.channels + c0;
        const int8_t* w = weights + tap * g.channels + c0;
        int16_t values[kUnitWidth];
        if (is_signed)
          for (int64_t c = 0; c < count; ++c) values[c] = int16_t(int8_t(a[c]) - zero);
        else
          for (int64_t c = 0; c < count; ++c) values[c] = int16_t(a[c] - zero);
        if (weight_zeros)
          for (int64_t c = 0; c < count; ++c) sums[c] += values[c] * (w[c] - weight_zeros[c0 + c]);
        else
          for (int64_t c = 0; c < count; ++c) sums[c] += values[c] * w[c];
      }
}

void multiply_depthwise(const Geometry& g, const Tensor& input, const Tensor& packed, RowGrid grid,
                        ByteFinish finish) {
  const auto* weights = reinterpret_cast<const int8_t*>(packed.raw());
  const bool is_signed = input.dtype() == DType::Int8;
  const int32_t* weight_zeros = finish.b_zeros;
  finish.b_zeros = nullptr;  // taken out with the taps
  const int64_t image = g.in[0] * g.in[1] * g.in[2] * g.channels;
  constexpr int64_t block = 64;  // positions
  const int64_t rows = g.batch * g.positions(), work = std::max<int64_t>(1, g.taps() * g.channels);
  parallel_for(rows, std::max<int64_t>(1, kGrain / work), [&](int64_t begin, int64_t end) {
    std::vector<int32_t> sums(block * kUnitWidth);
    const std::vector<RowGrid> grids(block, RowGrid{grid.scale, 0});
    for (int64_t r0 = begin; r0 < end; r0 += block) {
      const int64_t high = std::min(block, end - r0);
      for (int64_t c0 = 0; c0 < g.channels; c0 += kUnitWidth) {
        const int64_t count = std::min<int64_t>(kUnitWidth, g.channels - c0);
        for (int64_t r = 0; r < high; ++r)
          add_taps(g, reinterpret_cast<const uint8_t*>(input.raw()) + (r0 + r) / g.positions() * image,
                   (r0 + r) % g.positions(), c0, count, is_signed, grid.zero, weights, weight_zeros,
                   sums.data() + r * kUnitWidth);
        finish_bytes(finish, ByteWindow{sums.data(), kUnitWidth, r0, high, c0, count, grids.data(), nullptr,
                                        nullptr, 0});
      }
    }
  });
}

// ---- the operator ------------------------------------------------------------------------------

Tensor int8_convolution(const Tensor& input, double input_scale, int64_t input_zero_point,
                        const Tensor& weight, const Tensor& packed, const Tensor& weight_scales,
                        const Tensor& weight_zero_points, const Tensor& bias, IntSpan stride, IntSpan padding,
                        IntSpan dilation, int64_t groups, double output_scale, int64_t output_zero_point,
                        std::optional<DType> output_dtype, std::string_view post_op, const Tensor& other,
                        double other_scale, int64_t other_zero_point) {
  constexpr const char* name = "_int8_convolution";
  check_bytes(name, input, input_zero_point);
  const Geometry g = geometry_of(name, input, weight, stride, padding, dilation, groups);
  Dims sizes(input.sizes());
  sizes[1] = g.outputs;
  for (size_t d = 2; d < sizes.size(); ++d) sizes[d] = g.out[3 - sizes.size() + d];
  const Tensor out = channels_last(sizes, {result_dtype(name, output_dtype), input.device()});
  const Finishing finishing(name, out, g.outputs,
                            {weight_scales, weight_zero_points, bias, output_scale, output_zero_point,
                             post_op, other, other_scale, other_zero_point});
  const PackedShape shape = packed_shape(weight, groups);
  const Tensor laid = packed.defined() ? packed : int8_convolution_pack(weight, groups);
  const bool depthwise = g.is_depthwise();
  if (!depthwise) check_packed(name, laid, shape);
  FL_CHECK(!depthwise || laid.is_meta() || laid.numel() == weight.numel(),
           "[_int8_convolution] expected packed weights of ", weight.numel(), " bytes, got ", laid.numel());
  if (out.is_meta() || out.numel() == 0) return out;
  const Tensor x = in_channels_last(input);
  const RowGrid grid{float(input_scale), int32_t(input_zero_point)};
  if (depthwise) {
    multiply_depthwise(g, x, laid, grid, finishing.columns_from(0, g.outputs));
    return out;
  }
  const bool is_signed = x.dtype() == DType::Int8;
  for (int64_t group = 0; group < groups; ++group) {
    const cpu::products::PackedBytes weights = group_of(laid, shape, group);
    const ByteFinish finish = finishing.columns_from(group * (g.outputs / groups), g.outputs);
    if (shape.more > 0 && is_winograd(g, finish.b_zeros != nullptr)) {
      multiply_winograd(g, x.raw(), is_signed, grid, other_form(laid, shape), finish);
      continue;
    }
    if (is_direct(g, finish.b_zeros != nullptr)) {
      multiply_direct(g, x.raw(), is_signed, grid, group, weights, finish);
      continue;
    }
    const WindowRows source(g, x.raw(), is_signed, group, grid);
    cpu::products::multiply_bytes(g.batch * g.positions(), source, weights, finish);
  }
  return out;
}

FL_KERNEL("_int8_convolution_pack", int8_convolution_pack, kCpu);
FL_KERNEL("_int8_convolution", int8_convolution, kCpu);

}  // namespace
}  // namespace fl

// Convolution on the CPU: see ops/convolution.h.
//
// Copies between layouts and types, the choice of the path, and the unfold-and-multiply path of the types
// that have no other.  bfloat16 and half are converted to float while they are rearranged, which is also
// faster than oneDNN's own bfloat16 on processors that only emulate it; others run bfloat16 as it is.
#include "ops/convolution.h"

#include <algorithm>
#include <complex>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "cpu/convolution/passes.h"
#include "cpu/engine/capability.h"
#include "cpu/engine/onednn.h"
#include "cpu/engine/transpose.h"
#include "cpu/gemm/gemm.h"

namespace fl::cpu {

using namespace convolutions;

namespace {

// ---- copies between layouts and types ----------------------------------------------------------

// dst[c * dst_c + l * dst_l] = src[c * src_c + l * src_l].
template <class D, class S>
void copy_plane(const S* src, int64_t src_c, int64_t src_l, D* dst, int64_t dst_c, int64_t dst_l,
                int64_t channels, int64_t length) {
  if (src_c == 1 && dst_c == 1) {  // let l be the contiguous one
    std::swap(src_c, src_l);
    std::swap(dst_c, dst_l);
    std::swap(channels, length);
  }
  if (src_l == 1 && dst_l == 1) {
    for (int64_t c = 0; c < channels; ++c)
#pragma omp simd
      for (int64_t l = 0; l < length; ++l) dst[c * dst_c + l] = D(src[c * src_c + l]);
    return;
  }
  if (src_c == 1 && dst_l == 1) {  // let the source be contiguous in l, the destination in c
    std::swap(src_c, src_l);
    std::swap(dst_c, dst_l);
    std::swap(channels, length);
  }
  // Blocks of 16 x 16 touch each cache line once.
  for (int64_t l0 = 0; l0 < length; l0 += 16) {
    const int64_t l1 = std::min<int64_t>(l0 + 16, length);
    for (int64_t c0 = 0; c0 < channels; c0 += 16) {
      const int64_t c1 = std::min<int64_t>(c0 + 16, channels);
      if constexpr (std::is_same_v<D, float> && std::is_same_v<S, float>) {
        if (src_l == 1 && dst_c == 1 && l1 - l0 == 16 && c1 - c0 == 16) {
          for (int64_t l = l0; l < l1; l += 4)
            for (int64_t c = c0; c < c1; c += 4) {
              const float* s = src + c * src_c + l;
              float* d = dst + l * dst_l + c;
              const float* const rows[4] = {s, s + src_c, s + 2 * src_c, s + 3 * src_c};
              float* const columns[4] = {d, d + dst_l, d + 2 * dst_l, d + 3 * dst_l};
              transpose_4(rows, columns);
            }
          continue;
        }
      }
      for (int64_t l = l0; l < l1; ++l)
        for (int64_t c = c0; c < c1; ++c) dst[c * dst_c + l * dst_l] = D(src[c * src_c + l * src_l]);
    }
  }
}

// Copies an activation from one layout and type to another.
template <class D, class S>
void copy_activation(const S* src, const View& from, D* dst, const View& to) {
  // Spatial dimensions that follow each other in both layouts are walked as one.
  int first = from.dims - 1;
  int64_t length = from.dims > 2 ? from.size[first] : 1;
  while (first > 2 && from.stride[first - 1] == from.stride[first] * from.size[first] &&
         to.stride[first - 1] == to.stride[first] * to.size[first])
    length *= from.size[--first];
  const int64_t outer = volume(from.size + 2, first - 2);
  const int64_t channels = from.size[1], last = from.dims - 1;
  // Enough pieces to share: split the walked length too where the batch is small.
  const int threads = num_threads();
  const int64_t planes = from.size[0] * outer;
  const int64_t cuts =
      threads > 1 && planes < 4 * threads ? std::min<int64_t>(4 * threads, (length + 63) / 64) : 1;
  for_each_divided(planes * cuts, double(from.elements()), [&](int64_t u) {
    const int64_t n = u / (outer * cuts), o = u / cuts % outer, cut = u % cuts;
    int64_t begin = length * cut / cuts, end = length * (cut + 1) / cuts;
    int64_t at_src = n * from.stride[0] + begin * from.stride[last];
    int64_t at_dst = n * to.stride[0] + begin * to.stride[last];
    int64_t rest = o;
    for (int d = first - 1; d >= 2; --d) {
      at_src += rest % from.size[d] * from.stride[d];
      at_dst += rest % from.size[d] * to.stride[d];
      rest /= from.size[d];
    }
    copy_plane(src + at_src, from.stride[1], from.stride[last], dst + at_dst, to.stride[1], to.stride[last],
               channels, end - begin);
  });
}

template <class D, class S>
void copy_flat(const S* src, D* dst, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) dst[i] = D(src[i]);
}

// ---- unfold and multiply -----------------------------------------------------------------------

// The geometry widened to three spatial dimensions (leading ones of size 1).
struct Space {
  int64_t in[3], out[3], kernel[3], stride[3], dilation[3], padding[3], in_stride[3];

  explicit Space(const ConvArgs& g) {
    const int missing = 3 - g.ndim;
    for (int i = 0; i < 3; ++i) {
      const bool real = i >= missing;
      const int j = i - missing;
      in[i] = real ? g.in_size[j] : 1;
      out[i] = real ? g.out_size[j] : 1;
      kernel[i] = real ? g.kernel[j] : 1;
      stride[i] = real ? g.stride[j] : 1;
      dilation[i] = real ? g.dilation[j] : 1;
      padding[i] = real ? g.padding[j] : 0;
      in_stride[i] = real ? g.in_strides[2 + j] : 0;
    }
  }

  // Calls use(offset in the input or -1, l - begin) for output positions l in [begin, end) as seen
  // through kernel element `tap`.
  template <class Use>
  void walk(int64_t tap, int64_t begin, int64_t end, Use&& use) const {
    int64_t start[3];
    for (int i = 2; i >= 0; --i) {
      start[i] = tap % kernel[i] * dilation[i] - padding[i];
      tap /= kernel[i];
    }
    for (int64_t l = begin; l < end;) {
      const int64_t x = l % out[2], y = l / out[2] % out[1], z = l / (out[2] * out[1]);
      const int64_t iz = z * stride[0] + start[0], iy = y * stride[1] + start[1];
      const bool inside = iz >= 0 && iz < in[0] && iy >= 0 && iy < in[1];
      const int64_t row = iz * in_stride[0] + iy * in_stride[1];
      const int64_t stop = std::min(end, l - x + out[2]);
      int64_t ix = x * stride[2] + start[2];
      for (; l < stop; ++l, ix += stride[2])
        use(inside && ix >= 0 && ix < in[2] ? row + ix * in_stride[2] : int64_t(-1), l - begin);
    }
  }
};

template <class T>
void fill_zero(T* data, int64_t n) {
  std::fill(data, data + n, T(0));
}

// Sets the gradient of the input to the bias of its channel (of a transposed convolution), or to zero.
template <class T>
void fill_grad_input(const ConvArgs& g, const Space& space) {
  const View v = view_of(g, false);
  const int64_t positions = volume(g.in_size, g.ndim);
  for (int64_t n = 0; n < g.batch; ++n)
    for (int64_t c = 0; c < g.in_channels; ++c) {
      T* plane = static_cast<T*>(g.grad_input) + n * v.stride[0] + c * v.stride[1];
      const T value = g.bias ? static_cast<const T*>(g.bias)[c] : T(0);
      for (int64_t i = 0; i < positions; ++i) {
        const int64_t x = i % space.in[2], y = i / space.in[2] % space.in[1];
        const int64_t z = i / (space.in[2] * space.in[1]);
        plane[z * space.in_stride[0] + y * space.in_stride[1] + x * space.in_stride[2]] = value;
      }
    }
}

// The product of one group with `count` unfolded columns; offsets are those of the group in the operands.
template <class T>
GemmArgs unfolded_product(const ConvArgs& g, Pass pass, T* columns, int64_t count, int64_t group,
                          int64_t out_at) {
  const int64_t rows = g.in_channels / g.groups * volume(g.kernel, g.ndim),
                out_each = g.out_channels / g.groups;
  const int64_t weight_at = group * out_each * rows, out_step = g.out_strides[g.ndim + 1];
  GemmArgs p;
  p.dtype = g.dtype;
  switch (pass) {
    case Pass::Forward:  // output^T = columns^T @ weight^T + bias
      p.m = count, p.n = out_each, p.k = rows;
      p.a = columns, p.a_row = 1, p.a_col = count;
      p.b = static_cast<const T*>(g.weight) + weight_at, p.b_row = 1, p.b_col = rows;
      p.c = static_cast<T*>(g.output) + out_at, p.c_row = out_step, p.c_col = g.out_strides[1];
      if (g.bias) p.bias = static_cast<const T*>(g.bias) + group * out_each;
      break;
    case Pass::BackwardData:  // columns = weight^T @ grad_output
      p.m = rows, p.n = count, p.k = out_each;
      p.a = static_cast<const T*>(g.weight) + weight_at, p.a_row = 1, p.a_col = rows;
      p.b = static_cast<const T*>(g.grad_output) + out_at, p.b_row = g.out_strides[1], p.b_col = out_step;
      p.c = columns, p.c_row = count;
      break;
    case Pass::BackwardWeights:  // grad_weight += grad_output @ columns^T
      p.m = out_each, p.n = rows, p.k = count;
      p.a = static_cast<const T*>(g.grad_output) + out_at, p.a_row = g.out_strides[1], p.a_col = out_step;
      p.b = columns, p.b_row = 1, p.b_col = count;
      p.c = static_cast<T*>(g.grad_weight) + weight_at, p.c_row = rows;
      p.beta = 1;
      break;
  }
  return p;
}

// g's output side has its spatial dimensions adjoining, so one stride walks them all.
template <class T>
void run_unfolded(const ConvArgs& g, Pass pass) {
  const Space space(g);
  const int64_t taps = volume(g.kernel, g.ndim), length = volume(g.out_size, g.ndim);
  const int64_t in_each = g.in_channels / g.groups, out_each = g.out_channels / g.groups;
  const int64_t rows = in_each * taps;
  const int64_t out_step = g.out_strides[g.ndim + 1];
  const int64_t most = std::max<int64_t>(64, (int64_t(1) << 21) / std::max<int64_t>(rows, 1));
  const int64_t chunk = std::min(length, most);
  const Scratch scratch(2, size_t(rows) * chunk * sizeof(T));
  T* columns = scratch.as<T>();

  if (pass == Pass::BackwardWeights) fill_zero(static_cast<T*>(g.grad_weight), g.out_channels * rows);
  if (pass == Pass::BackwardData) fill_grad_input<T>(g, space);
  for (int64_t n = 0; n < g.batch; ++n)
    for (int64_t l0 = 0; l0 < length; l0 += chunk)
      for (int64_t group = 0; group < g.groups; ++group) {
        const int64_t l1 = std::min(l0 + chunk, length), count = l1 - l0;
        const int64_t in_at = n * g.in_strides[0] + group * in_each * g.in_strides[1];
        const int64_t out_at = n * g.out_strides[0] + group * out_each * g.out_strides[1] + l0 * out_step;
        if (pass != Pass::BackwardData) {
          const T* input = static_cast<const T*>(g.input) + in_at;
          for_each_divided(rows, double(rows) * count, [&](int64_t r) {
            const T* plane = input + r / taps * g.in_strides[1];
            T* column = columns + r * count;
            space.walk(r % taps, l0, l1,
                       [&](int64_t at, int64_t l) { column[l] = at < 0 ? T(0) : plane[at]; });
          });
        }
        gemm(unfolded_product(g, pass, columns, count, group, out_at));
        if (pass == Pass::BackwardData) {
          T* grad = static_cast<T*>(g.grad_input) + in_at;
          for_each_divided(in_each, double(rows) * count, [&](int64_t c) {
            for (int64_t tap = 0; tap < taps; ++tap) {
              T* plane = grad + c * g.in_strides[1];
              const T* column = columns + (c * taps + tap) * count;
              space.walk(tap, l0, l1, [&](int64_t at, int64_t l) {
                if (at >= 0) plane[at] = T(plane[at] + column[l]);
              });
            }
          });
        }
      }
}

// ---- passes ------------------------------------------------------------------------------------

// grad_bias[c] = sum of grad_output over batch and positions, g's output side walked by one stride.
template <class T>
void sum_bias(const ConvArgs& g) {
  const int64_t length = volume(g.out_size, g.ndim), step = g.out_strides[g.ndim + 1];
  for (int64_t c = 0; c < g.out_channels; ++c) {
    T sum(0);
    for (int64_t n = 0; n < g.batch; ++n) {
      const T* p = static_cast<const T*>(g.grad_output) + n * g.out_strides[0] + c * g.out_strides[1];
      T part(0);  // summing in pieces keeps rounding small
      for (int64_t l = 0; l < length; ++l) part = T(part + p[l * step]);
      sum = T(sum + part);
    }
    static_cast<T*>(g.grad_bias)[c] = sum;
  }
}

// One pass in type T, on activations whose output side is dense; channels-last too for oneDNN.
template <class T>
void run_dense(const ConvArgs& g, Pass pass, bool try_onednn) {
  const bool empty = !g.batch || !g.in_channels || !g.out_channels || !volume(g.out_size, g.ndim) ||
                     !volume(g.in_size, g.ndim) || !volume(g.kernel, g.ndim);
  if constexpr (std::is_same_v<T, float>) {
    const bool whole = try_onednn && !empty && (pass != Pass::BackwardWeights || g.grad_weight);
    if (whole && prefers_product(g, pass)) return run_product(g, pass);
    if (whole && run_onednn(g, pass)) {
      if (pass == Pass::BackwardData && g.bias) {
        const int64_t pixels = g.batch * volume(g.in_size, g.ndim), channels = g.in_channels;
        const float* bias = static_cast<const float*>(g.bias);
        float* grad = static_cast<float*>(g.grad_input);
        for_each_divided(pixels, double(pixels) * channels, [&](int64_t i) {
          for (int64_t c = 0; c < channels; ++c) grad[i * channels + c] += bias[c];
        });
      }
      return;
    }
  }
  (void)empty, (void)try_onednn;
  if (pass != Pass::BackwardWeights || g.grad_weight) run_unfolded<T>(g, pass);
  if (pass == Pass::BackwardWeights && g.grad_bias) sum_bias<T>(g);
}

constexpr int64_t kPointwiseLeast = 64;  // positions of an image, for products of its own

bool spatially_dense(const View& v) {
  for (int d = 2; d + 1 < v.dims; ++d)
    if (v.stride[d] != v.stride[d + 1] * v.size[d + 1]) return false;
  return true;
}

// Brings the operands (stored as S) into the type T and layout run_dense wants, runs it, and puts the
// results back where they belong.
template <class S, class T>
void run_pass(const ConvArgs& original, Pass pass) {
  ConvArgs g = original;
  constexpr bool same_type = std::is_same_v<S, T>;
  if (!same_type) g.dtype = DType::Float;
  const bool use_onednn = std::is_same_v<T, float> && onednn();
  const View in = view_of(g, false), out = view_of(g, true);
  if constexpr (std::is_same_v<S, float>) {
    if (is_pointwise(g) && volume(g.in_size, g.ndim) >= kPointwiseLeast && g.batch && g.in_channels &&
        g.out_channels && same_layout(in, channels_first(in)) && same_layout(out, channels_first(out)))
      return run_pointwise(g, pass);
  }
  const View dense_in = use_onednn ? channels_last(in) : channels_first(in);
  const View dense_out = use_onednn ? channels_last(out) : channels_first(out);
  // The unfolding path reads the input side with any strides.
  const bool move_in = !same_type || (use_onednn && !same_layout(in, dense_in));
  const bool move_out = !same_type || (use_onednn ? !same_layout(out, dense_out) : !spatially_dense(out));

  const Scratch in_room(0, move_in ? size_t(in.elements()) * sizeof(T) : 0);
  const Scratch out_room(1, move_out ? size_t(out.elements()) * sizeof(T) : 0);
  if (move_in || use_onednn) std::copy_n(dense_in.stride, kMaxDims, g.in_strides);
  if (move_out || use_onednn) std::copy_n(dense_out.stride, kMaxDims, g.out_strides);
  if (move_in && pass != Pass::BackwardData) {
    copy_activation(static_cast<const S*>(g.input), in, in_room.as<T>(), dense_in);
    g.input = in_room.as<T>();
  }
  if (move_in && pass == Pass::BackwardData) g.grad_input = in_room.as<T>();
  if (move_out && pass != Pass::Forward) {
    copy_activation(static_cast<const S*>(g.grad_output), out, out_room.as<T>(), dense_out);
    g.grad_output = out_room.as<T>();
  }
  if (move_out && pass == Pass::Forward) g.output = out_room.as<T>();

  const int64_t weights =
      g.groups ? g.out_channels * (g.in_channels / g.groups) * volume(g.kernel, g.ndim) : 0;
  const int64_t biases = std::max(g.in_channels, g.out_channels);
  if constexpr (!same_type) {
    const Scratch room(3, size_t(weights + biases) * sizeof(T));
    T *w = room.as<T>(), *b = w + weights;
    if (pass != Pass::BackwardWeights) {
      copy_flat(static_cast<const S*>(g.weight), w, weights);
      g.weight = w;
      if (g.bias) {
        copy_flat(static_cast<const S*>(g.bias), b, pass == Pass::Forward ? g.out_channels : g.in_channels);
        g.bias = b;
      }
    }
    if (g.grad_weight) g.grad_weight = w;
    if (g.grad_bias) g.grad_bias = b;
    run_dense<T>(g, pass, use_onednn);
    if (pass == Pass::BackwardWeights) {
      if (g.grad_weight) copy_flat(w, static_cast<S*>(original.grad_weight), weights);
      if (g.grad_bias) copy_flat(b, static_cast<S*>(original.grad_bias), g.out_channels);
    }
  } else {
    run_dense<T>(g, pass, use_onednn);
  }
  if (move_out && pass == Pass::Forward)
    copy_activation(out_room.as<T>(), dense_out, static_cast<S*>(original.output), out);
  if (move_in && pass == Pass::BackwardData)
    copy_activation(in_room.as<T>(), dense_in, static_cast<S*>(original.grad_input), in);
}

// One pass of bfloat16 as it is, where the processor multiplies it and oneDNN has a primitive for the case.
bool run_bfloat16(const ConvArgs& original, Pass pass) {
  const bool empty = !original.batch || !original.in_channels || !original.out_channels ||
                     !volume(original.out_size, original.ndim) || !volume(original.in_size, original.ndim);
  const bool whole = pass == Pass::Forward || (pass == Pass::BackwardWeights ? original.grad_weight != nullptr
                                                                             : original.bias == nullptr);
  if (!has_capability(Capability::Avx512Bf16) || !onednn() || empty || !whole) return false;
  ConvArgs g = original;
  const View in = view_of(g, false), out = view_of(g, true);
  const View dense_in = channels_last(in), dense_out = channels_last(out);
  std::copy_n(dense_in.stride, kMaxDims, g.in_strides);
  std::copy_n(dense_out.stride, kMaxDims, g.out_strides);
  if (!onednn_can_run(g, pass)) return false;

  const bool move_in = !same_layout(in, dense_in), move_out = !same_layout(out, dense_out);
  const Scratch in_room(0, move_in ? size_t(in.elements()) * sizeof(BFloat16) : 0);
  const Scratch out_room(1, move_out ? size_t(out.elements()) * sizeof(BFloat16) : 0);
  auto *in_moved = in_room.as<BFloat16>(), *out_moved = out_room.as<BFloat16>();
  const auto read = [](const void*& operand, const View& from, BFloat16* moved, const View& to) {
    copy_activation(static_cast<const BFloat16*>(operand), from, moved, to);
    operand = moved;
  };
  if (move_in && pass != Pass::BackwardData) read(g.input, in, in_moved, dense_in);
  if (move_in && pass == Pass::BackwardData) g.grad_input = in_moved;
  if (move_out && pass != Pass::Forward) read(g.grad_output, out, out_moved, dense_out);
  if (move_out && pass == Pass::Forward) g.output = out_moved;
  run_onednn(g, pass);
  if (move_out && pass == Pass::Forward)
    copy_activation(out_moved, dense_out, static_cast<BFloat16*>(original.output), out);
  if (move_in && pass == Pass::BackwardData)
    copy_activation(in_moved, dense_in, static_cast<BFloat16*>(original.grad_input), in);
  return true;
}

void run(const ConvArgs& g, Pass pass) {
  switch (g.dtype) {
    case DType::Float:
      return run_pass<float, float>(g, pass);
    case DType::BFloat16:
      if (run_bfloat16(g, pass)) return;
      return run_pass<BFloat16, float>(g, pass);
    case DType::Half:
      return run_pass<Half, float>(g, pass);
    case DType::Double:
      return run_pass<double, double>(g, pass);
    case DType::Int64:
      return run_pass<int64_t, int64_t>(g, pass);
    case DType::ComplexFloat:
      return run_pass<std::complex<float>, std::complex<float>>(g, pass);
    case DType::ComplexDouble:
      return run_pass<std::complex<double>, std::complex<double>>(g, pass);
    default:
      break;
  }
  throw std::runtime_error("[conv" + std::to_string(g.ndim) + "d] expected a dtype to compute with, got " +
                           name_of(g.dtype));
}

}  // namespace

FL_ATTACH(convolution_forward, CPU, [](const ConvArgs& args) { run(args, Pass::Forward); });
FL_ATTACH(convolution_backward_data, CPU, [](const ConvArgs& args) { run(args, Pass::BackwardData); });
FL_ATTACH(convolution_backward_weights, CPU, [](const ConvArgs& args) { run(args, Pass::BackwardWeights); });

}  // namespace fl::cpu

// Padding by what is there: reflect, replicate, circular. Each element of the result looks up the one it
// copies; each element of the gradient gathers its copies, so that sums do not change from run to run.
#include "cuda/engine/device.cuh"
#include "cuda/engine/rows.cuh"
#include "cuda/runtime/launch.h"
#include "dispatch/kernel.h"
#include "ops/layout.h"

namespace fl::cuda {

namespace {

constexpr int kPadded = 3;  // dimensions that can be padded

enum class PadMode : int8_t { Reflect, Replicate, Circular };

struct PadAxis {
  int inner, outer, low;
  Divider by;  // the size that is walked: outer for copies, inner for gradients
};

struct PadArgs {
  const char* in;
  char* out;
  PadAxis axis[kPadded];
  Divider by_channels;  // elements beside each other that no padding parts
  int64_t planes, in_plane, out_plane;
  uint32_t n;  // walked elements of a plane
  PadMode mode;
  DType dtype;
  int item;
};

__device__ __forceinline__ int source_of(const PadAxis& axis, PadMode mode, int i) {
  const int at = i - axis.low, last = axis.inner - 1;
  if (mode == PadMode::Reflect) return last - abs(last - abs(at));
  if (mode == PadMode::Replicate) return min(max(at, 0), last);
  return at < 0 ? at + axis.inner : at > last ? at - axis.inner : at;
}

// The padded positions that copy an inner one: itself and up to two images of it, or a run.
struct Copies {
  int position[3], count = 0;
  bool run;
  __device__ __forceinline__ Copies(const PadAxis& axis, PadMode mode, int i)
      : run(mode == PadMode::Replicate) {
    const int last = axis.inner - 1, here = i + axis.low;
    if (run) {
      const int first = max(i == 0 ? min(here, 0) : here, 0);
      const int end = min(i == last ? max(here + 1, axis.outer) : here + 1, axis.outer);
      position[0] = first;
      count = max(end - first, 0);
      return;
    }
    const bool reflect = mode == PadMode::Reflect;
    add(here, axis.outer);
    if (!reflect || i > 0) add(axis.low - (reflect ? i : axis.inner - i), axis.outer);
    if (!reflect || i < last) add(axis.low + (reflect ? 2 * last - i : axis.inner + i), axis.outer);
  }
  __device__ __forceinline__ void add(int at, int outer) {
    if (at < 0 || at >= outer) return;
    if (count == 0) position[0] = at;
    if (count == 1) position[1] = at;
    if (count == 2) position[2] = at;
    ++count;
  }
  __device__ __forceinline__ int at(int k) const {
    return run ? position[0] + k : k == 0 ? position[0] : k == 1 ? position[1] : position[2];
  }
};

struct Place {
  int at[kPadded];
  uint32_t channel;
  __device__ __forceinline__ Place(const PadArgs& a, uint32_t i) {
    uint32_t rest = a.by_channels.divide(i);
    channel = i - rest * a.by_channels.divisor;
#pragma unroll
    for (int d = kPadded - 1; d >= 0; --d) {
      const uint32_t next = a.axis[d].by.divide(rest);
      at[d] = static_cast<int>(rest - next * a.axis[d].by.divisor);
      rest = next;
    }
  }
};

// grid: (elements of a plane / 256, some planes)
template <class T>
__global__ void __launch_bounds__(256) copy_edges(const __grid_constant__ PadArgs a) {
  const uint32_t i = blockIdx.x * 256 + threadIdx.x;
  if (i >= a.n) return;
  const Place place(a, i);
  int64_t from = 0;
#pragma unroll
  for (int d = 0; d < kPadded; ++d) from = from * a.axis[d].inner + source_of(a.axis[d], a.mode, place.at[d]);
  const T* in = reinterpret_cast<const T*>(a.in) + from * a.by_channels.divisor + place.channel;
  T* out = reinterpret_cast<T*>(a.out) + i;
  for (int64_t plane = blockIdx.y; plane < a.planes; plane += gridDim.y)
    out[plane * a.out_plane] = in[plane * a.in_plane];
}

template <class T>
__global__ void __launch_bounds__(256) sum_edges(const __grid_constant__ PadArgs a) {
  const uint32_t i = blockIdx.x * 256 + threadIdx.x;
  if (i >= a.n) return;
  const Place place(a, i);
  const Copies z(a.axis[0], a.mode, place.at[0]), y(a.axis[1], a.mode, place.at[1]),
      x(a.axis[2], a.mode, place.at[2]);
  for (int64_t plane = blockIdx.y; plane < a.planes; plane += gridDim.y) {
    const char* in = a.in + (plane * a.in_plane + place.channel) * a.item;
    T sum = 0;
    for (int j = 0; j < z.count; ++j)
      for (int k = 0; k < y.count; ++k) {
        const int64_t row = (int64_t(z.at(j)) * a.axis[1].outer + y.at(k)) * a.axis[2].outer;
        for (int l = 0; l < x.count; ++l)
          sum += load<T>(in + (row + x.at(l)) * a.by_channels.divisor * a.item, a.dtype);
      }
    store<T>(a.out + (plane * a.out_plane + i) * a.item, a.dtype, sum);
  }
}

// What both directions share; `inner` are the sizes without padding.
PadArgs describe(const Tensor& from, const Tensor& to, IntSpan inner, IntSpan pad, std::string_view mode,
                 bool channels_last, bool gradient) {
  PadArgs a{};
  a.in = from.raw();
  a.out = to.raw();
  a.dtype = to.dtype();
  a.item = static_cast<int>(to.itemsize());
  a.mode = mode == "reflect"     ? PadMode::Reflect
           : mode == "replicate" ? PadMode::Replicate
                                 : PadMode::Circular;
  const int64_t n = static_cast<int64_t>(inner.size()), pairs = static_cast<int64_t>(pad.size()) / 2;
  const int64_t channels = channels_last ? inner[1] : 1;
  int64_t smaller = channels, larger = channels, whole = 1;
  for (int64_t size : inner) whole *= size;
  for (int k = 0; k < kPadded; ++k) {
    PadAxis& axis = a.axis[kPadded - 1 - k];
    axis.inner = k < pairs ? static_cast<int>(inner[n - 1 - k]) : 1;
    axis.low = k < pairs ? static_cast<int>(pad[2 * k]) : 0;
    axis.outer = axis.inner + axis.low + (k < pairs ? static_cast<int>(pad[2 * k + 1]) : 0);
    axis.by = Divider(static_cast<uint32_t>(gradient ? axis.inner : axis.outer));
    smaller *= axis.inner;
    larger *= axis.outer;
  }
  FL_CHECK(std::max(smaller, larger) < int64_t(1) << 31,
           "[pad] expected planes of fewer than 2**31 elements on CUDA, got ", std::max(smaller, larger));
  a.by_channels = Divider(static_cast<uint32_t>(channels));
  a.planes = whole / smaller;
  a.in_plane = gradient ? larger : smaller;
  a.out_plane = gradient ? smaller : larger;
  a.n = static_cast<uint32_t>(a.out_plane);
  return a;
}

dim3 blocks_of(const PadArgs& a) {
  const int64_t some = std::min<int64_t>((a.planes + 3) / 4, 65535);  // a place serves several planes
  return dim3((a.n + 255) / 256, static_cast<unsigned>(some));
}

// Channels that lie beside each other are not parted, if only dimensions after them are padded.
bool beside(const Tensor& t, IntSpan pad) {
  return is_channels_last(t) && static_cast<int64_t>(pad.size()) / 2 == t.dim() - 2;
}

Tensor edge_pad(const Tensor& self, IntSpan pad, std::string_view mode) {
  const bool channels_last = beside(self, pad);
  Dims sizes(self.sizes());
  for (size_t k = 0; 2 * k < pad.size(); ++k) sizes[sizes.size() - 1 - k] += pad[2 * k] + pad[2 * k + 1];
  const Tensor out = empty_laid(sizes, channels_last, self.options());
  if (out.numel() == 0) return out;
  const Tensor in = channels_last ? self : contiguous(self);
  OnDevice on(self.device().index);
  const PadArgs a = describe(in, out, self.sizes(), pad, mode, channels_last, false);
  by_size(a.item, [&](auto word) {
    launch(copy_edges<decltype(word)>, blocks_of(a), 256, current_stream(), "pad", a);
  });
  return out;
}

Tensor edge_pad_backward(const Tensor& grad, IntSpan sizes, IntSpan pad, std::string_view mode) {
  const bool channels_last = beside(grad, pad);
  const Tensor out = empty_laid(sizes, channels_last, grad.options());
  if (out.numel() == 0) return out;
  const Tensor in = channels_last ? grad : contiguous(grad);
  OnDevice on(grad.device().index);
  const PadArgs a = describe(in, out, sizes, pad, mode, channels_last, true);
  launch(a.dtype == DType::Double ? sum_edges<double> : sum_edges<float>, blocks_of(a), 256, current_stream(),
         "pad", a);
  return out;
}

// More padded dimensions, and sums of other numbers, go by the definition.
template <auto F, bool kSums>
void pad_or_define(const Operator& op, void* context, KeySet keys, Value* args, Value* results) {
  if (args[kSums ? 2 : 1].length() > 2 * kPadded || (kSums && !is_floating(args[0].tensor().dtype())))
    return by_definition(op, keys, args, results);
  checked<F>(op, context, keys, args, results);
}
const detail::Register padding{"_edge_pad", {Key::CUDA}, Kernel{pad_or_define<&edge_pad, false>, nullptr}},
    padding_gradient{
        "_edge_pad_backward", {Key::CUDA}, Kernel{pad_or_define<&edge_pad_backward, true>, nullptr}};

}  // namespace
}  // namespace fl::cuda

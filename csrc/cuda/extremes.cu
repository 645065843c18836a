// The largest and smallest elements along a dimension and where they are: max, min, argmax, argmin. A block
// takes a part of a line; where lines have several, a second launch compares the parts.
#include "cpu/reduce.h"
#include "cuda/device.cuh"
#include "cuda/launch.h"
#include "cuda/rows.cuh"
#include "dispatch/kernel.h"

namespace fl::cuda {

namespace {

template <class T>
struct Found {
  T value;
  int64_t at;  // negative: nothing yet
};

// A NaN is beyond all numbers; of equals the first counts.
template <class T>
__device__ __forceinline__ Found<T> better(Found<T> a, Found<T> b, bool largest) {
  if (b.at < 0) return a;
  if (a.at < 0) return b;
  const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
  if (a_nan || b_nan) return a_nan && (!b_nan || a.at < b.at) ? a : b;
  if (a.value == b.value) return a.at < b.at ? a : b;
  return (a.value > b.value) == largest ? a : b;
}

struct ExtremeArgs {
  const char* in;
  char* values;  // or null
  int64_t* places;
  void* partial;    // Found<T> by line and part, when there are several parts
  int64_t n, part;  // elements of a line and of a part
  int parts, item;
  DType dtype;
  bool largest;
};

template <class T>
__device__ Found<T> block_best(Found<T> mine, bool largest) {
  __shared__ Found<T> shared[32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  for (int m = 16; m > 0; m >>= 1)
    mine = better(mine, Found<T>{shuffle_xor(mine.value, m), shuffle_xor(mine.at, m)}, largest);
  if (lane == 0) shared[warp] = mine;
  __syncthreads();
  if (warp == 0) {
    mine = lane < warps ? shared[lane] : Found<T>{T(0), -1};
    for (int m = 16; m > 0; m >>= 1)
      mine = better(mine, Found<T>{shuffle_xor(mine.value, m), shuffle_xor(mine.at, m)}, largest);
  }
  return mine;
}

template <class T>
__device__ void write(const ExtremeArgs& a, int64_t line, Found<T> found) {
  if (a.values) store<T>(a.values + line * a.item, a.dtype, found.value);
  a.places[line] = found.at;
}

// grid: (lines, parts)
template <class T>
__global__ void __launch_bounds__(512) extreme_parts(const __grid_constant__ ExtremeArgs a) {
  const int64_t line = blockIdx.x, begin = blockIdx.y * a.part, stop = begin + a.part;
  const int64_t end = stop < a.n ? stop : a.n;
  const char* in = a.in + line * a.n * a.item;
  Found<T> mine{T(0), -1};
  for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x)
    mine = better(mine, Found<T>{load<T>(in + i * a.item, a.dtype), i}, a.largest);
  mine = block_best(mine, a.largest);
  if (threadIdx.x != 0) return;
  if (a.parts > 1)
    static_cast<Found<T>*>(a.partial)[line * a.parts + blockIdx.y] = mine;
  else
    write(a, line, mine);
}

template <class T>
__global__ void __launch_bounds__(256) extreme_finish(const __grid_constant__ ExtremeArgs a) {
  const int64_t line = blockIdx.x;
  const Found<T>* partial = static_cast<const Found<T>*>(a.partial) + line * a.parts;
  Found<T> mine{T(0), -1};
  for (int i = threadIdx.x; i < a.parts; i += blockDim.x) mine = better(mine, partial[i], a.largest);
  mine = block_best(mine, a.largest);
  if (threadIdx.x == 0) write(a, line, mine);
}

void run(const char* op, const Tensor& source, const Tensor& values, const Tensor& places, int64_t n,
         bool largest) {
  const int64_t lines = places.numel();
  if (lines == 0) return;
  FL_CHECK(lines < int64_t(1) << 31, "[", op, "] expected fewer than 2**31 results on CUDA, got ", lines);
  OnDevice on(source.device().index);
  const cudaStream_t stream = current_stream();
  ExtremeArgs a{};
  a.in = source.raw();
  a.values = values.defined() ? values.raw() : nullptr;
  a.places = places.data<int64_t>();
  a.n = n;
  a.item = static_cast<int>(source.itemsize());
  a.dtype = source.dtype();
  a.largest = largest;
  const int64_t wanted = int64_t(properties(current_device()).multiProcessorCount) * 4;
  int64_t parts = 1;
  if (lines < wanted && n > 16384) parts = std::min<int64_t>((wanted + lines - 1) / lines, (n + 8191) / 8192);
  a.part = (n + parts - 1) / parts;
  a.parts = static_cast<int>((n + a.part - 1) / a.part);
  const unsigned threads = a.part >= 4096 ? 512 : a.part >= 512 ? 256 : a.part >= 64 ? 64 : 32;
  const auto go = [&](auto one) {
    using T = decltype(one);
    Scratch partial(a.parts > 1 ? lines * a.parts * sizeof(Found<T>) : 0, source.device().index, stream);
    a.partial = partial.get();
    const dim3 grid(static_cast<unsigned>(lines), static_cast<unsigned>(a.parts));
    launch(extreme_parts<T>, grid, threads, stream, op, a);
    if (a.parts > 1) launch(extreme_finish<T>, static_cast<unsigned>(lines), 256, stream, op, a);
  };
  if (a.dtype == DType::Double)
    go(double());
  else if (is_floating(a.dtype))
    go(float());
  else
    go(int64_t());
}

int64_t checked_dim(const char* op, const Tensor& self, int64_t dim) {
  FL_CHECK_KIND(!is_complex(self.dtype()) && !is_stored_only(self.dtype()), NotImplemented, "[", op,
                "] expected a dtype with an order, got ", name_of(self.dtype()));
  const int64_t d = wrap_dim(op, dim, self.dim());
  FL_CHECK_KIND(self.dim() == 0 || self.size(d) > 0, Index, "[", op,
                "] expected a reduced dimension that is not empty, got shape ", self.sizes(), " and dim ",
                dim);
  return d;
}

Dims kept(const Tensor& self, int64_t d, bool keepdim) {
  return reduced_sizes(self, self.dim() == 0 ? 0 : uint64_t(1) << d, keepdim);
}

std::tuple<Tensor, Tensor> extreme_dim(const char* op, const Tensor& self, int64_t dim, bool keepdim,
                                       bool largest) {
  const int64_t d = checked_dim(op, self, dim);
  const Dims sizes = kept(self, d, keepdim);
  const Tensor values = empty(sizes, self.options()), places = empty(sizes, {DType::Int64, self.device()});
  run(op, lines_of(self, d), values, places, self.dim() ? self.size(d) : 1, largest);
  return {values, places};
}
std::tuple<Tensor, Tensor> max_dim(const Tensor& self, int64_t dim, bool keepdim) {
  return extreme_dim("max", self, dim, keepdim, true);
}
std::tuple<Tensor, Tensor> min_dim(const Tensor& self, int64_t dim, bool keepdim) {
  return extreme_dim("min", self, dim, keepdim, false);
}

Tensor arg_extreme(const char* op, const Tensor& self, std::optional<int64_t> dim, bool keepdim,
                   bool largest) {
  FL_CHECK_KIND(self.dtype() != DType::Bool, NotImplemented, "[", op,
                "] expected a numeric tensor, got bool");
  const int64_t d = checked_dim(op, self, dim.value_or(0));
  const Options whole{DType::Int64, self.device()};
  if (dim) {
    const Tensor places = empty(kept(self, d, keepdim), whole);
    run(op, lines_of(self, d), Tensor(), places, self.dim() ? self.size(d) : 1, largest);
    return places;
  }
  FL_CHECK_KIND(self.numel() > 0, Index, "[", op, "] expected dim for a tensor without elements, got None");
  const Tensor places = empty(keepdim ? Dims(self.dim(), 1) : Dims(), whole);
  run(op, contiguous(self), Tensor(), places, self.numel(), largest);
  return places;
}
Tensor argmax(const Tensor& self, std::optional<int64_t> dim, bool keepdim) {
  return arg_extreme("argmax", self, dim, keepdim, true);
}
Tensor argmin(const Tensor& self, std::optional<int64_t> dim, bool keepdim) {
  return arg_extreme("argmin", self, dim, keepdim, false);
}

FL_CUDA_KERNEL("max.dim", max_dim);
FL_CUDA_KERNEL("min.dim", min_dim);
FL_CUDA_KERNEL("argmax", argmax);
FL_CUDA_KERNEL("argmin", argmin);

}  // namespace
}  // namespace fl::cuda

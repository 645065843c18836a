// Scans along a dimension: running sums, products, log-sum-exps and extremes. Lines are split into parts
// where there are too few of them for the device; then a launch reduces each part, and the next begins with
// the results of the parts before its own. The order of all steps is fixed, so results are the same in every
// run.
#include <cub/block/block_exchange.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>

#include "cuda/engine/complex.cuh"
#include "cuda/engine/rows.cuh"
#include "cuda/runtime/launch.h"
#include "dispatch/kernel.h"

namespace fl::cuda {

namespace {

// ---------------------------------------------------------------- what is accumulated

struct Product {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a * b;
  }
};
struct LogSumExp {
  template <class T>
  __device__ T operator()(T a, T b) const {
    if (a != a || b != b) return a + b;
    const T high = a > b ? a : b, low = a > b ? b : a;
    return isinf(high) ? high : high + log1p(exp(low - high));
  }
};

// The accumulated value of numbers.
template <class T, class F>
struct Numbers {
  using Value = T;
  const char* in;
  char* out;
  DType dtype;
  int item;
  T none;
  __device__ __forceinline__ T nothing() const { return none; }
  __device__ __forceinline__ T get(int64_t at, int64_t) const { return load<T>(in + at * item, dtype); }
  __device__ __forceinline__ void put(int64_t at, const T& v) const { store<T>(out + at * item, dtype, v); }
  __device__ __forceinline__ T operator()(const T& a, const T& b) const { return F()(a, b); }
};

template <class T>
struct Placed {
  T value;
  int64_t at;  // negative: nothing yet
};
// Of equals the later one counts; a NaN is beyond all numbers.
template <class T>
struct Extremes {
  using Value = Placed<T>;
  const char* in;
  char* out;
  int64_t* places;
  DType dtype;
  int item;
  bool largest;
  __device__ __forceinline__ Value nothing() const { return {T(0), -1}; }
  __device__ __forceinline__ Value get(int64_t at, int64_t i) const {
    return {load<T>(in + at * item, dtype), i};
  }
  __device__ __forceinline__ void put(int64_t at, const Value& v) const {
    store<T>(out + at * item, dtype, v.value);
    places[at] = v.at;
  }
  __device__ __forceinline__ Value operator()(const Value& a, const Value& b) const {
    if (a.at < 0 || b.at < 0) return b.at < 0 ? a : b;
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    if (a_nan != b_nan) return b_nan ? b : a;
    if (a_nan || a.value == b.value) return b.at > a.at ? b : a;
    return (b.value > a.value) == largest ? b : a;
  }
};

// ---------------------------------------------------------------- lines in parts

// Element i of a line lies at line / inner * n * inner + line % inner + i * inner.
struct LineParts {
  int64_t lines, n, inner;
  int64_t part;  // elements of a part
  int parts;     // of a line
};

constexpr int kPer = 8;  // elements of a thread at a time

// A block for each part of a line of neighbours: its reduction, in a fixed order, but not that of the
// elements.
template <class R, int kThreads>
__global__ void __launch_bounds__(kThreads)
    reduce_parts(const __grid_constant__ R r, const __grid_constant__ LineParts c,
                 typename R::Value* partials) {
  using Value = typename R::Value;
  using Reduce = cub::BlockReduce<Value, kThreads>;
  __shared__ typename Reduce::TempStorage shared;
  const int64_t line = blockIdx.x / c.parts, begin = blockIdx.x % c.parts * c.part, end = begin + c.part;
  if (end >= c.n) return;  // nothing comes after it
  Value v[kPer];
#pragma unroll
  for (int j = 0; j < kPer; ++j) v[j] = r.nothing();
  for (int64_t first = begin + threadIdx.x; first < end; first += kThreads * kPer)
#pragma unroll
    for (int j = 0; j < kPer; ++j) {
      const int64_t i = first + j * kThreads;
      v[j] = r(v[j], r.get(line * c.n + i, i));
    }
#pragma unroll
  for (int j = 1; j < kPer; ++j) v[0] = r(v[0], v[j]);
  const Value total = Reduce(shared).Reduce(v[0], r);
  if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

// The same blocks with the accumulated values, which begin with those of the parts before.
template <class R, int kThreads>
__global__ void __launch_bounds__(kThreads)
    scan_parts(const __grid_constant__ R r, const __grid_constant__ LineParts c,
               const typename R::Value* partials) {
  using Value = typename R::Value;
  using Scan = cub::BlockScan<Value, kThreads>;
  using Exchange = cub::BlockExchange<Value, kThreads, kPer>;
  __shared__ union {
    typename Scan::TempStorage scan;
    typename Exchange::TempStorage exchange;
  } shared;
  const int64_t line = blockIdx.x / c.parts;
  const int part = static_cast<int>(blockIdx.x % c.parts);
  Value carry = r.nothing(), total;
  for (int first = 0; first < part; first += kThreads) {
    const int p = first + static_cast<int>(threadIdx.x);
    Value v = p < part ? partials[line * c.parts + p] : r.nothing();
    Scan(shared.scan).InclusiveScan(v, v, r, total);
    carry = r(carry, total);
    __syncthreads();
  }
  const int64_t begin = part * c.part, stop = begin + c.part, end = stop < c.n ? stop : c.n;
  for (int64_t first = begin; first < end; first += kThreads * kPer) {
    const int64_t mine = first + threadIdx.x;
    Value v[kPer];
#pragma unroll
    for (int j = 0; j < kPer; ++j) {
      const int64_t i = mine + j * kThreads;
      v[j] = i < end ? r.get(line * c.n + i, i) : r.nothing();
    }
    Exchange(shared.exchange).StripedToBlocked(v, v);
    __syncthreads();
    Scan(shared.scan).InclusiveScan(v, v, r, total);
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kPer; ++j) v[j] = r(carry, v[j]);
    Exchange(shared.exchange).BlockedToStriped(v, v);
#pragma unroll
    for (int j = 0; j < kPer; ++j)
      if (mine + j * kThreads < end) r.put(line * c.n + mine + j * kThreads, v[j]);
    __syncthreads();
    carry = r(carry, total);
  }
}

// A thread for each part of a line: for lines that lie side by side, and for short ones.
template <class R, bool write>
__global__ void __launch_bounds__(256)
    scan_beside(const __grid_constant__ R r, const __grid_constant__ LineParts c,
                typename R::Value* partials) {
  const int64_t line = int64_t(blockIdx.x) * 256 + threadIdx.x;
  const int part = static_cast<int>(blockIdx.y);
  if (line >= c.lines || (!write && part + 1 == c.parts)) return;
  typename R::Value carry = r.nothing();
  for (int p = 0; write && p < part; ++p) carry = r(carry, partials[p * c.lines + line]);
  const int64_t begin = part * c.part, stop = begin + c.part, end = stop < c.n ? stop : c.n;
  int64_t at = line / c.inner * c.n * c.inner + line % c.inner + begin * c.inner;
#pragma unroll 4
  for (int64_t i = begin; i < end; ++i, at += c.inner) {
    carry = r(carry, r.get(at, i));
    if (write) r.put(at, carry);
  }
  if (!write) partials[part * c.lines + line] = carry;
}

constexpr int64_t kShort = 16;  // lines up to this length are taken by a thread each

// Whether lines whose elements are `inner` apart are scanned where they are.
bool beside(int64_t n, int64_t inner) {
  return inner >= 32 || (inner == 1 && n <= kShort);
}

template <class R>
void scan(const char* op, const R& r, int64_t lines, int64_t n, int64_t inner, int device) {
  using Value = typename R::Value;
  OnDevice on(device);
  const cudaStream_t stream = current_stream();
  const bool threads = beside(n, inner);
  const int64_t piece = threads ? 64 : n <= 64 * kPer ? 64 * kPer : 256 * kPer;
  // As many parts as keep the device busy.
  const int64_t wanted = int64_t(properties(device).multiProcessorCount) * (threads ? 1024 : 8);
  const int64_t parts =
      n < 4 * piece ? 1 : std::min({(wanted + lines - 1) / lines, n / piece, int64_t(1024)});
  LineParts c{lines, n, inner, ((n + parts - 1) / parts + piece - 1) / piece * piece, 1};
  c.parts = static_cast<int>((n + c.part - 1) / c.part);
  const dim3 grid = threads ? dim3(static_cast<unsigned>((lines + 255) / 256), unsigned(c.parts))
                            : dim3(static_cast<unsigned>(lines * c.parts));
  FL_CHECK(lines * c.parts < int64_t(1) << 31, "[", op, "] expected fewer than 2**31 lines on CUDA, got ",
           lines);
  Scratch partials(c.parts > 1 ? lines * c.parts * sizeof(Value) : 0, device, stream);
  const auto go = [&](auto reduce, auto write, unsigned block) {
    if (c.parts > 1) launch(reduce, grid, block, stream, op, r, c, partials.as<Value>());
    launch(write, grid, block, stream, op, r, c, partials.as<Value>());
  };
  if (threads)
    go(scan_beside<R, false>, scan_beside<R, true>, 256);
  else if (piece == 64 * kPer)
    go(reduce_parts<R, 64>, scan_parts<R, 64>, 64);
  else
    go(reduce_parts<R, 256>, scan_parts<R, 256>, 256);
}

// The tensor as it is scanned, and the way back for results.
struct Scanned {
  Tensor source;
  int64_t dim, n, inner = 1, lines;
  bool in_place;
  Scanned(const Tensor& self, int64_t d) : dim(d), n(self.dim() ? self.size(d) : 1), lines(self.numel() / n) {
    for (int64_t k = d + 1; k < self.dim(); ++k) inner *= self.size(k);
    in_place = self.dim() < 2 || inner == 1 || beside(n, inner);
    source = in_place ? contiguous(self) : lines_of(self, d);
    if (!in_place) inner = 1;
  }
  Tensor result(const Tensor& result_of_lines) const {
    return in_place ? result_of_lines : from_lines(result_of_lines, dim);
  }
};

// ---------------------------------------------------------------- operators

template <class F, class T>
Tensor folded(const char* op, const Tensor& self, int64_t d, T none) {
  const Scanned s(self, d);
  const Tensor out = empty(s.source.sizes(), s.source.options());
  const Numbers<T, F> r{s.source.raw(), out.raw(), self.dtype(), static_cast<int>(self.itemsize()), none};
  scan(op, r, s.lines, s.n, s.inner, self.device().index);
  return s.result(out);
}

template <class F>
Tensor cumulative(const char* op, const Tensor& self, int64_t dim, std::optional<DType> dtype, int none) {
  const int64_t d = wrap_dim(op, dim, self.dim());
  const DType t = dtype.value_or(is_integral(self.dtype(), true) ? DType::Int64 : self.dtype());
  FL_CHECK_KIND(!is_stored_only(t), NotImplemented, "[", op,
                "] expected a dtype that CUDA kernels compute with, got ", name_of(t));
  if (self.numel() == 0) return empty(self.sizes(), {t, self.device()});
  const Tensor source = to_dtype(self, t);
  if (is_complex(t)) return folded<F, Complex>(op, source, d, Complex(none));
  if (t == DType::Double) return folded<F, double>(op, source, d, none);
  // In single precision products of numbers near one would lose the same part of each at every step.
  using Single = std::conditional_t<std::is_same_v<F, Product>, double, float>;
  if (is_floating(t)) return folded<F, Single>(op, source, d, static_cast<Single>(none));
  return folded<F, int64_t>(op, source, d, none);
}
Tensor cumsum(const Tensor& self, int64_t dim, std::optional<DType> dtype) {
  return cumulative<Sum>("cumsum", self, dim, dtype, 0);
}
Tensor cumprod(const Tensor& self, int64_t dim, std::optional<DType> dtype) {
  return cumulative<Product>("cumprod", self, dim, dtype, 1);
}

Tensor logcumsumexp(const Tensor& self, int64_t dim) {
  const int64_t d = wrap_dim("logcumsumexp", dim, self.dim());
  if (self.numel() == 0) return empty(self.sizes(), self.options());
  constexpr double none = -std::numeric_limits<double>::infinity();
  if (self.dtype() == DType::Double) return folded<LogSumExp, double>("logcumsumexp", self, d, none);
  return folded<LogSumExp, float>("logcumsumexp", self, d, static_cast<float>(none));
}
void logcumsumexp_or_define(const Operator& op, void* context, KeySet keys, Value* args, Value* results) {
  const DType t = args[0].tensor().dtype();
  if (!is_floating(t) || is_stored_only(t)) return by_definition(op, keys, args, results);
  checked<&logcumsumexp>(op, context, keys, args, results);
}

std::tuple<Tensor, Tensor> running_extreme(const char* op, const Tensor& self, int64_t dim, bool largest) {
  const int64_t d = wrap_dim(op, dim, self.dim());
  const DType t = self.dtype();
  FL_CHECK_KIND(!is_complex(t) && !is_stored_only(t), NotImplemented, "[", op,
                "] expected a dtype with an order, got ", name_of(t));
  const Options whole{DType::Int64, self.device()};
  if (self.numel() == 0) return {empty(self.sizes(), self.options()), empty(self.sizes(), whole)};
  const Scanned s(self, d);
  const Tensor out = empty(s.source.sizes(), self.options()), places = empty(s.source.sizes(), whole);
  const auto run = [&](auto one) {
    const Extremes<decltype(one)> r{
        s.source.raw(), out.raw(), places.data<int64_t>(), t, static_cast<int>(self.itemsize()), largest};
    scan(op, r, s.lines, s.n, s.inner, self.device().index);
  };
  if (t == DType::Double)
    run(double());
  else if (is_floating(t))
    run(float());
  else
    run(int64_t());
  return {s.result(out), s.result(places)};
}
std::tuple<Tensor, Tensor> cummax(const Tensor& self, int64_t dim) {
  return running_extreme("cummax", self, dim, true);
}
std::tuple<Tensor, Tensor> cummin(const Tensor& self, int64_t dim) {
  return running_extreme("cummin", self, dim, false);
}

FL_CUDA_KERNEL("cumsum", cumsum);
FL_CUDA_KERNEL("cumprod", cumprod);
FL_CUDA_KERNEL("cummax", cummax);
FL_CUDA_KERNEL("cummin", cummin);
const detail::Register log_sums{"logcumsumexp", {Key::CUDA}, Kernel{logcumsumexp_or_define, nullptr}};

}  // namespace
}  // namespace fl::cuda

// Counts of elements by bins, and draws without replacement by weights.
#include "cuda/engine/kernels.h"
#include "cuda/engine/rows.cuh"
#include "cuda/runtime/launch.h"
#include "dispatch/generator.h"
#include "dispatch/kernel.h"

namespace fl::cuda {

namespace {

// ---------------------------------------------------------------- counts

constexpr int kOwnBins = 4096;  // that a block counts by itself

struct WholeBin {
  const int64_t* in;
  __device__ __forceinline__ int64_t operator()(int64_t i) const { return in[i]; }
};
// Bins of one width, with the roundings of the CPU: reduced floats round each step. -1: outside of all.
template <class T>
struct EvenBin {
  const char* in;
  DType dtype;
  int item;
  T low, high, scale;
  int64_t bins;
  __device__ __forceinline__ T rounded(T x) const {
    if (dtype == DType::Half || dtype == DType::BFloat16)
      return bits_to_float(float_to_bits(static_cast<float>(x), dtype), dtype);
    return x;
  }
  __device__ __forceinline__ int64_t operator()(int64_t i) const {
    const T x = load<T>(in + i * item, dtype);
    if (!(x >= low && x <= high)) return -1;
    const T at = rounded(rounded(x - low) * scale);  // not a number where the range overflows
    if (!(at < static_cast<T>(bins))) return bins - 1;
    return at > T(0) ? static_cast<int64_t>(at) : 0;
  }
};

template <class B>
__global__ void __launch_bounds__(256)
    count_bins(const __grid_constant__ B bin, unsigned long long* counts, int64_t n, int64_t bins) {
  __shared__ unsigned own[kOwnBins];
  const bool mine = bins <= kOwnBins;
  for (int b = threadIdx.x; mine && b < bins; b += 256) own[b] = 0;
  __syncthreads();
  for (int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x; i < n; i += int64_t(gridDim.x) * 256) {
    const int64_t b = bin(i);
    if (b < 0) continue;
    if (mine)
      atomicAdd(&own[b], 1u);
    else
      atomicAdd(&counts[b], 1ull);
  }
  __syncthreads();
  for (int b = threadIdx.x; mine && b < bins; b += 256)
    if (own[b]) atomicAdd(&counts[b], static_cast<unsigned long long>(own[b]));
}

template <class B>
Tensor counted(const char* op, const B& bin, int64_t n, int64_t bins, Device device) {
  const Tensor counts = empty({bins}, {DType::Int64, device});
  OnDevice on(device.index);
  check(cudaMemsetAsync(counts.raw(), 0, bins * sizeof(int64_t), current_stream()), op);
  const int64_t most = int64_t(properties(device.index).multiProcessorCount) * 8;
  const int64_t blocks = std::min<int64_t>((n + 1023) / 1024, most);
  if (n)
    launch(count_bins<B>, static_cast<unsigned>(blocks), 256, current_stream(), op, bin,
           reinterpret_cast<unsigned long long*>(counts.raw()), n, bins);
  return counts;
}

// The smallest and the largest element, which the host waits for.
std::pair<Scalar, Scalar> extent(const Tensor& t) {
  static const Operator &least = OperatorTable::get().at("min"), &most = OperatorTable::get().at("max");
  const Tensor both = empty({2}, t.options()), here = empty({2}, {t.dtype(), Device{}});
  copy_into(alias(both, IntSpan(), IntSpan(), 0), call_tensor(least, t));
  copy_into(alias(both, IntSpan(), IntSpan(), 1), call_tensor(most, t));
  copy_into(here, both);
  return {item(alias(here, IntSpan(), IntSpan(), 0)), item(alias(here, IntSpan(), IntSpan(), 1))};
}

Tensor bincount(const Tensor& self, const Tensor&, int64_t minlength) {
  const Tensor source = contiguous(to_dtype(self, DType::Int64));
  int64_t bins = minlength;
  if (source.numel()) {
    const auto [least, most] = extent(source);
    FL_CHECK(least.to<int64_t>() >= 0, "[bincount] expected integers that are not negative, got ",
             least.to<int64_t>());
    FL_CHECK_KIND(most.to<int64_t>() < std::numeric_limits<int64_t>::max(), OutOfMemory,
                  "[bincount] expected a largest value whose bins fit in memory, got ", most.to<int64_t>());
    bins = std::max(bins, most.to<int64_t>() + 1);
  }
  return counted("bincount", WholeBin{source.data<int64_t>()}, source.numel(), bins, self.device());
}
void bincount_or_define(const Operator& op, void* context, KeySet keys, Value* args, Value* results) {
  const Tensor self = args[0].tensor();
  const bool counts =
      args[1].is_none() && self.dim() == 1 && is_integral(self.dtype()) && args[2].to_int() >= 0;
  if (!counts) return by_definition(op, keys, args, results);
  kernel_of<&bincount>().fn(op, context, keys, args, results);
}

template <class T>
Tensor even_bins(const Tensor& source, int64_t bins, const Scalar& min, const Scalar& max) {
  const DType t = source.dtype();
  const auto rounded = [&](T x) {
    return item(to_dtype(scalar_tensor(Scalar(static_cast<double>(x)), {t, Device{}}), DType::Double))
        .to<double>();
  };
  T low = static_cast<T>(rounded(min.to<T>())), high = static_cast<T>(rounded(max.to<T>()));
  if (low == high && source.numel()) {
    const auto [least, most] = extent(source);
    low = least.to<T>();
    high = most.to<T>();
  }
  if (low == high) {
    low = static_cast<T>(rounded(low - 1));
    high = static_cast<T>(rounded(high + 1));
  }
  FL_CHECK(std::isfinite(low) && std::isfinite(high), "[histc] expected a finite range, got ",
           static_cast<double>(low), " to ", static_cast<double>(high));
  FL_CHECK(low < high, "[histc] expected max larger than min, got ", static_cast<double>(low), " to ",
           static_cast<double>(high));
  const T scale = static_cast<T>(rounded(static_cast<T>(bins) / static_cast<T>(rounded(high - low))));
  const EvenBin<T> bin{source.raw(), t, static_cast<int>(source.itemsize()), low, high, scale, bins};
  return to_dtype(counted("histc", bin, source.numel(), bins, source.device()), t);
}
Tensor histc(const Tensor& self, int64_t bins, const Scalar& min, const Scalar& max) {
  FL_CHECK_KIND(!is_stored_only(self.dtype()), NotImplemented,
                "[histc] expected a dtype that CUDA kernels compute with, got ", name_of(self.dtype()));
  const Tensor source = contiguous(self);
  return self.dtype() == DType::Double ? even_bins<double>(source, bins, min, max)
                                       : even_bins<float>(source, bins, min, max);
}
const detail::Register counting{"bincount", {Key::CUDA}, Kernel{bincount_or_define, nullptr}};
FL_CUDA_KERNEL("histc", histc);

// ---------------------------------------------------------------- draws by weights

// When the exponential clock of each element rings, as on the CPU; NaN for a weight that is none.
__global__ void __launch_bounds__(256) ring_clocks(const char* weights, DType dtype, int item, double* rings,
                                                   int64_t n, uint64_t seed, uint64_t offset) {
  const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
  if (i >= n) return;
  const double w = load<double>(weights + i * item, dtype);
  const double u = ((philox::word64(seed, offset, i) >> 12) + 0.5) * 0x1p-52;
  rings[i] = !(w >= 0) || isinf(w) ? nan("") : w > 0 ? -log(u) / w : double(INFINITY);
}

// The first clocks to ring are a sample without replacement.
Tensor multinomial(const Tensor& self, int64_t num_samples, bool, Opaque* generator) {
  const Tensor weights = contiguous(self);
  const int64_t total = self.numel(), n = self.size(-1);
  const Generator::State state = generator_of(generator, self.device()).take();
  const Tensor rings = empty({total / n, n}, {DType::Double, self.device()});
  Dims sizes(self.sizes());
  sizes.back() = num_samples;
  if (total == 0) return empty(sizes, {DType::Int64, self.device()});
  OnDevice on(self.device().index);
  launch(ring_clocks, static_cast<unsigned>((total + 255) / 256), 256, current_stream(), "multinomial",
         weights.raw(), weights.dtype(), static_cast<int>(weights.itemsize()), rings.data<double>(), total,
         state.seed, state.offset);
  static const Operator &min = OperatorTable::get().at("min.dim"), &max = OperatorTable::get().at("max"),
                        &topk = OperatorTable::get().at("topk");
  Value row[3] = {Value(rings), Value(int64_t(1)), Value(true)}, first[2];
  min.call(row, first);
  FL_CHECK(std::isfinite(item(call_tensor(max, first[0].tensor())).to<double>()),
           "[multinomial] expected weights that are finite, not negative and not all 0");
  Tensor drawn = first[1].tensor();
  if (num_samples > 1) {
    Value wanted[5] = {Value(rings), Value(num_samples), Value(int64_t(1)), Value(false), Value(true)},
          best[2];
    topk.call(wanted, best);
    drawn = best[1].tensor();
  }
  return alias(drawn, sizes, contiguous_strides(sizes), drawn.offset());
}
void multinomial_or_define(const Operator& op, void* context, KeySet keys, Value* args, Value* results) {
  const Tensor self = args[0].tensor();
  const bool fits = !args[2].to_bool() && self.dim() > 0 && self.size(-1) > 0 && is_floating(self.dtype()) &&
                    !is_stored_only(self.dtype()) && self.numel() < int64_t(1) << 39;
  if (!fits) return by_definition(op, keys, args, results);
  checked<&multinomial>(op, context, keys, args, results);
}
const detail::Register drawing{"multinomial", {Key::CUDA}, Kernel{multinomial_or_define, nullptr}};

}  // namespace
}  // namespace fl::cuda

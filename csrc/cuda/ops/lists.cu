// Passes over all tensors of a list in few launches: joining, norms, and the unscaling of a scaled loss's
// gradients.
#include "cuda/engine/device.cuh"
#include "cuda/engine/kernels.h"
#include "cuda/runtime/launch.h"
#include "dispatch/kernel.h"
#include "ops/lists.h"

namespace fl::cuda {

namespace {

// ---------------------------------------------------------------- joining

constexpr int kMostParts = 96;  // of one launch
struct JoinArgs {
  char* out;
  int64_t width;  // bytes of a row of the result
  uint32_t rows;
  struct Part {
    const char* data;
    int64_t at;     // where in a row of the result it begins
    Divider units;  // of a row
  } part[kMostParts];
};
static_assert(sizeof(JoinArgs) <= 4000);

template <class T>
__global__ void __launch_bounds__(256) join_parts(const __grid_constant__ JoinArgs a) {
  const JoinArgs::Part& p = a.part[blockIdx.y];
  const uint32_t n = a.rows * p.units.divisor;
  const T* from = reinterpret_cast<const T*>(p.data);
  for (uint32_t i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) {
    const uint32_t row = p.units.divide(i), inside = i - row * p.units.divisor;
    reinterpret_cast<T*>(a.out + row * a.width + p.at)[inside] = from[i];
  }
}

bool join(const std::vector<JoinPart>& parts, int64_t rows, char* out, int device) {
  OnDevice on(device);
  uintptr_t odd = reinterpret_cast<uintptr_t>(out);  // its lowest bit says which words fit everywhere
  int64_t width = 0, most = 0;
  for (const JoinPart& p : parts) {
    odd |= reinterpret_cast<uintptr_t>(p.data) | static_cast<uintptr_t>(p.bytes);
    width += p.bytes;
    most = std::max(most, p.bytes);
  }
  const int64_t unit = odd % 16 == 0 ? 16 : odd % 8 == 0 ? 8 : odd % 4 == 0 ? 4 : odd % 2 == 0 ? 2 : 1;
  // Long rows that are no whole words have a kernel of their own among the copies.
  if (rows * (most / unit) >= int64_t(1) << 31 || (unit < 16 && most >= 4096 && parts.size() < 16))
    return false;
  const cudaStream_t stream = current_stream();
  JoinArgs a;
  a.out = out;
  a.width = width;
  a.rows = static_cast<uint32_t>(rows);
  int64_t at = 0;
  for (size_t first = 0; first < parts.size(); first += kMostParts) {
    const size_t count = std::min(parts.size() - first, size_t(kMostParts));
    for (size_t k = 0; k < count; ++k) {
      const JoinPart& p = parts[first + k];
      a.part[k] = {p.data, at, Divider(static_cast<uint32_t>(p.bytes / unit))};
      at += p.bytes;
    }
    const int64_t blocks = std::min<int64_t>((rows * (most / unit) + 255) / 256, 132 * 16);
    const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(count));
    const auto go = [&](auto kernel) { launch(kernel, grid, 256, stream, "cat", a); };
    unit == 16  ? go(join_parts<uint4>)
    : unit == 8 ? go(join_parts<uint64_t>)
    : unit == 4 ? go(join_parts<uint32_t>)
    : unit == 2 ? go(join_parts<uint16_t>)
                : go(join_parts<uint8_t>);
  }
  return true;
}

// ---------------------------------------------------------------- blocks of tensors

constexpr int kListTensors = 64, kListBlocks = 512;  // of one launch
constexpr int64_t kBlockElements = 16384, kMostPieces = 256;
struct ListArgs {
  char* data[kListTensors];
  int64_t numel[kListTensors];
  uint16_t first[kListTensors + 1];  // block of each tensor
  uint8_t tensor[kListBlocks];
  uint16_t piece[kListBlocks];
  DType dtype;
};
static_assert(sizeof(ListArgs) <= 3900);

// f(index of the tensor in the list, its elements in vectors or one by one) for a block's share.
template <class T, class F, class G>
__device__ __forceinline__ void share_of(const ListArgs& a, F eight, G one) {
  const int t = a.tensor[blockIdx.x];
  const int64_t pieces = a.first[t + 1] - a.first[t], n = a.numel[t];
  const int64_t size = item_size(a.dtype);
  char* data = a.data[t];
  const int64_t step = pieces * 256, from = int64_t(a.piece[blockIdx.x]) * 256 + threadIdx.x;
  if constexpr (std::is_same_v<T, float>) {
    if (reinterpret_cast<uintptr_t>(data) % 16 == 0) {
      const int64_t vectors = n / kVector;
      for (int64_t i = from; i < vectors; i += step) eight(data + i * kVector * size);
      for (int64_t i = vectors * kVector + from; i < n; i += step) one(data + i * size);
      return;
    }
  }
  for (int64_t i = from; i < n; i += step) one(data + i * size);
}

// Calls run(args, blocks, tensors, index of the first) for as many tensors at a time as fit.
template <class F>
void by_blocks(const Tensor* list, size_t n, const F& run) {
  ListArgs a;
  a.dtype = list[0].dtype();
  int tensors = 0, blocks = 0;
  size_t begin = 0;
  const auto flush = [&] {
    a.first[tensors] = static_cast<uint16_t>(blocks);
    if (tensors) run(a, blocks, tensors, begin);
    begin += tensors;
    tensors = blocks = 0;
  };
  for (size_t i = 0; i < n; ++i) {
    const int64_t pieces =
        std::max<int64_t>(1, std::min((list[i].numel() + kBlockElements - 1) / kBlockElements, kMostPieces));
    if (tensors == kListTensors || blocks + pieces > kListBlocks) flush();
    a.data[tensors] = list[i].raw();
    a.numel[tensors] = list[i].numel();
    a.first[tensors] = static_cast<uint16_t>(blocks);
    for (int64_t p = 0; p < pieces; ++p) {
      a.tensor[blocks] = static_cast<uint8_t>(tensors);
      a.piece[blocks++] = static_cast<uint16_t>(p);
    }
    ++tensors;
  }
  flush();
}

// ---------------------------------------------------------------- norms

enum class Order { One, Two, Largest };

template <class T>
__device__ __forceinline__ T more(T total, T x, Order order) {
  if (order == Order::Two) return total + x * x;
  x = x < T(0) ? -x : x;
  return order == Order::One ? total + x : Most{}(total, x);
}

template <class T>
__global__ void __launch_bounds__(256)
    norm_parts(const __grid_constant__ ListArgs a, double* const parts, const Order order) {
  __shared__ double shared[33];
  T total = 0;
  share_of<T>(
      a,
      [&](char* p) {
        float v[kVector];
        load_vector(v, p, a.dtype);
#pragma unroll
        for (int j = 0; j < kVector; ++j) total = more<T>(total, v[j], order);
      },
      [&](char* p) { total = more<T>(total, load<T>(p, a.dtype), order); });
  const double whole = order == Order::Largest ? block_fold(double(total), Most{}, 0.0, shared)
                                               : block_fold(double(total), Sum{}, 0.0, shared);
  if (threadIdx.x == 0) parts[blockIdx.x] = whole;
}

// A warp for each tensor.
__global__ void __launch_bounds__(256)
    norm_finish(const __grid_constant__ ListArgs a, const double* const parts, char* const out,
                const Order order, const int tensors) {
  const int t = blockIdx.x * 8 + threadIdx.x / 32;
  if (t >= tensors) return;
  double total = 0;
  for (int p = a.first[t] + threadIdx.x % 32; p < a.first[t + 1]; p += 32)
    total = order == Order::Largest ? Most{}(total, parts[p]) : total + parts[p];
  total = order == Order::Largest ? warp_fold(total, Most{}) : warp_fold(total, Sum{});
  if (order == Order::Two) total = sqrt(total);
  const int64_t size = item_size(a.dtype);
  if (threadIdx.x % 32 == 0) store<double>(out + t * size, a.dtype, total);
}

std::vector<Tensor> norms(const Tensor* list, size_t n, double p) {
  const Order order = p == 1 ? Order::One : p == 2 ? Order::Two : Order::Largest;
  const int device = list[0].device().index;
  OnDevice on(device);
  const cudaStream_t stream = current_stream();
  const Tensor all = empty({static_cast<int64_t>(n)}, list[0].options());
  const Scratch parts(kListBlocks * sizeof(double), device, stream);
  by_blocks(list, n, [&](const ListArgs& a, int blocks, int tensors, size_t begin) {
    launch(a.dtype == DType::Double ? norm_parts<double> : norm_parts<float>, static_cast<unsigned>(blocks),
           256, stream, "norm", a, parts.as<double>(), order);
    launch(norm_finish, static_cast<unsigned>((tensors + 7) / 8), 256, stream, "norm", a, parts.as<double>(),
           all.raw() + begin * all.itemsize(), order, tensors);
  });
  std::vector<Tensor> views;
  views.reserve(n);
  for (size_t i = 0; i < n; ++i)
    views.push_back(alias(all, IntSpan(), IntSpan(), all.offset() + static_cast<int64_t>(i)));
  return views;
}

// ---------------------------------------------------------------- unscaling

template <class T>
__global__ void __launch_bounds__(256)
    unscale(const __grid_constant__ ListArgs a, float* const nonfinite, const float* const scale) {
  const T by = *scale;
  bool bad = false;
  share_of<T>(
      a,
      [&](char* p) {
        float v[kVector];
        load_vector(v, p, a.dtype);
#pragma unroll
        for (int j = 0; j < kVector; ++j) {
          bad |= !isfinite(v[j]);
          v[j] *= float(by);
        }
        store_vector<float>(p, a.dtype, v);
      },
      [&](char* p) {
        const T x = load<T>(p, a.dtype);
        bad |= !isfinite(x);
        store<T>(p, a.dtype, x * by);
      });
  if (bad) *nonfinite = 1;
}

void unscale_all(const Operator& op, void*, KeySet keys, Value* args, Value* results) {
  check_on_device(op, args);
  const Tensor* list = args[0].tensors();
  const size_t n = args[0].length();
  const Tensor nonfinite = args[1].tensor(), scale = args[2].tensor();
  bool fits = nonfinite.numel() == 1 && scale.numel() == 1 && nonfinite.dtype() == DType::Float &&
              scale.dtype() == DType::Float;
  for (size_t i = 0; i < n; ++i) fits &= is_floating(list[i].dtype()) && is_dense(list[i]);
  if (!fits) return by_definition(op, keys, args, results);
  OnDevice on(nonfinite.device().index);
  // Those of one dtype together.
  for (const DType dtype : {DType::Float, DType::BFloat16, DType::Half, DType::Double}) {
    std::vector<Tensor> alike;
    for (size_t i = 0; i < n; ++i)
      if (list[i].dtype() == dtype) alike.push_back(list[i]);
    if (alike.empty()) continue;
    by_blocks(alike.data(), alike.size(), [&](const ListArgs& a, int blocks, int, size_t) {
      launch(dtype == DType::Double ? unscale<double> : unscale<float>, static_cast<unsigned>(blocks), 256,
             current_stream(), "unscale", a, nonfinite.data<float>(), scale.data<float>());
    });
  }
}

const detail::Register unscaling{
    "_amp_foreach_non_finite_check_and_unscale_", {Key::CUDA}, Kernel{unscale_all, nullptr}};
FL_ATTACH(join, CUDA, [](const std::vector<JoinPart>& parts, int64_t rows, const Tensor& out) {
  return join(parts, rows, out.raw(), out.device().index);
});
FL_ATTACH(norms, CUDA, norms);

}  // namespace
}  // namespace fl::cuda

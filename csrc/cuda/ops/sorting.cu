// Order along a dimension: sort, and the random orders of `randperm`. A block sorts a short line; longer ones
// are sorted all at once by the device's radix sort.
#include <cub/block/block_radix_sort.cuh>
#include <cub/device/device_radix_sort.cuh>

#include "cuda/ops/ordering.cuh"
#include "ops/sequences.h"

namespace fl::cuda {

namespace {

// ---------------------------------------------------------------- short lines

template <class K, int kThreads, int kItems>
__global__ void __launch_bounds__(kThreads)
    sort_line(const __grid_constant__ Keys from, char* out, int64_t* indices, int n) {
  using Sort = cub::BlockRadixSort<K, kThreads, kItems, uint16_t>;
  __shared__ typename Sort::TempStorage shared;
  const int64_t line = int64_t(blockIdx.x) * n;
  K keys[kItems];
  uint16_t places[kItems];
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    const int i = static_cast<int>(threadIdx.x) * kItems + j;
    keys[j] = i < n ? from.at<K>(line + i) : ~K(0);  // equal keys stay in order, so what fills up is last
    places[j] = static_cast<uint16_t>(i);
  }
  Sort(shared).SortBlockedToStriped(keys, places, from.begin, from.end);
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    const int i = j * kThreads + static_cast<int>(threadIdx.x);
    if (i >= n) break;
    from.move(out, line + i, line + places[j]);
    indices[line + i] = places[j];
  }
}
template <class K>
void sort_short(const Keys& from, char* out, int64_t* indices, int64_t lines, int64_t n) {
  by_length(n, [&](auto threads, auto items) {
    constexpr int block = threads, each = items;
    launch(sort_line<K, block, each>, static_cast<unsigned>(lines), block, current_stream(), "sort", from,
           out, indices, static_cast<int>(n));
  });
}

// ---------------------------------------------------------------- lines of any length

// A narrow key that shares its word with the line above it lets one sort do; wide keys are sorted first by
// key, then, in a stable way, by line.
template <class K, class Word>
__global__ void __launch_bounds__(256)
    make_keys(const __grid_constant__ Keys from, Word* keys, uint32_t* places, int64_t n, int64_t total) {
  const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
  if (i >= total) return;
  Word key = from.at<K>(i);
  if constexpr (sizeof(Word) > sizeof(K)) key |= static_cast<Word>(i / n) << 32;
  keys[i] = key;
  places[i] = static_cast<uint32_t>(i);
}
__global__ void __launch_bounds__(256)
    line_keys(const uint32_t* places, uint64_t* keys, int64_t n, int64_t total) {
  const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
  if (i < total) keys[i] = places[i] / n;
}
__global__ void __launch_bounds__(256)
    take_sorted(const __grid_constant__ Keys from, char* out, int64_t* indices, const uint32_t* places,
                uint32_t n, int64_t total) {
  const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
  if (i >= total) return;
  from.move(out, i, places[i]);
  indices[i] = places[i] % n;
}
template <class Word>
void radix_sort(Word* keys, Word* sorted, uint32_t* places, uint32_t* order, int64_t total, int begin,
                int end, int device) {
  with_scratch("sort", device, [&](void* scratch, size_t& bytes) {
    return cub::DeviceRadixSort::SortPairs(scratch, bytes, keys, sorted, places, order, int(total), begin,
                                           end, current_stream());
  });
}

template <class K, class Word>
void sort_long(const Keys& from, char* out, int64_t* indices, int64_t lines, int64_t n, int device) {
  const cudaStream_t stream = current_stream();
  const int64_t total = lines * n;
  Scratch keys(total * sizeof(Word), device, stream), sorted(total * sizeof(Word), device, stream);
  Scratch places(total * 4, device, stream), order(total * 4, device, stream);
  const unsigned blocks = static_cast<unsigned>((total + 255) / 256);
  launch(make_keys<K, Word>, blocks, 256, stream, "sort", from, keys.as<Word>(), places.as<uint32_t>(), n,
         total);
  int line_bits = 0;
  while ((int64_t(1) << line_bits) < lines) ++line_bits;
  const bool together = sizeof(Word) > sizeof(K);
  radix_sort(keys.as<Word>(), sorted.as<Word>(), places.as<uint32_t>(), order.as<uint32_t>(), total,
             from.begin, together ? 32 + line_bits : from.end, device);
  const uint32_t* permutation = order.as<uint32_t>();
  if (!together && line_bits) {
    launch(line_keys, blocks, 256, stream, "sort", permutation, sorted.as<uint64_t>(), n, total);
    radix_sort(sorted.as<uint64_t>(), keys.as<uint64_t>(), order.as<uint32_t>(), places.as<uint32_t>(), total,
               0, line_bits, device);
    permutation = places.as<uint32_t>();
  }
  launch(take_sorted, blocks, 256, stream, "sort", from, out, indices, permutation, static_cast<uint32_t>(n),
         total);
}

std::tuple<Tensor, Tensor> sort(const Tensor& self, std::optional<bool>, int64_t dim, bool descending) {
  const int64_t d = wrap_dim("sort", dim, self.dim());
  check_ordered("sort", self);
  const Options whole{DType::Int64, self.device()};
  if (self.numel() == 0) return {empty(self.sizes(), self.options()), empty(self.sizes(), whole)};
  const int64_t total = self.numel(), n = self.dim() ? self.size(d) : 1, lines = total / n;
  FL_CHECK(total < int64_t(1) << 31, "[sort] expected fewer than 2**31 elements on CUDA, got ", total);
  const int device = self.device().index;
  OnDevice on(device);
  const Tensor source = lines_of(self, d), out = empty(source.sizes(), source.options()),
               indices = empty(source.sizes(), whole);
  const Keys from(source, descending);
  by_key(self, [&](auto key) {
    using K = decltype(key);
    if (n <= kLongestCompared)
      compare("sort", source, descending, out, indices, n, 0, n, Rank::Given);
    else if (n <= kLongestSorted)
      sort_short<K>(from, out.raw(), indices.data<int64_t>(), lines, n);
    else if (lines == 1)
      sort_long<K, K>(from, out.raw(), indices.data<int64_t>(), lines, n, device);
    else
      sort_long<K, uint64_t>(from, out.raw(), indices.data<int64_t>(), lines, n, device);
  });
  return {laid_as(from_lines(out, d), self), laid_as(from_lines(indices, d), self)};
}
}  // namespace

std::tuple<Tensor, Tensor> sort_plain(const Tensor& self, int64_t dim, bool descending) {
  return sort(self, std::nullopt, dim, descending);
}
namespace {

FL_CUDA_KERNEL("sort", sort_plain);
FL_CUDA_KERNEL("sort.stable", sort);
// ---------------------------------------------------------------- random orders

// The CPU shuffles in steps: step i exchanges the elements at i and at a place that is not before it, its
// target. What it finds there was left by the last step before it with that target, which had it from its own
// place; and so on, back to a place that no step had changed. So each element follows the steps by itself.
struct Steps {
  uint32_t* targets;
  int *last, *others;  // a list of the steps with each target, in any order; -1 ends it
  int* changed;        // the last step that changed a place before the step of that place
  uint32_t n;
  __device__ __forceinline__ int last_before(uint32_t step, uint32_t target) const {
    int length = -1;
    for (int s = last[target]; s >= 0; s = others[s])
      if (s < static_cast<int>(step) && s > length) length = s;
    return length;
  }
};
__global__ void __launch_bounds__(256) draw_targets(const __grid_constant__ Steps a, const uint32_t* words) {
  const uint32_t i = blockIdx.x * 256 + threadIdx.x;
  if (i >= a.n) return;
  const uint64_t word = uint64_t(words[2 * int64_t(i)]) << 32 | words[2 * int64_t(i) + 1];
  a.targets[i] = i + static_cast<uint32_t>(__umul64hi(word, a.n - i));
  a.others[i] = atomicExch(&a.last[a.targets[i]], static_cast<int>(i));
}
__global__ void __launch_bounds__(256) link_steps(const __grid_constant__ Steps a) {
  const uint32_t i = blockIdx.x * 256 + threadIdx.x;
  if (i < a.n) a.changed[i] = a.last_before(i, i);
}
__global__ void __launch_bounds__(256)
    follow_steps(const __grid_constant__ Steps a, char* out, DType dtype, int item) {
  const uint32_t i = blockIdx.x * 256 + threadIdx.x;
  if (i >= a.n) return;
  int from = a.last_before(i, a.targets[i]);
  if (from < 0)
    from = static_cast<int>(a.targets[i]);
  else
    for (int next; (next = a.changed[from]) >= 0;) from = next;
  store<int64_t>(out + int64_t(i) * item, dtype, from);
}

void shuffle(const Tensor& out, Generator::State state) {
  const int64_t n = out.numel();
  FL_CHECK(n < int64_t(1) << 31, "[randperm] expected n below 2**31 on CUDA, got ", n);
  if (n == 0) return;
  const int device = out.device().index;
  OnDevice on(device);
  const cudaStream_t stream = current_stream();
  RandomParams any;
  any.range = uint64_t(1) << 32;
  const Tensor words = empty({2 * n}, {DType::Int32, out.device()});
  random(words, {RandomKind::Range32, false, state.seed, state.offset, any});
  Scratch lists(n * 16, device, stream);
  int* const room = lists.as<int>();
  const Steps a{reinterpret_cast<uint32_t*>(room), room + n, room + 2 * n, room + 3 * n,
                static_cast<uint32_t>(n)};
  check(cudaMemsetAsync(a.last, 0xff, n * 4, stream), "randperm");
  const unsigned blocks = static_cast<unsigned>((n + 255) / 256);
  launch(draw_targets, blocks, 256, stream, "randperm", a, reinterpret_cast<const uint32_t*>(words.raw()));
  launch(link_steps, blocks, 256, stream, "randperm", a);
  launch(follow_steps, blocks, 256, stream, "randperm", a, out.raw(), out.dtype(),
         static_cast<int>(out.itemsize()));
}
FL_ATTACH(shuffle, CUDA, shuffle);
}  // namespace
}  // namespace fl::cuda

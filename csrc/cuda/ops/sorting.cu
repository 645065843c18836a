// Order along a dimension: sort, topk, kthvalue, medians and modes, and the values that are unique. Elements
// become unsigned keys in the order of the values, of which equal ones keep the order of their places. A
// block sorts a short line; longer ones are sorted all at once by the device's radix sort. What asks for
// elements of a rank finds their key digit by digit, a block for each line.
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>

#include <cub/block/block_discontinuity.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>
#include <cub/device/device_select.cuh>

#include "cuda/engine/kernels.h"
#include "cuda/engine/rows.cuh"
#include "cuda/runtime/launch.h"
#include "dispatch/kernel.h"
#include "ops/sequences.h"

namespace fl::cuda {

namespace {

// ---------------------------------------------------------------- keys

// A key whose unsigned order is that of the values; NaN is above all.
__device__ __forceinline__ uint64_t ordered(double x) {
  if (x != x) return ~uint64_t(0);
  const uint64_t u = static_cast<uint64_t>(__double_as_longlong(x == 0 ? 0.0 : x));
  return u >> 63 ? ~u : u | uint64_t(1) << 63;
}
__device__ __forceinline__ uint32_t ordered(float x) {
  if (x != x) return ~uint32_t(0);
  const uint32_t u = __float_as_uint(x == 0 ? 0.0f : x);
  return u >> 31 ? ~u : u | uint32_t(1) << 31;
}

// Elements as keys. Only the bits from `begin` to `end` tell keys of the dtype apart.
struct Keys {
  const char* in;
  DType dtype;
  int item, begin, end;
  int64_t least;  // of the integers of the dtype
  bool descending;

  Keys(const Tensor& contiguous, bool downward)
      : in(contiguous.raw()),
        dtype(contiguous.dtype()),
        item(static_cast<int>(contiguous.itemsize())),
        begin(dtype == DType::BFloat16 ? 16
              : dtype == DType::Half   ? 13
                                       : 0),
        end(dtype == DType::Bool             ? 1
            : is_floating(dtype) && item < 4 ? 32
                                             : item * 8),
        least(dtype == DType::Bool || dtype == DType::UInt8 ? 0 : -(int64_t(1) << (item * 8 - 2)) * 2),
        descending(downward) {}

  template <class K>
  __device__ __forceinline__ K at(int64_t i) const {
    const char* p = in + i * item;
    K key;
    if constexpr (sizeof(K) == 8)
      key = dtype == DType::Double
                ? ordered(*reinterpret_cast<const double*>(p))
                : static_cast<K>(*reinterpret_cast<const int64_t*>(p)) - static_cast<K>(least);
    else if (is_floating(dtype))
      key = ordered(load<float>(p, dtype));
    else
      key = static_cast<K>(load<int64_t>(p, dtype) - least);
    return descending ? ~key : key;
  }
  __device__ __forceinline__ void move(char* out, int64_t to, int64_t from) const {
    const char* p = in + from * item;
    switch (item) {
      case 1:
        out[to] = *p;
        return;
      case 2:
        reinterpret_cast<uint16_t*>(out)[to] = *reinterpret_cast<const uint16_t*>(p);
        return;
      case 4:
        reinterpret_cast<uint32_t*>(out)[to] = *reinterpret_cast<const uint32_t*>(p);
        return;
      default:
        reinterpret_cast<uint64_t*>(out)[to] = *reinterpret_cast<const uint64_t*>(p);
    }
  }
};

// f(K(0)) for the type of a dtype's keys.
template <class F>
void by_key(const Tensor& t, F&& f) {
  if (t.itemsize() > 4)
    f(uint64_t());
  else
    f(uint32_t());
}

void check_ordered(const char* op, const Tensor& self) {
  FL_CHECK_KIND(!is_complex(self.dtype()) && !is_stored_only(self.dtype()), NotImplemented, "[", op,
                "] expected a dtype with an order, got ", name_of(self.dtype()));
}

// Which element of a line in order is wanted: the k-th, or the lower one of the middle; there NaN wins, or is
// left out.
enum class Rank { Given, Median, MedianOfNumbers };

__device__ __forceinline__ int middle(Rank rule, int numbers, int n) {
  return rule == Rank::Median && numbers < n ? numbers : numbers ? (numbers - 1) / 2 : 0;
}

// ---------------------------------------------------------------- very short lines

constexpr int64_t kLongestCompared = 32;

// Lines whose elements are compared with each other, a thread for each: those of `count` ranks from `first`
// on.
template <class K>
__global__ void __launch_bounds__(256)
    compare_lines(const __grid_constant__ Keys from, char* out, int64_t* indices, int64_t lines, int n,
                  int first, int count, Rank rule) {
  __shared__ SharedArray<K, 256> room;
  K* keys = room.get();
  const int each = 256 / n, mine = static_cast<int>(threadIdx.x) / n,
            i = static_cast<int>(threadIdx.x) - mine * n;
  const int64_t line = int64_t(blockIdx.x) * each + mine;
  const bool inside = mine < each && line < lines;
  if (inside) keys[threadIdx.x] = from.at<K>(line * n + i);
  __syncthreads();
  if (!inside) return;
  const K key = keys[threadIdx.x], *all = keys + mine * n;
  int rank = 0, numbers = 0;
  for (int j = 0; j < n; ++j) {
    rank += all[j] < key || (all[j] == key && j < i);
    numbers += all[j] != ~K(0);
  }
  if (rule != Rank::Given) first = middle(rule, is_floating(from.dtype) ? numbers : n, n);
  if (rank < first || rank >= first + count) return;
  from.move(out, line * count + rank - first, line * n + i);
  indices[line * count + rank - first] = i;
}

void compare(const char* op, const Tensor& source, bool descending, const Tensor& values,
             const Tensor& indices, int64_t n, int64_t first, int64_t count, Rank rule) {
  const int64_t lines = source.numel() / n, each = 256 / n;
  by_key(source, [&](auto key) {
    launch(compare_lines<decltype(key)>, static_cast<unsigned>((lines + each - 1) / each), 256,
           current_stream(), op, Keys(source, descending), values.raw(), indices.data<int64_t>(), lines,
           static_cast<int>(n), static_cast<int>(first), static_cast<int>(count), rule);
  });
}

// ---------------------------------------------------------------- short lines

constexpr int64_t kLongestSorted = 4096;  // line of a block

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

struct Differ {
  template <class K>
  __device__ bool operator()(K a, K b) const {
    return a != b;
  }
};

// The most frequent element, of equally frequent ones the smallest, and the last place of it.
template <class K, int kThreads, int kItems>
__global__ void __launch_bounds__(kThreads)
    mode_of_line(const __grid_constant__ Keys from, char* out, int64_t* indices, int n) {
  using Sort = cub::BlockRadixSort<K, kThreads, kItems, uint16_t>;
  using Heads = cub::BlockDiscontinuity<K, kThreads>;
  using Scan = cub::BlockScan<int, kThreads>;
  using Reduce = cub::BlockReduce<int64_t, kThreads>;
  __shared__ union {
    typename Sort::TempStorage sort;
    typename Heads::TempStorage heads;
    typename Scan::TempStorage scan;
    typename Reduce::TempStorage reduce;
  } shared;
  __shared__ int winner;
  const int64_t line = int64_t(blockIdx.x) * n;
  const int first = static_cast<int>(threadIdx.x) * kItems;
  K keys[kItems];
  uint16_t places[kItems];
  int head[kItems], start[kItems];
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    keys[j] = first + j < n ? from.at<K>(line + first + j) : ~K(0);
    places[j] = static_cast<uint16_t>(first + j);
  }
  Sort(shared.sort).Sort(keys, places, from.begin, from.end);
  __syncthreads();
  Heads(shared.heads).FlagHeads(head, keys, Differ());
  __syncthreads();
#pragma unroll
  for (int j = 0; j < kItems; ++j) start[j] = head[j] ? first + j : 0;
  Scan(shared.scan).InclusiveScan(start, start, Most());
  __syncthreads();
  // The longest run so far, and of equally long ones the first.
  int64_t best = 0;
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    const int i = first + j;
    const int64_t here = int64_t(i - start[j] + 1) << 32 | (kThreads * kItems - i);
    if (i < n && here > best) best = here;
  }
  best = Reduce(shared.reduce).Reduce(best, Most());
  if (threadIdx.x == 0) winner = kThreads * kItems - static_cast<int>(best & 0xffffffff);
  __syncthreads();
#pragma unroll
  for (int j = 0; j < kItems; ++j)
    if (first + j == winner) {
      from.move(out, blockIdx.x, line + places[j]);
      indices[blockIdx.x] = places[j];
    }
}

// f(threads, items of a thread), as constants, for a line of n elements.
template <class F>
void by_length(int64_t n, F&& f) {
  if (n <= 64)
    f(std::integral_constant<int, 32>(), std::integral_constant<int, 2>());
  else if (n <= 256)
    f(std::integral_constant<int, 64>(), std::integral_constant<int, 4>());
  else if (n <= 1024)
    f(std::integral_constant<int, 128>(), std::integral_constant<int, 8>());
  else if (n <= 2048)
    f(std::integral_constant<int, 256>(), std::integral_constant<int, 8>());
  else
    f(std::integral_constant<int, 512>(), std::integral_constant<int, 8>());
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

// run(scratch, its size) twice: it asks for its size first.
template <class F>
void with_scratch(const char* op, int device, const F& run) {
  size_t bytes = 0;
  check(run(nullptr, bytes), op);
  Scratch scratch(bytes, device, current_stream());
  check(run(scratch.get(), bytes), op);
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
  const uint32_t* found = order.as<uint32_t>();
  if (!together && line_bits) {
    launch(line_keys, blocks, 256, stream, "sort", found, sorted.as<uint64_t>(), n, total);
    radix_sort(sorted.as<uint64_t>(), keys.as<uint64_t>(), order.as<uint32_t>(), places.as<uint32_t>(), total,
               0, line_bits, device);
    found = places.as<uint32_t>();
  }
  launch(take_sorted, blocks, 256, stream, "sort", from, out, indices, found, static_cast<uint32_t>(n),
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
std::tuple<Tensor, Tensor> sort_plain(const Tensor& self, int64_t dim, bool descending) {
  return sort(self, std::nullopt, dim, descending);
}
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
    int found = -1;
    for (int s = last[target]; s >= 0; s = others[s])
      if (s < static_cast<int>(step) && s > found) found = s;
    return found;
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

// ---------------------------------------------------------------- elements of a rank

constexpr int64_t kLongestSearched = int64_t(1) << 20;  // line of a block
constexpr int kKept = 16 * 1024;                        // bytes of keys that a block keeps

// The keys of a line, read once where they fit.
template <class K, int kThreads>
struct LineKeys {
  const Keys& from;
  int64_t line;
  int n;
  K* kept;
  __device__ LineKeys(const Keys& keys, int64_t first, int count, K* room)
      : from(keys), line(first), n(count), kept(count * sizeof(K) <= kKept ? room : nullptr) {
    if (!kept) return;
    for (int i = threadIdx.x; i < n; i += kThreads) kept[i] = from.at<K>(line + i);
    __syncthreads();
  }
  __device__ __forceinline__ K operator[](int i) const { return kept ? kept[i] : from.at<K>(line + i); }
};

// Keys of the wanted rank are those whose bits under the mask are `key`, and of them the one after `before`
// others.
template <class K>
struct Sought {
  K key, mask;
  int before;
};
constexpr int kCopies = 4;  // of the counts, so that neighbours with one digit meet less often

template <class K, int kThreads>
__device__ Sought<K> seek(const LineKeys<K, kThreads>& keys, int rank) {
  __shared__ int counts[256 * kCopies];
  __shared__ int digit, smaller;
  Sought<K> s{0, 0, rank};
  const int first = (keys.from.end - 1) / 8 * 8;
  for (int low = first; low >= 0 && low + 8 > keys.from.begin; low -= 8) {
    for (int b = threadIdx.x; b < 256 * kCopies; b += kThreads) counts[b] = 0;
    __syncthreads();
#pragma unroll 4
    for (int i = threadIdx.x; i < keys.n; i += kThreads) {
      const K key = keys[i];
      if ((key & s.mask) == s.key) atomicAdd(&counts[(key >> low & 255) + 256 * (threadIdx.x % kCopies)], 1);
    }
    __syncthreads();
    for (int b = threadIdx.x; b < 256; b += kThreads)
      for (int c = 1; c < kCopies; ++c) counts[b] += counts[b + 256 * c];
    __syncthreads();
    if (threadIdx.x < 32) {
      int own = 0;
      for (int b = 0; b < 8; ++b) own += counts[threadIdx.x * 8 + b];
      int upto = own;
      for (int m = 1; m < 32; m *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, upto, m);
        if (threadIdx.x >= m) upto += other;
      }
      int before = upto - own;
      if (before <= s.before && s.before < upto) {
        int b = threadIdx.x * 8;
        while (before + counts[b] <= s.before) before += counts[b++];
        digit = b;
        smaller = before;
      }
    }
    __syncthreads();
    s.key |= static_cast<K>(digit) << low;
    s.mask |= static_cast<K>(255) << low;
    s.before -= smaller;
    __syncthreads();
  }
  return s;
}

// Keys of narrow integers have no bits above `end`; turned around they are all ones there.
template <class K, int kThreads>
__global__ void __launch_bounds__(kThreads)
    pick_ranked(const __grid_constant__ Keys from, char* out, int64_t* indices, int n, int k, Rank rule) {
  using Scan = cub::BlockScan<int, kThreads>;
  __shared__ typename Scan::TempStorage shared;
  __shared__ SharedArray<K, kKept / sizeof(K)> room;
  const int64_t line = int64_t(blockIdx.x) * n;
  const LineKeys<K, kThreads> keys(from, line, n, room.get());
  if (rule != Rank::Given) {
    int numbers = n;
    if (is_floating(from.dtype)) {
      numbers = 0;
      for (int first = 0; first < n; first += kThreads) {
        const int i = first + static_cast<int>(threadIdx.x);
        numbers += __syncthreads_count(i < n && keys[i] != ~K(0));
      }
    }
    k = middle(rule, numbers, n);
  }
  const Sought<K> s = seek<K, kThreads>(keys, k);
  int seen = 0;
  for (int first = 0; seen <= s.before; first += kThreads) {
    const int i = first + static_cast<int>(threadIdx.x);
    const int equal = i < n && (keys[i] & s.mask) == s.key;
    int before, all;
    Scan(shared).ExclusiveSum(equal, before, all);
    if (equal && seen + before == s.before) {
      from.move(out, blockIdx.x, line + i);
      indices[blockIdx.x] = i;
    }
    seen += all;
    __syncthreads();
  }
}

// The first k in order.
template <class K, int kThreads, int kItems>
__global__ void __launch_bounds__(kThreads)
    pick_first(const __grid_constant__ Keys from, char* out, int64_t* indices, int n, int k) {
  using Scan = cub::BlockScan<int, kThreads>;
  using Sort = cub::BlockRadixSort<K, kThreads, kItems, int>;
  __shared__ union {
    typename Scan::TempStorage scan;
    typename Sort::TempStorage sort;
    char kept[kKept];
  } shared;
  __shared__ int chosen[kThreads * kItems];
  const int64_t line = int64_t(blockIdx.x) * n;
  Sought<K> s;
  {
    const LineKeys<K, kThreads> keys(from, line, n, reinterpret_cast<K*>(shared.kept));
    s = seek<K, kThreads>(keys, k - 1);
  }
  // Those below the last one's key, and as many as are wanted of its equals, in the order of their places.
  int smaller = 0, equals = 0;
  constexpr int kPer = 4;
  for (int first = 0; first < n && smaller + min(equals, s.before + 1) < k; first += kThreads * kPer) {
    int mine = 0, before, all;
#pragma unroll
    for (int j = 0; j < kPer; ++j) {
      const int i = first + static_cast<int>(threadIdx.x) * kPer + j;
      const K key = i < n ? from.at<K>(line + i) & s.mask : ~K(0);
      if (i < n && key < s.key) mine += 1;
      if (i < n && key == s.key) mine += 1 << 16;
    }
    Scan(shared.scan).ExclusiveSum(mine, before, all);
    int below = smaller + (before & 0xffff), same = equals + (before >> 16);
    if (mine)
      for (int j = 0; j < kPer; ++j) {
        const int i = first + static_cast<int>(threadIdx.x) * kPer + j;
        if (i >= n) break;
        const K key = from.at<K>(line + i) & s.mask;
        if (key < s.key || (key == s.key && same <= s.before)) chosen[below + min(same, s.before + 1)] = i;
        below += key < s.key;
        same += key == s.key;
      }
    smaller += all & 0xffff;
    equals += all >> 16;
    __syncthreads();
  }
  K keys[kItems];
  int places[kItems];
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    const int i = static_cast<int>(threadIdx.x) * kItems + j;
    places[j] = i < k ? chosen[i] : 0;
    keys[j] = i < k ? from.at<K>(line + places[j]) : ~K(0);
  }
  Sort(shared.sort).SortBlockedToStriped(keys, places, from.begin, from.end);
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    const int i = j * kThreads + static_cast<int>(threadIdx.x);
    if (i >= k) break;
    from.move(out, int64_t(blockIdx.x) * k + i, line + places[j]);
    indices[int64_t(blockIdx.x) * k + i] = places[j];
  }
}

// Whether a block for each line takes less time than to sort all of them.
bool worth_seeking(const Tensor& self, int64_t n) {
  const int64_t lines = n ? self.numel() / n : 0;
  return n <= kLongestSearched && n * (16 - std::min<int64_t>(lines, 16)) <= int64_t(1) << 20;
}
bool worth_seeking_in(const Tensor& self, int64_t dim) {
  const int64_t d = dim < 0 ? dim + self.dim() : dim;
  return d < 0 || d >= self.dim() ||
         worth_seeking(self, self.size(d));  // the kernel itself refuses a bad dim
}

// One element of each line of a contiguous tensor.
void pick(const char* op, const Tensor& source, int64_t n, int64_t k, Rank rule, const Tensor& values,
          const Tensor& indices) {
  if (n <= kLongestCompared) return compare(op, source, false, values, indices, n, k, 1, rule);
  const Keys from(source, false);
  by_key(source, [&](auto key) {
    using K = decltype(key);
    const auto go = [&](auto kernel, unsigned threads) {
      launch(kernel, static_cast<unsigned>(values.numel()), threads, current_stream(), op, from, values.raw(),
             indices.data<int64_t>(), static_cast<int>(n), static_cast<int>(k), rule);
    };
    if (n <= 256)
      go(pick_ranked<K, 64>, 64);
    else if (n <= 8192)
      go(pick_ranked<K, 256>, 256);
    else
      go(pick_ranked<K, 1024>, 1024);
  });
}

// find(lines of a contiguous tensor, their length, values, indices)
template <class F>
std::tuple<Tensor, Tensor> one_of_each_line(const char* op, const Tensor& self, int64_t dim, bool keepdim,
                                            const F& find) {
  const int64_t d = wrap_dim(op, dim, self.dim());
  check_ordered(op, self);
  Dims sizes(self.sizes());
  if (self.dim() && keepdim)
    sizes[d] = 1;
  else if (self.dim())
    sizes.erase(d);
  const Tensor values = empty(sizes, self.options()), indices = empty(sizes, {DType::Int64, self.device()});
  FL_CHECK(values.numel() < int64_t(1) << 31, "[", op, "] expected fewer than 2**31 results on CUDA, got ",
           values.numel());
  OnDevice on(self.device().index);
  if (self.numel()) find(lines_of(self, d), self.dim() ? self.size(d) : 1, values, indices);
  return {values, indices};
}
std::tuple<Tensor, Tensor> ranked(const char* op, const Tensor& self, int64_t k, Rank rule, int64_t dim,
                                  bool keepdim) {
  return one_of_each_line(op, self, dim, keepdim,
                          [&](const Tensor& source, int64_t n, const Tensor& values, const Tensor& indices) {
                            pick(op, source, n, k, rule, values, indices);
                          });
}
std::tuple<Tensor, Tensor> kthvalue(const Tensor& self, int64_t k, int64_t dim, bool keepdim) {
  return ranked("kthvalue", self, k - 1, Rank::Given, dim, keepdim);
}
std::tuple<Tensor, Tensor> median_dim(const Tensor& self, int64_t dim, bool keepdim) {
  return ranked("median", self, 0, Rank::Median, dim, keepdim);
}
std::tuple<Tensor, Tensor> nanmedian_dim(const Tensor& self, int64_t dim, bool keepdim) {
  return ranked("nanmedian", self, 0, Rank::MedianOfNumbers, dim, keepdim);
}
std::tuple<Tensor, Tensor> mode(const Tensor& self, int64_t dim, bool keepdim) {
  return one_of_each_line("mode", self, dim, keepdim,
                          [&](const Tensor& source, int64_t n, const Tensor& values, const Tensor& indices) {
                            const Keys from(source, false);
                            by_key(source, [&](auto key) {
                              by_length(n, [&](auto threads, auto items) {
                                constexpr int block = threads, each = items;
                                launch(mode_of_line<decltype(key), block, each>,
                                       static_cast<unsigned>(values.numel()), block, current_stream(), "mode",
                                       from, values.raw(), indices.data<int64_t>(), static_cast<int>(n));
                              });
                            });
                          });
}
Tensor median_of_all(const char* op, const Tensor& self, Rank rule) {
  check_ordered(op, self);
  OnDevice on(self.device().index);
  const Tensor value = empty({}, self.options()), index = empty({}, {DType::Int64, self.device()});
  pick(op, contiguous(self), self.numel(), 0, rule, value, index);
  return value;
}
Tensor median(const Tensor& self) {
  return median_of_all("median", self, Rank::Median);
}
Tensor nanmedian(const Tensor& self) {
  return median_of_all("nanmedian", self, Rank::MedianOfNumbers);
}

constexpr int64_t kMostFirst = 1024;  // elements that a block puts in order

std::tuple<Tensor, Tensor> topk(const Tensor& self, int64_t k, int64_t dim, bool largest, bool) {
  const int64_t d = wrap_dim("topk", dim, self.dim());
  check_ordered("topk", self);
  const Tensor source = lines_of(self, d);
  const int64_t n = self.dim() ? self.size(d) : 1;
  Dims sizes(source.sizes());
  if (self.dim())
    sizes.back() = k;
  else
    k = 1;  // a single number has no dimension that could be empty
  const Tensor values = empty(sizes, self.options()), indices = empty(sizes, {DType::Int64, self.device()});
  if (values.numel()) {
    const int64_t lines = source.numel() / n;
    FL_CHECK(lines < int64_t(1) << 31, "[topk] expected fewer than 2**31 lines on CUDA, got ", lines);
    OnDevice on(self.device().index);
    const Keys from(source, largest);
    by_key(source, [&](auto key) {
      using K = decltype(key);
      const auto go = [&](auto kernel, unsigned threads) {
        launch(kernel, static_cast<unsigned>(lines), threads, current_stream(), "topk", from, values.raw(),
               indices.data<int64_t>(), static_cast<int>(n), static_cast<int>(k));
      };
      if (n <= kLongestCompared)
        compare("topk", source, largest, values, indices, n, 0, k, Rank::Given);
      else if (n <= 2048 && k <= 128)
        go(pick_first<K, 128, 1>, 128);
      else if (n <= 16384)
        go(pick_first<K, 256, 4>, 256);
      else
        go(pick_first<K, 1024, 1>, 1024);
    });
  }
  return {from_lines(values, d), from_lines(indices, d)};
}

void kthvalue_or_define(const Operator& op, void* context, KeySet keys, Value* args, Value* results) {
  if (!worth_seeking_in(args[0].tensor(), args[2].to_int())) return by_definition(op, keys, args, results);
  checked<&kthvalue>(op, context, keys, args, results);
}
template <auto F>
void median_dim_or_define(const Operator& op, void* context, KeySet keys, Value* args, Value* results) {
  if (!worth_seeking_in(args[0].tensor(), args[1].to_int())) return by_definition(op, keys, args, results);
  checked<F>(op, context, keys, args, results);
}
template <auto F>
void median_or_define(const Operator& op, void* context, KeySet keys, Value* args, Value* results) {
  const Tensor self = args[0].tensor();
  if (self.numel() == 0 || !worth_seeking(self, self.numel())) return by_definition(op, keys, args, results);
  checked<F>(op, context, keys, args, results);
}
void mode_or_define(const Operator& op, void* context, KeySet keys, Value* args, Value* results) {
  const Tensor self = args[0].tensor();
  const int64_t dim = args[1].to_int(), d = dim < 0 ? dim + self.dim() : dim;
  if (d >= 0 && d < self.dim() && self.size(d) > kLongestSorted)
    return by_definition(op, keys, args, results);
  checked<&mode>(op, context, keys, args, results);
}
void topk_or_define(const Operator& op, void* context, KeySet keys, Value* args, Value* results) {
  if (args[1].to_int() > kMostFirst || !worth_seeking_in(args[0].tensor(), args[2].to_int()))
    return by_definition(op, keys, args, results);
  checked<&topk>(op, context, keys, args, results);
}
const detail::Register by_rank{"kthvalue", {Key::CUDA}, Kernel{kthvalue_or_define, nullptr}},
    in_the_middle{"median", {Key::CUDA}, Kernel{median_or_define<&median>, nullptr}},
    in_the_middle_of_numbers{"nanmedian", {Key::CUDA}, Kernel{median_or_define<&nanmedian>, nullptr}},
    of_lines{"median.dim", {Key::CUDA}, Kernel{median_dim_or_define<&median_dim>, nullptr}},
    of_numbers{"nanmedian.dim", {Key::CUDA}, Kernel{median_dim_or_define<&nanmedian_dim>, nullptr}},
    frequent{"mode", {Key::CUDA}, Kernel{mode_or_define, nullptr}},
    first_ones{"topk", {Key::CUDA}, Kernel{topk_or_define, nullptr}};

// ---------------------------------------------------------------- unique values

// Whether an element is the first of a run of equal ones; a NaN equals none.
template <class K>
struct Begins {
  Keys from;
  __device__ __forceinline__ int operator()(int64_t i) const {
    if (i == 0) return 1;
    const K key = from.at<K>(i);
    return key != from.at<K>(i - 1) || (is_floating(from.dtype) && key == ~K(0));
  }
};
__global__ void __launch_bounds__(256) measure_runs(const __grid_constant__ Keys from, const int64_t* starts,
                                                    char* values, int64_t* lengths, int64_t runs, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
  if (i >= runs) return;
  from.move(values, i, starts[i]);
  lengths[i] = (i + 1 < runs ? starts[i + 1] : n) - starts[i];
}
// Which run each element belongs to, from how many runs begin up to it.
__global__ void __launch_bounds__(256)
    tell_runs(const int64_t* begun, const int64_t* places, int64_t* out, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
  if (i < n) out[places ? places[i] : i] = begun[i] - 1;
}

// Integers in order, without their places.
Tensor sorted_integers(const Tensor& flat) {
  const Tensor out = empty(flat.sizes(), flat.options());
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    const int n = static_cast<int>(flat.numel()), last = static_cast<int>(sizeof(T)) * 8;
    with_scratch("unique", flat.device().index, [&](void* scratch, size_t& bytes) {
      return cub::DeviceRadixSort::SortKeys(scratch, bytes, reinterpret_cast<const T*>(flat.raw()),
                                            reinterpret_cast<T*>(out.raw()), n, 0, last, current_stream());
    });
  };
  switch (flat.dtype()) {
    case DType::Int64:
      run(int64_t());
      break;
    case DType::Int32:
      run(int32_t());
      break;
    case DType::Int16:
      run(int16_t());
      break;
    case DType::Int8:
      run(int8_t());
      break;
    default:  // uint8 and bool
      run(uint8_t());
  }
  return out;
}

std::tuple<Tensor, Tensor, Tensor> unique(const Tensor& self, bool consecutive, bool with_inverse) {
  check_ordered("unique", self);
  const Options whole{DType::Int64, self.device()};
  const int64_t n = self.numel();
  FL_CHECK(n < int64_t(1) << 31, "[unique] expected fewer than 2**31 elements on CUDA, got ", n);
  const Tensor inverse = with_inverse ? empty(self.sizes(), whole) : empty({0}, whole);
  if (n == 0) return {empty({0}, self.options()), inverse, empty({0}, whole)};
  const int device = self.device().index;
  OnDevice on(device);
  const cudaStream_t stream = current_stream();
  Tensor flat = contiguous(self), places;
  flat = alias(flat, {n}, {1}, flat.offset());
  if (!consecutive && !with_inverse && is_integral(self.dtype(), true))
    flat = sorted_integers(flat);
  else if (!consecutive)
    std::tie(flat, places) = sort_plain(flat, 0, false);
  const Keys from(flat, false);
  const Tensor starts = empty({n}, whole), count = empty({}, whole);
  const unsigned blocks = static_cast<unsigned>((n + 255) / 256);
  by_key(flat, [&](auto key) {
    const Begins<decltype(key)> begins{from};
    const thrust::counting_iterator<int64_t> all(0);
    with_scratch("unique", device, [&](void* scratch, size_t& bytes) {
      return cub::DeviceSelect::If(scratch, bytes, all, starts.data<int64_t>(), count.data<int64_t>(), int(n),
                                   begins, stream);
    });
    if (!with_inverse) return;
    const Tensor begun = empty({n}, whole);
    const auto flags = thrust::make_transform_iterator(all, begins);
    with_scratch("unique", device, [&](void* scratch, size_t& bytes) {
      return cub::DeviceScan::InclusiveScan(scratch, bytes, flags, begun.data<int64_t>(), Sum(), int(n),
                                            stream);
    });
    launch(tell_runs, blocks, 256, stream, "unique", begun.data<int64_t>(),
           places.defined() ? places.data<int64_t>() : nullptr, inverse.data<int64_t>(), n);
  });
  const int64_t runs = item(count).to<int64_t>();
  const Tensor values = empty({runs}, self.options()), lengths = empty({runs}, whole);
  launch(measure_runs, blocks, 256, stream, "unique", from, starts.data<int64_t>(), values.raw(),
         lengths.data<int64_t>(), runs, n);
  return {values, inverse, lengths};
}
FL_CUDA_KERNEL_MIXED("_unique", unique);

}  // namespace
}  // namespace fl::cuda

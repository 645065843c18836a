// Elements of a rank along a dimension: topk, kthvalue, medians and modes. A block for each line finds the
// key of a rank digit by digit.
#include <cub/block/block_discontinuity.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>

#include "cuda/ops/ordering.cuh"

namespace fl::cuda {

namespace {

// ---------------------------------------------------------------- the most frequent element

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
// ---------------------------------------------------------------- elements of a rank

constexpr int64_t kLongestSearched = int64_t(1) << 20;  // line of a block
constexpr int kCached = 16 * 1024;                      // bytes of keys that a block keeps

// The keys of a line, read once where they fit.
template <class K, int kThreads>
struct LineKeys {
  const Keys& from;
  int64_t line;
  int n;
  K* cached;
  __device__ LineKeys(const Keys& keys, int64_t first, int count, K* room)
      : from(keys), line(first), n(count), cached(count * sizeof(K) <= kCached ? room : nullptr) {
    if (!cached) return;
    for (int i = threadIdx.x; i < n; i += kThreads) cached[i] = from.at<K>(line + i);
    __syncthreads();
  }
  __device__ __forceinline__ K operator[](int i) const { return cached ? cached[i] : from.at<K>(line + i); }
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
  __shared__ SharedArray<K, kCached / sizeof(K)> room;
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
    char cached[kCached];
  } shared;
  __shared__ int chosen[kThreads * kItems];
  const int64_t line = int64_t(blockIdx.x) * n;
  Sought<K> s;
  {
    const LineKeys<K, kThreads> keys(from, line, n, reinterpret_cast<K*>(shared.cached));
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
}  // namespace
}  // namespace fl::cuda

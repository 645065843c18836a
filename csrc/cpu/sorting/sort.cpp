// Sorting and selection along a dimension: sort, topk, kthvalue, median, mode. Lines are turned into integer
// keys packed with positions; long lines are sorted by radix.

#include "cpu/sorting/sort_keys.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "core/bytes.h"
#include "core/parallel.h"
#include "dispatch/kernel.h"
#include "ops/outputs.h"

namespace fl {

template <class K>
void keys_of(DType dtype, const void* x, int64_t n, K flip, K* to) {
  dispatch(dtype, [&](auto type) {
    using S = typename decltype(type)::type;
    if constexpr (!is_complex_type<S> && std::is_same_v<SortKey<S>, K>)
      for (int64_t i = 0; i < n; ++i) to[i] = key_of(static_cast<const S*>(x)[i]) ^ flip;
  });
}

template <class K>
void fill_keys(DType dtype, const void* x, int64_t n, bool descending, Packed<K>* to) {
  constexpr int64_t block = 512;
  parallel_for(n, kGrain / 4, [&](int64_t begin, int64_t end) {
    K keys[block];
    for (int64_t first = begin; first < end; first += block) {
      const int64_t m = std::min(block, end - first);
      keys_of(dtype, static_cast<const char*>(x) + first * size_of(dtype), m, descending ? ~K(0) : K(0),
              keys);
      for (int64_t i = 0; i < m; ++i) to[first + i] = Packed<K>(keys[i], first + i);
    }
  });
}
void take(int64_t itemsize, const char* from, const int64_t* at, int64_t n, char* to) {
  dispatch_bytes(itemsize, [&](auto type) {
    using U = typename decltype(type)::type;
    parallel_for(n, kGrain / 8, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        reinterpret_cast<U*>(to)[i] = reinterpret_cast<const U*>(from)[at[i]];
    });
  });
}

template void keys_of(DType, const void*, int64_t, uint32_t, uint32_t*);
template void keys_of(DType, const void*, int64_t, uint64_t, uint64_t*);
template void fill_keys(DType, const void*, int64_t, bool, Packed<uint32_t>*);
template void fill_keys(DType, const void*, int64_t, bool, Packed<uint64_t>*);

namespace {

constexpr int kBuckets = 256;                    // of a digit
constexpr int64_t kLongLine = int64_t(1) << 15;  // pairs that several threads sort together
constexpr double kPairTime = 2;                  // nanoseconds that a pair takes in a pass over one digit

template <class K>
int digit_of(const Packed<K>& pair, int digit) {
  return static_cast<int>(pair.key() >> (8 * digit) & (kBuckets - 1));
}

// Sorts by radix as one thread does. Each piece counts its own part of the line; where the pairs of a bucket
// go follows from the counts of all pieces, in order, so that the number of pieces changes nothing.
template <class K>
void sort_together(Packed<K>* data, Packed<K>* other, int64_t n, int pieces) {
  const double time = kPairTime / 2 * static_cast<double>(n);
  const auto over_parts = [&](const auto& f) {
    parallel_pieces(pieces, time,
                    [&](int piece, int) { f(piece, n * piece / pieces, n * (piece + 1) / pieces); });
  };
  std::vector<uint32_t> counts(static_cast<size_t>(pieces) * kBuckets);
  Packed<K>*from = data, *to = other;
  for (int digit = 0; digit < static_cast<int>(sizeof(K)); ++digit) {
    over_parts([&](int piece, int64_t begin, int64_t end) {
      uint32_t own[kBuckets] = {};
      for (int64_t i = begin; i < end; ++i) ++own[digit_of(from[i], digit)];
      std::copy(own, own + kBuckets, counts.data() + piece * kBuckets);
    });
    uint32_t at = 0;
    bool same = false;
    for (int bucket = 0; bucket < kBuckets; ++bucket) {
      const uint32_t before = at;
      for (int piece = 0; piece < pieces; ++piece) at += std::exchange(counts[piece * kBuckets + bucket], at);
      same |= at - before == static_cast<uint64_t>(n);
    }
    if (same) continue;
    over_parts([&](int piece, int64_t begin, int64_t end) {
      uint32_t next[kBuckets];
      std::copy_n(counts.data() + piece * kBuckets, kBuckets, next);
      for (int64_t i = begin; i < end; ++i) to[next[digit_of(from[i], digit)]++] = from[i];
    });
    std::swap(from, to);
  }
  if (from != data)
    over_parts([&](int, int64_t begin, int64_t end) { std::copy(from + begin, from + end, data + begin); });
}

}  // namespace

template <class K>
void sort_packed(Packed<K>* data, Packed<K>* other, int64_t n) {
  if (n < 200) {
    std::sort(data, data + n);
    return;
  }
  constexpr int digits = sizeof(K);
  const double time = digits * kPairTime * static_cast<double>(n);
  if (const int pieces = n < kLongLine ? 1 : thread_model::pieces_for(time); pieces > 1)
    return sort_together(data, other, n, pieces);
  // One pass counts all digits; a digit that is the same everywhere needs no pass.
  std::vector<uint32_t> counts(digits * 256, 0);
  uint32_t* count = counts.data();
  for (int64_t i = 0; i < n; ++i) {
    const K k = data[i].key();
    for (int d = 0; d < digits; ++d) ++count[d * 256 + (k >> (8 * d) & 255)];
  }
  Packed<K>*from = data, *to = other;
  for (int d = 0; d < digits; ++d) {
    uint32_t* c = count + d * 256;
    if (c[from[0].key() >> (8 * d) & 255] == n) continue;
    uint32_t at = 0;
    for (int b = 0; b < 256; ++b) {
      const uint32_t own = c[b];
      c[b] = at;
      at += own;
    }
    for (int64_t i = 0; i < n; ++i) to[c[from[i].key() >> (8 * d) & 255]++] = from[i];
    std::swap(from, to);
  }
  if (from != data) std::memcpy(static_cast<void*>(data), from, n * sizeof(Packed<K>));
}
template void sort_packed(Packed<uint32_t>*, Packed<uint32_t>*, int64_t);
template void sort_packed(Packed<uint64_t>*, Packed<uint64_t>*, int64_t);

namespace {

Tensor moved(const Tensor& t, int64_t from, int64_t to) {
  Dims sizes(t.sizes()), strides(t.strides());
  const int64_t s = sizes[from], st = strides[from];
  sizes.erase(from);
  strides.erase(from);
  sizes.insert(to, s);
  strides.insert(to, st);
  return alias(t, sizes, strides, t.offset());
}

}  // namespace

Tensor lines_of(const Tensor& t, int64_t dim) {
  return contiguous(t.dim() < 2 ? t : moved(t, dim, t.dim() - 1));
}

LineResult::LineResult(IntSpan sizes, int64_t dim, Options options) {
  if (sizes.size() < 2) {
    lines = result = empty(sizes, options);
    return;
  }
  Dims s(sizes);
  const int64_t n = s[dim];
  s.erase(dim);
  s.push_back(n);
  lines = empty(s, options);
  result = moved(lines, static_cast<int64_t>(s.size()) - 1, dim);
}
Tensor LineResult::finish(const Tensor& like) const {
  const IntSpan sizes = result.sizes();
  const Dims strides = like.defined() && !like.is_contiguous()
                           ? Dims(empty_like(like, lines.dtype()).strides())
                           : contiguous_strides(sizes);
  bool lies_so = true;
  for (size_t d = 0; d < sizes.size(); ++d) lies_so &= sizes[d] == 1 || strides[d] == result.stride(d);
  if (lies_so) return alias(lines, sizes, strides, lines.offset());
  const Tensor out = empty_strided(sizes, strides, lines.options());
  if (!out.is_meta()) copy_into(out, result);
  return out;
}

namespace {

using Pair = std::tuple<Tensor, Tensor>;

void check_real(const char* op, const Tensor& t, bool allow_bool = true) {
  FL_CHECK_KIND(!is_complex(t.dtype()) && (allow_bool || t.dtype() != DType::Bool), NotImplemented, "[", op,
                "] expected a dtype with an order, got ", name_of(t.dtype()));
  FL_CHECK(t.numel() < (int64_t(1) << 32), "[", op, "] expected fewer than 2**32 elements, got ", t.numel());
}

// Runs f(line number, scratch) over lines in parallel; each thread has its own scratch of pairs. With
// `together`, f divides long lines itself when they are fewer than threads.
template <class K, class F>
void for_lines(int64_t lines, int64_t n, int64_t room, const F& f, bool together = false) {
  if (together && n >= kLongLine && lines < num_threads()) {
    const Tensor scratch = empty({room * static_cast<int64_t>(sizeof(Packed<K>))}, {DType::UInt8, Device{}});
    for (int64_t l = 0; l < lines; ++l) f(l, reinterpret_cast<Packed<K>*>(scratch.raw()));
    return;
  }
  parallel_for(lines, std::max<int64_t>(1, kGrain / 16 / (n + 1)), [&](int64_t b, int64_t e) {
    const std::unique_ptr<Packed<K>[]> scratch(new Packed<K>[std::max<int64_t>(room, 1)]);
    for (int64_t l = b; l < e; ++l) f(l, scratch.get());
  });
}

Pair sort(const Tensor& self, std::optional<bool>, int64_t dim, bool descending) {
  check_real("sort", self);
  const int64_t d = wrap_dim("sort", dim, self.dim());
  const int64_t n = self.dim() ? self.size(d) : 1;
  LineResult values(self.sizes(), d, self.options()), indices(self.sizes(), d, {DType::Int64, self.device()});
  if (self.is_meta() || self.numel() == 0) return {values.finish(self), indices.finish(self)};
  const Tensor source = lines_of(self, d);
  const int64_t line_bytes = n * self.itemsize();
  dispatch_keys(self.dtype(), [&](auto zero) {
    using K = decltype(zero);
    const auto sort_line = [&](int64_t l, Packed<K>* keys) {
      const char* x = source.raw() + l * line_bytes;
      fill_keys(self.dtype(), x, n, descending, keys);
      sort_packed(keys, keys + n, n);
      int64_t* at = indices.lines.template data<int64_t>() + l * n;
      parallel_for(n, kGrain / 4, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) at[i] = keys[i].index();
      });
      take(self.itemsize(), x, at, n, values.lines.raw() + l * line_bytes);
    };
    for_lines<K>(self.numel() / n, n, 2 * n, sort_line, true);
  });
  return {values.finish(self), indices.finish(self)};
}

// Whether so few are wanted that keeping the best seen so far beats a partition.
bool few(int64_t n, int64_t k) {
  return k > 0 && k <= 128 && k * 8 <= n;
}

// The k smallest pairs of n elements to the front of `keys`, sorted when asked. Room for n pairs, or for k
// when they are few.
template <class K>
void select(DType dtype, const char* x, int64_t n, int64_t k, bool largest, bool sorted, Packed<K>* keys) {
  if (few(n, k)) {
    // Keep the best k in order; blocks without a better element are passed over at once.
    fill_keys(dtype, x, k, largest, keys);
    std::sort(keys, keys + k);
    int64_t i = k;
    constexpr int64_t block = 128;
    K buffer[block];
    while (i < n) {
      const int64_t m = std::min(block, n - i);
      const K worst = keys[k - 1].key();
      keys_of(dtype, x + i * size_of(dtype), m, largest ? ~K(0) : K(0), buffer);
      int better = 0;
      for (int64_t j = 0; j < m; ++j) better |= buffer[j] < worst;
      if (better)
        for (int64_t j = 0; j < m; ++j) {
          if (!(buffer[j] < keys[k - 1].key())) continue;
          const Packed<K> fresh(buffer[j], i + j);
          int64_t at = k - 1;
          for (; at > 0 && fresh < keys[at - 1]; --at) keys[at] = keys[at - 1];
          keys[at] = fresh;
        }
      i += m;
    }
    return;
  }
  fill_keys(dtype, x, n, largest, keys);
  if (k > 0 && k < n) std::nth_element(keys, keys + (k - 1), keys + n);
  if (sorted) std::sort(keys, keys + k);
}

Pair topk(const Tensor& self, int64_t k, int64_t dim, bool largest, bool sorted) {
  check_real("topk", self, false);
  const int64_t d = wrap_dim("topk", dim, self.dim());
  const int64_t n = self.dim() ? self.size(d) : 1;
  FL_CHECK(k >= 0 && k <= n, "[topk] expected k in [0, ", n, "], got ", k);
  Dims sizes(self.sizes());
  if (self.dim())
    sizes[d] = k;
  else
    k = 1;  // a single number has no dimension that could be empty
  LineResult values(sizes, d, self.options()), indices(sizes, d, {DType::Int64, self.device()});
  if (self.is_meta() || values.lines.numel() == 0 || k == 0) return {values.finish(), indices.finish()};
  const Tensor source = lines_of(self, d);
  const int64_t itemsize = self.itemsize();
  dispatch_keys(self.dtype(), [&](auto zero) {
    using K = decltype(zero);
    for_lines<K>(self.numel() / n, n, few(n, k) ? k : n, [&](int64_t l, Packed<K>* keys) {
      const char* x = source.raw() + l * n * itemsize;
      select(self.dtype(), x, n, k, largest, sorted, keys);
      int64_t* at = indices.lines.template data<int64_t>() + l * k;
      for (int64_t i = 0; i < k; ++i) at[i] = keys[i].index();
      take(itemsize, x, at, k, values.lines.raw() + l * k * itemsize);
    });
  });
  return {values.finish(), indices.finish()};
}

// One value and its index for each line: pick(n, keys) -> position, with room for as many keys behind them.
template <class F>
Pair pick_line(const char* op, const Tensor& self, int64_t dim, bool keepdim, const F& pick) {
  check_real(op, self);
  const int64_t d = wrap_dim(op, dim, self.dim());
  const int64_t n = self.dim() ? self.size(d) : 1;
  Dims sizes(self.sizes());
  if (self.dim()) {
    if (keepdim)
      sizes[d] = 1;
    else
      sizes.erase(d);
  }
  Tensor values = empty(sizes, self.options()), indices = empty(sizes, {DType::Int64, self.device()});
  if (!self.is_meta() && values.numel() != 0) {
    const Tensor source = lines_of(self, d);
    const int64_t itemsize = self.itemsize();
    dispatch_keys(self.dtype(), [&](auto zero) {
      using K = decltype(zero);
      for_lines<K>(values.numel(), n, 2 * n, [&](int64_t l, Packed<K>* keys) {
        const char* x = source.raw() + l * n * itemsize;
        fill_keys(self.dtype(), x, n, false, keys);
        const int64_t at = pick(n, keys);
        take(itemsize, x, &at, 1, values.raw() + l * itemsize);
        indices.data<int64_t>()[l] = at;
      });
    });
  }
  return {std::move(values), std::move(indices)};
}

void check_not_empty(const char* op, const Tensor& self, int64_t dim) {
  const int64_t d = wrap_dim(op, dim, self.dim());
  FL_CHECK_KIND(self.dim() == 0 || self.size(d) > 0, Index, "[", op,
                "] expected a dimension that is not empty, got shape ", self.sizes(), " and dim ", dim);
}

Pair kthvalue(const Tensor& self, int64_t k, int64_t dim, bool keepdim) {
  const int64_t d = wrap_dim("kthvalue", dim, self.dim());
  const int64_t size = self.dim() ? self.size(d) : 1;
  FL_CHECK_KIND(self.dim() == 0 || size > 0, Index,
                "[kthvalue] expected a dimension that is not empty, got shape ", self.sizes());
  check_real("kthvalue", self, false);
  FL_CHECK(k >= 1 && k <= size, "[kthvalue] expected k in [1, ", size, "], got ", k);
  return pick_line("kthvalue", self, dim, keepdim, [&](int64_t n, auto* keys) {
    std::nth_element(keys, keys + (k - 1), keys + n);
    return keys[k - 1].index();
  });
}

// Unlike most out= forms this one refuses results that lie in the input, even exactly.
Pair kthvalue_out(const Tensor& self, int64_t k, int64_t dim, bool keepdim, const Tensor& values,
                  const Tensor& indices) {
  for (const Tensor* out : {&values, &indices}) {
    FL_CHECK(!has_internal_overlap(*out),
             "[kthvalue] expected an out whose elements are distinct in memory, got an expanded tensor: "
             "unsupported operation: more than one element of the "
             "written-to tensor refers to a single memory location");
    const bool same =
        out->offset() == self.offset() && out->sizes() == self.sizes() && out->strides() == self.strides();
    FL_CHECK(out->is_meta() || out->numel() == 0 || (*out)->storage.get() != self->storage.get() ||
                 (!same && !overlaps_partially(*out, self)),
             "[kthvalue] expected an out that shares no memory with its input, got views of one memory");
  }
  const Pair result = kthvalue(self, k, dim, keepdim);
  const auto write = [](const Tensor& out, const Tensor& value) {
    FL_CHECK(out.device() == value.device(), "[", "kthvalue", "] expected out on ", to_string(value.device()),
             ", got ", to_string(out.device()));
    FL_CHECK(out.dtype() == value.dtype(), "[kthvalue] expected an out of dtype ", name_of(value.dtype()),
             ", got ", name_of(out.dtype()));
    prepare_out("kthvalue", out, value.sizes(), value.dtype(), true);
    out.bump_version();
    copy_into(out, value);
  };
  write(values, std::get<0>(result));
  write(indices, std::get<1>(result));
  return {values, indices};
}

// Position of the lower median of keys in order of position; NaN wins, or is left out.
template <class K>
int64_t median_of(DType dtype, int64_t n, Packed<K>* keys, bool skip_nan) {
  int64_t nans = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (!is_nan_key(dtype, keys[i].key())) continue;
    if (!skip_nan) return i;
    ++nans;
  }
  const int64_t numbers = n - nans;
  if (numbers == 0) return 0;
  const int64_t k = (numbers - 1) / 2;
  std::nth_element(keys, keys + k, keys + n);
  return keys[k].index();
}

Pair median_line(const char* op, const Tensor& self, int64_t dim, bool keepdim, bool skip_nan) {
  check_real(op, self, false);
  check_not_empty(op, self, dim);
  return pick_line(op, self, dim, keepdim,
                   [&](int64_t n, auto* keys) { return median_of(self.dtype(), n, keys, skip_nan); });
}
Pair median_dim(const Tensor& self, int64_t dim, bool keepdim) {
  return median_line("median", self, dim, keepdim, false);
}
Pair nanmedian_dim(const Tensor& self, int64_t dim, bool keepdim) {
  return median_line("nanmedian", self, dim, keepdim, true);
}

Tensor median_flat(const char* op, const Tensor& self, bool skip_nan) {
  check_real(op, self, false);
  Tensor out = empty({}, self.options());
  if (self.is_meta()) return out;
  if (self.numel() == 0) {  // NaN, and the least value of integers
    dispatch(self.dtype(), [&](auto type) {
      using S = typename decltype(type)::type;
      *out.data<S>() = std::is_integral_v<S> ? std::numeric_limits<S>::lowest()
                                             : convert<S>(std::numeric_limits<float>::quiet_NaN());
    });
    return out;
  }
  const Tensor source = contiguous(self);
  dispatch_keys(self.dtype(), [&](auto zero) {
    std::vector<Packed<decltype(zero)>> keys(source.numel());
    fill_keys(self.dtype(), source.raw(), source.numel(), false, keys.data());
    const int64_t at = median_of(self.dtype(), source.numel(), keys.data(), skip_nan);
    take(self.itemsize(), source.raw(), &at, 1, out.raw());
  });
  return out;
}
Tensor median(const Tensor& self) {
  return median_flat("median", self, false);
}
Tensor nanmedian(const Tensor& self) {
  return median_flat("nanmedian", self, true);
}

Pair mode(const Tensor& self, int64_t dim, bool keepdim) {
  check_not_empty("mode", self, dim);
  return pick_line("mode", self, dim, keepdim, [](int64_t n, auto* keys) {
    sort_packed(keys, keys + n, n);
    int64_t best = 0, best_count = 0;
    for (int64_t i = 0; i < n;) {
      int64_t end = i + 1;
      while (end < n && keys[end].key() == keys[i].key()) ++end;
      if (end - i > best_count) {
        best_count = end - i;
        best = end - 1;
      }
      i = end;
    }
    return keys[best].index();
  });
}

FL_KERNEL("sort.stable", sort, kCpu);
FL_KERNEL("topk", topk, kCpu);
FL_KERNEL("kthvalue", kthvalue, kCpu);
FL_KERNEL("kthvalue.out", kthvalue_out, kCpu);
FL_KERNEL("median", median, kCpu);
FL_KERNEL("median.dim", median_dim, kCpu);
FL_KERNEL("nanmedian", nanmedian, kCpu);
FL_KERNEL("nanmedian.dim", nanmedian_dim, kCpu);
FL_KERNEL("mode", mode, kCpu);

Pair sort_plain(const Tensor& self, int64_t dim, bool descending) {
  return sort(self, std::nullopt, dim, descending);
}
Tensor argsort(const Tensor& self, int64_t dim, bool descending) {
  return std::get<1>(sort(self, std::nullopt, dim, descending));
}
Tensor argsort_stable(const Tensor& self, bool, int64_t dim, bool descending) {
  return std::get<1>(sort(self, true, dim, descending));
}
FL_KERNEL("sort", sort_plain, kCpu);
FL_KERNEL("argsort", argsort, kCpu);
FL_KERNEL("argsort.stable", argsort_stable, kCpu);

}  // namespace
}  // namespace fl

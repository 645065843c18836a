// Searching and counting: unique values, positions in sorted sequences, membership, bin counts and
// histograms.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>

#include "core/parallel.h"
#include "cpu/sorting/sort_keys.h"
#include "dispatch/kernel.h"
#include "ops/search.h"

namespace fl {

void check_search(const Tensor& sequence, const Tensor& values, const Tensor& sorter) {
  const auto batch = [](const Tensor& t) { return IntSpan(t.sizes().data(), t.dim() - 1); };
  FL_CHECK(sequence.dim() > 0 &&
               (sequence.dim() == 1 || (sequence.dim() == values.dim() && batch(sequence) == batch(values))),
           "[searchsorted] expected 1-d boundaries or ones that match all but the last dimension of the "
           "values, got ",
           sequence.sizes(), " and ", values.sizes());
  FL_CHECK(!sorter.defined() || (sorter.sizes() == sequence.sizes() && sorter.dtype() == DType::Int64),
           "[searchsorted] expected a sorter of int64 of the boundaries' shape ", sequence.sizes(),
           ", got another");
  FL_CHECK(sequence.device() == values.device() && (!sorter.defined() || sorter.device() == values.device()),
           "[searchsorted] expected tensors on one device, got ", to_string(sequence.device()), " and ",
           to_string(values.device()));
  FL_CHECK(!is_complex(sequence.dtype()) && !is_complex(values.dtype()),
           "[searchsorted] expected real numbers, got complex ones");
}

DType compared_as(const Tensor& a, const Tensor& b) {
  const DType t = compute_of(promote(a.dtype(), b.dtype()));
  return t == DType::Float && a.dtype() != b.dtype() ? DType::Double : t;
}

namespace {

using Triple = std::tuple<Tensor, Tensor, Tensor>;

void check_data(const char* op, const Tensor& t) {
  FL_CHECK_KIND(
      !t.is_meta(), NotImplemented, "[", op,
      "] expected a tensor with data (the result's shape depends on it), got one on the meta device");
}

Tensor tensor_of(const std::vector<int64_t>& values) {
  Tensor t = empty({static_cast<int64_t>(values.size())}, {DType::Int64, Device{}});
  std::copy(values.begin(), values.end(), t.data<int64_t>());
  return t;
}

// ---------------------------------------------------------------- unique

constexpr int64_t kNothing = 0;

// Values, inverse positions (of the input's shape) and counts of the runs of equal keys. NaNs are all
// different from each other, as they are by ==.
template <class K>
Triple runs(const Tensor& source, const Packed<K>* keys, bool with_inverse) {
  const int64_t n = source.numel();
  Tensor inverse =
      empty(with_inverse ? source.sizes() : IntSpan(&kNothing, 1), {DType::Int64, source.device()});
  int64_t* back = with_inverse ? inverse.data<int64_t>() : nullptr;
  std::vector<int64_t> firsts, counts;
  for (int64_t i = 0; i < n; ++i) {
    const K key = keys[i].key();
    if (i == 0 || keys[i - 1].key() != key || is_nan_key(source.dtype(), key)) {
      firsts.push_back(keys[i].index());
      counts.push_back(0);
    }
    ++counts.back();
    if (back) back[keys[i].index()] = static_cast<int64_t>(firsts.size()) - 1;
  }
  const int64_t unique_count = static_cast<int64_t>(firsts.size());
  Tensor values = empty({unique_count}, source.options());
  take(source.itemsize(), source.raw(), firsts.data(), unique_count, values.raw());
  return {std::move(values), std::move(inverse), tensor_of(counts)};
}

Triple unique(const Tensor& self, bool consecutive, bool with_inverse) {
  check_data("unique", self);
  FL_CHECK_KIND(!is_complex(self.dtype()), NotImplemented, "[unique] expected a dtype with an order, got ",
                name_of(self.dtype()));
  const Tensor source = contiguous(self);
  const int64_t n = source.numel();
  Triple result;
  dispatch_keys(self.dtype(), [&](auto zero) {
    using K = decltype(zero);
    const std::unique_ptr<Packed<K>[]> keys(new Packed<K>[2 * n + 1]);
    fill_keys(self.dtype(), source.raw(), n, false, keys.get());
    if (!consecutive) sort_packed(keys.get(), keys.get() + n, n);
    result = runs(source, keys.get(), with_inverse);
  });
  return result;
}

// Slices along the first dimension of a contiguous tensor: those that are kept, where each went, and the
// counts.
Triple unique_rows(const Tensor& self, bool consecutive) {
  check_data("unique", self);
  FL_CHECK_KIND(!is_complex(self.dtype()), NotImplemented, "[unique] expected a dtype with an order, got ",
                name_of(self.dtype()));
  const Tensor source = contiguous(self);
  const int64_t n = source.size(0), width = n ? source.numel() / n : 0;
  std::vector<int64_t> order(n), firsts, counts;
  std::iota(order.begin(), order.end(), int64_t(0));
  Tensor inverse = empty({n}, {DType::Int64, self.device()});
  dispatch_keys(self.dtype(), [&](auto zero) {
    using K = decltype(zero);
    std::vector<K> keys(source.numel());
    keys_of(self.dtype(), source.raw(), source.numel(), K(0), keys.data());
    const K* x = keys.data();
    const auto less = [&](int64_t a, int64_t b) {
      return std::lexicographical_compare(x + a * width, x + (a + 1) * width, x + b * width,
                                          x + (b + 1) * width);
    };
    const auto same = [&](int64_t a, int64_t b) {
      return std::equal(x + a * width, x + (a + 1) * width, x + b * width,
                        [&](K p, K q) { return p == q && !is_nan_key(self.dtype(), p); });
    };
    if (!consecutive) std::stable_sort(order.begin(), order.end(), less);
    for (int64_t i = 0; i < n; ++i) {
      if (i == 0 || !same(order[i - 1], order[i])) {
        firsts.push_back(order[i]);
        counts.push_back(0);
      }
      ++counts.back();
      inverse.data<int64_t>()[order[i]] = static_cast<int64_t>(firsts.size()) - 1;
    }
  });
  return {tensor_of(firsts), std::move(inverse), tensor_of(counts)};
}

// ---------------------------------------------------------------- positions in sorted sequences

// How many of n sorted elements come before x. The halves are chosen without a jump, which no processor could
// foretell.
template <class T, class Before, class Element>
int64_t count_before(int64_t line, int64_t n, T x, const Before& before, const Element& element) {
  int64_t low = 0;
  if (n == 0) return 0;
  while (n > 1) {
    const int64_t half = n / 2;
    low += before(element(line, low + half - 1), x) ? half : 0;
    n -= half;
  }
  return low + (before(element(line, low), x) ? 1 : 0);
}

template <class F>
void dispatch_real(DType compute, const F& f) {
  if (compute == DType::Int64)
    f(Type<int64_t>{});
  else
    dispatch_float(compute, f);
}

Tensor search(const Tensor& sequence, const Tensor& values, bool right, bool int32, const Tensor& sorter) {
  const DType result = int32 ? DType::Int32 : DType::Int64;
  check_search(sequence, values, sorter);
  const bool one_line = sequence.dim() == 1;
  Tensor out = empty(values.sizes(), {result, values.device()});
  if (values.is_meta() || values.numel() == 0) return out;
  const int64_t n = sequence.size(-1), per_line = one_line ? values.numel() : values.size(-1);
  const Tensor order = sorter.defined() ? contiguous(sorter) : sorter;
  if (order.defined())
    for (int64_t i = 0; i < order.numel(); ++i)
      FL_CHECK(order.data<int64_t>()[i] >= 0 && order.data<int64_t>()[i] < n,
               "[searchsorted] expected a sorter within the boundaries, got an index out of range");
  const DType compute = compared_as(sequence, values);
  const Tensor s = contiguous(to_dtype(sequence, compute)), v = contiguous(to_dtype(values, compute));
  Tensor places = int32 ? empty(values.sizes(), {DType::Int64, values.device()}) : out;
  dispatch_real(compute, [&](auto type) {
    using T = typename decltype(type)::type;
    parallel_for(v.numel(), 2048, [&](int64_t b, int64_t e) {
      const T *all = s.data<T>(), *value = v.data<T>();
      int64_t* to = places.data<int64_t>();
      const auto look = [&](auto before, auto element) {
        for (int64_t i = b; i < e; ++i)
          to[i] = count_before(one_line ? 0 : i / per_line * n, n, value[i], before, element);
      };
      const auto pick = [&](auto before) {
        if (order.defined())
          look(before, [all, at = order.data<int64_t>()](int64_t line, int64_t i) {
            return all[line + at[line + i]];
          });
        else
          look(before, [all](int64_t line, int64_t i) { return all[line + i]; });
      };
      if (right)
        pick([](T m, T x) { return !(m > x); });
      else
        pick([](T m, T x) { return !(m >= x); });
    });
  });
  if (int32) copy_into(out, places);
  return out;
}

// ---------------------------------------------------------------- counting

Tensor bincount(const Tensor& self, const Tensor& weights, int64_t minlength) {
  check_data("bincount", self);
  FL_CHECK(minlength >= 0, "[bincount] expected minlength of at least 0, got ", minlength);
  FL_CHECK(self.dim() == 1, "[bincount] expected a tensor of one dimension, got shape ", self.sizes());
  FL_CHECK_KIND(is_integral(self.dtype()), NotImplemented, "[bincount] expected integers, got ",
                name_of(self.dtype()));
  FL_CHECK(!weights.defined() || weights.sizes() == self.sizes(), "[bincount] expected weights of the shape ",
           self.sizes(), ", got ", weights.defined() ? weights.sizes() : IntSpan());
  const Tensor source = contiguous(to_dtype(self, DType::Int64));
  const int64_t n = source.numel();
  const int64_t* x = source.data<int64_t>();
  int64_t most = -1, least = 0;
  for (int64_t i = 0; i < n; ++i) {
    most = std::max(most, x[i]);
    least = std::min(least, x[i]);
  }
  FL_CHECK(least >= 0, "[bincount] expected integers that are not negative, got ", least,
           ": bincount only supports 1-d non-negative integral inputs.");
  FL_CHECK_KIND(most < std::numeric_limits<int64_t>::max(), OutOfMemory,
                "[bincount] expected a largest value whose bins fit in memory, got ", most);
  const int64_t bins = std::max(minlength, most + 1);
  const DType result = !weights.defined()                ? DType::Int64
                       : weights.dtype() == DType::Float ? DType::Float
                                                         : DType::Double;
  Tensor out = empty({bins}, {result, self.device()});
  std::memset(out.raw(), 0, bins * out.itemsize());
  if (!weights.defined()) {
    int64_t* to = out.data<int64_t>();
    // Two sets of counters break the chain through memory when neighbours fall in one bin.
    if (bins <= 4096 && n > 4 * bins) {
      std::vector<int64_t> second(bins, 0);
      int64_t i = 0;
      for (; i + 2 <= n; i += 2) {
        ++to[x[i]];
        ++second[x[i + 1]];
      }
      if (i < n) ++to[x[i]];
      for (int64_t b = 0; b < bins; ++b) to[b] += second[b];
    } else {
      for (int64_t i = 0; i < n; ++i) ++to[x[i]];
    }
    return out;
  }
  const Tensor w = contiguous(to_dtype(weights, result));
  dispatch_float(result, [&](auto type) {
    using T = typename decltype(type)::type;
    for (int64_t i = 0; i < n; ++i) out.data<T>()[x[i]] += w.data<T>()[i];
  });
  return out;
}

// Counts (or sums of weights) in bins between `edges`; points of `dims` coordinates, the last dimension of
// bins fastest.
template <class T>
void count_bins(const T* points, const T* weights, int64_t n, const std::vector<std::vector<T>>& edges,
                bool uniform, T* out) {
  const size_t dims = edges.size();
  for (int64_t i = 0; i < n; ++i) {
    int64_t at = 0;
    bool inside = true;
    for (size_t d = 0; inside && d < dims; ++d) {
      const auto& e = edges[d];
      const T x = points[i * static_cast<int64_t>(dims) + static_cast<int64_t>(d)];
      const int64_t bins = static_cast<int64_t>(e.size()) - 1;
      inside = x >= e.front() && x <= e.back();
      if (!inside) break;
      int64_t b;
      if (uniform) {
        b = std::min(bins - 1,
                     static_cast<int64_t>((x - e.front()) * static_cast<T>(bins) / (e.back() - e.front())));
        b = std::max<int64_t>(b, 0);
        // The division may round across an edge.
        if (b > 0 && x < e[b]) --b;
        if (b + 1 < bins && x >= e[b + 1]) ++b;
      } else {
        b = std::upper_bound(e.begin(), e.end(), x) - e.begin() - 1;
        b = std::max<int64_t>(0, std::min(b, bins - 1));  // edges that are not sorted may give anything
      }
      at = at * bins + b;
    }
    if (inside) out[at] += weights ? weights[i] : T(1);
  }
}

Tensor histogramdd(const Tensor& points, const std::vector<Tensor>& edges, bool uniform,
                   const Tensor& weight) {
  FL_CHECK(!edges.empty(), "[histogramdd] expected the edges of at least one dimension, got none");
  FL_CHECK(points.dim() > 0 && points.size(-1) == static_cast<int64_t>(edges.size()),
           "[histogramdd] expected points of ", static_cast<int64_t>(edges.size()),
           " coordinates, got shape ", points.sizes());
  FL_CHECK(!weight.defined() || weight.numel() * points.size(-1) == points.numel(),
           "[histogramdd] expected one weight for each point of ", points.sizes(), ", got ",
           weight.defined() ? weight.sizes() : IntSpan());
  for (const Tensor& e : edges)
    FL_CHECK(e.device() == points.device(), "[histogramdd] expected edges on ", to_string(points.device()),
             ", got ", to_string(e.device()));
  FL_CHECK(!weight.defined() || weight.device() == points.device(), "[histogramdd] expected a weight on ",
           to_string(points.device()), ", got another device");
  Dims sizes;
  for (const Tensor& e : edges) sizes.push_back(std::max<int64_t>(0, e.numel() - 1));
  Tensor out = empty(sizes, points.options());
  if (points.is_meta()) return out;
  std::memset(out.raw(), 0, out.numel() * out.itemsize());
  if (out.numel() == 0) return out;
  const Tensor p = contiguous(points);
  const Tensor w = weight.defined() ? contiguous(to_dtype(weight, points.dtype())) : weight;
  FL_CHECK_KIND(points.dtype() == DType::Float || points.dtype() == DType::Double, NotImplemented,
                "[histogram] expected float32 or float64, got ", name_of(points.dtype()));
  dispatch_float(points.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    std::vector<std::vector<T>> bins;
    for (const Tensor& e : edges) {
      const Tensor c = contiguous(to_dtype(e, points.dtype()));
      bins.emplace_back(c.data<T>(), c.data<T>() + c.numel());
    }
    count_bins(p.data<T>(), w.defined() ? w.data<T>() : nullptr,
               p.numel() / static_cast<int64_t>(edges.size()), bins, uniform, out.data<T>());
  });
  return out;
}

Tensor histc(const Tensor& self, int64_t bins, const Scalar& min, const Scalar& max) {
  FL_CHECK(bins > 0, "[histc] expected a positive number of bins, got ", bins);
  FL_CHECK_KIND(is_floating(self.dtype()), NotImplemented, "[histc] expected a floating point dtype, got ",
                name_of(self.dtype()));
  Tensor out = empty({bins}, self.options());
  if (self.is_meta()) return out;
  const Tensor source = contiguous(self);
  dispatch(self.dtype(), [&](auto type) {
    using S = typename decltype(type)::type;
    if constexpr (!std::is_integral_v<S> && !is_complex_type<S>) {
      using T = compute_t<S>;
      const auto rounded = [](T v) {
        return static_cast<T>(static_cast<S>(v));
      };  // reduced floats round each step
      const S* x = source.data<S>();
      const int64_t n = source.numel();
      T low = rounded(min.to<T>()), high = rounded(max.to<T>());
      if (low == high && n > 0) {
        low = high = static_cast<T>(x[0]);
        for (int64_t i = 0; i < n; ++i) {
          const T v = static_cast<T>(x[i]);
          low = v < low || v != v ? v : low;
          high = v > high || v != v ? v : high;
        }
      }
      if (low == high) {
        low = rounded(low - 1);
        high = rounded(high + 1);
      }
      FL_CHECK(std::isfinite(low) && std::isfinite(high), "[histc] expected a finite range, got ",
               static_cast<double>(low), " to ", static_cast<double>(high));
      FL_CHECK(low < high, "[histc] expected max larger than min, got ", static_cast<double>(low), " to ",
               static_cast<double>(high));
      std::vector<int64_t> counts(bins, 0);
      const T scale = rounded(static_cast<T>(bins) / rounded(high - low));
      for (int64_t i = 0; i < n; ++i) {
        const T v = static_cast<T>(x[i]);
        if (!(v >= low && v <= high)) continue;
        const T at = rounded(rounded(v - low) * scale);  // not a number where the range overflows
        ++counts[at < static_cast<T>(bins) ? std::max<int64_t>(0, static_cast<int64_t>(at)) : bins - 1];
      }
      for (int64_t b = 0; b < bins; ++b) out.data<S>()[b] = convert<S>(counts[b]);
    }
  });
  return out;
}

// Whether each element is in a sorted 1-d list.
Tensor isin_sorted(const Tensor& self, const Tensor& sorted, bool invert) {
  FL_CHECK(self.device() == sorted.device(), "[isin] expected tensors on one device, got ",
           to_string(self.device()), " and ", to_string(sorted.device()));
  FL_CHECK(!is_complex(self.dtype()) && !is_complex(sorted.dtype()),
           "[isin] expected real numbers, got complex ones");
  Tensor out = empty(self.sizes(), {DType::Bool, self.device()});
  if (self.is_meta()) return out;
  const DType compute = compared_as(self, sorted);
  const Tensor x = contiguous(to_dtype(self, compute)), list = contiguous(to_dtype(sorted, compute));
  dispatch_real(compute, [&](auto type) {
    using T = typename decltype(type)::type;
    const T *first = list.data<T>(), *last = first + list.numel();
    parallel_for(x.numel(), 2048, [&](int64_t b, int64_t e) {
      for (int64_t i = b; i < e; ++i) {
        const T value = x.data<T>()[i];
        const T* place = std::lower_bound(first, last, value);
        out.data<bool>()[i] = (place != last && *place == value) != invert;  // nothing equals NaN
      }
    });
  });
  return out;
}

FL_KERNEL("_unique", unique, kCpu);
FL_KERNEL("_unique_rows", unique_rows, kCpu);
FL_KERNEL("_search", search, kCpu);
FL_KERNEL("bincount", bincount, kCpu);
FL_KERNEL("_histogramdd", histogramdd, kCpu);
FL_KERNEL("histc", histc, kCpu);
FL_KERNEL("_isin_sorted", isin_sorted, kCpu);

}  // namespace
}  // namespace fl

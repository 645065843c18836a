// Typed loops over scattered elements, the search for non-zero ones, and the checks of indices.
#include "cpu/indexing/indexed.h"

#include <cstring>

#include "core/parallel.h"

namespace fl {

namespace {

template <int64_t size>
struct Bytes {
  char data[size];
};

// Elements are moved as bytes: alignment is not assumed, so that short rows can be moved as one element.
template <int64_t size>
void gather_loop(char* dst, int64_t dst_stride, const char* base, const int64_t* offsets, int64_t n) {
  if (dst_stride == size) {
    for (int64_t i = 0; i < n; ++i) std::memcpy(dst + i * size, base + offsets[i], size);
  } else {
    for (int64_t i = 0; i < n; ++i) std::memcpy(dst + i * dst_stride, base + offsets[i], size);
  }
}

template <int64_t size>
void scatter_assign(char* base, const int64_t* offsets, const char* src, int64_t src_stride, int64_t n) {
  for (int64_t i = 0; i < n; ++i) std::memcpy(base + offsets[i], src + i * src_stride, size);
}

template <int64_t size>
void row_assign(char* dst, int64_t dst_stride, const char* src, int64_t src_stride, int64_t n) {
  if (dst_stride == size && src_stride == size) {
    std::memcpy(dst, src, size * n);
    return;
  }
  for (int64_t i = 0; i < n; ++i) std::memcpy(dst + i * dst_stride, src + i * src_stride, size);
}

template <Combine how, class T>
inline T combine(T a, T b) {
  using C = compute_t<T>;
  if constexpr (std::is_same_v<T, bool>) {
    return how == Combine::Add || how == Combine::Max ? (a || b) : (a && b);
  } else if constexpr (how == Combine::Add) {
    return static_cast<T>(static_cast<C>(a) + static_cast<C>(b));
  } else if constexpr (how == Combine::Mul) {
    return static_cast<T>(static_cast<C>(a) * static_cast<C>(b));
  } else if constexpr (is_complex_type<T>) {
    return a;
  } else {
    const C x = static_cast<C>(a), y = static_cast<C>(b);
    if (x != x) return a;
    if constexpr (how == Combine::Max)
      return y > x || y != y ? b : a;
    else
      return y < x || y != y ? b : a;
  }
}

template <Combine how, class T>
void scatter_combine(char* base, const int64_t* offsets, const char* src, int64_t src_stride, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    T* at = reinterpret_cast<T*>(base + offsets[i]);
    *at = combine<how>(*at, *reinterpret_cast<const T*>(src + i * src_stride));
  }
}

template <Combine how, class T>
void row_combine(char* dst, int64_t dst_stride, const char* src, int64_t src_stride, int64_t n) {
  if (dst_stride == sizeof(T) && src_stride == sizeof(T)) {
    T* d = reinterpret_cast<T*>(dst);
    const T* s = reinterpret_cast<const T*>(src);
    for (int64_t i = 0; i < n; ++i) d[i] = combine<how>(d[i], s[i]);
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    T* at = reinterpret_cast<T*>(dst + i * dst_stride);
    *at = combine<how>(*at, *reinterpret_cast<const T*>(src + i * src_stride));
  }
}

void check_order(const char* op, Combine how, DType dtype) {
  FL_CHECK_KIND(!is_complex(dtype) || (how != Combine::Max && how != Combine::Min), NotImplemented, "[", op,
                "] expected a dtype with an order, got ", name_of(dtype));
}

}  // namespace

GatherFn gather_fn(int64_t itemsize) {
  switch (itemsize) {
    case 1:
      return gather_loop<1>;
    case 2:
      return gather_loop<2>;
    case 4:
      return gather_loop<4>;
    case 8:
      return gather_loop<8>;
    case 16:
      return gather_loop<16>;
    case 32:
      return gather_loop<32>;
    case 64:
      return gather_loop<64>;
    default:
      return nullptr;
  }
}

ScatterFn scatter_fn(const char* op, Combine how, DType dtype) {
  check_order(op, how, dtype);
  if (how == Combine::Assign) {
    switch (size_of(dtype)) {
      case 1:
        return scatter_assign<1>;
      case 2:
        return scatter_assign<2>;
      case 4:
        return scatter_assign<4>;
      case 8:
        return scatter_assign<8>;
      default:
        return scatter_assign<16>;
    }
  }
  return dispatch(dtype, [&](auto type) -> ScatterFn {
    using T = typename decltype(type)::type;
    switch (how) {
      case Combine::Add:
        return scatter_combine<Combine::Add, T>;
      case Combine::Mul:
        return scatter_combine<Combine::Mul, T>;
      case Combine::Max:
        return scatter_combine<Combine::Max, T>;
      default:
        return scatter_combine<Combine::Min, T>;
    }
  });
}

RowFn row_fn(const char* op, Combine how, DType dtype) {
  check_order(op, how, dtype);
  if (how == Combine::Assign) {
    switch (size_of(dtype)) {
      case 1:
        return row_assign<1>;
      case 2:
        return row_assign<2>;
      case 4:
        return row_assign<4>;
      case 8:
        return row_assign<8>;
      default:
        return row_assign<16>;
    }
  }
  return dispatch(dtype, [&](auto type) -> RowFn {
    using T = typename decltype(type)::type;
    switch (how) {
      case Combine::Add:
        return row_combine<Combine::Add, T>;
      case Combine::Mul:
        return row_combine<Combine::Mul, T>;
      case Combine::Max:
        return row_combine<Combine::Max, T>;
      default:
        return row_combine<Combine::Min, T>;
    }
  });
}

bool scatter_in_copies(const ElementScatter& s, const ElementOffsets& offsets) {
  constexpr double kElement = 1;               // nanoseconds
  constexpr int64_t kEach = 4;                 // elements for each place, below which copies cost too much
  constexpr int64_t kMostBytes = 1024 * 1024;  // of a copy, which stays in the cache of its core
  const int64_t item = size_of(s.dtype), bytes = s.places * item;
  if (s.how == Combine::Assign || item < 4 || is_complex(s.dtype)) return false;
  if (s.count < kEach * s.places || bytes > kMostBytes) return false;
  const int pieces = thread_model::pieces_for(kElement * static_cast<double>(s.count));
  if (pieces < 2) return false;
  const ScatterFn write = scatter_fn(s.op, s.how, s.dtype);
  const RowFn fill = row_fn(s.op, Combine::Assign, s.dtype), combine = row_fn(s.op, s.how, s.dtype);
  const bool signed_zero = s.how == Combine::Add && is_floating(s.dtype);
  const Tensor neutral =
      scalar_tensor(signed_zero ? Scalar(-0.0) : identity_of(s.how, s.dtype), {s.dtype, Device{}});
  const Tensor copies = empty({(pieces - 1) * s.places}, neutral.options());  // the first piece needs none
  parallel_pieces(pieces, kElement * static_cast<double>(s.count), [&](int piece, int) {
    char* const to = piece ? copies.raw() + (piece - 1) * bytes : s.base;
    if (piece) fill(to, item, neutral.raw(), 0, s.places);
    const int64_t end = s.count * (piece + 1) / pieces;
    int64_t local[kIndexBlock];
    for (int64_t i = s.count * piece / pieces; i < end; i += kIndexBlock) {
      const int64_t n = std::min(kIndexBlock, end - i);
      offsets(i, n, local);
      write(to, local, s.source + i * s.source_step, s.source_step, n);
    }
  });
  parallel_for(s.places, kGrain / pieces, [&](int64_t begin, int64_t end) {
    for (int copy = 0; copy + 1 < pieces; ++copy)
      combine(s.base + begin * item, item, copies.raw() + copy * bytes + begin * item, item, end - begin);
  });
  return true;
}

Merged::Merged(IntSpan s, IntSpan byte_strides) {
  for (size_t d = 0; d < s.size(); ++d) {
    numel *= s[d];
    if (s[d] == 1) continue;
    if (!sizes.empty() && strides.back() == byte_strides[d] * s[d]) {
      sizes.back() *= s[d];
      strides.back() = byte_strides[d];
    } else {
      sizes.push_back(s[d]);
      strides.push_back(byte_strides[d]);
    }
  }
}

Tensor as_index(const Tensor& index) {
  return contiguous(to_dtype(index, DType::Int64));
}

void index_out_of_bounds(const char* op, bool index_error, const int64_t* index, int64_t stride, int64_t n,
                         int64_t low, int64_t size, int64_t dim) {
  int64_t bad = 0;
  for (int64_t i = 0; i < n; ++i) {
    bad = index[i * stride];
    if (bad < low || bad >= size) break;
  }
  fail(index_error ? ErrorKind::Index : ErrorKind::Runtime, "[", op, "] expected indices in [", low, ", ",
       size - 1, "] for dimension ", dim, " of size ", size, ", got ", bad, ": index ", bad,
       " is out of bounds for dimension ", dim, " with size ", size);
}

Tensor nonzero_weighted(const Tensor& mask, const std::vector<Dims>& weights) {
  FL_CHECK_KIND(
      !mask.is_meta(), NotImplemented,
      "[nonzero] expected a tensor with data, got one on the meta device: the shape depends on the data");
  const Tensor flags = contiguous(to_dtype(mask, DType::Bool));
  const int64_t n = flags.numel();
  const int64_t inner = flags.dim() ? flags.size(-1) : 1;
  const int64_t rows = inner ? n / inner : 0;
  const bool* data = flags.data<bool>();
  // Pieces of whole rows, or of one long row; each is counted first so that all can be written at once.
  const int64_t piece_rows = std::max<int64_t>(1, kGrain / std::max<int64_t>(inner, 1));
  const int64_t piece_inner = rows == 1 ? std::max<int64_t>(kGrain, 1) : std::max<int64_t>(inner, 1);
  const int64_t cuts = (inner + piece_inner - 1) / piece_inner;  // pieces of a row
  const int64_t pieces = n == 0 ? 0 : (rows + piece_rows - 1) / piece_rows * cuts;
  std::vector<int64_t> start(pieces + 1, 0);
  const auto bounds = [&](int64_t p, int64_t& r0, int64_t& r1, int64_t& c0, int64_t& c1) {
    r0 = p / cuts * piece_rows;
    r1 = std::min(rows, r0 + piece_rows);
    c0 = p % cuts * piece_inner;
    c1 = std::min(inner, c0 + piece_inner);
  };
  parallel_for(pieces, 2, [&](int64_t b, int64_t e) {
    for (int64_t p = b; p < e; ++p) {
      int64_t r0, r1, c0, c1;
      bounds(p, r0, r1, c0, c1);
      int64_t count = 0;
      for (int64_t r = r0; r < r1; ++r) {
        const bool* row = data + r * inner;
        for (int64_t c = c0; c < c1; ++c) count += row[c];
      }
      start[p + 1] = count;
    }
  });
  for (int64_t p = 0; p < pieces; ++p) start[p + 1] += start[p];
  const int64_t total = start[pieces];
  Tensor positions = empty({static_cast<int64_t>(weights.size()), total}, {DType::Int64, Device{}});
  parallel_for(pieces, 2, [&](int64_t b, int64_t e) {
    for (int64_t p = b; p < e; ++p) {
      if (start[p] == start[p + 1]) continue;
      int64_t r0, r1, c0, c1;
      bounds(p, r0, r1, c0, c1);
      for (size_t k = 0; k < weights.size(); ++k) {
        const Dims& w = weights[k];
        int64_t* out = positions.data<int64_t>() + k * total + start[p];
        const int64_t step = w.empty() ? 0 : w.back();
        for (int64_t r = r0; r < r1; ++r) {
          int64_t rest = r, base = 0;
          for (int64_t d = flags.dim() - 2; d >= 0; --d) {
            base += rest % flags.size(d) * w[d];
            rest /= flags.size(d);
          }
          const bool* row = data + r * inner;
          int64_t c = c0;
          for (; c + 8 <= c1; c += 8) {
            uint64_t word;
            std::memcpy(&word, row + c, 8);
            for (; word; word &= word - 1) *out++ = base + (c + (__builtin_ctzll(word) >> 3)) * step;
          }
          for (; c < c1; ++c)
            if (row[c]) *out++ = base + c * step;
        }
      }
    }
  });
  return positions;
}

void divide_by_counts(const Tensor& self, const Tensor& counts) {
  if (self.is_meta() || self.numel() == 0) return;
  const Tensor dense = contiguous(self);
  Tensor out = empty(self.sizes(), self.options());
  dispatch(self.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    using C = compute_t<T>;
    const T* from = dense.data<T>();
    const int64_t* by = counts.data<int64_t>();
    T* to = out.data<T>();
    for (int64_t i = 0; i < out.numel(); ++i) {
      const int64_t n = std::max<int64_t>(by[i], 1);
      if constexpr (std::is_integral_v<T>) {
        const int64_t x = static_cast<int64_t>(from[i]);
        to[i] = static_cast<T>(x / n - (x % n != 0 && x < 0));
      } else {
        to[i] = convert<T>(static_cast<C>(from[i]) / static_cast<C>(n));
      }
    }
  });
  copy_into(self, out);
}

}  // namespace fl

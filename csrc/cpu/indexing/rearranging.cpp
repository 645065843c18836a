// Copies in another order: flip, roll, repeat, triangles, padding, and indices that depend on the shape only.
#include <cstring>

#include "core/bytes.h"
#include "core/parallel.h"
#include "core/scalar_range.h"
#include "dispatch/kernel.h"
#include "ops/iterator.h"
#include "ops/layout.h"
#include "ops/sequences.h"
#include "ops/windows.h"

namespace fl {
namespace {

template <class T>
void reverse_row(const char* src, char* dst, int64_t n) {
  // src points to the last element.
  const T* from = reinterpret_cast<const T*>(src);
  T* to = reinterpret_cast<T*>(dst);
  for (int64_t i = 0; i < n; ++i) to[i] = from[-i];
}

Tensor flip(const Tensor& self, IntSpan dims) {
  uint64_t chosen = 0;
  for (int64_t d : dims) {
    const int64_t k = wrap_dim("flip", d, self.dim());
    FL_CHECK(!(chosen >> k & 1), "[flip] expected each dimension once, got ", dims);
    chosen |= uint64_t(1) << k;
  }
  Tensor out = empty_like(self, self.dtype());
  if (out.is_meta() || out.numel() == 0) return out;
  Dims strides(self.strides());
  int64_t offset = self.offset();
  for (int64_t d = 0; d < self.dim(); ++d)
    if (chosen >> d & 1) {
      offset += (self.size(d) - 1) * strides[d];
      strides[d] = -strides[d];
    }
  const int64_t n = self.dim(), item = self.itemsize();
  if (n > 0 && item <= 8 && strides[n - 1] == -1 && out.is_contiguous() && self.size(n - 1) > 1) {
    // Rows read backwards.
    const int64_t inner = self.size(n - 1), rows = self.numel() / inner;
    const int64_t cut = std::min<int64_t>(inner, kGrain), cuts = (inner + cut - 1) / cut;
    const char* base = static_cast<const char*>(self->storage->data);
    parallel_for(rows * cuts, std::max<int64_t>(1, kGrain / cut), [&](int64_t b, int64_t e) {
      for (int64_t p = b; p < e; ++p) {
        int64_t rest = p / cuts, at = offset;
        for (int64_t d = n - 2; d >= 0; --d) {
          at += rest % self.size(d) * strides[d];
          rest /= self.size(d);
        }
        const int64_t first = p % cuts * cut, length = std::min(cut, inner - first);
        const char* src = base + (at - first) * item;
        char* dst = out.raw() + (p / cuts * inner + first) * item;
        switch (item) {
          case 1:
            reverse_row<uint8_t>(src, dst, length);
            break;
          case 2:
            reverse_row<uint16_t>(src, dst, length);
            break;
          case 4:
            reverse_row<uint32_t>(src, dst, length);
            break;
          default:
            reverse_row<uint64_t>(src, dst, length);
        }
      }
    });
    return out;
  }
  copy_into(out, alias(self, self.sizes(), strides, offset));
  return out;
}

Tensor roll(const Tensor& self, IntSpan shifts, IntSpan dims) {
  FL_CHECK(!shifts.empty(), "[roll] expected shifts, got none");
  if (dims.empty()) {
    FL_CHECK(shifts.size() == 1, "[roll] expected a dimension for each shift, got shifts ", shifts,
             " and no dimensions");
    Tensor flat = contiguous(self);
    flat = alias(flat, IntSpan({self.numel()}), IntSpan({1}), flat.offset());
    const Tensor rolled = roll(flat, shifts, {0});
    return alias(rolled, self.sizes(), contiguous_strides(self.sizes()), rolled.offset());
  }
  FL_CHECK(shifts.size() == dims.size(), "[roll] expected a dimension for each shift, got shifts ", shifts,
           " and dimensions ", dims);
  Tensor out = empty(self.sizes(), self.options());
  Dims shift(self.dim());
  for (size_t i = 0; i < dims.size(); ++i) {
    FL_CHECK_KIND(self.dim() > 0, Index, "[roll] expected a dimension of the tensor, got ", dims[i],
                  " for a 0-d tensor");
    const int64_t d = wrap_dim("roll", dims[i], self.dim());
    const int64_t n = self.size(d);
    if (n) shift[d] = ((shift[d] + shifts[i] % n) % n + n) % n;
  }
  if (out.is_meta() || out.numel() == 0) return out;
  // Each rolled dimension falls into two pieces; every combination of pieces is one copy.
  Dims rolled;
  for (int64_t d = 0; d < self.dim(); ++d)
    if (shift[d]) rolled.push_back(d);
  for (uint64_t corner = 0; corner < uint64_t(1) << rolled.size(); ++corner) {
    Dims sizes(self.sizes());
    int64_t from = self.offset(), to = 0;
    for (size_t k = 0; k < rolled.size(); ++k) {
      const int64_t d = rolled[k], n = self.size(d), s = shift[d];
      if (corner >> k & 1) {  // the tail comes to the front
        sizes[d] = s;
        from += (n - s) * self.stride(d);
      } else {
        sizes[d] = n - s;
        to += s * out.stride(d);
      }
    }
    copy_into(alias(out, sizes, out.strides(), to), alias(self, sizes, self.strides(), from));
  }
  return out;
}

Tensor repeat(const Tensor& self, IntSpan repeats) {
  const int64_t n = static_cast<int64_t>(repeats.size()), lead = n - self.dim();
  FL_CHECK(lead >= 0, "[repeat] expected at least ", self.dim(), " repeats, got ", repeats);
  Dims sizes(n);
  for (int64_t d = 0; d < n; ++d) {
    FL_CHECK(repeats[d] >= 0, "[repeat] expected repeats that are not negative, got ", repeats);
    FL_CHECK(!__builtin_mul_overflow(repeats[d], d < lead ? 1 : self.size(d - lead), &sizes[d]),
             "[repeat] expected a size below 2**63, got repeats ", repeats, " of shape ", self.sizes());
  }
  Tensor out = empty(sizes, self.options());
  if (out.is_meta() || out.numel() == 0) return out;
  // The output seen as (repeats, size) pairs; the source stands still along the repeats.
  Dims shape, to, from;
  for (int64_t d = 0; d < n; ++d) {
    const int64_t size = d < lead ? 1 : self.size(d - lead);
    shape.push_back(repeats[d]);
    to.push_back(out.stride(d) * size);
    from.push_back(0);
    shape.push_back(size);
    to.push_back(out.stride(d));
    from.push_back(d < lead ? 0 : self.stride(d - lead));
  }
  copy_into(alias(out, shape, to, 0), alias(self, shape, from, self.offset()));
  return out;
}

// ---------------------------------------------------------------- triangles

Tensor triangle(const char* op, const Tensor& self, int64_t diagonal, bool lower) {
  FL_CHECK(self.dim() >= 2, "[", op, "] expected at least 2 dimensions, got shape ", self.sizes());
  Tensor out = empty(self.sizes(), self.options());
  if (out.is_meta() || out.numel() == 0) return out;
  const Tensor from = contiguous(self);
  const int64_t rows = self.size(-2), cols = self.size(-1), item = self.itemsize();
  const char* src = from.raw();
  char* dst = out.raw();
  parallel_for(self.numel() / cols, std::max<int64_t>(1, kGrain / cols), [&](int64_t b, int64_t e) {
    for (int64_t r = b; r < e; ++r) {
      // Columns [0, edge) are on or below the diagonal for the lower triangle, strictly below it for the
      // upper.
      const int64_t i = r % rows;
      const int64_t wanted = diagonal >= cols ? cols : diagonal <= -rows ? -rows : diagonal;
      const int64_t edge = std::min(cols, std::max<int64_t>(0, i + wanted + (lower ? 1 : 0)));
      const char* s = src + r * cols * item;
      char* d = dst + r * cols * item;
      if (lower) {
        std::memcpy(d, s, edge * item);
        std::memset(d + edge * item, 0, (cols - edge) * item);
      } else {
        std::memset(d, 0, edge * item);
        std::memcpy(d + edge * item, s + edge * item, (cols - edge) * item);
      }
    }
  });
  return out;
}
Tensor tril(const Tensor& self, int64_t diagonal) {
  return triangle("tril", self, diagonal, true);
}
Tensor triu(const Tensor& self, int64_t diagonal) {
  return triangle("triu", self, diagonal, false);
}

Tensor triangle_indices(const char* op, int64_t row, int64_t col, int64_t offset, std::optional<DType> dtype,
                        std::optional<Device> device, bool lower) {
  FL_CHECK(row >= 0, "[", op, "] expected a number of rows that is not negative, got ", row);
  FL_CHECK(col >= 0, "[", op, "] expected a number of columns that is not negative, got ", col);
  FL_CHECK_KIND(std::max(row, col) < int64_t(1) << 61, OutOfMemory, "[", op,
                "] expected indices that fit in memory, got a matrix of ", row, " x ", col);
  const DType t = dtype.value_or(DType::Int64);
  FL_CHECK_KIND(t == DType::Int64 || t == DType::Int32, NotImplemented, "[", op,
                "] expected dtype int64 or int32, got ", name_of(t));
  // Row i has clamp(i + first, 0, col) elements left of the edge: none before row `none`, all from row `full`
  // on.
  const int64_t first = std::min(std::max(offset, -row - 1), col) + (lower ? 1 : 0);
  const auto edge = [&](int64_t i) { return std::min(col, std::max<int64_t>(0, i + first)); };
  const int64_t none = std::min(row, std::max<int64_t>(0, -first)),
                full = std::max(none, std::min(row, std::max<int64_t>(0, col - first)));
  const __int128 left =
      (static_cast<__int128>(none) + full - 1 + 2 * static_cast<__int128>(first)) * (full - none) / 2 +
      static_cast<__int128>(row - full) * col;
  const __int128 count = lower ? left : static_cast<__int128>(row) * col - left;
  FL_CHECK_KIND(count < (__int128(1) << 47), OutOfMemory, "[", op,
                "] expected indices that fit in memory, got a matrix of ", row, " x ", col);
  const int64_t n = static_cast<int64_t>(count);
  Tensor out = empty({2, n}, {t, device.value_or(Device{})});
  if (out.is_meta()) return out;
  if (!out.is_cpu()) {
    device::triangle(out.device().type, out, row, col, first, lower);
    return out;
  }
  const auto fill = [&](auto* p) {
    int64_t at = 0;
    for (int64_t i = lower ? none : 0, stop = lower ? row : full; n && i < stop; ++i)
      for (int64_t j = lower ? 0 : edge(i), last = lower ? edge(i) : col; j < last; ++j, ++at) {
        p[at] = static_cast<std::decay_t<decltype(*p)>>(i);
        p[n + at] = static_cast<std::decay_t<decltype(*p)>>(j);
      }
  };
  if (t == DType::Int64)
    fill(out.data<int64_t>());
  else
    fill(out.data<int32_t>());
  return out;
}
Tensor tril_indices(int64_t row, int64_t col, int64_t offset, std::optional<DType> dtype,
                    std::optional<Device> device, std::optional<Layout>, std::optional<bool>) {
  return triangle_indices("tril_indices", row, col, offset, dtype, device, true);
}
Tensor triu_indices(int64_t row, int64_t col, int64_t offset, std::optional<DType> dtype,
                    std::optional<Device> device, std::optional<Layout>, std::optional<bool>) {
  return triangle_indices("triu_indices", row, col, offset, dtype, device, false);
}

// ---------------------------------------------------------------- diagonals

Tensor diag_embed(const Tensor& self, int64_t offset, int64_t dim1, int64_t dim2) {
  const int64_t n = self.dim() + 1;
  const int64_t a = wrap_dim("diag_embed", dim1, n), b = wrap_dim("diag_embed", dim2, n);
  FL_CHECK(a != b, "[diag_embed] expected two different dimensions, got ", dim1, " and ", dim2);
  FL_CHECK(self.dim() > 0, "[diag_embed] expected a tensor with dimensions, got a 0-d tensor");
  const int64_t side = self.size(-1) + std::abs(offset);
  Dims sizes(self.sizes());
  sizes.erase(self.dim() - 1);
  sizes.insert(std::min(a, b), side);
  sizes.insert(std::max(a, b), side);
  Tensor out = empty(sizes, self.options());
  if (out.is_meta() || out.numel() == 0) return out;
  std::memset(out.raw(), 0, out.numel() * out.itemsize());
  Dims strides;
  for (int64_t d = 0; d < n; ++d)
    if (d != a && d != b) strides.push_back(out.stride(d));
  strides.push_back(out.stride(a) + out.stride(b));
  const int64_t start = offset >= 0 ? offset * out.stride(b) : -offset * out.stride(a);
  copy_into(alias(out, self.sizes(), strides, start), self);
  return out;
}

Tensor trace(const Tensor& self) {
  FL_CHECK(self.dim() == 2, "[trace] expected a matrix, got shape ", self.sizes());
  FL_CHECK_KIND(self.dtype() != DType::Bool, NotImplemented, "[trace] expected a numeric matrix, got bool");
  const int64_t n = std::min(self.size(0), self.size(1)), step = self.stride(0) + self.stride(1);
  Tensor out = empty({}, {is_integral(self.dtype()) ? DType::Int64 : self.dtype(), self.device()});
  if (out.is_meta()) return out;
  dispatch(self.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    using C = compute_t<T>;
    const T* p = self.data<T>();
    C sum(0);
    for (int64_t i = 0; i < n; ++i) sum += static_cast<C>(p[i * step]);
    if constexpr (std::is_integral_v<T>)
      *out.data<int64_t>() = sum;
    else
      *out.data<T>() = convert<T>(sum);
  });
  return out;
}

// ---------------------------------------------------------------- padding and repetition

Tensor constant_pad_nd(const Tensor& self, IntSpan pad, const Scalar& value) {
  const int64_t n = self.dim(), pairs = static_cast<int64_t>(pad.size()) / 2;
  FL_CHECK(pad.size() % 2 == 0, "[pad] expected an even number of paddings, got ", pad);
  FL_CHECK(pairs <= n, "[pad] expected at most two paddings for each of ", n, " dimensions, got ", pad);
  FL_CHECK(!value.is_complex() || is_complex(self.dtype()), "[pad] expected a real value for ",
           name_of(self.dtype()), ", got a complex one");
  check_fits("pad", value, self.dtype());
  Dims sizes(self.sizes()), inner(self.sizes());
  Dims source_start(n), target_start(n);
  bool padded = false;
  for (int64_t k = 0; k < pairs; ++k) {
    const int64_t d = n - 1 - k, low = pad[2 * k], high = pad[2 * k + 1];
    FL_CHECK(std::min(low, high) >= -kMostPadding && std::max(low, high) <= kMostPadding,
             "[pad] expected paddings of at most ", kMostPadding, " at dimension ", d, ", got ", low, " and ",
             high);
    sizes[d] += low + high;
    FL_CHECK(self.size(d) + std::min<int64_t>(low, 0) + std::min<int64_t>(high, 0) >= 0 && sizes[d] >= 0,
             "[pad] expected a size that is not negative at dimension ", d, ", got ", self.size(d),
             " with paddings ", low, " and ", high);
    inner[d] += std::min<int64_t>(low, 0) + std::min<int64_t>(high, 0);
    source_start[d] = std::max<int64_t>(-low, 0);
    target_start[d] = std::max<int64_t>(low, 0);
    padded |= low > 0 || high > 0;
  }
  const bool channels_last = prefers_channels_last(self);
  Tensor out = empty_laid(sizes, channels_last, self.options());
  if (out.is_meta() || out.numel() == 0) return out;
  int64_t from = self.offset(), to = 0;
  for (int64_t d = 0; d < n; ++d) {
    from += source_start[d] * self.stride(d);
    to += target_start[d] * out.stride(d);
  }
  const Tensor source = alias(self, inner, self.strides(), from);
  if (channels_last || !self.is_contiguous() || n == 0 || self.device().type == DeviceType::CUDA) {
    if (padded) copy_into(out, scalar_tensor(value, out.options()));
    copy_into(alias(out, inner, out.strides(), to), source);
    return out;
  }
  // Row by row, each byte written once.
  const Tensor filler = scalar_tensor(value, {self.dtype(), Device{}});
  dispatch_bytes(self.itemsize(), [&](auto type) {
    using T = typename decltype(type)::type;
    const T fill = *reinterpret_cast<const T*>(filler.raw());
    const int64_t cols = sizes[n - 1], left = target_start[n - 1], middle = inner[n - 1];
    T* dst = reinterpret_cast<T*>(out.raw());
    const T* src = reinterpret_cast<const T*>(source.raw());
    parallel_for(out.numel() / cols, std::max<int64_t>(1, kGrain / cols), [&](int64_t b, int64_t e) {
      for (int64_t r = b; r < e; ++r) {
        int64_t rest = r, at = 0;
        bool inside = middle > 0;
        for (int64_t d = n - 2; d >= 0; --d) {
          const int64_t i = rest % sizes[d] - target_start[d];
          rest /= sizes[d];
          inside &= i >= 0 && i < inner[d];
          at += i * source.stride(d);
        }
        T* row = dst + r * cols;
        if (!inside) {
          std::fill(row, row + cols, fill);
          continue;
        }
        std::fill(row, row + left, fill);
        std::memcpy(static_cast<void*>(row + left), src + at, middle * sizeof(T));
        std::fill(row + left + middle, row + cols, fill);
      }
    });
  });
  return out;
}

// 0 repeated repeats[0] times, 1 repeated repeats[1] times, ...
Tensor repeat_interleave(const Tensor& repeats, std::optional<int64_t> output_size) {
  FL_CHECK(repeats.dim() == 1, "[repeat_interleave] expected a vector of repeats, got shape ",
           repeats.sizes());
  FL_CHECK_KIND(repeats.dtype() == DType::Int64 || repeats.dtype() == DType::Int32, NotImplemented,
                "[repeat_interleave] expected repeats of dtype int64 or int32, got ",
                name_of(repeats.dtype()));
  if (repeats.is_meta()) {
    FL_CHECK_KIND(output_size.has_value(), NotImplemented,
                  "[repeat_interleave] expected output_size for repeats on the meta device, got None");
    return empty({*output_size}, repeats.options());
  }
  const Tensor counts = contiguous(to_dtype(repeats, DType::Int64));
  const int64_t* p = counts.data<int64_t>();
  int64_t total = 0;
  for (int64_t i = 0; i < counts.numel(); ++i) {
    FL_CHECK(p[i] >= 0, "[repeat_interleave] expected repeats that are not negative, got ", p[i]);
    FL_CHECK(!__builtin_add_overflow(total, p[i], &total),
             "[repeat_interleave] expected repeats with a sum below 2**63, got more");
  }
  FL_CHECK(!output_size || *output_size == total,
           "[repeat_interleave] expected output_size to be the sum of the repeats, ", total, ", got ",
           output_size.value_or(0));
  Tensor out = empty({total}, {DType::Int64, repeats.device()});
  int64_t* q = out.data<int64_t>();
  for (int64_t i = 0; i < counts.numel(); ++i)
    for (int64_t k = 0; k < p[i]; ++k) *q++ = i;
  return to_dtype(out, repeats.dtype());
}

FL_KERNEL("flip", flip, kCpu);
FL_KERNEL("roll", roll, kDevices);
FL_KERNEL("repeat", repeat, kDevices);
FL_KERNEL("tril", tril, kCpu);
FL_KERNEL("triu", triu, kCpu);
FL_KERNEL("tril_indices", tril_indices, kDevices);
FL_KERNEL("triu_indices", triu_indices, kDevices);
FL_KERNEL("diag_embed", diag_embed, kCpu);
FL_KERNEL("trace", trace, kCpu);
FL_KERNEL("constant_pad_nd", constant_pad_nd, kDevices);
FL_KERNEL("repeat_interleave.Tensor", repeat_interleave, kCpu);

}  // namespace
}  // namespace fl

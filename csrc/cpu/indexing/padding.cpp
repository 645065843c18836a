// Padding with values of the tensor itself, mirrored, repeated or wrapped around at its edges, and the
// gradient.
#include <cstring>
#include <vector>

#include "core/bytes.h"
#include "core/parallel.h"
#include "dispatch/kernel.h"
#include "ops/layout.h"
#include "ops/windows.h"

namespace fl {
namespace {

// One dimension, or several that lie together and have no padding, in the order of memory.
struct Axis {
  int64_t inner, outer, low;   // size without and with padding, padding before
  std::vector<int64_t> from;   // for each padded position the one it copies; empty without padding
  std::vector<int64_t> start;  // for each inner position where its copies begin in `copies`
  std::vector<int64_t> copies;

  bool padded() const { return !from.empty(); }
  int64_t source(int64_t i) const { return padded() ? from[i] : i; }
  // The run of padded positions that copies inner ones in order.
  int64_t left() const { return std::clamp<int64_t>(low, 0, outer); }
  int64_t first() const { return std::clamp<int64_t>(-low, 0, inner); }
  int64_t middle() const { return std::max<int64_t>(0, std::min(inner - first(), outer - left())); }
};
using Axes = std::vector<Axis>;

Dims padded_sizes(IntSpan sizes, IntSpan pad, std::string_view mode) {
  const int64_t n = static_cast<int64_t>(sizes.size()), pairs = static_cast<int64_t>(pad.size()) / 2;
  FL_CHECK(mode == "reflect" || mode == "replicate" || mode == "circular",
           "[pad] expected mode reflect, replicate or circular, got ", mode);
  FL_CHECK(pad.size() % 2 == 0 && pairs <= n, "[pad] expected at most two paddings for each of ", n,
           " dimensions, got ", pad);
  Dims padded(sizes);
  for (int64_t k = 0; k < pairs; ++k) {
    const int64_t d = n - 1 - k, low = pad[2 * k], high = pad[2 * k + 1];
    const int64_t most = mode == "reflect" ? sizes[d] - 1 : mode == "circular" ? sizes[d] : kMostPadding;
    if (low == 0 && high == 0) continue;
    FL_CHECK(std::min(low, high) >= -kMostPadding && std::max(low, high) <= std::max<int64_t>(most, 0),
             "[pad] expected paddings of at most ", most, " at dimension ", d, ", got ", low, " and ", high);
    padded[d] += low + high;
    FL_CHECK(padded[d] >= 0 && (sizes[d] > 0 || padded[d] == 0),
             "[pad] expected a positive size at dimension ", d, ", got ", sizes[d], " with ", low, " and ",
             high);
  }
  return padded;
}

std::vector<int64_t> sources(std::string_view mode, int64_t inner, int64_t outer, int64_t low) {
  std::vector<int64_t> from(outer);
  for (int64_t i = 0; i < outer; ++i) {
    const int64_t at = i - low, last = inner - 1;
    if (mode == "replicate")
      from[i] = std::clamp<int64_t>(at, 0, last);
    else if (mode == "circular")
      from[i] = (at % inner + inner) % inner;
    else
      from[i] = last - std::abs(last - std::abs(at));
  }
  return from;
}

// Tensors of both sizes are dense in this order.
Axes axes_of(IntSpan inner, IntSpan outer, IntSpan pad, std::string_view mode, bool channels_last) {
  const int64_t n = static_cast<int64_t>(inner.size()), pairs = static_cast<int64_t>(pad.size()) / 2;
  Axes axes;
  for (int64_t k = 0; k < n; ++k) {
    const int64_t d = !channels_last || k == 0 ? k : k == n - 1 ? 1 : k + 1;
    const int64_t pair = n - 1 - d, low = pair < pairs ? pad[2 * pair] : 0;
    const bool padded = pair < pairs && (low != 0 || pad[2 * pair + 1] != 0);
    if (!padded && !axes.empty() && !axes.back().padded()) {
      axes.back().inner *= inner[d];
      axes.back().outer *= inner[d];
      continue;
    }
    Axis axis{inner[d], outer[d], low, {}, {}, {}};
    if (padded) axis.from = sources(mode, inner[d], outer[d], low);
    axes.push_back(std::move(axis));
  }
  return axes;
}

// Calls f(row, position in each dimension but the last) for rows b to e of the given sizes.
template <class F>
void each_row(const Dims& sizes, int64_t b, int64_t e, const F& f) {
  const int64_t n = static_cast<int64_t>(sizes.size());
  Dims at(sizes);
  int64_t rest = b;
  for (int64_t d = n - 1; d >= 0; --d) {
    at[d] = rest % sizes[d];
    rest /= sizes[d];
  }
  for (int64_t r = b; r < e; ++r) {
    f(r, at);
    for (int64_t d = n - 1; d >= 0 && ++at[d] == sizes[d]; --d) at[d] = 0;
  }
}

// The rows of a tensor: sizes of the dimensions before them, each axis measured with or without its padding.
struct Rows {
  Dims sizes;
  int64_t count = 1;
  Rows(const Axes& axes, int64_t Axis::* size) {
    for (size_t d = 0; d + 1 < axes.size(); ++d) {
      sizes.push_back(axes[d].*size);
      count *= axes[d].*size;
    }
  }
};

template <class U>
void copy_padded(const Axes& axes, const U* src, U* dst) {
  const Axis& row = axes.back();
  const int64_t left = row.left(), middle = row.middle(), first = row.first();
  const Rows rows(axes, &Axis::outer);
  parallel_for(rows.count, std::max<int64_t>(1, kGrain / row.outer), [&](int64_t b, int64_t e) {
    each_row(rows.sizes, b, e, [&](int64_t r, const Dims& at) {
      int64_t line = 0;
      for (size_t d = 0; d < at.size(); ++d) line = line * axes[d].inner + axes[d].source(at[d]);
      const U* in = src + line * row.inner;
      U* out = dst + r * row.outer;
      if (!row.padded()) {
        std::memcpy(static_cast<void*>(out), in, row.outer * sizeof(U));
        return;
      }
      for (int64_t j = 0; j < left; ++j) out[j] = in[row.from[j]];
      std::memcpy(static_cast<void*>(out + left), in + first, middle * sizeof(U));
      for (int64_t j = left + middle; j < row.outer; ++j) out[j] = in[row.from[j]];
    });
  });
}

Tensor edge_pad(const Tensor& self, IntSpan pad, std::string_view mode) {
  const Dims sizes = padded_sizes(self.sizes(), pad, mode);
  const bool channels_last = prefers_channels_last(self);
  Tensor out = empty_laid(sizes, channels_last, self.options());
  if (out.is_meta() || out.numel() == 0) return out;
  const Tensor in = laid(self, channels_last);
  if (sizes.size() == 0) {
    copy_into(out, in);
    return out;
  }
  const Axes axes = axes_of(self.sizes(), sizes, pad, mode, channels_last);
  dispatch_bytes(self.itemsize(), [&](auto type) {
    using U = typename decltype(type)::type;
    copy_padded(axes, reinterpret_cast<const U*>(in.raw()), reinterpret_cast<U*>(out.raw()));
  });
  return out;
}

// ---------------------------------------------------------------- the gradient

void invert(Axis& axis) {
  if (!axis.padded()) return;
  axis.start.assign(axis.inner + 1, 0);
  for (int64_t i : axis.from) ++axis.start[i + 1];
  for (int64_t i = 0; i < axis.inner; ++i) axis.start[i + 1] += axis.start[i];
  axis.copies.resize(axis.outer);
  std::vector<int64_t> next(axis.start.begin(), axis.start.end() - 1);
  for (int64_t j = 0; j < axis.outer; ++j) axis.copies[next[axis.from[j]]++] = j;
}

// Calls f(row) for each padded row that copies the inner one at the given position.
template <class F>
void each_copy(const Axes& axes, const Dims& at, size_t d, int64_t line, const F& f) {
  if (d == at.size()) return f(line);
  const Axis& axis = axes[d];
  if (!axis.padded()) return each_copy(axes, at, d + 1, line * axis.outer + at[d], f);
  for (int64_t k = axis.start[at[d]]; k < axis.start[at[d] + 1]; ++k)
    each_copy(axes, at, d + 1, line * axis.outer + axis.copies[k], f);
}

// Each inner row gathers what belongs to it, so that no two threads write to one place.
template <class T>
void sum_copies(const Axes& axes, const T* src, T* dst) {
  using C = compute_t<T>;
  const Axis& row = axes.back();
  const int64_t left = row.left(), middle = row.middle(), first = row.first();
  const Rows rows(axes, &Axis::inner);
  parallel_for(rows.count, std::max<int64_t>(1, kGrain / row.inner), [&](int64_t b, int64_t e) {
    std::vector<C> sums(std::is_same_v<T, C> ? 0 : row.inner);
    each_row(rows.sizes, b, e, [&](int64_t r, const Dims& at) {
      C* sum;
      if constexpr (std::is_same_v<T, C>)
        sum = dst + r * row.inner;
      else
        sum = sums.data();
      bool fresh = true;
      each_copy(axes, at, 0, 0, [&](int64_t line) {
        const T* in = src + line * row.outer;
        if (fresh) {
          std::fill(sum, sum + first, C(0));
          for (int64_t j = 0; j < middle; ++j) sum[first + j] = convert<C>(in[left + j]);
          std::fill(sum + std::min(first + middle, row.inner), sum + row.inner, C(0));
          fresh = false;
        } else {
          for (int64_t j = 0; j < middle; ++j) sum[first + j] += convert<C>(in[left + j]);
        }
        if (!row.padded()) return;
        for (int64_t j = 0; j < left; ++j) sum[row.from[j]] += convert<C>(in[j]);
        for (int64_t j = left + middle; j < row.outer; ++j) sum[row.from[j]] += convert<C>(in[j]);
      });
      if (fresh) std::fill(sum, sum + row.inner, C(0));
      if constexpr (!std::is_same_v<T, C>) {
        T* out = dst + r * row.inner;
        for (int64_t j = 0; j < row.inner; ++j) out[j] = convert<T>(sum[j]);
      }
    });
  });
}

Tensor edge_pad_backward(const Tensor& grad, IntSpan sizes, IntSpan pad, std::string_view mode) {
  const Dims expected = padded_sizes(sizes, pad, mode);
  FL_CHECK(grad.sizes() == IntSpan(expected), "[pad] expected a gradient of shape ", IntSpan(expected),
           ", got ", grad.sizes());
  const bool channels_last = prefers_channels_last(grad);
  if (grad.dtype() != compute_of(grad.dtype()) && grad.dtype() != DType::BFloat16)
    return to_dtype(edge_pad_backward(to_dtype(grad, compute_of(grad.dtype())), sizes, pad, mode),
                    grad.dtype());
  Tensor out = empty_laid(sizes, channels_last, grad.options());
  if (out.is_meta() || out.numel() == 0) return out;
  const Tensor in = laid(grad, channels_last);
  if (sizes.size() == 0) {
    copy_into(out, in);
    return out;
  }
  if (grad.numel() == 0) {
    std::memset(out.raw(), 0, out.numel() * out.itemsize());
    return out;
  }
  Axes axes = axes_of(sizes, expected, pad, mode, channels_last);
  for (Axis& axis : axes) invert(axis);
  const auto run = [&](auto type) {
    using T = typename decltype(type)::type;
    sum_copies<T>(axes, in.template data<T>(), out.template data<T>());
  };
  if (grad.dtype() == DType::BFloat16)
    run(Type<BFloat16>{});
  else
    dispatch_compute(grad.dtype(), run);
  return out;
}

FL_KERNEL("_edge_pad", edge_pad, kCpu);
FL_KERNEL("_edge_pad_backward", edge_pad_backward, kCpu);

}  // namespace
}  // namespace fl

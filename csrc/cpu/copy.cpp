// Copies between any two strided CPU tensors, with conversion and broadcasting: copy_, clone, contiguous, to.
#include <cstring>

#include "cpu/cast.h"
#include "cpu/iterator.h"
#include "cpu/parallel.h"
#include "cpu/pointwise.h"
#include "dispatch/kernel.h"

namespace fl {

namespace {

// Transposes in tiles so that both sides are read and written by whole cache lines.
template <class T>
void transpose_tiles(const char* src, int64_t src_row, char* dst, int64_t dst_col, int64_t rows, int64_t cols) {
  // dst[c * dst_col + r] (r contiguous) = src[r * src_row + c] (c contiguous); strides in bytes
  constexpr int64_t tile = 32;
  parallel_for((cols + tile - 1) / tile, std::max<int64_t>(1, kGrain / (tile * std::max<int64_t>(rows, 1))), [&](int64_t b, int64_t e) {
    for (int64_t c0 = b * tile; c0 < std::min(cols, e * tile); c0 += tile)
      for (int64_t r0 = 0; r0 < rows; r0 += tile) {
        const int64_t c1 = std::min(cols, c0 + tile), r1 = std::min(rows, r0 + tile);
        for (int64_t c = c0; c < c1; ++c) {
          T* d = reinterpret_cast<T*>(dst + c * dst_col);
          for (int64_t r = r0; r < r1; ++r) d[r] = *reinterpret_cast<const T*>(src + r * src_row + c * sizeof(T));
        }
      }
  });
}

bool try_transpose(const StridedIterator& it) {
  const auto& dst = it.operand(0);
  const auto& src = it.operand(1);
  if (it.ndim() != 2 || dst.dtype != src.dtype) return false;
  const int64_t item = size_of(dst.dtype);
  if (dst.strides[0] != item || src.strides[1] != item || src.strides[0] < item) return false;
  switch (item) {
    case 1: transpose_tiles<uint8_t>(src.data, src.strides[0], dst.data, dst.strides[1], it.sizes()[0], it.sizes()[1]); return true;
    case 2: transpose_tiles<uint16_t>(src.data, src.strides[0], dst.data, dst.strides[1], it.sizes()[0], it.sizes()[1]); return true;
    case 4: transpose_tiles<uint32_t>(src.data, src.strides[0], dst.data, dst.strides[1], it.sizes()[0], it.sizes()[1]); return true;
    case 8: transpose_tiles<uint64_t>(src.data, src.strides[0], dst.data, dst.strides[1], it.sizes()[0], it.sizes()[1]); return true;
    default: return false;
  }
}

}  // namespace

void copy_into(const Tensor& dst, const Tensor& src) {
  if (dst.numel() == 0 || dst.is_meta() || src.is_meta()) return;
  if (dst.dtype() == src.dtype() && dst.is_contiguous() && src.is_contiguous() && dst.sizes() == src.sizes()) {
    const int64_t item = dst.itemsize();
    char* to = dst.raw();
    const char* from = src.raw();
    if (to == from) return;
    parallel_for(dst.numel(), kGrain * 4, [&](int64_t b, int64_t e) { std::memmove(to + b * item, from + b * item, (e - b) * item); });
    return;
  }
  StridedIterator it(dst.sizes());
  it.add(dst, dst.dtype());
  it.add(src, src.dtype());
  it.finish();
  if (try_transpose(it)) return;
  const CastFn cast = cast_fn(src.dtype(), dst.dtype());
  const auto& to = it.operand(0);
  const auto& from = it.operand(1);
  const Dims& sizes = it.sizes();
  const int64_t inner = sizes[0];
  if (it.ndim() == 1) {
    parallel_for(inner, kGrain, [&](int64_t b, int64_t e) {
      cast(from.data + b * from.strides[0], from.strides[0], to.data + b * to.strides[0], to.strides[0], e - b);
    });
    return;
  }
  const int64_t rows = it.numel() / inner;
  parallel_for(rows, std::max<int64_t>(1, kGrain / inner), [&](int64_t b, int64_t e) {
    for (int64_t r = b; r < e; ++r) {
      int64_t rest = r, x = 0, y = 0;
      for (int d = 1; d < it.ndim(); ++d) {
        const int64_t i = rest % sizes[d];
        rest /= sizes[d];
        x += i * to.strides[d];
        y += i * from.strides[d];
      }
      cast(from.data + y, from.strides[0], to.data + x, to.strides[0], inner);
    }
  });
}

Tensor contiguous(const Tensor& t) {
  if (t.is_contiguous()) return t;
  Tensor out = empty(t.sizes(), t.options());
  copy_into(out, t);
  return out;
}

Tensor to_dtype(const Tensor& t, DType dtype) {
  if (t.dtype() == dtype) return t;
  Tensor out = empty_like(t, dtype);
  copy_into(out, t);
  return out;
}

Scalar item(const Tensor& t) {
  FL_CHECK(t.numel() == 1, "[item] expected a tensor of one element, got shape ", t.sizes());
  FL_CHECK(!t.is_meta(), "[item] expected a tensor with data, got one on the meta device");
  if (!t.is_cpu()) {
    static const Operator& move = OperatorTable::get().at("_to_cpu");
    return item(call_tensor(move, t));
  }
  return dispatch(t.dtype(), [&](auto type) -> Scalar {
    using T = typename decltype(type)::type;
    const T x = *t.data<T>();
    if constexpr (std::is_same_v<T, bool>)
      return Scalar(x);
    else if constexpr (is_complex_type<T>)
      return Scalar(complex128(x.real(), x.imag()));
    else if constexpr (std::is_integral_v<T>)
      return Scalar(static_cast<int64_t>(x));
    else
      return Scalar(static_cast<double>(static_cast<compute_t<T>>(x)));
  });
}

namespace {

Tensor copy_(const Tensor& self, const Tensor& src, bool) {
  FL_CHECK(broadcast_shapes("copy_", self.sizes(), src.sizes()) == Dims(self.sizes()), "[copy_] expected a source that broadcasts to ",
           self.sizes(), ", got ", src.sizes());
  FL_CHECK(!has_internal_overlap(self), "[copy_] expected a destination whose elements are distinct in memory, got an expanded tensor");
  self.bump_version();
  if (self.is_meta()) return self;
  FL_CHECK(!src.is_meta(), "[copy_] expected a source with data, got one on the meta device");
  if (src.dtype() == self.dtype() ? overlaps_partially(self, src) : self->storage.get() == src->storage.get()) {
    Tensor fresh = empty(src.sizes(), src.options());
    copy_into(fresh, src);
    copy_into(self, fresh);
    return self;
  }
  copy_into(self, src);
  return self;
}

Tensor clone(const Tensor& self, std::optional<MemoryFormat> format) {
  Tensor out;
  switch (format.value_or(MemoryFormat::Preserve)) {
    case MemoryFormat::Preserve: out = empty_like(self, self.dtype()); break;
    case MemoryFormat::Contiguous: out = empty(self.sizes(), self.options()); break;
    case MemoryFormat::ChannelsLast:
      FL_CHECK(self.dim() == 4, "[clone] expected 4 dimensions for channels_last, got ", self.dim());
      out = empty_strided(self.sizes(), channels_last_strides(self.sizes()), self.options());
      break;
    default:
      FL_CHECK(self.dim() == 5, "[clone] expected 5 dimensions for channels_last_3d, got ", self.dim());
      out = empty_strided(self.sizes(), channels_last_strides(self.sizes()), self.options());
  }
  copy_into(out, self);
  return out;
}

// Conversion to a dtype and layout, always a new tensor.
Tensor to_copy(const Tensor& self, DType dtype, std::optional<MemoryFormat> format) {
  Tensor out;
  const MemoryFormat f = format.value_or(MemoryFormat::Preserve);
  if (f == MemoryFormat::Preserve)
    out = empty_like(self, dtype);
  else if (f == MemoryFormat::Contiguous)
    out = empty(self.sizes(), {dtype, self.device()});
  else
    out = empty_strided(self.sizes(), channels_last_strides(self.sizes()), {dtype, self.device()});
  copy_into(out, self);
  return out;
}

FL_KERNEL("copy_", copy_);
FL_KERNEL("clone", clone);
FL_KERNEL("_to_dtype", to_copy);

}  // namespace
}  // namespace fl

// Views: other windows on the same storage. They touch no data and run on every device.
#include "core/views.h"

#include "dispatch/kernel.h"

namespace fl {

std::optional<Dims> view_strides(IntSpan old_sizes, IntSpan old_strides, IntSpan sizes) {
  const int64_t numel = numel_of(old_sizes);
  if (numel == 0) return old_sizes == sizes ? Dims(old_strides) : contiguous_strides(sizes);
  Dims strides(sizes.size());
  int64_t view_d = static_cast<int64_t>(sizes.size()) - 1;
  int64_t chunk_stride = old_sizes.empty() ? 1 : old_strides[old_strides.size() - 1];
  int64_t chunk = 1, viewed = 1;
  for (int64_t d = static_cast<int64_t>(old_sizes.size()) - 1; d >= 0; --d) {
    chunk *= old_sizes[d];
    // A chunk ends where the next outer dimension does not continue it in memory.
    const bool ends = d == 0 || (old_sizes[d - 1] != 1 && old_strides[d - 1] != chunk * chunk_stride);
    if (!ends) continue;
    while (view_d >= 0 && (viewed < chunk || sizes[view_d] == 1)) {
      strides[view_d] = viewed * chunk_stride;
      viewed *= sizes[view_d];
      --view_d;
    }
    if (viewed != chunk) return std::nullopt;
    if (d > 0) {
      chunk_stride = old_strides[d - 1];
      chunk = viewed = 1;
    }
  }
  if (old_sizes.empty())
    while (view_d >= 0) strides[view_d--] = 1;
  if (view_d != -1) return std::nullopt;
  return strides;
}

Dims infer_size(const char* op, IntSpan shape, int64_t numel) {
  Dims sizes(shape);
  int64_t known = 1, unknown = -1;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == -1) {
      FL_CHECK(unknown < 0, "[", op, "] expected at most one -1, got shape ", shape);
      unknown = static_cast<int64_t>(i);
    } else {
      FL_CHECK(shape[i] >= 0, "[", op, "] expected sizes that are not negative (or one -1), got ", shape);
      FL_CHECK(!__builtin_mul_overflow(known, shape[i], &known), "[", op, "] expected a shape of ", numel,
               " elements, got ", shape);
    }
  }
  if (unknown >= 0) {
    FL_CHECK(known != 0, "[", op,
             "] expected a shape that determines -1 (because the unspecified dimension size -1 can be any "
             "value), got ",
             shape, " for ", numel, " elements");
    FL_CHECK(numel % known == 0, "[", op, "] expected a shape of ", numel, " elements, got ", shape);
    sizes[unknown] = numel / known;
  } else {
    FL_CHECK(known == numel, "[", op, "] expected a shape of ", numel, " elements, got ", shape);
  }
  return sizes;
}

namespace {

Tensor view(const Tensor& self, IntSpan size) {
  const Dims sizes = infer_size("view", size, self.numel());
  const auto strides = view_strides(self.sizes(), self.strides(), sizes);
  FL_CHECK(strides.has_value(), "[view] expected a shape compatible with sizes ", self.sizes(),
           " and strides ", self.strides(), " (use reshape(), which copies if it must), got ", size);
  return alias(self, sizes, *strides, self.offset());
}

Tensor as_strided(const Tensor& self, IntSpan size, IntSpan stride, std::optional<int64_t> storage_offset) {
  const int64_t offset = storage_offset.value_or(self.offset());
  FL_CHECK(size.size() == stride.size(), "[as_strided] expected as many strides as sizes, got ", size,
           " and ", stride);
  FL_CHECK(offset >= 0, "[as_strided] expected an offset that is not negative, got ", offset);
  int64_t last = offset;
  const int64_t n = numel_of(size);
  for (size_t i = 0; i < size.size(); ++i) {
    FL_CHECK(stride[i] >= 0, "[as_strided] expected strides that are not negative, got ", stride);
    int64_t reach;
    if (n)
      FL_CHECK(!__builtin_mul_overflow(size[i] - 1, stride[i], &reach) &&
                   !__builtin_add_overflow(last, reach, &last),
               "[as_strided] expected a window inside the storage, got sizes ", size, " and strides ",
               stride);
  }
  if (n)
    FL_CHECK(static_cast<size_t>(last) < self->storage->bytes / self.itemsize(),
             "[as_strided] expected a window inside the storage of ",
             static_cast<int64_t>(self->storage->bytes), " bytes, got sizes ", size, ", strides ", stride,
             ", offset ", offset);
  return alias(self, size, stride, offset);
}

Tensor select(const Tensor& self, int64_t dim, int64_t index) {
  FL_CHECK_KIND(self.dim() > 0, Index, "[select] expected a tensor with dimensions, got a 0-d tensor");
  const int64_t d = wrap_dim("select", dim, self.dim());
  const int64_t n = self.size(d);
  FL_CHECK_KIND(index >= -n && index < n, Index, "[select] expected an index in [", -n, ", ", n - 1,
                "] for dimension ", d, ", got ", index, ": select(): index ", index,
                " out of range for tensor of size ", self.sizes(), " at dimension ", d);
  Dims sizes(self.sizes()), strides(self.strides());
  const int64_t offset = self.offset() + (index < 0 ? index + n : index) * strides[d];
  sizes.erase(d);
  strides.erase(d);
  return alias(self, sizes, strides, offset);
}

Tensor slice(const Tensor& self, int64_t dim, std::optional<int64_t> start, std::optional<int64_t> end,
             int64_t step) {
  FL_CHECK_KIND(self.dim() > 0, Index, "[slice] expected a tensor with dimensions, got a 0-d tensor");
  const int64_t d = wrap_dim("slice", dim, self.dim());
  FL_CHECK_KIND(step > 0, Value, "[slice] expected a step greater than zero, got ", step);
  const int64_t n = self.size(d);
  int64_t a = start.value_or(0), b = end.value_or(n);
  if (a < 0) a += n;
  if (b < 0) b += n;
  a = std::min(std::max<int64_t>(a, 0), n);
  b = std::min(std::max<int64_t>(b, a), n);
  Dims sizes(self.sizes()), strides(self.strides());
  const int64_t offset = self.offset() + a * strides[d];
  sizes[d] = b > a ? (b - a - 1) / step + 1 : 0;
  strides[d] = stepped(strides[d], step);
  return alias(self, sizes, strides, offset);
}

Tensor transpose(const Tensor& self, int64_t dim0, int64_t dim1) {
  const int64_t a = wrap_dim("transpose", dim0, self.dim()), b = wrap_dim("transpose", dim1, self.dim());
  Dims sizes(self.sizes()), strides(self.strides());
  if (self.dim() > 0) {
    std::swap(sizes[a], sizes[b]);
    std::swap(strides[a], strides[b]);
  }
  return alias(self, sizes, strides, self.offset());
}

Tensor permute(const Tensor& self, IntSpan dims) {
  const int64_t n = self.dim();
  FL_CHECK(static_cast<int64_t>(dims.size()) == n, "[permute] expected ", n, " dimensions, got ", dims);
  Dims sizes(n), strides(n);
  uint64_t seen = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t d = wrap_dim("permute", dims[i], n);
    FL_CHECK(!(seen >> d & 1), "[permute] expected each dimension once, got ", dims);
    seen |= uint64_t(1) << d;
    sizes[i] = self.size(d);
    strides[i] = self.stride(d);
  }
  return alias(self, sizes, strides, self.offset());
}

Tensor expand(const Tensor& self, IntSpan size, bool) {
  const int64_t n = static_cast<int64_t>(size.size()), lead = n - self.dim();
  FL_CHECK(lead >= 0, "[expand] expected at least ", self.dim(), " sizes, got ", size);
  Dims sizes(n), strides(n);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t own = i < lead ? 1 : self.size(i - lead);
    int64_t want = size[i];
    if (want == -1) {
      FL_CHECK(i >= lead, "[expand] expected a size for the new dimension ", i, ", got -1");
      want = own;
    }
    FL_CHECK(want >= 0, "[expand] expected sizes that are not negative, got ", size);
    FL_CHECK(own == want || own == 1, "[expand] expected size ", own, " or an expandable 1 at dimension ", i,
             ", got ", size, " for a tensor of shape ", self.sizes(), ": The expanded size of the tensor (",
             want, ") must match the existing size (", own, ") at non-singleton dimension ", i);
    sizes[i] = want;
    strides[i] = i < lead || own != want || own == 1 ? 0 : self.stride(i - lead);
    if (i >= lead && own == want) strides[i] = self.stride(i - lead);
  }
  numel_of(sizes);  // raises when the number of elements overflows
  return alias(self, sizes, strides, self.offset());
}

Tensor unsqueeze(const Tensor& self, int64_t dim) {
  const int64_t d = wrap_dim("unsqueeze", dim, self.dim() + 1);
  Dims sizes(self.sizes()), strides(self.strides());
  const int64_t stride = d < self.dim() ? sizes[d] * strides[d] : 1;
  sizes.insert(d, 1);
  strides.insert(d, stride);
  return alias(self, sizes, strides, self.offset());
}

Tensor squeeze_dims(const Tensor& self, IntSpan dims) {
  uint64_t chosen = 0;
  for (int64_t d : dims) chosen |= uint64_t(1) << wrap_dim("squeeze", d, self.dim());
  Dims sizes, strides;
  for (int64_t i = 0; i < self.dim(); ++i)
    if (!(chosen >> i & 1) || self.size(i) != 1) {
      sizes.push_back(self.size(i));
      strides.push_back(self.stride(i));
    }
  return alias(self, sizes, strides, self.offset());
}

Tensor squeeze(const Tensor& self) {
  Dims sizes, strides;
  for (int64_t i = 0; i < self.dim(); ++i)
    if (self.size(i) != 1) {
      sizes.push_back(self.size(i));
      strides.push_back(self.stride(i));
    }
  return alias(self, sizes, strides, self.offset());
}

Tensor squeeze_dim(const Tensor& self, int64_t dim) {
  return squeeze_dims(self, {dim});
}

Tensor alias_op(const Tensor& self) {
  return alias(self, self.sizes(), self.strides(), self.offset());
}

Tensor unfold(const Tensor& self, int64_t dimension, int64_t size, int64_t step) {
  const int64_t d = wrap_dim("unfold", dimension, self.dim());
  const int64_t n = self.dim() == 0 ? 1 : self.size(d);
  FL_CHECK(size >= 0, "[unfold] expected a size in [0, ", n, "], got ", size, ": size is ", size,
           " but must be >= 0");
  FL_CHECK(size <= n, "[unfold] expected a size in [0, ", n, "], got ", size,
           ": maximum size for tensor at dimension ", d, " is ", n, " but size is ", size);
  FL_CHECK(step > 0, "[unfold] expected a step greater than zero, got ", step, ": step is ", step,
           " but must be > 0");
  Dims sizes(self.sizes()), strides(self.strides());
  const int64_t stride = self.dim() == 0 ? 1 : strides[d];
  if (self.dim() > 0) {
    sizes[d] = (n - size) / step + 1;
    strides[d] = stepped(stride, step);
  }
  sizes.push_back(size);
  strides.push_back(stride);
  return alias(self, sizes, strides, self.offset());
}

Tensor diagonal(const Tensor& self, int64_t offset, int64_t dim1, int64_t dim2) {
  FL_CHECK_KIND(self.dim() >= 2, Index, "[diagonal] expected at least 2 dimensions, got shape ",
                self.sizes());
  const int64_t a = wrap_dim("diagonal", dim1, self.dim()), b = wrap_dim("diagonal", dim2, self.dim());
  FL_CHECK(a != b, "[diagonal] expected two different dimensions, got ", dim1, " and ", dim2);
  const int64_t n = offset >= 0 ? std::max<int64_t>(std::min(self.size(a), self.size(b) - offset), 0)
                                : std::max<int64_t>(std::min(self.size(a) + offset, self.size(b)), 0);
  const int64_t start = n == 0 ? 0 : offset >= 0 ? offset * self.stride(b) : -offset * self.stride(a);
  Dims sizes, strides;
  for (int64_t i = 0; i < self.dim(); ++i)
    if (i != a && i != b) {
      sizes.push_back(self.size(i));
      strides.push_back(self.stride(i));
    }
  sizes.push_back(n);
  strides.push_back(self.stride(a) + self.stride(b));
  return alias(self, sizes, strides, self.offset() + start);
}

// Raises where the bytes are to be read as something else than elements that are made of them when they are
// read.
void check_undeferred(const char* op, const Tensor& t) {
  const bool conjugated = t->keys.has(Key::Conjugate);
  FL_CHECK((t->keys & kDeferred).empty(), "[", op,
           "] expected a tensor whose memory holds its elements, got one that is ",
           conjugated ? "conjugated" : "negated", " when it is read: ", op, " doesn't work on unresolved ",
           conjugated ? "conjugated" : "negated", " tensors, and is not supported for ",
           conjugated ? "conjugate" : "negative",
           " view tensors when converting to a different dtype; use resolve_", conjugated ? "conj" : "neg",
           "() first");
}

// The same elements, conjugated or negated; it takes place when they are read.
Tensor deferred(const Tensor& self, Key key) {
  Tensor out = alias(self, self.sizes(), self.strides(), self.offset());
  out->keys = KeySet(out->keys.bits() ^ KeySet(key).bits());
  return out;
}
Tensor conjugate_view(const Tensor& self) {
  FL_CHECK(is_complex(self.dtype()), "[_conj] expected a complex tensor, got ", name_of(self.dtype()));
  return deferred(self, Key::Conjugate);
}
Tensor negative_view(const Tensor& self) {
  FL_CHECK(self.dtype() != DType::Bool, "[_neg_view] expected numbers, got bool");
  return deferred(self, Key::Negative);
}

// The same bytes as another dtype; the last dimension grows or shrinks with the element size.
Tensor view_dtype(const Tensor& self, DType dtype) {
  if (dtype != self.dtype()) check_undeferred("view", self);
  const int64_t from = self.itemsize(), to = size_of(dtype);
  Dims sizes(self.sizes()), strides(self.strides());
  int64_t offset = self.offset();
  if (from != to) {
    FL_CHECK(
        self.dim() > 0, "[view] expected dimensions to change the element size, got a 0-d tensor viewed as ",
        name_of(dtype), ": self.dim() cannot be 0 to view ", name_of(self.dtype()), " as ", name_of(dtype));
    FL_CHECK(strides.back() == 1 || sizes.back() == 1,
             "[view] expected a last dimension of stride 1 to view as ", name_of(dtype), ", got strides ",
             self.strides(), ": self.stride(-1) must be 1 to view ", name_of(self.dtype()), " as ",
             name_of(dtype));
    if (from > to) {
      const int64_t k = from / to;
      for (size_t i = 0; i + 1 < strides.size(); ++i) strides[i] *= k;
      sizes.back() *= k;
      strides.back() = 1;
      offset *= k;
    } else {
      const int64_t k = to / from;
      FL_CHECK(sizes.back() % k == 0 && offset % k == 0,
               "[view] expected a last dimension and an offset divisible by ", k, " to view as ",
               name_of(dtype), ", got ", self.sizes(),
               sizes.back() % k ? ": self.size(-1)" : ": self.storage_offset()", " must be divisible by ", k,
               " to view ", name_of(self.dtype()), " as ", name_of(dtype));
      for (size_t i = 0; i + 1 < strides.size(); ++i) {
        FL_CHECK(strides[i] % k == 0, "[view] expected strides divisible by ", k, " to view as ",
                 name_of(dtype), ", got ", self.strides(), ": self.stride(", static_cast<int64_t>(i),
                 ") must be divisible by ", k, " to view ", name_of(self.dtype()), " as ", name_of(dtype));
        strides[i] /= k;
      }
      sizes.back() /= k;
      strides.back() = 1;
      offset /= k;
    }
  }
  Tensor out = alias(self, sizes, strides, offset);
  out->dtype = dtype;
  if (dtype == DType::ComplexHalf) note_complex_half();
  return out;
}

// Complex elements as pairs of reals in a last dimension, and back.
Tensor view_as_real(const Tensor& self) {
  FL_CHECK(is_complex(self.dtype()), "[view_as_real] expected a complex tensor, got ", name_of(self.dtype()));
  check_undeferred("view_as_real", self);
  Dims sizes(self.sizes()), strides(self.strides());
  for (auto& s : strides) s *= 2;
  sizes.push_back(2);
  strides.push_back(1);
  Tensor out = alias(self, sizes, strides, self.offset() * 2);
  out->dtype = real_of(self.dtype());
  return out;
}

Tensor view_as_complex(const Tensor& self) {
  FL_CHECK(self.dtype() == DType::Half || self.dtype() == DType::Float || self.dtype() == DType::Double,
           "[view_as_complex] expected a float16, float32 or float64 tensor, got ", name_of(self.dtype()));
  check_undeferred("view_as_complex", self);
  FL_CHECK(self.dim() > 0,
           "[view_as_complex] expected a last dimension of size 2, got a 0-d tensor: Input tensor "
           "must have one or more dimensions");
  FL_CHECK(self.size(-1) == 2, "[view_as_complex] expected a last dimension of size 2, got shape ",
           self.sizes(), ": Tensor must have a last dimension of size 2");
  FL_CHECK(self.stride(-1) == 1, "[view_as_complex] expected a last dimension of stride 1, got strides ",
           self.strides(), ": Tensor must have a last dimension with stride 1");
  Dims sizes(self.sizes()), strides(self.strides());
  sizes.erase(sizes.size() - 1);
  strides.erase(strides.size() - 1);
  for (size_t i = 0; i < strides.size(); ++i) {
    FL_CHECK(strides[i] % 2 == 0 || sizes[i] <= 1,
             "[view_as_complex] expected even strides but for the last, got ", self.strides(),
             ": Tensor must have a stride divisible by 2 for all but last dimension");
    strides[i] /= 2;
  }
  FL_CHECK(self.offset() % 2 == 0, "[view_as_complex] expected an even storage offset, got ", self.offset());
  Tensor out = alias(self, sizes, strides, self.offset() / 2);
  out->dtype = complex_of(self.dtype());
  if (out.dtype() == DType::ComplexHalf) note_complex_half();
  return out;
}

// ---------------------------------------------------------------- on the tensor itself

// Gives self the geometry of one of its views. That counts as a write: what backward kept of it is laid out
// otherwise.
Tensor become(const Tensor& self, const Tensor& view) {
  self.bump_version();
  self->sizes = view->sizes;
  self->strides = view->strides;
  self->offset = view->offset;
  self->refresh();
  return self;
}
Tensor as_strided_(const Tensor& self, IntSpan size, IntSpan stride, std::optional<int64_t> offset) {
  return become(self, as_strided(self, size, stride, offset));
}
Tensor transpose_(const Tensor& self, int64_t a, int64_t b) {
  return become(self, transpose(self, a, b));
}
Tensor unsqueeze_(const Tensor& self, int64_t dim) {
  return become(self, unsqueeze(self, dim));
}
Tensor squeeze_(const Tensor& self) {
  return become(self, squeeze(self));
}
Tensor squeeze_dim_(const Tensor& self, int64_t dim) {
  return become(self, squeeze_dim(self, dim));
}
Tensor squeeze_dims_(const Tensor& self, IntSpan dims) {
  return become(self, squeeze_dims(self, dims));
}
Tensor t_(const Tensor& self) {
  FL_CHECK(self.dim() <= 2, "[t_] expected at most 2 dimensions, got shape ", self.sizes());
  return self.dim() < 2 ? self : transpose_(self, 0, 1);
}

FL_KERNEL("view", view, kEverywhere);
FL_KERNEL("detach", alias_op, kEverywhere);
FL_KERNEL("view_as_real", view_as_real, kEverywhere);
FL_KERNEL("view_as_complex", view_as_complex, kEverywhere);
FL_KERNEL("as_strided_", as_strided_, kEverywhere);
FL_KERNEL("transpose_", transpose_, kEverywhere);
FL_KERNEL("swapaxes_", transpose_, kEverywhere);
FL_KERNEL("swapdims_", transpose_, kEverywhere);
FL_KERNEL("unsqueeze_", unsqueeze_, kEverywhere);
FL_KERNEL("squeeze_", squeeze_, kEverywhere);
FL_KERNEL("squeeze_.dim", squeeze_dim_, kEverywhere);
FL_KERNEL("squeeze_.dims", squeeze_dims_, kEverywhere);
FL_KERNEL("t_", t_, kEverywhere);
FL_KERNEL("view.dtype", view_dtype, kEverywhere);
FL_KERNEL("_conj", conjugate_view, kEverywhere);
FL_KERNEL("_neg_view", negative_view, kEverywhere);
FL_KERNEL("as_strided", as_strided, kEverywhere);
FL_KERNEL("select", select, kEverywhere);
FL_KERNEL("slice", slice, kEverywhere);
FL_KERNEL("transpose", transpose, kEverywhere);
FL_KERNEL("permute", permute, kEverywhere);
FL_KERNEL("expand", expand, kEverywhere);
FL_KERNEL("unsqueeze", unsqueeze, kEverywhere);
FL_KERNEL("squeeze", squeeze, kEverywhere);
FL_KERNEL("squeeze.dim", squeeze_dim, kEverywhere);
FL_KERNEL("squeeze.dims", squeeze_dims, kEverywhere);
FL_KERNEL("alias", alias_op, kEverywhere);
FL_KERNEL("unfold", unfold, kEverywhere);
FL_KERNEL("diagonal", diagonal, kEverywhere);

}  // namespace
}  // namespace fl

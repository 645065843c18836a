// Copies between any two strided CPU tensors, with conversion and broadcasting: copy_, clone, contiguous, to.
#ifdef __AVX2__
#include <immintrin.h>
#endif

#include <cstring>

#include "core/accelerator.h"
#include "core/parallel.h"
#include "core/stored_dtypes.h"
#include "cpu/engine/bytes.h"
#include "cpu/engine/cast.h"
#include "dispatch/composite.h"
#include "ops/iterator.h"
#include "ops/layout.h"
#include "ops/pointwise.h"

namespace fl {

namespace {

// A copy between two orders of dimensions, `fast` being the dimension in which the source is contiguous.
struct Transposition {
  const char* src;
  char* dst;
  int64_t rows, src_row;  // dimension 0: contiguous in the destination
  int64_t cols, dst_col;  // dimension `fast`: contiguous in the source; strides in bytes
};

// to[c * step + r] = rows' elements, for a square of as many elements as fit in a vector; false: no such
// loop.
#ifdef __AVX2__
inline bool transpose_square(const uint32_t* from, int64_t row, uint32_t* to, int64_t step) {
  __m256 r[8], t[8];
  for (int i = 0; i < 8; ++i) r[i] = _mm256_loadu_ps(reinterpret_cast<const float*>(from + i * row));
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < 8; i += 4)
    for (int k = 0; k < 2; ++k) {
      r[i + 2 * k] = _mm256_shuffle_ps(t[i + k], t[i + k + 2], 0x44);
      r[i + 2 * k + 1] = _mm256_shuffle_ps(t[i + k], t[i + k + 2], 0xee);
    }
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(reinterpret_cast<float*>(to + i * step), _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
    _mm256_storeu_ps(reinterpret_cast<float*>(to + (i + 4) * step),
                     _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
  }
  return true;
}
inline bool transpose_square(const uint16_t* from, int64_t row, uint16_t* to, int64_t step) {
  __m128i r[8], t[8];
  for (int i = 0; i < 8; ++i) r[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * row));
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm_unpacklo_epi16(r[i], r[i + 4]);
    t[2 * i + 1] = _mm_unpackhi_epi16(r[i], r[i + 4]);
  }
  // Three rounds of joining what lies half the rows apart turn the square.
  for (int i = 0; i < 4; ++i) {
    r[2 * i] = _mm_unpacklo_epi16(t[i], t[i + 4]);
    r[2 * i + 1] = _mm_unpackhi_epi16(t[i], t[i + 4]);
  }
  for (int i = 0; i < 4; ++i) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 2 * i * step), _mm_unpacklo_epi16(r[i], r[i + 4]));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + (2 * i + 1) * step), _mm_unpackhi_epi16(r[i], r[i + 4]));
  }
  return true;
}
#endif
template <class T>
bool transpose_square(const T*, int64_t, T*, int64_t) {
  return false;
}

// Goes tile by tile through a small buffer: whole cache lines are read, then whole lines are written, so that
// strides which are powers of two do not fight for the same lines of the cache.
template <class T>
void transpose_tile(const Transposition& t, int64_t r0, int64_t nr, int64_t c0, int64_t nc) {
  constexpr int64_t K = 64 / sizeof(T);
  alignas(64) T tile[K][K];
  const auto row = [&](int64_t r) { return reinterpret_cast<const T*>(t.src + (r0 + r) * t.src_row) + c0; };
  const auto column = [&](int64_t c) { return t.dst + (c0 + c) * t.dst_col + r0 * sizeof(T); };
  if (nr == K && nc == K) {
    constexpr int64_t side = 8;
    bool done = K % side == 0;
    for (int64_t r = 0; done && r < K; r += side)
      for (int64_t c = 0; done && c < K; c += side)
        done = transpose_square(row(r) + c, t.src_row / int64_t(sizeof(T)), &tile[c][r], K);
    if (!done)
      for (int64_t r = 0; r < K; ++r)
        for (int64_t c = 0; c < K; ++c) tile[c][r] = row(r)[c];
    for (int64_t c = 0; c < K; ++c) std::memcpy(column(c), tile[c], 64);
    return;
  }
  for (int64_t r = 0; r < nr; ++r)
    for (int64_t c = 0; c < nc; ++c) tile[c][r] = row(r)[c];
  for (int64_t c = 0; c < nc; ++c) std::memcpy(column(c), tile[c], nr * sizeof(T));
}

// Some of the columns, in blocks that touch few enough pages at a time.
template <class T>
void transpose_columns(const Transposition& t, int64_t first, int64_t last) {
  constexpr int64_t K = 64 / sizeof(T), block = 128;
  for (int64_t rb = 0; rb < t.rows; rb += block)
    for (int64_t cb = first; cb < last; cb += block)
      for (int64_t c = cb; c < std::min(last, cb + block); c += K)
        for (int64_t r = rb; r < std::min(t.rows, rb + block); r += K)
          transpose_tile<T>(t, r, std::min(K, t.rows - r), c, std::min(K, last - c));
}

template <class T>
void transpose(const StridedIterator& it, int fast) {
  constexpr int64_t K = 64 / sizeof(T);
  const auto& dst = it.operand(0);
  const auto& src = it.operand(1);
  const Dims& sizes = it.sizes();
  const int64_t blocks = (sizes[fast] + K - 1) / K, outer = it.numel() / (sizes[0] * sizes[fast]);
  parallel_for(
      outer * blocks, std::max<int64_t>(1, kGrain / (K * sizes[0])), [&](int64_t begin, int64_t end) {
        while (begin < end) {
          int64_t rest = begin / blocks;
          const int64_t block = begin % blocks, count = std::min(blocks - block, end - begin);
          Transposition t{src.data, dst.data, sizes[0], src.strides[0], sizes[fast], dst.strides[fast]};
          for (int d = 1; d < it.ndim(); ++d) {
            if (d == fast) continue;
            const int64_t i = rest % sizes[d];
            rest /= sizes[d];
            t.src += i * src.strides[d];
            t.dst += i * dst.strides[d];
          }
          transpose_columns<T>(t, block * K, std::min(sizes[fast], (block + count) * K));
          begin += count;
        }
      });
}

bool try_transpose(const StridedIterator& it) {
  const auto& dst = it.operand(0);
  const auto& src = it.operand(1);
  const int64_t item = size_of(dst.dtype);
  if (it.ndim() < 2 || dst.dtype != src.dtype || dst.strides[0] != item || src.strides[0] == item ||
      src.strides[0] == 0)
    return false;
  int fast = 1;
  while (fast < it.ndim() && src.strides[fast] != item) ++fast;
  if (fast == it.ndim() || it.sizes()[0] < 4 || it.sizes()[fast] < 4) return false;
  dispatch_bytes(item, [&](auto type) { transpose<typename decltype(type)::type>(it, fast); });
  return true;
}

}  // namespace

void copy_into(const Tensor& dst, const Tensor& src, bool non_blocking) {
  if (dst.numel() == 0 || dst.is_meta() || src.is_meta()) return;
  if (__builtin_expect(!dst.is_cpu() || !src.is_cpu(), 0))
    return the_accelerator().copy(dst, src, non_blocking);
  if (dst.dtype() == src.dtype() && dst.is_contiguous() && src.is_contiguous() &&
      dst.sizes() == src.sizes()) {
    const int64_t item = dst.itemsize();
    char* to = dst.raw();
    const char* from = src.raw();
    if (to == from) return;
    parallel_for(dst.numel(), kGrain * 4,
                 [&](int64_t b, int64_t e) { std::memmove(to + b * item, from + b * item, (e - b) * item); });
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
  // A short innermost dimension makes many short rows: the next one out is then the better loop.
  const int along = it.ndim() > 1 && sizes[0] < 16 && sizes[1] > 2 * sizes[0] ? 1 : 0;
  const int64_t inner = sizes[along];
  if (it.ndim() == 1) {
    parallel_for(inner, kGrain, [&](int64_t b, int64_t e) {
      cast(from.data + b * from.strides[0], from.strides[0], to.data + b * to.strides[0], to.strides[0],
           e - b);
    });
    return;
  }
  const int64_t rows = it.numel() / inner;
  parallel_for(rows, std::max<int64_t>(1, kGrain / inner), [&](int64_t b, int64_t e) {
    for (int64_t r = b; r < e; ++r) {
      int64_t rest = r, x = 0, y = 0;
      for (int d = 0; d < it.ndim(); ++d) {
        if (d == along) continue;
        const int64_t i = rest % sizes[d];
        rest /= sizes[d];
        x += i * to.strides[d];
        y += i * from.strides[d];
      }
      cast(from.data + y, from.strides[along], to.data + x, to.strides[along], inner);
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

namespace {
Scalar read_cpu(const Tensor& t);
}

Scalar item(const Tensor& t) {
  if (__builtin_expect(bool(t->sparse), 0)) {
    static const Operator& to_dense = OperatorTable::get().at("_sparse_to_dense");
    return item(call_tensor(to_dense, t));
  }
  FL_CHECK(t.numel() == 1, "[item] expected a tensor of one element, got shape ", t.sizes());
  // Subclasses, modes and devices see an operator; plain CPU tensors, by far the most, are read at once.
  if (!t.is_cpu() || t->keys.has(Key::Python) || thread_state().included.has(Key::Python)) {
    static const Operator& read = OperatorTable::get().at("_local_scalar_dense");
    Value args[1] = {Value(t)}, result[1];
    read.call(args, result);
    return result[0].is_tensor() ? item(result[0].tensor()) : result[0].to_scalar();
  }
  return read_cpu(t);
}

namespace {

Scalar read_cpu(const Tensor& t) {
  if (__builtin_expect(is_stored_only(t.dtype()), 0)) return load_stored(t.dtype(), t.raw());
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

// The one element of a tensor on any device.
Scalar local_scalar_dense(const Tensor& self) {
  FL_CHECK(!self.is_meta(), "[item] expected a tensor with data, got one on the meta device");
  if (self.is_cpu()) return read_cpu(self);
  static const Operator& copy = OperatorTable::get().at("copy_");
  const Tensor host = empty(self.sizes(), {self.dtype(), Device{}});
  call_tensor(copy, host, self, false);
  return read_cpu(host);
}
FL_KERNEL_ALL("_local_scalar_dense", local_scalar_dense);

Tensor copy_(const Tensor& self, const Tensor& src, bool non_blocking) {
  FL_CHECK(broadcast_shapes("copy_", self.sizes(), src.sizes()) == Dims(self.sizes()),
           "[copy_] expected a source that broadcasts to ", self.sizes(), ", got ", src.sizes());
  FL_CHECK(!has_internal_overlap(self),
           "[copy_] expected a destination whose elements are distinct in memory, got an expanded tensor");
  self.bump_version();
  if (self.is_meta()) return self;
  FL_CHECK(!src.is_meta(), "[copy_] expected a source with data, got one on the meta device");
  if (src.dtype() == self.dtype() ? overlaps_partially(self, src)
                                  : self->storage.get() == src->storage.get()) {
    Tensor fresh = empty(src.sizes(), src.options());
    copy_into(fresh, src);
    copy_into(self, fresh);
    return self;
  }
  copy_into(self, src, non_blocking);
  return self;
}

Tensor clone(const Tensor& self, std::optional<MemoryFormat> format) {
  const MemoryFormat f = format.value_or(MemoryFormat::Preserve);
  const Tensor out = f == MemoryFormat::Preserve ? empty_like(self, self.dtype())
                                                 : empty_in("clone", self.sizes(), f, self.options());
  copy_into(out, self);
  return out;
}

// Conversion to a dtype, device and memory format, always a new tensor. Runs for the CPU and meta.
Tensor to_copy(const Tensor& self, std::optional<DType> dtype, std::optional<Layout> layout,
               std::optional<Device> device, std::optional<bool>, bool non_blocking,
               std::optional<MemoryFormat> format) {
  FL_CHECK(layout.value_or(Layout::Strided) == Layout::Strided,
           "[to] expected a strided layout, got a sparse one");
  const Options o{dtype.value_or(self.dtype()), canonical(device.value_or(self.device()))};
  const MemoryFormat f = format.value_or(MemoryFormat::Preserve);
  Tensor out;
  if (f != MemoryFormat::Preserve) {
    out = empty_in("to", self.sizes(), f, o);
  } else if (o.device == self.device()) {
    out = empty_like(self, o.dtype);
  } else if (is_dense(self)) {
    out = empty_strided(self.sizes(), self.strides(), o);
  } else {
    const Options nowhere{o.dtype, Device{DeviceType::Meta}};
    const Tensor shape = empty_like(empty_strided(self.sizes(), self.strides(), nowhere), o.dtype);
    out = empty_strided(self.sizes(), shape.strides(), o);
  }
  FL_CHECK_KIND(!self.is_meta() || out.is_meta(), NotImplemented,
                "[to] expected a tensor with data to copy, got one on the meta device");
  copy_into(out, self, non_blocking);
  return out;
}

// ---------------------------------------------------------------- to() and its relatives, above autograd

Tensor convert_to(const Tensor& self, std::optional<DType> dtype, std::optional<Device> device,
                  bool non_blocking, bool copy, std::optional<MemoryFormat> format) {
  const bool same =
      dtype.value_or(self.dtype()) == self.dtype() && device.value_or(self.device()) == self.device() &&
      (format.value_or(MemoryFormat::Preserve) == MemoryFormat::Preserve || self.is_contiguous(*format));
  if (same && !copy) return self;
  static const Operator& op = OperatorTable::get().at("_to_copy");
  Value args[7] = {Value::borrow(self.impl()),
                   dtype ? Value(*dtype) : Value(),
                   Value(),
                   device ? Value(*device) : Value(),
                   Value(),
                   Value(non_blocking),
                   format ? Value(*format) : Value()};
  Value result[1];
  op.call(args, result);
  return result[0].take_tensor();
}
// "cpu" and "cpu:0" are one device.
std::optional<Device> plain(std::optional<Device> device) {
  if (device && device->type != DeviceType::CUDA && device->type < DeviceType::Custom0) device->index = -1;
  if (device) device = canonical(*device);
  return device;
}
Tensor to_dtype_op(const Tensor& self, DType dtype, bool non_blocking, bool copy,
                   std::optional<MemoryFormat> format) {
  return convert_to(self, dtype, std::nullopt, non_blocking, copy, format);
}
Tensor to_device(const Tensor& self, std::optional<Device> device, std::optional<DType> dtype,
                 bool non_blocking, bool copy, std::optional<MemoryFormat> format) {
  return convert_to(self, dtype, plain(device), non_blocking, copy, format);
}
Tensor to_other(const Tensor& self, const Tensor& other, bool non_blocking, bool copy,
                std::optional<MemoryFormat> format) {
  return convert_to(self, other.dtype(), other.device(), non_blocking, copy, format);
}
Tensor type_as(const Tensor& self, const Tensor& other) {
  return convert_to(self, other.dtype(), other.device(), false, false, std::nullopt);
}
Tensor to_cpu(const Tensor& self, std::optional<MemoryFormat> format) {
  return convert_to(self, std::nullopt, Device{}, false, false, format);
}
Tensor to_cpu_plain(const Tensor& self) {
  return to_cpu(self, std::nullopt);
}
template <DType T>
Tensor as_type(const Tensor& self, std::optional<MemoryFormat> format) {
  return convert_to(self, T, std::nullopt, false, false, format);
}

// ---------------------------------------------------------------- resizing and sharing storage

// Gives self new sizes, keeping what its storage holds and growing it if need be.
Tensor resize_(const Tensor& self, IntSpan size, std::optional<MemoryFormat> format) {
  const int64_t n = numel_of(size);
  const MemoryFormat f = format.value_or(MemoryFormat::Contiguous);
  const bool channels_last = f == MemoryFormat::ChannelsLast || f == MemoryFormat::ChannelsLast3d;
  FL_CHECK(f != MemoryFormat::Preserve,
           "[resize_] expected a memory format that sizes determine, got preserve_format");
  FL_CHECK(!channels_last || size.size() == (f == MemoryFormat::ChannelsLast ? 4 : 5),
           "[resize_] expected 4 or 5 dimensions for channels_last, got ", size);
  if (self.sizes() != size) {
    int64_t bytes;
    FL_CHECK(!__builtin_add_overflow(self.offset(), n, &bytes) &&
                 !__builtin_mul_overflow(bytes, self.itemsize(), &bytes),
             "[resize_] expected a tensor that fits in memory, got sizes ", size);
    if (n > 0 && bytes > static_cast<int64_t>(self->storage->bytes)) self->storage->resize(bytes);
    self->sizes.assign(size);
    self->strides = contiguous_strides(size);
    self->refresh();
  }
  if (channels_last) {
    self->strides = channels_last_strides(size);
    self->refresh();
  }
  return self;
}
Tensor resize_as_(const Tensor& self, const Tensor& like, std::optional<MemoryFormat> format) {
  if (format == MemoryFormat::Preserve) {
    resize_(self, like.sizes(), std::nullopt);
    if (is_dense(like)) {
      self->strides = like->strides;
      self->refresh();
    }
    return self;
  }
  return resize_(self, like.sizes(), format);
}

// Makes self a window on the storage of source.
Tensor set_storage_(const Tensor& self, const Tensor& source, int64_t offset, IntSpan size, IntSpan stride) {
  FL_CHECK(size.size() == stride.size(), "[set_] expected as many strides as sizes, got ", size, " and ",
           stride);
  FL_CHECK(offset >= 0, "[set_] expected a storage offset that is not negative, got ", offset);
  FL_CHECK(self.device() == source.device(), "[set_] expected a storage on ", to_string(self.device()),
           ", got ", to_string(source.device()));
  const int64_t n = numel_of(size);
  int64_t last = offset;
  for (size_t i = 0; i < size.size(); ++i) {
    FL_CHECK(stride[i] >= 0, "[set_] expected strides that are not negative, got ", stride);
    int64_t reach;
    if (n)
      FL_CHECK(!__builtin_mul_overflow(size[i] - 1, stride[i], &reach) &&
                   !__builtin_add_overflow(last, reach, &last),
               "[set_] expected a window that fits in memory, got sizes ", size, " and strides ", stride);
  }
  FL_CHECK_KIND(last < int64_t(1) << 47, OutOfMemory,
                "[set_] expected a window that fits in memory, got sizes ", size, ", strides ", stride,
                ", offset ", offset);
  const int64_t bytes = (last + 1) * self.itemsize();
  if (n > 0 && bytes > static_cast<int64_t>(source->storage->bytes)) source->storage->resize(bytes);
  self->storage = source->storage;
  self->own_version = nullptr;
  self->offset = offset;
  self->sizes.assign(size);
  self->strides.assign(stride);
  self->refresh();
  return self;
}

// A number as the source.
Tensor copy_number_(const Tensor& self, const Scalar& src, bool) {
  static const Operator& op = OperatorTable::get().at("fill_");
  return call_tensor(op, self, src);
}

FL_KERNEL_DEVICES("copy_", copy_);
FL_COMPOSITE("copy_.number", copy_number_);
FL_KERNEL_DEVICES("clone", clone);
FL_KERNEL_DEVICES("_to_copy", to_copy);
FL_KERNEL_ALL("resize_", resize_);
FL_KERNEL_ALL("resize_as_", resize_as_);
FL_KERNEL_ALL("_set_storage_", set_storage_);
FL_COMPOSITE("to.dtype", to_dtype_op);
FL_COMPOSITE("to.device", to_device);
FL_COMPOSITE("to.other", to_other);
FL_COMPOSITE("type_as", type_as);
FL_COMPOSITE("cpu", to_cpu);
FL_COMPOSITE("_to_cpu", to_cpu_plain);
FL_COMPOSITE("float", as_type<DType::Float>);
FL_COMPOSITE("double", as_type<DType::Double>);
FL_COMPOSITE("half", as_type<DType::Half>);
FL_COMPOSITE("bfloat16", as_type<DType::BFloat16>);
FL_COMPOSITE("int", as_type<DType::Int32>);
FL_COMPOSITE("long", as_type<DType::Int64>);
FL_COMPOSITE("short", as_type<DType::Int16>);
FL_COMPOSITE("char", as_type<DType::Int8>);
FL_COMPOSITE("byte", as_type<DType::UInt8>);
FL_COMPOSITE("bool", as_type<DType::Bool>);
FL_COMPOSITE("cfloat", as_type<DType::ComplexFloat>);
FL_COMPOSITE("cdouble", as_type<DType::ComplexDouble>);

}  // namespace
}  // namespace fl

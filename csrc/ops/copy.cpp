// Copies with conversion and broadcasting, on a device or between two: copy_, clone, contiguous, to.
#include "ops/copy.h"
#include "ops/uninitialized.h"

#include "core/accelerator.h"
#include "core/stored_dtypes.h"
#include "dispatch/kernel.h"
#include "ops/iterator.h"
#include "ops/layout.h"

namespace fl {

DeviceFunction<void(const Tensor&, const Tensor&)> device::copy{"copy_"};

void copy_into(const Tensor& dst, const Tensor& src, bool non_blocking) {
  if (dst.numel() == 0 || dst.is_meta() || src.is_meta()) return;
  if (__builtin_expect(!dst.is_cpu() || !src.is_cpu(), 0)) {
    if (dst.device().type < DeviceType::Custom0 && src.device().type < DeviceType::Custom0)
      return the_accelerator().copy(dst, src, non_blocking);
    static const Operator& copy = OperatorTable::get().at("copy_");
    Value args[3] = {Value(dst), Value(src), Value(non_blocking)}, result[1];
    const KeySet keys = KeySet(backend_key(dst.device().type)) | backend_key(src.device().type);
    return copy.call_with(keys, args, result);
  }
  device::copy(DeviceType::CPU, dst, src);
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
  check_stored("item", t);
  // Subclasses, modes and devices see an operator; plain CPU tensors, by far the most, are read at once.
  if (!t.is_cpu() || !(t->keys & (KeySet(Key::Python) | kDeferred)).empty() ||
      thread_state().included.has(Key::Python)) {
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
  FL_CHECK(self.numel() > 0,
           "[_local_scalar_dense] expected one element, got none: Empty tensor not supported");
  if (self.is_cpu()) return read_cpu(self);
  static const Operator& copy = OperatorTable::get().at("copy_");
  const Tensor host = empty(self.sizes(), {self.dtype(), Device{}});
  call_tensor(copy, host, self, false);
  return read_cpu(host);
}
FL_KERNEL("_local_scalar_dense", local_scalar_dense, kEverywhere);

Tensor copy_(const Tensor& self, const Tensor& src, bool non_blocking) {
  FL_CHECK(broadcast_shapes("copy_", self.sizes(), src.sizes()) == Dims(self.sizes()),
           "[copy_] expected a source that broadcasts to ", self.sizes(), ", got ", src.sizes());
  FL_CHECK(!has_internal_overlap(self),
           "[copy_] expected a destination whose elements are distinct in memory, got an expanded tensor: "
           "unsupported operation: more than one element of the "
           "written-to tensor refers to a single memory location");
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

// A clone whose bytes are copied when either tensor is written to.
Tensor lazy_clone(const Tensor& self) {
  if (!self.is_cpu() || self->storage->shrunk_from != 0) return clone(self, std::nullopt);
  Tensor out = alias(self, self.sizes(), self.strides(), self.offset());
  out->storage = self->storage->lazy_clone();
  out->own_version = nullptr;
  out->version_offset = 0;
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
  FL_CHECK_KIND(
      !self.is_meta() || out.is_meta(), NotImplemented,
      "[to] expected a tensor with data to copy, got one on the meta device: Cannot copy out of meta "
      "tensor; no data!");
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
  if (device && device->type < DeviceType::CUDA) device->index = -1;
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
  FL_CHECK(!self.requires_grad(),
           "[resize_] expected a tensor without gradient, got one that has one: cannot resize variables that "
           "require grad");
  if (self.sizes() != size) {
    self.bump_version();
    int64_t bytes;
    FL_CHECK(!__builtin_add_overflow(self.offset(), n, &bytes) &&
                 !__builtin_mul_overflow(bytes, self.itemsize(), &bytes),
             "[resize_] expected a tensor that fits in memory, got sizes ", size);
    const int64_t elements = static_cast<int64_t>(self->storage->bytes) / self.itemsize();
    if (n > 0 && bytes > static_cast<int64_t>(self->storage->bytes)) {
      self->storage->resize(bytes);
      uninitialized(alias(self, {bytes / self.itemsize() - elements}, {1}, elements));
    }
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
  self.bump_version();  // for views of what it was
  const uint32_t version = self->version();
  self->storage = source->storage;
  self->own_version = nullptr;
  self->continue_version(version);
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

FL_KERNEL("copy_", copy_, kDevices);
FL_KERNEL("copy_.number", copy_number_, kComposite);
FL_KERNEL("clone", clone, kDevices);
FL_KERNEL("_lazy_clone", lazy_clone, kDevices);
FL_KERNEL("_to_copy", to_copy, kDevices);
FL_KERNEL("resize_", resize_, kEverywhere);
FL_KERNEL("resize_as_", resize_as_, kEverywhere);
FL_KERNEL("_set_storage_", set_storage_, kEverywhere);
FL_KERNEL("to.dtype", to_dtype_op, kComposite);
FL_KERNEL("to.device", to_device, kComposite);
FL_KERNEL("to.other", to_other, kComposite);
FL_KERNEL("type_as", type_as, kComposite);
FL_KERNEL("cpu", to_cpu, kComposite);
FL_KERNEL("_to_cpu", to_cpu_plain, kComposite);
FL_KERNEL("float", as_type<DType::Float>, kComposite);
FL_KERNEL("double", as_type<DType::Double>, kComposite);
FL_KERNEL("half", as_type<DType::Half>, kComposite);
FL_KERNEL("bfloat16", as_type<DType::BFloat16>, kComposite);
FL_KERNEL("int", as_type<DType::Int32>, kComposite);
FL_KERNEL("long", as_type<DType::Int64>, kComposite);
FL_KERNEL("short", as_type<DType::Int16>, kComposite);
FL_KERNEL("char", as_type<DType::Int8>, kComposite);
FL_KERNEL("byte", as_type<DType::UInt8>, kComposite);
FL_KERNEL("bool", as_type<DType::Bool>, kComposite);
FL_KERNEL("cfloat", as_type<DType::ComplexFloat>, kComposite);
FL_KERNEL("cdouble", as_type<DType::ComplexDouble>, kComposite);

}  // namespace
}  // namespace fl

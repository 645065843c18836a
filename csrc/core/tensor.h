// TensorImpl: a strided window on a storage, with its dtype, device, dispatch keys and autograd state.
// Tensor: the handle.
#pragma once

#include <memory>
#include <optional>

#include "core/dims.h"
#include "core/dtype.h"
#include "core/keys.h"
#include "core/scalar.h"
#include "core/storage.h"

namespace fl {

// How elements lie in memory. Tensors of the other layouts than Strided are made of strided parts
// (core/sparse.h).
enum class Layout : int8_t { Strided, Sparse, SparseCsr, SparseCsc, SparseBsr, SparseBsc };

enum class MemoryFormat : int8_t { Contiguous, Preserve, ChannelsLast, ChannelsLast3d };

class Tensor;

// What the autograd layer hangs on a tensor. The core only owns it.
struct AutogradMeta : Counted {
  bool requires_grad = false;
};

struct TensorImpl final : Counted {
  Ref<Storage> storage;
  int64_t offset = 0;  // in elements
  int64_t numel = 1;
  Dims sizes, strides;
  DType dtype = DType::Float;
  Device device;
  bool contiguous = true;
  bool wrapped_number = false;  // a Python number: takes part in promotion by its kind only
  bool inference = false;       // made in inference mode: no version, no autograd
  bool owns_python = false;     // the Python object is kept alive by this, not the other way round
  uint32_t version_offset = 0;  // the version is this and the count of writes
  KeySet keys;
  void* python = nullptr;  // the one Python object of this tensor
  Ref<AutogradMeta> autograd;
  Ref<Counted>
      sparse;  // the SparseParts of a tensor that is not strided; such a tensor has no elements of its own
  std::shared_ptr<std::atomic<uint32_t>> own_version;  // `.data` shares bytes but not the version counter

  void refresh();  // recomputes numel, contiguity after sizes or strides changed
  void refresh_keys();
  // The count of writes that this tensor shares with its views.
  std::atomic<uint32_t>& writes() const { return own_version ? *own_version : storage->version; }
  // Differs whenever the elements or the geometry were changed in place.
  uint32_t version() const {
    const uint32_t own = writes().load(std::memory_order_relaxed) + version_offset;
    return sparse ? own + version_of_parts() : own;
  }
  // Has the version go on from a number, whatever storage or parts were set meanwhile.
  void continue_version(uint32_t from) { version_offset += from - version(); }
  char* data() const { return static_cast<char*>(storage->data) + offset * size_of(dtype); }

  static void* operator new(size_t size);
  static void operator delete(void* p);

  uint32_t version_of_parts() const;

 protected:
  void destroy() override;
};

// Called when a tensor that owns its Python object dies; set by the binding.
extern void (*release_python_object)(TensorImpl*);

struct Options {
  DType dtype = DType::Float;
  Device device;
};

class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(Ref<TensorImpl> impl) : impl_(std::move(impl)) {}
  explicit Tensor(TensorImpl* impl) : impl_(impl) {}

  bool defined() const { return bool(impl_); }
  TensorImpl* impl() const { return impl_.get(); }
  TensorImpl* operator->() const { return impl_.get(); }
  Ref<TensorImpl>& ref() { return impl_; }
  bool same(const Tensor& o) const { return impl_.get() == o.impl_.get(); }

  int64_t dim() const { return static_cast<int64_t>(impl_->sizes.size()); }
  int64_t numel() const { return impl_->numel; }
  IntSpan sizes() const { return impl_->sizes; }
  IntSpan strides() const { return impl_->strides; }
  int64_t size(int64_t d) const { return impl_->sizes[d < 0 ? d + dim() : d]; }
  int64_t stride(int64_t d) const { return impl_->strides[d < 0 ? d + dim() : d]; }
  int64_t offset() const { return impl_->offset; }
  DType dtype() const { return impl_->dtype; }
  int64_t itemsize() const { return size_of(impl_->dtype); }
  Device device() const { return impl_->device; }
  Options options() const { return {impl_->dtype, impl_->device}; }
  bool is_meta() const { return impl_->device.type == DeviceType::Meta; }
  bool is_cpu() const { return impl_->device.type == DeviceType::CPU; }
  bool is_contiguous() const { return impl_->contiguous; }
  bool is_contiguous(MemoryFormat format) const;
  bool requires_grad() const { return impl_->autograd && impl_->autograd->requires_grad; }
  // First element, typed or raw.
  char* raw() const { return impl_->data(); }
  template <class T>
  T* data() const {
    return reinterpret_cast<T*>(impl_->data());
  }
  void bump_version() const {
    if (!impl_->inference) impl_->writes().fetch_add(1, std::memory_order_relaxed);
  }

 private:
  Ref<TensorImpl> impl_;
};

// Creation below the dispatcher. Sizes must have been checked to be non-negative.
Tensor empty(IntSpan sizes, Options options);
Tensor empty_strided(IntSpan sizes, IntSpan strides, Options options);
// Strides as `like` has them when it is dense, else contiguous.
Tensor empty_like(const Tensor& like, DType dtype);
Tensor scalar_tensor(const Scalar& value, Options options);
Tensor wrapped_number(const Scalar& value);
// Another window on the same storage.
Tensor alias(const Tensor& base, IntSpan sizes, IntSpan strides, int64_t offset);

Dims contiguous_strides(IntSpan sizes);
Dims channels_last_strides(IntSpan sizes);
int64_t numel_of(IntSpan sizes);  // raises on overflow or negative sizes
bool is_dense(const Tensor& t);   // non-overlapping, covering a block of memory without holes
// Whether two elements of the tensor share memory (as after expand).
bool has_internal_overlap(const Tensor& t);
// Whether writing `out` may disturb reading `in`: they share bytes but are not the same window.
bool overlaps_partially(const Tensor& out, const Tensor& in);

// Wraps a dimension into [0, ndim), with the IndexError users know; a zero-dim tensor counts as one
// dimension.
int64_t wrap_dim(const char* op, int64_t d, int64_t ndim);

// Raises where the storage, which shrank after the tensor was made, no longer holds all of its elements.
void check_shrunk(const char* op, const TensorImpl* t);
inline void check_stored(const char* op, const Tensor& t) {
  if (any_unusual_storage()) check_shrunk(op, t.impl());
}
// For memory that is handed out, and may be written to by others.
inline void own_storage(const char* op, const Tensor& t) {
  check_stored(op, t);
  if (any_unusual_storage() && t->storage) t->storage->materialize();
}

// Copies with conversion, broadcasting src to dst; on the CPU or the accelerator, or between them.
void copy_into(const Tensor& dst, const Tensor& src, bool non_blocking = false);
Tensor contiguous(const Tensor& t);
Tensor to_dtype(const Tensor& t, DType dtype);
Scalar item(const Tensor& t);

DType default_dtype();
void set_default_dtype(DType t);

}  // namespace fl

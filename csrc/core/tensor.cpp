// Tensor creation, geometry and overlap rules.
#include "core/tensor.h"

#include <numeric>

#include "core/accelerator.h"
#include "core/changes.h"
#include "core/sparse.h"
#include "core/stored_dtypes.h"

namespace fl {

void (*release_python_object)(TensorImpl*) = nullptr;
std::atomic<uint64_t> tensor_changes{0};

ThreadState& thread_state() {
  static thread_local ThreadState state;
  return state;
}

namespace {
std::atomic<DType> the_default_dtype{DType::Float};

// TensorImpls are small, alike and short-lived: keep a few by thread.
struct ImplPool {
  static constexpr int kMost = 128;
  void* block[kMost];
  int count = 0;
  bool alive = true;
  ~ImplPool() {
    alive = false;
    while (count) std::free(block[--count]);
  }
};
thread_local ImplPool impl_pool;
}  // namespace

void* TensorImpl::operator new(size_t size) {
#if !defined(__SANITIZE_ADDRESS__)
  auto& pool = impl_pool;
  if (pool.count) return pool.block[--pool.count];
#endif
  return std::malloc(size);
}

void TensorImpl::operator delete(void* p) {
#if !defined(__SANITIZE_ADDRESS__)
  auto& pool = impl_pool;
  if (pool.alive && pool.count < ImplPool::kMost) {
    pool.block[pool.count++] = p;
    return;
  }
#endif
  std::free(p);
}

void TensorImpl::destroy() {
  if (owns_python && release_python_object) release_python_object(this);
  delete this;
}

void TensorImpl::refresh() {
  int64_t n = 1;
  bool dense = true;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] != 1) {
      dense &= strides[i] == n;
      n *= sizes[i];
    }
  }
  numel = n;
  contiguous = dense || n == 0;
  if (python) count_tensor_change();
}

uint32_t TensorImpl::version_of_parts() const {
  const auto& parts = *static_cast<const SparseParts*>(sparse.get());
  uint32_t sum = 0;
  for (const Tensor* part : {&parts.compressed, &parts.indices, &parts.values})
    if (part->defined()) sum += (*part)->version();
  return sum;
}

void TensorImpl::refresh_keys() {
  const KeySet deferring_keys = keys & (KeySet(Key::Python) | kDeferred);
  keys = KeySet(backend_key(device.type)) | deferring_keys;
  // Inference tensors pass autograd too: it refuses to write to them outside inference mode.
  if ((autograd && autograd->requires_grad) || inference) keys |= Key::Autograd;
  if (sparse) keys |= Key::Sparse;
}

DType default_dtype() {
  return the_default_dtype.load(std::memory_order_relaxed);
}
void set_default_dtype(DType t) {
  the_default_dtype.store(t, std::memory_order_relaxed);
}

int64_t numel_of(IntSpan sizes) {
  int64_t n = 1;
  bool zero = false;
  for (int64_t s : sizes) {
    FL_CHECK(s >= 0, "[empty] expected sizes that are not negative, got ", sizes);
    zero |= s == 0;
  }
  if (zero) return 0;
  for (int64_t s : sizes)
    FL_CHECK(!__builtin_mul_overflow(n, s, &n),
             "[empty] expected a number of elements below 2**63, got sizes ", sizes);
  return n;
}

Dims contiguous_strides(IntSpan sizes) {
  Dims strides(sizes.size());
  int64_t n = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = n;
    n *= sizes[i] > 1 ? sizes[i] : 1;
  }
  return strides;
}

Dims channels_last_strides(IntSpan sizes) {
  // Order from the innermost: channel, spatial from last to first, batch.
  Dims strides(sizes.size());
  int64_t n = 1;
  const auto place = [&](size_t d) {
    strides[d] = n;
    n *= sizes[d] > 1 ? sizes[d] : 1;
  };
  place(1);
  for (size_t d = sizes.size() - 1; d >= 2; --d) place(d);
  place(0);
  return strides;
}

bool Tensor::is_contiguous(MemoryFormat format) const {
  if (format == MemoryFormat::Contiguous || format == MemoryFormat::Preserve) return is_contiguous();
  const int64_t want = format == MemoryFormat::ChannelsLast ? 4 : 5;
  if (dim() != want) return false;
  const Dims expected = channels_last_strides(sizes());
  for (int64_t d = 0; d < want; ++d)
    if (size(d) != 1 && stride(d) != expected[d]) return false;
  return true;
}

static Ref<TensorImpl> make_impl(Options options) {
  Ref<TensorImpl> impl(new TensorImpl);
  impl->dtype = options.dtype;
  if (__builtin_expect(options.dtype == DType::ComplexHalf, 0)) note_complex_half();
  impl->device = canonical(options.device);
  impl->keys = KeySet(backend_key(options.device.type));
  impl->inference = thread_state().inference_mode;
  if (impl->inference) impl->keys |= Key::Autograd;
  return impl;
}

Tensor empty(IntSpan sizes, Options options) {
  options.device = canonical(options.device);
  auto impl = make_impl(options);
  const int64_t n = numel_of(sizes);
  int64_t bytes;
  FL_CHECK(!__builtin_mul_overflow(n, size_of(options.dtype), &bytes),
           "[empty] expected a tensor that fits in memory, got sizes ", sizes);
  impl->sizes.assign(sizes);
  impl->strides = contiguous_strides(sizes);
  impl->numel = n;
  impl->storage = Storage::allocate(bytes, options.device);
  return Tensor(std::move(impl));
}

Tensor empty_strided(IntSpan sizes, IntSpan strides, Options options) {
  options.device = canonical(options.device);
  FL_CHECK(sizes.size() == strides.size(), "[empty_strided] expected as many strides as sizes, got sizes ",
           sizes, " and strides ", strides);
  auto impl = make_impl(options);
  const int64_t n = numel_of(sizes);
  int64_t extent = n == 0 ? 0 : 1;
  for (size_t d = 0; d < sizes.size(); ++d) {
    FL_CHECK(strides[d] >= 0, "[empty_strided] expected strides that are not negative, got ", strides);
    int64_t reach;
    if (n) {
      FL_CHECK(!__builtin_mul_overflow(sizes[d] - 1, strides[d], &reach) &&
                   !__builtin_add_overflow(extent, reach, &extent),
               "[empty_strided] expected a tensor that fits in memory, got strides ", strides);
    }
  }
  int64_t bytes;
  FL_CHECK(!__builtin_mul_overflow(extent, size_of(options.dtype), &bytes),
           "[empty_strided] expected a tensor that fits in memory, got strides ", strides);
  impl->sizes.assign(sizes);
  impl->strides.assign(strides);
  impl->refresh();
  impl->storage = Storage::allocate(bytes, options.device);
  return Tensor(std::move(impl));
}

Tensor empty_like(const Tensor& like, DType dtype) {
  const Options options{dtype, like.device()};
  if (like.is_contiguous()) return empty(like.sizes(), options);
  if (is_dense(like)) return empty_strided(like.sizes(), like.strides(), options);
  // Keep the order of dimensions in memory, without the holes. An expanded dimension stays where it is among
  // the others.
  const int64_t n = like.dim();
  const auto inner = [&](int64_t a, int64_t b) {  // 1: a lies inside of b in memory, -1: outside, 0: unknown
    const int64_t x = like.stride(a), y = like.stride(b);
    if (x == 0 || y == 0) return 0;
    if (x != y) return x < y ? 1 : -1;
    return like.size(a) > like.size(b) ? -1 : 0;
  };
  Dims order(n);
  std::iota(order.begin(), order.end(), 0);
  for (int64_t i = n - 1; i-- > 0;)
    for (int64_t at = i, other = i + 1; other < n; ++other) {
      const int order_of_two = inner(order[at], order[other]);
      if (order_of_two < 0) break;
      if (order_of_two > 0) {
        std::swap(order[at], order[other]);
        at = other;
      }
    }
  Dims strides(n);
  int64_t step = 1;
  for (int64_t i = n; i-- > 0;) {
    strides[order[i]] = step;
    step *= std::max<int64_t>(like.size(order[i]), 1);
  }
  return empty_strided(like.sizes(), strides, options);
}

Tensor scalar_tensor(const Scalar& value, Options options) {
  Tensor t = empty({}, options);
  if (t.is_cpu()) {
    store_scalar(value, options.dtype, t.raw());
  } else if (!t.is_meta()) {
    alignas(16) char pattern[16];
    store_scalar(value, options.dtype, pattern);
    the_accelerator().fill(t, pattern);
  }
  return t;
}

Tensor wrapped_number(const Scalar& value) {
  Tensor t = scalar_tensor(value, {value.dtype(), Device{}});
  t->wrapped_number = true;
  return t;
}

void check_shrunk(const char* op, const TensorImpl* t) {
  if (t == nullptr) return;
  if (t->sparse) {
    const auto& parts = *static_cast<const SparseParts*>(t->sparse.get());
    for (const Tensor* part : {&parts.compressed, &parts.indices, &parts.values})
      check_shrunk(op, part->impl());
    return;
  }
  if (!t->storage || t->storage->shrunk_from == 0 || t->numel == 0) return;
  int64_t last = t->offset;
  for (size_t d = 0; d < t->sizes.size(); ++d) last += (t->sizes[d] - 1) * t->strides[d];
  const size_t needed = static_cast<size_t>(last + 1) * size_of(t->dtype);
  FL_CHECK(needed <= t->storage->bytes, "[", op, "] expected a tensor whose storage holds its ",
           static_cast<int64_t>(needed), " bytes, got a storage that was resized to ",
           static_cast<int64_t>(t->storage->bytes));
}

Tensor alias(const Tensor& base, IntSpan sizes, IntSpan strides, int64_t offset) {
  Ref<TensorImpl> impl(new TensorImpl);
  impl->storage = base->storage;
  impl->offset = offset;
  impl->sizes.assign(sizes);
  impl->strides.assign(strides);
  impl->dtype = base.dtype();
  impl->device = base.device();
  impl->keys = KeySet(backend_key(base.device().type)) | (base->keys & kDeferred);
  impl->inference = base->inference;
  if (impl->inference) impl->keys |= Key::Autograd;
  impl->own_version = base->own_version;
  impl->version_offset = base->version_offset;
  if (__builtin_expect(bool(base->sparse), 0)) {
    impl->sparse = base->sparse;
    impl->keys |= Key::Sparse;
  }
  impl->refresh();
  return Tensor(std::move(impl));
}

bool is_dense(const Tensor& t) {
  if (t.is_contiguous()) return true;
  Dims order;
  for (int64_t d = 0; d < t.dim(); ++d)
    if (t.size(d) != 1) order.push_back(d);
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return t.stride(a) < t.stride(b); });
  int64_t expected = 1;
  for (int64_t d : order) {
    if (t.stride(d) != expected) return false;
    expected *= t.size(d);
  }
  return true;
}

bool has_internal_overlap(const Tensor& t) {
  if (t.numel() <= 1 || t.is_contiguous()) return false;
  // Sorted by stride, each dimension must step over everything inside it; anything else may overlap.
  Dims order;
  for (int64_t d = 0; d < t.dim(); ++d)
    if (t.size(d) > 1) order.push_back(d);
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return t.stride(a) < t.stride(b); });
  for (int64_t d : order)
    if (t.stride(d) == 0) return true;
  return false;
}

bool overlaps_partially(const Tensor& out, const Tensor& in) {
  if (out.same(in) || !out.defined() || !in.defined()) return false;
  if (out->storage.get() != in->storage.get() || out.numel() == 0 || in.numel() == 0) return false;
  const auto range = [](const Tensor& t) {
    int64_t lo = t.offset(), hi = t.offset();
    for (int64_t d = 0; d < t.dim(); ++d) (t.stride(d) < 0 ? lo : hi) += (t.size(d) - 1) * t.stride(d);
    return std::pair<int64_t, int64_t>(lo * t.itemsize(), (hi + 1) * t.itemsize());
  };
  const auto [a0, a1] = range(out);
  const auto [b0, b1] = range(in);
  if (a1 <= b0 || b1 <= a0) return false;
  if (out.offset() == in.offset() && out.dtype() == in.dtype() && out.sizes() == in.sizes() &&
      out.strides() == in.strides())
    return false;
  // Interleaved windows (a[::2] and a[1::2]) do not touch: same dense outer pattern with different phase.
  if (out.dim() == in.dim() && out.sizes() == in.sizes() && out.strides() == in.strides() &&
      out.dtype() == in.dtype()) {
    int64_t smallest = std::numeric_limits<int64_t>::max();
    for (int64_t d = 0; d < out.dim(); ++d)
      if (out.size(d) > 1) smallest = std::min(smallest, std::abs(out.stride(d)));
    const int64_t shift = std::abs(out.offset() - in.offset());
    if (shift < smallest) return false;
  }
  return is_dense(out) || is_dense(in);
}

int64_t wrap_dim(const char* op, int64_t d, int64_t ndim) {
  const int64_t n = ndim == 0 ? 1 : ndim;
  FL_CHECK_KIND(d >= -n && d < n, Index, "[", op, "] expected a dimension in the range [", -n, ", ", n - 1,
                "], got ", d, ": Dimension out of range (expected to be in range of [", -n, ", ", n - 1,
                "], but got ", d, ")");
  return d < 0 ? d + n : d;
}

}  // namespace fl

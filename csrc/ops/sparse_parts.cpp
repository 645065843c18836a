// The operators by which sparse tensors are put together and taken apart. What the parts must look like is
// checked by their caller, flambeau/sparse/construction.py.
#include "core/sparse.h"

#include "dispatch/kernel.h"

namespace fl {

namespace {

// The same memory without history.
Tensor plain(const Tensor& t) {
  return t.defined() ? alias(t, t.sizes(), t.strides(), t.offset()) : t;
}

Tensor make(Layout layout, const Tensor& compressed, const Tensor& indices, const Tensor& values,
            IntSpan size, bool coalesced) {
  numel_of(size);
  Ref<SparseParts> parts(new SparseParts);
  parts->layout = layout;
  parts->compressed = plain(compressed);
  parts->indices = plain(indices);
  parts->values = plain(values);
  parts->coalesced = coalesced;
  Tensor out = empty({0}, values.options());
  out->sizes.assign(size);
  out->strides = contiguous_strides(size);
  out->refresh();
  out->sparse = Ref<Counted>(parts.get());
  out->refresh_keys();
  return out;
}

void check_sparse(const char* op, const Tensor& self) {
  FL_CHECK(self->sparse, "[", op, "] expected a sparse tensor, got a strided one");
}

Tensor sparse_coo(const Tensor& indices, const Tensor& values, IntSpan size, bool coalesced) {
  const bool distinct = coalesced || indices.size(1) < 2;  // one element alone is sorted and repeats nowhere
  return make(Layout::Sparse, Tensor(), indices, values, size, distinct);
}

Tensor sparse_compressed(const Tensor& compressed, const Tensor& indices, const Tensor& values, IntSpan size,
                         bool columns, bool blocks) {
  const Layout layout = blocks ? (columns ? Layout::SparseBsc : Layout::SparseBsr)
                               : (columns ? Layout::SparseCsc : Layout::SparseCsr);
  return make(layout, compressed, indices, values, size, true);
}

Tensor sparse_values(const Tensor& self) {
  check_sparse("values", self);
  return plain(sparse_parts(self).values);
}

Tensor sparse_indices(const Tensor& self) {
  check_sparse("indices", self);
  return plain(sparse_parts(self).indices);
}

Tensor sparse_starts(const Tensor& self) {
  check_sparse("crow_indices", self);
  const Tensor& t = sparse_parts(self).compressed;
  FL_CHECK(t.defined(), "[crow_indices] expected a compressed sparse tensor, got layout torch.sparse_coo");
  return plain(t);
}

bool sparse_is_coalesced(const Tensor& self) {
  check_sparse("is_coalesced", self);
  return sparse_parts(self).coalesced;
}

// Replaces what a sparse tensor is made of.
Tensor sparse_assign_(const Tensor& self, const Tensor& source) {
  check_sparse("copy_", self);
  check_sparse("copy_", source);
  self.bump_version();
  const uint32_t version = self->version();
  self->sparse = source->sparse;
  self->continue_version(version);
  self->sizes = source->sizes;
  self->strides = source->strides;
  self->dtype = source->dtype;
  self->refresh();
  return self;
}

Tensor sparse_coalesced_(const Tensor& self, bool coalesced) {
  check_sparse("_coalesced_", self);
  sparse_parts(self).coalesced = coalesced;
  return self;
}

void pass(const Operator& op, void*, KeySet keys, Value* args, Value* results) {
  op.call_with(keys.below(Key::Sparse), args, results);
}
void refuse(const Operator& op, void*, KeySet, Value*, Value*) {
  const Operator& base = op.functional ? *op.functional : op;
  fail(ErrorKind::NotImplemented, "[", base.schema.name,
       "] expected strided tensors, got a sparse one; use to_dense() first");
}

// The operators on the parts pass the key Sparse; the others have kernels in flambeau/sparse/ or are refused.
#define FL_KERNEL_PARTS(name, function)                                \
  FL_KERNEL(name, function, kEverywhere);                              \
  static ::fl::detail::Register FL_CONCAT(fl_register_, __COUNTER__) { \
    name, {Key::Sparse}, Kernel {                                      \
      pass, nullptr                                                    \
    }                                                                  \
  }
FL_KERNEL_PARTS("_sparse_coo", sparse_coo);
FL_KERNEL_PARTS("_sparse_compressed", sparse_compressed);
FL_KERNEL_PARTS("_sparse_values", sparse_values);
FL_KERNEL_PARTS("_sparse_indices", sparse_indices);
FL_KERNEL_PARTS("_sparse_starts", sparse_starts);
FL_KERNEL_PARTS("_sparse_is_coalesced", sparse_is_coalesced);
FL_KERNEL_PARTS("_sparse_assign_", sparse_assign_);
FL_KERNEL_PARTS("_sparse_coalesced_", sparse_coalesced_);

struct Install {
  Install() { OperatorTable::get().set_fallback(Key::Sparse, Kernel{refuse, nullptr}); }
} install;

}  // namespace

}  // namespace fl

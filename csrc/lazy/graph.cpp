#include "lazy/graph.h"

#include <cstring>

#include "dispatch/builtin.h"

namespace fl::lazy {

bool has_tag(const Operator& op, const char* tag) {
  return op.record && std::strstr(op.record->tags, tag) != nullptr;
}

std::vector<int> Graph::outputs() const {
  std::vector<int> wanted;
  for (size_t i = 0; i < slots.size(); ++i) {
    const Slot& s = slots[i];
    const bool computed = s.kind == Slot::Kind::Result || s.kind == Slot::Kind::Empty;
    if (computed && s.storage->use_count() > 1) wanted.push_back(static_cast<int>(i));
  }
  return wanted;
}

Tensor window_on(const Ref<Storage>& storage, Device device, DType dtype, IntSpan sizes, IntSpan strides,
                 int64_t offset) {
  Ref<TensorImpl> impl(new TensorImpl);
  impl->storage = storage;
  impl->sizes.assign(sizes);
  impl->strides.assign(strides);
  impl->offset = offset;
  impl->dtype = dtype;
  impl->device = device;
  impl->refresh();
  impl->refresh_keys();
  return Tensor(std::move(impl));
}

Tensor laid_out(const Tensor& t, const Window& root, size_t bytes, Device device) {
  const bool fits =
      t.offset() == root.offset && t.strides() == IntSpan(root.strides) && t->storage->bytes >= bytes;
  if (fits) return t;
  Tensor moved = window_on(Storage::allocate(bytes, device), device, root);
  copy_into(moved, t);
  return moved;
}

}  // namespace fl::lazy

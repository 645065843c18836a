#include "autograd/set_data.h"

#include "autograd/node.h"

namespace fl::autograd {

void set_data(const Tensor& target, const Tensor& source) {
  TensorImpl* to = target.impl();
  const TensorImpl* from = source.impl();
  FL_CHECK(!wants_grad(target) || is_floating(from->dtype) || is_complex(from->dtype),
           "[data] expected data that can have a gradient, as the tensor requires one, got another dtype"
           ": data set to a tensor that requires gradients must be floating point or complex dtype");
  FL_CHECK(bool(to->sparse) == bool(from->sparse),
           "[data] expected data of the layout that the tensor has, got another: Attempted to call "
           "`variable.set_data(tensor)`, but `variable` and `tensor` have incompatible tensor type");
  const uint32_t version = to->version();
  to->storage = from->storage;
  to->offset = from->offset;
  to->sizes = from->sizes;
  to->strides = from->strides;
  to->dtype = from->dtype;
  to->device = from->device;
  to->sparse = from->sparse;
  to->keys = (to->keys - kDeferred) | (from->keys & kDeferred);
  to->continue_version(version);
  to->refresh();
  to->refresh_keys();
  if (auto* m = meta_of(target); m && m->accumulate)
    m->accumulate->outputs[0] = {to->sizes, to->dtype, to->device};
}

void forget_accumulator(const Tensor& leaf) {
  if (auto* m = meta_of(leaf)) m->accumulate = nullptr;
}

}  // namespace fl::autograd

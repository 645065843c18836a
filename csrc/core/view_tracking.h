// What the dispatcher tells the autograd layer about views: which tensor a view was made from. Views are
// remembered even when nothing requires grad yet, because a later write through one may give history to all
// of them.
#pragma once

#include "core/tensor.h"

namespace fl {

// Set by the autograd layer. `multi`: one of several views returned by one op.
extern void (*track_view)(const Tensor& view, const Tensor& base, bool multi);
// Keys that a tensor has through the tensor it is a view of.
extern KeySet (*keys_of_view)(const TensorImpl* view);

inline KeySet keys_of_tensor(const TensorImpl* t) {
  if (__builtin_expect(t->autograd && !t->keys.has(Key::Autograd), 0)) return t->keys | keys_of_view(t);
  return t->keys;
}

}  // namespace fl

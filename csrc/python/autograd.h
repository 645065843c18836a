// What the Tensor type needs to know of autograd: the Python objects that a tensor holds through its history.
#pragma once

#include "python/common.h"

namespace fl::py {

// For the cycle collector; the tensor has autograd metadata and only its Python object owns it.
int traverse_autograd(TensorImpl* impl, visitproc visit, void* arg);
void clear_autograd(TensorImpl* impl);

}  // namespace fl::py

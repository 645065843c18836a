// Tensors for C++: with Python those of extensions, without it those of programs (flambeau/torch/all.h).
#pragma once

#if defined(FLAMBEAU_EXTENSION) || defined(TORCH_EXTENSION_NAME) || defined(TORCH_API_INCLUDE_EXTENSION_H)
#include <torch/extension_tensor.h>
#else
#include <flambeau/torch/all.h>
#endif

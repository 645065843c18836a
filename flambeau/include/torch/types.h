#pragma once
#if defined(FLAMBEAU_EXTENSION) || defined(TORCH_EXTENSION_NAME) || defined(TORCH_API_INCLUDE_EXTENSION_H)
#include <torch/extension.h>
#else
#include <flambeau/torch/all.h>
#endif

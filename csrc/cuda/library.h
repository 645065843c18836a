// NVIDIA's libraries, opened at first use: from the loader's path, or from the packages of PyPI.
#pragma once

#include <string>

namespace fl::cuda {

// The library with one of these file names, or null. Beside the loader's path, folders are those named by
// FLAMBEAU_CUDA_LIBRARY_PATH (separated by colons), which flambeau/cuda fills with the packages it finds.
void* open_library(const char* const* names);

}  // namespace fl::cuda

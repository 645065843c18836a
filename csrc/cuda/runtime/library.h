// NVIDIA's libraries, opened at first use: from the loader's path, or from the packages of PyPI.
#pragma once

#include <type_traits>

namespace fl::cuda {

// A library and whether it had every function that was asked for.
class Library {
 public:
  // The first of these file names that can be opened; the list ends with null. Beside the loader's path,
  // folders are those named by FLAMBEAU_CUDA_LIBRARY_PATH (separated by colons), which flambeau/cuda fills
  // with the packages it finds.
  explicit Library(const char* const* names);

  template <class Function>
  void find(Function& to, const char* name) {
    to = reinterpret_cast<Function>(symbol(name));
    complete_ &= to != nullptr;
  }
  bool complete() const { return complete_; }

 private:
  void* symbol(const char* name) const;
  void* handle_;
  bool complete_;
};

}  // namespace fl::cuda

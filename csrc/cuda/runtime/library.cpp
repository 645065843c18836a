// Where NVIDIA's libraries are looked for.
#include "cuda/runtime/library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>

namespace fl::cuda {

namespace {

void* open(const char* const* names) {
  for (const char* const* name = names; *name; ++name)
    if (void* library = dlopen(*name, RTLD_NOW | RTLD_LOCAL)) return library;
  const char* path = std::getenv("FLAMBEAU_CUDA_LIBRARY_PATH");
  std::string rest = path ? path : "";
  while (!rest.empty()) {
    const size_t colon = rest.find(':');
    const std::string folder = rest.substr(0, colon);
    rest = colon == std::string::npos ? "" : rest.substr(colon + 1);
    for (const char* const* name = names; *name; ++name)
      if (void* library = dlopen((folder + "/" + *name).c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  }
  return nullptr;
}

}  // namespace

Library::Library(const char* const* names) : handle_(open(names)), complete_(handle_ != nullptr) {}

void* Library::symbol(const char* name) const {
  return handle_ ? dlsym(handle_, name) : nullptr;
}

}  // namespace fl::cuda

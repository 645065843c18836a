// Where NVIDIA's libraries are looked for.
#include "cuda/runtime/library.h"

#include <dlfcn.h>
#include <glob.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace fl::cuda {

namespace {

// The first of some libraries that a folder has.
void* open_in(const std::string& folder, const char* const* names) {
  for (const char* const* name = names; *name; ++name)
    if (void* library = dlopen((folder + *name).c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  return nullptr;
}

// Folders of NVIDIA's packages (nvidia/*/lib) in the environment that this library is installed in, and in
// that of the process: programs without Python have nobody who names them.
std::vector<std::string> package_folders() {
  std::vector<std::string> patterns, folders;
  Dl_info here;
  if (dladdr(reinterpret_cast<void*>(&open_in), &here)) {
    const std::string self = here.dli_fname, folder = self.substr(0, self.rfind('/'));
    patterns.push_back(folder.substr(0, folder.rfind('/')));
  }
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const char* prefix = std::getenv(variable); prefix && *prefix)
      patterns.push_back(std::string(prefix) + "/lib/python3*/site-packages");
  for (const std::string& pattern : patterns) {
    glob_t matches{};
    if (glob((pattern + "/nvidia/*/lib/").c_str(), 0, nullptr, &matches) == 0)
      folders.insert(folders.end(), matches.gl_pathv, matches.gl_pathv + matches.gl_pathc);
    globfree(&matches);
  }
  return folders;
}

void* open(const char* const* names) {
  if (void* library = open_in("", names)) return library;
  const char* path = std::getenv("FLAMBEAU_CUDA_LIBRARY_PATH");
  std::string rest = path ? path : "";
  while (!rest.empty()) {
    const size_t colon = rest.find(':');
    const std::string folder = rest.substr(0, colon);
    rest = colon == std::string::npos ? "" : rest.substr(colon + 1);
    if (void* library = open_in(folder + "/", names)) return library;
  }
  if (path != nullptr) return nullptr;  // where there is Python, it has looked
  for (const std::string& folder : package_folders())
    if (void* library = open_in(folder, names)) return library;
  return nullptr;
}

}  // namespace

Library::Library(const char* const* names) : handle_(open(names)), complete_(handle_ != nullptr) {}

void* Library::symbol(const char* name) const {
  return handle_ ? dlsym(handle_, name) : nullptr;
}

}  // namespace fl::cuda

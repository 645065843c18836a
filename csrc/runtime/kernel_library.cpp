#include "runtime/kernel_library.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/error.h"
#include "runtime/package_paths.h"

namespace fl::runtime {

std::vector<std::string> instruction_sets() {
#if defined(__x86_64__)
  std::vector<std::string> sets;
  if (__builtin_cpu_supports("x86-64-v4")) sets.emplace_back("x86-64-v4");
  if (__builtin_cpu_supports("x86-64-v3")) sets.emplace_back("x86-64-v3");
  if (__builtin_cpu_supports("x86-64-v2")) sets.emplace_back("x86-64-v2");
  return sets;
#elif defined(__aarch64__)
  return {"aarch64"};
#else
  return {};
#endif
}

namespace {

const Archive::Member* choose(const Archive& archive, std::string& chosen) {
  for (const std::string& set : instruction_sets()) {
    const std::string path = kernels_path(set);
    if (archive.find(path) == nullptr) continue;
    chosen = set;
    return &archive.checked(path);
  }
  return nullptr;
}

// The object as a file without a name.
int write_out(const Archive::Member& member) {
  const int file = memfd_create("flambeau-kernels", MFD_CLOEXEC);
  FL_CHECK(file >= 0, "[package] expected memory for kernels, got none");
  for (size_t written = 0; written < member.size;) {
    const ssize_t n = write(file, member.data + written, member.size - written);
    if (n <= 0) {
      close(file);
      fail("[package] expected memory for ", member.size, " bytes of kernels, got less");
    }
    written += static_cast<size_t>(n);
  }
  return file;
}

}  // namespace

std::shared_ptr<const KernelLibrary> KernelLibrary::load(const Archive& archive) {
  std::string set;
  const Archive::Member* member = choose(archive, set);
  FL_CHECK(member != nullptr, "[package] expected kernels for an instruction set of this processor (",
           instruction_sets(), "), got none of them in the archive");
  const int file = write_out(*member);
  // The file stays open while the library is: its number makes the path that the loader knows the library by.
  void* handle = dlopen(message("/proc/self/fd/", file).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = dlerror();
    close(file);
    fail("[package] expected kernels that the loader takes, got: ", reason ? reason : "an unknown error");
  }
  return std::shared_ptr<const KernelLibrary>(new KernelLibrary(handle, file, set));
}

KernelLibrary::~KernelLibrary() {
  dlclose(handle_);
  close(file_);
}

compiled::Entry KernelLibrary::find(const std::string& name) const {
  void* entry = dlsym(handle_, name.c_str());
  FL_CHECK(entry != nullptr, "[package] expected a kernel ", name, " in the archive, got none");
  return reinterpret_cast<compiled::Entry>(entry);
}

}  // namespace fl::runtime

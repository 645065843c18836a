// Opens the accelerator's library when the machine has a driver. It lies beside this one, or in a package of
// its own.
#include "core/accelerator.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <mutex>

namespace fl {

void (*on_accelerator)() = nullptr;

namespace {
std::atomic<Accelerator*> the_one{nullptr};
std::atomic<bool> tried{false};
std::string reason;

// FLAMBEAU_CUDA_LIB, else the library beside this one (a build with CUDA), else that of the package
// flambeau-cuda in the same environment; empty where there is none. `flambeau/cuda/_library.py` asks for the
// same one.
std::string library_path() {
  if (const char* named = std::getenv("FLAMBEAU_CUDA_LIB"); named && *named) return named;
  Dl_info here;
  if (!dladdr(reinterpret_cast<void*>(&library_path), &here)) return "";
  const std::string self = here.dli_fname, folder = self.substr(0, self.rfind('/'));
  const std::string packages = folder.substr(0, folder.rfind('/'));  // not "..", which would follow a link
  for (const std::string& place : {folder, packages + "/flambeau_cuda"}) {
    const std::string path = place + "/libflambeau_cuda.so";
    if (access(path.c_str(), R_OK) == 0) return path;
  }
  return "";
}

void open() {
  static std::mutex mutex;
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (tried) return;
    tried = true;
    if (!dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) {
      reason = "no CUDA driver (libcuda.so.1) was found";
      return;
    }
    const std::string path = library_path();
    if (path.empty()) {
      reason =
          "there is a driver, and libflambeau_cuda.so is neither beside libflambeau.so nor in the package "
          "flambeau-cuda";
      return;
    }
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      const char* why = dlerror();
      reason = why ? why : "libflambeau_cuda.so could not be opened";
      return;
    }
    // Not an initialiser of the library, so that all of its tables are there.
    if (void* start = dlsym(library, "flcuda_open")) reinterpret_cast<void (*)()>(start)();
    if (!the_one) reason = "the CUDA driver reports no device";
  }
  if (the_one && on_accelerator) on_accelerator();
}
}  // namespace

void set_accelerator(Accelerator* a) {
  the_one = a;
}

Accelerator* accelerator() {
  if (__builtin_expect(!tried.load(std::memory_order_acquire), 0)) open();
  return the_one.load(std::memory_order_acquire);
}

Accelerator& the_accelerator() {
  Accelerator* a = accelerator();
  FL_CHECK(a != nullptr, "[cuda] expected a CUDA device, got a machine or build without one: ", reason,
           "; use device 'cpu', or see `flambeau env` for what was looked for");
  return *a;
}

const std::string& accelerator_error() {
  accelerator();
  return reason;
}

}  // namespace fl

// Opens the accelerator's library, which lies beside this one, when the machine has a driver.
#include "core/accelerator.h"

#include <dlfcn.h>

#include <cstdlib>
#include <mutex>

namespace fl {

void (*on_accelerator)() = nullptr;

namespace {
std::atomic<Accelerator*> the_one{nullptr};
std::atomic<bool> tried{false};
std::string reason;

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
    const char* named = std::getenv("FLAMBEAU_CUDA_LIB");
    std::string path = named ? named : "";
    Dl_info here;
    if (path.empty() && dladdr(reinterpret_cast<void*>(&open), &here)) {
      path = here.dli_fname;
      path = path.substr(0, path.rfind('/') + 1) + "libflambeau_cuda.so";
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

// An accelerator whose memory is the host's and whose operators are the CPU's kernels, for tests on machines
// without a GPU. It takes the place of libflambeau_cuda. Kernels that are compiled for a GPU are not run:
// each launch is written as a line of the file LAUNCHES, with the numbers it was given and what its pointers
// show.
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "core/accelerator.h"
#include "core/device_function.h"
#include "ops/copy.h"
#include "ops/gemm.h"
#include "ops/lists.h"
#include "ops/pointwise.h"
#include "ops/pooling.h"
#include "ops/reduce.h"
#include "ops/updates.h"

namespace {

using namespace fl;

std::mutex mutex;
std::map<uintptr_t, size_t> blocks;  // bytes by address

// The same tensor as one of the CPU.
Tensor on_host(const Tensor& t) {
  if (t.is_cpu()) return t;
  Tensor host = empty_strided(IntSpan(), IntSpan(), {t.dtype(), Device{}});
  host->storage = Storage::adopt(t->storage->data, t->storage->bytes, Device{}, [keep = t](void*) {});
  host->sizes = t->sizes;
  host->strides = t->strides;
  host->offset = t->offset;
  host->refresh();
  return host;
}

struct Function {
  std::string name;
};

class HostAccelerator final : public Accelerator {
 public:
  int device_count() override { return 1; }
  int current_device() override { return 0; }
  void* allocate(size_t bytes, Device) override {
    void* block = std::aligned_alloc(256, (bytes + 255) / 256 * 256 + 256);
    std::memset(block, 0, bytes);
    const std::lock_guard<std::mutex> lock(mutex);
    blocks[reinterpret_cast<uintptr_t>(block)] = bytes;
    return block;
  }
  void free(void* block, Device) override {
    const std::lock_guard<std::mutex> lock(mutex);
    blocks.erase(reinterpret_cast<uintptr_t>(block));
    std::free(block);
  }
  Ref<Storage> allocate_pinned(size_t bytes) override { return Storage::allocate(bytes, Device{}); }
  bool is_pinned(const void*) override { return false; }
  void copy(const Tensor& dst, const Tensor& src, bool) override { copy_into(on_host(dst), on_host(src)); }
  void fill(const Tensor& t, const void* pattern) override {
    const auto size = static_cast<size_t>(t.itemsize());
    const Tensor whole = fl::contiguous(on_host(t));
    for (int64_t i = 0; i < t.numel(); ++i)
      std::memcpy(whole.raw() + static_cast<size_t>(i) * size, pattern, size);
    copy_into(on_host(t), whole);
  }
  void fill_range(const Tensor&, const Scalar&, const Scalar&) override { fail("[fake] no ranges"); }
  void* stream(Device) override { return nullptr; }
  void synchronize(Device) override {}
  void* load(const void*, const char* function, int) override { return new Function{function}; }
  void launch(void* function, const unsigned* grid, const unsigned* block, unsigned shared, void*, void**,
              const void* bytes, size_t size, bool waits) override {
    std::FILE* file = std::fopen(std::getenv("LAUNCHES"), "a");
    std::fprintf(file, "%s %u %u %u threads %u shared %u %d:", static_cast<Function*>(function)->name.c_str(),
                 grid[0], grid[1], grid[2], block[0], shared, waits);
    const std::lock_guard<std::mutex> lock(mutex);
    for (size_t i = 0; i < size / sizeof(int64_t); ++i) {
      int64_t value = 0;
      std::memcpy(&value, static_cast<const char*>(bytes) + i * sizeof value, sizeof value);
      const auto address = static_cast<uintptr_t>(value);
      const auto after = blocks.upper_bound(address);
      const auto owner = after == blocks.begin() ? blocks.end() : std::prev(after);
      if (owner == blocks.end() || address >= owner->first + owner->second) {
        std::fprintf(file, " %ld", static_cast<long>(value));
        continue;
      }
      uint64_t hash = 1469598103934665603u;
      for (uintptr_t at = address; at < owner->first + owner->second; ++at)
        hash = (hash ^ *reinterpret_cast<const unsigned char*>(at)) * 1099511628211u;
      std::fprintf(file, " [%lu bytes %016lx]", static_cast<unsigned long>(owner->second),
                   static_cast<unsigned long>(hash));
    }
    std::fprintf(file, "\n");
    std::fclose(file);
  }
  int* failure_flag() override {
    // Its halves are no multiples of sixteen, as what stands for them in packages, so that kernels are the
    // same.
    static void* page = mmap(reinterpret_cast<void*>(0x500100001000), 4096, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    return static_cast<int*>(page) + 1;
  }
  void random_state(const Tensor& to, uint64_t seed, uint64_t offset) override {
    auto* words = reinterpret_cast<uint64_t*>(to.raw());
    words[0] = seed, words[1] = offset;
  }
};

// Attaches the CPU's implementation for the accelerator.
template <auto* function, class R, class... A>
void share(const DeviceFunction<R(A...)>&) {
  function->attach(DeviceType::CUDA,
                   [](A... args) -> R { return (*function)(DeviceType::CPU, static_cast<A>(args)...); });
}
#define SHARE(name) share<&device::name>(device::name)

}  // namespace

#define API extern "C" __attribute__((visibility("default")))

API void flcuda_open() {
  static HostAccelerator accelerator;
  set_accelerator(&accelerator);
  SHARE(gemm);
  SHARE(dot);
  SHARE(copy);
  SHARE(pointwise);
  SHARE(reduce);
  SHARE(reduce_structured);
  SHARE(update);
  SHARE(max_pool);
  SHARE(average_pool);
  SHARE(join);
}
API void* flcuda_failure_flag() {
  return the_accelerator().failure_flag();
}
API int flcuda_current_device() {
  return 0;
}
API int flcuda_device_count() {
  return 1;
}
API int flcuda_built_with() {
  return 13000;
}
API int flcuda_synchronize(int) {
  return 0;
}
API int flcuda_properties(int, char* name, int64_t* numbers) {
  std::strcpy(name, "host");
  for (int i = 0; i < 16; ++i) numbers[i] = 0;
  numbers[0] = 9;
  numbers[3] = 132;  // processors
  return 0;
}

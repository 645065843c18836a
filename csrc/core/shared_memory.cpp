// Shared memory by anonymous files: memfd on Linux, elsewhere a named object that is unlinked at once.
#include "core/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>

#include "core/allocator.h"
#include "core/error.h"

namespace fl {

namespace {

// The deleter of shared storages, which also carries what has to be known about them.
struct Mapping {
  size_t length = 0;
  int descriptor = -1;
  void* before = nullptr;  // where the bytes were, when another library still looks at them there
  size_t before_bytes = 0;

  void operator()(void* address) const {
    ::munmap(address, length);
    if (descriptor >= 0) ::close(descriptor);
    if (before) cpu_free(before, before_bytes);
  }
};

// The deleter of windows on mapped memory.
struct Window {
  Ref<Storage> mapped;
  std::function<void()> release;

  void operator()(void*) const { release(); }
};

// An empty mapping is not allowed.
size_t mapped_length(size_t bytes) {
  return bytes ? bytes : 1;
}

// No process can truncate the memory from now on. Descriptors that cannot be sealed stay as they are.
void forbid_shrinking(int descriptor) {
#ifdef F_ADD_SEALS
  (void)::fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK);
#else
  (void)descriptor;
#endif
}

int create(size_t bytes) {
#ifdef __linux__
  const int descriptor = ::memfd_create("flambeau", MFD_CLOEXEC | MFD_ALLOW_SEALING);
#else
  static std::atomic<unsigned> count{0};
  const std::string name = "/flambeau_" + std::to_string(::getpid()) + "_" + std::to_string(count++);
  const int descriptor = ::shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
  if (descriptor >= 0) ::shm_unlink(name.c_str());
#endif
  FL_CHECK(descriptor >= 0, "[share_memory_] expected to open a shared memory object, got: ",
           std::string(std::strerror(errno)));
  if (::ftruncate(descriptor, static_cast<off_t>(mapped_length(bytes))) != 0) {
    const std::string reason = std::strerror(errno);
    ::close(descriptor);
    fail("[share_memory_] expected room for ", static_cast<int64_t>(bytes),
         " bytes of shared memory, got: ", reason);
  }
  forbid_shrinking(descriptor);
  return descriptor;
}

void* map(int descriptor, size_t bytes) {
  void* address = ::mmap(nullptr, mapped_length(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  FL_CHECK(address != MAP_FAILED, "[share_memory_] expected to map ", static_cast<int64_t>(bytes),
           " bytes of shared memory, got: ", std::string(std::strerror(errno)));
  return address;
}

// Maps a descriptor that is closed when that fails.
void* map_or_close(int descriptor, size_t bytes) {
  try {
    return map(descriptor, bytes);
  } catch (...) {
    ::close(descriptor);
    throw;
  }
}

}  // namespace

Ref<Storage> allocate_shared(size_t bytes) {
  const int descriptor = create(bytes);
  void* address = map_or_close(descriptor, bytes);
  return Storage::adopt(address, bytes, Device{}, Mapping{mapped_length(bytes), descriptor, nullptr, 0});
}

void share(Storage& storage) {
  storage.materialize();
  if (const Mapping* mapping = storage.foreign_delete.target<Mapping>())
    if (mapping->descriptor >= 0) return;
  FL_CHECK(storage.device.type == DeviceType::CPU, "[share_memory_] expected memory of the CPU, got ",
           to_string(storage.device));
  const int descriptor = create(storage.bytes);
  void* address = map_or_close(descriptor, storage.bytes);
  if (storage.bytes) std::memcpy(address, storage.data, storage.bytes);
  void* before = storage.data;
  storage.data = address;
  const std::function<void(void*)> release = std::move(storage.foreign_delete);
  Mapping mapping{mapped_length(storage.bytes), descriptor, nullptr, 0};
  if (!release && !storage.resizable) {  // lent to another library, which does not learn of the move
    mapping.before = before;
    mapping.before_bytes = storage.bytes;
  }
  const bool owned = !release && storage.resizable;
  storage.foreign_delete = mapping;
  storage.resizable = false;
  if (release) release(before);
  if (owned) cpu_free(before, storage.bytes);
}

Ref<Storage> map_shared(int descriptor, size_t bytes, bool keep_descriptor) {
  struct stat status;
  forbid_shrinking(descriptor);
  FL_CHECK(::fstat(descriptor, &status) == 0, "[shared memory] expected an open descriptor, got ",
           static_cast<int64_t>(descriptor));
  // Touching a page beyond the end of the file would end the process.
  FL_CHECK(static_cast<uint64_t>(status.st_size) >= mapped_length(bytes), "[shared memory] expected ",
           static_cast<int64_t>(bytes), " bytes, got ", static_cast<int64_t>(status.st_size));
  int duplicate = -1;
  if (keep_descriptor) {
    duplicate = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 3);
    FL_CHECK(duplicate >= 0,
             "[shared memory] expected a free descriptor, got: ", std::string(std::strerror(errno)));
  }
  void* address;
  try {
    address = map(descriptor, bytes);
  } catch (...) {
    if (duplicate >= 0) ::close(duplicate);
    throw;
  }
  return Storage::adopt(address, bytes, Device{}, Mapping{mapped_length(bytes), duplicate, nullptr, 0});
}

Ref<Storage> shared_window(Ref<Storage> mapped, size_t bytes, std::function<void()> release) {
  FL_CHECK(bytes <= mapped->bytes, "[shared memory] expected at most ", static_cast<int64_t>(mapped->bytes),
           " bytes, got ", static_cast<int64_t>(bytes));
  void* address = mapped->data;
  return Storage::adopt(address, bytes, Device{}, Window{std::move(mapped), std::move(release)});
}

bool is_shared(const Storage& storage) {
  return storage.foreign_delete.target<Mapping>() || storage.foreign_delete.target<Window>();
}

int shared_descriptor(const Storage& storage) {
  const Mapping* mapping = storage.foreign_delete.target<Mapping>();
  return mapping ? mapping->descriptor : -1;
}

}  // namespace fl

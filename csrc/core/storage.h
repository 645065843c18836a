// A block of bytes on a device, shared by the tensors that view it.
#pragma once

#include <functional>
#include <memory>

#include "core/device.h"
#include "core/intrusive.h"

namespace fl {

// Bytes of the CPU that several storages read, each until it is written to.
struct SharedBytes {
  void* data;
  size_t bytes;
  std::function<void(void*)> foreign_delete;
  ~SharedBytes();
};

struct Storage final : Counted {
  void* data = nullptr;
  size_t bytes = 0;
  Device device;
  bool resizable = true;
  size_t shrunk_from = 0;  // the most bytes that views were made of, where there are fewer now; else 0
  std::atomic<uint32_t> version{0};           // bumped by every in-place write to any view
  std::function<void(void*)> foreign_delete;  // set when the bytes belong to someone else
  Ref<Counted> recorded;  // on a device that records calls (csrc/lazy): where its bytes are, or will be
  std::shared_ptr<SharedBytes> copy_on_write;  // set while the bytes are those of another storage, too

  ~Storage() override;

  // Memory from the device's allocator; meta storages have a size and no bytes.
  static Ref<Storage> allocate(size_t bytes, Device device);
  static Ref<Storage> adopt(void* data, size_t bytes, Device device, std::function<void(void*)> deleter);
  void resize(size_t new_bytes);
  // Another storage with the same contents, which are copied when either is written to.
  Ref<Storage> lazy_clone();
  // Gives a storage bytes of its own, before they are written to.
  void materialize();
};

// How many storages have fewer bytes than views of them may expect, or bytes that are copied on write. While
// there are none, which is nearly always, operators need not look at the storages of their arguments.
extern std::atomic<int64_t> unusual_storages;
inline bool any_unusual_storage() {
  return __builtin_expect(unusual_storages.load(std::memory_order_relaxed) != 0, 0);
}

// Tensors of complex32 are looked for in the same way, once there was one.
void note_complex_half();

// How a device registered from outside gets memory.
struct DeviceAllocator {
  std::function<void*(size_t)> allocate;
  std::function<void(void*, size_t)> free;
};
void set_device_allocator(DeviceType type, DeviceAllocator allocator);

}  // namespace fl

// Storage life time and the allocators of registered devices.
#include "core/storage.h"
#include "core/ownership.h"

#include <algorithm>
#include <cstring>

#include "core/accelerator.h"
#include "core/allocator.h"
#include "core/arena.h"
#include "core/error.h"

namespace fl {

int64_t (*recorded_references)(const Storage& storage) = nullptr;

std::atomic<int64_t> unusual_storages{0};

void note_complex_half() {
  static const int64_t noted = unusual_storages.fetch_add(1, std::memory_order_relaxed);
  static_cast<void>(noted);
}

namespace {
DeviceAllocator* allocator_of(DeviceType t) {
  static auto* table = new DeviceAllocator[kMaxDeviceTypes];
  return &table[static_cast<int>(t)];
}
void* device_allocate(size_t bytes, Device device) {
  if (device.type == DeviceType::Meta) return nullptr;
  if (device.type == DeviceType::CPU) return cpu_allocate(bytes);
  if (device.type == DeviceType::CUDA) return the_accelerator().allocate(bytes, device);
  auto* allocator = allocator_of(device.type);
  FL_CHECK(bool(allocator->allocate), "[empty] expected a device with an allocator, got ", to_string(device));
  return allocator->allocate(bytes);
}
void device_free(void* data, size_t bytes, Device device) {
  if (data == nullptr) return;  // also when the device had no allocator to begin with
  if (device.type == DeviceType::CPU)
    cpu_free(data, bytes);
  else if (device.type == DeviceType::CUDA)
    the_accelerator().free(data, device);
  else if (device.type != DeviceType::Meta)
    allocator_of(device.type)->free(data, bytes);
}

// Counts a storage among the shrunk ones while it has fewer bytes than it once had.
void note_size(Storage& storage, size_t new_bytes) {
  const size_t most = std::max(storage.shrunk_from, storage.bytes);
  const bool shrinks = new_bytes < most;
  if (shrinks != (storage.shrunk_from != 0))
    unusual_storages.fetch_add(shrinks ? 1 : -1, std::memory_order_relaxed);
  storage.shrunk_from = shrinks ? most : 0;
}

struct Offers {
  Offer* first = nullptr;
  size_t count = 0;
};
thread_local Offers offers;

// Whether a new storage took a place that was offered.
bool take_offer(Storage& storage) {
  for (size_t i = 0; i < offers.count; ++i) {
    Offer& offer = offers.first[i];
    if (offer.taken || offer.bytes != storage.bytes) continue;
    storage.data = offer.data;
    storage.foreign_delete = [](void*) {};
    offer.taken = Ref<Storage>(&storage);
    return true;
  }
  return false;
}
}  // namespace

OfferScope::OfferScope(Offer* first, size_t count) : before_(offers.first), count_before_(offers.count) {
  offers = {first, count};
}
OfferScope::~OfferScope() {
  offers = {before_, count_before_};
}

void move_out(Storage& storage) {
  void* const fresh = device_allocate(storage.bytes, storage.device);
  std::memcpy(fresh, storage.data, storage.bytes);
  storage.foreign_delete(storage.data);
  storage.foreign_delete = nullptr;
  storage.data = fresh;
}

void set_device_allocator(DeviceType type, DeviceAllocator allocator) {
  *allocator_of(type) = std::move(allocator);
}

Ref<Storage> Storage::allocate(size_t bytes, Device device) {
  Ref<Storage> s(new Storage);
  s->device = device = canonical(device);
  s->bytes = bytes;
  if (offers.count != 0 && device.type == DeviceType::CPU && take_offer(*s)) return s;
  s->data = device_allocate(bytes, device);
  return s;
}

Ref<Storage> Storage::adopt(void* data, size_t bytes, Device device, std::function<void(void*)> deleter) {
  Ref<Storage> s(new Storage);
  s->device = device;
  s->bytes = bytes;
  s->data = data;
  s->resizable = false;
  s->foreign_delete = std::move(deleter);
  return s;
}

SharedBytes::~SharedBytes() {
  if (foreign_delete)
    foreign_delete(data);
  else
    device_free(data, bytes, Device{});
}

Ref<Storage> Storage::lazy_clone() {
  if (!copy_on_write) {
    copy_on_write = std::make_shared<SharedBytes>();
    copy_on_write->data = data;
    copy_on_write->bytes = bytes;
    copy_on_write->foreign_delete = std::move(foreign_delete);
    foreign_delete = nullptr;
    unusual_storages.fetch_add(1, std::memory_order_relaxed);
  }
  Ref<Storage> clone(new Storage);
  clone->data = data;
  clone->bytes = bytes;
  clone->device = device;
  clone->copy_on_write = copy_on_write;
  unusual_storages.fetch_add(1, std::memory_order_relaxed);
  return clone;
}

void Storage::materialize() {
  if (!copy_on_write) return;
  unusual_storages.fetch_sub(1, std::memory_order_relaxed);
  const std::shared_ptr<SharedBytes> shared = std::move(copy_on_write);
  copy_on_write = nullptr;
  if (shared.use_count() == 1) {  // the last one keeps the bytes
    foreign_delete = std::move(shared->foreign_delete);
    shared->foreign_delete = [](void*) {};
    return;
  }
  data = device_allocate(bytes, device);
  if (bytes) std::memcpy(data, shared->data, bytes);
}

void Storage::resize(size_t new_bytes) {
  materialize();
  FL_CHECK(
      resizable,
      "[resize_] expected a storage whose memory is its own, got one shared with another library or process");
  void* fresh = device_allocate(new_bytes, device);
  if (fresh && data && device.type == DeviceType::CPU)
    std::memcpy(fresh, data, bytes < new_bytes ? bytes : new_bytes);
  if (fresh && data && device.type == DeviceType::CUDA && std::min(bytes, new_bytes) > 0) {
    const int64_t shared_bytes = static_cast<int64_t>(std::min(bytes, new_bytes));
    const auto bytes_at = [&](void* at) {
      Ref<TensorImpl> t(new TensorImpl);
      t->storage = adopt(at, shared_bytes, device, [](void*) {});
      t->sizes.assign(IntSpan(&shared_bytes, 1));
      t->strides = contiguous_strides(t->sizes);
      t->dtype = DType::UInt8;
      t->device = device;
      t->refresh();
      return Tensor(std::move(t));
    };
    the_accelerator().copy(bytes_at(fresh), bytes_at(data), false);
  }
  if (foreign_delete) {  // an offered place
    foreign_delete(data);
    foreign_delete = nullptr;
  } else {
    device_free(data, bytes, device);
  }
  note_size(*this, new_bytes);
  data = fresh;
  bytes = new_bytes;
}

Storage::~Storage() {
  if (shrunk_from != 0) unusual_storages.fetch_sub(1, std::memory_order_relaxed);
  if (copy_on_write) {
    unusual_storages.fetch_sub(1, std::memory_order_relaxed);
    return;  // the bytes go with the last storage that shares them
  }
  if (foreign_delete)
    foreign_delete(data);
  else
    device_free(data, bytes, device);
}

}  // namespace fl

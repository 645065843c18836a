// Blocks of a device's memory that are kept when they are freed, by their size, in front of an allocator that
// is slow to ask.
#pragma once

#include <mutex>
#include <unordered_map>
#include <vector>

#include "core/storage.h"

namespace fl {

class BlockPool {
 public:
  explicit BlockPool(DeviceAllocator below) : below_(std::move(below)) {}

  void* allocate(size_t bytes) {
    const size_t size = rounded(bytes);
    {
      const std::lock_guard<std::mutex> held(mutex_);
      std::vector<void*>& blocks = free_[size];
      if (!blocks.empty()) {
        void* block = blocks.back();
        blocks.pop_back();
        return block;
      }
    }
    return below_.allocate(size);
  }
  void free(void* block, size_t bytes) {
    const std::lock_guard<std::mutex> held(mutex_);
    free_[rounded(bytes)].push_back(block);
  }
  // Gives back what nobody uses.
  void empty() {
    std::unordered_map<size_t, std::vector<void*>> given_back;
    {
      const std::lock_guard<std::mutex> held(mutex_);
      given_back.swap(free_);
    }
    for (const auto& [size, blocks] : given_back)
      for (void* block : blocks) below_.free(block, size);
  }

 private:
  // Powers of two up to a mebibyte, then whole mebibytes.
  static size_t rounded(size_t bytes) {
    constexpr size_t kSmall = 64, kLarge = size_t(1) << 20;
    if (bytes > kLarge) return (bytes + kLarge - 1) / kLarge * kLarge;
    size_t size = kSmall;
    while (size < bytes) size *= 2;
    return size;
  }

  DeviceAllocator below_;
  std::mutex mutex_;
  std::unordered_map<size_t, std::vector<void*>> free_;
};

}  // namespace fl

// The caching allocator of device memory. Segments come from cudaMalloc; a block is a piece of a segment, and
// neighbours that are both free are merged. Free blocks are kept by the stream they were used on, so that
// memory can be given out again without waiting: work on one stream is in order. A block that other streams
// have used (record_stream) waits for their events first.
#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#include "cuda/runtime/runtime.h"

namespace fl::cuda {

namespace {

constexpr size_t kRound = 512;              // sizes are multiples of this
constexpr size_t kSmall = size_t(1) << 20;  // up to here blocks come from small segments
constexpr size_t kSmallSegment = size_t(2) << 20;
constexpr size_t kLargeSegment = size_t(20) << 20;
constexpr size_t kOwnSegment = size_t(10) << 20;  // from here a block gets a segment of its size
constexpr size_t kSegmentRound = size_t(2) << 20;
constexpr size_t kRecent = 64;  // small blocks of one size kept whole

struct Block;
struct Order {
  bool operator()(const Block* a, const Block* b) const;
};
using Blocks = std::set<Block*, Order>;

// Where free blocks wait: one for small and one for large ones, again for each pool of a graph.
struct Pool {
  uint64_t graph = 0;
  Blocks free[2];  // large, small
};

struct Block {
  size_t size = 0, requested = 0;
  char* data = nullptr;
  cudaStream_t stream = nullptr;
  Pool* pool = nullptr;
  Block *before = nullptr, *after = nullptr;  // neighbours in the segment
  bool small = false, used = false;
  int events = 0;                    // outstanding
  std::vector<cudaStream_t> others;  // streams that have used it besides its own
  bool whole() const { return !before && !after; }
};

bool Order::operator()(const Block* a, const Block* b) const {
  if (a->stream != b->stream) return std::less<cudaStream_t>()(a->stream, b->stream);
  if (a->size != b->size) return a->size < b->size;
  return a->data < b->data;
}

// Allocating while a stream is captured must not invalidate the capture.
class Relaxed {
 public:
  Relaxed() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~Relaxed() { cudaThreadExchangeStreamCaptureMode(&mode_); }

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

std::string human(int64_t bytes) {
  char text[32];
  if (bytes >= int64_t(1) << 30)
    snprintf(text, sizeof text, "%.2f GiB", bytes / double(1 << 30));
  else
    snprintf(text, sizeof text, "%.2f MiB", bytes / double(1 << 20));
  return text;
}

class DeviceMemory {
 public:
  void* allocate(size_t bytes, int device, cudaStream_t stream) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!waiting_.empty() && captures_.empty()) finish_events(false);
    const size_t size = std::max<size_t>((bytes + kRound - 1) / kRound * kRound, kRound);
    Pool* pool = pool_for(stream);
    const bool small = size <= kSmall;
    Block* block = small && pool == &common_ ? take_recent(size, stream) : nullptr;
    if (block) return hand_out(block, bytes);
    block = take(pool, small, size, stream);
    if (!block) block = fresh(pool, small, size, device, stream);
    const size_t rest = block->size - size;
    if (small ? rest >= kRound : rest > kSmall) split(block, size);
    return hand_out(block, bytes);
  }

  void* hand_out(Block* block, size_t bytes) {
    block->used = true;
    block->requested = bytes;
    live_[block->data] = block;
    stats_.allocated.add(block->size);
    stats_.active.add(block->size);
    stats_.requested.add(bytes);
    stats_.allocations.add(1);
    return block->data;
  }

  void free(void* data) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto it = live_.find(data);
    if (it == live_.end()) return;
    Block* block = it->second;
    live_.erase(it);
    stats_.allocated.remove(block->size);
    stats_.requested.remove(block->requested);
    stats_.allocations.remove(1);
    if (!block->others.empty()) {
      if (captures_.empty()) {
        for (cudaStream_t s : block->others) {
          cudaEvent_t event;
          if (cudaEventCreateWithFlags(&event, cudaEventDisableTiming) != cudaSuccess) continue;
          cudaEventRecord(event, s);
          ++block->events;
          waiting_.push_back({event, block});
        }
        block->others.clear();
      } else {
        deferred_.push_back(block);
        return;
      }
    }
    if (block->events) return;
    if (block->small && block->pool == &common_ && recent_[block->size / kRound].size() < kRecent) {
      stats_.active.remove(block->size);
      recent_[block->size / kRound].push_back(block);
      return;
    }
    give_back(block);
  }

  void record_stream(void* data, cudaStream_t stream) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto it = live_.find(data);
    if (it == live_.end() || it->second->stream == stream) return;
    auto& others = it->second->others;
    if (std::find(others.begin(), others.end(), stream) == others.end()) others.push_back(stream);
  }

  void empty_cache() {
    std::lock_guard<std::mutex> lock(mutex_);
    release_cached();
  }

  DeviceStatistics statistics() {
    std::lock_guard<std::mutex> lock(mutex_);
    return stats_;
  }

  void reset_peak() {
    std::lock_guard<std::mutex> lock(mutex_);
    for (Statistic* s : {&stats_.allocated, &stats_.reserved, &stats_.active, &stats_.requested,
                         &stats_.allocations, &stats_.segments})
      s->peak = s->current;
  }

  std::string snapshot() {
    std::lock_guard<std::mutex> lock(mutex_);
    settle();
    std::string text;
    for (const auto& [data, first] : segments_) {
      size_t total = 0;
      for (Block* b = first; b; b = b->after) total += b->size;
      for (Block* b = first; b; b = b->after)
        text += message(reinterpret_cast<uintptr_t>(data), " ", total, " ",
                        reinterpret_cast<uintptr_t>(b->stream), " ", reinterpret_cast<uintptr_t>(b->data),
                        " ", b->size, " ", b->requested, " ", b->used ? "active_allocated" : "inactive", " ",
                        b->small ? "small" : "large", " ", b->pool->graph, "\n");
    }
    return text;
  }

  void begin_pool(cudaStream_t stream, uint64_t graph) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (captures_.empty()) finish_events(true);
    auto& pool = graphs_[graph];
    if (!pool) pool = new Pool{graph, {}};
    captures_[stream] = pool;
  }
  void end_pool(cudaStream_t stream) {
    std::lock_guard<std::mutex> lock(mutex_);
    captures_.erase(stream);
    if (!captures_.empty()) return;
    for (Block* b : deferred_) {
      b->others.clear();
      give_back(b);
    }
    deferred_.clear();
  }
  void release_pool(uint64_t graph) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto it = graphs_.find(graph);
    if (it == graphs_.end()) return;
    release_segments(*it->second);
    // Blocks still in use keep pointing to their pool, which therefore stays.
    released_.insert(it->second);
  }
  bool capturing() {
    std::lock_guard<std::mutex> lock(mutex_);
    return !captures_.empty();
  }

 private:
  Pool* pool_for(cudaStream_t stream) {
    if (captures_.empty()) return &common_;
    const auto it = captures_.find(stream);
    // Other streams joined to the capture allocate from its pool too.
    return it != captures_.end() ? it->second : captures_.begin()->second;
  }

  // Small blocks that were just freed stay whole for a while: most are asked for again in the same size.
  Block* take_recent(size_t size, cudaStream_t stream) {
    auto& blocks = recent_[size / kRound];
    if (blocks.empty() || blocks.back()->stream != stream) return nullptr;
    Block* block = blocks.back();
    blocks.pop_back();
    return block;
  }
  void settle() {
    for (auto& blocks : recent_) {
      for (Block* b : blocks) {
        stats_.active.add(b->size);
        give_back(b);
      }
      blocks.clear();
    }
  }

  // The smallest free block of this stream that is large enough.
  Block* take(Pool* pool, bool small, size_t size, cudaStream_t stream) {
    Blocks& free = pool->free[small];
    Block key;
    key.size = size;
    key.stream = stream;
    const auto it = free.lower_bound(&key);
    if (it == free.end() || (*it)->stream != stream) return nullptr;
    // A large block is not split for a much smaller one that would leave most of it idle.
    if (!small && size < kOwnSegment && (*it)->size >= size_t(200) << 20 && (*it)->whole()) return nullptr;
    Block* block = *it;
    free.erase(it);
    return block;
  }

  Block* fresh(Pool* pool, bool small, size_t size, int device, cudaStream_t stream) {
    const size_t segment = small                ? kSmallSegment
                           : size < kOwnSegment ? kLargeSegment
                                                : (size + kSegmentRound - 1) / kSegmentRound * kSegmentRound;
    OnDevice here(device);
    Relaxed relaxed;
    void* data = nullptr;
    if (stats_.reserved.current + static_cast<int64_t>(segment) > limit_ || cudaMalloc(&data, segment)) {
      cudaGetLastError();
      ++stats_.retries;
      data = nullptr;
      if (captures_.empty()) release_cached();
      if (stats_.reserved.current + static_cast<int64_t>(segment) > limit_ || cudaMalloc(&data, segment)) {
        cudaGetLastError();
        ++stats_.out_of_memory;
        out_of_memory(size, device);
      }
    }
    auto* block = new Block;
    block->size = segment;
    block->data = static_cast<char*>(data);
    block->stream = stream;
    block->pool = pool;
    block->small = small;
    segments_[block->data] = block;
    stats_.reserved.add(segment);
    stats_.segments.add(1);
    return block;
  }

  void split(Block* block, size_t size) {
    auto* rest = new Block;
    rest->size = block->size - size;
    rest->data = block->data + size;
    rest->stream = block->stream;
    rest->pool = block->pool;
    rest->small = block->small;
    rest->before = block;
    rest->after = block->after;
    if (rest->after) rest->after->before = rest;
    block->after = rest;
    block->size = size;
    rest->pool->free[rest->small].insert(rest);
  }

  void give_back(Block* block) {
    stats_.active.remove(block->size);
    block->used = false;
    block->requested = 0;
    Blocks& free = block->pool->free[block->small];
    if (Block* next = block->after; next && idle(next)) {
      free.erase(next);
      absorb(block, next);
    }
    if (Block* previous = block->before; previous && idle(previous)) {
      free.erase(previous);
      absorb(previous, block);
      block = previous;
    }
    free.insert(block);
    if (block->whole() && released_.count(block->pool)) release_segments(*block->pool);
  }
  static bool idle(const Block* b) { return !b->used && b->events == 0; }

  static void absorb(Block* first, Block* second) {
    first->size += second->size;
    first->after = second->after;
    if (first->after) first->after->before = first;
    delete second;
  }

  void release_segments(Pool& pool) {
    for (Blocks& free : pool.free)
      for (auto it = free.begin(); it != free.end();) {
        Block* b = *it;
        if (!b->whole()) {
          ++it;
          continue;
        }
        it = free.erase(it);
        cudaFree(b->data);
        segments_.erase(b->data);
        stats_.reserved.remove(b->size);
        stats_.segments.remove(1);
        delete b;
      }
  }

  // Gives segments without a live block back to the driver, which waits for the device.
  void release_cached() {
    settle();
    finish_events(true);
    release_segments(common_);
    for (Pool* pool : released_) release_segments(*pool);
  }

  void finish_events(bool wait) {
    for (size_t i = 0; i < waiting_.size();) {
      auto [event, block] = waiting_[i];
      if (wait)
        cudaEventSynchronize(event);
      else if (cudaEventQuery(event) == cudaErrorNotReady) {
        cudaGetLastError();
        ++i;
        continue;
      }
      cudaEventDestroy(event);
      waiting_.erase(waiting_.begin() + i);
      if (--block->events == 0) give_back(block);
    }
  }

  [[noreturn]] void out_of_memory(size_t size, int device) {
    size_t available = 0, total = 0;
    cudaMemGetInfo(&available, &total);
    std::map<size_t, int64_t, std::greater<size_t>> by_size;
    for (const auto& [data, b] : live_) ++by_size[b->size];
    std::string holders;
    int shown = 0;
    for (const auto& [bytes, count] : by_size) {
      if (++shown > 5) break;
      holders += message(shown > 1 ? ", " : "", count, " x ", human(bytes));
    }
    fail(ErrorKind::OutOfMemory, "CUDA out of memory. [empty] expected ", human(size), " on cuda:", device,
         ", got ", human(available), " free of ", human(total), "; ", human(stats_.allocated.current),
         " are held by ", int64_t(live_.size()), " live blocks, ",
         human(stats_.reserved.current - stats_.allocated.current),
         " are cached in pieces too small. Largest live blocks: ", holders.empty() ? "none" : holders);
  }

 public:
  int64_t limit_ = std::numeric_limits<int64_t>::max();

 private:
  std::mutex mutex_;
  Pool common_;
  std::vector<Block*> recent_[kSmall / kRound + 1];
  std::unordered_map<uint64_t, Pool*> graphs_;
  std::set<Pool*> released_;
  std::map<cudaStream_t, Pool*> captures_;
  std::unordered_map<void*, Block*> live_;
  std::map<char*, Block*> segments_;
  std::vector<std::pair<cudaEvent_t, Block*>> waiting_;
  std::vector<Block*> deferred_;
  DeviceStatistics stats_;
};

std::atomic<int> captures{0};

DeviceMemory& memory(int device) {
  static auto* all = new DeviceMemory[kMaxDevices];
  return all[device];
}

}  // namespace

void* allocate(size_t bytes, int device, cudaStream_t stream) {
  FL_CHECK_KIND(bytes < size_t(1) << 47, OutOfMemory,
                "CUDA out of memory. [empty] expected a size below 2**47");
  return memory(device).allocate(bytes, device, stream);
}
void free(void* block, int device) {
  memory(device).free(block);
}
void record_stream(void* block, int device, cudaStream_t stream) {
  memory(device).record_stream(block, stream);
}
void empty_cache() {
  for (int d = 0; d < kMaxDevices; ++d)
    if (memory(d).statistics().segments.current) memory(d).empty_cache();
}
DeviceStatistics statistics(int device) {
  return memory(device).statistics();
}
void reset_peak(int device) {
  memory(device).reset_peak();
}
std::string snapshot(int device) {
  return memory(device).snapshot();
}
void begin_pool(int device, cudaStream_t stream, uint64_t pool) {
  memory(device).begin_pool(stream, pool);
  ++captures;
}
void end_pool(int device, cudaStream_t stream) {
  memory(device).end_pool(stream);
  --captures;
}
void release_pool(int device, uint64_t pool) {
  memory(device).release_pool(pool);
}
bool capturing(int device) {
  return memory(device).capturing();
}
bool capturing() {
  return captures.load(std::memory_order_relaxed) > 0;
}
void set_memory_limit(int device, int64_t bytes) {
  memory(device).limit_ = bytes;
}

}  // namespace fl::cuda

// The caching CPU allocator: thread-local free lists for small blocks, one locked table for large ones.
#include "core/allocator.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "core/arena.h"
#include "core/error.h"

#if defined(__SANITIZE_ADDRESS__)
#define FL_PLAIN_ALLOCATION 1  // let ASan see every block
#endif

namespace fl {

namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kSmall = size_t(1) << 16;         // at most: cached by thread
constexpr int kSmallPerClass = 64;                 // blocks a thread keeps in each class
constexpr size_t kLargeCache = size_t(512) << 20;  // bytes kept beyond what is in use
constexpr size_t kMostArenas = 8;                  // idle ones

// Size classes: multiples of 64 up to 1 KiB, then eight steps to each power of two, so that at most 12.5% is
// lost.
size_t round_up(size_t bytes) {
  if (bytes <= 1024) return bytes == 0 ? kAlignment : (bytes + kAlignment - 1) & ~(kAlignment - 1);
  const int log = 63 - __builtin_clzll(bytes - 1);
  const size_t step = size_t(1) << (log - 2 > 3 ? log - 3 : 3);
  return (bytes + step - 1) & ~(step - 1);
}
// Index of the class of a rounded size.
int class_index(size_t rounded) {
  if (rounded <= 1024) return static_cast<int>(rounded / kAlignment);  // 1..16
  const int log = 63 - __builtin_clzll(rounded - 1);                   // rounded in (2^log, 2^(log+1)]
  const size_t step = size_t(1) << (log - 3);
  return 17 + (log - 10) * 8 + static_cast<int>((rounded - (size_t(1) << log)) / step) - 1;
}
constexpr int kClasses = 17 + 40 * 8;

struct Stats {
  std::atomic<int64_t> allocated{0}, peak_allocated{0}, reserved{0}, peak_reserved{0}, allocations{0},
      cache_hits{0};
};
Stats stats;

void raise_peak(std::atomic<int64_t>& peak, int64_t value) {
  int64_t seen = peak.load(std::memory_order_relaxed);
  while (seen < value && !peak.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

struct LargeCache {
  std::mutex mutex;
  std::vector<void*> blocks[kClasses];
  size_t bytes = 0;
  struct Idle {
    void* data;
    size_t bytes;
  };
  std::vector<Idle> arenas;  // blocks of programs that ended

  // The smallest idle arena that is large enough. Where there is none, the largest goes, for what takes its
  // place serves its programs, too.
  Idle take_arena(size_t wanted) {
    std::lock_guard<std::mutex> lock(mutex);
    auto best = arenas.end(), largest = arenas.begin();
    for (auto a = arenas.begin(); a != arenas.end(); ++a) {
      if (a->bytes >= wanted && (best == arenas.end() || a->bytes < best->bytes)) best = a;
      if (a->bytes > largest->bytes) largest = a;
    }
    const auto chosen = best == arenas.end() ? largest : best;
    if (chosen == arenas.end()) return {nullptr, 0};
    const Idle block = *chosen;
    arenas.erase(chosen);
    bytes -= block.bytes;
    return block;
  }
  bool put_arena(Idle arena) {
    std::lock_guard<std::mutex> lock(mutex);
    if (arenas.size() == kMostArenas || bytes + arena.bytes > kLargeCache) return false;
    arenas.push_back(arena);
    bytes += arena.bytes;
    return true;
  }

  void* take(int index, size_t rounded) {
    std::lock_guard<std::mutex> lock(mutex);
    auto& list = blocks[index];
    if (list.empty()) return nullptr;
    void* block = list.back();
    list.pop_back();
    bytes -= rounded;
    return block;
  }
  bool put(int index, size_t rounded, void* block) {
    std::lock_guard<std::mutex> lock(mutex);
    if (bytes + rounded > kLargeCache) return false;
    blocks[index].push_back(block);
    bytes += rounded;
    return true;
  }
  void clear() {
    std::lock_guard<std::mutex> lock(mutex);
    for (auto& list : blocks) {
      for (void* block : list) std::free(block);
      list.clear();
      list.shrink_to_fit();
    }
    for (const Idle& arena : arenas) std::free(arena.data);
    arenas.clear();
    stats.reserved.fetch_sub(static_cast<int64_t>(bytes), std::memory_order_relaxed);
    bytes = 0;
  }
};
LargeCache& large_cache() {
  static auto* cache = [] {
    auto* cache = new LargeCache;  // never destroyed: tensors may outlive static destruction
    // A child forked while another thread holds the lock would wait for it for ever.
    pthread_atfork([] { large_cache().mutex.lock(); }, [] { large_cache().mutex.unlock(); },
                   [] { large_cache().mutex.unlock(); });
    return cache;
  }();
  return *cache;
}

constexpr int kSmallClasses = 17 + 6 * 8 + 1;

struct SmallCache {
  struct Link {
    Link* next;
  };
  Link* head[kSmallClasses] = {};
  int count[kSmallClasses] = {};
  bool alive = true;

  void clear() {
    for (int i = 0; i < kSmallClasses; ++i) {
      while (Link* block = head[i]) {
        head[i] = block->next;
        std::free(block);
      }
      count[i] = 0;
    }
  }
  ~SmallCache() {
    clear();
    alive = false;
  }
};
thread_local SmallCache small_cache;

void* system_allocate(size_t rounded) {
  void* block = std::aligned_alloc(kAlignment, (rounded + kAlignment - 1) & ~(kAlignment - 1));
  if (block == nullptr) {
    cpu_empty_cache();
    block = std::aligned_alloc(kAlignment, (rounded + kAlignment - 1) & ~(kAlignment - 1));
  }
  if (block == nullptr)
    fail(ErrorKind::OutOfMemory, "[empty] expected ", static_cast<int64_t>(rounded),
         " bytes of CPU memory to be available, got an allocation failure (", stats.allocated.load(),
         " bytes are held by live tensors)");
  return block;
}

}  // namespace

void* cpu_allocate(size_t bytes) {
  FL_CHECK_KIND(bytes < (size_t(1) << 47), OutOfMemory,
                "[empty] expected a tensor that fits in memory, got a request for ",
                static_cast<int64_t>(bytes), " bytes");
  const size_t rounded = round_up(bytes);
  void* block = nullptr;
#ifndef FL_PLAIN_ALLOCATION
  const int index = class_index(rounded);
  if (rounded <= kSmall) {
    auto& cache = small_cache;
    if (SmallCache::Link* link = cache.head[index]) {
      cache.head[index] = link->next;
      --cache.count[index];
      block = link;
    }
  } else {
    block = large_cache().take(index, rounded);
  }
#endif
  if (block) {
    stats.cache_hits.fetch_add(1, std::memory_order_relaxed);
  } else {
    block = system_allocate(rounded);
    raise_peak(stats.peak_reserved,
               stats.reserved.fetch_add(rounded, std::memory_order_relaxed) + int64_t(rounded));
  }
  stats.allocations.fetch_add(1, std::memory_order_relaxed);
  raise_peak(stats.peak_allocated,
             stats.allocated.fetch_add(rounded, std::memory_order_relaxed) + int64_t(rounded));
  return block;
}

void cpu_free(void* block, size_t bytes) {
  if (block == nullptr) return;
  const size_t rounded = round_up(bytes);
  stats.allocated.fetch_sub(rounded, std::memory_order_relaxed);
#ifndef FL_PLAIN_ALLOCATION
  const int index = class_index(rounded);
  if (rounded <= kSmall) {
    auto& cache = small_cache;
    if (cache.alive && cache.count[index] < kSmallPerClass) {
      auto* link = static_cast<SmallCache::Link*>(block);
      link->next = cache.head[index];
      cache.head[index] = link;
      ++cache.count[index];
      return;
    }
  } else if (large_cache().put(index, rounded, block)) {
    return;
  }
#endif
  stats.reserved.fetch_sub(rounded, std::memory_order_relaxed);
  std::free(block);
}

void cpu_empty_cache() {
  large_cache().clear();
  small_cache.clear();
}

ArenaBlock::ArenaBlock(size_t bytes) : data_(nullptr), asked_(bytes), bytes_(bytes) {
  if (bytes <= kSmall) {
    data_ = cpu_allocate(bytes);
    return;
  }
#ifndef FL_PLAIN_ALLOCATION
  const auto [arena, size] = large_cache().take_arena(bytes);
  if (size >= bytes) {
    data_ = arena;
    bytes_ = size;
    stats.cache_hits.fetch_add(1, std::memory_order_relaxed);
  } else if (arena) {
    std::free(arena);
    stats.reserved.fetch_sub(size, std::memory_order_relaxed);
  }
#endif
  if (data_ == nullptr) {
    data_ = system_allocate(bytes);
    raise_peak(stats.peak_reserved,
               stats.reserved.fetch_add(bytes, std::memory_order_relaxed) + int64_t(bytes));
  }
  stats.allocations.fetch_add(1, std::memory_order_relaxed);
  raise_peak(stats.peak_allocated,
             stats.allocated.fetch_add(bytes, std::memory_order_relaxed) + int64_t(bytes));
}

ArenaBlock::~ArenaBlock() {
  if (asked_ <= kSmall) {
    cpu_free(data_, asked_);
    return;
  }
  stats.allocated.fetch_sub(asked_, std::memory_order_relaxed);
#ifndef FL_PLAIN_ALLOCATION
  if (large_cache().put_arena({data_, bytes_})) return;
#endif
  stats.reserved.fetch_sub(bytes_, std::memory_order_relaxed);
  std::free(data_);
}

MemoryStats cpu_memory_stats() {
  return {stats.allocated,     stats.peak_allocated, stats.reserved,
          stats.peak_reserved, stats.allocations,    stats.cache_hits};
}

void cpu_reset_peak_stats() {
  stats.peak_allocated = stats.allocated.load();
  stats.peak_reserved = stats.reserved.load();
}

}  // namespace fl

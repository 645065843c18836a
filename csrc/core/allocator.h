// CPU memory: a caching allocator with statistics. Blocks are 64-byte aligned and kept by size class for
// reuse, because a fresh page costs more to touch than most kernels cost to run.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fl {

struct MemoryStats {
  int64_t allocated = 0;       // bytes in live blocks, as requested from the size class
  int64_t peak_allocated = 0;  // highest value of `allocated` since the last reset
  int64_t reserved = 0;        // live and cached bytes
  int64_t peak_reserved = 0;
  int64_t allocations = 0;  // calls so far
  int64_t cache_hits = 0;
};

void* cpu_allocate(size_t bytes);
void cpu_free(void* block, size_t bytes);  // `bytes` as passed to cpu_allocate
void cpu_empty_cache();
MemoryStats cpu_memory_stats();
void cpu_reset_peak_stats();

}  // namespace fl

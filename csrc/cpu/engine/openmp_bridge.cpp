// See openmp_bridge.h. The functions are those of libgomp's binary interface; a region is a Gang, because its
// threads may wait for each other.
#include "cpu/engine/openmp_bridge.h"

#include <elf.h>
#include <link.h>
#include <omp.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "core/thread_pool.h"

namespace fl::cpu {
namespace {

struct BridgedRegion {
  void (*function)(void*);
  void* data;
  int threads;
  std::atomic<int> arrived{0}, rounds{0};  // at barriers
  std::unique_ptr<Gang> gang;
};

// Of this thread: the region it is in, its number there, and the loop it runs.
struct Place {
  BridgedRegion* region = nullptr;
  int thread = 0;
  long next = 0, end = 0, step = 0, chunk = 0;
};
thread_local Place place;

class PlaceScope {
 public:
  PlaceScope(BridgedRegion* region, int thread) : before_(place) {
    place = {};
    place.region = region;
    place.thread = thread;
  }
  ~PlaceScope() { place = before_; }
  PlaceScope(const PlaceScope&) = delete;
  PlaceScope& operator=(const PlaceScope&) = delete;

 private:
  const Place before_;
};

int team_size() {
  return place.region ? place.region->threads : 1;
}
int thread_number() {
  return place.thread;
}
int is_in_parallel() {
  return team_size() > 1 || in_parallel();
}

// The caller runs piece 0 itself between these two.
void begin_region(void (*function)(void*), void* data, unsigned threads) {
  auto* region = new BridgedRegion;
  region->function = function;
  region->data = data;
  region->threads = in_parallel() ? 1 : threads ? static_cast<int>(threads) : omp_get_max_threads();
  if (region->threads > 1) {
    region->gang = std::make_unique<Gang>(
        region->threads,
        [](const void* context, int piece, int) {
          auto* region = static_cast<BridgedRegion*>(const_cast<void*>(context));
          const PlaceScope scope(region, piece);
          region->function(region->data);
        },
        region);
  }
  place = {};
  place.region = region;
}
void end_region() {
  const std::unique_ptr<BridgedRegion> region(place.region);
  region->gang.reset();
  place = {};
}

void barrier() {
  BridgedRegion* region = place.region;
  if (!region || region->threads <= 1) return;
  const int round = region->rounds.load(std::memory_order_acquire);
  if (region->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == region->threads) {
    region->arrived.store(0, std::memory_order_relaxed);
    region->rounds.store(round + 1, std::memory_order_release);
    return;
  }
  for (int spins = 0; region->rounds.load(std::memory_order_acquire) == round; ++spins)
    if (spins > 1000) sched_yield();
}

// Loops with a static schedule: rounds of chunks, or one equal part for each thread where chunk is 0.
bool next_static(long* begin, long* end) {
  Place& p = place;
  if (p.step > 0 ? p.next >= p.end : p.next <= p.end) return false;
  const long length = p.chunk * p.step, last = p.next + length;
  *begin = p.next;
  *end = p.step > 0 ? (last < p.end ? last : p.end) : (last > p.end ? last : p.end);
  p.next += length * team_size();
  return true;
}
bool start_static(long start, long end, long step, long chunk, long* first, long* last) {
  const long count = step > 0 ? (end - start + step - 1) / step : (start - end - step - 1) / -step;
  if (chunk <= 0) chunk = (count + team_size() - 1) / team_size();
  if (chunk <= 0) chunk = 1;
  place.next = start + place.thread * chunk * step;
  place.end = end;
  place.step = step;
  place.chunk = chunk;
  return next_static(first, last);
}
void end_loop() {}

struct Replacement {
  std::string_view name;
  void* function;
};
template <class F>
void* erased(F* function) {
  return reinterpret_cast<void*>(function);
}
void* replacement_for(std::string_view name) {
  static const Replacement all[] = {
      {"GOMP_parallel_start", erased(begin_region)},
      {"GOMP_parallel_end", erased(end_region)},
      {"GOMP_barrier", erased(barrier)},
      {"GOMP_loop_static_start", erased(start_static)},
      {"GOMP_loop_static_next", erased(next_static)},
      {"GOMP_loop_end_nowait", erased(end_loop)},
      {"omp_get_num_threads", erased(team_size)},
      {"omp_get_thread_num", erased(thread_number)},
      {"omp_in_parallel", erased(is_in_parallel)},
      {"omp_get_max_threads", erased(omp_get_max_threads)},  // ThreadLimit says how many
      {"GOMP_parallel", erased(+[](void (*function)(void*), void* data, unsigned threads, unsigned) {
         begin_region(function, data, threads);
         function(data);
         end_region();
       })},
  };
  for (const Replacement& r : all)
    if (r.name == name) return r.function;
  return nullptr;
}

bool belongs_to_openmp(std::string_view name) {
  return name.substr(0, 5) == "GOMP_" || name.substr(0, 4) == "omp_" || name.substr(0, 6) == "__kmpc";
}

struct Entry {
  void** place;
  void* function;
};

// The entries for imported functions of OpenMP; false if one of them has no replacement.
bool find_entries(const link_map* map, std::vector<Entry>& entries) {
  const ElfW(Sym)* symbols = nullptr;
  const char* strings = nullptr;
  const ElfW(Rela) * tables[2] = {};
  size_t bytes[2] = {};
  for (const ElfW(Dyn)* d = map->l_ld; d->d_tag != DT_NULL; ++d) {
    if (d->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const ElfW(Sym)*>(d->d_un.d_ptr);
    if (d->d_tag == DT_STRTAB) strings = reinterpret_cast<const char*>(d->d_un.d_ptr);
    if (d->d_tag == DT_JMPREL) tables[0] = reinterpret_cast<const ElfW(Rela)*>(d->d_un.d_ptr);
    if (d->d_tag == DT_PLTRELSZ) bytes[0] = d->d_un.d_val;
    if (d->d_tag == DT_RELA) tables[1] = reinterpret_cast<const ElfW(Rela)*>(d->d_un.d_ptr);
    if (d->d_tag == DT_RELASZ) bytes[1] = d->d_un.d_val;
  }
  if (!symbols || !strings) return false;
  for (int t = 0; t < 2; ++t)
    for (size_t i = 0; tables[t] && i < bytes[t] / sizeof(ElfW(Rela)); ++i) {
      const ElfW(Rela) & r = tables[t][i];
      const size_t symbol = ELF64_R_SYM(r.r_info);
      const std::string_view name = symbol ? strings + symbols[symbol].st_name : "";
      if (!belongs_to_openmp(name)) continue;
      void* function = replacement_for(name);
      if (!function) return false;
      entries.push_back({reinterpret_cast<void**>(map->l_addr + r.r_offset), function});
    }
  return !entries.empty();
}

}  // namespace

bool use_pool_for_openmp(void* handle) {
#if defined(__x86_64__) || defined(__aarch64__)
  link_map* map = nullptr;
  std::vector<Entry> entries;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || !find_entries(map, entries)) return false;
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  for (const Entry& e : entries) {  // the loader may have made the table read-only; it is again afterwards
    void* start = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(e.place) / page * page);
    if (mprotect(start, page, PROT_READ | PROT_WRITE) != 0) return false;
  }
  for (const Entry& e : entries) *e.place = e.function;
  return true;
#else
  return false;
#endif
}

}  // namespace fl::cpu

// What the device does while a profiler records: kernels, copies and fills with their times, and the calls
// that started them, as CUPTI tells. CUPTI is opened when it is first asked for; nothing is linked or
// recorded before. Times are those of the host's steady clock.
#include <cuda_runtime_api.h>
#include <cxxabi.h>

#include <chrono>
#include <cstdlib>
#include <mutex>
#include <string>

#include "core/error.h"
#include "cuda/runtime/library.h"

#if __has_include(<cupti.h>)
#include <cupti.h>
#define FL_HAS_CUPTI 1
#endif

#define API extern "C" __attribute__((visibility("default")))

namespace fl::cuda {

namespace {

std::string records;  // a line for each, its fields separated by tabs

#ifdef FL_HAS_CUPTI

#if CUPTI_API_VERSION >= 130000
using KernelRecord = CUpti_ActivityKernel10;
using CopyRecord = CUpti_ActivityMemcpy6;
#else
using KernelRecord = CUpti_ActivityKernel9;
using CopyRecord = CUpti_ActivityMemcpy5;
#endif
using FillRecord = CUpti_ActivityMemset4;

constexpr size_t kBuffer = 1 << 20;
constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                         CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_RUNTIME,
                                         CUPTI_ACTIVITY_KIND_DRIVER};

struct Cupti : Library {
  decltype(&cuptiActivityRegisterCallbacks) set_callbacks;
  decltype(&cuptiActivityEnable) enable;
  decltype(&cuptiActivityDisable) disable;
  decltype(&cuptiActivityFlushAll) flush;
  decltype(&cuptiActivityGetNextRecord) next;
  decltype(&cuptiGetTimestamp) timestamp;

  static const char* const* names() {
#if CUPTI_API_VERSION >= 130000
    static const char* const list[] = {"libcupti.so.13", "/usr/local/cuda/lib64/libcupti.so.13", nullptr};
#else
    static const char* const list[] = {"libcupti.so.12", "/usr/local/cuda/lib64/libcupti.so.12", nullptr};
#endif
    return list;
  }
  Cupti() : Library(names()) {
    find(set_callbacks, "cuptiActivityRegisterCallbacks");
    find(enable, "cuptiActivityEnable");
    find(disable, "cuptiActivityDisable");
    find(flush, "cuptiActivityFlushAll");
    find(next, "cuptiActivityGetNextRecord");
    find(timestamp, "cuptiGetTimestamp");
  }
  static const Cupti& get() {
    static const Cupti cupti;
    return cupti;
  }
};

std::mutex mutex;
int64_t offset;  // of the host's steady clock to CUPTI's

void add(const char* kind, uint64_t start, uint64_t end, uint32_t correlation, uint32_t device,
         uint32_t stream, uint64_t bytes, const std::string& name) {
  records += kind;
  for (const int64_t n : {int64_t(start) + offset, int64_t(end) + offset, int64_t(correlation),
                          int64_t(device), int64_t(stream), int64_t(bytes)})
    records += '\t' + std::to_string(n);
  records += '\t' + name + '\n';
}

std::string readable(const char* name) {
  int status = 0;
  char* text = name ? abi::__cxa_demangle(name, nullptr, nullptr, &status) : nullptr;
  std::string result = text ? text : name ? name : "";
  std::free(text);
  for (char& c : result)
    if (c == '\t' || c == '\n') c = ' ';
  return result;
}

const char* copy_name(uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
      return "Memcpy HtoD";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
      return "Memcpy DtoH";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD:
      return "Memcpy DtoD";
    case CUPTI_ACTIVITY_MEMCPY_KIND_PTOP:
      return "Memcpy PtoP";
    default:
      return "Memcpy";
  }
}

void add_record(const CUpti_Activity* record) {
  switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      const auto* r = reinterpret_cast<const KernelRecord*>(record);
      return add("kernel", r->start, r->end, r->correlationId, r->deviceId, r->streamId, 0,
                 readable(r->name));
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const auto* r = reinterpret_cast<const CopyRecord*>(record);
      return add("gpu_memcpy", r->start, r->end, r->correlationId, r->deviceId, r->streamId, r->bytes,
                 copy_name(r->copyKind));
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
      const auto* r = reinterpret_cast<const FillRecord*>(record);
      return add("gpu_memset", r->start, r->end, r->correlationId, r->deviceId, r->streamId, r->bytes,
                 "Memset");
    }
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER: {
      const auto* r = reinterpret_cast<const CUpti_ActivityAPI*>(record);
      return add("call", r->start, r->end, r->correlationId, 0, r->threadId, 0, "");
    }
    default:
      return;
  }
}

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* size, size_t* most) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, kBuffer));
  *size = *buffer ? kBuffer : 0;
  *most = 0;
}

void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  std::lock_guard<std::mutex> lock(mutex);
  CUpti_Activity* record = nullptr;
  while (valid > 0 && Cupti::get().next(buffer, valid, &record) == CUPTI_SUCCESS) add_record(record);
  std::free(buffer);
}

int64_t steady_now() {
  using namespace std::chrono;
  return duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

#endif  // FL_HAS_CUPTI

}  // namespace

// 1 when records are taken from now on; 0 where there is no CUPTI, or it belongs to another profiler.
API int flcuda_activity_start() {
#ifdef FL_HAS_CUPTI
  const Cupti& cupti = Cupti::get();
  if (!cupti.complete() || cupti.set_callbacks(give_buffer, take_buffer) != CUPTI_SUCCESS) return 0;
  std::lock_guard<std::mutex> lock(mutex);
  records.clear();
  uint64_t there = 0;
  const int64_t before = steady_now();
  if (cupti.timestamp(&there) != CUPTI_SUCCESS) return 0;
  offset = (before + steady_now()) / 2 - int64_t(there);
  for (const CUpti_ActivityKind kind : kKinds)
    if (cupti.enable(kind) != CUPTI_SUCCESS) {
      for (const CUpti_ActivityKind other : kKinds) cupti.disable(other);
      return 0;
    }
  return 1;
#else
  return 0;
#endif
}

// The records since the start, when all devices have done what was asked of them: kind, start, end,
// correlation, device, stream or thread, bytes, name.
API const char* flcuda_activity_stop() {
#ifdef FL_HAS_CUPTI
  const Cupti& cupti = Cupti::get();
  cupti.flush(0);
  for (const CUpti_ActivityKind kind : kKinds) cupti.disable(kind);
  cupti.flush(1);
#endif
  return records.c_str();
}

}  // namespace fl::cuda

// The C functions that flambeau/cuda calls through ctypes: devices, streams, events, graphs, memory. None of
// them is on the path of an operator. Each returns 0, or 1 for an error and 2 for lack of memory, of which
// flcuda_error() tells.
#include <cuda_profiler_api.h>

#include <cstdlib>
#include <cstring>

#include "cuda/engine/kernels.h"
#include "cuda/runtime/driver.h"
#include "cuda/runtime/runtime.h"

using namespace fl;
using namespace fl::cuda;

namespace {
thread_local std::string last_error;

template <class F>
int guarded(F&& f) {
  try {
    f();
    return 0;
  } catch (const Error& e) {
    last_error = e.what();
    return e.kind == ErrorKind::OutOfMemory ? 2 : e.kind == ErrorKind::Index ? 3 : 1;
  } catch (const std::exception& e) {
    last_error = e.what();
    return 1;
  }
}
cudaStream_t stream_of(void* handle) {
  return static_cast<cudaStream_t>(handle);
}
}  // namespace

#define API extern "C" __attribute__((visibility("default")))

API const char* flcuda_error() {
  return last_error.c_str();
}
API int flcuda_device_count() {
  return the_accelerator().device_count();
}
API int flcuda_current_device() {
  return current_device();
}
API int flcuda_set_device(int index) {
  return guarded([&] { set_current_device(index); });
}
// Numbers in the order of flambeau/cuda/_library.py.
API int flcuda_properties(int device, char* name, int64_t* n) {
  return guarded([&] {
    const cudaDeviceProp& p = properties(device);
    std::strncpy(name, p.name, 255);
    const int64_t numbers[] = {p.major,
                               p.minor,
                               int64_t(p.totalGlobalMem),
                               p.multiProcessorCount,
                               int64_t(p.l2CacheSize),
                               p.maxThreadsPerMultiProcessor,
                               int64_t(p.sharedMemPerBlock),
                               int64_t(p.sharedMemPerBlockOptin),
                               int64_t(p.sharedMemPerMultiprocessor),
                               p.warpSize,
                               p.regsPerMultiprocessor,
                               p.integrated,
                               p.isMultiGpuBoard,
                               p.maxThreadsPerBlock,
                               p.pciBusID,
                               p.pciDeviceID,
                               p.pciDomainID};
    std::memcpy(n, numbers, sizeof numbers);
  });
}
API int flcuda_memory_info(int device, int64_t* numbers) {
  return guarded([&] {
    OnDevice on(device);
    size_t available = 0, total = 0;
    check(cudaMemGetInfo(&available, &total), "mem_get_info");
    numbers[0] = available;
    numbers[1] = total;
  });
}
API int flcuda_can_access_peer(int device, int peer) {
  int can = 0;
  cudaDeviceCanAccessPeer(&can, device, peer);
  return can;
}
API int flcuda_synchronize(int device) {
  return guarded([&] {
    OnDevice on(device);
    the_accelerator().synchronize({DeviceType::CUDA, static_cast<int8_t>(device)});
  });
}

API int flcuda_profile(int on) {
  return guarded([&] { check(on ? cudaProfilerStart() : cudaProfilerStop(), "profiler"); });
}

// ---------------------------------------------------------------- streams and events

API int flcuda_stream_create(int device, int priority, void** out_stream) {
  return guarded([&] {
    OnDevice on(device);
    int least = 0, greatest = 0;
    check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "Stream");
    const int clamped = priority < greatest ? greatest : priority > least ? least : priority;
    cudaStream_t stream;
    check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, clamped), "Stream");
    *out_stream = stream;
  });
}
API void* flcuda_current_stream(int device) {
  return current_stream(device);
}
API void flcuda_set_stream(int device, void* stream) {
  set_current_stream(device, stream_of(stream));
}
API int flcuda_stream_query(void* stream, int* done) {
  return guarded([&] {
    const cudaError_t status = cudaStreamQuery(stream_of(stream));
    if (status == cudaErrorNotReady)
      cudaGetLastError();
    else
      check(status, "Stream.query");
    *done = status == cudaSuccess;
  });
}
API int flcuda_stream_synchronize(void* stream) {
  return guarded([&] { check(cudaStreamSynchronize(stream_of(stream)), "Stream.synchronize"); });
}
API int flcuda_stream_capturing(void* stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaStreamIsCapturing(stream_of(stream), &status);
  return status != cudaStreamCaptureStatusNone;
}
API int flcuda_event_create(int timing, int blocking, int interprocess, void** out_event) {
  return guarded([&] {
    unsigned flags = timing ? cudaEventDefault : cudaEventDisableTiming;
    if (blocking) flags |= cudaEventBlockingSync;
    if (interprocess) flags |= cudaEventInterprocess;
    cudaEvent_t event;
    check(cudaEventCreateWithFlags(&event, flags), "Event");
    *out_event = event;
  });
}
API void flcuda_event_destroy(void* event) {
  cudaEventDestroy(static_cast<cudaEvent_t>(event));
}
API int flcuda_event_record(void* event, void* stream) {
  return guarded(
      [&] { check(cudaEventRecord(static_cast<cudaEvent_t>(event), stream_of(stream)), "Event.record"); });
}
API int flcuda_event_wait(void* stream, void* event) {
  return guarded([&] {
    check(cudaStreamWaitEvent(stream_of(stream), static_cast<cudaEvent_t>(event), 0), "Stream.wait_event");
  });
}
API int flcuda_event_query(void* event, int* done) {
  return guarded([&] {
    const cudaError_t status = cudaEventQuery(static_cast<cudaEvent_t>(event));
    if (status == cudaErrorNotReady)
      cudaGetLastError();
    else
      check(status, "Event.query");
    *done = status == cudaSuccess;
  });
}
API int flcuda_event_synchronize(void* event) {
  return guarded([&] { check(cudaEventSynchronize(static_cast<cudaEvent_t>(event)), "Event.synchronize"); });
}
API int flcuda_event_elapsed(void* start, void* end, float* milliseconds) {
  return guarded([&] {
    check(cudaEventElapsedTime(milliseconds, static_cast<cudaEvent_t>(start), static_cast<cudaEvent_t>(end)),
          "Event.elapsed_time");
  });
}

// ---------------------------------------------------------------- memory

API void* flcuda_allocate(int64_t bytes, int device, void* stream) {
  void* block = nullptr;
  guarded([&] { block = allocate(bytes, device, stream_of(stream)); });
  return block;
}
API void flcuda_free(void* block, int device) {
  cuda::free(block, device);
}
API void flcuda_record_stream(void* block, int device, void* stream) {
  record_stream(block, device, stream_of(stream));
}
API void flcuda_empty_cache() {
  empty_cache();
}
API void flcuda_statistics(int device, int64_t* n) {
  const DeviceStatistics s = statistics(device);
  for (const Statistic* one :
       {&s.allocated, &s.reserved, &s.active, &s.requested, &s.allocations, &s.segments}) {
    *n++ = one->current;
    *n++ = one->peak;
    *n++ = one->total;
    *n++ = one->freed;
  }
  *n++ = s.retries;
  *n++ = s.out_of_memory;
}
API void flcuda_reset_peak(int device) {
  reset_peak(device);
}
API void flcuda_limit(int device, int64_t bytes) {
  set_memory_limit(device, bytes);
}
// The text is valid until the next call in this thread.
API const char* flcuda_snapshot(int device) {
  static thread_local std::string text;
  text = snapshot(device);
  return text.c_str();
}

// ---------------------------------------------------------------- graphs

API int flcuda_graph_begin(int device, void* stream, uint64_t pool, int mode) {
  return guarded([&] {
    begin_drawing(device);
    begin_pool(device, stream_of(stream), pool);
    const cudaError_t status =
        cudaStreamBeginCapture(stream_of(stream), static_cast<cudaStreamCaptureMode>(mode));
    if (status != cudaSuccess) {
      end_pool(device, stream_of(stream));
      end_drawing(device, nullptr);
      check(status, "CUDAGraph.capture_begin");
    }
  });
}
API int flcuda_graph_end(int device, void* stream, void** out_graph, void** executable) {
  return guarded([&] {
    cudaGraph_t graph = nullptr;
    const cudaError_t status = cudaStreamEndCapture(stream_of(stream), &graph);
    end_pool(device, stream_of(stream));
    cudaGraphExec_t exec = nullptr;
    const cudaError_t made_exec =
        status == cudaSuccess && graph
            ? cudaGraphInstantiate(&exec, graph, cudaGraphInstantiateFlagAutoFreeOnLaunch)
            : cudaSuccess;
    end_drawing(device, exec);
    check(status, "CUDAGraph.capture_end");
    FL_CHECK(graph != nullptr,
             "[CUDAGraph.capture_end] expected a capture that is valid, got one that was broken");
    check(made_exec, "CUDAGraph.capture_end");
    *out_graph = graph;
    *executable = exec;
  });
}
API int flcuda_graph_launch(void* executable, void* stream) {
  return guarded([&] {
    draw_again(static_cast<cudaGraphExec_t>(executable), stream_of(stream));
    check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(executable), stream_of(stream)), "CUDAGraph.replay");
  });
}
API void flcuda_graph_destroy(int device, void* graph, void* executable) {
  if (executable) {
    forget_drawing(static_cast<cudaGraphExec_t>(executable));
    cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(executable));
  }
  if (graph) cudaGraphDestroy(static_cast<cudaGraph_t>(graph));
}
API void flcuda_release_pool(int device, uint64_t pool) {
  release_pool(device, pool);
}

// ---------------------------------------------------------------- compiled modules

API int flcuda_load(const void* image, const char* function, int shared, void** out_function) {
  return guarded([&] { *out_function = the_accelerator().load(image, function, shared); });
}
API int flcuda_launch(void* function, const unsigned* grid, const unsigned* block, unsigned shared,
                      void* stream, void** params) {
  return guarded([&] {
    // What the parameters are is not known here, so that no launch is like another.
    cuda::driver().check(
        cuda::driver().launch(static_cast<CUfunction>(function), grid[0], grid[1], grid[2], block[0],
                              block[1], block[2], shared, static_cast<CUstream>(stream), params, nullptr),
        "launch");
    launched("launch");
  });
}
// The flag that kernels set when an index does not exist.
API void* flcuda_failure_flag() {
  return failure_flag();
}
// The toolkit's version, 13000 for 13.0.
API int flcuda_built_with() {
  return CUDART_VERSION;
}
API int flcuda_is_pinned(const void* address) {
  return the_accelerator().is_pinned(address);
}

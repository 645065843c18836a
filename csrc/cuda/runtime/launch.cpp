#include "cuda/runtime/launch.h"

#include <cstdlib>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "cuda/runtime/driver.h"

namespace fl::cuda {

namespace {

// Whether a stream is recorded and the last thing that it does is a kernel, the only thing that another one
// can begin before the end of. FLAMBEAU_EARLY_LAUNCHES=0 is for measurements.
bool follows_kernel(const Driver& driver, cudaStream_t stream) {
  static const bool wanted = [] {
    const char* value = std::getenv("FLAMBEAU_EARLY_LAUNCHES");
    return !value || *value != '0';
  }();
  if (!wanted || !driver.early || properties(current_device()).major < 9) return false;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUgraphNode* last = nullptr;
  const void* edges = nullptr;
  size_t count = 0;
  if (driver.capture_info(stream, &status, nullptr, nullptr, &last, &edges, &count) != CUDA_SUCCESS ||
      status != CU_STREAM_CAPTURE_STATUS_ACTIVE || count != 1)
    return false;
  CUgraphNodeType type;
  return driver.node_type(*last, &type) == CUDA_SUCCESS && type == CU_GRAPH_NODE_TYPE_KERNEL;
}

CUresult launch_before_end(const Driver& driver, CUfunction function, const Shape& shape, cudaStream_t stream,
                           void** parameters) {
  CUlaunchAttribute early{};
  early.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  early.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config{};
  config.gridDimX = shape.grid[0];
  config.gridDimY = shape.grid[1];
  config.gridDimZ = shape.grid[2];
  config.blockDimX = shape.block[0];
  config.blockDimY = shape.block[1];
  config.blockDimZ = shape.block[2];
  config.sharedMemBytes = shape.shared;
  config.hStream = stream;
  config.attrs = &early;
  config.numAttrs = 1;
  return driver.launch_with(&config, function, parameters, nullptr);
}

// A kernel as a thread launches it.
class Site {
 public:
  explicit Site(CUfunction function) : function_(function) {}
  ~Site() {
    if (executable_) driver().executable_destroy(executable_);
    if (graph_) driver().graph_destroy(graph_);
  }
  Site(const Site&) = delete;

  CUresult run(const Shape& shape, cudaStream_t stream, Parameters parameters) {
    const Driver& driver = cuda::driver();
    const bool alone = !driver.graphs || capturing() || launch_blocking();
    if (alone || stream != stream_ || !again_) {
      if (!alone) {
        again_ = true;
        stream_ = stream;
      }
      if (shape.waits && capturing() && follows_kernel(driver, stream))
        return launch_before_end(driver, function_, shape, stream, parameters.list);
      return driver.launch(function_, shape.grid[0], shape.grid[1], shape.grid[2], shape.block[0],
                           shape.block[1], shape.block[2], shape.shared, stream, parameters.list, nullptr);
    }
    const bool same = executable_ && parameters.size == bytes_.size() &&
                      std::memcmp(&shape, &shape_, sizeof shape) == 0 &&
                      std::memcmp(parameters.bytes, bytes_.data(), parameters.size) == 0;
    if (!same)
      if (const CUresult status = set(driver, shape, parameters); status != CUDA_SUCCESS) return status;
    return driver.graph_launch(executable_, stream);
  }

 private:
  CUresult set(const Driver& driver, const Shape& shape, Parameters parameters) {
    CUDA_KERNEL_NODE_PARAMS node{};
    node.func = function_;
    node.gridDimX = shape.grid[0];
    node.gridDimY = shape.grid[1];
    node.gridDimZ = shape.grid[2];
    node.blockDimX = shape.block[0];
    node.blockDimY = shape.block[1];
    node.blockDimZ = shape.block[2];
    node.sharedMemBytes = shape.shared;
    node.kernelParams = parameters.list;
    bytes_.clear();  // equal to nothing, should this fail
    CUresult status = CUDA_SUCCESS;
    if (executable_) {
      status = driver.graph_set_kernel(executable_, node_, &node);
    } else {
      if (!graph_) status = driver.graph_create(&graph_, 0);
      if (status == CUDA_SUCCESS && !node_)
        status = driver.graph_add_kernel(&node_, graph_, nullptr, 0, &node);
      if (status == CUDA_SUCCESS) status = driver.graph_instantiate(&executable_, graph_, 0);
    }
    if (status != CUDA_SUCCESS) return status;
    shape_ = shape;
    const char* first = static_cast<const char*>(parameters.bytes);
    bytes_.assign(first, first + parameters.size);
    return status;
  }

  CUfunction function_;
  cudaStream_t stream_ = nullptr;  // of the last launch
  bool again_ = false;
  CUgraph graph_ = nullptr;
  CUgraphNode node_ = nullptr;
  CUgraphExec executable_ = nullptr;
  Shape shape_{};
  std::vector<char> bytes_;
};

thread_local std::unordered_map<const void*, Site> sites[kMaxDevices];

}  // namespace

void launch_kernel(const void* kernel, const Shape& shape, cudaStream_t stream, Parameters parameters,
                   const char* what) {
  auto& known = sites[current_device()];
  auto at = known.find(kernel);
  if (at == known.end()) {
    cudaFunction_t function;
    check(cudaGetFuncBySymbol(&function, kernel), what);
    at = known.try_emplace(kernel, reinterpret_cast<CUfunction>(function)).first;
  }
  driver().check(at->second.run(shape, stream, parameters), what);
  launched(what);
}

void launch_loaded(void* function, const Shape& shape, cudaStream_t stream, Parameters parameters) {
  auto& known = sites[current_device()];
  auto at = known.find(function);
  if (at == known.end()) at = known.try_emplace(function, static_cast<CUfunction>(function)).first;
  driver().check(at->second.run(shape, stream, parameters), "launch");
  launched("launch");
}

}  // namespace fl::cuda

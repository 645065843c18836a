#include "cuda/convolution/convolution_plan.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "cuda/runtime/library.h"

namespace fl::cuda {

namespace {

// Numbers of cuDNN's graph interface, as it is documented.
enum Kind {
  kConvolution = 1,
  kEngine = 2,
  kEngineConfig = 3,
  kHeuristics = 4,
  kPlan = 5,
  kForward = 10,
  kFilterGradient = 11,
  kDataGradient = 12,
  kGraph = 15,
  kVariants = 16,
  kTensor = 17
};
enum Type {
  kHandleType = 0,
  kDataType = 1,
  kInt64Type = 3,
  kFloatType = 4,
  kDoubleType = 5,
  kPointerType = 6,
  kModeType = 7,
  kHeuristicType = 8,
  kNumericType = 11,
  kDescriptorType = 15,
  kBehaviorType = 19
};
enum Attribute {
  kComputeType = 100,
  kConvolutionMode = 101,
  kDilations = 102,
  kStrides = 103,
  kPaddingAfter = 104,
  kPaddingBefore = 105,
  kSpatialDims = 106,
  kHeuristicMode = 200,
  kHeuristicGraph = 201,
  kHeuristicResults = 202,
  kConfigEngine = 300,
  kPlanHandle = 400,
  kPlanConfig = 401,
  kPlanWorkspace = 402,
  kGraphHandle = 800,
  kGraphOperations = 801,
  kTensorAlignment = 900,
  kTensorType = 901,
  kTensorSizes = 902,
  kTensorStrides = 903,
  kTensorName = 906,
  kVariantNames = 1000,
  kVariantPointers = 1001,
  kVariantWorkspace = 1003,
  kNumericNotes = 1303,
  kBehaviorNotes = 1305
};
// Of an operation: alpha, beta, the convolution, and the tensors x, w and y.
struct OperationAttributes {
  Kind kind;
  int alpha, beta, convolution, x, w, y;
};
constexpr OperationAttributes kOperations[] = {{kForward, 700, 701, 702, 704, 703, 705},
                                               {kDataGradient, 706, 707, 708, 710, 709, 711},
                                               {kFilterGradient, 712, 713, 714, 716, 715, 717}};
enum NumericNote { kRoundedSums = 2, kNondeterministic = 4 };
constexpr int kCompiledAtRunTime = 0;  // the note of a behavior
constexpr int kCrossCorrelation = 1, kAdvised = 3, kFallback = 2;
constexpr int kFloat = 0, kDouble = 1;
constexpr int64_t kNames[] = {'x', 'w', 'y'};
constexpr int64_t kAlignment = 16;
constexpr int64_t kMostConfigs = 24, kMostNotes = 32;

struct Graphs {
  int (*create)(int, void**);
  int (*destroy)(void*);
  int (*set)(void*, int, int, int64_t, const void*);
  int (*get)(void*, int, int, int64_t, int64_t*, void*);
  int (*finalize)(void*);
  int (*execute)(void*, void*, void*);
  bool found = false;

  static const Graphs& library() {
    static const Graphs graphs = [] {
      Graphs g{};
      static const char* const names[] = {"libcudnn.so.9", "libcudnn.so", nullptr};
      Library library(names);
      library.find(g.create, "cudnnBackendCreateDescriptor");
      library.find(g.destroy, "cudnnBackendDestroyDescriptor");
      library.find(g.set, "cudnnBackendSetAttribute");
      library.find(g.get, "cudnnBackendGetAttribute");
      library.find(g.finalize, "cudnnBackendFinalize");
      library.find(g.execute, "cudnnBackendExecute");
      g.found = library.complete();
      return g;
    }();
    return graphs;
  }
};

// One of the library's objects. `status` is that of the first call about it, or about a part of it, that
// failed.
class Descriptor {
 public:
  explicit Descriptor(Kind kind) { status = Graphs::library().create(kind, &raw_); }
  Descriptor(Descriptor&& other) noexcept : status(other.status), raw_(std::exchange(other.raw_, nullptr)) {}
  ~Descriptor() {
    if (raw_) Graphs::library().destroy(raw_);
  }
  int status = 0;

  void* raw() const { return raw_; }
  Descriptor& set(int attribute, Type type, int64_t count, const void* values) {
    if (status == 0) status = Graphs::library().set(raw_, attribute, type, count, values);
    return *this;
  }
  Descriptor& set(int attribute, const Dims& list) {
    return set(attribute, kInt64Type, static_cast<int64_t>(list.size()), list.data());
  }
  Descriptor& set(int attribute, const Descriptor& part) {
    if (status == 0) status = part.status;
    return set(attribute, kDescriptorType, 1, &part.raw_);
  }
  void finalize() {
    if (status == 0) status = Graphs::library().finalize(raw_);
  }
  // How many values there were; -1 if that is not known.
  int64_t get(int attribute, Type type, int64_t most, void* values) const {
    int64_t count = 0;
    return status == 0 && Graphs::library().get(raw_, attribute, type, most, &count, values) == 0 ? count
                                                                                                  : -1;
  }

 private:
  void* raw_ = nullptr;
};

Descriptor tensor(int type, const ConvolutionShape::Operand& operand, int64_t name) {
  Descriptor t(kTensor);
  t.set(kTensorType, kDataType, 1, &type)
      .set(kTensorSizes, operand.sizes)
      .set(kTensorStrides, operand.strides)
      .set(kTensorAlignment, kInt64Type, 1, &kAlignment)
      .set(kTensorName, kInt64Type, 1, &name)
      .finalize();
  return t;
}

// A graph of one operation, with the descriptors that it refers to.
struct Graph {
  Descriptor convolution{kConvolution}, x, w, y, operation, whole{kGraph};

  Graph(void* handle, const ConvolutionShape& s)
      : x(tensor(s.type, s.x, kNames[0])),
        w(tensor(s.type, s.w, kNames[1])),
        y(tensor(s.type, s.y, kNames[2])),
        operation(kOperations[s.way].kind) {
    const bool wide = s.type == kDouble;
    const int compute = wide ? kDouble : kFloat;
    const int64_t space = static_cast<int64_t>(s.stride.size());
    convolution.set(kComputeType, kDataType, 1, &compute)
        .set(kConvolutionMode, kModeType, 1, &kCrossCorrelation)
        .set(kSpatialDims, kInt64Type, 1, &space)
        .set(kDilations, s.dilation)
        .set(kStrides, s.stride)
        .set(kPaddingBefore, s.padding)
        .set(kPaddingAfter, s.padding)
        .finalize();
    const OperationAttributes& names = kOperations[s.way];
    const float one = 1, zero = 0;
    const double wide_one = 1, wide_zero = 0;
    const Type scalar = wide ? kDoubleType : kFloatType;
    operation.set(names.convolution, convolution)
        .set(names.x, x)
        .set(names.w, w)
        .set(names.y, y)
        .set(names.alpha, scalar, 1, wide ? static_cast<const void*>(&wide_one) : &one)
        .set(names.beta, scalar, 1, wide ? static_cast<const void*>(&wide_zero) : &zero)
        .finalize();
    whole.set(kGraphHandle, kHandleType, 1, &handle).set(kGraphOperations, operation).finalize();
  }
};

// What the library would do, best first. Many answers cost time, and one of the first is taken.
std::vector<Descriptor> advised(const Graph& graph, int mode) {
  Descriptor heuristics(kHeuristics);
  heuristics.set(kHeuristicGraph, graph.whole).set(kHeuristicMode, kHeuristicType, 1, &mode).finalize();
  std::vector<Descriptor> configs;
  std::vector<void*> raw;
  for (int64_t i = 0; i < kMostConfigs; ++i) raw.push_back(configs.emplace_back(kEngineConfig).raw());
  const int64_t count = heuristics.get(kHeuristicResults, kDescriptorType, kMostConfigs, raw.data());
  while (static_cast<int64_t>(configs.size()) > std::max<int64_t>(count, 0)) configs.pop_back();
  return configs;
}

// Engines that are compiled when they are first used take a second each and more; the others are there at
// once.
bool suits(const Descriptor& config, const ConvolutionShape& shape) {
  const Descriptor engine(kEngine);
  void* raw = engine.raw();
  if (config.get(kConfigEngine, kDescriptorType, 1, &raw) < 1) return false;
  int notes[kMostNotes];
  int64_t count = engine.get(kBehaviorNotes, kBehaviorType, kMostNotes, notes);
  if (count < 0) return false;
  for (int64_t i = 0; i < count; ++i)
    if (notes[i] == kCompiledAtRunTime) return false;
  count = engine.get(kNumericNotes, kNumericType, kMostNotes, notes);
  if (count < 0) return false;
  for (int64_t i = 0; i < count; ++i)
    if (notes[i] == kRoundedSums || (shape.deterministic && notes[i] == kNondeterministic)) return false;
  return true;
}

}  // namespace

struct ConvolutionPlan::Parts {
  Graph graph;
  Descriptor config, plan;
};

ConvolutionPlan::ConvolutionPlan(std::unique_ptr<Parts> parts, size_t workspace)
    : parts_(std::move(parts)), workspace_(workspace) {}
ConvolutionPlan::~ConvolutionPlan() = default;

std::unique_ptr<ConvolutionPlan> ConvolutionPlan::make(void* handle, const ConvolutionShape& shape,
                                                       size_t most_workspace) {
  if (!Graphs::library().found) return nullptr;
  Graph graph(handle, shape);
  if (graph.whole.status != 0) return nullptr;
  for (const int mode : {kAdvised, kFallback})
    for (Descriptor& config : advised(graph, mode)) {
      if (!suits(config, shape)) continue;
      Descriptor plan(kPlan);
      plan.set(kPlanHandle, kHandleType, 1, &handle).set(kPlanConfig, config).finalize();
      int64_t bytes = 0;
      if (plan.get(kPlanWorkspace, kInt64Type, 1, &bytes) < 1 || bytes > static_cast<int64_t>(most_workspace))
        continue;
      std::unique_ptr<Parts> parts(new Parts{std::move(graph), std::move(config), std::move(plan)});
      return std::unique_ptr<ConvolutionPlan>(
          new ConvolutionPlan(std::move(parts), static_cast<size_t>(bytes)));
    }
  return nullptr;
}

int ConvolutionPlan::run(void* handle, const void* x, const void* w, const void* y, void* workspace) const {
  const void* pointers[] = {x, w, y};
  Descriptor variants(kVariants);
  variants.set(kVariantNames, kInt64Type, 3, kNames)
      .set(kVariantPointers, kPointerType, 3, pointers)
      .set(kVariantWorkspace, kPointerType, 1, &workspace)
      .finalize();
  return variants.status != 0 ? variants.status
                              : Graphs::library().execute(handle, parts_->plan.raw(), variants.raw());
}

}  // namespace fl::cuda

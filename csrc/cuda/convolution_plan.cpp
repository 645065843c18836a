#include "cuda/convolution_plan.h"

#include "cuda/library.h"

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
  kNoteType = 11,
  kDescriptorType = 15
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
  kEngineNotes = 1303
};
// Of an operation: alpha, beta, the convolution, and the tensors x, w and y.
struct OperationAttributes {
  Kind kind;
  int alpha, beta, convolution, x, w, y;
};
constexpr OperationAttributes kOperations[] = {{kForward, 700, 701, 702, 704, 703, 705},
                                               {kDataGradient, 706, 707, 708, 710, 709, 711},
                                               {kFilterGradient, 712, 713, 714, 716, 715, 717}};
constexpr int kCrossCorrelation = 1, kAdvised = 3, kFallback = 2;
constexpr int kTensorCoreNote = 0, kRoundedInputsNote = 1;
constexpr int kFloat = 0, kDouble = 1;
constexpr int64_t kNames[] = {'x', 'w', 'y'};
constexpr int64_t kAlignment = 16;

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

// Descriptors in the making; `good` until something is refused.
class Maker {
 public:
  explicit Maker(std::vector<void*>& parts) : parts_(parts) {}
  bool good = true;

  void* create(Kind kind) {
    void* made = nullptr;
    good = good && Graphs::library().create(kind, &made) == 0;
    if (made) parts_.push_back(made);
    return made;
  }
  void set(void* of, int attribute, Type type, int64_t count, const void* values) {
    good = good && Graphs::library().set(of, attribute, type, count, values) == 0;
  }
  void set(void* of, int attribute, const Dims& list) {
    set(of, attribute, kInt64Type, static_cast<int64_t>(list.size()), list.data());
  }
  void set(void* of, int attribute, void* descriptor) { set(of, attribute, kDescriptorType, 1, &descriptor); }
  void finalize(void* made) { good = good && Graphs::library().finalize(made) == 0; }

 private:
  std::vector<void*>& parts_;
};

Dims strides_of(const Dims& sizes, bool last) {
  if (last) return channels_last_strides(sizes);
  Dims strides(sizes.size());
  int64_t step = 1;
  for (size_t d = sizes.size(); d-- > 0; step *= sizes[d]) strides[d] = step;
  return strides;
}

void* tensor(Maker& make, const ConvolutionShape& shape, const Dims& sizes, int64_t name) {
  void* t = make.create(kTensor);
  make.set(t, kTensorType, kDataType, 1, &shape.type);
  make.set(t, kTensorSizes, sizes);
  make.set(t, kTensorStrides, strides_of(sizes, shape.last));
  make.set(t, kTensorAlignment, kInt64Type, 1, &kAlignment);
  make.set(t, kTensorName, kInt64Type, 1, &name);
  make.finalize(t);
  return t;
}

void* graph_of(Maker& make, void* handle, const ConvolutionShape& s) {
  void* c = make.create(kConvolution);
  const int compute = s.type == kDouble ? kDouble : kFloat;
  const int64_t space = static_cast<int64_t>(s.stride.size());
  make.set(c, kComputeType, kDataType, 1, &compute);
  make.set(c, kConvolutionMode, kModeType, 1, &kCrossCorrelation);
  make.set(c, kSpatialDims, kInt64Type, 1, &space);
  make.set(c, kDilations, s.dilation);
  make.set(c, kStrides, s.stride);
  make.set(c, kPaddingBefore, s.padding);
  make.set(c, kPaddingAfter, s.padding);
  make.finalize(c);
  const OperationAttributes& names = kOperations[s.way];
  void* x = tensor(make, s, s.x, kNames[0]);
  void* w = tensor(make, s, s.w, kNames[1]);
  void* y = tensor(make, s, s.y, kNames[2]);
  void* operation = make.create(names.kind);
  const float one = 1, zero = 0;
  const double wide_one = 1, wide_zero = 0;
  const bool wide = compute == kDouble;
  const Type scalar = wide ? kDoubleType : kFloatType;
  make.set(operation, names.convolution, c);
  make.set(operation, names.x, x);
  make.set(operation, names.w, w);
  make.set(operation, names.y, y);
  make.set(operation, names.alpha, scalar, 1, wide ? static_cast<const void*>(&wide_one) : &one);
  make.set(operation, names.beta, scalar, 1, wide ? static_cast<const void*>(&wide_zero) : &zero);
  make.finalize(operation);
  void* graph = make.create(kGraph);
  make.set(graph, kGraphHandle, kHandleType, 1, &handle);
  make.set(graph, kGraphOperations, operation);
  make.finalize(graph);
  return graph;
}

// Whether an engine computes in fewer bits than float has.
bool rounds(Maker& make, void* config) {
  void* engine = make.create(kEngine);
  if (!make.good) return true;
  const Graphs& g = Graphs::library();
  int64_t count = 0;
  int notes[32];
  if (g.get(config, kConfigEngine, kDescriptorType, 1, &count, &engine) != 0 ||
      g.get(engine, kEngineNotes, kNoteType, 32, &count, notes) != 0)
    return true;
  for (int64_t i = 0; i < count && i < 32; ++i)
    if (notes[i] == kTensorCoreNote || notes[i] == kRoundedInputsNote) return true;
  return false;
}

}  // namespace

std::unique_ptr<ConvolutionPlan> ConvolutionPlan::make(void* handle, const ConvolutionShape& shape,
                                                       size_t most_workspace) {
  const Graphs& g = Graphs::library();
  if (!g.found) return nullptr;
  std::unique_ptr<ConvolutionPlan> made(new ConvolutionPlan);
  Maker make(made->parts_);
  void* graph = graph_of(make, handle, shape);
  if (!make.good) return nullptr;
  const bool exact = shape.type == kFloat && !shape.rounding;
  for (const int mode : {kAdvised, kFallback}) {
    void* advice = make.create(kHeuristics);
    make.set(advice, kHeuristicGraph, graph);
    make.set(advice, kHeuristicMode, kHeuristicType, 1, &mode);
    make.finalize(advice);
    int64_t count = 0;
    if (!make.good || g.get(advice, kHeuristicResults, kDescriptorType, 0, &count, nullptr) != 0) {
      make.good = true;
      continue;
    }
    std::vector<void*> configs;
    for (int64_t i = 0; i < count; ++i) configs.push_back(make.create(kEngineConfig));
    if (!make.good || count == 0 ||
        g.get(advice, kHeuristicResults, kDescriptorType, count, &count, configs.data()) != 0) {
      make.good = true;
      continue;
    }
    for (int64_t i = 0; i < count; ++i) {
      if (exact && rounds(make, configs[i])) continue;
      Maker attempt(made->parts_);
      void* plan = attempt.create(kPlan);
      attempt.set(plan, kPlanHandle, kHandleType, 1, &handle);
      attempt.set(plan, kPlanConfig, configs[i]);
      attempt.finalize(plan);
      int64_t bytes = 0, one = 0;
      if (!attempt.good || g.get(plan, kPlanWorkspace, kInt64Type, 1, &one, &bytes) != 0 ||
          bytes > static_cast<int64_t>(most_workspace))
        continue;
      made->plan_ = plan;
      made->workspace_ = static_cast<size_t>(bytes);
      return made;
    }
  }
  return nullptr;
}

ConvolutionPlan::~ConvolutionPlan() {
  for (size_t i = parts_.size(); i-- > 0;) Graphs::library().destroy(parts_[i]);
}

bool ConvolutionPlan::run(void* handle, const void* x, const void* w, const void* y, void* workspace) const {
  std::vector<void*> parts;
  Maker make(parts);
  const void* pointers[] = {x, w, y};
  void* variants = make.create(kVariants);
  make.set(variants, kVariantNames, kInt64Type, 3, kNames);
  make.set(variants, kVariantPointers, kPointerType, 3, pointers);
  make.set(variants, kVariantWorkspace, kPointerType, 1, &workspace);
  make.finalize(variants);
  const bool ran = make.good && Graphs::library().execute(handle, plan_, variants) == 0;
  for (void* part : parts) Graphs::library().destroy(part);
  return ran;
}

}  // namespace fl::cuda

// Convolutions by cuDNN, which is opened at run time: by plans of its graphs (convolution_plan.h) where it
// has them, else by its functions; the few declarations that are needed stand here. Depthwise ones go by
// kernels of this library (depthwise.h). Memory format is the input's: channels-last tensors stay so. What
// cuDNN does not take (integers, no library) goes by the operator's definition.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>

#include "cuda/convolution/convolution_plan.h"
#include "cuda/convolution/depthwise.h"
#include "cuda/engine/kernels.h"
#include "cuda/runtime/library.h"
#include "dispatch/kernel.h"

namespace fl::cuda {

namespace {

// ---------------------------------------------------------------- cuDNN as it is documented

using Handle = void*;
using Descriptor = void*;
struct Performance {
  int algorithm, status;
  float time;
  size_t memory;
  int determinism, math, reserved[3];
};

struct Cudnn {
  int (*create)(Handle*);
  int (*set_stream)(Handle, cudaStream_t);
  int (*tensor_create)(Descriptor*);
  int (*tensor_set)(Descriptor, int, int, const int*, const int*);
  int (*tensor_destroy)(Descriptor);
  int (*filter_create)(Descriptor*);
  int (*filter_set)(Descriptor, int, int, int, const int*);
  int (*filter_destroy)(Descriptor);
  int (*convolution_create)(Descriptor*);
  int (*convolution_set)(Descriptor, int, const int*, const int*, const int*, int, int);
  int (*convolution_groups)(Descriptor, int);
  int (*convolution_math)(Descriptor, int);
  int (*convolution_destroy)(Descriptor);
  int (*forward_choose)(Handle, Descriptor, Descriptor, Descriptor, Descriptor, int, int*, Performance*);
  int (*data_choose)(Handle, Descriptor, Descriptor, Descriptor, Descriptor, int, int*, Performance*);
  int (*filter_choose)(Handle, Descriptor, Descriptor, Descriptor, Descriptor, int, int*, Performance*);
  int (*forward)(Handle, const void*, Descriptor, const void*, Descriptor, const void*, Descriptor, int,
                 void*, size_t, const void*, Descriptor, void*);
  int (*data)(Handle, const void*, Descriptor, const void*, Descriptor, const void*, Descriptor, int, void*,
              size_t, const void*, Descriptor, void*);
  int (*filter)(Handle, const void*, Descriptor, const void*, Descriptor, const void*, Descriptor, int, void*,
                size_t, const void*, Descriptor, void*);
  size_t (*version)();
  Handle handles[kMaxDevices] = {};
  cudaStream_t streams[kMaxDevices] = {};  // that the handles were told
  bool has_stream[kMaxDevices] = {};
  bool found = false;

  static Cudnn& get() {
    static Cudnn cudnn = [] {
      Cudnn c{};
      const char* wanted = std::getenv("FLAMBEAU_CUDNN");
      if (wanted && std::strcmp(wanted, "0") == 0) return c;
      static const char* const names[] = {"libcudnn.so.9", "libcudnn.so", nullptr};
      Library library(names);
      library.find(c.version, "cudnnGetVersion");
      library.find(c.create, "cudnnCreate");
      library.find(c.set_stream, "cudnnSetStream");
      library.find(c.tensor_create, "cudnnCreateTensorDescriptor");
      library.find(c.tensor_set, "cudnnSetTensorNdDescriptor");
      library.find(c.tensor_destroy, "cudnnDestroyTensorDescriptor");
      library.find(c.filter_create, "cudnnCreateFilterDescriptor");
      library.find(c.filter_set, "cudnnSetFilterNdDescriptor");
      library.find(c.filter_destroy, "cudnnDestroyFilterDescriptor");
      library.find(c.convolution_create, "cudnnCreateConvolutionDescriptor");
      library.find(c.convolution_set, "cudnnSetConvolutionNdDescriptor");
      library.find(c.convolution_groups, "cudnnSetConvolutionGroupCount");
      library.find(c.convolution_math, "cudnnSetConvolutionMathType");
      library.find(c.convolution_destroy, "cudnnDestroyConvolutionDescriptor");
      library.find(c.forward_choose, "cudnnGetConvolutionForwardAlgorithm_v7");
      library.find(c.data_choose, "cudnnGetConvolutionBackwardDataAlgorithm_v7");
      library.find(c.filter_choose, "cudnnGetConvolutionBackwardFilterAlgorithm_v7");
      library.find(c.forward, "cudnnConvolutionForward");
      library.find(c.data, "cudnnConvolutionBackwardData");
      library.find(c.filter, "cudnnConvolutionBackwardFilter");
      c.found = library.complete();
      return c;
    }();
    return cudnn;
  }
};

constexpr int kCrossCorrelation = 1, kFloatType = 0, kDoubleType = 1;
constexpr int kMathDefault = 0, kMathTensor = 1, kMathFma = 3;
constexpr size_t kMostWorkspace = size_t(1) << 30, kMostPlans = 4096;

int cudnn_type(DType t) {
  switch (t) {
    case DType::Float:
      return 0;
    case DType::Double:
      return 1;
    case DType::Half:
      return 2;
    case DType::BFloat16:
      return 9;
    default:
      return -1;
  }
}

void check_cudnn(int status, const char* what) {
  FL_CHECK(status == 0, "[convolution] cuDNN error ", status, " in ", what);
}

struct TensorDescriptor {
  Descriptor handle;
  explicit TensorDescriptor(const Tensor& t) {
    Cudnn& c = Cudnn::get();
    check_cudnn(c.tensor_create(&handle), "tensor");
    int sizes[8], strides[8];
    for (int64_t d = 0; d < t.dim(); ++d) {
      sizes[d] = static_cast<int>(t.size(d));
      strides[d] = static_cast<int>(t.stride(d));
    }
    check_cudnn(c.tensor_set(handle, cudnn_type(t.dtype()), static_cast<int>(t.dim()), sizes, strides),
                "tensor");
  }
  ~TensorDescriptor() { Cudnn::get().tensor_destroy(handle); }
};

bool aligned(const Tensor& t) {
  return reinterpret_cast<uintptr_t>(t.raw()) % 16 == 0;
}

// Channels-last or contiguous, with strides that say so even for sizes of one (the library refuses tensors
// that seem to differ in format), at an address that it reads words of 16 bytes from.
Tensor in_format(const Tensor& tensor, bool last) {
  Tensor t = tensor;
  if (!aligned(tensor)) {
    t = empty_like(tensor, tensor.dtype());
    copy_into(t, tensor);
  }
  if (!last) {
    t = contiguous(t);
    return alias(t, t.sizes(), contiguous_strides(t.sizes()), t.offset());
  }
  const MemoryFormat format = t.dim() == 4 ? MemoryFormat::ChannelsLast : MemoryFormat::ChannelsLast3d;
  const Dims strides = channels_last_strides(t.sizes());
  if (t.is_contiguous(format)) return alias(t, t.sizes(), strides, t.offset());
  const Tensor out = empty_strided(t.sizes(), strides, t.options());
  copy_into(out, t);
  return out;
}
Tensor empty_in_format(IntSpan sizes, bool last, Options options) {
  return last ? empty_strided(sizes, channels_last_strides(sizes), options) : empty(sizes, options);
}

bool channels_last(const Tensor& t) {
  if (t.dim() != 4 && t.dim() != 5) return false;
  return !t.is_contiguous() &&
         t.is_contiguous(t.dim() == 4 ? MemoryFormat::ChannelsLast : MemoryFormat::ChannelsLast3d);
}

// A convolution of at least two spatial dimensions: a 1-d one is seen as 2-d of height one.
struct Problem {
  Tensor x, w, y;  // in the words of the plain direction: y = conv(x, w)
  Dims stride, padding, dilation;
  int64_t groups;
  bool last;
  Tensor bias;  // of depthwise convolutions, forward
};

enum class Way { Forward, Data, Filter };

struct Choice {
  int algorithm, math;
  size_t workspace;
};

// Whether operands in single precision may be rounded to TF32: they may, unlike those of products. Whether
// results must have the same bits in every run.
std::atomic<bool> tf32{true}, deterministic{false};

// All that decides what runs.
std::string geometry_of(const Problem& p, Way way, int math) {
  std::string key;
  key.reserve(256);
  const auto add = [&](int64_t v) { key.append(reinterpret_cast<const char*>(&v), sizeof v); };
  for (int64_t v : {int64_t(way), int64_t(p.x.device().index), int64_t(p.x.dtype()), int64_t(math), p.groups,
                    int64_t(p.last), int64_t(deterministic)})
    add(v);
  for (const Tensor* t : {&p.x, &p.w, &p.y})
    for (int64_t v : t->sizes()) add(v);
  for (const Dims* list : {&p.stride, &p.padding, &p.dilation})
    for (int64_t v : *list) add(v);
  return key;
}

// The library's answer that it has nothing for a problem: a parameter it does not take, or what it does not
// support, in the numbers of its versions 8 and 9.
bool is_refusal(int status) {
  return status == 3 || status == 9 || (status >= 2000 && status < 4000);
}

// By a plan that is kept with the geometry; false where there is none. None are made while a graph is
// recorded: that might load kernels. Nor for float without rounding: the engines that are left of the first
// ones advised are slower than what the functions take.
bool run_planned(const Problem& p, Way way, int math, const std::string& key, Handle handle,
                 cudaStream_t stream) {
  static const bool wanted = [] {
    const char* setting = std::getenv("FLAMBEAU_CUDNN");
    return !setting || std::strcmp(setting, "functions") != 0;
  }();
  if (!wanted || math == kMathFma) return false;
  static auto* plans = new std::unordered_map<std::string, std::unique_ptr<ConvolutionPlan>>;
  auto it = plans->find(key);
  if (it == plans->end()) {
    if (capturing()) return false;
    if (plans->size() >= kMostPlans) plans->clear();
    const auto operand = [](const Tensor& t) {
      return ConvolutionShape::Operand{Dims(t.sizes()), Dims(t.strides())};
    };
    const ConvolutionShape shape{static_cast<int>(way),
                                 cudnn_type(p.x.dtype()),
                                 deterministic,
                                 operand(p.x),
                                 operand(p.w),
                                 operand(p.y),
                                 p.stride,
                                 p.padding,
                                 p.dilation};
    it = plans->emplace(key, ConvolutionPlan::make(handle, shape, kMostWorkspace)).first;
  }
  if (!it->second) return false;
  Scratch workspace(it->second->workspace(), p.x.device().index, stream);
  const int status = it->second->run(handle, p.x.raw(), p.w.raw(), p.y.raw(), workspace.get());
  if (is_refusal(status)) {
    it->second.reset();
    return false;
  }
  check_cudnn(status, "the convolution");
  check_launch("convolution");
  return true;
}

// The handle of a device, on the current stream.
Handle handle_of(Cudnn& c, int device) {
  if (!c.handles[device]) check_cudnn(c.create(&c.handles[device]), "cudnnCreate");
  const Handle handle = c.handles[device];
  const cudaStream_t stream = current_stream();
  if (!c.has_stream[device] || c.streams[device] != stream) {
    check_cudnn(c.set_stream(handle, stream), "cudnnSetStream");
    c.streams[device] = stream;
    c.has_stream[device] = true;
  }
  return handle;
}

struct FilterAndConvolution {
  Descriptor filter = nullptr, convolution = nullptr;
  FilterAndConvolution() = default;
  ~FilterAndConvolution() {
    if (filter) Cudnn::get().filter_destroy(filter);
    if (convolution) Cudnn::get().convolution_destroy(convolution);
  }
  FilterAndConvolution(const FilterAndConvolution&) = delete;
  FilterAndConvolution& operator=(const FilterAndConvolution&) = delete;
};

// The library's descriptions of a problem.
struct Descriptors : FilterAndConvolution {
  TensorDescriptor x, y;

  Descriptors(const Problem& p, int type, int math) : x(p.x), y(p.y) {
    Cudnn& c = Cudnn::get();
    const int nd = static_cast<int>(p.x.dim()), space = nd - 2;
    int sizes[8], pads[6], steps[6], spreads[6];
    for (int d = 0; d < nd; ++d) sizes[d] = static_cast<int>(p.w.size(d));
    for (int d = 0; d < space; ++d) {
      pads[d] = static_cast<int>(p.padding[d]);
      steps[d] = static_cast<int>(p.stride[d]);
      spreads[d] = static_cast<int>(p.dilation[d]);
    }
    check_cudnn(c.filter_create(&filter), "filter");
    check_cudnn(c.filter_set(filter, type, p.last ? 1 : 0, nd, sizes), "filter");
    check_cudnn(c.convolution_create(&convolution), "convolution");
    check_cudnn(c.convolution_set(convolution, space, pads, steps, spreads, kCrossCorrelation,
                                  type == kDoubleType ? kDoubleType : kFloatType),
                "convolution");
    check_cudnn(c.convolution_groups(convolution, static_cast<int>(p.groups)), "groups");
    check_cudnn(c.convolution_math(convolution, math), "math");
  }
};

// The algorithm that the library advises; one of number -1 where it has none.
Choice choose(Cudnn& c, Handle handle, const Descriptors& d, Way way) {
  Performance advice[8];
  int count = 0;
  const int status =
      way == Way::Forward
          ? c.forward_choose(handle, d.x.handle, d.filter, d.convolution, d.y.handle, 8, &count, advice)
      : way == Way::Data
          ? c.data_choose(handle, d.filter, d.y.handle, d.convolution, d.x.handle, 8, &count, advice)
          : c.filter_choose(handle, d.x.handle, d.y.handle, d.convolution, d.filter, 8, &count, advice);
  if (!is_refusal(status)) check_cudnn(status, "the choice of an algorithm");
  for (int i = 0; i < count; ++i)
    if (advice[i].status == 0 && advice[i].memory <= kMostWorkspace &&
        (advice[i].determinism == 1 || !deterministic))
      return {advice[i].algorithm, advice[i].math, advice[i].memory};
  return {-1, 0, 0};
}

// Runs the chosen algorithm; returns the library's status.
int run_chosen(Cudnn& c, Handle handle, const Problem& p, const Descriptors& d, Way way, int type,
               const Choice& choice) {
  Scratch workspace(choice.workspace, p.x.device().index, current_stream());
  const double one_d = 1, zero_d = 0;
  const float one_f = 1, zero_f = 0;
  const void* one = type == kDoubleType ? static_cast<const void*>(&one_d) : &one_f;
  const void* zero = type == kDoubleType ? static_cast<const void*>(&zero_d) : &zero_f;
  switch (way) {
    case Way::Forward:
      return c.forward(handle, one, d.x.handle, p.x.raw(), d.filter, p.w.raw(), d.convolution,
                       choice.algorithm, workspace.get(), choice.workspace, zero, d.y.handle, p.y.raw());
    case Way::Data:
      return c.data(handle, one, d.filter, p.w.raw(), d.y.handle, p.y.raw(), d.convolution, choice.algorithm,
                    workspace.get(), choice.workspace, zero, d.x.handle, p.x.raw());
    default:
      return c.filter(handle, one, d.x.handle, p.x.raw(), d.y.handle, p.y.raw(), d.convolution,
                      choice.algorithm, workspace.get(), choice.workspace, zero, d.filter, p.w.raw());
  }
}

// False where the library has no algorithm.
bool run(const Problem& p, Way way) {
  Cudnn& c = Cudnn::get();
  const int device = p.x.device().index;
  OnDevice on(device);
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);  // a handle serves one thread at a time
  const Handle handle = handle_of(c, device);
  const int math = is_reduced(p.x.dtype()) ? kMathTensor : tf32 ? kMathDefault : kMathFma;
  const std::string key = geometry_of(p, way, math);
  if (run_planned(p, way, math, key, handle, current_stream())) return true;
  const int type = cudnn_type(p.x.dtype());
  const Descriptors descriptors(p, type, math);
  static auto* choices = new std::map<std::string, Choice>;  // by geometry
  auto it = choices->find(key);
  if (it == choices->end()) it = choices->emplace(key, choose(c, handle, descriptors, way)).first;
  Choice& choice = it->second;
  if (choice.algorithm < 0) return false;
  check_cudnn(c.convolution_math(descriptors.convolution, math == kMathFma ? math : choice.math), "math");
  const int status = run_chosen(c, handle, p, descriptors, way, type, choice);
  if (is_refusal(status)) {
    choice.algorithm = -1;
    return false;
  }
  check_cudnn(status, "the convolution");
  check_launch("convolution");
  return true;
}

// Whether each channel has a filter of its own, and its kernels can count the elements.
bool is_depthwise(const Problem& p) {
  constexpr int64_t most = (int64_t(1) << 31) - (1 << 16);
  return p.groups > 1 && p.x.dim() == 4 && p.x.size(1) == p.groups && p.w.size(0) == p.groups &&
         p.x.numel() < most && p.y.numel() < most && p.w.numel() < most;
}

void run_depthwise(const Problem& p, Way way) {
  const auto axis = [&](int d) {
    const auto number = [](int64_t v) { return static_cast<int>(v); };
    return depthwise::Problem::Axis{number(p.x.size(2 + d)), number(p.y.size(2 + d)), number(p.w.size(2 + d)),
                                    number(p.stride[d]),     number(p.padding[d]),    number(p.dilation[d])};
  };
  const int device = p.x.device().index;
  const OnDevice on(device);
  const cudaStream_t stream = current_stream();
  const depthwise::Problem problem{
      p.x.dtype(), p.last,  static_cast<int>(p.x.size(0)),         static_cast<int>(p.groups),
      axis(0),     axis(1), properties(device).multiProcessorCount};
  if (way == Way::Forward)
    return depthwise::forward(problem, p.x.raw(), p.w.raw(), p.bias.defined() ? p.bias.raw() : nullptr,
                              p.y.raw(), stream);
  if (way == Way::Data) return depthwise::input_gradient(problem, p.y.raw(), p.w.raw(), p.x.raw(), stream);
  const Scratch parts(depthwise::bytes_of_parts(problem), device, stream);
  depthwise::weight_gradient(problem, p.x.raw(), p.y.raw(), parts.get(), p.w.raw(), stream);
}

// By what serves best, where need be over copies whose channels are outermost: with channels innermost the
// library has nothing for float without rounding.
bool run_somehow(const Problem& p, Way way) {
  if (is_depthwise(p)) {
    run_depthwise(p, way);
    return true;
  }
  if (run(p, way)) return true;
  if (!p.last) return false;
  const auto outermost = [](const Tensor& t, bool written) {
    const Tensor result = empty(t.sizes(), t.options());
    if (!written) copy_into(result, t);
    return result;
  };
  Problem q = p;
  q.last = false;
  q.x = outermost(p.x, way == Way::Data);
  q.w = outermost(p.w, way == Way::Filter);
  q.y = outermost(p.y, way == Way::Forward);
  if (!run(q, way)) return false;
  if (way == Way::Data)
    copy_into(p.x, q.x);
  else if (way == Way::Filter)
    copy_into(p.w, q.w);
  else
    copy_into(p.y, q.y);
  return true;
}

// ---------------------------------------------------------------- operators

Dims for_space(IntSpan values, int64_t space) {
  Dims out(space);
  for (int64_t d = 0; d < space; ++d) out[d] = values.size() == 1 ? values[0] : values[d];
  return out;
}
// (N, C, L) as (N, C, 1, L).
Tensor with_height(const Tensor& t) {
  if (t.dim() != 3) return t;
  return alias(t, {t.size(0), t.size(1), 1, t.size(2)},
               {t.stride(0), t.stride(1), t.stride(2) * t.size(2), t.stride(2)}, t.offset());
}
void widen(Dims& list, int64_t first) {
  if (list.size() == 1) list.insert(0, first);
}

bool usable(const Tensor& input, const Tensor& weight) {
  return Cudnn::get().found && cudnn_type(input.dtype()) >= 0 && input.dtype() == weight.dtype() &&
         input.dim() >= 3 && input.dim() <= 5 && input.dim() == weight.dim() && input.numel() > 0 &&
         weight.numel() > 0;
}
// Whether cuDNN has algorithms for channels last; where it has none, results are laid out afterwards.
bool has_last(const Tensor& input) {
  return input.dim() > 3 && input.dtype() != DType::Double;
}
// What a convolution was asked for, whichever of its operators that was.
struct Request {
  Tensor input, weight, bias;
  IntSpan stride, padding, dilation, extra;
  bool transposed;
  int64_t groups;
};

// Undefined where the library has nothing.
Tensor computed(const Request& r) {
  const Tensor &input = r.input, &weight = r.weight;
  const int64_t space = input.dim() - 2, groups = r.groups;
  const bool transposed = r.transposed;
  Problem p;
  p.stride = for_space(r.stride, space);
  p.padding = for_space(r.padding, space);
  p.dilation = for_space(r.dilation, space);
  const Dims extra = for_space(r.extra, space);
  p.groups = groups;
  FL_CHECK((transposed ? weight.size(0) : weight.size(1) * groups) == input.size(1),
           "[convolution] expected input of ", transposed ? weight.size(0) : weight.size(1) * groups,
           " channels, got shape ", input.sizes());
  Dims sizes;
  sizes.push_back(input.size(0));
  sizes.push_back(transposed ? weight.size(1) * groups : weight.size(0));
  for (int64_t d = 0; d < space; ++d) {
    const int64_t reach = p.dilation[d] * (weight.size(2 + d) - 1) + 1;
    const int64_t n = transposed ? (input.size(2 + d) - 1) * p.stride[d] - 2 * p.padding[d] + reach + extra[d]
                                 : (input.size(2 + d) + 2 * p.padding[d] - reach) / p.stride[d] + 1;
    FL_CHECK(n > 0 && input.size(2 + d) + 2 * p.padding[d] >= (transposed ? 1 : reach),
             "[convolution] expected a kernel no larger than the padded input, got input ", input.sizes(),
             " and weight ", weight.sizes());
    sizes.push_back(n);
  }
  OnDevice on(input.device().index);
  p.last = has_last(input) && (channels_last(input) || channels_last(weight));
  const Tensor out = empty_in_format(sizes, p.last, input.options());
  const Tensor x = in_format(input, p.last), w = in_format(weight, p.last);
  p.x = with_height(transposed ? out : x);
  p.y = with_height(transposed ? x : out);
  p.w = with_height(w);
  widen(p.stride, 1);
  widen(p.padding, 0);
  widen(p.dilation, 1);
  if (r.bias.defined() && !transposed && r.bias.dtype() == input.dtype() && is_depthwise(p))
    p.bias = in_format(r.bias, false);
  if (!run_somehow(p, transposed ? Way::Data : Way::Forward)) return Tensor();
  if (r.bias.defined() && !p.bias.defined()) {
    static const Operator& add = OperatorTable::get().at("add_.Tensor");
    Dims shape(out.dim()), strides(out.dim());
    for (int64_t d = 0; d < out.dim(); ++d) shape[d] = 1;
    shape[1] = r.bias.size(0);
    strides[1] = r.bias.stride(0);
    call_tensor(add, out, alias(r.bias, shape, strides, r.bias.offset()), Scalar(int64_t(1)));
  }
  return out;
}

void serve(const Request& r, const Operator& op, KeySet keys, Value* args, Value* results) {
  check_on_device(op, args);
  const Described described(op, args);
  if (!usable(r.input, r.weight)) return by_definition(op, keys, args, results);
  results[0] = Value(computed(r));
  described.lay_out(results);
}
// (input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
void convolution(const Operator& op, void*, KeySet keys, Value* args, Value* results) {
  serve({args[0].tensor(), args[1].tensor(), args[2].tensor(), args[3].ints(), args[4].ints(), args[5].ints(),
         args[7].ints(), args[6].to_bool(), args[8].to_int()},
        op, keys, args, results);
}
// (input, weight, bias, stride, padding, dilation, groups)
void forward(const Operator& op, void*, KeySet keys, Value* args, Value* results) {
  static const int64_t none = 0;
  serve({args[0].tensor(), args[1].tensor(), args[2].tensor(), args[3].ints(), args[4].ints(), args[5].ints(),
         IntSpan(&none, 1), false, args[6].to_int()},
        op, keys, args, results);
}
// (input, weight, bias, stride, padding, output_padding, groups, dilation)
void transposed(const Operator& op, void*, KeySet keys, Value* args, Value* results) {
  serve({args[0].tensor(), args[1].tensor(), args[2].tensor(), args[3].ints(), args[4].ints(), args[7].ints(),
         args[5].ints(), true, args[6].to_int()},
        op, keys, args, results);
}

void convolution_backward(const Operator& op, void*, KeySet keys, Value* args, Value* results) {
  check_on_device(op, args);
  const Described described(op, args);
  const Tensor grad = args[0].tensor(), input = args[1].tensor(), weight = args[2].tensor();
  if (!usable(input, weight) || grad.dtype() != input.dtype() || grad.numel() == 0)
    return by_definition(op, keys, args, results);
  const int64_t space = input.dim() - 2;
  const bool transposed = args[6].to_bool();
  const bool* mask = args[9].bools();
  OnDevice on(input.device().index);
  Problem p;
  p.stride = for_space(args[3].ints(), space);
  p.padding = for_space(args[4].ints(), space);
  p.dilation = for_space(args[5].ints(), space);
  p.groups = args[8].to_int();
  // The layout of the input's gradient is the input's or the weight's; where it is not wanted, nobody sees
  // which.
  p.last =
      has_last(input) && (channels_last(input) || channels_last(weight) || (!mask[0] && channels_last(grad)));
  widen(p.stride, 1);
  widen(p.padding, 0);
  widen(p.dilation, 1);
  const Tensor g = in_format(grad, p.last), none = empty({0}, input.options());
  Tensor by_input = none, by_weight = none, by_bias = none;
  if (mask[0]) {
    by_input = empty_in_format(input.sizes(), p.last, input.options());
    p.w = with_height(in_format(weight, p.last));
    p.x = with_height(transposed ? g : by_input);
    p.y = with_height(transposed ? by_input : g);
    if (!run_somehow(p, transposed ? Way::Forward : Way::Data)) return by_definition(op, keys, args, results);
  }
  if (mask[1]) {
    by_weight = empty_in_format(weight.sizes(), p.last, weight.options());
    const Tensor x = in_format(input, p.last);
    p.w = with_height(by_weight);
    p.x = with_height(transposed ? g : x);
    p.y = with_height(transposed ? x : g);
    if (!run_somehow(p, Way::Filter)) return by_definition(op, keys, args, results);
    by_weight = contiguous(by_weight);  // as everywhere: its strides do not depend on the weight's
  }
  if (mask[2]) {
    static const Operator& sum = OperatorTable::get().at("sum");
    std::vector<int64_t> dims{0};
    for (int64_t d = 2; d < grad.dim(); ++d) dims.push_back(d);
    Value arguments[4] = {Value(g), Value(dims), Value(false), Value()}, result[1];
    sum.call(arguments, result);
    by_bias = result[0].take_tensor();
  }
  results[0] = Value(by_input);
  results[1] = Value(by_weight);
  results[2] = Value(by_bias);
  described.lay_out(results);
}

const detail::Register plain{"convolution", {Key::CUDA}, Kernel{convolution, nullptr}};
const detail::Register named{"_convolution", {Key::CUDA}, Kernel{convolution, nullptr}};
const detail::Register line{"conv1d", {Key::CUDA}, Kernel{forward, nullptr}};
const detail::Register plane{"conv2d", {Key::CUDA}, Kernel{forward, nullptr}};
const detail::Register volume{"conv3d", {Key::CUDA}, Kernel{forward, nullptr}};
const detail::Register line_back{"conv_transpose1d", {Key::CUDA}, Kernel{transposed, nullptr}};
const detail::Register plane_back{"conv_transpose2d", {Key::CUDA}, Kernel{transposed, nullptr}};
const detail::Register volume_back{"conv_transpose3d", {Key::CUDA}, Kernel{transposed, nullptr}};
const detail::Register backward{"_convolution_backward", {Key::CUDA}, Kernel{convolution_backward, nullptr}};

}  // namespace
}  // namespace fl::cuda

// Of cuDNN; 0 without one.
extern "C" __attribute__((visibility("default"))) int64_t flcuda_cudnn_version() {
  const fl::cuda::Cudnn& cudnn = fl::cuda::Cudnn::get();
  return cudnn.found ? static_cast<int64_t>(cudnn.version()) : 0;
}
extern "C" __attribute__((visibility("default"))) void flcuda_set_convolution_tf32(int on) {
  fl::cuda::tf32 = on != 0;
}
extern "C" __attribute__((visibility("default"))) void flcuda_set_convolution_deterministic(int on) {
  fl::cuda::deterministic = on != 0;
}

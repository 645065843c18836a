// Options of functions and of modules that are functions: what is set goes into the call as keyword
// arguments.
#pragma once

#include <flambeau/torch/arg.h>
#include <flambeau/torch/functions.h>

#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace torch {

// Names that options take, such as reduction(torch::kNone).
struct OptionName {
  const char* text;
  operator std::string() const { return text; }
};
#define FL_NAME(constant, text) inline constexpr OptionName constant{text};
FL_NAME(kNone, "none")
FL_NAME(kMean, "mean")
FL_NAME(kSum, "sum")
FL_NAME(kBatchMean, "batchmean")
FL_NAME(kConstant, "constant")
FL_NAME(kReflect, "reflect")
FL_NAME(kReplicate, "replicate")
FL_NAME(kCircular, "circular")
FL_NAME(kZeros, "zeros")
FL_NAME(kBorder, "border")
FL_NAME(kReflection, "reflection")
FL_NAME(kNearest, "nearest")
FL_NAME(kLinear, "linear")
FL_NAME(kBilinear, "bilinear")
FL_NAME(kBicubic, "bicubic")
FL_NAME(kTrilinear, "trilinear")
FL_NAME(kArea, "area")
FL_NAME(kNearestExact, "nearest-exact")
FL_NAME(kReLU, "relu")
FL_NAME(kGELU, "gelu")
FL_NAME(kTanh, "tanh")
FL_NAME(kSigmoid, "sigmoid")
FL_NAME(kLeakyReLU, "leaky_relu")
FL_NAME(kConv1D, "conv1d")
FL_NAME(kConv2D, "conv2d")
FL_NAME(kConv3D, "conv3d")
FL_NAME(kFanIn, "fan_in")
FL_NAME(kFanOut, "fan_out")
FL_NAME(kMax, "max")
FL_NAME(kSame, "same")
FL_NAME(kValid, "valid")
#undef FL_NAME

// One size for all dimensions, or one for each.
template <size_t D>
class ExpandingArray {
 public:
  ExpandingArray(int64_t one) : values_(D, one) {}
  ExpandingArray(std::initializer_list<int64_t> list) : values_(list) {
    if (values_.size() != D)
      throw c10::Error(c10::str("[options] expected ", D, " sizes, got ", values_.size()));
  }
  operator IntArrayRef() const { return IntArrayRef(values_); }

 private:
  std::vector<int64_t> values_;
};

namespace nn {

using torch::ExpandingArray;

// Keyword arguments that were set.
class Keywords {
 public:
  using Value =
      std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, std::vector<double>, Tensor>;
  void into(at::detail::Arguments& arguments) const {
    for (const auto& [name, value] : values_)
      std::visit([&, key = name](const auto& v) { arguments.add(v, key); }, value);
  }

 protected:
  template <size_t D>
  void set(const char* name, const ExpandingArray<D>& sizes) {
    const IntArrayRef list = sizes;
    set(name, Value(std::vector<int64_t>(list.begin(), list.end())));
  }
  void set(const char* name, Value value) {
    for (auto& known : values_)
      if (std::string_view(known.first) == name) return void(known.second = std::move(value));
    values_.emplace_back(name, std::move(value));
  }

 private:
  std::vector<std::pair<const char*, Value>> values_;
};

// An option by its name, in a struct of them.
#define FL_KEYWORD(type, name)               \
  auto name(type value) -> decltype(*this) { \
    this->set(#name, std::move(value));      \
    return *this;                            \
  }

struct ReLUOptions : Keywords {
  ReLUOptions() = default;
  ReLUOptions(bool value) { this->inplace(value); }
  FL_KEYWORD(bool, inplace)
};
using ReLU6Options = ReLUOptions;
using SELUOptions = ReLUOptions;

struct LeakyReLUOptions : Keywords {
  FL_KEYWORD(double, negative_slope)
  FL_KEYWORD(bool, inplace)
};

struct ELUOptions : Keywords {
  FL_KEYWORD(double, alpha)
  FL_KEYWORD(bool, inplace)
};
using CELUOptions = ELUOptions;

struct GELUOptions : Keywords {
  FL_KEYWORD(std::string, approximate)
};

struct HardtanhOptions : Keywords {
  FL_KEYWORD(double, min_val)
  FL_KEYWORD(double, max_val)
  FL_KEYWORD(bool, inplace)
};

struct SoftplusOptions : Keywords {
  FL_KEYWORD(double, beta)
  FL_KEYWORD(double, threshold)
};

struct SoftmaxOptions : Keywords {
  SoftmaxOptions(int64_t value) { this->dim(value); }
  FL_KEYWORD(int64_t, dim)
};
using LogSoftmaxOptions = SoftmaxOptions;
using SoftminOptions = SoftmaxOptions;

struct GLUOptions : Keywords {
  GLUOptions() = default;
  GLUOptions(int64_t value) { this->dim(value); }
  FL_KEYWORD(int64_t, dim)
};

struct LossOptions : Keywords {
  LossOptions() = default;
  LossOptions(std::string value) { this->reduction(std::move(value)); }
  FL_KEYWORD(std::string, reduction)
  LossOptions(OptionName name) { this->reduction(name); }
};
using MSELossOptions = LossOptions;
using L1LossOptions = LossOptions;

struct SmoothL1LossOptions : Keywords {
  SmoothL1LossOptions() = default;
  SmoothL1LossOptions(OptionName name) { reduction(name); }
  FL_KEYWORD(std::string, reduction)
  FL_KEYWORD(double, beta)
};

struct HuberLossOptions : Keywords {
  FL_KEYWORD(std::string, reduction)
  FL_KEYWORD(double, delta)
};

struct KLDivLossOptions : Keywords {
  KLDivLossOptions() = default;
  KLDivLossOptions(OptionName name) { reduction(name); }
  FL_KEYWORD(std::string, reduction)
  FL_KEYWORD(bool, log_target)
};

struct BCELossOptions : Keywords {
  FL_KEYWORD(Tensor, weight)
  FL_KEYWORD(std::string, reduction)
};

struct BCEWithLogitsLossOptions : Keywords {
  FL_KEYWORD(Tensor, weight)
  FL_KEYWORD(std::string, reduction)
  FL_KEYWORD(Tensor, pos_weight)
};

struct NLLLossOptions : Keywords {
  FL_KEYWORD(Tensor, weight)
  FL_KEYWORD(int64_t, ignore_index)
  FL_KEYWORD(std::string, reduction)
};

struct CrossEntropyLossOptions : Keywords {
  FL_KEYWORD(Tensor, weight)
  FL_KEYWORD(int64_t, ignore_index)
  FL_KEYWORD(std::string, reduction)
  FL_KEYWORD(double, label_smoothing)
};

namespace functional {

using ReLUFuncOptions = ReLUOptions;
using ReLU6FuncOptions = ReLU6Options;
using SELUFuncOptions = SELUOptions;
using LeakyReLUFuncOptions = LeakyReLUOptions;
using ELUFuncOptions = ELUOptions;
using CELUFuncOptions = CELUOptions;
using GELUFuncOptions = GELUOptions;
using HardtanhFuncOptions = HardtanhOptions;
using SoftplusFuncOptions = SoftplusOptions;
using GLUFuncOptions = GLUOptions;
using MSELossFuncOptions = MSELossOptions;
using L1LossFuncOptions = L1LossOptions;
using SmoothL1LossFuncOptions = SmoothL1LossOptions;
using HuberLossFuncOptions = HuberLossOptions;
using KLDivFuncOptions = KLDivLossOptions;
using BinaryCrossEntropyFuncOptions = BCELossOptions;
using BinaryCrossEntropyWithLogitsFuncOptions = BCEWithLogitsLossOptions;
using NLLLossFuncOptions = NLLLossOptions;
using CrossEntropyFuncOptions = CrossEntropyLossOptions;

struct SoftmaxFuncOptions : Keywords {
  SoftmaxFuncOptions(int64_t value) { this->dim(value); }
  FL_KEYWORD(int64_t, dim)
};
using LogSoftmaxFuncOptions = SoftmaxFuncOptions;
using SoftminFuncOptions = SoftmaxFuncOptions;

struct DropoutFuncOptions : Keywords {
  FL_KEYWORD(double, p)
  FL_KEYWORD(bool, training)
  FL_KEYWORD(bool, inplace)
};

struct NormalizeFuncOptions : Keywords {
  FL_KEYWORD(double, p)
  FL_KEYWORD(int64_t, dim)
  FL_KEYWORD(double, eps)
};

struct CosineSimilarityFuncOptions : Keywords {
  FL_KEYWORD(int64_t, dim)
  FL_KEYWORD(double, eps)
};

struct PadFuncOptions : Keywords {
  PadFuncOptions(std::vector<int64_t> value) { this->pad(std::move(value)); }
  FL_KEYWORD(std::vector<int64_t>, pad)
  FL_KEYWORD(std::string, mode)
  FL_KEYWORD(double, value)
};

struct InterpolateFuncOptions : Keywords {
  FL_KEYWORD(std::vector<int64_t>, size)
  FL_KEYWORD(std::vector<double>, scale_factor)
  FL_KEYWORD(std::string, mode)
  FL_KEYWORD(bool, align_corners)
  FL_KEYWORD(bool, recompute_scale_factor)
  FL_KEYWORD(bool, antialias)
};

struct LayerNormFuncOptions : Keywords {
  LayerNormFuncOptions(std::vector<int64_t> value) { this->normalized_shape(std::move(value)); }
  FL_KEYWORD(std::vector<int64_t>, normalized_shape)
  FL_KEYWORD(Tensor, weight)
  FL_KEYWORD(Tensor, bias)
  FL_KEYWORD(double, eps)
};

struct GridSampleFuncOptions : Keywords {
  FL_KEYWORD(std::string, mode)
  FL_KEYWORD(std::string, padding_mode)
  FL_KEYWORD(bool, align_corners)
};
template <size_t D>
struct ConvFuncOptions : Keywords {
  FL_KEYWORD(Tensor, bias)
  FL_KEYWORD(ExpandingArray<D>, stride)
  FL_KEYWORD(ExpandingArray<D>, padding)
  FL_KEYWORD(ExpandingArray<D>, dilation)
  FL_KEYWORD(int64_t, groups)
};
using Conv1dFuncOptions = ConvFuncOptions<1>;
using Conv2dFuncOptions = ConvFuncOptions<2>;
using Conv3dFuncOptions = ConvFuncOptions<3>;
template <size_t D>
struct MaxPoolFuncOptions : Keywords {
  MaxPoolFuncOptions(ExpandingArray<D> value) { this->kernel_size(std::move(value)); }
  FL_KEYWORD(ExpandingArray<D>, kernel_size)
  FL_KEYWORD(ExpandingArray<D>, stride)
  FL_KEYWORD(ExpandingArray<D>, padding)
  FL_KEYWORD(ExpandingArray<D>, dilation)
  FL_KEYWORD(bool, ceil_mode)
};
using MaxPool1dFuncOptions = MaxPoolFuncOptions<1>;
using MaxPool2dFuncOptions = MaxPoolFuncOptions<2>;
using MaxPool3dFuncOptions = MaxPoolFuncOptions<3>;
template <size_t D>
struct AvgPoolFuncOptions : Keywords {
  AvgPoolFuncOptions(ExpandingArray<D> value) { this->kernel_size(std::move(value)); }
  FL_KEYWORD(ExpandingArray<D>, kernel_size)
  FL_KEYWORD(ExpandingArray<D>, stride)
  FL_KEYWORD(ExpandingArray<D>, padding)
  FL_KEYWORD(bool, ceil_mode)
  FL_KEYWORD(bool, count_include_pad)
  FL_KEYWORD(int64_t, divisor_override)
};
using AvgPool1dFuncOptions = AvgPoolFuncOptions<1>;
using AvgPool2dFuncOptions = AvgPoolFuncOptions<2>;
using AvgPool3dFuncOptions = AvgPoolFuncOptions<3>;

}  // namespace functional

}  // namespace nn
}  // namespace torch

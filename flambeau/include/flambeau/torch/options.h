// Options of functions and of modules that are functions: what is set goes into the call as keyword
// arguments.
#pragma once

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

#define FL_OPTIONS(Name)       \
  struct Name : nn::Keywords { \
    using Self = Name;
#define FL_SET(type, name)        \
  Self& name(type value) {        \
    set(#name, std::move(value)); \
    return *this;                 \
  }
// The first option may be given to the constructor; it must be, or it need not.
#define FL_FIRST(Name, type, name) \
  Name(type value) {               \
    this->name(std::move(value));  \
  }                                \
  FL_SET(type, name)
#define FL_END \
  }            \
  ;

FL_OPTIONS(ReLUOptions) ReLUOptions() = default;
FL_FIRST(ReLUOptions, bool, inplace) FL_END using ReLU6Options = ReLUOptions;
using SELUOptions = ReLUOptions;
FL_OPTIONS(LeakyReLUOptions)
FL_SET(double, negative_slope)
FL_SET(bool, inplace)
FL_END FL_OPTIONS(ELUOptions) FL_SET(double, alpha) FL_SET(bool, inplace) FL_END
    using CELUOptions = ELUOptions;
FL_OPTIONS(GELUOptions)
FL_SET(std::string, approximate)
FL_END FL_OPTIONS(HardtanhOptions) FL_SET(double, min_val) FL_SET(double, max_val)
    FL_SET(bool, inplace) FL_END FL_OPTIONS(SoftplusOptions) FL_SET(double, beta)
        FL_SET(double, threshold) FL_END FL_OPTIONS(SoftmaxOptions)
            FL_FIRST(SoftmaxOptions, int64_t, dim) FL_END using LogSoftmaxOptions = SoftmaxOptions;
using SoftminOptions = SoftmaxOptions;
FL_OPTIONS(GLUOptions) GLUOptions() = default;
FL_FIRST(GLUOptions, int64_t, dim)
FL_END

FL_OPTIONS(LossOptions) LossOptions() = default;
FL_FIRST(LossOptions, std::string, reduction)
LossOptions(OptionName name) {
  this->reduction(name);
}
FL_END
using MSELossOptions = LossOptions;
using L1LossOptions = LossOptions;
FL_OPTIONS(SmoothL1LossOptions) SmoothL1LossOptions() = default;
SmoothL1LossOptions(OptionName name) {
  reduction(name);
}
FL_SET(std::string, reduction)
FL_SET(double, beta)
FL_END FL_OPTIONS(HuberLossOptions) FL_SET(std::string, reduction) FL_SET(double, delta) FL_END
    FL_OPTIONS(KLDivLossOptions) KLDivLossOptions() = default;
KLDivLossOptions(OptionName name) {
  reduction(name);
}
FL_SET(std::string, reduction)
FL_SET(bool, log_target)
FL_END FL_OPTIONS(BCELossOptions) FL_SET(Tensor, weight) FL_SET(std::string, reduction) FL_END
    FL_OPTIONS(BCEWithLogitsLossOptions) FL_SET(Tensor, weight) FL_SET(std::string, reduction)
        FL_SET(Tensor, pos_weight) FL_END FL_OPTIONS(NLLLossOptions) FL_SET(Tensor, weight)
            FL_SET(int64_t, ignore_index) FL_SET(std::string, reduction) FL_END
    FL_OPTIONS(CrossEntropyLossOptions) FL_SET(Tensor, weight) FL_SET(int64_t, ignore_index)
        FL_SET(std::string, reduction) FL_SET(double, label_smoothing) FL_END

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
  FL_OPTIONS(SoftmaxFuncOptions)
  FL_FIRST(SoftmaxFuncOptions, int64_t, dim) FL_END using LogSoftmaxFuncOptions = SoftmaxFuncOptions;
  using SoftminFuncOptions = SoftmaxFuncOptions;
  FL_OPTIONS(DropoutFuncOptions)
  FL_SET(double, p)
  FL_SET(bool, training)
  FL_SET(bool, inplace)
  FL_END FL_OPTIONS(NormalizeFuncOptions) FL_SET(double, p) FL_SET(int64_t, dim) FL_SET(double, eps)
      FL_END FL_OPTIONS(CosineSimilarityFuncOptions) FL_SET(int64_t, dim) FL_SET(double, eps)
          FL_END FL_OPTIONS(PadFuncOptions) FL_FIRST(PadFuncOptions, std::vector<int64_t>, pad)
              FL_SET(std::string, mode) FL_SET(double, value) FL_END FL_OPTIONS(InterpolateFuncOptions)
                  FL_SET(std::vector<int64_t>, size) FL_SET(std::vector<double>, scale_factor) FL_SET(
                      std::string, mode) FL_SET(bool, align_corners) FL_SET(bool, recompute_scale_factor)
                      FL_SET(bool, antialias) FL_END FL_OPTIONS(LayerNormFuncOptions)
                          FL_FIRST(LayerNormFuncOptions, std::vector<int64_t>, normalized_shape)
                              FL_SET(Tensor, weight) FL_SET(Tensor, bias) FL_SET(double, eps) FL_END

                                  FL_OPTIONS(GridSampleFuncOptions) FL_SET(std::string, mode)
                                      FL_SET(std::string, padding_mode) FL_SET(bool, align_corners) FL_END

      template <size_t D>
      FL_OPTIONS(ConvFuncOptions)
      FL_SET(Tensor, bias) FL_SET(ExpandingArray<D>, stride) FL_SET(ExpandingArray<D>, padding)
          FL_SET(ExpandingArray<D>, dilation) FL_SET(int64_t, groups) FL_END using Conv1dFuncOptions =
              ConvFuncOptions<1>;
  using Conv2dFuncOptions = ConvFuncOptions<2>;
  using Conv3dFuncOptions = ConvFuncOptions<3>;
  template <size_t D>
  FL_OPTIONS(MaxPoolFuncOptions)
  FL_FIRST(MaxPoolFuncOptions, ExpandingArray<D>, kernel_size) FL_SET(ExpandingArray<D>, stride)
      FL_SET(ExpandingArray<D>, padding) FL_SET(ExpandingArray<D>, dilation) FL_SET(bool, ceil_mode)
          FL_END using MaxPool1dFuncOptions = MaxPoolFuncOptions<1>;
  using MaxPool2dFuncOptions = MaxPoolFuncOptions<2>;
  using MaxPool3dFuncOptions = MaxPoolFuncOptions<3>;
  template <size_t D>
  FL_OPTIONS(AvgPoolFuncOptions)
  FL_FIRST(AvgPoolFuncOptions, ExpandingArray<D>, kernel_size) FL_SET(ExpandingArray<D>, stride)
      FL_SET(ExpandingArray<D>, padding) FL_SET(bool, ceil_mode) FL_SET(bool, count_include_pad)
          FL_SET(int64_t, divisor_override) FL_END using AvgPool1dFuncOptions = AvgPoolFuncOptions<1>;
  using AvgPool2dFuncOptions = AvgPoolFuncOptions<2>;
  using AvgPool3dFuncOptions = AvgPoolFuncOptions<3>;

}  // namespace functional
#undef FL_OPTIONS
#undef FL_SET
#undef FL_FIRST
#undef FL_END

}  // namespace nn
}  // namespace torch

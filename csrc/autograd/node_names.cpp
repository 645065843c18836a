// What nodes of operators are called. Programs print losses and draw graphs, and expect PyTorch's names
// there; where this library records another operator, or one operator for several of PyTorch's, the name is
// PyTorch's all the same.
#include <cctype>
#include <string_view>
#include <unordered_map>

#include "autograd/node_names.h"

namespace fl::autograd {

namespace {

// add_ -> AddBackward0, native_layer_norm -> NativeLayerNormBackward0
std::string derived(const std::string& operator_name) {
  std::string out;
  bool upper = true;
  for (char c : operator_name) {
    if (c == '_') {
      upper = true;
      continue;
    }
    out += upper ? static_cast<char>(std::toupper(c)) : c;
    upper = false;
  }
  return out + "Backward0";
}

// Operators with another name there, by their full names.
const std::unordered_map<std::string_view, const char*>& others() {
  static const std::unordered_map<std::string_view, const char*> names = {
      {"conv1d", "ConvolutionBackward0"},
      {"conv2d", "ConvolutionBackward0"},
      {"conv3d", "ConvolutionBackward0"},
      {"conv_transpose1d", "ConvolutionBackward0"},
      {"conv_transpose2d", "ConvolutionBackward0"},
      {"conv_transpose3d", "ConvolutionBackward0"},
      {"max_pool2d", "MaxPool2DWithIndicesBackward0"},
      {"max_pool3d", "MaxPool3DWithIndicesBackward0"},
      {"avg_pool2d", "AvgPool2DBackward0"},
      {"avg_pool3d", "AvgPool3DBackward0"},
      {"adaptive_avg_pool3d", "AdaptiveAvgPool3DBackward0"},
      {"grid_sampler_2d", "GridSampler2DBackward0"},
      {"grid_sampler_3d", "GridSampler3DBackward0"},
      {"_im2col", "Im2ColBackward0"},
      {"_col2im", "Col2ImBackward0"},
      {"_fft_r2c", "FftR2CBackward0"},
      {"_fft_c2c", "FftC2CBackward0"},
      {"_fft_c2r", "FftC2RBackward0"},
      {"_norm_2", "LinalgVectorNormBackward0"},
      {"min.other", "MinimumBackward0"},
      {"max.other", "MaximumBackward0"},
      {"max", "MaxBackward1"},
      {"min", "MinBackward1"},
      {"median.dim", "MedianBackward1"},
      {"nanmedian.dim", "NanmedianBackward1"},
      {"squeeze.dim", "SqueezeBackward1"},
      {"squeeze.dims", "SqueezeBackward2"},
      {"scatter.value", "ScatterBackward1"},
      {"square", "PowBackward0"},
      {"relu6", "HardtanhBackward0"},
      {"selu", "EluBackward0"},
      {"copy", "CopyBackwards"},
      {"copy_", "CopyBackwards"},
      {"lerp.Tensor", "LerpBackward1"},
      {"_fused_rms_norm", "MulBackward0"},
      {"_mse", "MseLossBackward0"},
      {"_huber", "HuberLossBackward0"},
      {"_smooth_l1", "SmoothL1LossBackward0"},
      {"_bce", "BinaryCrossEntropyBackward0"},
      {"_bce_with_logits", "BinaryCrossEntropyWithLogitsBackward0"},
  };
  return names;
}

std::string numbered(const char* name, int number) {
  return std::string(name) + "Backward" + char('0' + number);
}

std::string of_matmul(size_t a, size_t b) {
  if (a == 2 && b == 2) return "MmBackward0";
  if (a == 1 && b == 1) return "DotBackward0";
  if (a == 2 && b == 1) return "MvBackward0";
  return a == 1 && b == 2 ? "SqueezeBackward4" : "UnsafeViewBackward0";
}

std::string of_linear(size_t rank, bool bias) {
  if (rank == 2) return bias ? "AddmmBackward0" : "MmBackward0";
  if (bias) return "ViewBackward0";
  return rank == 1 ? "SqueezeBackward4" : "UnsafeViewBackward0";
}

std::string of_interpolation(const OperatorNode& node) {
  const std::string mode(node.args[2].string());
  const size_t rank = node.inputs[0].sizes.size() - 2;
  static const char* const linear[] = {"Linear", "Bilinear", "Trilinear"};
  static const std::unordered_map<std::string, const char*> names = {{"nearest", "Nearest"},
                                                                     {"nearest-exact", "NearestExact"},
                                                                     {"cubic", "Bicubic"},
                                                                     {"bicubic", "Bicubic"}};
  const auto entry = names.find(mode);
  const bool straight = mode.size() >= 6 && mode.compare(mode.size() - 6, 6, "linear") == 0;
  if (rank < 1 || rank > 3 || (!straight && entry == names.end())) return "InterpolateBackward0";
  const bool smoothed = node.args[5].to_bool();
  return std::string("Upsample") + (straight ? linear[rank - 1] : entry->second) + char('0' + rank) +
         (smoothed ? "DAaBackward0" : "DBackward0");
}

std::string of_padding(const OperatorNode& node) {
  const std::string mode(node.args[2].string());
  const std::string sides(1, char('0' + node.args[1].ints().size() / 2));
  if (mode == "reflect") return "ReflectionPad" + sides + "DBackward0";
  return mode == "replicate" ? "ReplicationPad" + sides + "DBackward0" : "EdgePadBackward0";
}

// The loss of single elements of which a node is the mean or sum, for which PyTorch has one operator.
const OperatorNode* loss_below(const OperatorNode& node) {
  const std::string& reduction = node.op_name();
  if ((reduction != "mean" && reduction != "sum") || !node.next.size() || !node.args[1].is_none())
    return nullptr;
  const auto* below = dynamic_cast<const OperatorNode*>(node.next[0].node.get());
  if (!below) return nullptr;
  const std::string& name = below->op_name();
  const bool loss = name == "_mse" || name == "_huber" || name == "_smooth_l1" || name == "_bce" ||
                    name == "_bce_with_logits";
  return loss ? below : nullptr;
}

}  // namespace

const Node& shown(const Node& node) {
  const auto* own = dynamic_cast<const OperatorNode*>(&node);
  const OperatorNode* loss = own ? loss_below(*own) : nullptr;
  return loss ? *loss : node;
}

std::string OperatorNode::name() const {
  const Operator& base = *(op->functional ? op->functional : op);
  const std::string& name = base.schema.name;
  if (name == "sum" || name == "mean" || name == "prod") {
    if (const OperatorNode* loss = loss_below(*this)) return others().at(loss->op_name());
    return numbered(name == "sum" ? "Sum" : name == "mean" ? "Mean" : "Prod", !args[1].is_none());
  }
  if (name == "matmul") return of_matmul(inputs[0].sizes.size(), inputs[1].sizes.size());
  if (name == "linear") return of_linear(inputs[0].sizes.size(), has(2));
  if (name == "pow") return numbered("Pow", !has(0) ? 2 : has(1));
  if (name == "_clamp" || name == "clamp_min" || name == "clamp_max")
    return numbered("Clamp", !(has(1) || (name == "_clamp" && has(2))));
  if (name == "_cross_entropy_forward" || name == "_nll_loss_forward")
    return inputs[0].sizes.size() > 2 ? "NllLoss2DBackward0" : "NllLossBackward0";
  if (name == "_interpolate") return of_interpolation(*this);
  if (name == "_edge_pad") return of_padding(*this);
  if (name == "adaptive_avg_pool2d") {
    for (int64_t size : args[1].ints())
      if (size != 1) return "AdaptiveAvgPool2DBackward0";
    return "MeanBackward1";
  }
  if (outputs.size() && outputs[0].device.type == DeviceType::CPU) {
    if (name == "native_dropout") return "MulBackward0";
    if (name == "_flash_attention") return "ScaledDotProductFlashAttentionForCpuBackward0";
  }
  const auto entry = others().find(base.schema.full_name());
  return entry == others().end() ? derived(name) : entry->second;
}

}  // namespace fl::autograd

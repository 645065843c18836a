// What nodes of operators are called. Programs print losses and draw graphs, and expect PyTorch's names
// there; where this library records another operator, or one operator for several of PyTorch's, the name is
// PyTorch's all the same.
#include <cctype>
#include <string_view>
#include <unordered_map>

#include "autograd/node_names.h"
#include "dispatch/kernel.h"

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

// Names that depend on the arguments of the call, by operator. Fixed names are on the records (`node`).
using Naming = std::string (*)(const OperatorNode& node);
std::unordered_map<std::string_view, Naming>& namings() {
  static auto* table = new std::unordered_map<std::string_view, Naming>;
  return *table;
}
struct Names {
  Names(const char* op, Naming naming) { namings().emplace(op, naming); }
};
// The function that names the nodes of an operator; where it returns nothing, they have their fixed name.
#define FL_NODE_NAME(op, function)                       \
  static const Names FL_CONCAT(fl_names_, __COUNTER__) { \
    op, function                                         \
  }

std::string numbered(const char* name, int number) {
  return std::string(name) + "Backward" + char('0' + number);
}

size_t rank(const OperatorNode& node, size_t input) {
  return node.inputs[input].sizes.size();
}

// The loss of single elements of which a node is the mean or sum, for which PyTorch has one operator.
const OperatorNode* loss_below(const OperatorNode& node) {
  const std::string& reduction = node.op_name();
  if ((reduction != "mean" && reduction != "sum") || !node.next.size() || !node.args[1].is_none())
    return nullptr;
  const auto* below = dynamic_cast<const OperatorNode*>(node.next[0].node.get());
  return below && below->op->flags & kElementLoss ? below : nullptr;
}

std::string of_reduction(const char* name, const OperatorNode& node) {
  const OperatorNode* loss = loss_below(node);
  return loss ? loss->op->node : numbered(name, !node.args[1].is_none());
}
FL_NODE_NAME("sum", [](const OperatorNode& node) { return of_reduction("Sum", node); });
FL_NODE_NAME("mean", [](const OperatorNode& node) { return of_reduction("Mean", node); });
FL_NODE_NAME("prod", [](const OperatorNode& node) { return of_reduction("Prod", node); });

std::string of_matmul(const OperatorNode& node) {
  const size_t a = rank(node, 0), b = rank(node, 1);
  if (a == 2 && b == 2) return "MmBackward0";
  if (a == 1 && b == 1) return "DotBackward0";
  if (a == 2 && b == 1) return "MvBackward0";
  return a == 1 && b == 2 ? "SqueezeBackward4" : "UnsafeViewBackward0";
}
FL_NODE_NAME("matmul", of_matmul);

std::string of_linear(const OperatorNode& node) {
  const bool bias = node.has(2);
  if (rank(node, 0) == 2) return bias ? "AddmmBackward0" : "MmBackward0";
  if (bias) return "ViewBackward0";
  return rank(node, 0) == 1 ? "SqueezeBackward4" : "UnsafeViewBackward0";
}
FL_NODE_NAME("linear", of_linear);

std::string of_pow(const OperatorNode& node) {
  return numbered("Pow", !node.has(0) ? 2 : node.has(1));
}
FL_NODE_NAME("pow", of_pow);

// By whether a bound is a tensor; the arguments after the first are the bounds.
std::string of_clamp(const OperatorNode& node) {
  bool tensors = false;
  for (size_t i = 1; i < node.op->schema.args.size(); ++i) tensors |= node.has(i);
  return numbered("Clamp", !tensors);
}
FL_NODE_NAME("_clamp", of_clamp);
FL_NODE_NAME("clamp_min", of_clamp);
FL_NODE_NAME("clamp_max", of_clamp);

std::string of_nll_loss(const OperatorNode& node) {
  return rank(node, 0) > 2 ? "NllLoss2DBackward0" : "NllLossBackward0";
}
FL_NODE_NAME("_cross_entropy_forward", of_nll_loss);
FL_NODE_NAME("_nll_loss_forward", of_nll_loss);

std::string of_pooling(const OperatorNode& node) {
  for (int64_t size : node.args[1].ints())
    if (size != 1) return "AdaptiveAvgPool2DBackward0";
  return "MeanBackward1";
}
FL_NODE_NAME("adaptive_avg_pool2d", of_pooling);

bool on_cpu(const OperatorNode& node) {
  return node.outputs.size() && node.outputs[0].device.type == DeviceType::CPU;
}
FL_NODE_NAME("native_dropout",
             [](const OperatorNode& node) -> std::string { return on_cpu(node) ? "MulBackward0" : ""; });
FL_NODE_NAME("_flash_attention", [](const OperatorNode& node) -> std::string {
  return on_cpu(node) ? "ScaledDotProductFlashAttentionForCpuBackward0" : "";
});

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
FL_NODE_NAME("_interpolate", of_interpolation);

std::string of_padding(const OperatorNode& node) {
  const std::string mode(node.args[2].string());
  const std::string sides(1, char('0' + node.args[1].ints().size() / 2));
  if (mode == "reflect") return "ReflectionPad" + sides + "DBackward0";
  return mode == "replicate" ? "ReplicationPad" + sides + "DBackward0" : "EdgePadBackward0";
}
FL_NODE_NAME("_edge_pad", of_padding);

}  // namespace

const Node& shown(const Node& node) {
  const auto* own = dynamic_cast<const OperatorNode*>(&node);
  const OperatorNode* loss = own ? loss_below(*own) : nullptr;
  return loss ? *loss : node;
}

std::string OperatorNode::name() const {
  const Operator& base = *(op->functional ? op->functional : op);
  const auto naming = namings().find(base.schema.name);
  if (naming != namings().end()) {
    const std::string named = naming->second(*this);
    if (!named.empty()) return named;
  }
  return base.node[0] ? base.node : derived(base.schema.name);
}

}  // namespace fl::autograd

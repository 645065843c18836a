// The define-by-run graph: nodes compute gradients of their inputs from gradients of their outputs; edges lead to the
// nodes of the inputs.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "dispatch/operator.h"

namespace fl::autograd {

struct Node;

struct Edge {
  Ref<Node> node;
  uint32_t input = 0;  // which output of the node's forward op this edge stands for
  explicit operator bool() const { return bool(node); }
};

// A callback of the user's, on lists of gradients. Returns true when it replaced any.
struct Hook : Counted {
  virtual void call(std::vector<Tensor>& grads, const std::vector<Tensor>* inputs) = 0;
};

// What a gradient that arrives at a node must look like.
struct OutputMeta {
  Dims sizes;
  DType dtype = DType::Float;
  Device device;
};

struct Node : Counted {
  std::vector<Edge> next;
  std::vector<OutputMeta> outputs;
  uint64_t sequence;
  std::vector<Ref<Hook>> pre_hooks;                 // before apply, on all gradients
  std::vector<std::pair<uint32_t, Ref<Hook>>> tensor_hooks;  // before those, on one output's gradient
  std::vector<Ref<Hook>> post_hooks;                // after apply, with the results and the gradients
  std::vector<std::pair<uint32_t, Ref<TensorImpl>>> retained;  // tensors whose gradient is kept
  void* python = nullptr;                           // the node's Python object, if any
  std::string trace;                                // where the forward op was called, in anomaly mode
  Ref<Counted> metadata;                            // the user's `metadata` dictionary

  Node();
  ~Node() override;
  uint32_t add_output(const Tensor& t);
  virtual std::string name() const = 0;
  virtual std::vector<Tensor> apply(std::vector<Tensor>&& grads) = 0;
  virtual void release_saved() {}
  bool needs(size_t i) const { return i < next.size() && bool(next[i]); }

 protected:
  void destroy() override;  // without recursion, however deep the graph
};

struct Accumulate;

// How a view came about: enough to find its gradient in that of its base after the base or the view was written to.
struct ViewInfo : Counted {
  Tensor base;
  uint32_t version = 0;  // of the storage when grad_fn was last right
  bool no_grad = false;  // made in no_grad mode from a tensor that requires grad
  bool multi = false;    // one of several views returned by one op (split, unbind): writing to it is refused
};

struct Meta final : AutogradMeta {
  Ref<Node> grad_fn;
  uint32_t output = 0;
  Tensor grad;
  Accumulate* accumulate = nullptr;  // not owned; cleared by its destructor
  bool retains_grad = false;
  Ref<ViewInfo> view;
  std::vector<Ref<Hook>> hooks;           // of a leaf: on its gradient, before accumulation
  std::vector<Ref<Hook>> post_accumulate;  // after it
  std::mutex mutex;
};

// The graph's end at a leaf: adds to its .grad.
struct Accumulate final : Node {
  explicit Accumulate(Tensor leaf);
  ~Accumulate() override;
  Tensor variable;
  std::string name() const override { return "AccumulateGrad"; }
  std::vector<Tensor> apply(std::vector<Tensor>&& grads) override;
};

// A tensor kept for backward. An output of the node itself is kept without its history, to avoid a cycle.
class SavedTensor {
 public:
  SavedTensor() = default;
  SavedTensor(const Tensor& t, bool is_output);
  // Raises when it was modified since, or released.
  Tensor unpack(const Ref<Node>& owner, const std::string& op) const;
  bool defined() const { return defined_; }
  void reset() {
    data_ = Tensor();
    packed_ = Ref<Counted>();
    grad_fn_ = Edge();
    released_ = true;
  }

 private:
  Tensor data_;
  Ref<Counted> packed_;  // what the user's pack hook returned
  Edge grad_fn_;
  uint32_t version_ = 0, output_ = 0;
  bool defined_ = false, is_output_ = false, is_leaf_ = false, released_ = false;
};

// saved_tensors_hooks: set by the binding. pack may return null to decline.
extern Ref<Counted> (*pack_hook)(const Tensor&);
extern Tensor (*unpack_hook)(const Ref<Counted>&);

Meta* meta_of(const Tensor& t);         // null when the tensor has none
Meta& ensure_meta(const Tensor& t);     // makes one
void set_requires_grad(const Tensor& t, bool requires_grad);
bool is_leaf(const Tensor& t);
// The edge through which gradients reach this tensor; empty when it requires none. Brings views up to date.
Edge gradient_edge(const Tensor& t);
Ref<Node> grad_fn_of(const Tensor& t);
void set_history(const Tensor& t, const Ref<Node>& node, uint32_t output);
// Makes `node` (whose input 0 is the old value) the history of a tensor that was written in place.
void rebase_history(const Tensor& t, const Ref<Node>& node, uint32_t output);
void check_inplace(const Tensor& t, const char* op);
void make_view(const Tensor& view, const Tensor& base, bool multi);
Tensor detach(const Tensor& t);

struct BackwardOptions {
  bool retain_graph = false;
  bool create_graph = false;
  bool accumulate = true;  // into leaves; false for grad()
};
// Runs the graph from `roots` with `grads`. With `inputs`, returns their gradients (undefined where there is none) and,
// unless options.accumulate, touches no .grad.
std::vector<Tensor> run_backward(const std::vector<Edge>& roots, std::vector<Tensor> grads, const std::vector<Edge>& inputs,
                                 BackwardOptions options);

struct OperatorNode;

// Derivatives of operators, found by the generic kernel on the Autograd key.
struct Derivative {
  // Gradients of the tensor arguments, in schema order; lists are laid out in place.
  std::vector<Tensor> (*apply)(const Derivative& self, OperatorNode& node, std::vector<Tensor>&& grads) = nullptr;
  void* context = nullptr;
  uint64_t saves_args = 0;     // bit i: argument i's value is used
  uint32_t saves_results = 0;  // bit i: result i's value is used
  // When given, the same for the gradient of each argument alone, so that nothing is kept without need.
  std::vector<uint64_t> saves_args_for;
  std::vector<uint32_t> saves_results_for;
  bool differentiable = true;
};
void set_derivative(Operator& op, Derivative* derivative);
void install_kernels();
void install_pointwise_derivatives();
// Derivatives of pointwise operators run as one fused kernel an operand. When the backward itself is recorded, the
// derivative is evaluated op by op instead, through this hook of the binding: (op, operand, g, node) -> gradient.
extern Tensor (*expression_gradient)(const Operator& op, int operand, const Tensor& g, OperatorNode& node);

struct OperatorNode final : Node {
  const Operator* op = nullptr;
  const Derivative* derivative = nullptr;
  std::vector<Value> args;                 // non-tensor arguments, and shapes of tensors that are not saved
  std::vector<SavedTensor> saved_args;     // one for each tensor, lists laid out
  std::vector<SavedTensor> saved_results;
  std::vector<OutputMeta> inputs;          // geometry of each tensor argument, lists laid out
  std::vector<uint16_t> arg_begin;         // first flat tensor index of argument i
  bool released = false;

  std::string name() const override;
  std::vector<Tensor> apply(std::vector<Tensor>&& grads) override;
  void release_saved() override;
  Tensor saved_arg(size_t flat) { return saved_args[flat].unpack(Ref<Node>(this), op_name()); }
  Tensor saved_result(size_t i) { return saved_results[i].unpack(Ref<Node>(this), op_name()); }
  std::string op_name() const;
};

}  // namespace fl::autograd

// The define-by-run graph: nodes compute gradients of their inputs from gradients of their outputs; edges
// lead to the nodes of the inputs.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "core/small.h"
#include "core/tensor.h"
#include "dispatch/operator.h"

namespace fl::autograd {

struct Node;
struct Meta;

struct Edge {
  Ref<Node> node;
  uint32_t input = 0;  // which output of the node's forward op this edge stands for
  explicit operator bool() const { return bool(node); }
};

// A callback of the user's, on lists of gradients, which it may replace.
struct Hook : Counted {
  virtual void call(std::vector<Tensor>& grads, const std::vector<Tensor>* inputs) = 0;
  virtual void before_accumulation() {}  // of a hook that runs after it
  void* python = nullptr;                // of a native hook: the Python object it works for, not owned
};

// What a gradient that arrives at a node must look like.
struct OutputMeta {
  Dims sizes;
  DType dtype = DType::Float;
  Device device;
};

// What few nodes have: hooks, metadata and a trace.
struct NodeExtras {
  std::vector<Ref<Hook>> pre_hooks;                          // before apply, on all gradients
  std::vector<std::pair<uint32_t, Ref<Hook>>> tensor_hooks;  // before those, on one output's gradient
  std::vector<Ref<Hook>> post_hooks;  // after apply, with the results and the gradients
  std::vector<std::pair<uint32_t, Meta*>>
      retained;            // tensors whose gradient is kept; they take themselves off
  std::string trace;       // where the forward op was called, in anomaly mode
  Ref<Counted> metadata;   // the user's `metadata` dictionary
  Node* window = nullptr;  // not owned: of a write to a view, the node of the base that runs this one
};

struct Node : Counted {
  Small<Edge, 3> next;
  Small<OutputMeta, 1> outputs;
  uint64_t sequence;
  std::unique_ptr<NodeExtras> extras;
  void* python = nullptr;  // the node's Python object, if any

  Node();
  ~Node() override;
  uint32_t add_output(const Tensor& t);
  NodeExtras& more();
  virtual std::string name() const = 0;
  virtual std::vector<Tensor> apply(std::vector<Tensor>&& grads) = 0;
  virtual void release_saved() {}
  virtual bool takes_sparse() const {
    return true;
  }  // gradients; derivatives of most operators take dense ones
  bool needs(size_t i) const { return i < next.size() && bool(next[i]); }

 protected:
  void destroy() override;  // without recursion, however deep the graph
};

struct Accumulate;

// How a view came to be, where that forbids some writes to it.
enum class ViewOrigin : uint8_t {
  Recorded,
  OneOfSeveral,    // returned by one op together with others (split, unbind)
  NoGrad,          // made in no_grad mode from a tensor that requires grad
  Inference,       // made in inference mode from a normal tensor
  CustomFunction,  // returned by the forward of a user's Function
};

struct MetaExtras {
  std::vector<Ref<Hook>> hooks;            // of a leaf: on its gradient, before accumulation
  std::vector<Ref<Hook>> post_accumulate;  // after it
};

struct Meta final : AutogradMeta {
  bool retains_grad = false;
  bool watched = false;  // whether it requires grad is counted when it changes (core/changes.h)
  ViewOrigin origin = ViewOrigin::Recorded;
  uint32_t output = 0;
  uint32_t view_version = 0;  // of the storage when a view's grad_fn was last right
  Ref<Node> grad_fn;
  Tensor grad;
  Accumulate* accumulate = nullptr;  // not owned; cleared by its destructor
  Tensor base;                       // of a view: what it is a window on
  std::unique_ptr<MetaExtras> extras;

  ~Meta() override;
  MetaExtras& more();
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
  Tensor unpack(Node* owner, const std::string& op) const;
  bool defined() const { return defined_; }
  // The tensor for its geometry alone: its values may have changed since.
  Tensor peek(Node* owner, const std::string& op) const {
    return packed_ || released_ ? unpack(owner, op) : data_;
  }
  bool released() const { return released_; }
  bool packed() const { return bool(packed_); }
  const Tensor& kept() const { return data_; }
  // From now on the tensor is what `packed` unpacks to.
  void pack(Ref<Counted> packed);
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
  bool defined_ = false, is_output_ = false, requires_grad_ = false, released_ = false;
  bool has_history_ = false;  // it was computed, by something that gradients flow through
};

// saved_tensors_hooks: set by the binding. pack may return null to decline.
extern Ref<Counted> (*pack_hook)(const Tensor&);
extern Tensor (*unpack_hook)(const Ref<Counted>&);
extern thread_local bool pack_hooks_active;

// Anomaly mode: nodes remember where they were made, and gradients are checked for NaN. Callbacks of the
// binding.
extern std::atomic<bool> anomaly_mode, anomaly_check_nan;
extern std::string (*capture_trace)();
extern void (*report_trace)(const Node& node);

Meta* meta_of(const Tensor& t);      // null when the tensor has none
Meta& ensure_meta(const Tensor& t);  // makes one
void set_requires_grad(const Tensor& t, bool requires_grad);
// From now on a change of whether the tensor requires grad counts as a change of a tensor. False for a view,
// which may get to require grad by a write to its base.
bool watch(const Tensor& t);
// Whether functions of the user's run when a gradient arrives at a tensor. Setting and removing those of a
// leaf is counted as a change of it.
bool has_hooks(const TensorImpl& t);
// The tensor becomes a leaf that requires no grad.
void detach_in_place(const Tensor& t);
bool is_leaf(const Tensor& t);
// The edge through which gradients reach this tensor; empty when it requires none. Brings views up to date.
Edge gradient_edge(const Tensor& t);
Ref<Node> grad_fn_of(const Tensor& t);
// Whether gradients flow to the tensor, after bringing a view up to date.
bool wants_grad(const Tensor& t);
void set_history(const Tensor& t, const Ref<Node>& node, uint32_t output);
// Makes `node` (whose input 0 is the old value) the history of a tensor that was written in place.
void rebase_history(const Tensor& t, const Ref<Node>& node, uint32_t output);
// Makes the history of a view anew, as a window on its base; false when t is no view.
bool follow_base(const Tensor& t);
// Raises where PyTorch does; `tracked` says that what is written has a history.
void check_inplace(const Tensor& t, const char* op, bool tracked = false);
void make_view(const Tensor& view, const Tensor& base, bool multi);
// The tensor is what the forward of a user's Function returned: where it is a view, writing to it is refused.
void note_custom_function(const Tensor& t);
// A view that the caller promises not to share: writes to it are not seen by the base's history.
void forget_base(const Tensor& view);
void retain_grad(const Tensor& t);
Tensor detach(const Tensor& t);

struct BackwardOptions {
  bool retain_graph = false;
  bool create_graph = false;
  bool accumulate = true;  // into leaves; false for grad()
};
// Runs the graph from `roots` with `grads`. With `inputs`, returns their gradients (undefined where there is
// none) and, unless options.accumulate, touches no .grad.
std::vector<Tensor> run_backward(const std::vector<Edge>& roots, std::vector<Tensor> grads,
                                 const std::vector<Edge>& inputs, BackwardOptions options);
// Adds `grad` to a tensor's .grad.
void accumulate_grad(const Tensor& t, Tensor&& grad);
// Calls `callback` once the outermost backward of this thread is through.
void queue_callback(std::function<void()> callback);
bool in_backward();
// The backward that runs in this thread: a number of its own (-1: none), whether it keeps the graph.
int64_t current_run();
bool current_run_keeps_graph();
// Whether it computes the gradients of given tensors alone.
bool current_run_is_partial();
// Whether that backward will run a node.
bool will_run(Node* node);
// The node whose derivative runs in this thread, or null.
Node* current_node();

struct OperatorNode;

// Derivatives of operators, found by the generic kernel on the Autograd key.
struct Derivative {
  // Gradients of the tensor arguments, in schema order; lists are laid out in place.
  std::vector<Tensor> (*apply)(const Derivative& self, OperatorNode& node,
                               std::vector<Tensor>&& grads) = nullptr;
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
void install_native_derivatives();
void use_native_derivatives(bool native);  // false: the records' own instead
// Derivatives of pointwise operators run as one fused kernel an operand. When the backward itself is
// recorded, the derivative is evaluated op by op instead, through this hook of the binding: (op, operand, g,
// node) -> gradient.
extern Tensor (*expression_gradient)(const Operator& op, int operand, const Tensor& g, OperatorNode& node);
// The same without Python, from the arguments of the gradient's operator. Undefined where it has no
// definition.
extern Tensor (*defined_gradient)(const Operator& gradient, Value* args, int n);

struct OperatorNode final : Node {
  const Operator* op = nullptr;
  const Derivative* derivative = nullptr;
  Small<Value, 4> args;              // non-tensor arguments
  Small<SavedTensor, 2> saved_args;  // one for each tensor, lists laid out
  Small<SavedTensor, 1> saved_results;
  Small<OutputMeta, 2> inputs;   // geometry of each tensor argument, lists laid out
  Small<uint16_t, 8> arg_begin;  // first flat tensor index of argument i

  std::string name() const override;
  std::vector<Tensor> apply(std::vector<Tensor>&& grads) override;
  void release_saved() override;
  bool takes_sparse() const override { return op->flags & kSparse; }
  Tensor saved_arg(size_t flat) { return saved_args[flat].unpack(this, op_name()); }
  Tensor saved_result(size_t i) { return saved_results[i].unpack(this, op_name()); }
  const std::string& op_name() const { return op->schema.name; }
  bool has(size_t arg) const { return arg_begin[arg + 1] > arg_begin[arg]; }
};

// Sums the dimensions along which a tensor of the given sizes was broadcast.
Tensor sum_to(const Tensor& t, IntSpan sizes);
// The gradient of a window on a tensor of the given geometry, as a tensor of that geometry.
Tensor scatter_window(const Tensor& grad, IntSpan base_sizes, IntSpan base_strides, IntSpan sizes,
                      IntSpan strides, int64_t offset);

}  // namespace fl::autograd

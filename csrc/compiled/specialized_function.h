// Compiled functions: programs behind a check of the inputs' geometry, and the node that runs their backward.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>

#include "autograd/node.h"
#include "compiled/program.h"

namespace fl::compiled {

// What a graph was compiled for.
struct InputSpec {
  Dims sizes, strides;
  DType dtype;
  bool requires_grad;
  Device device;
  bool aligned;  // the address is a multiple of sixteen; asked of accelerators only
};

inline bool is_aligned(const Tensor& t) {
  return t.device().type == DeviceType::CPU || reinterpret_cast<uintptr_t>(t.raw()) % 16 == 0;
}

inline InputSpec spec_of(const Tensor& t) {
  return {Dims(t.sizes()), Dims(t.strides()), t.dtype(), t.requires_grad(), t.device(), is_aligned(t)};
}

struct CompiledGraph;

// Inputs that stay from call to call: a model's parameters. What was found out about them holds until a
// tensor changes (core/changes.h). Not for several threads at once.
struct FixedInputs {
  explicit FixedInputs(const std::vector<bool>& is_fixed);  // of each input of the function
  ~FixedInputs();
  FixedInputs(const FixedInputs&) = delete;
  FixedInputs& operator=(const FixedInputs&) = delete;

  void forget();  // a tensor changed, or these are others
  bool fits(const CompiledGraph& graph, const Tensor* tensors);
  bool entangled(const CompiledGraph& graph, const Tensor* tensors) const;
  // Adds the edges to some inputs.
  void connect(autograd::Node& node, const std::vector<int>& inputs, const Tensor* tensors);

 private:
  friend void forget_edges();
  struct Known {
    Ref<CompiledGraph> graph;
    bool entangled;
  };
  std::vector<Known> fitting_;         // graphs that the fixed inputs are known to fit
  std::vector<int> rest_;              // inputs that are not fixed
  std::vector<autograd::Edge> edges_;  // by input, to leaves among the fixed
};

// Lets go of all leaves that fixed inputs keep edges to.
void forget_edges();

// One graph for one geometry of the inputs. Without a backward program its results have no history.
struct CompiledGraph : Counted {
  std::vector<InputSpec> inputs;
  bool refused = false;  // the function could not be compiled for these inputs: there is no program
  bool grad_mode = false;
  uint64_t autocast = 0;  // the state of mixed precision it was recorded in
  Program forward;
  std::unique_ptr<Program> backward;   // takes what forward saved, then the gradients of the results
  int results = 0;                     // outputs of forward that the caller gets; the rest is saved
  std::vector<int> gradients_of;       // inputs, in the order of backward's outputs
  std::vector<int> gradients_from;     // results, in the order of backward's last inputs
  std::vector<Dims> gradient_strides;  // of those inputs
  // Of the same results: the input that each is a view of; from the number of inputs on, views of one tensor.
  std::vector<int> families;
  // Gradients of the inputs by running the original code again, recorded: for derivatives of derivatives.
  std::function<std::vector<Tensor>(const std::vector<Tensor>& inputs, const std::vector<Tensor>& grads)>
      recorded;

  bool fits(const Tensor* tensors) const;  // whether the inputs are as the graph expects them
  bool fits(const Tensor* tensors, const std::vector<int>& some) const;  // whether these inputs are
  // Whether an input that the graph writes to shares memory with another one, which the record knows nothing
  // of; with `some`, whether one of these has a part in it.
  bool entangled(const Tensor* tensors, const std::vector<int>* some = nullptr) const;
  std::vector<Tensor> run(const Tensor* tensors, FixedInputs* fixed);
  Ref<CompiledGraph> copy() const;
};

class PlanFamily;

// Graphs that were made from others instead of being recorded, in this process.
extern std::atomic<int64_t> instantiated_graphs;

// A function compiled for every geometry it has met; `miss` compiles it for a new one. Where it cannot, it
// returns null, and `original` runs, for inputs of that geometry from then on. Of the graphs, and of the
// families that make graphs for other sizes, those unused for longest are forgotten.
struct SpecializedFunction : Counted {
  SpecializedFunction();
  ~SpecializedFunction() override;

  int inputs = 0;
  bool parametric = false;  // graphs may be made for sizes that were not recorded
  std::function<Ref<CompiledGraph>(const Tensor* tensors)> miss;
  std::function<std::vector<Tensor>(const Tensor* tensors)> original;

  std::vector<Tensor> call(const Tensor* tensors, FixedInputs* fixed = nullptr);

 private:
  std::mutex mutex_;
  std::vector<Ref<CompiledGraph>> graphs_;             // the latest used first
  std::vector<std::unique_ptr<PlanFamily>> families_;  // the latest used first

  Ref<CompiledGraph> find(const Tensor* tensors, FixedInputs* fixed);
  Ref<CompiledGraph> instantiate(const Tensor* tensors);
  Ref<CompiledGraph> compile(const Tensor* tensors);
  void keep(const Ref<CompiledGraph>& graph);
  void keep_as_sample(const Ref<CompiledGraph>& graph);
};

}  // namespace fl::compiled

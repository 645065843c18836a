#include "compiled/function.h"

#include <algorithm>

#include "dispatch/autocast.h"

namespace fl::compiled {
namespace {

// Geometries that a function keeps programs for; the one unused for longest goes first.
constexpr size_t kMostGraphs = 256;

struct CompiledBackward final : autograd::Node {
  explicit CompiledBackward(Ref<Graph> graph) : graph_(std::move(graph)) {}

  std::string name() const override { return "CompiledFunctionBackward"; }

  std::vector<Tensor> apply(std::vector<Tensor>&& grads) override {
    for (size_t i = 0; i < grads.size(); ++i) {
      if (grads[i].defined()) continue;
      const autograd::OutputMeta& meta = outputs[i];
      grads[i] = empty(meta.sizes, {meta.dtype, meta.device});
      std::fill_n(grads[i].raw(), grads[i].numel() * grads[i].itemsize(), 0);
    }
    if (thread_state().grad_mode && graph_->recorded) {
      std::vector<Tensor> given;
      for (const auto& saved : inputs_) given.push_back(saved.unpack(this, name()));
      return graph_->recorded(given, grads);
    }
    std::vector<Tensor> arguments;
    arguments.reserve(saved_.size() + grads.size());
    for (const auto& saved : saved_) arguments.push_back(saved.unpack(this, name()));
    for (size_t i = 0; i < grads.size(); ++i)
      arguments.push_back(matching(grads[i], graph_->gradient_strides[i]));
    grads.clear();
    return graph_->backward->run(arguments.data());
  }

  void release_saved() override {
    for (auto& saved : saved_) saved.reset();
    for (auto& saved : inputs_) saved.reset();
  }

  void save(const Tensor* given, size_t inputs, const std::vector<Tensor>& made, int results) {
    if (graph_->recorded)
      for (size_t i = 0; i < inputs; ++i) inputs_.emplace_back(given[i], false);
    for (size_t i = results; i < made.size(); ++i) saved_.emplace_back(made[i], false);
  }

 private:
  static Tensor matching(const Tensor& grad, const Dims& strides) {
    if (grad.strides() == IntSpan(strides)) return grad;
    Tensor laid = empty_strided(grad.sizes(), strides, grad.options());
    copy_into(laid, grad);
    return laid;
  }

  Ref<Graph> graph_;
  std::vector<autograd::SavedTensor> saved_, inputs_;
};

}  // namespace

bool Graph::fits(const Tensor* given) const {
  if (thread_state().grad_mode != grad_mode || autocast::signature() != autocast) return false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorImpl& t = *given[i].impl();
    const InputSpec& spec = inputs[i];
    if (t.dtype != spec.dtype || given[i].requires_grad() != spec.requires_grad ||
        IntSpan(t.sizes) != IntSpan(spec.sizes) || IntSpan(t.strides) != IntSpan(spec.strides))
      return false;
  }
  return true;
}

bool Graph::entangled(const Tensor* given) const {
  for (int w : forward.written)
    for (size_t i = 0; i < inputs.size(); ++i)
      if (static_cast<int>(i) != w && given[i]->storage.get() == given[w]->storage.get()) return true;
  return false;
}

std::vector<Tensor> Graph::run(const Tensor* given) {
  std::vector<Tensor> made = forward.run(given);
  if (backward) {
    Ref<CompiledBackward> node(new CompiledBackward(Ref<Graph>(this)));
    for (int i : gradients_of) node->next.push_back(autograd::gradient_edge(given[i]));
    node->save(given, inputs.size(), made, results);
    for (int i : gradients_from) {
      const uint32_t output = node->add_output(made[i]);
      autograd::set_history(made[i], Ref<autograd::Node>(node.get()), output);
    }
    made.resize(results);
  }
  return made;
}

std::vector<Tensor> Function::call(const Tensor* given) {
  Ref<Graph> graph;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto found =
        std::find_if(graphs_.begin(), graphs_.end(), [&](const Ref<Graph>& g) { return g->fits(given); });
    if (found != graphs_.end()) {
      graph = *found;
      std::rotate(graphs_.begin(), found, found + 1);
    }
  }
  if (!graph) {
    graph = miss(given);
    if (!graph) return original(given);
    const std::lock_guard<std::mutex> lock(mutex_);
    graphs_.insert(graphs_.begin(), graph);
    if (graphs_.size() > kMostGraphs) graphs_.pop_back();
  }
  return graph->entangled(given) ? original(given) : graph->run(given);
}

}  // namespace fl::compiled

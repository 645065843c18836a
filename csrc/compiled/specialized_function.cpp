#include "compiled/specialized_function.h"

#include <algorithm>

#include "autograd/autocast.h"
#include "autograd/releasing.h"
#include "compiled/plan_family.h"
#include "core/accelerator.h"

namespace fl::compiled {
namespace {

// Geometries that a function keeps programs for, and families of them; what is unused for longest goes first.
constexpr size_t kMaxGraphs = 256, kMaxFamilies = 16;

struct CompiledBackward final : autograd::Node {
  explicit CompiledBackward(Ref<CompiledGraph> graph) : graph_(std::move(graph)) {}

  std::string name() const override { return "CompiledFunctionBackward"; }

  std::vector<Tensor> apply(std::vector<Tensor>&& grads) override {
    for (size_t i = 0; i < grads.size(); ++i) {
      if (grads[i].defined()) continue;
      const autograd::OutputMeta& meta = outputs[i];
      grads[i] = empty(meta.sizes, {meta.dtype, meta.device});
      if (meta.device.type == DeviceType::CUDA) {
        const char zero[16] = {};
        the_accelerator().fill(grads[i], zero);
      } else {
        std::fill_n(grads[i].raw(), grads[i].numel() * grads[i].itemsize(), 0);
      }
    }
    if (thread_state().grad_mode && graph_->recorded) {
      std::vector<Tensor> tensors;
      for (const auto& saved : inputs_) tensors.push_back(saved.unpack(this, name()));
      return graph_->recorded(tensors, grads);
    }
    std::vector<Tensor> arguments;
    arguments.reserve(saved_.size() + grads.size());
    for (const auto& saved : saved_) arguments.push_back(saved.unpack(this, name()));
    for (size_t i = 0; i < grads.size(); ++i)
      arguments.push_back(matching(grads[i], graph_->gradient_strides[i]));
    grads.clear();
    if (!autograd::releases_saved(this)) return graph_->backward->run(arguments.data());
    release_saved();
    return graph_->backward->run_once(arguments);
  }

  void release_saved() override {
    for (auto& saved : saved_) saved.reset();
    for (auto& saved : inputs_) saved.reset();
  }

  void save(const Tensor* tensors, size_t inputs, const std::vector<Tensor>& results_and_saved, int results) {
    saved_.reserve(results_and_saved.size() - results);
    if (graph_->recorded) {
      inputs_.reserve(inputs);
      for (size_t i = 0; i < inputs; ++i) inputs_.emplace_back(tensors[i], false);
    }
    for (size_t i = results; i < results_and_saved.size(); ++i)
      saved_.emplace_back(results_and_saved[i], false);
  }

 private:
  static Tensor matching(const Tensor& grad, const Dims& strides) {
    if (grad.strides() == IntSpan(strides) && is_aligned(grad)) return grad;
    Tensor laid = empty_strided(grad.sizes(), strides, grad.options());
    copy_into(laid, grad);
    return laid;
  }

  Ref<CompiledGraph> graph_;
  std::vector<autograd::SavedTensor> saved_, inputs_;
};

}  // namespace

namespace {
std::mutex fixed_mutex;
std::vector<FixedInputs*> all_fixed;
}  // namespace

FixedInputs::FixedInputs(const std::vector<bool>& is_fixed) : edges_(is_fixed.size()) {
  for (size_t i = 0; i < is_fixed.size(); ++i)
    if (!is_fixed[i]) rest_.push_back(static_cast<int>(i));
  const std::lock_guard<std::mutex> lock(fixed_mutex);
  all_fixed.push_back(this);
}

FixedInputs::~FixedInputs() {
  const std::lock_guard<std::mutex> lock(fixed_mutex);
  all_fixed.erase(std::find(all_fixed.begin(), all_fixed.end(), this));
}

void FixedInputs::forget() {
  fitting_.clear();
  for (autograd::Edge& edge : edges_) edge = {};
}

void forget_edges() {
  std::vector<autograd::Edge> dropped;  // their end may run Python code: not under the lock
  const std::lock_guard<std::mutex> lock(fixed_mutex);
  for (FixedInputs* fixed : all_fixed) {
    dropped.insert(dropped.end(), fixed->edges_.begin(), fixed->edges_.end());
    for (autograd::Edge& edge : fixed->edges_) edge = {};
  }
}

bool FixedInputs::fits(const CompiledGraph& graph, const Tensor* tensors) {
  for (const Known& known : fitting_)
    if (known.graph.get() == &graph) return graph.fits(tensors, rest_);
  if (!graph.fits(tensors)) return false;
  if (fitting_.size() >= kMaxGraphs) fitting_.erase(fitting_.begin(), fitting_.begin() + kMaxGraphs / 2);
  // Where it holds because of an input that is not fixed, all are looked at in every call.
  fitting_.push_back({Ref<CompiledGraph>(const_cast<CompiledGraph*>(&graph)), graph.entangled(tensors)});
  return true;
}

bool FixedInputs::entangled(const CompiledGraph& graph, const Tensor* tensors) const {
  for (const Known& known : fitting_)
    if (known.graph.get() == &graph && !known.entangled) return graph.entangled(tensors, &rest_);
  return graph.entangled(tensors);
}

void FixedInputs::connect(autograd::Node& node, const std::vector<int>& inputs, const Tensor* tensors) {
  for (int i : inputs) {
    if (edges_[i]) {
      node.next.push_back(edges_[i]);
      continue;
    }
    autograd::Edge edge = autograd::gradient_edge(tensors[i]);
    // A leaf stays one while it is not counted as changed; other history may be replaced.
    const bool fixed = !std::binary_search(rest_.begin(), rest_.end(), i);
    if (fixed && edge && autograd::is_leaf(tensors[i])) edges_[i] = edge;
    node.next.push_back(std::move(edge));
  }
}

namespace {
bool matches(const InputSpec& spec, const Tensor& tensor) {
  const TensorImpl& t = *tensor.impl();
  return t.dtype == spec.dtype && tensor.requires_grad() == spec.requires_grad &&
         IntSpan(t.sizes) == IntSpan(spec.sizes) && IntSpan(t.strides) == IntSpan(spec.strides) &&
         t.device == spec.device && is_aligned(tensor) == spec.aligned && (t.keys & kDeferred).empty();
}
}  // namespace

bool CompiledGraph::fits(const Tensor* tensors) const {
  if (thread_state().grad_mode != grad_mode || autocast::signature() != autocast) return false;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!matches(inputs[i], tensors[i])) return false;
  return true;
}

bool CompiledGraph::fits(const Tensor* tensors, const std::vector<int>& some) const {
  if (thread_state().grad_mode != grad_mode || autocast::signature() != autocast) return false;
  for (int i : some)
    if (!matches(inputs[i], tensors[i])) return false;
  return true;
}

bool CompiledGraph::entangled(const Tensor* tensors, const std::vector<int>* some) const {
  const auto share = [&](int a, int b) {
    return a != b && tensors[a]->storage.get() == tensors[b]->storage.get();
  };
  for (int w : forward.written) {
    if (some && !std::binary_search(some->begin(), some->end(), w)) {
      for (int i : *some)
        if (share(i, w)) return true;
    } else {
      for (size_t i = 0; i < inputs.size(); ++i)
        if (share(static_cast<int>(i), w)) return true;
    }
  }
  return false;
}

namespace {
// The elements of its storage between which a tensor lies, with positive strides.
std::pair<int64_t, int64_t> extent(const Tensor& t) {
  int64_t last = t.offset();
  for (int64_t d = 0; d < t.dim(); ++d) last += (t.size(d) - 1) * t.stride(d);
  return {t.offset(), last};
}

// Whether writes to `base` may be followed by `view` as a window on it.
bool may_be_base(const Tensor& base, const Tensor& view) {
  if (base.same(view) || base->storage.get() != view->storage.get() || base.dtype() != view.dtype() ||
      !base.requires_grad() || base.numel() == 0 || view.numel() == 0)
    return false;
  const auto outer = extent(base), inner = extent(view);
  return outer.first <= inner.first && inner.second <= outer.second;
}

// The largest dense result of a family that another one lies in, or null; of equals the first.
const Tensor* base_among(const CompiledGraph& graph, const std::vector<Tensor>& results, size_t view) {
  const auto width = [](const Tensor& t) { return extent(t).second - extent(t).first; };
  const Tensor& inner = results[graph.gradients_from[view]];
  const Tensor* base = nullptr;
  for (size_t i = 0; i < graph.gradients_from.size(); ++i) {
    const Tensor& other = results[graph.gradients_from[i]];
    if (graph.families[i] != graph.families[view] || !may_be_base(other, inner) || !is_dense(other)) continue;
    if (i > view && width(other) == width(inner) && is_dense(inner)) continue;
    if (base == nullptr || width(other) > width(*base)) base = &other;
  }
  return base;
}

// Results that are views of an input or of another result are so for writes in place that follow, as in eager
// mode: gradients flow through what was written.
void connect_views(const CompiledGraph& graph, const std::vector<Tensor>& results, const Tensor* inputs) {
  if (graph.families.size() != graph.gradients_from.size()) return;
  for (size_t i = 0; i < graph.families.size(); ++i) {
    const Tensor& view = results[graph.gradients_from[i]];
    if (view->storage->use_count() == 1) continue;  // nearly always
    const auto family = static_cast<size_t>(graph.families[i]);
    const Tensor* base = nullptr;
    if (family >= graph.inputs.size())
      base = base_among(graph, results, i);
    else if (may_be_base(inputs[family], view))
      base = &inputs[family];
    if (base != nullptr) autograd::make_view(view, *base, false);
  }
}
}  // namespace

std::vector<Tensor> CompiledGraph::run(const Tensor* tensors, FixedInputs* fixed) {
  std::vector<Tensor> results_and_saved = forward.run(tensors);
  if (backward) {
    Ref<CompiledBackward> node(new CompiledBackward(Ref<CompiledGraph>(this)));
    node->next.reserve(gradients_of.size());
    if (fixed) {
      fixed->connect(*node, gradients_of, tensors);
    } else {
      for (int i : gradients_of) node->next.push_back(autograd::gradient_edge(tensors[i]));
    }
    node->save(tensors, inputs.size(), results_and_saved, results);
    for (int i : gradients_from) {
      const uint32_t output = node->add_output(results_and_saved[i]);
      autograd::set_history(results_and_saved[i], Ref<autograd::Node>(node.get()), output);
    }
    results_and_saved.resize(results);
    connect_views(*this, results_and_saved, tensors);
  }
  return results_and_saved;
}

Ref<CompiledGraph> CompiledGraph::copy() const {
  Ref<CompiledGraph> duplicate(new CompiledGraph());
  duplicate->inputs = inputs;
  duplicate->refused = refused;
  duplicate->grad_mode = grad_mode;
  duplicate->autocast = autocast;
  duplicate->forward = forward;
  if (backward) duplicate->backward = std::make_unique<Program>(*backward);
  duplicate->results = results;
  duplicate->gradients_of = gradients_of;
  duplicate->gradients_from = gradients_from;
  duplicate->families = families;
  duplicate->gradient_strides = gradient_strides;
  duplicate->recorded = recorded;
  return duplicate;
}

std::atomic<int64_t> instantiated_graphs{0};

SpecializedFunction::SpecializedFunction() = default;
SpecializedFunction::~SpecializedFunction() = default;

std::vector<Tensor> SpecializedFunction::call(const Tensor* tensors, FixedInputs* fixed) {
  if (any_unusual_storage())
    for (int i = 0; i < inputs; ++i) own_storage("compiled function", tensors[i]);
  Ref<CompiledGraph> graph = find(tensors, fixed);
  if (!graph &&
      std::any_of(tensors, tensors + inputs, [](const Tensor& t) { return !(t->keys & kDeferred).empty(); }))
    return original(tensors);
  if (!graph && parametric) graph = instantiate(tensors);
  if (!graph) graph = compile(tensors);
  if (graph->refused) return original(tensors);
  const bool entangled = fixed ? fixed->entangled(*graph, tensors) : graph->entangled(tensors);
  return entangled ? original(tensors) : graph->run(tensors, fixed);
}

Ref<CompiledGraph> SpecializedFunction::find(const Tensor* tensors, FixedInputs* fixed) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto graph = std::find_if(graphs_.begin(), graphs_.end(), [&](const Ref<CompiledGraph>& g) {
    return fixed ? fixed->fits(*g, tensors) : g->fits(tensors);
  });
  if (graph == graphs_.end()) return {};
  std::rotate(graphs_.begin(), graph, graph + 1);
  return graphs_.front();
}

Ref<CompiledGraph> SpecializedFunction::instantiate(const Tensor* tensors) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto family = families_.begin(); family != families_.end(); ++family) {
    Ref<CompiledGraph> graph = (*family)->instantiate(tensors);
    if (!graph) continue;
    std::rotate(families_.begin(), family, family + 1);
    keep(graph);
    ++instantiated_graphs;
    return graph;
  }
  return {};
}

Ref<CompiledGraph> SpecializedFunction::compile(const Tensor* tensors) {
  const ExcludeKeys unchanged{KeySet()};
  // Recording listens to calls, also where an operator of a program that runs made this one.
  thread_state().excluded = thread_state().excluded - KeySet(Key::Python);
  Ref<CompiledGraph> graph = miss(tensors);
  if (!graph) {
    graph = Ref<CompiledGraph>(new CompiledGraph());
    graph->refused = true;
    for (int i = 0; i < inputs; ++i) graph->inputs.push_back(spec_of(tensors[i]));
    graph->grad_mode = thread_state().grad_mode;
    graph->autocast = autocast::signature();
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  keep(graph);
  if (parametric && PlanFamily::accepts(*graph)) keep_as_sample(graph);
  return graph;
}

void SpecializedFunction::keep(const Ref<CompiledGraph>& graph) {
  graphs_.insert(graphs_.begin(), graph);
  if (graphs_.size() > kMaxGraphs) graphs_.pop_back();
}

void SpecializedFunction::keep_as_sample(const Ref<CompiledGraph>& graph) {
  for (auto family = families_.begin(); family != families_.end(); ++family) {
    if (!(*family)->add(*graph)) continue;
    std::rotate(families_.begin(), family, family + 1);
    if (families_.front()->is_hopeless()) families_.front() = std::make_unique<PlanFamily>(graph);
    return;
  }
  families_.insert(families_.begin(), std::make_unique<PlanFamily>(graph));
  if (families_.size() > kMaxFamilies) families_.pop_back();
}

}  // namespace fl::compiled

// The backward engine: counts how many gradients each reachable node waits for, then runs nodes, latest first, as they
// become ready. Runs in the calling thread; a backward inside a hook or Function is an independent, nested run.
#include <algorithm>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "autograd/node.h"
#include "cpu/pointwise.h"
#include "dispatch/kernel.h"

namespace fl::autograd {

namespace {

struct Later {
  bool operator()(const Node* a, const Node* b) const { return a->sequence < b->sequence; }
};

struct Task {
  int waiting = 0;
  bool needed = true;
  std::vector<Tensor> grads;
};

// Adds `grad` to a slot; in place when nobody else can see the slot's tensor.
void accumulate(Tensor& slot, Tensor&& grad, bool track) {
  if (!grad.defined()) return;
  if (!slot.defined()) {
    slot = std::move(grad);
    return;
  }
  static const Operator& add = OperatorTable::get().at("add.Tensor");
  static const Operator& add_ = OperatorTable::get().at("add_.Tensor");
  if (!track && slot->use_count() == 1 && slot->storage->use_count() == 1 && slot->python == nullptr && is_dense(slot) &&
      slot.sizes() == grad.sizes() && slot.dtype() == grad.dtype())
    call_tensor(add_, slot, grad, int64_t(1));
  else
    slot = call_tensor(add, slot, grad, int64_t(1));
}

// Gradients must have the shape, dtype and device of what they belong to; broadcast dimensions are summed.
void validate(const Node& node, std::vector<Tensor>& grads, const std::string& from) {
  for (size_t i = 0; i < grads.size() && i < node.outputs.size(); ++i) {
    Tensor& g = grads[i];
    if (!g.defined()) continue;
    const OutputMeta& want = node.outputs[i];
    if (g->sizes != want.sizes) {
      static const Operator& sum_to = OperatorTable::get().at("sum_to_size");
      bool expandable = g.dim() >= static_cast<int64_t>(want.sizes.size());
      const int64_t lead = g.dim() - static_cast<int64_t>(want.sizes.size());
      for (size_t d = 0; expandable && d < want.sizes.size(); ++d) expandable = want.sizes[d] == 1 || want.sizes[d] == g.size(lead + d);
      FL_CHECK(expandable, "[", from, "] expected a gradient of shape ", IntSpan(want.sizes), " at index ", static_cast<int64_t>(i), ", got ",
               g.sizes());
      g = call_tensor(sum_to, g, want.sizes.vec());
    }
    if (g.dtype() != want.dtype) {
      if (is_complex(g.dtype()) && !is_complex(want.dtype)) {
        static const Operator& real = OperatorTable::get().at("real");
        g = call_tensor(real, g);
      }
      static const Operator& cast = OperatorTable::get().at("_to_dtype");
      if (g.dtype() != want.dtype) g = call_tensor(cast, g, Value(want.dtype), Value());
    }
    FL_CHECK(g.device() == want.device, "[", from, "] expected a gradient on ", to_string(want.device), ", got ", to_string(g.device()));
  }
}

struct GradMode {
  bool saved;
  explicit GradMode(bool on) : saved(thread_state().grad_mode) { thread_state().grad_mode = on; }
  ~GradMode() { thread_state().grad_mode = saved; }
};

}  // namespace

std::vector<Tensor> run_backward(const std::vector<Edge>& roots, std::vector<Tensor> grads, const std::vector<Edge>& inputs,
                                 BackwardOptions options) {
  GradMode mode(options.create_graph);
  std::unordered_map<Node*, Task> tasks;
  // Dependencies, by a walk over everything reachable.
  {
    std::vector<Node*> stack;
    for (const Edge& e : roots)
      if (e && tasks.try_emplace(e.node.get()).second) stack.push_back(e.node.get());
    while (!stack.empty()) {
      Node* node = stack.back();
      stack.pop_back();
      for (const Edge& e : node->next) {
        if (!e) continue;
        auto [it, fresh] = tasks.try_emplace(e.node.get());
        ++it->second.waiting;
        if (fresh) stack.push_back(e.node.get());
      }
    }
  }
  // With inputs given, only nodes on a path to one of them run.
  std::unordered_map<Node*, std::vector<std::pair<uint32_t, size_t>>> captures;
  std::vector<Tensor> captured(inputs.size());
  if (!inputs.empty()) {
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i]) captures[inputs[i].node.get()].push_back({inputs[i].input, i});
    // Walk in post-order without recursion.
    std::unordered_map<Node*, int> state;  // 1 open, 2 done
    std::vector<std::pair<Node*, size_t>> stack;
    for (auto& [node, task] : tasks) task.needed = captures.count(node) > 0;
    for (const Edge& e : roots) {
      if (!e || state[e.node.get()]) continue;
      state[e.node.get()] = 1;
      stack.push_back({e.node.get(), 0});
      while (!stack.empty()) {
        auto& [node, at] = stack.back();
        if (at < node->next.size()) {
          const Edge& edge = node->next[at++];
          if (edge && !state[edge.node.get()]) {
            state[edge.node.get()] = 1;
            stack.push_back({edge.node.get(), 0});
          }
          continue;
        }
        Task& task = tasks[node];
        for (const Edge& edge : node->next)
          if (edge && tasks[edge.node.get()].needed) task.needed = true;
        stack.pop_back();
      }
    }
  }

  std::priority_queue<Node*, std::vector<Node*>, Later> ready;
  std::vector<Ref<Node>> alive;  // roots stay until the end
  for (size_t i = 0; i < roots.size(); ++i) {
    if (!roots[i]) continue;
    alive.push_back(roots[i].node);
    Task& task = tasks[roots[i].node.get()];
    task.grads.resize(std::max<size_t>(task.grads.size(), roots[i].node->outputs.size()));
    accumulate(task.grads[roots[i].input], std::move(grads[i]), options.create_graph);
  }
  {
    std::unordered_set<Node*> queued;
    for (const Edge& e : roots)
      if (e && tasks[e.node.get()].waiting == 0 && queued.insert(e.node.get()).second) ready.push(e.node.get());
  }
  while (!ready.empty()) {
    const Ref<Node> node(ready.top());
    ready.pop();
    Task task = std::move(tasks[node.get()]);
    std::vector<Tensor> in = std::move(task.grads);
    in.resize(std::max(in.size(), node->outputs.size()));
    std::vector<Tensor> out;
    if (task.needed) {
      validate(*node, in, node->name());
      for (size_t i = 0; i < node->tensor_hooks.size(); ++i) {
        const auto [at, hook] = node->tensor_hooks[i];
        std::vector<Tensor> one{in[at]};
        hook->call(one, nullptr);
        in[at] = one[0];
      }
      for (auto& [at, impl] : node->retained)
        if (in[at].defined()) {
          Meta& m = ensure_meta(Tensor(impl));
          m.grad = m.grad.defined() ? call_tensor(OperatorTable::get().at("add.Tensor"), m.grad, in[at], int64_t(1)) : in[at];
        }
      for (size_t i = 0; i < node->pre_hooks.size(); ++i) node->pre_hooks[i]->call(in, nullptr);
      bool run = true;
      if (auto it = captures.find(node.get()); it != captures.end()) {
        for (auto [output, i] : it->second) captured[i] = in[output];
        // A captured leaf does not accumulate; a captured inner node runs on only when something further is needed.
        run = false;
        for (const Edge& e : node->next) run |= e && tasks[e.node.get()].needed;
        if (options.accumulate && dynamic_cast<Accumulate*>(node.get())) run = true;
      }
      if (run) {
        if (node->post_hooks.empty()) {
          out = node->apply(std::move(in));
        } else {
          const std::vector<Tensor> kept = in;
          out = node->apply(std::move(in));
          for (size_t i = 0; i < node->post_hooks.size(); ++i) node->post_hooks[i]->call(out, &kept);
        }
        if (!options.retain_graph) node->release_saved();
      }
    }
    in.clear();
    for (size_t i = 0; i < node->next.size(); ++i) {
      const Edge& e = node->next[i];
      if (!e) continue;
      Task& next = tasks[e.node.get()];
      if (next.grads.size() < e.node->outputs.size()) next.grads.resize(e.node->outputs.size());
      if (i < out.size() && next.needed) accumulate(next.grads[e.input], std::move(out[i]), options.create_graph);
      if (--next.waiting == 0) ready.push(e.node.get());
    }
  }
  return captured;
}

}  // namespace fl::autograd

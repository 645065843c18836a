// The backward engine: counts how many gradients each reachable node waits for, then runs nodes, latest
// first, as they become ready. Runs in the calling thread; a backward inside a hook or Function is an
// independent, nested run.
#include <algorithm>
#include <cmath>
#include <deque>
#include <queue>

#include "autograd/node.h"
#include "autograd/releasing.h"
#include "dispatch/kernel.h"
#include "dispatch/profiling.h"

namespace fl::autograd {

namespace {

struct Task {
  Node* node = nullptr;
  int waiting = 0;
  bool needed = true;
  bool visited = false;
  int capture = -1;  // first of the wanted inputs that are this node's, or -1
  std::vector<Tensor> grads;
};

// Tasks by node: open addressing, since every step of the run looks several up.
class Tasks {
 public:
  Tasks() : slots_(64) {}
  std::pair<Task*, bool> insert(Node* node) {
    if (tasks_.size() * 2 >= slots_.size()) grow();
    Slot& slot = find_slot(node);
    if (slot.node) return {slot.task, false};
    tasks_.emplace_back();
    tasks_.back().node = node;
    slot = {node, &tasks_.back()};
    return {slot.task, true};
  }
  Task& operator[](Node* node) { return *find_slot(node).task; }
  Task* find(Node* node) const { return const_cast<Tasks*>(this)->find_slot(node).task; }
  std::deque<Task>& all() { return tasks_; }

 private:
  struct Slot {
    Node* node = nullptr;
    Task* task = nullptr;
  };
  Slot& find_slot(Node* node) {
    size_t i = (reinterpret_cast<uintptr_t>(node) >> 4) * 0x9E3779B97F4A7C15ull >> 32 & (slots_.size() - 1);
    while (slots_[i].node && slots_[i].node != node) i = (i + 1) & (slots_.size() - 1);
    return slots_[i];
  }
  void grow() {
    slots_.assign(slots_.size() * 2, Slot());
    for (Task& t : tasks_) find_slot(t.node) = {t.node, &t};
  }
  std::vector<Slot> slots_;
  std::deque<Task> tasks_;
};

struct Later {
  bool operator()(const Task* a, const Task* b) const { return a->node->sequence < b->node->sequence; }
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
  if (!track && !slot->sparse && slot->use_count() == 1 && slot->storage->use_count() == 1 &&
      slot->python == nullptr && is_dense(slot) && slot.sizes() == grad.sizes() &&
      slot.dtype() == grad.dtype())
    call_tensor(add_, slot, grad, int64_t(1));
  else if (slot->sparse)  // a dense gradient comes first
    slot = call_tensor(add, grad->sparse ? slot : grad, grad->sparse ? grad : slot, int64_t(1));
  else
    slot = call_tensor(add, slot, grad, int64_t(1));
}

// Gradients must have the shape, dtype and device of what they belong to before they are added up; broadcast
// dimensions are summed.
void conform(const Node& from, size_t index, Tensor& g, const OutputMeta& want) {
  if (__builtin_expect(g->sizes != want.sizes, 0)) {
    bool expandable = g.dim() >= static_cast<int64_t>(want.sizes.size());
    const int64_t lead = g.dim() - static_cast<int64_t>(want.sizes.size());
    for (size_t d = 0; expandable && d < want.sizes.size(); ++d)
      expandable = want.sizes[d] == 1 || want.sizes[d] == g.size(lead + d);
    FL_CHECK(expandable, "[", from.name(), "] expected a gradient of shape ", IntSpan(want.sizes),
             " at index ", static_cast<int64_t>(index), ", got ", g.sizes(), ": Function ", from.name(),
             " returned an invalid gradient at index ", static_cast<int64_t>(index), " - got ", g.sizes(),
             " but expected shape compatible with ", IntSpan(want.sizes));
    g = sum_to(g, want.sizes);
  }
  if (__builtin_expect(g.dtype() != want.dtype, 0)) {
    if (is_complex(g.dtype()) && !is_complex(want.dtype)) {
      static const Operator& real = OperatorTable::get().at("real");
      g = call_tensor(real, g);
    }
    static const Operator& cast = OperatorTable::get().at("to.dtype");
    if (g.dtype() != want.dtype) g = call_tensor(cast, g, Value(want.dtype), false, false, Value());
  }
  FL_CHECK(g.device() == want.device, "[", from.name(), "] expected a gradient on ", to_string(want.device),
           " at index ", static_cast<int64_t>(index), ", got an invalid gradient on ", to_string(g.device()));
}

void check_nan(const Node& node, const std::vector<Tensor>& grads) {
  for (size_t i = 0; i < grads.size(); ++i) {
    if (!grads[i].defined() || grads[i].is_meta() || grads[i].numel() == 0) continue;
    static const Operator& sum = OperatorTable::get().at("sum");
    static const Operator& ne = OperatorTable::get().at("ne.Tensor");
    const Tensor nan = call_tensor(sum, call_tensor(ne, grads[i], grads[i]), Value(), false, Value());
    if (item(nan).to<int64_t>() == 0) continue;
    fail("[", node.name(), "] expected gradients that are numbers, got NaN: Function '", node.name(),
         "' returned nan values in its ", static_cast<int64_t>(i), "th output.");
  }
}

struct GradMode {
  bool saved;
  explicit GradMode(bool on) : saved(thread_state().grad_mode) { thread_state().grad_mode = on; }
  ~GradMode() { thread_state().grad_mode = saved; }
};

thread_local Node* running = nullptr;
thread_local int depth = 0;
thread_local bool releasing = false;  // the backward pass drops what its nodes saved
thread_local std::vector<std::function<void()>>* callbacks = nullptr;

struct Running {
  Node* outer;
  explicit Running(Node* node) : outer(std::exchange(running, node)) {}
  ~Running() { running = outer; }
};

class Pass;
thread_local const Pass* current_pass = nullptr;
thread_local int64_t run_number = -1;
std::atomic<int64_t> next_run{0};

// Queued callbacks run after the backward in which they were queued.
struct Session {
  std::vector<std::function<void()>>* outer;
  std::vector<std::function<void()>> own;
  const bool outer_releases;
  const int64_t outer_run;
  const Pass* outer_pass;
  Session(bool releases, const Pass* pass)
      : outer(std::exchange(callbacks, &own)),
        outer_releases(std::exchange(releasing, releases)),
        outer_run(std::exchange(run_number, next_run.fetch_add(1, std::memory_order_relaxed))),
        outer_pass(std::exchange(current_pass, pass)) {
    ++depth;
  }
  ~Session() {
    run_number = outer_run;
    current_pass = outer_pass;
    callbacks = outer;
    releasing = outer_releases;
    --depth;
  }
  void finish() {
    for (size_t i = 0; i < own.size(); ++i) own[i]();
  }
};

void call_hook(Hook& hook, Tensor& grad) {
  std::vector<Tensor> one{grad};
  hook.call(one, nullptr);
  grad = one[0];
}

// Hooks of the tensors that a node is the history of, in the order of registration; kept gradients see their
// results.
void tensor_hooks(Node& node, Accumulate* leaf, std::vector<Tensor>& in) {
  if (leaf) {
    Meta* m = meta_of(leaf->variable);
    if (!m->extras || !in[0].defined()) return;
    const auto hooks = m->extras->hooks;
    for (const auto& hook : hooks) call_hook(*hook, in[0]);
    return;
  }
  if (!node.extras) return;
  const auto hooks = node.extras->tensor_hooks;
  for (const auto& [at, hook] : hooks)
    if (in[at].defined()) call_hook(*hook, in[at]);
  for (auto& [at, m] : node.extras->retained)
    if (in[at].defined())
      m->grad = m->grad.defined()
                    ? call_tensor(OperatorTable::get().at("add.Tensor"), m->grad, in[at], int64_t(1))
                    : in[at];
}

std::vector<Tensor> run_node(Node& node, std::vector<Tensor>&& in) {
  const profiling::Scope recorded([&] { return "autograd::engine::evaluate_function: " + node.name(); });
  Running scope(&node);
  std::vector<Tensor> out;
  const bool anomaly = anomaly_mode.load(std::memory_order_relaxed);
  try {
    if (node.extras && !(node.extras->pre_hooks.empty() && node.extras->post_hooks.empty())) {
      const auto before = node.extras->pre_hooks;
      for (const auto& hook : before) hook->call(in, nullptr);
      const std::vector<Tensor> arrived = in;
      out = node.apply(std::move(in));
      const auto after = node.extras->post_hooks;
      for (const auto& hook : after) hook->call(out, &arrived);
    } else {
      const size_t n = in.size();
      out = node.apply(std::move(in));
      if (__builtin_expect(node.extras && !node.extras->post_hooks.empty(), 0)) {  // set while it ran
        const auto after = node.extras->post_hooks;
        for (const auto& hook : after) {
          const std::vector<Tensor> unknown(n);
          hook->call(out, &unknown);
        }
      }
    }
    if (__builtin_expect(anomaly, 0) && anomaly_check_nan.load(std::memory_order_relaxed))
      check_nan(node, out);
  } catch (...) {
    if (anomaly && report_trace) report_trace(node);
    throw;
  }
  return out;
}

}  // namespace

void queue_callback(std::function<void()> callback) {
  FL_CHECK(callbacks,
           "[queue_callback] expected to be inside a backward, got a call outside: final callbacks can only "
           "be installed during backward pass.");
  callbacks->push_back(std::move(callback));
}
bool in_backward() {
  return depth > 0;
}
Node* current_node() {
  return running;
}

int64_t current_run() {
  return run_number;
}
bool current_run_keeps_graph() {
  return depth > 0 && !releasing;
}

bool releases_saved(const Node* node) {
  return releasing && running == node;
}

namespace {

// How many gradients each node waits for, by a walk over everything reachable.
void count_dependencies(Tasks& tasks, const std::vector<Edge>& roots) {
  std::vector<Node*> stack;
  for (const Edge& e : roots)
    if (e && tasks.insert(e.node.get()).second) stack.push_back(e.node.get());
  while (!stack.empty()) {
    Node* node = stack.back();
    stack.pop_back();
    for (const Edge& e : node->next) {
      if (!e) continue;
      auto [task, fresh] = tasks.insert(e.node.get());
      ++task->waiting;
      if (fresh) stack.push_back(e.node.get());
    }
  }
}

// With inputs asked for, only nodes on a path to one of them run.
void mark_needed(Tasks& tasks, const std::vector<Edge>& roots, const std::vector<Edge>& inputs) {
  for (Task& task : tasks.all()) task.needed = false;
  for (size_t i = inputs.size(); i-- > 0;)
    if (inputs[i])
      if (Task* task = tasks.find(inputs[i].node.get())) {
        task->needed = true;
        task->capture = static_cast<int>(i);
      }
  // In post-order, without recursion.
  std::vector<std::pair<Task*, size_t>> stack;
  for (const Edge& e : roots) {
    if (!e || tasks[e.node.get()].visited) continue;
    tasks[e.node.get()].visited = true;
    stack.push_back({&tasks[e.node.get()], 0});
    while (!stack.empty()) {
      auto& [task, at] = stack.back();
      if (at < task->node->next.size()) {
        const Edge& edge = task->node->next[at++];
        if (!edge) continue;
        Task& next = tasks[edge.node.get()];
        if (!next.visited) {
          next.visited = true;
          stack.push_back({&next, 0});
        }
        continue;
      }
      Task* done = task;
      for (const Edge& edge : done->node->next)
        if (edge && tasks[edge.node.get()].needed) done->needed = true;
      stack.pop_back();
    }
  }
}

// One run of the backward pass: tasks become ready when all their gradients have arrived.
class Pass {
 public:
  Pass(const std::vector<Edge>& inputs, BackwardOptions options)
      : inputs_(inputs), options_(options), captured_(inputs.size()) {}

  std::vector<Tensor> run(const std::vector<Edge>& roots, std::vector<Tensor> grads) {
    count_dependencies(tasks_, roots);
    if (!inputs_.empty()) mark_needed(tasks_, roots, inputs_);
    start(roots, std::move(grads));
    while (!ready_.empty()) {
      Task* task = ready_.top();
      ready_.pop();
      hand_on(*task->node, run_task(*task));
    }
    return std::move(captured_);
  }

  bool partial() const { return !inputs_.empty(); }
  // Whether a node is run, and not only reached to be asked for what arrives there.
  bool will_run(Node* node) const {
    const Task* task = tasks_.find(node);
    if (!task || !task->needed) return false;
    if (task->capture < 0) return true;
    auto* leaf = dynamic_cast<Accumulate*>(node);
    FL_CHECK(
        !leaf || options_.accumulate,
        "[_will_engine_execute_node] expected a node that is no leaf's, got one: you are currently running "
        "autograd.grad() and passing a leaf");
    return runs_on(*task, leaf);
  }

 private:
  // Gives the roots their gradients.
  void start(const std::vector<Edge>& roots, std::vector<Tensor> grads) {
    for (size_t i = 0; i < roots.size(); ++i) {
      if (!roots[i]) continue;
      Task& task = tasks_[roots[i].node.get()];
      task.grads.resize(std::max<size_t>(task.grads.size(), roots[i].node->outputs.size()));
      if (grads[i].defined()) conform(*roots[i].node, i, grads[i], roots[i].node->outputs[roots[i].input]);
      accumulate(task.grads[roots[i].input], std::move(grads[i]), options_.create_graph);
    }
    for (const Edge& e : roots)
      if (e) {
        Task& task = tasks_[e.node.get()];
        if (task.waiting == 0) {
          task.waiting = -1;  // queued
          ready_.push(&task);
        }
      }
  }

  // The gradients that a node makes of those that arrived; none where it is not needed.
  std::vector<Tensor> run_task(Task& task) {
    Node* node = task.node;
    std::vector<Tensor> in = std::move(task.grads);
    in.resize(std::max(in.size(), node->outputs.size()));
    for (Tensor& g : in)
      if (g.defined() && __builtin_expect(bool(g->sparse), 0) && !node->takes_sparse()) {
        static const Operator& to_dense = OperatorTable::get().at("_sparse_to_dense");
        g = call_tensor(to_dense, g);
      }
    if (!task.needed) return {};
    auto* leaf = node->sequence == UINT64_MAX ? dynamic_cast<Accumulate*>(node) : nullptr;
    if (leaf || node->extras) {
      Running scope(node);
      tensor_hooks(*node, leaf, in);
    }
    if (task.capture >= 0 && !capture(task, leaf, in)) {
      // backward(inputs=[x]) ends at x as if its node ran.
      if (options_.accumulate && node->extras) {
        const auto before = node->extras->pre_hooks;
        for (const auto& hook : before) hook->call(in, nullptr);
      }
      return {};
    }
    std::vector<Tensor> out = run_node(*node, std::move(in));
    if (!options_.retain_graph) node->release_saved();
    return out;
  }

  // Keeps what arrived for the caller. A captured leaf does not accumulate for grad(); a captured inner node
  // runs on only when something further is needed: the answer.
  bool capture(const Task& task, const Accumulate* leaf, const std::vector<Tensor>& in) {
    for (size_t i = task.capture; i < inputs_.size(); ++i)
      if (inputs_[i].node.get() == task.node) captured_[i] = in[inputs_[i].input];
    return runs_on(task, leaf);
  }
  bool runs_on(const Task& task, const Accumulate* leaf) const {
    bool run = leaf && options_.accumulate;
    for (const Edge& e : task.node->next) {
      const Task* next = e ? tasks_.find(e.node.get()) : nullptr;
      run |= next && next->needed;
    }
    return run;
  }

  void hand_on(const Node& node, std::vector<Tensor> out) {
    for (size_t i = 0; i < node.next.size(); ++i) {
      const Edge& e = node.next[i];
      if (!e) continue;
      Task& next = tasks_[e.node.get()];
      if (i < out.size() && next.needed && out[i].defined()) {
        if (next.grads.size() < e.node->outputs.size()) next.grads.resize(e.node->outputs.size());
        if (e.input < e.node->outputs.size()) conform(node, i, out[i], e.node->outputs[e.input]);
        accumulate(next.grads[e.input], std::move(out[i]), options_.create_graph);
      }
      if (--next.waiting == 0) ready_.push(&next);
    }
  }

  const std::vector<Edge>& inputs_;
  const BackwardOptions options_;
  Tasks tasks_;
  std::priority_queue<Task*, std::vector<Task*>, Later> ready_;
  std::vector<Tensor> captured_;
};

}  // namespace

bool current_run_is_partial() {
  return current_pass && current_pass->partial();
}
bool will_run(Node* node) {
  FL_CHECK(current_pass,
           "[_will_engine_execute_node] expected to be called during the backward pass, got a call outside "
           "of one");
  return current_pass->will_run(node);
}

std::vector<Tensor> run_backward(const std::vector<Edge>& roots, std::vector<Tensor> grads,
                                 const std::vector<Edge>& inputs, BackwardOptions options) {
  GradMode mode(options.create_graph);
  Pass pass(inputs, options);
  Session session(!options.retain_graph, &pass);
  std::vector<Tensor> captured = pass.run(roots, std::move(grads));
  session.finish();
  return captured;
}

}  // namespace fl::autograd

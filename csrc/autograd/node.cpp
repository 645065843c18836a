// Nodes, saved tensors and the history of tensors.
#include "autograd/node.h"

#include "dispatch/kernel.h"

namespace fl::autograd {

Ref<Counted> (*pack_hook)(const Tensor&) = nullptr;
Tensor (*unpack_hook)(const Ref<Counted>&) = nullptr;

namespace {
thread_local uint64_t next_sequence = 0;

// Nodes waiting to be deleted by the outermost destroy() of this thread.
thread_local std::vector<Node*>* doomed = nullptr;
}  // namespace

Node::Node() : sequence(next_sequence++) {}
Node::~Node() = default;

void Node::destroy() {
  if (doomed) {
    doomed->push_back(this);
    return;
  }
  std::vector<Node*> list{this};
  doomed = &list;
  while (!list.empty()) {
    Node* node = list.back();
    list.pop_back();
    delete node;  // drops its edges, which push here instead of recursing
  }
  doomed = nullptr;
}

uint32_t Node::add_output(const Tensor& t) {
  outputs.push_back({t->sizes, t.dtype(), t.device()});
  return static_cast<uint32_t>(outputs.size() - 1);
}

// ---------------------------------------------------------------- metadata of tensors

Meta* meta_of(const Tensor& t) { return static_cast<Meta*>(t->autograd.get()); }

Meta& ensure_meta(const Tensor& t) {
  if (!t->autograd) t->autograd = Ref<AutogradMeta>(new Meta);
  return *meta_of(t);
}

void set_requires_grad(const Tensor& t, bool requires_grad) {
  if (requires_grad) {
    FL_CHECK(is_floating(t.dtype()) || is_complex(t.dtype()),
             "[requires_grad_] expected a floating point or complex tensor, got ", name_of(t.dtype()));
    FL_CHECK(!t->inference || thread_state().inference_mode,
             "[requires_grad_] expected a tensor made outside inference mode, got an inference tensor; clone() it first");
  }
  FL_CHECK(requires_grad || is_leaf(t), "[requires_grad_] expected a leaf tensor to stop requiring grad, got a result of ",
           is_leaf(t) ? "" : grad_fn_of(t)->name(), "; use detach() for a tensor without history");
  if (!requires_grad && !t->autograd) return;
  ensure_meta(t).requires_grad = requires_grad;
  t->refresh_keys();
}

bool is_leaf(const Tensor& t) {
  const Meta* m = meta_of(t);
  return m == nullptr || !m->grad_fn;
}

namespace {
std::mutex accumulate_mutex;

Ref<Node> accumulator(const Tensor& leaf) {
  std::lock_guard<std::mutex> lock(accumulate_mutex);
  Meta& m = ensure_meta(leaf);
  if (m.accumulate) {
    // It may be on its way out in another thread: only a count that is not zero can be taken up again.
    int64_t count = m.accumulate->refcount.load();
    while (count > 0)
      if (m.accumulate->refcount.compare_exchange_weak(count, count + 1)) return Ref<Node>::steal(m.accumulate);
  }
  Ref<Accumulate> fresh(new Accumulate(leaf));
  m.accumulate = fresh.get();
  return Ref<Node>(fresh.get());
}

// Gradient of a view as a window on the gradient of its base.
struct AsStridedView final : Node {
  Dims base_sizes, sizes, strides;
  int64_t offset;
  std::string name() const override { return "AsStridedBackward0"; }
  std::vector<Tensor> apply(std::vector<Tensor>&& grads) override {
    if (!grads[0].defined()) return {Tensor()};
    static const Operator& zeros = OperatorTable::get().at("zeros");
    static const Operator& scatter = OperatorTable::get().at("as_strided_scatter");
    Tensor base = call_tensor(zeros, base_sizes.vec(), Value(grads[0].dtype()), Value(), Value(grads[0].device()), Value(), Value());
    return {call_tensor(scatter, base, grads[0], sizes.vec(), strides.vec(), offset)};
  }
};

// In-place write to a view, seen from the base: gradient goes through the written op inside the window, unchanged outside.
struct CopySlices final : Node {
  Dims base_sizes, base_strides, sizes, strides;
  int64_t offset;
  Ref<Node> fn;
  std::string name() const override { return "CopySlices"; }
  std::vector<Tensor> apply(std::vector<Tensor>&& grads) override {
    std::vector<Tensor> out(next.size());
    if (!grads[0].defined()) return out;
    static const Operator& clone = OperatorTable::get().at("clone");
    static const Operator& window = OperatorTable::get().at("as_strided");
    static const Operator& copy = OperatorTable::get().at("copy_");
    Tensor grad = call_tensor(clone, grads[0], Value(MemoryFormat::Contiguous));
    const Tensor slice = call_tensor(window, grad, sizes.vec(), strides.vec(), offset);
    std::vector<Tensor> inner = fn->apply({call_tensor(clone, slice, Value(MemoryFormat::Contiguous))});
    Tensor zero;
    if (needs(0)) {
      if (inner[0].defined()) {
        call_tensor(copy, slice, inner[0], false);
      } else {
        static const Operator& zero_ = OperatorTable::get().at("zero_");
        call_tensor(zero_, slice);
      }
      out[0] = grad;
    }
    for (size_t i = 1; i < inner.size() && i < out.size(); ++i) out[i] = inner[i];
    return out;
  }
  void release_saved() override { fn->release_saved(); }
};

}  // namespace

Ref<Node> grad_fn_of(const Tensor& t) {
  Meta* m = meta_of(t);
  if (!m) return {};
  if (m->view && m->view->base->storage && !t->inference) {
    const uint32_t now = t->version().load();
    if (m->view->version != now && m->view->base.requires_grad()) {
      // Someone wrote to the base: the view's value is now a window on the base's new history.
      const Edge base = gradient_edge(m->view->base);
      if (base) {
        Ref<AsStridedView> node(new AsStridedView);
        const Tensor& b = m->view->base;
        node->base_sizes = b->sizes;
        node->sizes = t->sizes;
        node->strides = t->strides;
        node->offset = t.offset() - b.offset();
        node->next.push_back(base);
        m->output = node->add_output(t);
        m->grad_fn = Ref<Node>(node.get());
        m->requires_grad = true;
        t->refresh_keys();
      }
      m->view->version = now;
    }
  }
  return m->grad_fn;
}

Edge gradient_edge(const Tensor& t) {
  Meta* m = meta_of(t);
  if (!m || !m->requires_grad) return {};
  if (Ref<Node> fn = grad_fn_of(t)) return {fn, m->output};
  return {accumulator(t), 0};
}

void set_history(const Tensor& t, const Ref<Node>& node, uint32_t output) {
  Meta& m = ensure_meta(t);
  m.grad_fn = node;
  m.output = output;
  m.requires_grad = true;
  t->refresh_keys();
}

void check_inplace(const Tensor& t, const char* op) {
  if (!thread_state().grad_mode) return;
  const Meta* m = meta_of(t);
  FL_CHECK(!(m && m->requires_grad && is_leaf(t) && !m->view), "[", op,
           "] expected a tensor that may be written in place, got a leaf Variable that requires grad; "
           "wrap the write in no_grad() or work on a clone()");
  if (m && m->view) {
    FL_CHECK(!(m->view->base.requires_grad() && is_leaf(m->view->base)), "[", op,
             "] expected a tensor that may be written in place, got a view of a leaf Variable that requires grad; "
             "wrap the write in no_grad() or work on a clone()");
    FL_CHECK(!(m->view->multi && (m->requires_grad || m->view->base.requires_grad())), "[", op,
             "] expected a view that may be written in place, got one of several views made by one op "
             "(split, unbind, ...); write to a clone() or use the single-view form");
    FL_CHECK(!(m->view->no_grad && m->view->base.requires_grad()), "[", op,
             "] expected a view that may be written in place, got one made in no_grad mode from a tensor that requires grad; make the "
             "view in the mode you write in");
  }
}

void rebase_history(const Tensor& t, const Ref<Node>& node, uint32_t output) {
  Meta& m = ensure_meta(t);
  if (!m.view) {
    set_history(t, node, output);
    return;
  }
  const Tensor base = m.view->base;
  Ref<CopySlices> slices(new CopySlices);
  slices->base_sizes = base->sizes;
  slices->base_strides = base->strides;
  slices->sizes = t->sizes;
  slices->strides = t->strides;
  slices->offset = t.offset() - base.offset();
  slices->fn = node;
  slices->next = node->next;
  if (slices->next.empty()) slices->next.resize(1);
  slices->next[0] = gradient_edge(base);
  const uint32_t at = slices->add_output(base);
  set_history(base, Ref<Node>(slices.get()), at);
  m.view->version = t->version().load() - 1;  // whatever it is, it differs: the view's own history is rebuilt on demand
  m.requires_grad = true;
  t->refresh_keys();
  grad_fn_of(t);
}

void make_view(const Tensor& view, const Tensor& base, bool multi) {
  if (view->inference || base->inference) return;
  Meta& m = ensure_meta(view);
  Ref<ViewInfo> info(new ViewInfo);
  const Meta* bm = meta_of(base);
  info->base = bm && bm->view ? bm->view->base : base;
  info->version = view->version().load();
  info->multi = multi;
  info->no_grad = !thread_state().grad_mode;
  m.view = std::move(info);
}

Tensor detach(const Tensor& t) {
  Tensor out = alias(t, t.sizes(), t.strides(), t.offset());
  return out;
}

// ---------------------------------------------------------------- leaves

Accumulate::Accumulate(Tensor leaf) : variable(std::move(leaf)) {
  sequence = UINT64_MAX;  // leaves run as soon as they are ready
  add_output(variable);
}

Accumulate::~Accumulate() {
  std::lock_guard<std::mutex> lock(accumulate_mutex);
  Meta* m = meta_of(variable);
  if (m && m->accumulate == this) m->accumulate = nullptr;
}

std::vector<Tensor> Accumulate::apply(std::vector<Tensor>&& grads) {
  Meta& m = *meta_of(variable);
  for (size_t i = 0; i < m.hooks.size(); ++i) m.hooks[i]->call(grads, nullptr);
  Tensor grad = std::move(grads[0]);
  if (!grad.defined()) return {};
  {
    std::lock_guard<std::mutex> lock(m.mutex);
    const bool track = thread_state().grad_mode;
    static const Operator& add = OperatorTable::get().at("add.Tensor");
    static const Operator& add_ = OperatorTable::get().at("add_.Tensor");
    if (!m.grad.defined()) {
      // Keep it as it is when nobody else can see it.
      const bool own = !track && grad->use_count() == 1 && grad->storage->use_count() == 1 && is_dense(grad);
      if (own) {
        m.grad = std::move(grad);
      } else if (track) {
        static const Operator& clone = OperatorTable::get().at("clone");
        m.grad = call_tensor(clone, grad, Value());
      } else {
        m.grad = empty_like(variable, grad.dtype());
        if (grad.is_cpu()) {
          copy_into(m.grad, grad);
        } else {
          static const Operator& clone = OperatorTable::get().at("clone");
          m.grad = call_tensor(clone, grad, Value());
        }
      }
    } else if (track) {
      m.grad = call_tensor(add, m.grad, grad, int64_t(1));
    } else {
      call_tensor(add_, m.grad, grad, int64_t(1));
    }
  }
  std::vector<Tensor> self{variable};
  for (size_t i = 0; i < m.post_accumulate.size(); ++i) m.post_accumulate[i]->call(self, nullptr);
  return {};
}

// ---------------------------------------------------------------- saved tensors

SavedTensor::SavedTensor(const Tensor& t, bool is_output) {
  if (!t.defined()) return;
  defined_ = true;
  is_output_ = is_output;
  FL_CHECK(!t->inference, "[autograd] expected tensors made outside inference mode to be saved for backward, got an inference tensor; "
                          "clone() it to get a normal tensor");
  version_ = t->version().load();
  const Meta* m = meta_of(t);
  if (m) output_ = m->output;
  is_leaf_ = !is_output && is_leaf(t);
  if (pack_hook) {
    if (is_output)
      packed_ = pack_hook(detach(t));
    else
      packed_ = pack_hook(is_leaf_ ? t : detach(t));
    if (packed_) {
      if (!is_output && !is_leaf_) grad_fn_ = gradient_edge(t);
      return;
    }
  }
  if (is_output || (m && m->view && !is_leaf_)) {
    // Without history: the node owns this, and the history would own the node.
    data_ = detach(t);
    if (!is_output) grad_fn_ = gradient_edge(t);
  } else {
    data_ = t;
  }
}

Tensor SavedTensor::unpack(const Ref<Node>& owner, const std::string& op) const {
  if (!defined_) return {};
  FL_CHECK(!released_, "[backward] expected saved tensors of ", op,
           " to be there, got a graph that was freed after its first backward; pass retain_graph=True to the first one");
  Tensor out = packed_ ? unpack_hook(packed_) : data_;
  if (!packed_) {
    const uint32_t now = data_->version().load();
    FL_CHECK(now == version_, "[", op, "] expected a saved tensor at version ", static_cast<int64_t>(version_), ", got version ",
             static_cast<int64_t>(now), ": one of the variables needed for gradient computation has been modified by an inplace operation: shape ",
             data_.sizes(), ", dtype ", name_of(data_.dtype()), "; clone() it before the write");
  }
  if (is_output_ || grad_fn_) {
    Tensor fresh = alias(out, out.sizes(), out.strides(), out.offset());
    if (is_output_)
      set_history(fresh, owner, output_);
    else
      set_history(fresh, grad_fn_.node, grad_fn_.input);
    return fresh;
  }
  return out;
}

}  // namespace fl::autograd

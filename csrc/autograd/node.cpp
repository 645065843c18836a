// Nodes, saved tensors and the history of tensors.
#include "autograd/node.h"

#include <algorithm>

#include "core/changes.h"
#include "core/ownership.h"
#include "core/view_tracking.h"
#include "dispatch/kernel.h"

namespace fl::autograd {

Ref<Counted> (*pack_hook)(const Tensor&) = nullptr;
Tensor (*unpack_hook)(const Ref<Counted>&) = nullptr;
thread_local bool pack_hooks_active = false;
std::atomic<bool> anomaly_mode{false}, anomaly_check_nan{true};
std::string (*capture_trace)() = nullptr;
void (*report_trace)(const Node&) = nullptr;

namespace {
std::atomic<uint64_t> next_sequence{0};

// Nodes waiting to be deleted by the outermost destroy() of this thread.
thread_local std::vector<Node*>* doomed = nullptr;
}  // namespace

Node::Node() : sequence(next_sequence.fetch_add(1, std::memory_order_relaxed)) {
  if (__builtin_expect(anomaly_mode.load(std::memory_order_relaxed), 0) && capture_trace)
    more().trace = capture_trace();
}
Node::~Node() = default;

NodeExtras& Node::more() {
  if (!extras) extras = std::make_unique<NodeExtras>();
  return *extras;
}
MetaExtras& Meta::more() {
  if (!extras) extras = std::make_unique<MetaExtras>();
  return *extras;
}

void Node::destroy() {
  if (doomed) {
    doomed->push_back(this);
    return;
  }
  std::vector<Node*> list;
  doomed = &list;
  delete this;
  while (!list.empty()) {
    Node* node = list.back();
    list.pop_back();
    delete node;  // drops its edges, which push here instead of recursing
  }
  doomed = nullptr;
}

uint32_t Node::add_output(const Tensor& t) {
  outputs.emplace_back(t->sizes, t.dtype(), t.device());
  return static_cast<uint32_t>(outputs.size() - 1);
}

// ---------------------------------------------------------------- metadata of tensors

Meta* meta_of(const Tensor& t) {
  return static_cast<Meta*>(t->autograd.get());
}

Meta& ensure_meta(const Tensor& t) {
  if (!t->autograd) t->autograd = Ref<AutogradMeta>(new Meta);
  return *meta_of(t);
}

namespace {
std::mutex retained_mutex;

void require(Meta& m, bool requires_grad) {
  if (m.watched && m.requires_grad != requires_grad) count_tensor_change();
  m.requires_grad = requires_grad;
}

void drop_retained(Node& node, Meta* m) {
  std::lock_guard<std::mutex> lock(retained_mutex);
  if (!node.extras) return;
  auto& list = node.extras->retained;
  for (size_t i = list.size(); i-- > 0;)
    if (list[i].second == m) list.erase(list.begin() + i);
}
}  // namespace

Meta::~Meta() {
  if (retains_grad && grad_fn) drop_retained(*grad_fn, this);
}

void retain_grad(const Tensor& t) {
  FL_CHECK(wants_grad(t),
           "[retain_grad] expected a tensor that requires grad, got one that does not: can't retain_grad on "
           "Tensor that has "
           "requires_grad=False");
  if (is_leaf(t)) return;
  Meta& m = *meta_of(t);
  if (m.retains_grad) return;
  m.retains_grad = true;
  std::lock_guard<std::mutex> lock(retained_mutex);
  m.grad_fn->more().retained.push_back({m.output, &m});
}

void set_requires_grad(const Tensor& t, bool requires_grad) {
  if (requires_grad) {
    FL_CHECK(is_floating(t.dtype()) || is_complex(t.dtype()),
             "[requires_grad_] expected a floating point or complex tensor (only Tensors of floating point "
             "and complex dtype can require "
             "gradients), got ",
             name_of(t.dtype()), ": only Tensors of floating point dtype can require gradients");
    FL_CHECK(!t->inference || thread_state().inference_mode,
             "[requires_grad_] expected a tensor made outside inference mode, got an inference tensor: "
             "setting requires_grad=True on an inference "
             "tensor outside InferenceMode is not allowed; clone() it first");
  }
  FL_CHECK(requires_grad || is_leaf(t),
           "[requires_grad_] expected a leaf tensor (you can only change requires_grad flags of leaf "
           "variables), got a "
           "result of ",
           is_leaf(t) ? "" : grad_fn_of(t)->name(), "; use detach() for a tensor without history");
  if (!requires_grad && !t->autograd) return;
  require(ensure_meta(t), requires_grad);
  t->refresh_keys();
}

bool watch(const Tensor& t) {
  Meta& m = ensure_meta(t);
  m.watched = true;
  return !m.base.defined();
}

bool has_hooks(const TensorImpl& t) {
  const auto* m = static_cast<const Meta*>(t.autograd.get());
  if (m == nullptr) return false;
  if (m->grad_fn) return m->grad_fn->extras && !m->grad_fn->extras->tensor_hooks.empty();
  if (m->extras && !(m->extras->hooks.empty() && m->extras->post_accumulate.empty())) return true;
  const NodeExtras* end = m->accumulate ? m->accumulate->extras.get() : nullptr;
  return end && !(end->pre_hooks.empty() && end->tensor_hooks.empty() && end->post_hooks.empty());
}

void detach_in_place(const Tensor& t) {
  Meta* m = meta_of(t);
  if (!m) return;
  m->grad_fn = Ref<Node>();
  m->output = 0;
  require(*m, false);
  t->refresh_keys();
}

bool is_leaf(const Tensor& t) {
  const Meta* m = meta_of(t);
  return m == nullptr || !grad_fn_of(t);
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
      if (m.accumulate->refcount.compare_exchange_weak(count, count + 1))
        return Ref<Node>::steal(m.accumulate);
  }
  Ref<Accumulate> fresh(new Accumulate(leaf));
  m.accumulate = fresh.get();
  return Ref<Node>(fresh.get());
}

// Windows on a base of another dtype are windows on its real or complex reading.
Tensor reread(const Tensor& t, DType dtype) {
  if (is_complex(t.dtype()) == is_complex(dtype)) return t;
  static const Operator& as_real = OperatorTable::get().at("view_as_real");
  static const Operator& as_complex = OperatorTable::get().at("view_as_complex");
  static const Operator& without_conjugate = OperatorTable::get().at("resolve_conj");
  static const Operator& without_negative = OperatorTable::get().at("resolve_neg");
  Tensor plain = t;
  if (plain->keys.has(Key::Conjugate)) plain = call_tensor(without_conjugate, plain);
  if (plain->keys.has(Key::Negative)) plain = call_tensor(without_negative, plain);
  return call_tensor(is_complex(t.dtype()) ? as_real : as_complex, plain);
}

Tensor empty_of(const Tensor& like, IntSpan sizes, IntSpan strides, DType dtype) {
  // Made from the gradient, which a transform or subclass may have wrapped: what is written to it has to fit.
  static const Operator& make = OperatorTable::get().at("new_empty_strided");
  return call_tensor(make, like, sizes.vec(), strides.vec(), Value(dtype), Value(), Value(like.device()),
                     Value());
}

Tensor window_of(const Tensor& t, const Dims& sizes, const Dims& strides, int64_t offset) {
  static const Operator& window = OperatorTable::get().at("as_strided");
  return call_tensor(window, t, sizes.vec(), strides.vec(), offset);
}

// From the gradient of what is read to that of what lies in memory, or back.
Tensor turned(Tensor grad, KeySet deferred) {
  static const Operator& conjugate = OperatorTable::get().at("conj_physical");
  static const Operator& negate = OperatorTable::get().at("neg");
  if (deferred.has(Key::Conjugate)) grad = call_tensor(conjugate, grad);
  return deferred.has(Key::Negative) ? call_tensor(negate, grad) : grad;
}

struct Geometry {
  Dims base_sizes, base_strides, sizes, strides;
  int64_t offset = 0;
  DType base_dtype = DType::Float, dtype = DType::Float;
  KeySet base_deferred, deferred;  // what is done when the elements are read
  Geometry(const Tensor& t, const Tensor& base)
      : base_sizes(base->sizes),
        base_strides(base->strides),
        sizes(t->sizes),
        strides(t->strides),
        base_dtype(base.dtype()),
        dtype(t.dtype()),
        base_deferred(base->keys & kDeferred),
        deferred(t->keys & kDeferred) {
    int64_t origin = base.offset();
    if (is_complex(base_dtype) && !is_complex(dtype)) origin *= 2;
    if (!is_complex(base_dtype) && is_complex(dtype)) origin /= 2;
    offset = t.offset() - origin;
  }
};

// Gradient of a view as a window on the gradient of its base.
struct AsStridedView final : Node {
  bool takes_sparse() const override { return false; }
  Geometry at;
  explicit AsStridedView(Geometry g) : at(std::move(g)) {}
  std::string name() const override { return "AsStridedBackward0"; }
  std::vector<Tensor> apply(std::vector<Tensor>&& grads) override {
    if (!grads[0].defined()) return {Tensor()};
    const Tensor grad = turned(grads[0], at.deferred);
    if (at.dtype == at.base_dtype)
      return {turned(scatter_window(grad, at.base_sizes, at.base_strides, at.sizes, at.strides, at.offset),
                     at.base_deferred)};
    static const Operator& zero = OperatorTable::get().at("zero_");
    static const Operator& copy = OperatorTable::get().at("copy_");
    Tensor base = empty_of(grads[0], at.base_sizes, at.base_strides, at.base_dtype);
    call_tensor(zero, base);
    call_tensor(copy, window_of(reread(base, at.dtype), at.sizes, at.strides, at.offset), grad, false);
    return {turned(base, at.base_deferred)};
  }
};

// In-place write to a view, seen from the base: gradient goes through the written op inside the window,
// unchanged outside.
struct CopySlices final : Node {
  bool takes_sparse() const override { return false; }
  Geometry at;
  Ref<Node> fn;
  explicit CopySlices(Geometry g) : at(std::move(g)) {}
  ~CopySlices() override {
    if (fn && fn->extras) fn->extras->window = nullptr;
  }
  std::string name() const override { return "CopySlices"; }
  std::vector<Tensor> apply(std::vector<Tensor>&& grads) override {
    std::vector<Tensor> out(next.size());
    if (!grads[0].defined()) return out;
    static const Operator& clone = OperatorTable::get().at("clone");
    static const Operator& copy = OperatorTable::get().at("copy_");
    Tensor grad = empty_of(grads[0], at.base_sizes, at.base_strides, at.base_dtype);
    call_tensor(copy, grad, turned(grads[0], at.base_deferred), false);
    const Tensor slice = window_of(reread(grad, at.dtype), at.sizes, at.strides, at.offset);
    std::vector<Tensor> inner =
        fn->apply({turned(call_tensor(clone, slice, Value(MemoryFormat::Contiguous)), at.deferred)});
    if (needs(0)) {
      if (!inner.empty() && inner[0].defined()) {
        call_tensor(copy, slice, turned(inner[0], at.deferred), false);
      } else {
        static const Operator& zero_ = OperatorTable::get().at("zero_");
        call_tensor(zero_, slice);
      }
      out[0] = turned(grad, at.base_deferred);
    }
    for (size_t i = 1; i < inner.size() && i < out.size(); ++i) out[i] = inner[i];
    return out;
  }
  void release_saved() override { fn->release_saved(); }
};

KeySet inherited_keys(const TensorImpl* view) {
  const Meta* m = static_cast<const Meta*>(view->autograd.get());
  return m->base.defined() ? m->base->keys & KeySet(Key::Autograd) : KeySet();
}

}  // namespace

namespace {
// Whether two elements of a window lie at one place, as far as sorted strides can tell.
bool may_overlap(IntSpan sizes, IntSpan strides) {
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, size
  for (size_t d = 0; d < sizes.size(); ++d)
    if (sizes[d] > 1) dims.push_back({strides[d], sizes[d]});
  std::sort(dims.begin(), dims.end());
  int64_t reach = 0;
  for (const auto& [stride, size] : dims) {
    if (stride <= reach) return true;
    reach += (size - 1) * stride;
  }
  return false;
}
}  // namespace

Tensor scatter_window(const Tensor& grad, IntSpan base_sizes, IntSpan base_strides, IntSpan sizes,
                      IntSpan strides, int64_t offset) {
  static const Operator& zero = OperatorTable::get().at("zero_");
  static const Operator& copy = OperatorTable::get().at("copy_");
  static const Operator& make = OperatorTable::get().at("zeros");
  static const Operator& add = OperatorTable::get().at("index_add");
  static const Operator& arange = OperatorTable::get().at("arange");
  static const Operator& reshape = OperatorTable::get().at("reshape");
  const Tensor base_probe = empty_strided(base_sizes, base_strides, {DType::UInt8, Device{DeviceType::Meta}});
  const bool inside = offset >= 0 && [&] {
    int64_t last = offset;
    for (size_t i = 0; i < sizes.size(); ++i) last += sizes[i] ? (sizes[i] - 1) * strides[i] : 0;
    return last < std::max<int64_t>(numel_of(base_sizes), 1);
  }();
  if (inside && !may_overlap(sizes, strides) && is_dense(base_probe)) {
    Tensor base = empty_of(grad, base_sizes, base_strides, grad.dtype());
    call_tensor(zero, base);
    call_tensor(copy, window_of(base, sizes, strides, offset), grad, false);
    return base;
  }
  // Elements that lie at one place add up there; every reading of that place by the base then gets the sum.
  // The window may begin before the base.
  const int64_t origin = std::max<int64_t>(0, -offset);
  offset += origin;
  int64_t last = offset;
  for (size_t i = 0; i < sizes.size(); ++i) last += sizes[i] ? (sizes[i] - 1) * strides[i] : 0;
  int64_t base_last = origin;
  for (size_t i = 0; i < base_sizes.size(); ++i)
    base_last += base_sizes[i] ? (base_sizes[i] - 1) * base_strides[i] : 0;
  const int64_t n = std::max(last, base_last) + 1;
  const Tensor places = call_tensor(arange, n, Value(DType::Int64), Value(), Value(grad.device()), Value());
  const Tensor flat =
      call_tensor(make, std::vector<int64_t>{n}, Value(grad.dtype()), Value(), Value(grad.device()), Value());
  const Tensor index =
      call_tensor(reshape, window_of(places, sizes, strides, offset), std::vector<int64_t>{-1});
  const Tensor sum = call_tensor(add, flat, int64_t(0), index,
                                 call_tensor(reshape, grad, std::vector<int64_t>{-1}), int64_t(1));
  return window_of(sum, base_sizes, base_strides, origin);
}

namespace {
const char* kind_of_view(ViewOrigin origin) {
  switch (origin) {
    case ViewOrigin::OneOfSeveral:
      return "one of several";
    case ViewOrigin::NoGrad:
      return "one made without grad mode";
    case ViewOrigin::Inference:
      return "one made in inference mode";
    case ViewOrigin::CustomFunction:
      return "the result of a custom Function";
    case ViewOrigin::Recorded:
      break;
  }
  return "a view";
}

const char* born(ViewOrigin origin) {
  switch (origin) {
    case ViewOrigin::OneOfSeveral:
      return "This view is the output of a function that returns multiple views,";
    case ViewOrigin::NoGrad:
      return "A view was created in no_grad mode";
    case ViewOrigin::Inference:
      return "A view was created in inference mode";
    case ViewOrigin::CustomFunction:
      return "This view was created inside a custom Function";
    case ViewOrigin::Recorded:
      break;
  }
  return "A view was created";
}

const char* mode_of_write(ViewOrigin origin) {
  if (origin == ViewOrigin::NoGrad) return " with grad mode enabled";
  return origin == ViewOrigin::Inference ? " in normal mode" : "";
}

void check_origin(const Meta& m, const char* op) {
  const char* kind = kind_of_view(m.origin);
  if (m.origin == ViewOrigin::OneOfSeveral)
    fail("[", op, "] expected a view that may be written in place, got ", kind, ": ", born(m.origin),
         " which do not allow the output views to be modified inplace; write to a clone() or use the "
         "single-view form");
  if (m.origin == ViewOrigin::CustomFunction)
    fail("[", op, "] expected a view that may be written in place, got ", kind, ": ", born(m.origin),
         " (or because an input was returned as-is), whose own backward the write would bypass; clone() the "
         "output of the Function");
  const char* mode = m.origin == ViewOrigin::NoGrad ? "no_grad" : "inference_mode";
  fail("[", op, "] expected a view that may be written in place, got ", kind, ": ",
       m.grad_fn ? "This is a view of a view. " : "", born(m.origin), " and is being modified inplace",
       mode_of_write(m.origin), "; make the view and write to it both inside the ", mode,
       " block or both outside of it");
}

void check_view_write(const Meta& m, const char* op, bool tracked) {
  const bool has_gradient = tracked || m.requires_grad || m.base.requires_grad();
  if (m.origin != ViewOrigin::Recorded && has_gradient) check_origin(m, op);
  FL_CHECK(!(m.base.requires_grad() && is_leaf(m.base)), "[", op,
           "] expected a tensor that may be written in place, got a view: a view of a leaf Variable that "
           "requires grad is being used in an "
           "in-place operation; wrap the write in no_grad() or work on a clone()");
}
}  // namespace

// Whether someone wrote to the base of a view since its history was made.
static bool outdated(const Tensor& t, const Meta& m) {
  return m.base.defined() && m.origin != ViewOrigin::NoGrad && m.origin != ViewOrigin::CustomFunction &&
         !t->inference && m.view_version != t->version() && m.base.requires_grad() &&
         meta_of(m.base)->grad_fn && (is_floating(t.dtype()) || is_complex(t.dtype()));
}

Ref<Node> grad_fn_of(const Tensor& t) {
  Meta* m = meta_of(t);
  if (!m) return {};
  if (outdated(t, *m)) {
    FL_CHECK(m->origin == ViewOrigin::Recorded,
             "[autograd] expected a view whose base was not written to, got ", kind_of_view(m->origin), ": ",
             born(m->origin), " and its base or another view of its base has been modified inplace",
             mode_of_write(m->origin), "; write to a clone() or use the single-view form");
    Ref<AsStridedView> node(new AsStridedView(Geometry(t, m->base)));
    node->next.push_back(gradient_edge(m->base));
    const uint32_t output = node->add_output(t);
    set_history(t, Ref<Node>(node.get()), output);
    m->view_version = t->version();
  }
  return m->grad_fn;
}

bool wants_grad(const Tensor& t) {
  const Meta* m = meta_of(t);
  if (m && outdated(t, *m)) {
    // There may be a history, and who asks for it is told that it cannot be had.
    if (m->origin == ViewOrigin::OneOfSeveral || m->origin == ViewOrigin::Inference) return true;
    grad_fn_of(t);
  }
  return m && m->requires_grad;
}

Edge gradient_edge(const Tensor& t) {
  if (!wants_grad(t)) return {};
  if (Ref<Node> node = grad_fn_of(t)) return {node, meta_of(t)->output};
  return {accumulator(t), 0};
}

void set_history(const Tensor& t, const Ref<Node>& node, uint32_t output) {
  Meta& m = ensure_meta(t);
  if (__builtin_expect(m.retains_grad, 0)) {
    if (m.grad_fn) drop_retained(*m.grad_fn, &m);
    std::lock_guard<std::mutex> lock(retained_mutex);
    node->more().retained.push_back({output, &m});
  }
  m.grad_fn = node;
  m.output = output;
  require(m, true);
  t->keys |= Key::Autograd;
}

void check_inplace(const Tensor& t, const char* op, bool tracked) {
  if (!thread_state().grad_mode) return;
  const Meta* m = meta_of(t);
  if (!m) return;
  if (m->base.defined()) check_view_write(*m, op, tracked);
  FL_CHECK(!(m->requires_grad && is_leaf(t)), "[", op,
           "] expected a tensor that may be written in place, got a leaf Variable that requires grad: a leaf "
           "Variable that requires grad is being "
           "used in an in-place operation; wrap the write in no_grad() or work on a clone()");
}

void rebase_history(const Tensor& t, const Ref<Node>& node, uint32_t output) {
  Meta& m = ensure_meta(t);
  if (!m.base.defined()) {
    set_history(t, node, output);
    return;
  }
  const Tensor base = m.base;
  Ref<CopySlices> slices(new CopySlices(Geometry(t, base)));
  slices->fn = node;
  node->more().window = slices.get();
  slices->next = node->next;
  if (slices->next.empty()) slices->next.resize(1);
  slices->next[0] = gradient_edge(base);
  const uint32_t at = slices->add_output(base);
  set_history(base, Ref<Node>(slices.get()), at);
  follow_base(t);
}

bool follow_base(const Tensor& t) {
  Meta& m = ensure_meta(t);
  if (!m.base.defined()) return false;
  m.view_version = t->version() - 1;  // whatever it is, it differs, so that the history is made anew
  require(m, true);
  t->keys |= Key::Autograd;
  grad_fn_of(t);
  return true;
}

void make_view(const Tensor& view, const Tensor& base, bool multi) {
  if (view->inference || base->inference || view.same(base) || view->storage.get() != base->storage.get() ||
      view->own_version != base->own_version)
    return;
  const ThreadState& state = thread_state();
  const bool wanted = base.requires_grad();
  if (!state.grad_mode && !wanted && !state.inference_mode) return;
  const Meta* bm = meta_of(base);
  Meta& m = ensure_meta(view);
  // A view that was made a leaf begins a history of its own.
  m.base = bm && bm->base.defined() && !(bm->requires_grad && is_leaf(base)) ? bm->base : base;
  m.view_version = view->version();
  if (bm && bm->origin != ViewOrigin::Recorded)
    m.origin = bm->origin;
  else if (state.inference_mode)
    m.origin = ViewOrigin::Inference;
  else if (!state.grad_mode)
    m.origin = ViewOrigin::NoGrad;
  else if (multi)
    m.origin = ViewOrigin::OneOfSeveral;
  if (state.inference_mode && wanted) {
    require(m, true);
    view->refresh_keys();
  }
}

void note_custom_function(const Tensor& t) {
  Meta* m = meta_of(t);
  if (m && m->base.defined()) m->origin = ViewOrigin::CustomFunction;
}

void forget_base(const Tensor& view) {
  if (Meta* m = meta_of(view)) m->base = Tensor();
}

Tensor detach(const Tensor& t) {
  return alias(t, t.sizes(), t.strides(), t.offset());
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

namespace {
// Gradients of one tensor may arrive from several threads; a few locks serve all tensors.
std::mutex grad_mutexes[16];

// Whether a gradient lies in memory as its tensor does. Programs view and flatten gradients as they do the
// tensors.
bool laid_out_like(const Tensor& grad, const Tensor& t) {
  const bool dense = is_dense(t);
  int64_t contiguous = 1;
  for (int64_t d = t.dim() - 1; d >= 0; --d) {
    const int64_t size = t.size(d);
    if (size != 1 && grad.stride(d) != (dense ? t.stride(d) : contiguous)) return false;
    contiguous *= size;
  }
  return true;
}
}  // namespace

void accumulate_grad(const Tensor& t, Tensor&& grad) {
  static const Operator& add = OperatorTable::get().at("add.Tensor");
  static const Operator& add_ = OperatorTable::get().at("add_.Tensor");
  static const Operator& clone = OperatorTable::get().at("clone");
  Meta& m = *meta_of(t);
  const bool track = thread_state().grad_mode;
  if (!(grad->keys & kDeferred).empty()) grad = call_tensor(clone, grad, Value());
  std::unique_lock<std::mutex> lock(grad_mutexes[reinterpret_cast<uintptr_t>(&m) / 64 % 16]);
  if (__builtin_expect(grad->sparse || (m.grad.defined() && m.grad->sparse), 0)) {
    if (!m.grad.defined())
      m.grad = track ? std::move(grad) : detach(grad);
    else if (track || m.grad->sparse)
      m.grad = call_tensor(add, grad->sparse ? m.grad : grad, grad->sparse ? grad : m.grad, int64_t(1));
    else
      call_tensor(add_, m.grad, grad, int64_t(1));
  } else if (!m.grad.defined()) {
    // Keep it as it is when nobody else can see it.
    const bool own = !track && !t->sparse && grad->use_count() == 1 && owns_storage(grad) && is_dense(grad) &&
                     grad->python == nullptr && laid_out_like(grad, t);
    if (own)
      m.grad = std::move(grad);
    else if (track || t->sparse || !(grad.is_cpu() || grad.device().type == DeviceType::CUDA) ||
             grad->keys.has(Key::Python))
      m.grad = call_tensor(clone, grad, Value());
    else {
      m.grad = empty_like(t, grad.dtype());
      copy_into(m.grad, grad);
    }
  } else if (track) {
    m.grad = call_tensor(add, m.grad, grad, int64_t(1));
  } else {
    call_tensor(add_, m.grad, grad, int64_t(1));
  }
}

std::vector<Tensor> Accumulate::apply(std::vector<Tensor>&& grads) {
  if (!grads[0].defined()) return {};
  Meta& m = *meta_of(variable);
  if (m.extras)
    for (const auto& hook : m.extras->post_accumulate) hook->before_accumulation();
  accumulate_grad(variable, std::move(grads[0]));
  if (m.extras) {
    std::vector<Tensor> self{variable};
    const auto hooks = m.extras->post_accumulate;
    for (const auto& hook : hooks) hook->call(self, nullptr);
  }
  return {};
}

// ---------------------------------------------------------------- saved tensors

namespace {
// The tensor without its history. One that is handled in Python is asked for itself, so that it stays of its
// class.
Tensor without_history(const Tensor& t) {
  if (!t->keys.has(Key::Python)) return alias(t, t.sizes(), t.strides(), t.offset());
  static const Operator& same = OperatorTable::get().at("alias");
  ExcludeKeys below{KeySet(Key::Autograd)};
  return call_tensor(same, t);
}
}  // namespace

SavedTensor::SavedTensor(const Tensor& t, bool is_output) {
  if (!t.defined()) return;
  defined_ = true;
  is_output_ = is_output;
  FL_CHECK(!t->inference,
           "[autograd] expected tensors made outside inference mode to be saved for backward, got an "
           "inference tensor: Inference "
           "tensors cannot be saved for backward; to work around you can make a clone to get a normal tensor "
           "and use it in autograd");
  version_ = t->version();
  const Meta* m = meta_of(t);
  if (m) output_ = m->output;
  has_history_ = m && m->grad_fn;
  if (__builtin_expect(pack_hooks_active, 0)) {
    packed_ = pack_hook(is_output ? without_history(t) : t);
    if (packed_) {
      requires_grad_ = m && m->requires_grad;
      if (!is_output && requires_grad_) grad_fn_ = gradient_edge(t);
      return;
    }
  }
  // An output without its history: the node owns this, and the history would own the node.
  data_ = is_output ? without_history(t) : t;
  if (is_output && t->keys.has(Key::Python)) version_ = data_->version();
}

void SavedTensor::pack(Ref<Counted> packed) {
  const Meta* m = meta_of(data_);
  requires_grad_ = m && m->requires_grad;
  if (!is_output_ && requires_grad_) grad_fn_ = gradient_edge(data_);
  packed_ = std::move(packed);
  data_ = Tensor();
}

// Gives what a node saved of its own results the history that the result has. What was written to a view came
// to be through the node of the base: that one, and not the node inside it, runs in a pass.
static void set_history_of_output(const Tensor& fresh, Node* owner, uint32_t output) {
  auto* slices = owner->extras ? static_cast<CopySlices*>(owner->extras->window) : nullptr;
  if (!slices) return set_history(fresh, Ref<Node>(owner), output);
  Ref<AsStridedView> node(new AsStridedView(slices->at));
  node->next.push_back({Ref<Node>(slices), 0});
  const uint32_t at = node->add_output(fresh);
  set_history(fresh, Ref<Node>(node.get()), at);
}

Tensor SavedTensor::unpack(Node* owner, const std::string& op) const {
  if (!defined_) return {};
  FL_CHECK(!released_, "[backward] expected the saved tensors of ", op,
           " to be there, got a graph that was freed: Trying to backward through the graph a second time (or "
           "directly access saved tensors after they "
           "have already been freed); Specify retain_graph=True if you need to backward through the graph a "
           "second time");
  Tensor out = packed_ ? unpack_hook(packed_) : data_;
  if (out.defined()) check_stored(op.c_str(), out);
  if (!packed_) {
    const uint32_t now = data_->version();
    FL_CHECK(
        now == version_, "[", op, "] expected a saved tensor at version ", static_cast<int64_t>(version_),
        ", got version ", static_cast<int64_t>(now),
        ": one of the variables needed for gradient computation has been modified by an inplace operation: [",
        name_of(data_.dtype()), " ", data_.sizes(), "], which is ", is_output_ ? "an output" : "an input",
        " of ", owner ? owner->name() : op, ", is at version ", static_cast<int64_t>(now),
        "; expected version ", static_cast<int64_t>(version_),
        " instead. clone() it before the write, or enable anomaly detection to find the operation that "
        "failed to compute its gradient");
  }
  FL_CHECK(!has_history_ || is_output_ || packed_ || meta_of(data_)->grad_fn, "[", op,
           "] expected a saved tensor with the history it had, got one without: Trying to use a saved tensor "
           "that has been detached in-place, i.e. with .detach_(). Use detach() instead.");
  // History matters only to a backward that is recorded itself.
  if (is_output_ ? owner != nullptr : bool(grad_fn_)) {
    if (!thread_state().grad_mode && !packed_) return out;
    Tensor fresh = without_history(out);
    if (is_output_) {
      set_history_of_output(fresh, owner, output_);
    } else if (auto* leaf = dynamic_cast<Accumulate*>(grad_fn_.node.get());
               leaf && leaf->variable->storage.get() == out->storage.get()) {
      return leaf->variable;
    } else if (dynamic_cast<Accumulate*>(grad_fn_.node.get())) {
      // A leaf that came back as another tensor: its gradient still belongs to the leaf.
      set_history(fresh, grad_fn_.node, 0);
    } else {
      set_history(fresh, grad_fn_.node, grad_fn_.input);
    }
    return fresh;
  }
  return out;
}

void install_view_tracking() {
  track_view = make_view;
  keys_of_view = inherited_keys;
}

}  // namespace fl::autograd

#include "distributed/reducer.h"

#include <algorithm>
#include <chrono>

#include "core/changes.h"
#include "dispatch/kernel.h"

namespace fl::dist {

using autograd::Meta;
using autograd::meta_of;

namespace {

struct NoGrad {
  const bool before = std::exchange(thread_state().grad_mode, false);
  ~NoGrad() { thread_state().grad_mode = before; }
};

Tensor& gradient_of(const Tensor& parameter) {
  return meta_of(parameter)->grad;
}

void copy(const Tensor& to, const Tensor& from) {
  static const Operator& op = OperatorTable::get().at("copy_");
  call_tensor(op, to, from, false);
}

void add(const Tensor& to, const Tensor& what) {
  static const Operator& op = OperatorTable::get().at("add_.Tensor");
  call_tensor(op, to, what, int64_t(1));
}

void divide(const Tensor& t, double by) {
  static const Operator& op = OperatorTable::get().at("div_.Tensor");
  call_tensor(op, t, wrapped_number(Scalar(by)));
}

void clear(const Tensor& t) {
  static const Operator& op = OperatorTable::get().at("zero_");
  call_tensor(op, t);
}

Tensor dense_values(const Tensor& t) {
  static const Operator& op = OperatorTable::get().at("_sparse_to_dense");
  return t->sparse ? call_tensor(op, t) : t;
}

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// Whether the values of a gradient lie in memory as everybody's do.
bool lies_like(const Tensor& gradient, const Tensor& parameter) {
  if (!gradient.is_cpu() || gradient->sparse || gradient->keys.has(Key::Python)) return false;
  if (gradient.dtype() != parameter.dtype() || gradient.sizes() != parameter.sizes()) return false;
  const Dims plain = contiguous_strides(parameter.sizes());
  const IntSpan strides = is_dense(parameter) ? parameter.strides() : IntSpan(plain);
  for (int64_t d = 0; d < parameter.dim(); ++d)
    if (parameter.size(d) != 1 && gradient.stride(d) != strides[d]) return false;
  return true;
}

}  // namespace

// Tells a reducer that the gradient of one of its parameters is there.
struct Reducer::Hook final : autograd::Hook {
  Reducer* reducer;
  int index;
  Hook(Reducer* reducer, int index, void* owner) : reducer(reducer), index(index) { python = owner; }
  void before_accumulation() override { reducer->before_gradient(index); }
  void call(std::vector<Tensor>&, const std::vector<Tensor>*) override { reducer->on_gradient(index); }
};

// Lives as long as the backward pass that a reducer follows; one that ends without `finish` has failed.
struct Reducer::Session {
  std::weak_ptr<Reducer> reducer;
  bool finished = false;
  explicit Session(std::weak_ptr<Reducer> of) : reducer(std::move(of)) {}
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() {
    if (finished) return;
    if (auto alive = reducer.lock()) alive->abandon();
  }
  void finish() {
    finished = true;
    if (auto alive = reducer.lock()) alive->start_rest();
  }
};

Reducer::Reducer(Tensors parameters, std::unique_ptr<ReducerOwner> owner)
    : parameters_(std::move(parameters)),
      owner_(std::move(owner)),
      places_(parameters_.size()),
      seen_(parameters_.size(), 0),
      expected_(parameters_.size(), 1),
      kept_(parameters_.size(), 0) {}

void Reducer::attach(void* python) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    hooks_.emplace_back(new Hook(this, static_cast<int>(i), python));
    autograd::ensure_meta(parameters_[i]).more().post_accumulate.push_back(hooks_.back());
  }
  count_tensor_change();
}

Reducer::~Reducer() {
  for (size_t i = 0; i < hooks_.size(); ++i) {
    auto& list = autograd::ensure_meta(parameters_[i]).more().post_accumulate;
    list.erase(std::remove_if(list.begin(), list.end(),
                              [&](const auto& hook) { return hook.get() == hooks_[i].get(); }),
               list.end());
  }
  count_tensor_change();
}

void Reducer::assign(const std::vector<std::vector<int>>& buckets) {
  buckets_.clear();
  buckets_.resize(buckets.size());
  for (size_t b = 0; b < buckets.size(); ++b) {
    buckets_[b].indices = buckets[b];
    for (size_t place = 0; place < buckets[b].size(); ++place)
      places_.at(buckets[b][place]) = {static_cast<int>(b), static_cast<int>(place)};
  }
}

void Reducer::set_memory(int bucket, Tensors views, Tensor used) {
  buckets_.at(bucket).views = std::move(views);
  buckets_.at(bucket).used = std::move(used);
}

// ---------------------------------------------------------------- during backward

void Reducer::start_pass() {
  running_ = true;
  next_ = 0;
  first_start_ = 0;
  ++passes_;
  order_.clear();
  std::fill(seen_.begin(), seen_.end(), 0);
  for (Bucket& bucket : buckets_) {
    bucket.waiting = static_cast<int>(bucket.indices.size());
    bucket.started = bucket.repeat = false;
    bucket.rooms.clear();
    bucket.extras.clear();
    bucket.work.reset();
  }
}

void Reducer::begin() {
  if (running_ || skipping_) return;
  Pass pass;
  skipping_ = !owner_->begin(pass);
  auto session = std::make_shared<Session>(weak_from_this());
  if (!skipping_) {
    pass_ = std::move(pass);
    start_pass();
  }
  autograd::queue_callback([session] { session->finish(); });
}

// A gradient that is being reduced is set aside when another one comes, as reentrant backwards make them.
void Reducer::before_gradient(int index) {
  const auto [number, place] = places_[index];
  if (!running_ || number >= static_cast<int>(buckets_.size())) return;
  Bucket& bucket = buckets_[number];
  if (!bucket.started || !pass_.group) return;
  Tensor& gradient = gradient_of(parameters_[index]);
  if (gradient.defined() && gradient.same(bucket.rooms[place])) gradient = Tensor();
}

void Reducer::on_gradient(int index) {
  begin();
  if (skipping_) {
    kept_[index] = 1;
    return;
  }
  const auto [number, place] = places_[index];
  Bucket& bucket = buckets_[number];
  if (++seen_[index] > expected_[index]) {
    bucket.repeat = bucket.repeat || bucket.started;
    if (!pass_.group && !bucket.started && !pass_.at_end) collect(bucket, place);
    return;
  }
  if (seen_[index] < expected_[index]) return;
  order_.push_back(index);
  --bucket.waiting;
  if (pass_.at_end) return;
  if (!pass_.group) collect(bucket, place);
  for (; next_ < buckets_.size() && buckets_[next_].waiting == 0; ++next_) start(static_cast<int>(next_));
}

bool Reducer::uses(int index) const {
  return seen_[index] > 0 || (kept_[index] && gradient_of(parameters_[index]).defined());
}

void Reducer::collect(Bucket& bucket, size_t place) {
  const NoGrad no_grad;
  const Tensor& gradient = gradient_of(parameters_[bucket.indices[place]]);
  const Tensor& view = bucket.views.at(place);
  if (!gradient.defined())
    clear(view);
  else if (gradient->sparse || gradient->keys.has(Key::Python) || gradient.raw() != view.raw() ||
           gradient.sizes() != view.sizes())
    copy(view, dense_values(gradient));
}

void Reducer::reduce_in_place(int number, const Tensors& rooms) {
  Bucket& bucket = buckets_[number];
  Tensor used = empty({static_cast<int64_t>(rooms.size())}, {DType::Double, Device{}});
  for (size_t i = 0; i < rooms.size(); ++i) used.data<double>()[i] = uses(bucket.indices[i]);
  bucket.used = empty(used.sizes(), {parameters_[bucket.indices[0]].dtype(), Device{}});
  copy_into(bucket.used, used);
  Tensors all = rooms;
  all.push_back(bucket.used);
  if (pass_.divisor > 0)
    for (const Tensor& room : rooms) divide(room, pass_.divisor);
  bucket.work =
      pass_.group->all_reduce_gradients(all, pass_.divisor > 0 ? Reduction::Sum : Reduction::Average, passes_,
                                        number + 1, {true, pass_.timeout});
}

void Reducer::start(int number) {
  const NoGrad no_grad;
  Bucket& bucket = buckets_[number];
  bucket.started = true;
  if (!first_start_) first_start_ = now();
  if (!pass_.group) {
    if (bucket.used.defined()) {
      Tensor used = empty(bucket.used.sizes(), {DType::Double, Device{}});
      for (size_t i = 0; i < bucket.indices.size(); ++i) used.data<double>()[i] = uses(bucket.indices[i]);
      copy(bucket.used, used);
    }
    return owner_->start(number);
  }
  for (int index : bucket.indices) {
    const Tensor& parameter = parameters_[index];
    const Tensor& gradient = gradient_of(parameter);
    if (gradient.defined() && seen_[index] > 0 && lies_like(gradient, parameter)) {
      bucket.rooms.push_back(gradient);
      continue;
    }
    bucket.rooms.push_back(empty_like(parameter, parameter.dtype()));
    if (gradient.defined())
      copy(bucket.rooms.back(), dense_values(gradient));
    else
      clear(bucket.rooms.back());
  }
  reduce_in_place(number, bucket.rooms);
}

// ---------------------------------------------------------------- at the end of backward

void Reducer::start_rest() {
  if (std::exchange(skipping_, false)) return;
  backward_end_ = now();
  for (; next_ < buckets_.size(); ++next_) {
    Bucket& bucket = buckets_[next_];
    for (size_t place = 0; place < bucket.indices.size() && !pass_.group; ++place)
      if (pass_.at_end || seen_[bucket.indices[place]] < expected_[bucket.indices[place]])
        collect(bucket, place);
    start(static_cast<int>(next_));
  }
  running_ = false;
  std::fill(kept_.begin(), kept_.end(), 0);
  owner_->finish();
}

void Reducer::abandon() {
  running_ = false;
  if (std::exchange(skipping_, false) || !pass_.group) return;
  try {
    const Tensor nothing = empty({0}, {parameters_[0].dtype(), Device{}});
    for (; next_ < buckets_.size(); ++next_)
      pass_.group->all_reduce_gradients({nothing}, Reduction::Average, passes_, -static_cast<int>(next_) - 1,
                                        {true, pass_.timeout});
  } catch (const Error&) {  // the group is closed: the others know
  }
}

void Reducer::shadow(const Pass& pass) {
  pass_ = pass;
  start_pass();
  running_ = false;
  std::fill(kept_.begin(), kept_.end(), 0);
  for (Bucket& bucket : buckets_)
    for (size_t place = 0; place < bucket.views.size(); ++place) clear(bucket.views[place]);
  for (size_t number = 0; number < buckets_.size(); ++number) {
    Bucket& bucket = buckets_[number];
    for (int index : bucket.indices) {
      if (!pass_.group) continue;
      bucket.rooms.push_back(empty_like(parameters_[index], parameters_[index].dtype()));
      clear(bucket.rooms.back());
    }
    if (pass_.group) {
      reduce_in_place(static_cast<int>(number), bucket.rooms);
      continue;
    }
    if (bucket.used.defined()) clear(bucket.used);
    owner_->start(static_cast<int>(number));
  }
}

void Reducer::repeat(int number) {
  const NoGrad no_grad;
  Bucket& bucket = buckets_.at(number);
  if (!pass_.group) {
    for (size_t place = 0; place < bucket.indices.size(); ++place) collect(bucket, place);
    return owner_->start(number);
  }
  for (size_t place = 0; place < bucket.indices.size(); ++place) {
    const Tensor& parameter = parameters_[bucket.indices[place]];
    const Tensor& gradient = gradient_of(parameter);
    const bool later = gradient.defined() && !gradient.same(bucket.rooms[place]) &&
                       seen_[bucket.indices[place]] > expected_[bucket.indices[place]];
    bucket.extras.push_back(empty_like(parameter, parameter.dtype()));
    if (later)
      copy(bucket.extras.back(), dense_values(gradient));
    else
      clear(bucket.extras.back());
  }
  reduce_in_place(number, bucket.extras);
}

std::vector<int> Reducer::order() const {
  return order_.size() == parameters_.size() ? order_ : std::vector<int>{};
}

void Reducer::hand_out(int number, bool as_view, bool counted) {
  const NoGrad no_grad;
  Bucket& bucket = buckets_.at(number);
  Tensor used;
  if (counted) {
    used = empty({static_cast<int64_t>(bucket.indices.size())}, {DType::Double, Device{}});
    copy(used, bucket.used);
  }
  for (size_t place = 0; place < bucket.indices.size(); ++place) {
    if (used.defined() && used.data<double>()[place] == 0) continue;
    if (pass_.group)
      hand_out_room(bucket, place);
    else
      hand_out_view(bucket, place, as_view);
  }
  bucket.rooms.clear();
  bucket.extras.clear();
  bucket.work.reset();
}

void Reducer::hand_out_room(Bucket& bucket, size_t place) {
  Tensor& gradient = gradient_of(parameters_[bucket.indices[place]]);
  const Tensor& room = bucket.rooms[place];
  if (place < bucket.extras.size()) {
    add(room, bucket.extras[place]);
    gradient = room;
  } else if (!gradient.defined() || gradient->sparse) {
    gradient = room;
  } else if (!gradient.same(room)) {
    copy(gradient, room);
  }
}

void Reducer::hand_out_view(Bucket& bucket, size_t place, bool as_view) {
  const Tensor& parameter = parameters_[bucket.indices[place]];
  Tensor& gradient = gradient_of(parameter);
  const Tensor& view = bucket.views[place];
  if (as_view) {
    if (!gradient.defined() || gradient->sparse || gradient.raw() != view.raw()) gradient = view;
  } else if (!gradient.defined() || gradient->sparse) {
    gradient = empty_like(parameter, view.dtype());
    copy_into(gradient, view);
  } else {
    copy(gradient, view);
  }
}

}  // namespace fl::dist

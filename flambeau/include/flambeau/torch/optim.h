// torch::optim: SGD, Adam, AdamW, RMSprop and Adagrad over groups of parameters with options of their own.
#pragma once

#include <flambeau/torch/archive.h>
#include <flambeau/torch/arg.h>

#include <cmath>
#include <memory>
#include <tuple>
#include <unordered_map>

namespace torch::optim {

class OptimizerOptions {
 public:
  virtual ~OptimizerOptions() = default;
  virtual std::unique_ptr<OptimizerOptions> clone() const = 0;
  virtual double get_lr() const = 0;
  virtual void set_lr(double lr) = 0;
  virtual void serialize(serialize::OutputArchive& archive) const = 0;
  virtual void serialize(serialize::InputArchive& archive) = 0;
};

namespace detail {

inline void read(const c10::IValue& value, std::tuple<double, double>& to) {
  const std::vector<c10::IValue> parts = value.elements();
  to = {parts.at(0).toDouble(), parts.at(1).toDouble()};
}
template <class T>
void read(const c10::IValue& value, T& to) {
  to = value.to<T>();
}
template <class T>
void read(const c10::IValue& value, std::optional<T>& to) {
  to.reset();
  if (!value.isNone()) read(value, to.emplace());
}

}  // namespace detail

// What each kind of options has.
template <class Derived>
class OptimizerCloneableOptions : public OptimizerOptions {
 public:
  std::unique_ptr<OptimizerOptions> clone() const override {
    return std::make_unique<Derived>(static_cast<const Derived&>(*this));
  }
  double get_lr() const override { return static_cast<const Derived*>(this)->lr(); }
  void set_lr(double lr) override { static_cast<Derived*>(this)->lr(lr); }
  void serialize(serialize::OutputArchive& archive) const override {
    Derived(static_cast<const Derived&>(*this)).each([&](const char* name, const auto& value) {
      archive.write(name, c10::IValue(value));
    });
  }
  void serialize(serialize::InputArchive& archive) override {
    static_cast<Derived*>(this)->each([&](const char* name, auto& value) {
      c10::IValue stored;
      archive.read(name, stored);
      detail::read(stored, value);
    });
  }
};

// Parameters, and their options where those are not the optimizer's.
class OptimizerParamGroup {
 public:
  OptimizerParamGroup(std::vector<Tensor> params) : params_(std::move(params)) {}
  OptimizerParamGroup(std::vector<Tensor> params, std::unique_ptr<OptimizerOptions> options)
      : params_(std::move(params)), options_(std::move(options)) {}
  OptimizerParamGroup(const OptimizerParamGroup& o)
      : params_(o.params_), options_(o.options_ ? o.options_->clone() : nullptr) {}
  OptimizerParamGroup(OptimizerParamGroup&&) = default;
  OptimizerParamGroup& operator=(OptimizerParamGroup o) {
    std::swap(params_, o.params_);
    std::swap(options_, o.options_);
    return *this;
  }
  std::vector<Tensor>& params() { return params_; }
  const std::vector<Tensor>& params() const { return params_; }
  bool has_options() const { return options_ != nullptr; }
  OptimizerOptions& options() { return expect(); }
  const OptimizerOptions& options() const { return expect(); }
  void set_options(std::unique_ptr<OptimizerOptions> options) { options_ = std::move(options); }

 private:
  OptimizerOptions& expect() const {
    if (!options_) throw c10::Error("[optim] expected options of a group of parameters, got none");
    return *options_;
  }
  std::vector<Tensor> params_;
  std::unique_ptr<OptimizerOptions> options_;
};

class Optimizer {
 public:
  using LossClosure = std::function<Tensor()>;

  Optimizer(const std::vector<OptimizerParamGroup>& groups, std::unique_ptr<OptimizerOptions> defaults)
      : defaults_(std::move(defaults)) {
    for (const OptimizerParamGroup& group : groups) add_param_group(group);
  }
  virtual ~Optimizer() = default;
  void add_param_group(const OptimizerParamGroup& group) {
    OptimizerParamGroup added(group);
    if (!added.has_options()) added.set_options(defaults_->clone());
    groups_.push_back(std::move(added));
  }
  void zero_grad(bool set_to_none = true) {
    for (const Tensor& p : parameters()) {
      if (!p.grad().defined()) continue;
      if (set_to_none)
        p.set_grad(Tensor());
      else
        p.grad().zero_();
    }
  }
  virtual Tensor step(LossClosure closure = nullptr) {
    Tensor loss;
    if (closure) {
      torch::AutoGradMode recording(true);
      loss = closure();
    }
    torch::NoGradGuard guard;
    size_t index = 0;
    for (const OptimizerParamGroup& group : groups_)
      for (const Tensor& parameter : group.params()) {
        const Tensor grad = parameter.grad();
        if (grad.defined()) update(index, parameter, grad, group.options());
        ++index;
      }
    return loss;
  }
  std::vector<OptimizerParamGroup>& param_groups() { return groups_; }
  const std::vector<OptimizerParamGroup>& param_groups() const { return groups_; }
  OptimizerOptions& defaults() { return *defaults_; }
  const OptimizerOptions& defaults() const { return *defaults_; }
  std::vector<Tensor> parameters() const {
    std::vector<Tensor> all;
    for (const OptimizerParamGroup& group : groups_)
      all.insert(all.end(), group.params().begin(), group.params().end());
    return all;
  }
  void add_parameters(const std::vector<Tensor>& more) {
    std::vector<Tensor>& first = groups_.at(0).params();
    first.insert(first.end(), more.begin(), more.end());
  }
  size_t size() const { return parameters().size(); }
  // Options of groups, and what is kept for parameters.
  virtual void save(serialize::OutputArchive& archive) const;
  virtual void load(serialize::InputArchive& archive);

 protected:
  virtual void update(size_t index, const Tensor& parameter, const Tensor& grad,
                      const OptimizerOptions& options) = 0;
  // A tensor that is kept for a parameter, zeros at first.
  Tensor& kept(std::vector<Tensor>& all, size_t index, const Tensor& like) {
    if (all.size() <= index) all.resize(index + 1);
    if (!all[index].defined()) all[index] = torch::zeros_like(like);
    return all[index];
  }
  static int64_t count_step(std::vector<int64_t>& steps, size_t index) {
    if (steps.size() <= index) steps.resize(index + 1);
    return ++steps[index];
  }
  // What is kept for parameters: lists of tensors by name, and how many steps were made.
  using StateLists = std::vector<std::pair<std::string, std::vector<Tensor>*>>;
  virtual StateLists state_lists() { return {}; }
  virtual std::vector<int64_t>* state_steps() { return nullptr; }
  std::vector<OptimizerParamGroup> groups_;
  std::unique_ptr<OptimizerOptions> defaults_;
};

// Parameters are known by their numbers; LibTorch writes numbers of another kind, and reads any.
inline void Optimizer::save(serialize::OutputArchive& archive) const {
  auto& self = const_cast<Optimizer&>(*this);
  serialize::OutputArchive state, groups;
  for (size_t i = 0; i < size(); ++i) {
    serialize::OutputArchive one;
    const std::vector<int64_t>* steps = self.state_steps();
    bool any = steps && i < steps->size();
    if (any) one.write("step", c10::IValue((*steps)[i]));
    for (const auto& [name, list] : self.state_lists())
      if (i < list->size() && (*list)[i].defined()) {
        one.write(name, c10::IValue((*list)[i]));
        any = true;
      }
    if (any) state.write(std::to_string(i), one);
  }
  const auto write_size = [](serialize::OutputArchive& to, const std::string& name, size_t value) {
    to.write(name, torch::tensor(static_cast<int64_t>(value)));
  };
  write_size(groups, "param_groups/size", groups_.size());
  size_t number = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    serialize::OutputArchive group, options;
    write_size(group, "params/size", groups_[g].params().size());
    for (size_t i = 0; i < groups_[g].params().size(); ++i)
      group.write("params/" + std::to_string(i), c10::IValue(std::to_string(number++)));
    groups_[g].options().serialize(options);
    group.write("options", options);
    groups.write("param_groups/" + std::to_string(g), group);
  }
  archive.write("pytorch_version", c10::IValue("1.5.0"));
  archive.write("state", state);
  archive.write("param_groups", groups);
}

inline void Optimizer::load(serialize::InputArchive& archive) {
  serialize::InputArchive state, groups;
  archive.read("state", state);
  archive.read("param_groups", groups);
  const auto check_size = [](const serialize::InputArchive& from, const std::string& name, size_t wanted) {
    Tensor stored;
    from.read(name, stored);
    if (stored.item<int64_t>() != static_cast<int64_t>(wanted))
      throw c10::Error(c10::str("[load] expected ", name, " of the optimizer, ", wanted, ", got ",
                                stored.item<int64_t>()));
  };
  std::unordered_map<std::string, size_t> numbers;
  check_size(groups, "param_groups/size", groups_.size());
  for (size_t g = 0; g < groups_.size(); ++g) {
    serialize::InputArchive group, options;
    groups.read("param_groups/" + std::to_string(g), group);
    check_size(group, "params/size", groups_[g].params().size());
    for (size_t i = 0; i < groups_[g].params().size(); ++i) {
      c10::IValue key;
      group.read("params/" + std::to_string(i), key);
      const size_t number = numbers.size();
      numbers[key.toStringRef()] = number;
    }
    group.read("options", options);
    groups_[g].options().serialize(options);
  }
  for (const auto& [name, list] : state_lists()) list->assign(size(), Tensor());
  if (std::vector<int64_t>* steps = state_steps()) steps->assign(size(), 0);
  for (const std::string& key : state.keys()) {
    const auto number = numbers.find(key);
    if (number == numbers.end())
      throw c10::Error(c10::str("[load] expected the state of a parameter of the optimizer, got ", key));
    serialize::InputArchive one;
    state.read(key, one);
    c10::IValue step;
    if (state_steps() && one.try_read("step", step)) (*state_steps())[number->second] = step.toInt();
    for (const auto& [name, list] : state_lists()) one.try_read(name, (*list)[number->second]);
  }
}

// Constructors of an optimizer with options, and what it is set to.
#define FL_OPTIMIZER(Name, Base, Options)                                                        \
  explicit Name(const std::vector<OptimizerParamGroup>& groups, Options o = {})                  \
      : Base(groups, std::make_unique<Options>(o)) {}                                            \
  explicit Name(std::vector<Tensor> parameters, Options o = {})                                  \
      : Name(std::vector<OptimizerParamGroup>{OptimizerParamGroup(std::move(parameters))}, o) {} \
  Options& options() {                                                                           \
    return static_cast<Options&>(groups_.at(0).options());                                       \
  }

struct SGDOptions : OptimizerCloneableOptions<SGDOptions> {
  SGDOptions(double lr = 1e-3) : lr_(lr) {}
  template <class V>
  void each(const V& visit) {
    visit("lr", lr_);
    visit("momentum", momentum_);
    visit("dampening", dampening_);
    visit("weight_decay", weight_decay_);
    visit("nesterov", nesterov_);
  }

  TORCH_ARG(double, lr);
  TORCH_ARG(double, momentum) = 0;
  TORCH_ARG(double, dampening) = 0;
  TORCH_ARG(double, weight_decay) = 0;
  TORCH_ARG(bool, nesterov) = false;
};

class SGD : public Optimizer {
 public:
  FL_OPTIMIZER(SGD, Optimizer, SGDOptions)
  StateLists state_lists() override { return {{"momentum_buffer", &momentum_}}; }

 protected:
  void update(size_t index, const Tensor& parameter, const Tensor& gradient,
              const OptimizerOptions& all) override {
    const auto& o = static_cast<const SGDOptions&>(all);
    Tensor grad = o.weight_decay() ? gradient + parameter * o.weight_decay() : gradient;
    if (o.momentum()) {
      const bool first = momentum_.size() <= index || !momentum_[index].defined();
      Tensor& velocity = kept(momentum_, index, parameter);
      if (first)
        velocity.copy_(grad);
      else
        velocity.mul_(o.momentum()).add_(grad * (1 - o.dampening()));
      grad = o.nesterov() ? grad + velocity * o.momentum() : velocity;
    }
    parameter.add_(grad * -o.lr());
  }

 private:
  std::vector<Tensor> momentum_;
};

// DECOUPLED: weight decay is not part of the gradient, as in AdamW.
template <bool DECOUPLED>
struct AdamOptionsOf : OptimizerCloneableOptions<AdamOptionsOf<DECOUPLED>> {
  using Betas = std::tuple<double, double>;
  AdamOptionsOf(double lr = 1e-3) : lr_(lr) {}
  template <class V>
  void each(const V& visit) {
    visit("lr", lr_);
    visit("betas", betas_);
    visit("eps", eps_);
    visit("weight_decay", weight_decay_);
    visit("amsgrad", amsgrad_);
  }

  TORCH_ARG(double, lr);
  TORCH_ARG(Betas, betas) = { 0.9, 0.999 };
  TORCH_ARG(double, eps) = 1e-8;
  TORCH_ARG(double, weight_decay) = DECOUPLED ? 1e-2 : 0;
  TORCH_ARG(bool, amsgrad) = false;
};
using AdamOptions = AdamOptionsOf<false>;
using AdamWOptions = AdamOptionsOf<true>;

template <class Options>
class AdamBase : public Optimizer {
 public:
  using Optimizer::Optimizer;
  StateLists state_lists() override {
    return {{"exp_avg", &means_}, {"exp_avg_sq", &squares_}, {"max_exp_avg_sq", &largest_}};
  }
  std::vector<int64_t>* state_steps() override { return &steps_; }

 protected:
  void update(size_t index, const Tensor& parameter, const Tensor& gradient,
              const OptimizerOptions& all) override {
    const auto& o = static_cast<const Options&>(all);
    const auto [first, second] = o.betas();
    Tensor grad = gradient;
    if (o.weight_decay()) {
      if (std::is_same_v<Options, AdamWOptions>)
        parameter.mul_(1 - o.lr() * o.weight_decay());
      else
        grad = grad + parameter * o.weight_decay();
    }
    const auto step = static_cast<double>(count_step(steps_, index));
    Tensor& mean = kept(means_, index, parameter);
    Tensor square = kept(squares_, index, parameter);
    mean.mul_(first).add_(grad * (1 - first));
    square.mul_(second).add_(grad * grad * (1 - second));
    if (o.amsgrad()) {
      Tensor& largest = kept(largest_, index, parameter);
      square = largest = torch::maximum(largest, square);
    }
    const Tensor size = square.sqrt() / std::sqrt(1 - std::pow(second, step)) + o.eps();
    parameter.add_(mean / size * (-o.lr() / (1 - std::pow(first, step))));
  }

 private:
  std::vector<Tensor> means_, squares_, largest_;
  std::vector<int64_t> steps_;
};
class Adam : public AdamBase<AdamOptions> {
 public:
  FL_OPTIMIZER(Adam, AdamBase, AdamOptions)
};
class AdamW : public AdamBase<AdamWOptions> {
 public:
  FL_OPTIMIZER(AdamW, AdamBase, AdamWOptions)
};

struct RMSpropOptions : OptimizerCloneableOptions<RMSpropOptions> {
  RMSpropOptions(double lr = 1e-2) : lr_(lr) {}
  template <class V>
  void each(const V& visit) {
    visit("lr", lr_);
    visit("alpha", alpha_);
    visit("eps", eps_);
    visit("weight_decay", weight_decay_);
    visit("momentum", momentum_);
    visit("centered", centered_);
  }

  TORCH_ARG(double, lr);
  TORCH_ARG(double, alpha) = 0.99;
  TORCH_ARG(double, eps) = 1e-8;
  TORCH_ARG(double, weight_decay) = 0;
  TORCH_ARG(double, momentum) = 0;
  TORCH_ARG(bool, centered) = false;
};
class RMSprop : public Optimizer {
 public:
  FL_OPTIMIZER(RMSprop, Optimizer, RMSpropOptions)
  StateLists state_lists() override {
    return {{"square_avg", &squares_}, {"momentum_buffer", &momentum_}, {"grad_avg", &means_}};
  }
  std::vector<int64_t>* state_steps() override { return &steps_; }

 protected:
  void update(size_t index, const Tensor& parameter, const Tensor& gradient,
              const OptimizerOptions& all) override {
    const auto& o = static_cast<const RMSpropOptions&>(all);
    const Tensor grad = o.weight_decay() ? gradient + parameter * o.weight_decay() : gradient;
    count_step(steps_, index);
    Tensor& square = kept(squares_, index, parameter);
    square.mul_(o.alpha()).add_(grad * grad * (1 - o.alpha()));
    Tensor spread = square;
    if (o.centered()) {
      Tensor& mean = kept(means_, index, parameter);
      mean.mul_(o.alpha()).add_(grad * (1 - o.alpha()));
      spread = square - mean * mean;
    }
    Tensor step = grad / (spread.sqrt() + o.eps());
    if (o.momentum() > 0) step = kept(momentum_, index, parameter).mul_(o.momentum()).add_(step);
    parameter.add_(step * -o.lr());
  }

 private:
  std::vector<Tensor> squares_, momentum_, means_;
  std::vector<int64_t> steps_;
};

struct AdagradOptions : OptimizerCloneableOptions<AdagradOptions> {
  AdagradOptions(double lr = 1e-2) : lr_(lr) {}
  template <class V>
  void each(const V& visit) {
    visit("lr", lr_);
    visit("lr_decay", lr_decay_);
    visit("weight_decay", weight_decay_);
    visit("initial_accumulator_value", initial_accumulator_value_);
    visit("eps", eps_);
  }

  TORCH_ARG(double, lr);
  TORCH_ARG(double, lr_decay) = 0;
  TORCH_ARG(double, weight_decay) = 0;
  TORCH_ARG(double, initial_accumulator_value) = 0;
  TORCH_ARG(double, eps) = 1e-10;
};
class Adagrad : public Optimizer {
 public:
  FL_OPTIMIZER(Adagrad, Optimizer, AdagradOptions)
  StateLists state_lists() override { return {{"sum", &sums_}}; }
  std::vector<int64_t>* state_steps() override { return &steps_; }

 protected:
  void update(size_t index, const Tensor& parameter, const Tensor& gradient,
              const OptimizerOptions& all) override {
    const auto& o = static_cast<const AdagradOptions&>(all);
    const Tensor grad = o.weight_decay() ? gradient + parameter * o.weight_decay() : gradient;
    const int64_t step = count_step(steps_, index);
    Tensor& sum = kept(sums_, index, parameter);
    if (step == 1) sum.fill_(o.initial_accumulator_value());
    sum.add_(grad * grad);
    const double lr = o.lr() / (1 + static_cast<double>(step - 1) * o.lr_decay());
    parameter.add_(grad / (sum.sqrt() + o.eps()) * -lr);
  }

 private:
  std::vector<Tensor> sums_;
  std::vector<int64_t> steps_;
};

}  // namespace torch::optim

#include <flambeau/torch/lbfgs.h>
#include <flambeau/torch/schedulers.h>
#undef FL_OPTIMIZER

// torch::optim: SGD, Adam, AdamW, RMSprop and Adagrad over groups of parameters with options of their own.
#pragma once

#include <flambeau/torch/functions.h>

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
};

// What each kind of options has.
template <class Derived>
class OptimizerCloneableOptions : public OptimizerOptions {
 public:
  std::unique_ptr<OptimizerOptions> clone() const override {
    return std::make_unique<Derived>(static_cast<const Derived&>(*this));
  }
  double get_lr() const override { return static_cast<const Derived*>(this)->lr(); }
  void set_lr(double lr) override { static_cast<Derived*>(this)->lr(lr); }
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
  // What it keeps for parameters, for torch::save: lists of tensors by name, and how many steps it made.
  virtual std::vector<std::pair<std::string, std::vector<Tensor>*>> state_lists() { return {}; }
  virtual std::vector<int64_t>* state_steps() { return nullptr; }

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
  std::vector<OptimizerParamGroup> groups_;
  std::unique_ptr<OptimizerOptions> defaults_;
};

#define FL_OPTION(Class, type, name) \
  Class& name(const type& value) {   \
    name##_ = value;                 \
    return *this;                    \
  }                                  \
  type& name() {                     \
    return name##_;                  \
  }                                  \
  const type& name() const {         \
    return name##_;                  \
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
  FL_OPTION(SGDOptions, double, lr)
  FL_OPTION(SGDOptions, double, momentum)
  FL_OPTION(SGDOptions, double, dampening)
  FL_OPTION(SGDOptions, double, weight_decay)
  FL_OPTION(SGDOptions, bool, nesterov)
  double lr_, momentum_ = 0, dampening_ = 0, weight_decay_ = 0;
  bool nesterov_ = false;
};

class SGD : public Optimizer {
 public:
  FL_OPTIMIZER(SGD, Optimizer, SGDOptions)
  std::vector<std::pair<std::string, std::vector<Tensor>*>> state_lists() override {
    return {{"momentum", &momentum_}};
  }

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

template <class Derived>
struct AdamOptionsBase : OptimizerCloneableOptions<Derived> {
  AdamOptionsBase(double lr, double weight_decay) : lr_(lr), weight_decay_(weight_decay) {}
  using Betas = std::tuple<double, double>;
#define FL_ADAM_OPTION(type, name)       \
  Derived& name(const type& value) {     \
    name##_ = value;                     \
    return static_cast<Derived&>(*this); \
  }                                      \
  type& name() {                         \
    return name##_;                      \
  }                                      \
  const type& name() const {             \
    return name##_;                      \
  }
  FL_ADAM_OPTION(double, lr)
  FL_ADAM_OPTION(Betas, betas)
  FL_ADAM_OPTION(double, eps)
  FL_ADAM_OPTION(double, weight_decay)
  FL_ADAM_OPTION(bool, amsgrad)
#undef FL_ADAM_OPTION
  double lr_, eps_ = 1e-8, weight_decay_;
  Betas betas_{0.9, 0.999};
  bool amsgrad_ = false;
};
struct AdamOptions : AdamOptionsBase<AdamOptions> {
  AdamOptions(double lr = 1e-3) : AdamOptionsBase(lr, 0) {}
};
struct AdamWOptions : AdamOptionsBase<AdamWOptions> {
  AdamWOptions(double lr = 1e-3) : AdamOptionsBase(lr, 1e-2) {}
};

// Adam, where weight decay is part of the gradient, and AdamW, where it is not.
template <class Options>
class AdamBase : public Optimizer {
 public:
  using Optimizer::Optimizer;
  std::vector<std::pair<std::string, std::vector<Tensor>*>> state_lists() override {
    return {{"mean", &means_}, {"square", &squares_}, {"largest", &largest_}};
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
  FL_OPTION(RMSpropOptions, double, lr)
  FL_OPTION(RMSpropOptions, double, alpha)
  FL_OPTION(RMSpropOptions, double, eps)
  FL_OPTION(RMSpropOptions, double, weight_decay)
  FL_OPTION(RMSpropOptions, double, momentum)
  FL_OPTION(RMSpropOptions, bool, centered)
  double lr_, alpha_ = 0.99, eps_ = 1e-8, weight_decay_ = 0, momentum_ = 0;
  bool centered_ = false;
};
class RMSprop : public Optimizer {
 public:
  FL_OPTIMIZER(RMSprop, Optimizer, RMSpropOptions)
  std::vector<std::pair<std::string, std::vector<Tensor>*>> state_lists() override {
    return {{"square", &squares_}, {"momentum", &momentum_}, {"mean", &means_}};
  }

 protected:
  void update(size_t index, const Tensor& parameter, const Tensor& gradient,
              const OptimizerOptions& all) override {
    const auto& o = static_cast<const RMSpropOptions&>(all);
    const Tensor grad = o.weight_decay() ? gradient + parameter * o.weight_decay() : gradient;
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
};

struct AdagradOptions : OptimizerCloneableOptions<AdagradOptions> {
  AdagradOptions(double lr = 1e-2) : lr_(lr) {}
  FL_OPTION(AdagradOptions, double, lr)
  FL_OPTION(AdagradOptions, double, lr_decay)
  FL_OPTION(AdagradOptions, double, weight_decay)
  FL_OPTION(AdagradOptions, double, initial_accumulator_value)
  FL_OPTION(AdagradOptions, double, eps)
  double lr_, lr_decay_ = 0, weight_decay_ = 0, initial_accumulator_value_ = 0, eps_ = 1e-10;
};
class Adagrad : public Optimizer {
 public:
  FL_OPTIMIZER(Adagrad, Optimizer, AdagradOptions)
  std::vector<std::pair<std::string, std::vector<Tensor>*>> state_lists() override {
    return {{"sum", &sums_}};
  }
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
#undef FL_OPTION
#undef FL_OPTIMIZER

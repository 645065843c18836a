// torch::optim: SGD, Adam and AdamW.
#pragma once

#include <flambeau/torch/functions.h>

#include <cmath>
#include <tuple>
#include <unordered_map>

namespace torch::optim {

class Optimizer {
 public:
  explicit Optimizer(std::vector<Tensor> parameters) : parameters_(std::move(parameters)) {}
  virtual ~Optimizer() = default;
  void zero_grad(bool set_to_none = true) {
    for (const Tensor& p : parameters_) {
      if (!p.grad().defined()) continue;
      if (set_to_none)
        p.set_grad(Tensor());
      else
        p.grad().zero_();
    }
  }
  Tensor step(const std::function<Tensor()>& closure = nullptr) {
    Tensor loss;
    if (closure) {
      torch::AutoGradMode recording(true);
      loss = closure();
    }
    torch::NoGradGuard guard;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const Tensor grad = parameters_[i].grad();
      if (grad.defined()) update(i, parameters_[i], grad);
    }
    return loss;
  }
  const std::vector<Tensor>& parameters() const { return parameters_; }
  void add_parameters(const std::vector<Tensor>& more) {
    parameters_.insert(parameters_.end(), more.begin(), more.end());
  }
  size_t size() const { return parameters_.size(); }
  // What it keeps for parameters, for torch::save: lists of tensors by name, and how many steps it made.
  virtual std::vector<std::pair<std::string, std::vector<Tensor>*>> state_lists() { return {}; }
  virtual std::vector<int64_t>* state_steps() { return nullptr; }

 protected:
  virtual void update(size_t index, const Tensor& parameter, const Tensor& grad) = 0;
  // A tensor that is kept for a parameter, zeros at first.
  Tensor& kept(std::vector<Tensor>& all, size_t index, const Tensor& like) {
    if (all.size() <= index) all.resize(index + 1);
    if (!all[index].defined()) all[index] = torch::zeros_like(like);
    return all[index];
  }
  std::vector<Tensor> parameters_;
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

struct SGDOptions {
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
  SGD(std::vector<Tensor> parameters, SGDOptions o = {}) : Optimizer(std::move(parameters)), options_(o) {}
  SGDOptions& options() { return options_; }
  std::vector<std::pair<std::string, std::vector<Tensor>*>> state_lists() override {
    return {{"momentum", &momentum_}};
  }

 protected:
  void update(size_t index, const Tensor& parameter, const Tensor& gradient) override {
    Tensor grad = options_.weight_decay() ? gradient + parameter * options_.weight_decay() : gradient;
    if (options_.momentum()) {
      const bool first = momentum_.size() <= index || !momentum_[index].defined();
      Tensor& velocity = kept(momentum_, index, parameter);
      if (first)
        velocity.copy_(grad);
      else
        velocity.mul_(options_.momentum()).add_(grad * (1 - options_.dampening()));
      grad = options_.nesterov() ? grad + velocity * options_.momentum() : velocity;
    }
    parameter.add_(grad * -options_.lr());
  }

 private:
  SGDOptions options_;
  std::vector<Tensor> momentum_;
};

struct AdamOptions {
  AdamOptions(double lr = 1e-3) : lr_(lr) {}
  FL_OPTION(AdamOptions, double, lr)
  using Betas = std::tuple<double, double>;
  FL_OPTION(AdamOptions, Betas, betas)
  FL_OPTION(AdamOptions, double, eps)
  FL_OPTION(AdamOptions, double, weight_decay)
  double lr_, eps_ = 1e-8, weight_decay_ = 0;
  Betas betas_{0.9, 0.999};
};
struct AdamWOptions : AdamOptions {
  AdamWOptions(double lr = 1e-3) : AdamOptions(lr) { weight_decay_ = 1e-2; }
};

class Adam : public Optimizer {
 public:
  Adam(std::vector<Tensor> parameters, AdamOptions o = {}) : Optimizer(std::move(parameters)), options_(o) {}
  AdamOptions& options() { return options_; }
  std::vector<std::pair<std::string, std::vector<Tensor>*>> state_lists() override {
    return {{"mean", &means_}, {"square", &squares_}};
  }
  std::vector<int64_t>* state_steps() override { return &steps_; }

 protected:
  virtual bool decoupled() const { return false; }
  void update(size_t index, const Tensor& parameter, const Tensor& gradient) override {
    const auto [first, second] = options_.betas();
    Tensor grad = gradient;
    if (options_.weight_decay()) {
      if (decoupled())
        parameter.mul_(1 - options_.lr() * options_.weight_decay());
      else
        grad = grad + parameter * options_.weight_decay();
    }
    if (steps_.size() <= index) steps_.resize(index + 1);
    const auto step = static_cast<double>(++steps_[index]);
    Tensor& mean = kept(means_, index, parameter);
    Tensor& square = kept(squares_, index, parameter);
    mean.mul_(first).add_(grad * (1 - first));
    square.mul_(second).add_(grad * grad * (1 - second));
    const Tensor size = square.sqrt() / std::sqrt(1 - std::pow(second, step)) + options_.eps();
    parameter.add_(mean / size * (-options_.lr() / (1 - std::pow(first, step))));
  }

 private:
  AdamOptions options_;
  std::vector<Tensor> means_, squares_;
  std::vector<int64_t> steps_;
};

class AdamW : public Adam {
 public:
  AdamW(std::vector<Tensor> parameters, AdamWOptions o = {}) : Adam(std::move(parameters), o) {}

 protected:
  bool decoupled() const override { return true; }
};
#undef FL_OPTION

}  // namespace torch::optim

// torch::optim::LBFGS: a quasi-Newton method over all parameters as one vector.
#pragma once

#include <flambeau/torch/optim.h>

#include <deque>

namespace torch::optim {

struct LBFGSOptions : OptimizerCloneableOptions<LBFGSOptions> {
  LBFGSOptions(double lr = 1) : lr_(lr) {}
  template <class V>
  void each(const V& visit) {
    visit("lr", lr_);
    visit("max_iter", max_iter_);
    visit("max_eval", max_eval_);
    visit("tolerance_grad", tolerance_grad_);
    visit("tolerance_change", tolerance_change_);
    visit("history_size", history_size_);
    visit("line_search_fn", line_search_fn_);
  }

  TORCH_ARG(double, lr);
  TORCH_ARG(int64_t, max_iter) = 20;
  TORCH_ARG(std::optional<int64_t>, max_eval);
  TORCH_ARG(double, tolerance_grad) = 1e-7;
  TORCH_ARG(double, tolerance_change) = 1e-9;
  TORCH_ARG(int64_t, history_size) = 100;
  TORCH_ARG(std::optional<std::string>, line_search_fn);
};

class LBFGS : public Optimizer {
 public:
  FL_OPTIMIZER(LBFGS, Optimizer, LBFGSOptions)

  Tensor step(LossClosure closure) override {
    if (!closure) throw c10::Error("[LBFGS] expected a closure that computes the loss, got none");
    const LBFGSOptions& o = options();
    if (o.line_search_fn() && *o.line_search_fn() != "strong_wolfe")
      throw c10::ValueError(
          c10::str("[LBFGS] expected the line search strong_wolfe, got ", *o.line_search_fn()));
    evaluations_ = 0;
    const Tensor first = evaluate(closure);
    torch::NoGradGuard guard;
    double loss = first.item<double>();
    Tensor grad = gradient();
    const int64_t most = o.max_eval().value_or(o.max_iter() * 5 / 4);
    for (int64_t i = 0; i < o.max_iter() && evaluations_ < most; ++i) {
      if (grad.abs().max().item<double>() <= o.tolerance_grad()) break;
      const Tensor direction = next_direction(grad);
      const double slope = grad.dot(direction).item<double>();
      if (slope > -o.tolerance_change()) break;
      const bool is_start = changes_.empty();
      double length = is_start ? std::min(1.0, 1 / grad.abs().sum().item<double>()) * o.lr() : o.lr();
      const Tensor before = grad;
      const double loss_before = loss;
      if (o.line_search_fn())
        length = search(closure, direction, loss, grad, slope, length, most);
      else
        move(direction, length), loss = evaluate(closure).item<double>(), grad = gradient();
      remember(direction * length, grad - before);
      if ((direction * length).abs().max().item<double>() <= o.tolerance_change()) break;
      if (std::abs(loss - loss_before) < o.tolerance_change()) break;
    }
    return first;
  }

 protected:
  void update(size_t, const Tensor&, const Tensor&, const OptimizerOptions&) override {}

 private:
  struct Change {
    Tensor step, gradient;
    double curvature;
  };

  Tensor evaluate(const LossClosure& closure) {
    torch::AutoGradMode recording(true);
    ++evaluations_;
    return closure().detach();
  }
  Tensor gradient() const {
    std::vector<Tensor> parts;
    for (const Tensor& p : parameters())
      parts.push_back((p.grad().defined() ? p.grad() : torch::zeros_like(p)).reshape({-1}));
    return torch::cat(parts);
  }
  void move(const Tensor& direction, double length) const {
    int64_t at = 0;
    for (const Tensor& p : parameters()) {
      p.add_(direction.narrow(0, at, p.numel()).view_as(p) * length);
      at += p.numel();
    }
  }
  void remember(const Tensor& step, const Tensor& change) {
    const double curvature = change.dot(step).item<double>();
    if (curvature <= 1e-10) return;
    if (static_cast<int64_t>(changes_.size()) >= options().history_size()) changes_.pop_front();
    changes_.push_back({step, change, curvature});
  }
  // The gradient times an approximation of the inverse Hessian, downward.
  Tensor next_direction(const Tensor& grad) const {
    Tensor d = grad.neg();
    std::vector<double> factors;
    for (auto c = changes_.rbegin(); c != changes_.rend(); ++c) {
      factors.push_back(c->step.dot(d).template item<double>() / c->curvature);
      d = d - c->gradient * factors.back();
    }
    if (!changes_.empty()) {
      const Change& last = changes_.back();
      d = d * (last.curvature / last.gradient.dot(last.gradient).item<double>());
    }
    for (const Change& c : changes_) {
      d = d + c.step * (factors.back() - c.gradient.dot(d).item<double>() / c.curvature);
      factors.pop_back();
    }
    return d;
  }
  // A length at which the loss and its slope fell enough (the strong conditions of Wolfe), by doubling and
  // then bisection. Leaves the parameters there.
  double search(const LossClosure& closure, const Tensor& direction, double& loss, Tensor& grad, double slope,
                double length, int64_t most) {
    constexpr double kDecrease = 1e-4, kCurvature = 0.9;
    const double start = loss;
    double low = 0, high = std::numeric_limits<double>::infinity(), at = 0;
    for (int tries = 0; tries < 25 && evaluations_ < most + 25; ++tries) {
      move(direction, length - at);
      at = length;
      loss = evaluate(closure).item<double>();
      grad = gradient();
      const double now = grad.dot(direction).item<double>();
      if (!(loss <= start + kDecrease * length * slope))
        high = length;
      else if (now < kCurvature * slope)
        low = length;
      else if (now > -kCurvature * slope)
        high = length;
      else
        break;
      length = std::isinf(high) ? 2 * length : (low + high) / 2;
    }
    return at;
  }

  std::deque<Change> changes_;
  int64_t evaluations_ = 0;
};

}  // namespace torch::optim

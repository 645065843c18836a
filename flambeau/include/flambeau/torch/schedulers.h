// Schedulers of learning rates.
#pragma once

#include <flambeau/torch/optim.h>

#include <algorithm>
#include <limits>

namespace torch::optim {

class LRScheduler {
 public:
  explicit LRScheduler(Optimizer& optimizer) : optimizer_(optimizer) {}
  virtual ~LRScheduler() = default;
  void step() {
    const std::vector<double> rates = get_lrs();
    auto& groups = optimizer_.param_groups();
    if (rates.size() != groups.size())
      throw c10::Error(c10::str("[scheduler] expected a learning rate for each of ", groups.size(),
                                " groups, got ", rates.size()));
    for (size_t i = 0; i < rates.size(); ++i) groups[i].options().set_lr(rates[i]);
    ++step_count_;
  }

 protected:
  virtual std::vector<double> get_lrs() = 0;
  std::vector<double> get_current_lrs() const {
    std::vector<double> rates;
    for (const auto& group : optimizer_.param_groups()) rates.push_back(group.options().get_lr());
    return rates;
  }
  unsigned step_count_ = 0;
  Optimizer& optimizer_;
};

class StepLR : public LRScheduler {
 public:
  StepLR(Optimizer& optimizer, unsigned step_size, double gamma = 0.1)
      : LRScheduler(optimizer), step_size_(step_size), gamma_(gamma) {}

 private:
  std::vector<double> get_lrs() override {
    std::vector<double> rates = get_current_lrs();
    if (step_count_ > 0 && step_count_ % step_size_ == 0)
      for (double& rate : rates) rate *= gamma_;
    return rates;
  }
  const unsigned step_size_;
  const double gamma_;
};

// Lowers the rates where a measure has not become better for some steps.
class ReduceLROnPlateauScheduler {
 public:
  enum SchedulerMode { min, max };
  enum ThresholdMode { rel, abs };
  ReduceLROnPlateauScheduler(Optimizer& optimizer, SchedulerMode mode = min, float factor = 0.1,
                             int patience = 10, double threshold = 1e-4, ThresholdMode threshold_mode = rel,
                             int cooldown = 0, const std::vector<float>& min_lr = {}, double eps = 1e-8,
                             bool verbose = false)
      : optimizer_(optimizer),
        mode_(mode),
        threshold_mode_(threshold_mode),
        factor_(factor),
        threshold_(threshold),
        eps_(eps),
        patience_(patience),
        cooldown_(cooldown),
        verbose_(verbose),
        least_(optimizer.param_groups().size(), min_lr.size() == 1 ? min_lr[0] : 0.0f) {
    if (factor >= 1) throw c10::ValueError(c10::str("[scheduler] expected a factor below 1, got ", factor));
    if (min_lr.size() > 1) {
      if (min_lr.size() != least_.size())
        throw c10::ValueError(
            c10::str("[scheduler] expected ", least_.size(), " least rates, got ", min_lr.size()));
      least_ = min_lr;
    }
    reset();
  }
  void step(float metric) {
    ++epoch_;
    if (is_better(metric)) {
      best_ = metric;
      bad_ = 0;
    } else {
      ++bad_;
    }
    if (cooling_ > 0) --cooling_, bad_ = 0;
    if (bad_ <= patience_) return;
    reduce();
    cooling_ = cooldown_;
    bad_ = 0;
  }
  void reset() {
    cooling_ = bad_ = 0;
    const double infinite = std::numeric_limits<double>::infinity();
    best_ = mode_ == min ? infinite : -infinite;
  }

 private:
  bool is_better(double metric) const {
    const double sign = mode_ == min ? -1 : 1;
    const double border =
        threshold_mode_ == rel ? best_ * (1 + sign * threshold_) : best_ + sign * threshold_;
    return mode_ == min ? metric < border : metric > border;
  }
  void reduce() {
    auto& groups = optimizer_.param_groups();
    for (size_t i = 0; i < groups.size(); ++i) {
      const double rate = groups[i].options().get_lr();
      const double lower = std::max(rate * factor_, static_cast<double>(least_[i]));
      if (rate - lower <= eps_) continue;
      groups[i].options().set_lr(lower);
      if (verbose_)
        std::cout << "Epoch " << epoch_ << ": reducing learning rate of group " << i << " to " << lower
                  << std::endl;
    }
  }

  Optimizer& optimizer_;
  const SchedulerMode mode_;
  const ThresholdMode threshold_mode_;
  const double factor_, threshold_, eps_;
  const int patience_, cooldown_;
  const bool verbose_;
  std::vector<float> least_;
  double best_ = 0;
  int epoch_ = 0, bad_ = 0, cooling_ = 0;
};

}  // namespace torch::optim

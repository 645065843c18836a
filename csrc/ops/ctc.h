// Connectionist temporal classification: what the CPU and kernels on the device share. The states of a sample
// are its labels with blanks before, between and after them; alpha sums the ways to a state up to a time,
// beta those from it on. Sums are of logarithms, in double precision.
#pragma once

#include <limits>
#include <vector>

#include "core/tensor.h"
#include "math/math.h"

namespace fl::ctc {

constexpr double kNever = -std::numeric_limits<double>::infinity();

// Sizes of a call, checked, and for each sample the length of its input, the number of its labels and where
// they begin.
struct Problem {
  Problem(const Tensor& log_probs, const Tensor& targets, IntSpan input_lengths, IntSpan target_lengths,
          int64_t blank);
  int64_t steps, batch, classes, states;
  std::vector<int64_t> lengths, labels, starts;
  Dims alpha_sizes() const { return {batch, steps, states}; }
  void check_saved(const Tensor& grad, const Tensor& loss, const Tensor& log_alpha) const;
};

struct States {
  const int64_t* target;
  int64_t count, blank;

  FL_MATH_FUNCTION int64_t label(int64_t s) const { return s % 2 ? target[s / 2] : blank; }
  // Whether one comes here past the state between: that of a blank between different labels.
  FL_MATH_FUNCTION bool skips(int64_t s) const { return s > 1 && s < count && label(s) != label(s - 2); }
};

FL_MATH_FUNCTION double add_logs(double a, double b, double c) {
  const double most = math::maximum(a, math::maximum(b, c)), from = most == kNever ? 0.0 : most;
  return from + math::log(math::exp(a - from) + math::exp(b - from) + math::exp(c - from));
}

// At the first time and the last one.
FL_MATH_FUNCTION double begin(int64_t s) {
  return s < 2 ? 0.0 : kNever;
}
FL_MATH_FUNCTION double end(const States& states, int64_t s) {
  return s >= states.count - 2 ? 0.0 : kNever;
}
FL_MATH_FUNCTION double loss(const States& states, const double* last, int64_t length) {
  if (length == 0) return states.count == 1 ? 0.0 : -kNever;
  return -add_logs(last[states.count - 1], states.count > 1 ? last[states.count - 2] : kNever, kNever);
}
// How likely the sample is in a state; alpha and beta both have what its label weighs.
FL_MATH_FUNCTION double posterior(double alpha, double beta, double weight, double loss) {
  const double sum = alpha + beta;
  return sum == kNever ? 0.0 : math::exp(sum - weight + loss);
}

}  // namespace fl::ctc

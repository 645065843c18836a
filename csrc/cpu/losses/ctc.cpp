// The loss of connectionist temporal classification and its gradient, a sample after the other.
#include "ops/ctc.h"

#include <algorithm>

#include "core/parallel.h"
#include "dispatch/kernel.h"

namespace fl {

namespace ctc {

Problem::Problem(const Tensor& log_probs, const Tensor& targets, IntSpan input_lengths,
                 IntSpan target_lengths, int64_t blank) {
  FL_CHECK(log_probs.dim() == 3, "[ctc_loss] expected log_probs of shape (T, N, C), got ", log_probs.sizes());
  FL_CHECK_KIND(log_probs.dtype() == DType::Float || log_probs.dtype() == DType::Double, NotImplemented,
                "[ctc_loss] expected float32 or float64 log_probs, got ", name_of(log_probs.dtype()));
  FL_CHECK(targets.dtype() == DType::Int64 || targets.dtype() == DType::Int32,
           "[ctc_loss] expected int64 or int32 targets, got ", name_of(targets.dtype()));
  steps = log_probs.size(0), batch = log_probs.size(1), classes = log_probs.size(2);
  FL_CHECK(blank >= 0 && blank < classes, "[ctc_loss] expected blank in [0, ", classes - 1, "], got ", blank);
  FL_CHECK(static_cast<int64_t>(input_lengths.size()) == batch &&
               static_cast<int64_t>(target_lengths.size()) == batch,
           "[ctc_loss] expected ", batch, " input and target lengths, got ",
           static_cast<int64_t>(input_lengths.size()), " and ", static_cast<int64_t>(target_lengths.size()));
  const bool concatenated = targets.dim() == 1;
  FL_CHECK(concatenated || targets.dim() == 2, "[ctc_loss] expected targets of 1 or 2 dimensions, got ",
           targets.sizes());
  lengths.assign(input_lengths.begin(), input_lengths.end());
  labels.assign(target_lengths.begin(), target_lengths.end());
  int64_t longest = 0, sum = 0;
  for (int64_t b = 0; b < batch; ++b) {
    FL_CHECK(labels[b] >= 0, "[ctc_loss] expected target lengths that are not negative, got ", labels[b]);
    FL_CHECK(lengths[b] >= 0 && lengths[b] <= steps, "[ctc_loss] expected input lengths in [0, ", steps,
             "], got ", lengths[b]);
    starts.push_back(concatenated ? sum : b * targets.size(1));
    longest = std::max(longest, labels[b]);
    sum += labels[b];
  }
  if (concatenated)
    FL_CHECK(targets.numel() == sum, "[ctc_loss] expected ", sum, " concatenated targets, got ",
             targets.numel());
  else
    FL_CHECK(targets.size(0) == batch && targets.size(1) >= longest, "[ctc_loss] expected targets of shape (",
             batch, ", ", longest, ") or wider, got ", targets.sizes());
  states = 2 * longest + 1;
}

void Problem::check_saved(const Tensor& grad, const Tensor& loss, const Tensor& log_alpha) const {
  FL_CHECK(grad.numel() == batch && loss.numel() == batch, "[ctc_loss] expected ", batch,
           " losses and gradients, got ", loss.numel(), " and ", grad.numel());
  FL_CHECK(log_alpha.sizes() == alpha_sizes(), "[ctc_loss] expected log_alpha of shape ", alpha_sizes(),
           ", got ", log_alpha.sizes());
}

namespace {

// What a sample has at one time, for each of its states, with states before and after them that are never
// reached.
struct Row {
  static constexpr int kBeside = 2;
  explicit Row(int64_t states) : cells(states + 2 * kBeside, kNever) {}
  double* data() { return cells.data() + kBeside; }
  std::vector<double> cells;
};

// The rows of a sample's recursion.
struct Work {
  Work(const Problem& p, const States& states)
      : last(p.states), now(p.states), jump(p.states), weight(p.states), label(states.count) {
    for (int64_t s = 0; s < states.count; ++s) {
      label[s] = states.label(s);
      if (states.skips(s)) jump.data()[s] = 0;
    }
  }
  template <class T>
  void weigh(const T* weights) {
    for (size_t s = 0; s < label.size(); ++s) weight.data()[s] = weights[label[s]];
  }
  // The sums of this time from those of the last one: past (1) is before a state, or (-1) after it.
  void step(int64_t past) {
    const double *from = last.data(), *free = past > 0 ? jump.data() : jump.data() + 2;
    double *to = now.data(), *weights = weight.data();
#pragma omp simd
    for (int64_t s = 0; s < static_cast<int64_t>(label.size()); ++s)
      to[s] = add_logs(from[s], from[s - past], from[s - 2 * past] + free[s]) + weights[s];
  }
  Row last, now, jump, weight;
  std::vector<int64_t> label;
};

// Calls f(T, sample, its states) for the samples.
template <class F>
void for_samples(const Problem& p, const Tensor& log_probs, const Tensor& targets, int64_t blank, F&& f) {
  const Tensor target = contiguous(to_dtype(targets, DType::Int64));
  const auto run = [&](auto type) {
    parallel_for(p.batch, 1, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b)
        f(type, b, States{target.data<int64_t>() + p.starts[b], 2 * p.labels[b] + 1, blank});
    });
  };
  log_probs.dtype() == DType::Double ? run(double()) : run(float());
}

std::tuple<Tensor, Tensor> ctc_loss(const Tensor& log_probs, const Tensor& targets, IntSpan input_lengths,
                                    IntSpan target_lengths, int64_t blank, bool) {
  const Problem p(log_probs, targets, input_lengths, target_lengths, blank);
  Tensor loss = empty({p.batch}, log_probs.options()),
         log_alpha = empty(p.alpha_sizes(), log_probs.options());
  if (log_probs.is_meta()) return {loss, log_alpha};
  const Tensor x = contiguous(log_probs);
  for_samples(p, x, targets, blank, [&](auto type, int64_t b, const States& states) {
    using T = decltype(type);
    for (int64_t s = 1; s < states.count; s += 2)
      FL_CHECK(states.label(s) >= 0 && states.label(s) < p.classes, "[ctc_loss] expected targets in [0, ",
               p.classes - 1, "], got ", states.label(s));
    Work work(p, states);
    T* alpha = log_alpha.data<T>() + b * p.steps * p.states;
    std::fill(alpha, alpha + p.steps * p.states, T(kNever));
    for (int64_t t = 0; t < p.lengths[b]; ++t, alpha += p.states) {
      work.weigh(x.data<T>() + (t * p.batch + b) * p.classes);
      double* const now = work.now.data();
      if (t)
        work.step(1);
      else
        for (int64_t s = 0; s < states.count; ++s) now[s] = begin(s) + work.weight.data()[s];
      std::copy(now, now + states.count, alpha);
      std::swap(work.last, work.now);
    }
    loss.data<T>()[b] = static_cast<T>(ctc::loss(states, work.last.data(), p.lengths[b]));
  });
  return {loss, log_alpha};
}

// By the scores of which log_probs is the log-softmax.
Tensor ctc_loss_backward(const Tensor& grad, const Tensor& log_probs, const Tensor& targets,
                         IntSpan input_lengths, IntSpan target_lengths, const Tensor& loss,
                         const Tensor& log_alpha, int64_t blank, bool zero_infinity) {
  const Problem p(log_probs, targets, input_lengths, target_lengths, blank);
  p.check_saved(grad, loss, log_alpha);
  const Tensor out = empty(log_probs.sizes(), log_probs.options());
  if (log_probs.is_meta()) return out;
  const auto same = [&](const Tensor& t) { return contiguous(to_dtype(t, log_probs.dtype())); };
  const Tensor x = contiguous(log_probs), factor = same(grad), losses = same(loss), alphas = same(log_alpha);
  for_samples(p, x, targets, blank, [&](auto type, int64_t b, const States& states) {
    using T = decltype(type);
    const double sample_loss = losses.data<T>()[b];
    const bool possible = sample_loss != -kNever;
    // NaN, as infinity times nothing is, unless zeros are asked for.
    const T scale = possible        ? factor.data<T>()[b]
                    : zero_infinity ? T(0)
                                    : std::numeric_limits<T>::quiet_NaN();
    Work work(p, states);
    std::vector<double> taken(p.classes), likely(states.count);
    for (int64_t t = p.steps; t-- > 0;) {
      T* row = out.data<T>() + (t * p.batch + b) * p.classes;
      if (t >= p.lengths[b]) {
        std::fill(row, row + p.classes, T(0));
        continue;
      }
      const T* weights = x.data<T>() + (t * p.batch + b) * p.classes;
      const T* alpha = alphas.data<T>() + (b * p.steps + t) * p.states;
      std::fill(taken.begin(), taken.end(), 0.0);
      work.weigh(weights);
      double *const now = work.now.data(), *const weight = work.weight.data();
      if (t + 1 < p.lengths[b])
        work.step(-1);
      else
        for (int64_t s = 0; s < states.count; ++s) now[s] = end(states, s) + weight[s];
#pragma omp simd
      for (int64_t s = 0; s < states.count; ++s)
        likely[s] = posterior(alpha[s], now[s], weight[s], sample_loss);
      for (int64_t s = 0; s < states.count; ++s) taken[work.label[s]] += likely[s];
      for (int64_t c = 0; c < p.classes; ++c)
        row[c] = (math::exp(weights[c]) - static_cast<T>(taken[c])) * scale;
      std::swap(work.last, work.now);
    }
  });
  return out;
}

FL_KERNEL("_ctc_loss", ctc_loss, kCpu);
FL_KERNEL("_ctc_loss_backward", ctc_loss_backward, kCpu);

}  // namespace
}  // namespace ctc
}  // namespace fl

// The loss of connectionist temporal classification and its gradient: a block of threads for each sample,
// which goes through the times together, a state for each thread.
#include "cuda/engine/device.cuh"
#include "cuda/engine/kernels.h"
#include "cuda/engine/rows.cuh"
#include "dispatch/kernel.h"
#include "ops/ctc.h"

namespace fl::cuda {

namespace {

using namespace ctc;

constexpr int kThreads = 256;

struct Args {
  const void *log_probs, *grad, *saved_loss, *saved_alpha;
  void *loss, *log_alpha, *out;
  const int64_t *targets, *lengths, *labels, *starts;
  double* rows;    // two for each sample
  double* likely;  // a row for each sample: how likely it is in a state
  int32_t* same;   // likewise: where a label comes next, or none; -1 for those that have come before
  int* failed;
  int64_t steps, batch, classes, states, blank;
  bool zero_infinity;

  __device__ States of(int64_t b) const { return {targets + starts[b], 2 * labels[b] + 1, blank}; }
};

// The sum at a state, without what its label weighs, from those of the time before, or after.
__device__ double forward(const States& states, const double* before, int64_t s) {
  return add_logs(before[s], s > 0 ? before[s - 1] : kNever, states.skips(s) ? before[s - 2] : kNever);
}
__device__ double backward(const States& states, const double* after, int64_t s) {
  return add_logs(after[s], s + 1 < states.count ? after[s + 1] : kNever,
                  states.skips(s + 2) ? after[s + 2] : kNever);
}

// What a label weighs; those that are none are reported, and weigh nothing.
template <class T>
struct Weights {
  const Args& a;
  const T* row;
  __device__ Weights(const Args& a, int64_t t, int64_t b)
      : a(a), row(static_cast<const T*>(a.log_probs) + (t * a.batch + b) * a.classes) {}
  __device__ double operator[](int64_t label) const {
    if (label >= 0 && label < a.classes) return row[label];
    *a.failed = 1;
    return kNever;
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads) ctc_forward(const __grid_constant__ Args a) {
  const int64_t b = blockIdx.x, length = a.lengths[b];
  const States states = a.of(b);
  double *before = a.rows + 2 * b * a.states, *now = before + a.states;
  T* alpha = static_cast<T*>(a.log_alpha) + b * a.steps * a.states;
  for (int64_t t = 0; t < a.steps; ++t, alpha += a.states) {
    for (int64_t s = threadIdx.x; s < a.states; s += kThreads) {
      double sum = kNever;
      if (t < length && s < states.count)
        sum = (t ? forward(states, before, s) : begin(s)) + Weights<T>(a, t, b)[states.label(s)];
      if (t < length) now[s] = sum;
      alpha[s] = static_cast<T>(sum);
    }
    if (t >= length) continue;
    __syncthreads();
    double* const last = before;
    before = now;
    now = last;
  }
  if (threadIdx.x == 0) static_cast<T*>(a.loss)[b] = static_cast<T>(loss(states, before, length));
}

// What is there without alignments: the gradient of the sum of all classes.
template <class T>
__global__ void __launch_bounds__(kThreads) ctc_classes(const __grid_constant__ Args a) {
  const int64_t n = a.steps * a.batch * a.classes;
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < n; i += int64_t(gridDim.x) * kThreads) {
    const int64_t line = i / a.classes, b = line % a.batch;
    T value = 0;
    if (line / a.batch < a.lengths[b]) {
      const bool possible = static_cast<const T*>(a.saved_loss)[b] != T(-kNever);
      // NaN, as infinity times nothing is, unless zeros are asked for.
      if (possible)
        value = math::exp(static_cast<const T*>(a.log_probs)[i]) * static_cast<const T*>(a.grad)[b];
      else if (!a.zero_infinity)
        value = T(NAN);
    }
    static_cast<T*>(a.out)[i] = value;
  }
}

// Lists the states of each label, so that one thread adds up what they take.
__device__ void list_same(const States& states, int32_t* same) {
  for (int64_t s = 1 + 2 * threadIdx.x; s < states.count; s += 2 * kThreads) {
    const int64_t label = states.label(s);
    int64_t before = s - 2, next = s + 2;
    while (before > 0 && states.label(before) != label) before -= 2;
    while (next < states.count && states.label(next) != label) next += 2;
    same[s] = next < states.count ? int32_t(next) : 0;
    same[s - 1] = before > 0 || label == states.blank ? -1 : 0;
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) ctc_backward(const __grid_constant__ Args a) {
  __shared__ double parts[kThreads];
  const int64_t b = blockIdx.x, length = a.lengths[b];
  const States states = a.of(b);
  const double loss = static_cast<const T*>(a.saved_loss)[b];
  if (loss == -kNever) return;
  const T scale = static_cast<const T*>(a.grad)[b];
  double *after = a.rows + 2 * b * a.states, *now = after + a.states, *likely = a.likely + b * a.states;
  int32_t* same = a.same + b * a.states;
  list_same(states, same);
  for (int64_t t = length; t-- > 0;) {
    const T* alpha = static_cast<const T*>(a.saved_alpha) + (b * a.steps + t) * a.states;
    const Weights<T> weights(a, t, b);
    double blanks = 0;
    for (int64_t s = threadIdx.x; s < states.count; s += kThreads) {
      const int64_t label = states.label(s);
      const double weight = weights[label];
      now[s] = (t + 1 < length ? backward(states, after, s) : end(states, s)) + weight;
      likely[s] = posterior(alpha[s], now[s], weight, loss);
      if (label == a.blank) blanks += likely[s];
    }
    parts[threadIdx.x] = blanks;
    __syncthreads();
    T* row = static_cast<T*>(a.out) + (t * a.batch + b) * a.classes;
    for (int64_t s = 1 + 2 * threadIdx.x; s < states.count; s += 2 * kThreads) {
      const int64_t label = states.label(s);
      if (same[s - 1] < 0 || label < 0 || label >= a.classes) continue;
      double taken = 0;
      for (int64_t k = s; k > 0; k = same[k]) taken += likely[k];
      row[label] -= static_cast<T>(taken) * scale;
    }
    for (int half = kThreads / 2; half > 0; half /= 2) {
      if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
      __syncthreads();
    }
    if (threadIdx.x == 0) row[a.blank] -= static_cast<T>(parts[0]) * scale;
    double* const last = after;
    after = now;
    now = last;
  }
}

// The arguments of a call and the memory they point to.
class Prepared {
 public:
  Prepared(const Problem& p, const Tensor& log_probs, const Tensor& targets, int64_t blank)
      : on_(log_probs.device().index),
        log_probs_(contiguous(log_probs)),
        targets_(contiguous(to_dtype(targets, DType::Int64))),
        numbers_(empty({3, p.batch}, {DType::Int64, log_probs.device()})),
        memory_(sizeof(double) * p.batch * p.states * 4, log_probs.device().index, current_stream()) {
    const Tensor host = empty({3, p.batch}, {DType::Int64, Device{}});
    int64_t* to = host.data<int64_t>();
    for (const auto* list : {&p.lengths, &p.labels, &p.starts})
      to = std::copy(list->begin(), list->end(), to);
    copy_into(numbers_, host);
    const int64_t cells = p.batch * p.states, *numbers = numbers_.data<int64_t>();
    args.log_probs = log_probs_.raw();
    args.targets = targets_.data<int64_t>();
    args.lengths = numbers, args.labels = numbers + p.batch, args.starts = numbers + 2 * p.batch;
    args.rows = memory_.as<double>(), args.likely = args.rows + 2 * cells;
    args.same = reinterpret_cast<int32_t*>(args.likely + cells);
    args.failed = failure_flag();
    args.steps = p.steps, args.batch = p.batch, args.classes = p.classes, args.states = p.states;
    args.blank = blank;
  }
  Args args{};

 private:
  OnDevice on_;
  Tensor log_probs_, targets_, numbers_;
  Scratch memory_;
};

template <class F>
void by_precision(const Tensor& t, F&& f) {
  t.dtype() == DType::Double ? f(double()) : f(float());
}

std::tuple<Tensor, Tensor> ctc_loss(const Tensor& log_probs, const Tensor& targets, IntSpan input_lengths,
                                    IntSpan target_lengths, int64_t blank, bool) {
  const Problem p(log_probs, targets, input_lengths, target_lengths, blank);
  Tensor loss = empty({p.batch}, log_probs.options()),
         log_alpha = empty(p.alpha_sizes(), log_probs.options());
  if (p.batch == 0) return {loss, log_alpha};
  Prepared prepared(p, log_probs, targets, blank);
  prepared.args.loss = loss.raw();
  prepared.args.log_alpha = log_alpha.raw();
  by_precision(log_probs, [&](auto type) {
    ctc_forward<decltype(type)><<<unsigned(p.batch), kThreads, 0, current_stream()>>>(prepared.args);
  });
  check_launch("ctc_loss");
  return {loss, log_alpha};
}

Tensor ctc_loss_backward(const Tensor& grad, const Tensor& log_probs, const Tensor& targets,
                         IntSpan input_lengths, IntSpan target_lengths, const Tensor& loss,
                         const Tensor& log_alpha, int64_t blank, bool zero_infinity) {
  const Problem p(log_probs, targets, input_lengths, target_lengths, blank);
  p.check_saved(grad, loss, log_alpha);
  const Tensor out = empty(log_probs.sizes(), log_probs.options());
  if (out.numel() == 0) return out;
  const auto same = [&](const Tensor& t) { return contiguous(to_dtype(t, log_probs.dtype())); };
  const Tensor factor = same(grad), losses = same(loss), alphas = same(log_alpha);
  Prepared prepared(p, log_probs, targets, blank);
  Args& a = prepared.args;
  a.grad = factor.raw(), a.saved_loss = losses.raw(), a.saved_alpha = alphas.raw(), a.out = out.raw();
  a.zero_infinity = zero_infinity;
  by_precision(log_probs, [&](auto type) {
    using T = decltype(type);
    const int64_t blocks = std::min<int64_t>((out.numel() + kThreads - 1) / kThreads, 4096);
    ctc_classes<T><<<unsigned(blocks), kThreads, 0, current_stream()>>>(a);
    check_launch("ctc_loss");
    ctc_backward<T><<<unsigned(p.batch), kThreads, 0, current_stream()>>>(a);
  });
  check_launch("ctc_loss");
  return out;
}

FL_CUDA_KERNEL("_ctc_loss", ctc_loss);
FL_CUDA_KERNEL("_ctc_loss_backward", ctc_loss_backward);

}  // namespace
}  // namespace fl::cuda

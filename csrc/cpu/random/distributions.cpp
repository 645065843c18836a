// Sampling from distributions whose parameters are tensors. Each element draws from a stream of its own, so
// that rejection in one does not move the others.
#include <algorithm>
#include <cmath>

#include "core/parallel.h"
#include "dispatch/generator.h"
#include "dispatch/kernel.h"
#include "math/distribution_math.h"
#include "ops/iterator.h"
#include "ops/outputs.h"

namespace fl {
namespace {

using namespace distributions;

// Draws for every element of the parameters, as doubles in a contiguous tensor.
template <class F>
Tensor draw(const Tensor& parameter, Opaque* generator, const F& f) {
  const Tensor source = contiguous(to_dtype(parameter, DType::Double));
  Tensor out = empty(parameter.sizes(), {DType::Double, Device{}});
  const Generator::State state = generator_of(generator, parameter.device()).take();
  const double* x = source.data<double>();
  double* o = out.data<double>();
  parallel_for(out.numel(), 512, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      Stream s(state.seed, state.offset, i);
      o[i] = f(s, x[i], i);
    }
  });
  return out;
}

// Into a tensor laid out like the parameter.
Tensor store(const Tensor& drawn, const Tensor& like) {
  Tensor out = empty_like(like, like.dtype());
  copy_into(out, drawn);
  return out;
}

void check_floating(const char* op, const Tensor& t) {
  FL_CHECK_KIND(is_floating(t.dtype()), NotImplemented, "[", op, "] expected a floating point tensor, got ",
                name_of(t.dtype()));
}

Tensor poisson_op(const Tensor& self, Opaque* generator) {
  check_floating("poisson", self);
  if (self.is_meta()) return empty_like(self, self.dtype());
  const Tensor source = contiguous(to_dtype(self, DType::Double));
  for (int64_t i = 0; i < source.numel(); ++i)
    FL_CHECK(!(source.data<double>()[i] < 0), "[poisson] expected rates that are not negative, got ",
             source.data<double>()[i]);
  return store(draw(source, generator, [](Stream& s, double rate, int64_t) { return poisson(s, rate); }),
               self);
}

Tensor gamma_op(const Tensor& self, Opaque* generator) {
  check_floating("_standard_gamma", self);
  if (self.is_meta()) return empty_like(self, self.dtype());
  const double tiny = least_gamma(self.dtype());
  return store(draw(self, generator,
                    [=](Stream& s, double alpha, int64_t) { return std::max(gamma(s, alpha), tiny); }),
               self);
}

double largest_below_one(DType dtype) {
  const int digits = dtype == DType::Double ? 53 : dtype == DType::Float ? 24 : dtype == DType::Half ? 11 : 8;
  return 1 - std::ldexp(1.0, -digits);
}

Tensor dirichlet_op(const Tensor& self, Opaque* generator) {
  check_floating("_sample_dirichlet", self);
  FL_CHECK(self.dim() > 0, "[_sample_dirichlet] expected at least one dimension, got a 0-d tensor");
  if (self.is_meta()) return empty_like(self, self.dtype());
  const Tensor drawn =
      draw(self, generator, [](Stream& s, double alpha, int64_t) { return log_gamma(s, alpha); });
  const int64_t n = self.size(-1);
  for (int64_t row = 0; n > 0 && row < self.numel() / n; ++row)
    normalize_logarithms(drawn.data<double>() + row * n, n);
  // Inside the simplex in the dtype of the result, too: at its border the density has no logarithm.
  const double least = least_gamma(self.dtype()), most = largest_below_one(self.dtype());
  for (int64_t i = 0; n > 1 && i < drawn.numel(); ++i)
    drawn.data<double>()[i] = std::min(std::max(drawn.data<double>()[i], least), most);
  return store(drawn, self);
}

Tensor binomial_op(const Tensor& count, const Tensor& prob, Opaque* generator) {
  for (const Tensor* t : {&count, &prob})
    FL_CHECK_KIND(is_floating(t->dtype()), Value, "[binomial] expected floating point tensors, got ",
                  name_of(t->dtype()), ": binomial only supports floating-point dtypes for ",
                  t == &count ? "count" : "prob");
  FL_CHECK(count.dtype() == prob.dtype(), "[binomial] expected count and prob of one dtype, got ",
           name_of(count.dtype()), " and ", name_of(prob.dtype()));
  const Dims sizes = broadcast_shapes("binomial", count.sizes(), prob.sizes());
  Tensor out = empty(sizes, count.options());
  if (count.is_meta()) return out;
  const Tensor n = empty(sizes, {DType::Double, Device{}}), p = empty(sizes, {DType::Double, Device{}});
  copy_into(n, count);
  copy_into(p, prob);
  const double* q = p.data<double>();
  copy_into(out, draw(n, generator,
                      [=](Stream& s, double trials, int64_t i) { return binomial(s, trials, q[i]); }));
  return out;
}

// ---------------------------------------------------------------- bernoulli with a tensor of probabilities

void check_probabilities(const char* op, const Tensor& p) {
  const double* x = p.data<double>();
  for (int64_t i = 0; i < p.numel(); ++i)
    FL_CHECK(x[i] >= 0 && x[i] <= 1, "[", op, "] expected probabilities in [0, 1], got ", x[i]);
}

// One word for each element: true where it falls below the probability.
Tensor bernoulli_mask(const char* op, const Tensor& p, IntSpan sizes, Opaque* generator, Device device) {
  const Tensor wide = empty(sizes, {DType::Double, Device{}});
  copy_into(wide, p);
  check_probabilities(op, wide);
  Tensor mask = empty(sizes, {DType::Bool, Device{}});
  const Generator::State state = generator_of(generator, device).take();
  const double* x = wide.data<double>();
  bool* o = mask.data<bool>();
  parallel_for(mask.numel(), 2048, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) o[i] = philox::word(state.seed, state.offset, i) < x[i] * 0x1p32;
  });
  return mask;
}

Tensor bernoulli(const Tensor& self, Opaque* generator) {
  check_floating("bernoulli", self);
  Tensor out = empty_like(self, self.dtype());
  if (!self.is_meta())
    copy_into(out, bernoulli_mask("bernoulli", self, self.sizes(), generator, self.device()));
  return out;
}

Tensor bernoulli_tensor_(const Tensor& self, const Tensor& p, Opaque* generator) {
  FL_CHECK_KIND(!is_complex(self.dtype()), NotImplemented, "[bernoulli_] expected a real tensor, got ",
                name_of(self.dtype()));
  FL_CHECK_KIND(is_floating(p.dtype()), Runtime, "[bernoulli_] expected floating point probabilities, got ",
                name_of(p.dtype()));
  FL_CHECK(broadcast_shapes("bernoulli_", self.sizes(), p.sizes()) == Dims(self.sizes()),
           "[bernoulli_] expected probabilities that broadcast to ", self.sizes(), ", got ", p.sizes());
  FL_CHECK(!has_internal_overlap(self),
           "[bernoulli_] expected a tensor whose elements are distinct in memory, got an expanded tensor: "
           "unsupported operation: more than one element of the "
           "written-to tensor refers to a single memory location");
  self.bump_version();
  if (!self.is_meta() && !p.is_meta())
    copy_into(self, bernoulli_mask("bernoulli_", p, self.sizes(), generator, self.device()));
  return self;
}

// ---------------------------------------------------------------- multinomial

Tensor multinomial(const Tensor& self, int64_t num_samples, bool replacement, Opaque* generator) {
  FL_CHECK(self.dim() == 1 || self.dim() == 2, "[multinomial] expected 1 or 2 dimensions, got ", self.dim());
  FL_CHECK(is_floating(self.dtype()), "[multinomial] expected floating point weights, got ",
           name_of(self.dtype()));
  FL_CHECK(num_samples > 0, "[multinomial] expected num_samples > 0, got ", num_samples);
  const int64_t n = self.size(-1), rows = self.dim() == 2 ? self.size(0) : 1;
  FL_CHECK(replacement || num_samples <= n, "[multinomial] expected num_samples <= ", n,
           " without replacement, got ", num_samples,
           ": cannot sample n_sample > prob_dist.size(-1) samples without replacement");
  FL_CHECK(n <= (int64_t(1) << 24), "[multinomial] expected at most 2**24 categories, got ", n);
  Tensor out = self.dim() == 2 ? empty({rows, num_samples}, {DType::Int64, self.device()})
                               : empty({num_samples}, {DType::Int64, self.device()});
  if (self.is_meta()) return out;
  const Tensor weights = contiguous(to_dtype(self, DType::Double));
  const Generator::State state = generator_of(generator, self.device()).take();
  parallel_for(rows, std::max<int64_t>(1, 4096 / std::max<int64_t>(n, 1)), [&](int64_t begin, int64_t end) {
    std::vector<double> work(n);
    std::vector<int64_t> order(replacement ? 0 : n);
    for (int64_t row = begin; row < end; ++row) {
      const double* w = weights.data<double>() + row * n;
      int64_t* o = out.data<int64_t>() + row * num_samples;
      double total = 0;
      for (int64_t i = 0; i < n; ++i) {
        FL_CHECK(std::isfinite(w[i]) && w[i] >= 0,
                 "[multinomial] expected weights that are finite and not negative, got ", w[i]);
        total += w[i];
        work[i] = total;
      }
      FL_CHECK(total > 0, "[multinomial] expected weights with a positive sum, got 0");
      if (replacement) {
        for (int64_t k = 0; k < num_samples; ++k) {
          const double u =
              (philox::word64(state.seed, state.offset, row * num_samples + k) >> 11) * 0x1p-53 * total;
          const int64_t at = std::upper_bound(work.begin(), work.end(), u) - work.begin();
          o[k] = std::min(at, n - 1);
        }
        continue;
      }
      // Races of exponential clocks: the first to ring are a sample without replacement.
      for (int64_t i = 0; i < n; ++i) {
        const double u = ((philox::word64(state.seed, state.offset, row * n + i) >> 12) + 0.5) * 0x1p-52;
        work[i] = w[i] > 0 ? -std::log(u) / w[i] : std::numeric_limits<double>::infinity();
        order[i] = i;
      }
      std::partial_sort(order.begin(), order.begin() + num_samples, order.end(),
                        [&](int64_t a, int64_t b) { return work[a] < work[b]; });
      std::copy(order.begin(), order.begin() + num_samples, o);
    }
  });
  return out;
}

FL_KERNEL("poisson", poisson_op, kCpu);
FL_KERNEL("binomial", binomial_op, kCpu);
FL_KERNEL("_standard_gamma", gamma_op, kCpu);
FL_KERNEL("_sample_dirichlet", dirichlet_op, kCpu);
FL_KERNEL("bernoulli", bernoulli, kCpu);
// Zeros and ones fit in every dtype.
Tensor bernoulli_out(const Tensor& self, Opaque* generator, const Tensor& out) {
  check_floating("bernoulli", self);
  resize_output(out, self.sizes());
  return bernoulli_tensor_(out, self, generator);
}

FL_KERNEL("bernoulli.out", bernoulli_out, kCpu);
FL_KERNEL("bernoulli_.Tensor", bernoulli_tensor_, kCpu);
FL_KERNEL("multinomial", multinomial, kCpu);

}  // namespace
}  // namespace fl

// Draws from distributions whose parameters are tensors: the numbers that the CPU draws
// (cpu/distribution_math.h).
#include "core/random.h"
#include "cpu/distribution_math.h"
#include "cuda/device.cuh"
#include "cuda/launch.h"
#include "cuda/rows.cuh"
#include "dispatch/kernel.h"

namespace fl::cuda {

namespace {

enum Drawn { kPoisson, kGamma, kBinomial };

struct DrawArgs {
  const double *first, *second;
  double* out;
  int64_t n;
  uint64_t seed, offset;
  double least;
  int kind;
};

__global__ void __launch_bounds__(128) draw_elements(const __grid_constant__ DrawArgs a) {
  const int64_t i = int64_t(blockIdx.x) * 128 + threadIdx.x;
  if (i >= a.n) return;
  distributions::Stream s(a.seed, a.offset, i);
  const double x = a.first[i];
  double made;
  if (a.kind == kPoisson)
    made = distributions::poisson(s, x);
  else if (a.kind == kGamma)
    made = distributions::gamma(s, x);
  else
    made = distributions::binomial(s, x, a.second[i]);
  a.out[i] = made < a.least ? a.least : made;
}

// Rows that sum to one.
__global__ void __launch_bounds__(128) normalise_rows(double* data, int64_t rows, int64_t n) {
  const int64_t row = int64_t(blockIdx.x) * 128 + threadIdx.x;
  if (row >= rows) return;
  double* x = data + row * n;
  double total = 0;
  for (int64_t i = 0; i < n; ++i) total += x[i];
  if (total < std::numeric_limits<double>::min()) total = std::numeric_limits<double>::min();
  for (int64_t i = 0; i < n; ++i) x[i] /= total;
}

// Doubles in a contiguous tensor.
Tensor draw(const char* op, int kind, const Tensor& first, const Tensor& second, double least,
            Opaque* generator) {
  FL_CHECK_KIND(is_floating(first.dtype()) && !is_stored_only(first.dtype()), NotImplemented, "[", op,
                "] expected a floating point tensor, got ", name_of(first.dtype()));
  const Tensor x = contiguous(to_dtype(first, DType::Double)),
               y = second.defined() ? contiguous(to_dtype(second, DType::Double)) : second;
  const Tensor out = empty(first.sizes(), {DType::Double, first.device()});
  const Generator::State state = generator_of(generator, first.device()).take();
  const int64_t n = out.numel();
  if (n == 0) return out;
  OnDevice on(first.device().index);
  const DrawArgs args{x.data<double>(),
                      y.defined() ? y.data<double>() : nullptr,
                      out.data<double>(),
                      n,
                      state.seed,
                      state.offset,
                      least,
                      kind};
  launch(draw_elements, static_cast<unsigned>((n + 127) / 128), 128, current_stream(), op, args);
  return out;
}

Tensor stored(const Tensor& drawn, const Tensor& like) {
  const Tensor out = empty_like(like, like.dtype());
  copy_into(out, drawn);
  return out;
}

constexpr double kNone = -std::numeric_limits<double>::infinity();

Tensor poisson(const Tensor& self, Opaque* generator) {
  return stored(draw("poisson", kPoisson, self, Tensor(), kNone, generator), self);
}
Tensor standard_gamma(const Tensor& self, Opaque* generator) {
  const double least = distributions::least_gamma(self.dtype());
  return stored(draw("_standard_gamma", kGamma, self, Tensor(), least, generator), self);
}
Tensor dirichlet(const Tensor& self, Opaque* generator) {
  FL_CHECK(self.dim() > 0, "[_sample_dirichlet] expected at least one dimension, got a 0-d tensor");
  const Tensor drawn = draw("_sample_dirichlet", kGamma, self, Tensor(), kNone, generator);
  const int64_t n = self.size(-1), rows = n ? self.numel() / n : 0;
  if (rows) {
    OnDevice on(self.device().index);
    launch(normalise_rows, static_cast<unsigned>((rows + 127) / 128), 128, current_stream(),
           "_sample_dirichlet", drawn.data<double>(), rows, n);
  }
  return stored(drawn, self);
}
Tensor binomial(const Tensor& count, const Tensor& prob, Opaque* generator) {
  FL_CHECK(count.dtype() == prob.dtype(), "[binomial] expected count and prob of one dtype, got ",
           name_of(count.dtype()), " and ", name_of(prob.dtype()));
  const Dims sizes = broadcast_shapes("binomial", count.sizes(), prob.sizes());
  const Tensor out = empty(sizes, count.options()), n = empty(sizes, {DType::Double, count.device()}),
               p = empty(sizes, {DType::Double, count.device()});
  copy_into(n, count);
  copy_into(p, prob);
  copy_into(out, draw("binomial", kBinomial, n, p, kNone, generator));
  return out;
}

FL_CUDA_KERNEL("poisson", poisson);
FL_CUDA_KERNEL("_standard_gamma", standard_gamma);
FL_CUDA_KERNEL("_sample_dirichlet", dirichlet);
FL_CUDA_KERNEL("binomial", binomial);

}  // namespace
}  // namespace fl::cuda

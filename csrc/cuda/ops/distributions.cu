// Draws from distributions whose parameters are tensors: the numbers that the CPU draws
// (math/distribution_math.h).
#include "cuda/engine/device.cuh"
#include "cuda/engine/rows.cuh"
#include "cuda/runtime/launch.h"
#include "dispatch/generator.h"
#include "dispatch/kernel.h"
#include "math/distribution_math.h"
#include "ops/iterator.h"

namespace fl::cuda {

namespace {

enum Drawn { kPoisson, kGamma, kLogGamma, kBinomial };

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
  double sample;
  if (a.kind == kPoisson)
    sample = distributions::poisson(s, x);
  else if (a.kind == kGamma)
    sample = distributions::gamma(s, x);
  else if (a.kind == kLogGamma)
    sample = distributions::log_gamma(s, x);
  else
    sample = distributions::binomial(s, x, a.second[i]);
  a.out[i] = sample < a.least ? a.least : sample;
}

// Rows that sum to one.
__global__ void __launch_bounds__(128) normalise_rows(double* data, int64_t rows, int64_t n) {
  const int64_t row = int64_t(blockIdx.x) * 128 + threadIdx.x;
  if (row < rows) distributions::normalize_logarithms(data + row * n, n);
}

struct ChanceArgs {
  const char* chances;
  char* out;
  int64_t n;
  uint64_t seed, offset;
  DType dtype, out_dtype;
  int size, out_size;
  int* outside;  // set where a chance is none
};

// True where an element's word falls below its probability; a thread makes the four elements of a block.
__global__ void __launch_bounds__(256) draw_chances(const __grid_constant__ ChanceArgs a) {
  const int64_t block = int64_t(blockIdx.x) * 256 + threadIdx.x;
  const int64_t first = block / philox::kLanes * philox::kGroup + block % philox::kLanes;
  if (first >= a.n) return;
  const philox::Block b = philox::block(a.seed, a.offset, block);
  bool inside = true;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int64_t i = first + j * philox::kLanes;
    if (i >= a.n) break;
    const double chance = load<double>(a.chances + i * a.size, a.dtype);
    inside &= chance >= 0 && chance <= 1;
    store<float>(a.out + i * a.out_size, a.out_dtype, b.w[j] < chance * 0x1p32);
  }
  if (!inside) *a.outside = 1;
}

void draw_bernoulli(const char* op, const Tensor& chances, const Tensor& out, Opaque* generator) {
  FL_CHECK_KIND(!is_stored_only(chances.dtype()) && !is_stored_only(out.dtype()), NotImplemented, "[", op,
                "] expected dtypes that CUDA kernels compute with, got ", name_of(chances.dtype()), " and ",
                name_of(out.dtype()));
  const Generator::State state = generator_of(generator, out.device()).take();
  const int64_t n = out.numel();
  if (n == 0) return;
  OnDevice on(out.device().index);
  const cudaStream_t stream = current_stream();
  const Tensor samples = out.is_contiguous() ? out : empty(out.sizes(), out.options());
  Tensor p = chances;
  if (p.sizes() != samples.sizes() || !p.is_contiguous()) {
    p = empty(samples.sizes(), chances.options());
    copy_into(p, chances);
  }
  Scratch outside(sizeof(int), out.device().index, stream);
  check(cudaMemsetAsync(outside.get(), 0, sizeof(int), stream), op);
  const ChanceArgs args{p.raw(),
                        samples.raw(),
                        n,
                        state.seed,
                        state.offset,
                        p.dtype(),
                        samples.dtype(),
                        static_cast<int>(p.itemsize()),
                        static_cast<int>(samples.itemsize()),
                        outside.as<int>()};
  const int64_t threads = (n + philox::kGroup - 1) / philox::kGroup * philox::kLanes;
  launch(draw_chances, static_cast<unsigned>((threads + 255) / 256), 256, stream, op, args);
  int invalid = 0;
  check(cudaMemcpyAsync(&invalid, outside.get(), sizeof(int), cudaMemcpyDeviceToHost, stream), op);
  check(cudaStreamSynchronize(stream), op);
  FL_CHECK(!invalid, "[", op, "] expected probabilities in [0, 1], got one outside");
  if (!samples.same(out)) copy_into(out, samples);
}

Tensor bernoulli(const Tensor& self, Opaque* generator) {
  const Tensor out = empty(self.sizes(), self.options());
  draw_bernoulli("bernoulli", self, out, generator);
  return out;
}
Tensor bernoulli_tensor_(const Tensor& self, const Tensor& p, Opaque* generator) {
  self.bump_version();
  draw_bernoulli("bernoulli_", p, self, generator);
  return self;
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
  const Tensor drawn = draw("_sample_dirichlet", kLogGamma, self, Tensor(), kNone, generator);
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

FL_CUDA_KERNEL("bernoulli", bernoulli);
FL_CUDA_KERNEL("bernoulli_.Tensor", bernoulli_tensor_);
FL_CUDA_KERNEL("poisson", poisson);
FL_CUDA_KERNEL("_standard_gamma", standard_gamma);
FL_CUDA_KERNEL("_sample_dirichlet", dirichlet);
FL_CUDA_KERNEL("binomial", binomial);

}  // namespace
}  // namespace fl::cuda

// Discrete Fourier transforms of tensors: checks and results. Trimming and padding are done before (in
// Python, on views).
#include "ops/fft.h"

#include <cstring>

#include "dispatch/kernel.h"

namespace fl {

DeviceFunction<void(const Tensor&, const Tensor&, IntSpan, bool, double)> device::fft{"fft"};

namespace {

void check_transform(const char* op, const Tensor& self, IntSpan dim, bool complex) {
  FL_CHECK(complex ? is_complex(self.dtype()) : self.dtype() == DType::Float || self.dtype() == DType::Double,
           "[", op, "] expected ", complex ? "a complex" : "a float32 or float64", " tensor, got ",
           name_of(self.dtype()));
  for (int64_t d : dim) {
    FL_CHECK_KIND(d >= 0 && d < self.dim(), Index, "[", op, "] expected a dimension below ", self.dim(),
                  ", got ", d);
    FL_CHECK(self.size(d) > 0, "[", op, "] expected dimensions to transform with at least one element, got ",
             self.sizes());
  }
}

Tensor fft_c2c(const Tensor& self, IntSpan dim, double scale, bool forward) {
  check_transform("fft", self, dim, true);
  const Tensor out = empty(self.sizes(), self.options());
  if (self.is_meta() || self.numel() == 0) return out;
  if (dim.empty()) {
    copy_into(out, self);
    return out;
  }
  device::fft(self.device().type, out, self, dim, forward, scale);
  return out;
}

// The last of `dim` is the one of which half is kept when `onesided`.
Tensor fft_r2c(const Tensor& self, IntSpan dim, double scale, bool forward, bool onesided) {
  check_transform("fft", self, dim, false);
  FL_CHECK(!dim.empty(), "[fft] expected at least one dimension to transform, got none");
  const int64_t last = dim[dim.size() - 1];
  Dims sizes(self.sizes());
  if (onesided) sizes[last] = sizes[last] / 2 + 1;
  const Tensor out = empty(sizes, {complex_of(self.dtype()), self.device()});
  if (self.is_meta() || self.numel() == 0) return out;
  // Only the CPU makes all outputs from real input.
  const Tensor source = onesided || self.is_cpu() ? self : to_dtype(self, out.dtype());
  device::fft(self.device().type, out, source, dim, forward, scale);
  return out;
}

// The last of `dim` holds half a Hermitian spectrum and gets `last_size` real elements.
Tensor fft_c2r(const Tensor& self, IntSpan dim, double scale, bool forward, int64_t last_size) {
  check_transform("fft", self, dim, true);
  FL_CHECK(!dim.empty() && last_size >= 1, "[fft] expected an output of at least one element, got ",
           last_size);
  const int64_t last = dim[dim.size() - 1];
  FL_CHECK(self.size(last) >= last_size / 2 + 1, "[fft] expected at least ", last_size / 2 + 1,
           " elements of the spectrum, got ", self.size(last));
  Dims sizes(self.sizes());
  sizes[last] = last_size;
  const Tensor out = empty(sizes, {real_of(self.dtype()), self.device()});
  if (self.is_meta() || out.numel() == 0) return out;
  device::fft(self.device().type, out, self, dim, forward, scale);
  return out;
}

// Frames (batch, count, width) laid over each other at distances of `hop`, summed where they overlap.
Tensor overlap_add(const Tensor& self, int64_t hop) {
  FL_CHECK(self.dim() == 3 && hop > 0, "[istft] expected (batch, frames, width) and a positive hop, got ",
           self.sizes(), " and ", hop);
  FL_CHECK(is_floating(self.dtype()) || is_complex(self.dtype()),
           "[istft] expected floating or complex frames, got ", name_of(self.dtype()));
  const int64_t batch = self.size(0), count = self.size(1), width = self.size(2);
  const int64_t length = count > 0 ? (count - 1) * hop + width : 0;
  const Tensor out = empty({batch, length}, self.options());
  if (self.is_meta() || out.numel() == 0) return out;
  const Tensor frames = contiguous(to_dtype(self, compute_of(self.dtype())));
  const Tensor sum = frames.dtype() == out.dtype() ? out : empty({batch, length}, frames.options());
  std::memset(sum.raw(), 0, sum.numel() * sum.itemsize());
  dispatch_compute(frames.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t f = 0; f < count; ++f) {
        const T* from = frames.data<T>() + (b * count + f) * width;
        T* to = sum.data<T>() + b * length + f * hop;
        for (int64_t i = 0; i < width; ++i) to[i] += from[i];
      }
  });
  if (!sum.same(out)) copy_into(out, sum);
  return out;
}

FL_KERNEL("_overlap_add", overlap_add, kCpu);
FL_KERNEL("_fft_c2c", fft_c2c, kCpu);
FL_KERNEL("_fft_r2c", fft_r2c, kCpu);
FL_KERNEL("_fft_c2r", fft_c2r, kCpu);

}  // namespace
}  // namespace fl

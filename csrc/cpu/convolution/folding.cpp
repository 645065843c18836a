// Sliding blocks of an image as columns, and columns summed back into an image.
#include "core/bytes.h"
#include "core/parallel.h"
#include "dispatch/kernel.h"
#include "ops/windows.h"

namespace fl {
namespace {

struct Blocks {
  int64_t kernel[2], dilation[2], padding[2], stride[2], image[2], count[2];
  int64_t columns() const { return count[0] * count[1]; }
  int64_t elements() const { return kernel[0] * kernel[1]; }
};

Blocks blocks_of(const char* op, IntSpan image, IntSpan kernel, IntSpan dilation, IntSpan padding,
                 IntSpan stride) {
  Blocks b;
  spread(op, "kernel_size", kernel, 2, 1, b.kernel);
  spread(op, "dilation", dilation, 2, 1, b.dilation);
  spread(op, "padding", padding, 2, 0, b.padding);
  spread(op, "stride", stride, 2, 1, b.stride);
  spread(op, "sizes of the image", image, 2, 1, b.image);
  for (int d = 0; d < 2; ++d) {
    const int64_t room = b.image[d] + 2 * b.padding[d] - b.dilation[d] * (b.kernel[d] - 1) - 1;
    b.count[d] = room < 0 ? 0 : room / b.stride[d] + 1;
    FL_CHECK(b.count[d] > 0, "[", op, "] expected at least one block to fit, got image ", image,
             ", kernel_size ", kernel, ", dilation ", dilation, ", padding ", padding,
             ": the array of sliding blocks has a shape whose components must be at least one");
  }
  return b;
}

// Calls f(image position or -1, column) for each block of one kernel element.
template <class F>
inline void each_block(const Blocks& b, int64_t element, const F& f) {
  const int64_t kh = element / b.kernel[1] * b.dilation[0] - b.padding[0],
                kw = element % b.kernel[1] * b.dilation[1] - b.padding[1];
  for (int64_t i = 0; i < b.count[0]; ++i) {
    const int64_t h = i * b.stride[0] + kh;
    const bool row = h >= 0 && h < b.image[0];
    for (int64_t j = 0; j < b.count[1]; ++j) {
      const int64_t w = j * b.stride[1] + kw;
      f(row && w >= 0 && w < b.image[1] ? h * b.image[1] + w : -1, i * b.count[1] + j);
    }
  }
}

Tensor im2col(const Tensor& self, IntSpan kernel, IntSpan dilation, IntSpan padding, IntSpan stride) {
  const char* op = "unfold";
  const int64_t dims = self.dim();
  FL_CHECK(dims == 3 || dims == 4, "[", op, "] expected an input of 3 or 4 dimensions, got shape ",
           self.sizes());
  for (int64_t d = dims == 4 ? 1 : 0; d < dims; ++d)
    FL_CHECK(
        self.size(d) > 0, "[", op, "] expected an input without empty dimensions but the batch, got shape ",
        self.sizes(),
        ": Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions");
  const Blocks b = blocks_of(op, {self.size(-2), self.size(-1)}, kernel, dilation, padding, stride);
  const int64_t channels = self.size(-3), batch = dims == 4 ? self.size(0) : 1;
  Dims sizes{batch, channels * b.elements(), b.columns()};
  if (dims == 3) sizes.erase(0);
  Tensor out = empty(sizes, self.options());
  if (self.is_meta() || out.numel() == 0) return out;
  const Tensor in = contiguous(self);
  const int64_t plane = b.image[0] * b.image[1];
  dispatch_bytes(self.itemsize(), [&](auto type) {
    using T = typename decltype(type)::type;
    parallel_for(batch * channels * b.elements(), std::max<int64_t>(1, kGrain / b.columns()),
                 [&](int64_t first, int64_t last) {
                   for (int64_t r = first; r < last; ++r) {
                     const T* x = reinterpret_cast<const T*>(in.raw()) + r / b.elements() * plane;
                     T* y = reinterpret_cast<T*>(out.raw()) + r * b.columns();
                     each_block(b, r % b.elements(),
                                [&](int64_t from, int64_t to) { y[to] = from >= 0 ? x[from] : T{}; });
                   }
                 });
  });
  return out;
}

Tensor col2im(const Tensor& self, IntSpan output_size, IntSpan kernel, IntSpan dilation, IntSpan padding,
              IntSpan stride) {
  const char* op = "fold";
  const int64_t dims = self.dim();
  FL_CHECK(dims == 2 || dims == 3, "[", op, "] expected an input of 2 or 3 dimensions, got shape ",
           self.sizes());
  for (int64_t d = dims == 3 ? 1 : 0; d < dims; ++d)
    FL_CHECK(self.size(d) > 0, "[", op,
             "] expected an input without empty dimensions but the batch, got shape ", self.sizes());
  const Blocks b = blocks_of(op, output_size, kernel, dilation, padding, stride);
  FL_CHECK(self.size(-2) % b.elements() == 0, "[", op, "] expected a second dimension divisible by the ",
           b.elements(), " elements of the kernel, got shape ", self.sizes(),
           ": size of input's dimension 1 is to be divisible by the product of kernel_size");
  FL_CHECK(self.size(-1) == b.columns(), "[", op, "] expected ", b.columns(),
           " blocks in the last dimension, got shape ", self.sizes());
  const int64_t channels = self.size(-2) / b.elements(), batch = dims == 3 ? self.size(0) : 1;
  Dims sizes{batch, channels, b.image[0], b.image[1]};
  if (dims == 2) sizes.erase(0);
  if (self.is_meta() || batch == 0) return empty(sizes, self.options());
  const DType compute = compute_of(self.dtype());
  const Tensor in = contiguous(to_dtype(self, compute));
  const Tensor out = empty(sizes, {compute, self.device()});
  const int64_t plane = b.image[0] * b.image[1];
  dispatch_compute(compute, [&](auto type) {
    using T = typename decltype(type)::type;
    parallel_for(batch * channels, std::max<int64_t>(1, kGrain / (b.columns() * b.elements())),
                 [&](int64_t first, int64_t last) {
                   for (int64_t p = first; p < last; ++p) {
                     T* y = out.data<T>() + p * plane;
                     std::fill_n(y, plane, T(0));
                     for (int64_t e = 0; e < b.elements(); ++e) {
                       const T* x = in.data<T>() + (p * b.elements() + e) * b.columns();
                       each_block(b, e, [&](int64_t to, int64_t from) {
                         if (to >= 0) y[to] += x[from];
                       });
                     }
                   }
                 });
  });
  return to_dtype(out, self.dtype());
}

FL_KERNEL("_im2col", im2col, kCpu);
FL_KERNEL("_col2im", col2im, kCpu);

}  // namespace
}  // namespace fl

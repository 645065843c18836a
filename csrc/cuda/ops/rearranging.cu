// Copies in another order: reversed dimensions, and triangles of matrices.
#include "cuda/engine/kernels.h"
#include "cuda/engine/rows.cuh"
#include "cuda/runtime/launch.h"
#include "dispatch/kernel.h"

namespace fl::cuda {

namespace {

// ---------------------------------------------------------------- reversed dimensions

constexpr int kEach = 4;  // elements of a thread

template <class T>
__global__ void __launch_bounds__(256)
    read_strided(const char* in, T* out, uint32_t n, const __grid_constant__ Geometry<1> shape) {
  const uint32_t first = blockIdx.x * (256 * kEach) + threadIdx.x;
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    const uint32_t i = first + j * 256;
    if (i >= n) return;
    int64_t at[1];
    shape.locate(i, at);
    out[i] = *reinterpret_cast<const T*>(in + at[0]);
  }
}

// Sizes and strides in bytes, innermost first, with dimensions merged that are walked as one.
struct Walk {
  std::vector<int64_t> size, stride;
  void add(int64_t n, int64_t step) {
    if (n == 1) return;
    if (!size.empty() && step == stride.back() * size.back())
      size.back() *= n;
    else
      size.push_back(n), stride.push_back(step);
  }
};

// Words of 16 bytes serve where the innermost elements stay neighbours.
int64_t word_of(const Walk& walk, const char* from, int64_t item) {
  if (walk.size.empty() || walk.stride[0] != item) return item;
  uintptr_t odd = reinterpret_cast<uintptr_t>(from) | static_cast<uintptr_t>(walk.size[0] * item);
  for (size_t d = 1; d < walk.size.size(); ++d) odd |= static_cast<uintptr_t>(walk.stride[d]);
  return odd % 16 ? item : 16;
}

Tensor flip(const Tensor& self, IntSpan dims) {
  const Tensor out = empty(self.sizes(), self.options());
  if (out.numel() == 0) return out;
  uint64_t chosen = 0;
  for (int64_t d : dims) chosen |= uint64_t(1) << wrap_dim("flip", d, self.dim());
  const int64_t item = self.itemsize();
  const char* from = self.raw();
  Walk walk;
  for (int64_t d = self.dim() - 1; d >= 0; --d) {
    const int64_t step = self.stride(d) * item;
    if (chosen >> d & 1) from += (self.size(d) - 1) * step;
    walk.add(self.size(d), chosen >> d & 1 ? -step : step);
  }
  const int64_t word = word_of(walk, from, item);
  if (word > item) {
    walk.size[0] = walk.size[0] * item / word;
    walk.stride[0] = word;
  }
  Geometry<1> shape;
  shape.ndim = static_cast<int>(walk.size.size());
  for (int d = 0; d < shape.ndim; ++d) {
    shape.size[d] = Divider(static_cast<uint32_t>(walk.size[d]));
    shape.stride[0][d] = walk.stride[d];
  }
  const uint32_t n = static_cast<uint32_t>(out.numel() * item / word);
  OnDevice on(self.device().index);
  by_size(word, [&](auto zero) {
    using T = decltype(zero);
    launch(read_strided<T>, (n + 256 * kEach - 1) / (256 * kEach), 256, current_stream(), "flip", from,
           reinterpret_cast<T*>(out.raw()), n, shape);
  });
  return out;
}
void flip_or_define(const Operator& op, void* context, KeySet keys, Value* args, Value* results) {
  const Tensor self = args[0].tensor();
  if (self.numel() >= int64_t(1) << 31 || self.dim() > kMaxDims)
    return by_definition(op, keys, args, results);
  checked<&flip>(op, context, keys, args, results);
}
const detail::Register flipping{"flip", {Key::CUDA}, Kernel{flip_or_define, nullptr}};

// ---------------------------------------------------------------- triangles

struct TriangleArgs {
  const char* in;
  char* out;
  int64_t lines, rows, cols;  // lines: rows of all matrices
  int64_t shift;              // the edge in row i is at column i + shift
  bool lower;
};

// A thread takes kTake elements of a row that lie side by side: a vector of 16 bytes or a single one.
template <class T, int kTake>
__global__ void __launch_bounds__(256) triangles(const __grid_constant__ TriangleArgs a) {
  struct alignas(sizeof(T) * kTake) Pack {
    T v[kTake];
  };
  for (int64_t line = int64_t(blockIdx.y) * blockDim.y + threadIdx.y; line < a.lines;
       line += int64_t(gridDim.y) * blockDim.y) {
    const int64_t edge = line % a.rows + a.shift;
    const T* from = reinterpret_cast<const T*>(a.in) + line * a.cols;
    T* to = reinterpret_cast<T*>(a.out) + line * a.cols;
    for (int64_t j = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * kTake; j < a.cols;
         j += int64_t(gridDim.x) * blockDim.x * kTake) {
      Pack p{};
      if (a.lower ? j < edge : j + kTake > edge) p = *reinterpret_cast<const Pack*>(from + j);
#pragma unroll
      for (int k = 0; k < kTake; ++k)
        if ((j + k < edge) != a.lower) p.v[k] = T{};
      *reinterpret_cast<Pack*>(to + j) = p;
    }
  }
}

Tensor triangle(const char* op, const Tensor& self, int64_t diagonal, bool lower) {
  const Tensor out = empty(self.sizes(), self.options());
  if (out.numel() == 0) return out;
  const Tensor from = contiguous(self);
  TriangleArgs a{};
  a.in = from.raw();
  a.out = out.raw();
  a.rows = self.size(-2);
  a.cols = self.size(-1);
  a.lines = self.numel() / a.cols;
  a.shift = std::min(std::max(diagonal, -a.rows), a.cols) + (lower ? 1 : 0);
  a.lower = lower;
  OnDevice on(self.device().index);
  by_size(self.itemsize(), [&](auto zero) {
    using T = decltype(zero);
    constexpr int most = 16 / sizeof(T);
    const bool whole = a.cols % most == 0 && is_aligned(a.in) && is_aligned(a.out);
    const int64_t columns = whole ? a.cols / most : a.cols;
    unsigned x = 1;
    while (x < 256 && x < columns) x *= 2;
    const unsigned y = 256 / x;
    const dim3 grid(static_cast<unsigned>(std::min<int64_t>((columns + x - 1) / x, 1 << 20)),
                    static_cast<unsigned>(std::min<int64_t>((a.lines + y - 1) / y, 65535)));
    launch(whole ? triangles<T, most> : triangles<T, 1>, grid, dim3(x, y), current_stream(), op, a);
  });
  return out;
}
Tensor tril(const Tensor& self, int64_t diagonal) {
  return triangle("tril", self, diagonal, true);
}
Tensor triu(const Tensor& self, int64_t diagonal) {
  return triangle("triu", self, diagonal, false);
}
FL_CUDA_KERNEL("tril", tril);
FL_CUDA_KERNEL("triu", triu);

}  // namespace
}  // namespace fl::cuda

// softmax and log_softmax along any dimension.
#include "cpu/normalization/softmax.h"

#include "core/parallel.h"
#include "cpu/engine/arch.h"
#include "cpu/engine/cast.h"
#include "dispatch/kernel.h"

namespace fl {

FL_DECLARE_ARCH(const SoftmaxTable, softmax_table);

template <>
const SoftmaxLoops<float>& softmax_loops<float>() {
  return picked_softmax_table().f;
}
template <>
const SoftmaxLoops<double>& softmax_loops<double>() {
  return picked_softmax_table().d;
}

namespace {

// A contiguous tensor seen as (outer, n, inner) around a dimension.
struct Geometry {
  int64_t outer = 1, n = 1, inner = 1;
};
Geometry around(IntSpan sizes, int64_t dim) {
  Geometry g;
  for (int64_t d = 0; d < static_cast<int64_t>(sizes.size()); ++d)
    (d < dim ? g.outer : d == dim ? g.n : g.inner) *= sizes[d];
  return g;
}

// The same of a dense tensor in any order: dimensions with a larger stride are outside, those with a smaller
// one inside.
Geometry in_memory(const Tensor& t, int64_t dim) {
  if (t.is_contiguous()) return around(t.sizes(), dim);
  Geometry g;
  if (t.size(dim) == 1) {
    g.outer = t.numel();
    return g;
  }
  for (int64_t i = 0; i < t.dim(); ++i) {
    if (i == dim)
      g.n = t.size(i);
    else if (t.size(i) != 1)
      (t.stride(i) > t.stride(dim) ? g.outer : g.inner) *= t.size(i);
  }
  return g;
}

constexpr int64_t kWork = 4096;  // elements of softmax that are worth a thread

template <class T>
void run(SoftmaxKind kind, const Tensor& in, const Tensor& out, const Geometry& g) {
  const SoftmaxLoops<T>& loops = softmax_loops<T>();
  const DType compute = dtype_for<T>::value, stored = in.dtype();
  const bool direct = stored == compute;
  const CastFn load = cast_fn(stored, compute), store = cast_fn(compute, stored);
  const int64_t item = in.itemsize(), n = g.n;
  if (g.inner == 1) {
    parallel_for(g.outer, std::max<int64_t>(1, kWork / n), [&](int64_t begin, int64_t end) {
      if (direct)
        return loops.rows(kind, in.data<T>() + begin * n, out.data<T>() + begin * n, end - begin, n);
      const int64_t batch = std::max<int64_t>(1, 2048 / n);  // rows staged at a time
      std::vector<T> staged(batch * n);
      for (int64_t r = begin; r < end; r += batch) {
        const int64_t rows = std::min(batch, end - r);
        load(in.raw() + r * n * item, item, reinterpret_cast<char*>(staged.data()), sizeof(T), rows * n);
        loops.rows(kind, staged.data(), staged.data(), rows, n);
        store(reinterpret_cast<char*>(staged.data()), sizeof(T), out.raw() + r * n * item, item, rows * n);
      }
    });
    return;
  }
  // Columns: blocks narrow enough that n rows of them stay in cache, and enough of them for every thread.
  int64_t width = std::min<int64_t>(kSoftmaxWidth, g.inner);
  while (width > 16 && width * n * static_cast<int64_t>(sizeof(T)) > 512 * 1024) width /= 2;
  const int64_t blocks = (g.inner + width - 1) / width;
  parallel_for(g.outer * blocks, std::max<int64_t>(1, kWork / (n * width)), [&](int64_t begin, int64_t end) {
    std::vector<T> staged(direct ? 0 : n * width);
    for (int64_t b = begin; b < end; ++b) {
      const int64_t column = b % blocks * width, w = std::min(width, g.inner - column);
      const int64_t at = b / blocks * n * g.inner + column;
      if (direct) {
        loops.columns(kind, in.data<T>() + at, g.inner, out.data<T>() + at, g.inner, n, w);
        continue;
      }
      for (int64_t i = 0; i < n; ++i)
        load(in.raw() + (at + i * g.inner) * item, item, reinterpret_cast<char*>(staged.data() + i * w),
             sizeof(T), w);
      loops.columns(kind, staged.data(), w, staged.data(), w, n, w);
      for (int64_t i = 0; i < n; ++i)
        store(reinterpret_cast<char*>(staged.data() + i * w), sizeof(T),
              out.raw() + (at + i * g.inner) * item, item, w);
    }
  });
}

Tensor softmax_kernel(const char* op, SoftmaxKind kind, const Tensor& self, int64_t dim, bool half_to_float) {
  FL_CHECK_KIND(is_floating(self.dtype()), NotImplemented, "[", op,
                "] expected a floating point tensor, got ", name_of(self.dtype()));
  FL_CHECK(!half_to_float, "[", op, "] expected half_to_float=False on this device, got True");
  const int64_t d = wrap_dim(op, dim, self.dim());
  const Tensor out = empty(self.sizes(), self.options());
  if (self.is_meta() || self.numel() == 0) return out;
  const Tensor source = contiguous(self);
  const Geometry g = in_memory(source, d);
  dispatch_float(self.dtype(), [&](auto type) { run<typename decltype(type)::type>(kind, source, out, g); });
  return out;
}

// ---------------------------------------------------------------- gradients

// Loads blocks of g and y into staging buffers of the compute type where they are stored in another.
template <class T>
void run_gradient(SoftmaxKind kind, const Tensor& grad, const Tensor& result, const Tensor& out,
                  const Geometry& g) {
  const SoftmaxLoops<T>& loops = softmax_loops<T>();
  const DType compute = dtype_for<T>::value, stored = result.dtype();
  const bool direct = stored == compute;
  const CastFn load = cast_fn(stored, compute), store = cast_fn(compute, stored);
  const int64_t item = result.itemsize(), n = g.n;
  const auto raw = [](std::vector<T>& v) { return reinterpret_cast<char*>(v.data()); };
  if (g.inner == 1) {
    parallel_for(g.outer, std::max<int64_t>(1, kWork / n), [&](int64_t begin, int64_t end) {
      if (direct)
        return loops.gradient_rows(kind, grad.data<T>() + begin * n, result.data<T>() + begin * n,
                                   out.data<T>() + begin * n, end - begin, n);
      const int64_t batch = std::max<int64_t>(1, 2048 / n);
      std::vector<T> staged(batch * n), values(batch * n);
      for (int64_t r = begin; r < end; r += batch) {
        const int64_t rows = std::min(batch, end - r), at = r * n * item;
        load(grad.raw() + at, item, raw(staged), sizeof(T), rows * n);
        load(result.raw() + at, item, raw(values), sizeof(T), rows * n);
        loops.gradient_rows(kind, staged.data(), values.data(), staged.data(), rows, n);
        store(raw(staged), sizeof(T), out.raw() + at, item, rows * n);
      }
    });
    return;
  }
  int64_t width = std::min<int64_t>(kSoftmaxWidth, g.inner);
  while (width > 16 && width * n * static_cast<int64_t>(sizeof(T)) > 256 * 1024) width /= 2;
  const int64_t blocks = (g.inner + width - 1) / width;
  parallel_for(g.outer * blocks, std::max<int64_t>(1, kWork / (n * width)), [&](int64_t begin, int64_t end) {
    std::vector<T> staged(direct ? 0 : n * width), values(direct ? 0 : n * width);
    for (int64_t b = begin; b < end; ++b) {
      const int64_t column = b % blocks * width, w = std::min(width, g.inner - column);
      const int64_t at = b / blocks * n * g.inner + column;
      if (direct) {
        loops.gradient_columns(kind, grad.data<T>() + at, result.data<T>() + at, out.data<T>() + at, g.inner,
                               n, w);
        continue;
      }
      for (int64_t i = 0; i < n; ++i) {
        const int64_t from = (at + i * g.inner) * item;
        load(grad.raw() + from, item, raw(staged) + i * w * sizeof(T), sizeof(T), w);
        load(result.raw() + from, item, raw(values) + i * w * sizeof(T), sizeof(T), w);
      }
      loops.gradient_columns(kind, staged.data(), values.data(), staged.data(), w, n, w);
      for (int64_t i = 0; i < n; ++i)
        store(raw(staged) + i * w * sizeof(T), sizeof(T), out.raw() + (at + i * g.inner) * item, item, w);
    }
  });
}

Tensor gradient_kernel(const char* op, SoftmaxKind kind, const Tensor& grad, const Tensor& result,
                       int64_t dim, DType input_dtype) {
  FL_CHECK_KIND(is_floating(result.dtype()), NotImplemented, "[", op,
                "] expected a floating point tensor, got ", name_of(result.dtype()));
  FL_CHECK(grad.sizes() == result.sizes() && grad.dtype() == result.dtype() && input_dtype == grad.dtype(),
           "[", op, "] expected a gradient of shape ", result.sizes(), " and dtype ", name_of(result.dtype()),
           ", got ", grad.sizes(), " and ", name_of(grad.dtype()));
  const int64_t d = wrap_dim(op, dim, result.dim());
  const Tensor y = result.is_contiguous() || !is_dense(result) ? contiguous(result) : result;
  Tensor out = empty_like(y, y.dtype());
  if (y.is_meta() || y.numel() == 0) return out;
  Tensor g = grad;
  if (g.strides() != y.strides()) {
    g = empty_like(y, y.dtype());
    copy_into(g, grad);
  }
  dispatch_float(y.dtype(), [&](auto type) {
    run_gradient<typename decltype(type)::type>(kind, g, y, out, in_memory(y, d));
  });
  return out;
}

Tensor softmax_gradient(const Tensor& grad, const Tensor& result, int64_t dim, DType input_dtype) {
  return gradient_kernel("_softmax_backward_data", SoftmaxKind::Softmax, grad, result, dim, input_dtype);
}
Tensor log_softmax_gradient(const Tensor& grad, const Tensor& result, int64_t dim, DType input_dtype) {
  return gradient_kernel("_log_softmax_backward_data", SoftmaxKind::LogSoftmax, grad, result, dim,
                         input_dtype);
}

Tensor softmax(const Tensor& self, int64_t dim, bool half_to_float) {
  return softmax_kernel("softmax", SoftmaxKind::Softmax, self, dim, half_to_float);
}
Tensor log_softmax(const Tensor& self, int64_t dim, bool half_to_float) {
  return softmax_kernel("log_softmax", SoftmaxKind::LogSoftmax, self, dim, half_to_float);
}

Tensor convert(const Tensor& self, std::optional<DType> dtype) {
  if (!dtype || *dtype == self.dtype()) return self;
  static const Operator& to = OperatorTable::get().at("to.dtype");
  Value args[5] = {Value(self), Value(*dtype), Value(false), Value(false), Value()};
  Value result[1];
  to.call(args, result);
  return result[0].take_tensor();
}

Tensor softmax_int(const Tensor& self, int64_t dim, std::optional<DType> dtype) {
  static const Operator& op = OperatorTable::get().at("_softmax");
  return call_tensor(op, convert(self, dtype), dim, false);
}
Tensor log_softmax_int(const Tensor& self, int64_t dim, std::optional<DType> dtype) {
  static const Operator& op = OperatorTable::get().at("_log_softmax");
  return call_tensor(op, convert(self, dtype), dim, false);
}

FL_KERNEL("_softmax_backward_data", softmax_gradient, kCpu);
FL_KERNEL("_log_softmax_backward_data", log_softmax_gradient, kCpu);
FL_KERNEL("_softmax", softmax, kCpu);
FL_KERNEL("_log_softmax", log_softmax, kCpu);
FL_KERNEL("softmax.int", softmax_int, kComposite);
FL_KERNEL("log_softmax.int", log_softmax_int, kComposite);
FL_KERNEL("special_softmax", softmax_int, kComposite);
FL_KERNEL("special_log_softmax", log_softmax_int, kComposite);

}  // namespace
}  // namespace fl

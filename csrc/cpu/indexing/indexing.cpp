// Indexing operators: index, index_put, masks, and the one-dimensional index_* family.
#include <cstring>

#include "core/bytes.h"
#include "core/determinism.h"
#include "core/scalar_range.h"
#include "cpu/indexing/index_plan.h"
#include "dispatch/kernel.h"
#include "ops/iterator.h"
#include "ops/outputs.h"

namespace fl {
namespace {

Tensor expanded(const char* op, const Tensor& t, IntSpan shape) {
  if (t.sizes() == shape) return t;
  const int64_t n = static_cast<int64_t>(shape.size()), lead = n - t.dim();
  FL_CHECK(lead >= 0, "[", op, "] expected a tensor that broadcasts to ", shape,
           ", got a shape mismatch: ", t.sizes());
  Dims strides(n);
  for (int64_t d = lead; d < n; ++d) {
    FL_CHECK(t.size(d - lead) == shape[d] || t.size(d - lead) == 1, "[", op,
             "] expected a tensor that broadcasts to ", shape, ", got a shape mismatch: ", t.sizes());
    strides[d] = t.size(d - lead) == 1 ? 0 : t.stride(d - lead);
  }
  return alias(t, shape, strides, t.offset());
}

// ---------------------------------------------------------------- index, index_put

Tensor index(const Tensor& self, const std::vector<Tensor>& indices) {
  FL_CHECK_KIND(static_cast<int64_t>(indices.size()) <= self.dim(), Index, "[index] expected at most ",
                self.dim(), " indices for shape ", self.sizes(), ", got ",
                static_cast<int64_t>(indices.size()));
  return gather_plan(self, IndexPlan("index", self, indices));
}

// self[mask] = value without looking for the places first: mask covers leading dimensions of a contiguous
// self.
bool fill_masked(const Tensor& self, const std::vector<Tensor>& indices, const Tensor& value) {
  if (indices.size() != 1 || !indices[0].defined() || indices[0].dtype() != DType::Bool || self.is_meta() ||
      !self.is_contiguous())
    return false;
  const Tensor& mask = indices[0];
  if (mask.dim() > self.dim() || mask.is_meta() || IntSpan(self->sizes.data(), mask.dim()) != mask.sizes())
    return false;
  const Tensor flags = contiguous(mask);
  const bool* where = flags.data<bool>();
  const int64_t width = flags.numel() ? self.numel() / flags.numel() : 0;
  dispatch_bytes(self.itemsize(), [&](auto type) {
    using T = typename decltype(type)::type;
    T x;
    std::memcpy(&x, value.raw(), sizeof x);
    T* data = self.data<T>();
    parallel_for(flags.numel(), std::max<int64_t>(1, kGrain / std::max<int64_t>(width, 1)),
                 [&](int64_t b, int64_t e) {
                   if (width == 1) {
                     for (int64_t i = b; i < e; ++i) data[i] = where[i] ? x : data[i];
                   } else {
                     for (int64_t i = b; i < e; ++i)
                       if (where[i]) std::fill(data + i * width, data + (i + 1) * width, x);
                   }
                 });
  });
  return true;
}

Tensor index_put_(const Tensor& self, const std::vector<Tensor>& indices, const Tensor& values,
                  bool accumulate) {
  FL_CHECK_KIND(static_cast<int64_t>(indices.size()) <= self.dim(), Index, "[index_put_] expected at most ",
                self.dim(), " indices for shape ", self.sizes(), ", got ",
                static_cast<int64_t>(indices.size()));
  FL_CHECK(self.is_meta() || !values.is_meta(),
           "[index_put_] expected values with data, got a tensor on the meta device");
  Tensor source = values;
  // One value under one mask is a fill, and a fill converts.
  int64_t masks = 0;
  bool fill = !accumulate && source.numel() == 1;
  for (const Tensor& t : indices)
    if (t.defined()) {
      fill &= t.dtype() == DType::Bool && self.dim() > 0;
      ++masks;
    }
  fill &= masks == 1;
  if (fill) source = to_dtype(source, self.dtype());
  if (fill && source.dim() <= 1 && fill_masked(self, indices, source)) {
    self.bump_version();
    return self;
  }
  if (self.is_meta()) {
    // What a mask selects is not known here; self keeps its shape whatever it is.
    bool masked = false;
    for (const Tensor& t : indices)
      masked |= t.defined() && (t.dtype() == DType::Bool || t.dtype() == DType::UInt8);
    if (masked) {
      self.bump_version();  // views follow the write, as they do where there is data
      return self;
    }
  }
  advise_distinct("index_put", self);
  check_apart("index_put_", self, values);
  for (const Tensor& t : indices)
    if (t.defined()) check_apart("index_put_", self, t);
  const IndexPlan plan("index_put_", self, indices);
  while (source.dim() > static_cast<int64_t>(plan.shape.size()) && source.size(0) == 1) {
    Dims sizes(source.sizes()), strides(source.strides());
    sizes.erase(0);
    strides.erase(0);
    source = alias(source, sizes, strides, source.offset());
  }
  source = source.numel() == 1 && source.dim() <= static_cast<int64_t>(plan.shape.size())
               ? source
               : expanded("index_put_", source, plan.shape);
  FL_CHECK(source.dtype() == self.dtype(), "[index_put_] expected values of dtype ", name_of(self.dtype()),
           ", got ", name_of(source.dtype()), ": Index put requires the source and destination dtypes match");
  self.bump_version();
  scatter_plan("index_put_", self, plan, source, accumulate ? Combine::Add : Combine::Assign);
  return self;
}

Tensor index_put(const Tensor& self, const std::vector<Tensor>& indices, const Tensor& values,
                 bool accumulate) {
  return index_put_(copied(self), indices, values, accumulate);
}

// ---------------------------------------------------------------- masks

Tensor nonzero(const Tensor& self) {
  const int64_t n = self.dim();
  std::vector<Dims> units(n, Dims(n));
  for (int64_t d = 0; d < n; ++d) units[d][d] = 1;
  if (n == 0) {
    FL_CHECK_KIND(
        !self.is_meta(), NotImplemented,
        "[nonzero] expected a tensor with data, got one on the meta device: the shape depends on the data");
    const Tensor one = nonzero_weighted(at_least_1d(self), {Dims{1}});
    return empty({one.size(1), 0}, {DType::Int64, self.device()});
  }
  const Tensor positions = nonzero_weighted(self, units);
  return alias(positions, IntSpan({positions.size(1), n}),
               IntSpan({1, std::max<int64_t>(positions.size(1), 1)}), 0);
}

std::vector<Tensor> nonzero_numpy(const Tensor& self) {
  const Tensor t = at_least_1d(self);
  const int64_t n = t.dim();
  std::vector<Dims> units(n, Dims(n));
  for (int64_t d = 0; d < n; ++d) units[d][d] = 1;
  const Tensor positions = nonzero_weighted(t, units);
  std::vector<Tensor> columns;
  for (int64_t d = 0; d < n; ++d)
    columns.push_back(alias(positions, IntSpan({positions.size(1)}), IntSpan({1}), d * positions.size(1)));
  return columns;
}

Tensor nonzero_static(const Tensor& self, int64_t size, int64_t fill_value) {
  FL_CHECK(size >= 0, "[nonzero_static] expected a size that is not negative, got ", size);
  Tensor out = empty({size, self.dim()}, {DType::Int64, self.device()});
  if (self.is_meta()) return out;
  copy_into(out, scalar_tensor(Scalar(fill_value), out.options()));
  const Tensor positions = nonzero(self);
  const int64_t n = std::min(size, positions.size(0));
  copy_into(alias(out, IntSpan({n, self.dim()}), out.strides(), 0),
            alias(positions, IntSpan({n, self.dim()}), positions.strides(), 0));
  return out;
}

Tensor masked_select(const Tensor& self, const Tensor& mask) {
  FL_CHECK(mask.dtype() == DType::Bool, "[masked_select] expected a bool mask, got ", name_of(mask.dtype()),
           ": masked_select: expected BoolTensor for mask");
  const Dims shape = broadcast_shapes("masked_select", self.sizes(), mask.sizes());
  const Tensor source = at_least_1d(expanded("masked_select", self, shape));
  const Tensor where = at_least_1d(expanded("masked_select", mask, shape));
  return gather_plan(source, IndexPlan("masked_select", source, {where}));
}

Tensor masked_scatter_(const Tensor& self, const Tensor& mask, const Tensor& source) {
  FL_CHECK(self.dtype() == source.dtype(), "[masked_scatter] expected a source of dtype ",
           name_of(self.dtype()), ", got ", name_of(source.dtype()));
  FL_CHECK(mask.dtype() == DType::Bool, "[masked_scatter] expected a bool mask, got ", name_of(mask.dtype()),
           ": masked_scatter_ only supports boolean masks");
  const Tensor where = at_least_1d(expanded("masked_scatter", mask, self.sizes()));
  check_distinct("masked_scatter", self);
  self.bump_version();
  if (self.is_meta()) return self;
  FL_CHECK(!source.is_meta(),
           "[masked_scatter] expected a source with data, got a tensor on the meta device");
  const Tensor to = at_least_1d(self);
  Dims weights(to.strides());
  for (auto& w : weights) w *= to.itemsize();
  const Tensor offsets = nonzero_weighted(where, {weights});
  const int64_t n = offsets.numel();
  FL_CHECK(source.numel() >= n,
           "[masked_scatter] expected a source of at least as many elements as the mask selects (", n,
           "), got ", source.numel());
  Tensor from = contiguous(source);
  if (from->storage.get() == self->storage.get()) from = copied(from);
  scatter_fn("masked_scatter", Combine::Assign, self.dtype())(to.raw(), offsets.data<int64_t>(), from.raw(),
                                                              from.itemsize(), n);
  return self;
}

Tensor masked_scatter(const Tensor& self, const Tensor& mask, const Tensor& source) {
  const Dims shape = broadcast_shapes("masked_scatter", self.sizes(), mask.sizes());
  Tensor out = empty(shape, self.options());
  copy_into(out, self);
  return masked_scatter_(out, mask, source);
}

// ---------------------------------------------------------------- one index along one dimension

void check_vector(const char* op, const Tensor& index, bool int32_too,
                  ErrorKind dtype_kind = ErrorKind::Runtime) {
  FL_CHECK_KIND(index.dim() <= 1, Index, "[", op, "] expected a vector of indices, got shape ",
                index.sizes());
  if (!(index.dtype() == DType::Int64 || (int32_too && index.dtype() == DType::Int32)))
    fail(dtype_kind, "[", op, "] expected indices of dtype int64", int32_too ? " or int32" : "", ", got ",
         name_of(index.dtype()));
}

Tensor index_select(const Tensor& self, int64_t dim, const Tensor& index) {
  const int64_t d = wrap_dim("index_select", dim, self.dim());
  check_vector("index_select", index, true);
  FL_CHECK(self.device() == index.device(), "[index_select] expected indices on ", to_string(self.device()),
           ", got ", to_string(index.device()));
  FL_CHECK(self.dim() > 0 || index.numel() == 1, "[index_select] expected one index into a 0-d tensor, got ",
           index.numel());
  const Tensor source = at_least_1d(self);
  Tensor out = gather_plan(source, IndexPlan("index_select", source, d, index, false));
  return self.dim() ? out : alias(out, IntSpan(), IntSpan(), 0);
}

// Source and self as the index_* family wants them, and the checks they share.
struct Indexed {
  Tensor self, source;
  int64_t dim;
};

Indexed check_indexed(const char* op, const Tensor& self, int64_t dim, const Tensor& index,
                      const Tensor& source, ErrorKind mismatch) {
  const int64_t d = wrap_dim(op, dim, self.dim());
  check_vector(op, index, true);
  FL_CHECK(self.dtype() == source.dtype(), "[", op, "] expected a source of dtype ", name_of(self.dtype()),
           ", got ", name_of(source.dtype()));
  FL_CHECK(self.device() == source.device() && self.device() == index.device(), "[", op,
           "] expected all tensors on one device, got ", to_string(self.device()), ", ",
           to_string(index.device()), " and ", to_string(source.device()));
  const int64_t have = source.dim() ? (d < source.dim() ? source.size(d) : -1) : 1;
  if (have != index.numel())
    fail(mismatch, "[", op, "] expected a source with one slice for each of the ", index.numel(),
         " indices, got shape ", source.sizes());
  const Tensor to = at_least_1d(self), from = at_least_1d(source);
  FL_CHECK(source.dim() == 0 ? self.dim() <= 1 : to.dim() == from.dim(), "[", op,
           "] expected self and source of the same number of dimensions, got ", self.sizes(), " and ",
           source.sizes(),
           ": source tensor shape must match self tensor shape, excluding the specified dimension.");
  for (int64_t k = 0; k < to.dim(); ++k)
    if (k != d && to.size(k) != from.size(k))
      fail(mismatch, "[", op, "] expected slices of the same shape, got ", self.sizes(), " and ",
           source.sizes(), " at dimension ", d);
  check_distinct(op, self);
  check_apart(op, self, index);
  check_apart(op, self, source);
  self.bump_version();
  return {to, from, d};
}

Tensor scaled(const Tensor& t, const Scalar& alpha) {
  Tensor out = empty(t.sizes(), t.options());
  if (t.is_meta()) return out;
  const Tensor source = contiguous(t);
  dispatch(t.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    using C = compute_t<T>;
    const C a = alpha.to<C>();
    const T* from = source.data<T>();
    T* to = out.data<T>();
    parallel_for(out.numel(), kGrain, [&](int64_t b, int64_t e) {
      for (int64_t i = b; i < e; ++i) to[i] = convert<T>(static_cast<C>(static_cast<C>(from[i]) * a));
    });
  });
  return out;
}

Tensor index_add_(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                  const Scalar& alpha) {
  const Indexed i = check_indexed("index_add", self, dim, index, source, ErrorKind::Runtime);
  FL_CHECK(!alpha.is_complex() || is_complex(self.dtype()), "[index_add] expected a real alpha for ",
           name_of(self.dtype()), ", got a complex one");
  const bool one = (alpha.is_integral() && alpha.i == 1) || (alpha.is_floating() && alpha.re == 1);
  scatter_plan("index_add", i.self, IndexPlan("index_add", i.self, i.dim, index, false, false),
               one ? i.source : scaled(i.source, alpha), Combine::Add);
  return self;
}
Tensor index_add(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                 const Scalar& alpha) {
  return index_add_(copied_contiguous(self), dim, index, source, alpha);
}

Tensor index_copy_(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source) {
  FL_CHECK_KIND(source.dim() == 0 || self.dim() == 0 || source.dim() == self.dim(), Index,
                "[index_copy] expected a source of ", self.dim(), " dimensions, got shape ", source.sizes());
  check_vector("index_copy", index, false);
  const Indexed i = check_indexed("index_copy", self, dim, index, source, ErrorKind::Index);
  scatter_plan("index_copy", i.self, IndexPlan("index_copy", i.self, i.dim, index, false), i.source,
               Combine::Assign);
  return self;
}
Tensor index_copy(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source) {
  return index_copy_(copied_contiguous(self), dim, index, source);
}

Tensor index_fill_(const Tensor& self, int64_t dim, const Tensor& index, const Operand& value) {
  const int64_t d = wrap_dim("index_fill", dim, self.dim());
  const Tensor v = value.tensor();
  FL_CHECK(v.dim() == 0, "[index_fill] expected a number or a 0-d tensor, got shape ", v.sizes());
  FL_CHECK(!is_complex(v.dtype()) || is_complex(self.dtype()), "[index_fill] expected a real value for ",
           name_of(self.dtype()),
           ", got a complex one: index_fill_(): Converting complex Scalar to non-complex type is "
           "not supported");
  if (!value.is_tensor()) check_fits("index_fill", value.value->to_scalar(), self.dtype());
  check_vector("index_fill", index, false, ErrorKind::Index);
  advise_distinct("index_fill", self);
  check_apart("index_fill_", self, index);
  self.bump_version();
  if (self.is_meta()) return self;
  const Tensor to = at_least_1d(self);
  scatter_plan("index_fill", to, IndexPlan("index_fill", to, d, index, true), to_dtype(v, self.dtype()),
               Combine::Assign);
  return self;
}
Tensor index_fill(const Tensor& self, int64_t dim, const Tensor& index, const Operand& value) {
  return index_fill_(copied(self), dim, index, value);
}

Tensor index_reduce_(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                     std::string_view reduce, bool include_self) {
  FL_CHECK(reduce == "prod" || reduce == "mean" || reduce == "amax" || reduce == "amin",
           "[index_reduce] expected reduce to be one of 'prod', 'mean', 'amax' or 'amin', got '", reduce,
           "'");
  const Indexed i = check_indexed("index_reduce", self, dim, index, source, ErrorKind::Runtime);
  const Combine how = reduce == "prod"   ? Combine::Mul
                      : reduce == "mean" ? Combine::Add
                      : reduce == "amax" ? Combine::Max
                                         : Combine::Min;
  const IndexPlan plan("index_reduce", i.self, i.dim, index, false);
  if (!include_self)
    scatter_plan("index_reduce", i.self, plan, scalar_tensor(identity_of(how, self.dtype()), self.options()),
                 Combine::Assign);
  scatter_plan("index_reduce", i.self, plan, i.source, how);
  if (reduce == "mean" && !self.is_meta()) {
    Tensor counts = empty(i.self.sizes(), {DType::Int64, self.device()});
    copy_into(counts, scalar_tensor(Scalar(int64_t(include_self)), counts.options()));
    scatter_plan("index_reduce", counts, IndexPlan("index_reduce", counts, i.dim, index, false),
                 scalar_tensor(Scalar(1), counts.options()), Combine::Add);
    divide_by_counts(i.self, counts);
  }
  return self;
}
Tensor index_reduce(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                    std::string_view reduce, bool include_self) {
  return index_reduce_(copied_contiguous(self), dim, index, source, reduce, include_self);
}

// ---------------------------------------------------------------- the tensor as one long row

Tensor flat(const Tensor& t) {
  const Tensor dense = contiguous(t);
  return alias(dense, IntSpan({t.numel()}), IntSpan({1}), dense.offset());
}

Tensor take(const Tensor& self, const Tensor& index) {
  FL_CHECK(index.dtype() == DType::Int64, "[take] expected indices of dtype int64, got ",
           name_of(index.dtype()));
  FL_CHECK_KIND(self.numel() > 0 || index.numel() == 0, Index,
                "[take] expected a tensor with elements, got shape ", self.sizes());
  Tensor out = empty(index.sizes(), self.options());
  if (self.is_meta() || index.numel() == 0) return out;
  const Tensor source = flat(self);
  const Tensor elements = gather_plan(source, IndexPlan("take", source, 0, flat(index), true));
  return alias(elements, index.sizes(), contiguous_strides(index.sizes()), 0);
}

Tensor put_(const Tensor& self, const Tensor& index, const Tensor& source, bool accumulate) {
  FL_CHECK(index.dtype() == DType::Int64, "[put_] expected indices of dtype int64, got ",
           name_of(index.dtype()));
  FL_CHECK(self.dtype() == source.dtype(), "[put_] expected a source of dtype ", name_of(self.dtype()),
           ", got ", name_of(source.dtype()));
  FL_CHECK_KIND(index.numel() == source.numel(), Index, "[put_] expected as many values as indices, got ",
                source.numel(), " and ", index.numel());
  FL_CHECK_KIND(self.numel() > 0 || index.numel() == 0, Index,
                "[put_] expected a tensor with elements, got shape ", self.sizes());
  if (!accumulate) alert_not_deterministic("put_");
  check_distinct("put_", self);
  check_apart("put_", self, index);
  check_apart("put_", self, source);
  self.bump_version();
  if (self.is_meta() || index.numel() == 0) return self;
  const Tensor to = flat(self);
  scatter_plan("put_", to, IndexPlan("put_", to, 0, flat(index), true), flat(source),
               accumulate ? Combine::Add : Combine::Assign);
  if (!self.is_contiguous()) copy_into(self, alias(to, self.sizes(), contiguous_strides(self.sizes()), 0));
  return self;
}
Tensor put(const Tensor& self, const Tensor& index, const Tensor& source, bool accumulate) {
  return put_(copied(self), index, source, accumulate);
}

// ---------------------------------------------------------------- out= forms that may not share memory with
// what they read

Tensor index_select_out(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& out) {
  check_distinct("index_select", out);
  check_apart("index_select", out, self);
  check_apart("index_select", out, index);
  return write_out("index_select", out, index_select(self, dim, index));
}
Tensor masked_select_out(const Tensor& self, const Tensor& mask, const Tensor& out) {
  check_distinct("masked_select", out);
  check_apart("masked_select", out, self);
  check_apart("masked_select", out, mask);
  return write_out("masked_select", out, masked_select(self, mask));
}
Tensor take_out(const Tensor& self, const Tensor& index, const Tensor& out) {
  check_distinct("take", out);
  check_apart("take", out, self);
  check_apart("take", out, index);
  return write_out("take", out, take(self, index));
}

FL_KERNEL("index_select.out", index_select_out, kCpu);
FL_KERNEL("masked_select.out", masked_select_out, kCpu);
FL_KERNEL("take.out", take_out, kCpu);
FL_KERNEL("index.Tensor", index, kCpu);
FL_KERNEL("index_put_", index_put_, kCpu);
FL_KERNEL("index_put", index_put, kCpu);
FL_KERNEL("nonzero", nonzero, kCpu);
FL_KERNEL("_nonzero_numpy", nonzero_numpy, kCpu);
FL_KERNEL("nonzero_static", nonzero_static, kCpu);
FL_KERNEL("masked_select", masked_select, kCpu);
FL_KERNEL("masked_scatter", masked_scatter, kCpu);
FL_KERNEL("masked_scatter_", masked_scatter_, kCpu);
FL_KERNEL("index_select", index_select, kCpu);
FL_KERNEL("index_add", index_add, kCpu);
FL_KERNEL("index_add_", index_add_, kCpu);
FL_KERNEL("index_copy", index_copy, kCpu);
FL_KERNEL("index_copy_", index_copy_, kCpu);
FL_KERNEL("index_fill", index_fill, kCpu);
FL_KERNEL("index_fill_", index_fill_, kCpu);
FL_KERNEL("index_reduce", index_reduce, kCpu);
FL_KERNEL("index_reduce_", index_reduce_, kCpu);
FL_KERNEL("take", take, kCpu);
FL_KERNEL("put", put, kCpu);
FL_KERNEL("put_", put_, kCpu);

}  // namespace
}  // namespace fl

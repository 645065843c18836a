// gather and the scatter family: an index tensor names, for each of its elements, a place along one
// dimension.
#include <cstring>

#include "core/parallel.h"
#include "core/scalar_range.h"
#include "cpu/indexing/indexed.h"
#include "dispatch/kernel.h"
#include "ops/outputs.h"

namespace fl {

namespace {

void check_index(const char* op, const Tensor& index) {
  FL_CHECK(index.dtype() == DType::Int64 || index.dtype() == DType::Int32, "[", op,
           "] expected indices of dtype int64 or int32, got ", name_of(index.dtype()));
}

// Rows of the index along its last dimension. Row r and element j name the place
//   row start + index * place + j * step   of the tensor that is indexed along `dim`.
struct Rows {
  const Tensor& index;
  int64_t dim, inner;
  Dims sizes;  // of the rows, outermost first, with the size of `dim` moved last when it is not the last
  Dims base, own, other;  // strides for these sizes, in bytes: the indexed tensor's (0 along dim), the
                          // index's, the partner's
  int64_t place, step, size, index_step, other_step;
  int64_t along = 1;  // rows that share their places: the size of `dim`, when it is not the last

  Rows(const Tensor& target, const Tensor& idx, const Tensor& partner, int64_t d) : index(idx), dim(d) {
    const int64_t n = idx.dim();
    const int64_t item = target.itemsize();
    const auto add = [&](int64_t k) {
      sizes.push_back(idx.size(k));
      base.push_back(k == d ? 0 : target.stride(k) * item);
      own.push_back(idx.stride(k));
      other.push_back(partner.defined() ? partner.stride(k) * item : 0);
    };
    for (int64_t k = 0; k + 1 < n; ++k)
      if (k != d) add(k);
    if (d != n - 1) {
      add(d);
      along = idx.size(d);
    }
    inner = idx.size(n - 1);
    place = target.stride(d) * item;
    size = target.size(d);
    step = d == n - 1 ? 0 : target.stride(n - 1) * item;
    index_step = idx.stride(n - 1);
    other_step = partner.defined() ? partner.stride(n - 1) * item : 0;
  }
  int64_t rows() const {
    int64_t n = 1;
    for (int64_t s : sizes) n *= s;
    return n;
  }
  void locate(int64_t row, int64_t& at, int64_t& at_index, int64_t& at_other) const {
    at = at_index = at_other = 0;
    for (size_t k = sizes.size(); k-- > 0;) {
      const int64_t i = row % sizes[k];
      row /= sizes[k];
      at += i * base[k];
      at_index += i * own[k];
      at_other += i * other[k];
    }
  }
  // Offsets of elements [j, j + n) of a row.
  void offsets(const char* op, const int64_t* idx, int64_t j, int64_t n, int64_t* out) const {
    index_offsets<false>(op, false, idx + j * index_step, index_step, n, size, false, place, dim, out);
    if (step)
      for (int64_t i = 0; i < n; ++i) out[i] += (j + i) * step;
  }
  // One index stands for the whole row.
  bool whole_rows() const { return index_step == 0 && step != 0 && inner > 1; }
};

Tensor gather(const Tensor& self, int64_t dim, const Tensor& index, bool) {
  const int64_t d = wrap_dim("gather", dim, self.dim());
  if (index.numel()) check_index("gather", index);
  FL_CHECK(self.device() == index.device(), "[gather] expected indices on ", to_string(self.device()),
           ", got ", to_string(index.device()));
  Tensor out = empty(index.sizes(), self.options());
  if (index.numel() == 0) return out;
  const Tensor from = at_least_1d(self);
  const Tensor idx = at_least_1d(to_dtype(index, DType::Int64));
  FL_CHECK(from.dim() == idx.dim(), "[gather] expected an index of ", self.dim(), " dimensions, got shape ",
           index.sizes());
  for (int64_t k = 0; k < idx.dim(); ++k)
    FL_CHECK(k == d || idx.size(k) <= from.size(k), "[gather] expected an index no larger than ",
             self.sizes(), " apart from dimension ", d, ", got shape ", index.sizes());
  if (self.is_meta()) return out;
  const Rows rows(from, idx, at_least_1d(out), d);
  const int64_t item = self.itemsize(), inner = rows.inner;
  const GatherFn read = gather_fn(item);
  const RowFn copy = row_fn("gather", Combine::Assign, self.dtype());
  const char* base = from.raw();
  char* to = out.raw();
  const int64_t* data = idx.data<int64_t>();
  // A piece is part of one row, so that one long row is shared too.
  const int64_t cut = std::min<int64_t>(inner, 8192), cuts = (inner + cut - 1) / cut;
  parallel_for(rows.rows() * cuts, std::max<int64_t>(1, kGrain / 2 / cut), [&](int64_t begin, int64_t end) {
    int64_t local[kIndexBlock];
    for (int64_t p = begin; p < end; ++p) {
      int64_t at, at_index, at_other;
      rows.locate(p / cuts, at, at_index, at_other);
      const int64_t first = p % cuts * cut, last = std::min(inner, first + cut);
      if (rows.whole_rows()) {
        rows.offsets("gather", data + at_index, 0, 1, local);
        copy(to + at_other + first * rows.other_step, rows.other_step,
             base + at + local[0] + first * rows.step, rows.step, last - first);
        continue;
      }
      for (int64_t j = first; j < last; j += kIndexBlock) {
        const int64_t n = std::min(kIndexBlock, last - j);
        rows.offsets("gather", data + at_index, j, n, local);
        read(to + at_other + j * rows.other_step, rows.other_step, base + at, local, n);
      }
    }
  });
  return out;
}

Tensor gather_out(const Tensor& self, int64_t dim, const Tensor& index, bool sparse_grad, const Tensor& out) {
  check_distinct("gather", out);
  check_apart("gather", out, self);
  check_apart("gather", out, index);
  return write_out("gather", out, gather(self, dim, index, sparse_grad));
}

// self[index] op= src along dim; src undefined means the value.
void scatter_into(const char* op, const Tensor& self, int64_t d, const Tensor& index, const Tensor& src,
                  const Tensor& value, Combine how) {
  const ScatterFn write = scatter_fn(op, how, self.dtype());
  const RowFn write_row = row_fn(op, how, self.dtype());
  if (index.numel() == 0 || self.is_meta()) return;
  const Tensor to = at_least_1d(self);
  const Tensor idx = at_least_1d(to_dtype(index, DType::Int64));
  const Tensor from = src.defined() ? at_least_1d(src) : src;
  const Rows rows(to, idx, from, d);
  const char* source = src.defined() ? from.raw() : value.raw();
  char* base = to.raw();
  const int64_t* data = idx.data<int64_t>();
  const int64_t inner = rows.inner, along = rows.along;
  // Rows that differ only along dim may name the same place and stay on one thread, in order. Where the index
  // runs along an outer dimension, pieces of the rows are independent as well.
  const int64_t groups = rows.rows() / std::max<int64_t>(along, 1);
  if (rows.rows() == 1 && !rows.step && rows.place == self.itemsize() &&
      scatter_in_copies(
          {op, how, self.dtype(), base, rows.size, source, rows.other_step, inner},
          [&](int64_t begin, int64_t n, int64_t* out) { rows.offsets(op, data, begin, n, out); }))
    return;
  // A piece is as wide as lets the columns it writes to stay in the second-level cache; whole rows are
  // streamed.
  constexpr int64_t cache = 256 * 1024;
  const int64_t wanted = rows.whole_rows() ? (inner + num_threads() - 1) / num_threads()
                                           : cache / std::max<int64_t>(1, rows.size * self.itemsize());
  const int64_t fitting = std::clamp<int64_t>(wanted, 64, 1024);
  const int64_t width = d != idx.dim() - 1 ? std::min(inner, fitting) : inner,
                cuts = (inner + width - 1) / width;
  parallel_for(groups * cuts, std::max<int64_t>(1, kGrain / 2 / std::max<int64_t>(1, width * along)),
               [&](int64_t begin, int64_t end) {
                 int64_t local[kIndexBlock];
                 for (int64_t p = begin; p < end; ++p) {
                   const int64_t group = p / cuts, first = p % cuts * width,
                                 last = std::min(inner, first + width);
                   for (int64_t a = 0; a < along; ++a) {
                     int64_t at, at_index, at_other;
                     rows.locate(group * along + a, at, at_index, at_other);
                     if (rows.whole_rows()) {
                       rows.offsets(op, data + at_index, 0, 1, local);
                       write_row(base + at + local[0] + first * rows.step, rows.step,
                                 source + at_other + first * rows.other_step, rows.other_step, last - first);
                       continue;
                     }
                     for (int64_t j = first; j < last; j += kIndexBlock) {
                       const int64_t n = std::min(kIndexBlock, last - j);
                       rows.offsets(op, data + at_index, j, n, local);
                       write(base + at, local, source + at_other + j * rows.other_step, rows.other_step, n);
                     }
                   }
                 }
               });
}

int64_t check_scatter(const char* op, const Tensor& self, int64_t dim, const Tensor& index,
                      const Tensor& src) {
  const int64_t d = wrap_dim(op, dim, self.dim());
  if (src.defined())
    FL_CHECK(self.dtype() == src.dtype(), "[", op, "] expected a source of dtype ", name_of(self.dtype()),
             ", got ", name_of(src.dtype()));
  check_distinct(op, self);
  check_apart(op, self, index);
  if (src.defined()) check_apart(op, self, src);
  FL_CHECK(self.device() == index.device() && (!src.defined() || src.device() == self.device()), "[", op,
           "] expected all tensors on one device, got ", to_string(self.device()), " and ",
           to_string(index.device()));
  check_index(op, index);
  if (index.numel() == 0) return d;
  FL_CHECK(std::max<int64_t>(self.dim(), 1) == std::max<int64_t>(index.dim(), 1), "[", op,
           "] expected an index of ", self.dim(), " dimensions, got shape ", index.sizes());
  const Tensor to = at_least_1d(self), idx = at_least_1d(index);
  for (int64_t k = 0; k < idx.dim(); ++k)
    FL_CHECK(k == d || idx.size(k) <= to.size(k), "[", op, "] expected an index no larger than ",
             self.sizes(), " apart from dimension ", d, ", got shape ", index.sizes());
  if (src.defined()) {
    const Tensor from = at_least_1d(src);
    FL_CHECK(from.dim() == idx.dim(), "[", op, "] expected a source of ", self.dim(),
             " dimensions, got shape ", src.sizes());
    for (int64_t k = 0; k < idx.dim(); ++k)
      FL_CHECK(idx.size(k) <= from.size(k), "[", op, "] expected an index no larger than the source ",
               src.sizes(), ", got shape ", index.sizes());
  }
  return d;
}

Combine scatter_mode(std::string_view reduce) {
  FL_CHECK(reduce == "add" || reduce == "multiply",
           "[scatter] expected reduce to be 'add' or 'multiply', got '", reduce, "'");
  return reduce == "add" ? Combine::Add : Combine::Mul;
}

Tensor scatter_with(const char* op, const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src,
                    Combine how) {
  const int64_t d = check_scatter(op, self, dim, index, src);
  self.bump_version();
  scatter_into(op, self, d, index, src, {}, how);
  return self;
}
Tensor scatter_number(const Tensor& self, int64_t dim, const Tensor& index, const Scalar& value,
                      Combine how) {
  check_fits("scatter", value, self.dtype());
  FL_CHECK(!value.is_complex() || is_complex(self.dtype()) || self.dtype() == DType::Bool,
           "[scatter] expected a real value for ", name_of(self.dtype()), ", got a complex one");
  const int64_t d = check_scatter("scatter", self, dim, index, {});
  self.bump_version();
  scatter_into("scatter", self, d, index, {}, scalar_tensor(value, {self.dtype(), Device{}}), how);
  return self;
}

Tensor scatter_src_(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src) {
  return scatter_with("scatter", self, dim, index, src, Combine::Assign);
}
Tensor scatter_src(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src) {
  return scatter_with("scatter", copied_contiguous(self), dim, index, src, Combine::Assign);
}
Tensor scatter_value_(const Tensor& self, int64_t dim, const Tensor& index, const Scalar& value) {
  return scatter_number(self, dim, index, value, Combine::Assign);
}
Tensor scatter_value(const Tensor& self, int64_t dim, const Tensor& index, const Scalar& value) {
  return scatter_number(copied_contiguous(self), dim, index, value, Combine::Assign);
}
Tensor scatter_reduce_mode_(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src,
                            std::string_view reduce) {
  return scatter_with("scatter", self, dim, index, src, scatter_mode(reduce));
}
Tensor scatter_reduce_mode(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src,
                           std::string_view reduce) {
  return scatter_with("scatter", copied_contiguous(self), dim, index, src, scatter_mode(reduce));
}
Tensor scatter_value_reduce_(const Tensor& self, int64_t dim, const Tensor& index, const Scalar& value,
                             std::string_view reduce) {
  return scatter_number(self, dim, index, value, scatter_mode(reduce));
}
Tensor scatter_value_reduce(const Tensor& self, int64_t dim, const Tensor& index, const Scalar& value,
                            std::string_view reduce) {
  return scatter_number(copied_contiguous(self), dim, index, value, scatter_mode(reduce));
}
Tensor scatter_add_(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src) {
  return scatter_with("scatter_add", self, dim, index, src, Combine::Add);
}
Tensor scatter_add(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src) {
  return scatter_with("scatter_add", copied_contiguous(self), dim, index, src, Combine::Add);
}

Tensor scatter_reduce_(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src,
                       std::string_view reduce, bool include_self) {
  const char* op = "scatter_reduce";
  const bool mean = reduce == "mean";
  FL_CHECK(mean || reduce == "sum" || reduce == "prod" || reduce == "amax" || reduce == "amin",
           "[scatter_reduce] expected reduce to be one of 'sum', 'prod', 'mean', 'amax' or 'amin', got '",
           reduce, "'");
  const Combine how = reduce == "prod"   ? Combine::Mul
                      : reduce == "amax" ? Combine::Max
                      : reduce == "amin" ? Combine::Min
                                         : Combine::Add;
  const int64_t d = check_scatter(op, self, dim, index, src);
  scatter_fn(op, how, self.dtype());
  self.bump_version();
  if (self.is_meta() || index.numel() == 0) return self;
  if (!include_self)
    scatter_into(op, self, d, index, {}, scalar_tensor(identity_of(how, self.dtype()), self.options()),
                 Combine::Assign);
  scatter_into(op, self, d, index, src, {}, how);
  if (mean) {
    Tensor counts = empty(self.sizes(), {DType::Int64, self.device()});
    copy_into(counts, scalar_tensor(Scalar(int64_t(include_self)), counts.options()));
    scatter_into(op, counts, d, index, {}, scalar_tensor(Scalar(1), counts.options()), Combine::Add);
    divide_by_counts(self, counts);
  }
  return self;
}
Tensor scatter_reduce(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src,
                      std::string_view reduce, bool include_self) {
  return scatter_reduce_(copied_contiguous(self), dim, index, src, reduce, include_self);
}

FL_KERNEL("gather", gather, kCpu);
FL_KERNEL("gather.out", gather_out, kCpu);
FL_KERNEL("scatter.src", scatter_src, kCpu);
FL_KERNEL("scatter_.src", scatter_src_, kCpu);
FL_KERNEL("scatter.value", scatter_value, kCpu);
FL_KERNEL("scatter_.value", scatter_value_, kCpu);
FL_KERNEL("scatter.reduce", scatter_reduce_mode, kCpu);
FL_KERNEL("scatter_.reduce", scatter_reduce_mode_, kCpu);
FL_KERNEL("scatter.value_reduce", scatter_value_reduce, kCpu);
FL_KERNEL("scatter_.value_reduce", scatter_value_reduce_, kCpu);
FL_KERNEL("scatter_add", scatter_add, kCpu);
FL_KERNEL("scatter_add_", scatter_add_, kCpu);
FL_KERNEL("scatter_reduce.two", scatter_reduce, kCpu);
FL_KERNEL("scatter_reduce_.two", scatter_reduce_, kCpu);

}  // namespace
}  // namespace fl

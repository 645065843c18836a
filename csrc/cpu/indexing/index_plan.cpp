// Indexing with tensors: from index tensors to offsets, and the loops that read and write through them.
#include "cpu/indexing/index_plan.h"

#include <cstring>

#include "ops/iterator.h"

namespace fl {

namespace {

bool is_mask(const Tensor& t) {
  return t.dtype() == DType::Bool || t.dtype() == DType::UInt8;
}

Tensor expanded(const Tensor& t, IntSpan shape) {
  if (t.sizes() == shape) return t;
  const int64_t n = static_cast<int64_t>(shape.size()), lead = n - t.dim();
  Dims strides(n);
  for (int64_t d = lead; d < n; ++d) strides[d] = t.size(d - lead) == 1 ? 0 : t.stride(d - lead);
  return alias(t, shape, strides, t.offset());
}

}  // namespace

void IndexPlan::add(const Tensor& self, int64_t dim, const Tensor& index) {
  FL_CHECK(self.is_meta() || !index.is_meta(), "[", op_,
           "] expected indices with data, got a tensor on the meta device");
  indices_.push_back(
      {to_dtype(index, DType::Int64), {}, dim, self.size(dim), self.stride(dim) * self.itemsize()});
}

void IndexPlan::finish(const Tensor& self, const std::vector<bool>& indexed) {
  const int64_t n = self.dim();
  int64_t first = n, last = -1, used = 0;
  for (int64_t d = 0; d < n; ++d)
    if (indexed[d]) {
      first = std::min(first, d);
      last = d;
      ++used;
    }
  const bool adjacent = used > 0 && last - first + 1 == used;
  Dims sizes[2], strides[2];  // before, after
  for (int64_t d = 0; d < n; ++d)
    if (!indexed[d]) {
      const int side = adjacent && d < first ? 0 : 1;
      sizes[side].push_back(self.size(d));
      strides[side].push_back(self.stride(d) * self.itemsize());
    }
  before = Merged(sizes[0], strides[0]);
  after = Merged(sizes[1], strides[1]);
  for (int64_t s : sizes[0]) shape.push_back(s);
  for (int64_t s : index_shape_) shape.push_back(s);
  for (int64_t s : sizes[1]) shape.push_back(s);
  count = numel_of(index_shape_);
}

IndexPlan::IndexPlan(const char* op, const Tensor& self, int64_t dim, const Tensor& index, bool wrap,
                     bool index_error)
    : op_(op), wrap_(wrap), index_error_(index_error) {
  index_shape_ = Dims{index.numel()};
  add(self, dim, index.dim() == 1 ? index : alias(index, IntSpan({1}), IntSpan({1}), index.offset()));
  indices_[0].walk = Merged(indices_[0].tensor.sizes(), indices_[0].tensor.strides());
  std::vector<bool> indexed(self.dim(), false);
  indexed[dim] = true;
  finish(self, indexed);
}

IndexPlan::IndexPlan(const char* op, const Tensor& self, const std::vector<Tensor>& indices) : op_(op) {
  std::vector<bool> indexed(self.dim(), false);
  int64_t d = 0, defined = 0;
  for (const Tensor& t : indices) defined += t.defined();
  bool first = true;
  for (const Tensor& t : indices) {
    if (!t.defined()) {
      ++d;
      continue;
    }
    FL_CHECK_KIND(t.dtype() == DType::Int64 || t.dtype() == DType::Int32 || is_mask(t), Index, "[", op,
                  "] expected indices of dtype int64, int32, uint8 or bool, got ", name_of(t.dtype()));
    const int64_t uses = is_mask(t) ? t.dim() : 1;
    FL_CHECK_KIND(d + uses <= self.dim(), Index, "[", op, "] expected at most ", self.dim(),
                  " indices for shape ", self.sizes(), ", got more");
    if (is_mask(t)) {
      for (int64_t k = 0; k < uses; ++k)
        FL_CHECK_KIND(t.size(k) == self.size(d + k), Index, "[", op, "] expected a mask of size ",
                      self.size(d + k), " at dimension ", d + k, ", got a mask of shape ", t.sizes(),
                      " for a tensor of shape ", self.sizes());
      if (defined == 1 && uses > 0) {
        Dims weights(uses);
        for (int64_t k = 0; k < uses; ++k) weights[k] = self.stride(d + k) * self.itemsize();
        direct_ = nonzero_weighted(t, {weights});
        index_shape_ = Dims{direct_.numel()};
        for (int64_t k = 0; k < uses; ++k) indexed[d + k] = true;
      } else {
        std::vector<Dims> units(uses, Dims(uses));
        for (int64_t k = 0; k < uses; ++k) units[k][k] = 1;
        const Tensor columns = nonzero_weighted(t, units);
        for (int64_t k = 0; k < uses; ++k) {
          indexed[d + k] = true;
          add(self, d + k, alias(columns, IntSpan({columns.size(1)}), IntSpan({1}), k * columns.size(1)));
        }
      }
    } else {
      indexed[d] = true;
      add(self, d, t);
    }
    d += uses;
  }
  for (const Index& i : indices_) {
    if (first) {
      index_shape_ = i.tensor.sizes();
      first = false;
      continue;
    }
    try {
      index_shape_ = broadcast_shapes(op, index_shape_, i.tensor.sizes());
    } catch (const Error&) {
      fail(ErrorKind::Index, "[", op, "] expected index tensors that broadcast together, got shapes ",
           index_shape_, " and ", i.tensor.sizes());
    }
  }
  for (Index& i : indices_) {
    i.tensor = expanded(i.tensor, index_shape_);
    // Walked as whole rows: sizes of one are dropped and neighbours merged.
    i.walk = Merged(index_shape_, i.tensor.strides());
  }
  finish(self, indexed);
  if (count > 0)
    for (const Index& i : indices_)
      FL_CHECK_KIND(i.size > 0, Index, "[", op,
                    "] expected indices into a dimension that is not empty, got dimension ", i.dim,
                    " of size 0");
}

void IndexPlan::offsets(int64_t begin, int64_t n, int64_t* out) const {
  if (direct_.defined()) {
    std::memcpy(out, direct_.data<int64_t>() + begin, n * sizeof(int64_t));
    return;
  }
  if (indices_.empty()) {
    std::fill(out, out + n, 0);
    return;
  }
  bool first = true;
  for (const Index& index : indices_) {
    const int64_t* data = index.tensor.data<int64_t>();
    const Merged& w = index.walk;
    const int64_t inner = w.sizes.empty() ? 1 : w.sizes.back(), step = w.sizes.empty() ? 0 : w.strides.back();
    for (int64_t done = 0; done < n;) {
      const int64_t at = begin + done;
      const int64_t length = std::min(n - done, inner - at % inner);
      const int64_t* from = data + w.at(at);
      if (first)
        index_offsets<false>(op_, index_error_, from, step, length, index.size, wrap_, index.stride,
                             index.dim, out + done);
      else
        index_offsets<true>(op_, index_error_, from, step, length, index.size, wrap_, index.stride, index.dim,
                            out + done);
      done += length;
    }
    first = false;
  }
}

namespace {

// Calls f(base offset of before, first position, offsets, n) over blocks of [begin, end) of before x count.
template <class F>
void for_blocks(const IndexPlan& plan, const int64_t* all, int64_t begin, int64_t end, const F& f) {
  int64_t local[kIndexBlock];
  for (int64_t r = begin; r < end;) {
    const int64_t b = r / plan.count, m = r % plan.count;
    int64_t n = std::min(plan.count - m, end - r);
    const int64_t* offsets = all ? all + m : local;
    if (!all) {
      n = std::min(n, kIndexBlock);
      plan.offsets(m, n, local);
    }
    f(plan.before.at(b), r, offsets, n);
    r += n;
  }
}

std::vector<int64_t> all_offsets(const IndexPlan& plan) {
  // When the same offsets serve several rows they are found once.
  std::vector<int64_t> all;
  if (plan.before.numel > 1) {
    all.resize(plan.count);
    parallel_for(plan.count, kGrain, [&](int64_t b, int64_t e) { plan.offsets(b, e - b, all.data() + b); });
  }
  return all;
}

}  // namespace

Tensor gather_plan(const Tensor& self, const IndexPlan& plan) {
  Tensor out = empty(plan.shape, self.options());
  if (self.is_meta() || out.numel() == 0) return out;
  const std::vector<int64_t> all = all_offsets(plan);
  const int64_t item = self.itemsize();
  const bool row = plan.after.is_row(item);
  const int64_t row_bytes = plan.after.numel * item;
  const GatherFn gather = row ? gather_fn(row_bytes) : nullptr;
  const RowFn copy = row_fn("index", Combine::Assign, self.dtype());
  const int64_t inner = row ? 0 : plan.after.sizes.back();
  char* to = out.raw();
  const char* from = self.raw();
  const int64_t grain = std::max<int64_t>(1, kGrain / 2 / std::max<int64_t>(1, plan.after.numel));
  parallel_for(plan.before.numel * plan.count, grain, [&](int64_t begin, int64_t end) {
    for_blocks(plan, all.empty() ? nullptr : all.data(), begin, end,
               [&](int64_t base, int64_t r, const int64_t* offsets, int64_t n) {
                 char* dst = to + r * row_bytes;
                 const char* src = from + base;
                 if (gather) {
                   gather(dst, row_bytes, src, offsets, n);
                 } else if (row) {
                   for (int64_t i = 0; i < n; ++i)
                     std::memcpy(dst + i * row_bytes, src + offsets[i], row_bytes);
                 } else {
                   for (int64_t i = 0; i < n; ++i)
                     for (int64_t p = 0; p < plan.after.numel; p += inner)
                       copy(dst + i * row_bytes + p * item, item, src + offsets[i] + plan.after.at(p),
                            plan.after.strides.back(), inner);
                 }
               });
  });
  return out;
}

// Rows of values, in the order in which they came, by the thread that owns the place they go to.
struct OwnedRows {
  std::vector<int64_t> offsets;  // of the place of each row
  std::vector<int64_t> order;    // row numbers, those of one owner after the other's
  std::vector<int64_t> starts;   // of each owner's part of `order`, and the end
};
OwnedRows owned_rows(const IndexPlan& plan, int owners, double time) {
  const int64_t count = plan.count;
  OwnedRows rows{std::vector<int64_t>(count), std::vector<int64_t>(count), std::vector<int64_t>(owners + 1)};
  std::vector<uint16_t> owner_of(count);
  std::vector<std::vector<int64_t>> next(
      owners);  // of each part of the rows: where its rows of each owner go
  parallel_pieces(owners, time, [&](int part, int parts) {
    const int64_t begin = count * part / parts, end = count * (part + 1) / parts;
    plan.offsets(begin, end - begin, rows.offsets.data() + begin);
    std::vector<int64_t> counts(owners);
    for (int64_t r = begin; r < end; ++r) {
      const uint64_t hash = static_cast<uint64_t>(rows.offsets[r]) * 0x9E3779B97F4A7C15ull >> 32;
      owner_of[r] = static_cast<uint16_t>(hash * static_cast<uint64_t>(owners) >> 32);
      ++counts[owner_of[r]];
    }
    next[part] = std::move(counts);
  });
  int64_t at = 0;
  for (int owner = 0; owner < owners; ++owner) {
    rows.starts[owner] = at;
    for (std::vector<int64_t>& part : next) at += std::exchange(part[owner], at);
  }
  rows.starts[owners] = at;
  parallel_pieces(owners, time, [&](int part, int parts) {
    std::vector<int64_t> place = std::move(next[part]);
    for (int64_t r = count * part / parts; r < count * (part + 1) / parts; ++r)
      rows.order[place[owner_of[r]]++] = r;
  });
  return rows;
}

void scatter_plan(const char* op, const Tensor& self, const IndexPlan& plan, const Tensor& source,
                  Combine how) {
  const RowFn combine_row = row_fn(op, how, self.dtype());
  const ScatterFn scatter = scatter_fn(op, how, self.dtype());
  if (self.is_meta() || numel_of(plan.shape) == 0) return;
  FL_CHECK(!source.is_meta(), "[", op, "] expected values with data, got a tensor on the meta device");
  Tensor values = source;
  const bool constant = values.numel() == 1;
  if (!constant) values = contiguous(expanded(values, plan.shape));
  if (values->storage.get() == self->storage.get()) {
    Tensor fresh = empty(values.sizes(), values.options());
    copy_into(fresh, values);
    values = fresh;
  }
  const std::vector<int64_t> all = all_offsets(plan);
  const int64_t item = self.itemsize(), step = constant ? 0 : item;
  const int64_t width = plan.after.numel, inner = plan.after.sizes.empty() ? 1 : plan.after.sizes.back();
  const int64_t inner_stride = plan.after.sizes.empty() ? item : plan.after.strides.back();
  char* to = self.raw();
  const char* from = values.raw();
  const auto put_row = [&](char* dst, const char* src) {
    for (int64_t p = 0; p < width; p += inner)
      combine_row(dst + plan.after.at(p), inner_stride, src + p * step, step, inner);
  };
  // Places named twice must see their values in order, so threads share the rows before the index, or else
  // the places themselves: each thread owns the places that hash to it.
  const bool safe = !has_internal_overlap(self);
  const int64_t work = plan.before.numel * plan.count * width;
  const auto* offsets_once = all.empty() ? nullptr : all.data();
  if (plan.before.numel > 1) {
    const auto body = [&](int64_t begin, int64_t end) {
      for_blocks(plan, offsets_once, begin * plan.count, end * plan.count,
                 [&](int64_t base, int64_t r, const int64_t* offsets, int64_t n) {
                   if (width == 1) {
                     scatter(to + base, offsets, from + r * step, step, n);
                   } else {
                     for (int64_t i = 0; i < n; ++i)
                       put_row(to + base + offsets[i], from + (r + i) * width * step);
                   }
                 });
    };
    if (safe)
      parallel_for(plan.before.numel,
                   std::max<int64_t>(1, kGrain / 2 / std::max<int64_t>(1, plan.count * width)), body);
    else
      body(0, plan.before.numel);
    return;
  }
  const double time = 3 * thread_model::kGrainTime / kGrain * static_cast<double>(work);
  const int owners = safe && width * item >= 64 && work >= kGrain ? thread_model::pieces_for(time) : 1;
  if (owners > 1) {
    const OwnedRows rows = owned_rows(plan, owners, time / 8);
    char* const base = to + plan.before.at(0);
    parallel_pieces(owners, time, [&](int owner, int) {
      const int64_t end = rows.starts[owner + 1];
      for (int64_t i = rows.starts[owner]; i < end; ++i) {
        constexpr int64_t kAhead = 4;
        if (i + kAhead < end) __builtin_prefetch(from + rows.order[i + kAhead] * width * step);
        put_row(base + rows.offsets[rows.order[i]], from + rows.order[i] * width * step);
      }
    });
    return;
  }
  if (safe && width == 1 && self.is_contiguous() &&
      scatter_in_copies({op, how, self.dtype(), to, self.numel(), from, step, plan.count},
                        [&](int64_t begin, int64_t n, int64_t* out) { plan.offsets(begin, n, out); }))
    return;
  for_blocks(plan, nullptr, 0, plan.count, [&](int64_t base, int64_t r, const int64_t* offsets, int64_t n) {
    if (width == 1) return scatter(to + base, offsets, from + r * step, step, n);
    for (int64_t i = 0; i < n; ++i) put_row(to + base + offsets[i], from + (r + i) * width * step);
  });
}

}  // namespace fl

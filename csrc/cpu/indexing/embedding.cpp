// Rows of a table by index: embedding, embedding bags and the renormalisation of rows in use.
#include <cmath>
#include <cstring>
#include <set>

#include "core/parallel.h"
#include "cpu/engine/cast.h"
#include "dispatch/kernel.h"

namespace fl {
namespace {

void check_indices(const char* op, const Tensor& indices) {
  FL_CHECK(indices.dtype() == DType::Int64 || indices.dtype() == DType::Int32, "[", op,
           "] expected int64 or int32 indices, got ", name_of(indices.dtype()),
           "; convert them with .long()");
}

Tensor as_int64(const Tensor& t) {
  return contiguous(to_dtype(t, DType::Int64));
}

Tensor embedding(const Tensor& weight, const Tensor& indices, int64_t, bool, bool) {
  FL_CHECK(weight.dim() == 2, "[embedding] expected a weight of 2 dimensions, got ", weight.sizes());
  check_indices("embedding", indices);
  Dims sizes(indices.sizes());
  sizes.push_back(weight.size(1));
  Tensor out = empty(sizes, weight.options());
  if (weight.is_meta() || indices.is_meta()) return out;
  const Tensor table = contiguous(weight), index = as_int64(indices);
  const int64_t rows = weight.size(0), bytes = weight.size(1) * weight.itemsize();
  const int64_t* at = index.data<int64_t>();
  parallel_for(index.numel(), std::max<int64_t>(1, 65536 / std::max<int64_t>(bytes, 1)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) {
                   FL_CHECK_KIND(at[i] >= 0 && at[i] < rows, Index, "[embedding] expected indices in [0, ",
                                 rows - 1, "], got ", at[i]);
                   std::memcpy(out.raw() + i * bytes, table.raw() + at[i] * bytes, bytes);
                 }
               });
  return out;
}

// Scales the rows that are used, where their norm is above max_norm, to have that norm.
Tensor embedding_renorm_(const Tensor& self, const Tensor& indices, double max_norm, double norm_type) {
  FL_CHECK(self.dim() == 2, "[embedding_renorm_] expected a weight of 2 dimensions, got ", self.sizes());
  check_indices("embedding_renorm_", indices);
  self.bump_version();
  if (self.is_meta() || indices.is_meta()) return self;
  const Tensor index = as_int64(indices);
  const std::set<int64_t> used(index.data<int64_t>(), index.data<int64_t>() + index.numel());
  for (const int64_t row : used) {
    FL_CHECK_KIND(row >= 0 && row < self.size(0), Index, "[embedding_renorm_] expected indices in [0, ",
                  self.size(0) - 1, "], got ", row);
    const Tensor view = alias(self, {self.size(1)}, {self.stride(1)}, self.offset() + row * self.stride(0));
    const Tensor wide = contiguous(to_dtype(view, DType::Double));
    double* x = wide.data<double>();
    double norm = 0;
    for (int64_t i = 0; i < wide.numel(); ++i) {
      const double a = std::fabs(x[i]);
      if (std::isinf(norm_type))
        norm = std::max(norm, a);
      else
        norm += std::pow(a, norm_type);
    }
    if (!std::isinf(norm_type)) norm = std::pow(norm, 1 / norm_type);
    if (norm <= max_norm) continue;
    const Tensor scaled = wide.same(view) ? empty(wide.sizes(), wide.options()) : wide;
    for (int64_t i = 0; i < wide.numel(); ++i) scaled.data<double>()[i] = x[i] * (max_norm / (norm + 1e-7));
    copy_into(view, scaled);
  }
  return self;
}

enum BagMode { kBagSum = 0, kBagMean = 1, kBagMax = 2 };

void check_bags(const Tensor& weight, const Tensor& indices, const Tensor& offsets, int64_t mode,
                const Tensor& per_sample_weights, bool include_last_offset) {
  FL_CHECK(weight.dim() == 2, "[embedding_bag] expected a weight of 2 dimensions, got ", weight.sizes());
  FL_CHECK_KIND(is_floating(weight.dtype()), NotImplemented,
                "[embedding_bag] expected a floating point weight, got ", name_of(weight.dtype()));
  check_indices("embedding_bag", indices);
  check_indices("embedding_bag", offsets);
  FL_CHECK(indices.dim() == 1 && offsets.dim() == 1,
           "[embedding_bag] expected indices and offsets of 1 dimension, got ", indices.sizes(), " and ",
           offsets.sizes());
  FL_CHECK(mode >= kBagSum && mode <= kBagMax, "[embedding_bag] expected mode 0, 1 or 2, got ", mode);
  if (per_sample_weights.defined()) {
    FL_CHECK(mode == kBagSum, "[embedding_bag] expected mode 'sum' with per_sample_weights, got another");
    FL_CHECK(per_sample_weights.dtype() == weight.dtype(),
             "[embedding_bag] expected per_sample_weights of dtype ", name_of(weight.dtype()), ", got ",
             name_of(per_sample_weights.dtype()));
    FL_CHECK(per_sample_weights.sizes() == indices.sizes(),
             "[embedding_bag] expected a weight for each index, got ", per_sample_weights.sizes(), " for ",
             indices.sizes());
  }
  FL_CHECK(!include_last_offset || offsets.size(0) >= 1,
           "[embedding_bag] expected at least one offset with include_last_offset, got none");
}

// (bags, bag of each index, size of each bag, index of each maximum).
std::tuple<Tensor, Tensor, Tensor, Tensor> embedding_bag(const Tensor& weight, const Tensor& indices,
                                                         const Tensor& offsets, bool, int64_t mode, bool,
                                                         const Tensor& per_sample_weights,
                                                         bool include_last_offset, int64_t padding_idx) {
  check_bags(weight, indices, offsets, mode, per_sample_weights, include_last_offset);
  const int64_t listed = offsets.size(0), count = indices.size(0), width = weight.size(1);
  const int64_t bags = include_last_offset ? listed - 1 : listed;
  const Options integers{DType::Int64, weight.device()};
  Tensor out = empty({bags, width}, weight.options());
  Tensor bag_of = empty({count}, integers), size_of_bag = empty({bags}, integers);
  Tensor maxima = mode == kBagMax ? empty({bags, width}, integers) : empty({0}, integers);
  if (weight.is_meta() || indices.is_meta()) return {out, bag_of, size_of_bag, maxima};

  const Tensor index = as_int64(indices), starts = as_int64(offsets), table = contiguous(weight);
  const Tensor factors =
      per_sample_weights.defined() ? contiguous(to_dtype(per_sample_weights, DType::Double)) : Tensor();
  const int64_t *at = index.data<int64_t>(), *start = starts.data<int64_t>();
  if (bags > 0) FL_CHECK(start[0] == 0, "[embedding_bag] expected offsets that start with 0, got ", start[0]);
  for (int64_t b = 0; b < listed; ++b)
    FL_CHECK(start[b] <= count, "[embedding_bag] expected offsets up to ", count, ", got ", start[b]);
  const CastFn load =
      cast_fn(weight.dtype(), DType::Float == compute_of(weight.dtype()) ? DType::Float : DType::Double);
  dispatch_float(weight.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    const CastFn store = cast_fn(dtype_for<T>::value, weight.dtype());
    const int64_t item = weight.itemsize();
    parallel_for(
        bags, std::max<int64_t>(1, 4096 / std::max<int64_t>(width, 1)), [&](int64_t begin, int64_t end) {
          std::vector<T> sum(width), row(width);
          for (int64_t b = begin; b < end; ++b) {
            const int64_t first = start[b], last = b + 1 < listed ? start[b + 1] : count;
            FL_CHECK(first <= last, "[embedding_bag] expected offsets that do not decrease, got ", first,
                     " before ", last);
            std::fill(sum.begin(), sum.end(), T(0));
            int64_t* best = mode == kBagMax ? maxima.data<int64_t>() + b * width : nullptr;
            if (best) std::fill(best, best + width, int64_t(0));
            int64_t members = 0;
            for (int64_t i = first; i < last; ++i) {
              bag_of.data<int64_t>()[i] = b;
              FL_CHECK(at[i] >= 0 && at[i] < weight.size(0), "[embedding_bag] expected indices in [0, ",
                       weight.size(0) - 1, "], got ", at[i]);
              if (at[i] == padding_idx) continue;
              const T* x;
              if (weight.dtype() == dtype_for<T>::value) {
                x = table.template data<T>() + at[i] * width;
              } else {
                load(table.raw() + at[i] * width * item, item, reinterpret_cast<char*>(row.data()), sizeof(T),
                     width);
                x = row.data();
              }
              if (mode == kBagMax) {
                for (int64_t c = 0; c < width; ++c)
                  if (members == 0 || x[c] > sum[c]) {
                    sum[c] = x[c];
                    best[c] = at[i];
                  }
              } else {
                const T factor = factors.defined() ? static_cast<T>(factors.data<double>()[i]) : T(1);
                for (int64_t c = 0; c < width; ++c) sum[c] += factor * x[c];
              }
              ++members;
            }
            if (mode == kBagMean && members > 0)
              for (int64_t c = 0; c < width; ++c) sum[c] /= static_cast<T>(members);
            size_of_bag.data<int64_t>()[b] = members;
            store(reinterpret_cast<const char*>(sum.data()), sizeof(T), out.raw() + b * width * item, item,
                  width);
          }
        });
  });
  return {out, bag_of, size_of_bag, maxima};
}

FL_KERNEL("embedding", embedding, kCpu);
FL_KERNEL("embedding_renorm_", embedding_renorm_, kCpu);
FL_KERNEL("_embedding_bag", embedding_bag, kCpu);

}  // namespace
}  // namespace fl

// Kernels on the parts of sparse tensors: sorting coordinates, and products with dense matrices.
#include <algorithm>
#include <numeric>

#include "core/parallel.h"
#include "dispatch/kernel.h"

namespace fl {
namespace {

constexpr int kDigit = 11;

// Sorts keys, which are below `limit`, and the numbers that go with them; equal keys keep their order.
void radix_sort(std::vector<int64_t>& keys, std::vector<int64_t>& numbers, int64_t limit) {
  const size_t n = keys.size();
  std::vector<int64_t> other_keys(n), other_numbers(n);
  for (int shift = 0; shift < 63 && (limit - 1) >> shift != 0; shift += kDigit) {
    size_t counts[(1 << kDigit) + 1] = {};
    constexpr int64_t mask = (1 << kDigit) - 1;
    for (size_t i = 0; i < n; ++i) ++counts[(keys[i] >> shift & mask) + 1];
    for (int b = 0; b < 1 << kDigit; ++b) counts[b + 1] += counts[b];
    for (size_t i = 0; i < n; ++i) {
      const size_t at = counts[keys[i] >> shift & mask]++;
      other_keys[at] = keys[i];
      other_numbers[at] = numbers[i];
    }
    keys.swap(other_keys);
    numbers.swap(other_numbers);
  }
}

std::tuple<Tensor, Tensor> groups(const Tensor& indices, IntSpan size) {
  FL_CHECK(indices.dim() == 2 && indices.dtype() == DType::Int64,
           "[coalesce] expected a matrix of int64 indices, got ", name_of(indices.dtype()), " of shape ",
           indices.sizes());
  const int64_t dims = indices.size(0), n = indices.size(1);
  FL_CHECK(static_cast<int64_t>(size.size()) == dims, "[coalesce] expected ", dims, " sizes, got ", size);
  FL_CHECK_KIND(!indices.is_meta(), NotImplemented,
                "[coalesce] expected indices with data, got a tensor on the meta device");
  const int64_t limit = std::max<int64_t>(numel_of(size), 1);
  const Tensor source = contiguous(indices);
  const int64_t* at = source.data<int64_t>();
  std::vector<int64_t> keys(n, 0);
  for (int64_t d = 0; d < dims; ++d) {
    const int64_t* row = at + d * n;
    bool inside = true;
    for (int64_t i = 0; i < n; ++i) {
      inside &= row[i] >= 0 && row[i] < size[d];
      keys[i] = keys[i] * size[d] + row[i];
    }
    FL_CHECK(inside, "[coalesce] expected indices below ", size[d], " in dimension ", d, ", got one outside");
  }
  Tensor group = empty({n}, indices.options());
  int64_t* numbers = group.data<int64_t>();
  bool sorted = true;
  for (int64_t i = 1; i < n; ++i) sorted &= keys[i - 1] < keys[i];
  if (sorted) {
    std::iota(numbers, numbers + n, 0);
    return {source, group};
  }
  std::vector<int64_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  radix_sort(keys, order, limit);
  std::vector<int64_t> first;  // of each group, its first element
  for (int64_t i = 0; i < n; ++i) {
    if (i == 0 || keys[i] != keys[i - 1]) first.push_back(order[i]);
    numbers[order[i]] = static_cast<int64_t>(first.size()) - 1;
  }
  const int64_t m = static_cast<int64_t>(first.size());
  Tensor unique = empty({dims, m}, indices.options());
  for (int64_t d = 0; d < dims; ++d)
    for (int64_t i = 0; i < m; ++i) unique.data<int64_t>()[d * m + i] = at[d * n + first[i]];
  return {unique, group};
}

// Indices as contiguous int64 below `limit`.
Tensor checked(const char* op, const Tensor& index, int64_t n, int64_t limit) {
  FL_CHECK(index.dim() == 1 && index.numel() == n, "[", op, "] expected ", n, " indices, got shape ",
           index.sizes());
  const Tensor t = contiguous(to_dtype(index, DType::Int64));
  const int64_t* p = t.data<int64_t>();
  bool inside = true;
  for (int64_t i = 0; i < n; ++i) inside &= p[i] >= 0 && p[i] < limit;
  FL_CHECK_KIND(inside, Index, "[", op, "] expected indices below ", limit, ", got one outside");
  return t;
}

// Elements by row: elements at(start[r]) ... at(start[r + 1] - 1) are those of row r.
struct Rows {
  std::vector<int64_t> start, order;  // the order is left out where elements are sorted by row
  Rows(const int64_t* row, int64_t n, int64_t rows) : start(rows + 1, 0) {
    for (int64_t i = 0; i < n; ++i) ++start[row[i] + 1];
    for (int64_t r = 0; r < rows; ++r) start[r + 1] += start[r];
    if (std::is_sorted(row, row + n)) return;
    order.resize(n);
    std::vector<int64_t> next(start.begin(), start.end() - 1);
    for (int64_t i = 0; i < n; ++i) order[next[row[i]]++] = i;
  }
  int64_t at(int64_t k) const { return order.empty() ? k : order[k]; }
};

// The widest block of columns whose sums stay in registers: 64 floats.
struct FloatBlock {
  static constexpr int64_t width = 64;
  typedef float Vector __attribute__((vector_size(32), aligned(4), may_alias));

  // to[j] = sum over elements k of row [begin, end): x[k] * y[column of k][j]
  static void sum(const Rows& rows, int64_t begin, int64_t end, const float* x, const int64_t* column_of,
                  const float* y, int64_t row_width, float* to) {
    Vector sums[8] = {};
    for (int64_t k = begin; k < end; ++k) {
      const int64_t e = rows.at(k);
      const Vector* from = reinterpret_cast<const Vector*>(y + column_of[e] * row_width);
#pragma GCC unroll 8
      for (int v = 0; v < 8; ++v) sums[v] += x[e] * from[v];
    }
#pragma GCC unroll 8
    for (int v = 0; v < 8; ++v) reinterpret_cast<Vector*>(to)[v] = sums[v];
  }
};

Tensor sparse_mm(const Tensor& row, const Tensor& column, const Tensor& values, const Tensor& dense,
                 int64_t rows) {
  FL_CHECK(dense.dim() == 2 && values.dim() == 1,
           "[mm] expected a sparse matrix and a dense matrix, got values of shape ", values.sizes(),
           " and shape ", dense.sizes());
  FL_CHECK(values.dtype() == dense.dtype(), "[mm] expected matrices of one dtype, got ",
           name_of(values.dtype()), " and ", name_of(dense.dtype()));
  FL_CHECK_KIND(dense.dtype() != DType::Bool, NotImplemented, "[mm] expected a numeric dtype, got bool");
  const int64_t n = values.numel(), width = dense.size(1);
  if (dense.is_meta() || values.is_meta()) return empty({rows, width}, dense.options());
  const DType computed = compute_of(dense.dtype());  // reduced floats and small integers are rare: converted
  Tensor out = empty({rows, width}, {computed, dense.device()});
  const Tensor r = checked("mm", row, n, rows), c = checked("mm", column, n, dense.size(0));
  const Rows by_row(r.data<int64_t>(), n, rows);
  const Tensor v = contiguous(to_dtype(values, computed)), d = contiguous(to_dtype(dense, computed));
  const int64_t* column_of = c.data<int64_t>();
  const int64_t work = std::max<int64_t>(1, width * (n / std::max<int64_t>(rows, 1) + 1));
  dispatch_compute(computed, [&](auto type) {
    using T = typename decltype(type)::type;
    const T *x = v.data<T>(), *y = d.data<T>();
    T* z = out.data<T>();
    parallel_for(rows, std::max<int64_t>(1, kGrain / work), [&](int64_t begin, int64_t end) {
      constexpr int64_t block = 256;  // columns summed at a time, close to the processor
      T sums[block];
      for (int64_t i = begin; i < end; ++i) {
        int64_t j0 = 0;
        if constexpr (std::is_same_v<T, float>)
          for (; j0 + FloatBlock::width <= width; j0 += FloatBlock::width)
            FloatBlock::sum(by_row, by_row.start[i], by_row.start[i + 1], x, column_of, y + j0, width,
                            z + i * width + j0);
        for (; j0 < width; j0 += block) {
          const int64_t m = std::min(block, width - j0);
          std::fill_n(sums, m, T(0));
          for (int64_t k = by_row.start[i]; k < by_row.start[i + 1]; ++k) {
            const int64_t e = by_row.at(k);
            const T factor = x[e];
            const T* from = y + column_of[e] * width + j0;
#pragma GCC ivdep
            for (int64_t j = 0; j < m; ++j) sums[j] += factor * from[j];
          }
          std::copy_n(sums, m, z + i * width + j0);
        }
      }
    });
  });
  return to_dtype(out, dense.dtype());
}

Tensor sparse_dots(const Tensor& row, const Tensor& column, const Tensor& a, const Tensor& b) {
  FL_CHECK(a.dim() == 2 && b.dim() == 2 && a.size(1) == b.size(1) && a.dtype() == b.dtype(),
           "[sampled_addmm] expected two matrices of one width and dtype, got ", name_of(a.dtype()),
           " of shape ", a.sizes(), " and ", name_of(b.dtype()), " of shape ", b.sizes());
  const int64_t n = row.numel(), width = a.size(1);
  if (a.is_meta()) return empty({n}, a.options());
  const DType computed = compute_of(a.dtype());
  Tensor out = empty({n}, {computed, a.device()});
  const Tensor r = checked("sampled_addmm", row, n, a.size(0)),
               c = checked("sampled_addmm", column, n, b.size(0));
  const Tensor left = contiguous(to_dtype(a, computed)), right = contiguous(to_dtype(b, computed));
  const int64_t *rows = r.data<int64_t>(), *columns = c.data<int64_t>();
  dispatch_compute(computed, [&](auto type) {
    using T = typename decltype(type)::type;
    const T *x = left.data<T>(), *y = right.data<T>();
    T* z = out.data<T>();
    parallel_for(n, std::max<int64_t>(1, kGrain / (width + 1)), [&](int64_t begin, int64_t end) {
      constexpr int64_t lanes = 8;
      for (int64_t i = begin; i < end; ++i) {
        const T *p = x + rows[i] * width, *q = y + columns[i] * width;
        T sums[lanes] = {};
        int64_t j = 0;
        for (; j + lanes <= width; j += lanes)
          for (int64_t l = 0; l < lanes; ++l) sums[l] += p[j + l] * q[j + l];
        T total(0);
        for (; j < width; ++j) total += p[j] * q[j];
        for (T s : sums) total += s;
        z[i] = total;
      }
    });
  });
  return to_dtype(out, a.dtype());
}

FL_KERNEL("_sparse_groups", groups, kCpu);
FL_KERNEL("_sparse_mm", sparse_mm, kCpu);
FL_KERNEL("_sparse_dots", sparse_dots, kCpu);

}  // namespace
}  // namespace fl

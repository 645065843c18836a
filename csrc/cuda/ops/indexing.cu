// Elements named by index tensors: gather, scatter, index, index_put, index_select, embedding. One walk
// serves all of them: for each element of the selection, the place in the indexed tensor is the sum of its
// position in the dimensions that are not indexed and of index * stride for those that are.
//
// An index out of bounds cannot raise from a kernel. It touches no memory, and is reported by the next call
// that waits for the device.
#include <thrust/iterator/counting_iterator.h>
#include <cub/device/device_select.cuh>

#include "cuda/engine/device.cuh"
#include "cuda/engine/rows.cuh"
#include "cuda/runtime/launch.h"
#include "dispatch/kernel.h"
#include "ops/indexed.h"
#include "ops/iterator.h"

namespace fl::cuda {

namespace {

constexpr int kIndices = 5;

struct IndexArgs {
  char* data;     // the indexed tensor
  char* partner;  // what is read from it or written to it
  const int64_t* index[kIndices];
  int64_t size[kIndices], place[kIndices];  // of the indexed dimensions; places in bytes
  int indices;
  bool wrap;  // negative indices count from the end
  int64_t n;
  DType dtype;
  int item;
  Geometry<2 + kIndices> geometry;  // data, partner, indices
  int* failed;
};

__device__ __forceinline__ char* place_of(const IndexArgs& a, const int64_t (&at)[2 + kIndices]) {
  int64_t offset = at[0];
  bool inside = true;
#pragma unroll
  for (int k = 0; k < kIndices; ++k) {
    if (k == a.indices) break;
    int64_t i = *reinterpret_cast<const int64_t*>(reinterpret_cast<const char*>(a.index[k]) + at[2 + k]);
    if (a.wrap && i < 0) i += a.size[k];
    inside &= i >= 0 && i < a.size[k];
    offset += i * a.place[k];
  }
  if (!inside) {
    *a.failed = 1;
    return nullptr;
  }
  return a.data + offset;
}

// f(place in the indexed tensor, or null where an index is out of bounds; place in the partner) for a
// thread's elements.
template <class F>
__device__ __forceinline__ void each_indexed(const IndexArgs& a, F f) {
  for (int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x; i < a.n; i += int64_t(gridDim.x) * 256) {
    int64_t at[2 + kIndices];
    a.geometry.locate(static_cast<uint32_t>(i), at);
    f(place_of(a, at), a.partner + at[1]);
  }
}

template <class T>
__global__ void __launch_bounds__(256) read_indexed(const __grid_constant__ IndexArgs a) {
  wait_for_kernel_before();
  each_indexed(a, [](const char* from, char* to) {
    *reinterpret_cast<T*>(to) = from ? *reinterpret_cast<const T*>(from) : T{};
  });
}

template <class T>
__global__ void __launch_bounds__(256) write_indexed(const __grid_constant__ IndexArgs a) {
  wait_for_kernel_before();
  each_indexed(a, [](char* to, const char* from) {
    if (to) *reinterpret_cast<T*>(to) = *reinterpret_cast<const T*>(from);
  });
}

// Any combination of one element, by comparing and swapping the word that holds it.
template <class C>
__device__ __forceinline__ C combined(C x, C y, Combine how) {
  switch (how) {
    case Combine::Add:
      return x + y;
    case Combine::Mul:
      return x * y;
    case Combine::Max:
      return x != x ? x : y > x || y != y ? y : x;
    default:
      return x != x ? x : y < x || y != y ? y : x;
  }
}
template <class C>
__device__ void combine_slowly(char* to, DType dtype, int item, C value, Combine how) {
  if (item == 8) {
    auto* word = reinterpret_cast<unsigned long long*>(to);
    unsigned long long seen = *word, before;
    do {
      before = seen;
      unsigned long long fresh = 0;
      store<C>(reinterpret_cast<char*>(&fresh), dtype,
               combined(load<C>(reinterpret_cast<const char*>(&before), dtype), value, how));
      seen = atomicCAS(word, before, fresh);
    } while (seen != before);
    return;
  }
  const int within = static_cast<int>(reinterpret_cast<uintptr_t>(to) & 3);
  auto* word = reinterpret_cast<unsigned*>(to - within);
  unsigned seen = *word, before;
  do {
    before = seen;
    unsigned fresh = before;
    char* at = reinterpret_cast<char*>(&fresh) + within;
    store<C>(at, dtype, combined(load<C>(at, dtype), value, how));
    seen = atomicCAS(word, before, fresh);
  } while (seen != before);
}

template <class C>
__global__ void __launch_bounds__(256) combine_indexed(const __grid_constant__ IndexArgs a, Combine how) {
  each_indexed(a, [&](char* to, const char* from) {
    if (!to) return;
    const C value = load<C>(from, a.dtype);
    if (how == Combine::Add && a.dtype == DType::Float)
      atomicAdd(reinterpret_cast<float*>(to), static_cast<float>(value));
    else if (how == Combine::Add && a.dtype == DType::Double)
      atomicAdd(reinterpret_cast<double*>(to), static_cast<double>(value));
    else if (how == Combine::Add && a.dtype == DType::Int64)
      atomicAdd(reinterpret_cast<unsigned long long*>(to),
                static_cast<unsigned long long>(static_cast<int64_t>(value)));
    else if (how == Combine::Add && a.dtype == DType::BFloat16)
      atomicAdd(reinterpret_cast<__nv_bfloat16*>(to), __float2bfloat16(static_cast<float>(value)));
    else if (how == Combine::Add && a.dtype == DType::Half)
      atomicAdd(reinterpret_cast<__half*>(to), __float2half(static_cast<float>(value)));
    else
      combine_slowly<C>(to, a.dtype, a.item, value, how);
  });
}

// Sums of complex numbers, part by part.
template <class T>
__global__ void __launch_bounds__(256) add_complex(const __grid_constant__ IndexArgs a) {
  each_indexed(a, [](char* place, const char* partner) {
    if (!place) return;
    T* to = reinterpret_cast<T*>(place);
    const T* from = reinterpret_cast<const T*>(partner);
    atomicAdd(to, from[0]);
    atomicAdd(to + 1, from[1]);
  });
}

}  // namespace

int* failure_flag() {
  static int* flag = [] {
    int* p = nullptr;
    check(
        cudaHostAlloc(reinterpret_cast<void**>(&p), sizeof(int), cudaHostAllocMapped | cudaHostAllocPortable),
        "index");
    *p = 0;
    return p;
  }();
  return flag;
}

namespace {

// What an indexed call works on: shapes broadcast to `shape`, whose dimensions the strides are for.
struct Selection {
  Dims shape;
  Dims data_strides;  // elements; zero along the index dimensions
  Tensor data, partner;
  std::vector<Tensor> index;  // int64, expanded to shape
  std::vector<int64_t> size, place;
};

Tensor expanded(const char* op, const Tensor& t, IntSpan shape) {
  const int64_t lead = static_cast<int64_t>(shape.size()) - t.dim();
  FL_CHECK(lead >= 0, "[", op, "] expected shapes that broadcast to ", shape, ", got ", t.sizes());
  Dims strides(shape.size());
  for (int64_t d = 0; d < t.dim(); ++d) {
    FL_CHECK(t.size(d) == shape[lead + d] || t.size(d) == 1, "[", op, "] expected shapes that broadcast to ",
             shape, ", got ", t.sizes());
    strides[lead + d] = t.size(d) == 1 ? 0 : t.stride(d);
  }
  return alias(t, shape, strides, t.offset());
}

struct IndexedDim {
  int64_t size, stride[2 + kIndices];
};

// Elements that are only moved go in larger words where rows of them lie side by side under one index.
void widen(IndexArgs& a, std::vector<IndexedDim>& dims) {
  if (dims.empty() || dims[0].stride[0] != a.item || dims[0].stride[1] != a.item) return;
  for (int i = 0; i < a.indices; ++i)
    if (dims[0].stride[2 + i] != 0) return;
  uint64_t common = reinterpret_cast<uintptr_t>(a.data) | reinterpret_cast<uintptr_t>(a.partner) |
                    static_cast<uint64_t>(dims[0].size * a.item);
  for (size_t d = 1; d < dims.size(); ++d) common |= dims[d].stride[0] | dims[d].stride[1];
  for (int i = 0; i < a.indices; ++i) common |= a.place[i];
  int word = 16;
  while (common & (word - 1)) word /= 2;
  if (word <= a.item) return;
  a.n = a.n * a.item / word;
  dims[0].size = dims[0].size * a.item / word;
  dims[0].stride[0] = dims[0].stride[1] = a.item = word;
}

template <class F>
void run(const char* op, const Selection& s, bool wrap, bool moves, F&& launch) {
  const int64_t n = numel_of(s.shape);
  if (n == 0) return;
  FL_CHECK(n < int64_t(1) << 31 && s.index.size() <= kIndices, "[", op,
           "] expected at most 2**31 elements and ", kIndices, " index tensors on CUDA, got ", n);
  OnDevice on(s.data.device().index);
  IndexArgs a{};
  a.data = s.data.raw();
  a.partner = s.partner.raw();
  a.indices = static_cast<int>(s.index.size());
  a.wrap = wrap;
  a.n = n;
  a.dtype = s.data.dtype();
  a.item = static_cast<int>(s.data.itemsize());
  a.failed = failure_flag();
  for (int i = 0; i < a.indices; ++i) {
    a.index[i] = s.index[i].data<int64_t>();
    a.size[i] = s.size[i];
    a.place[i] = s.place[i] * a.item;
  }
  // Innermost first; neighbours that lie alike everywhere are merged.
  std::vector<IndexedDim> dims;
  for (size_t k = s.shape.size(); k-- > 0;) {
    if (s.shape[k] == 1) continue;
    IndexedDim dim{s.shape[k], {s.data_strides[k] * a.item, s.partner.stride(k) * a.item}};
    for (int i = 0; i < a.indices; ++i) dim.stride[2 + i] = s.index[i].stride(k) * 8;
    bool joins = !dims.empty();
    for (int i = 0; joins && i < 2 + a.indices; ++i)
      joins = dim.stride[i] == dims.back().stride[i] * dims.back().size;
    if (joins)
      dims.back().size *= dim.size;
    else
      dims.push_back(dim);
  }
  FL_CHECK(dims.size() <= kMaxDims, "[", op, "] expected at most ", kMaxDims, " dimensions on CUDA");
  if (moves) widen(a, dims);
  a.geometry.ndim = static_cast<int>(dims.size());
  for (int d = 0; d < a.geometry.ndim; ++d) {
    a.geometry.size[d] = Divider(static_cast<uint32_t>(dims[d].size));
    for (int i = 0; i < 2 + kIndices; ++i)
      a.geometry.stride[i][d] = i < 2 + a.indices ? dims[d].stride[i] : 0;
  }
  launch(a, static_cast<unsigned>((a.n + 255) / 256), current_stream());
}

void read(const char* op, const Selection& s, bool wrap) {
  run(op, s, wrap, true, [op](const IndexArgs& a, unsigned blocks, cudaStream_t stream) {
    by_size(a.item,
            [&](auto word) { launch_early(read_indexed<decltype(word)>, blocks, 256, stream, op, a); });
  });
}

void write(const char* op, const Selection& s, bool wrap, Combine how) {
  const DType t = s.data.dtype();
  FL_CHECK_KIND(how == Combine::Assign || (!is_stored_only(t) && (!is_complex(t) || how == Combine::Add)),
                NotImplemented, "[", op, "] expected a dtype that CUDA kernels combine, got ", name_of(t));
  run(op, s, wrap, how == Combine::Assign,
      [op, how](const IndexArgs& a, unsigned blocks, cudaStream_t stream) {
        if (how != Combine::Assign) {
          if (a.dtype == DType::ComplexFloat)
            launch(add_complex<float>, blocks, 256, stream, op, a);
          else if (a.dtype == DType::ComplexDouble)
            launch(add_complex<double>, blocks, 256, stream, op, a);
          else if (a.dtype == DType::Double)
            launch(combine_indexed<double>, blocks, 256, stream, op, a, how);
          else if (is_floating(a.dtype))
            launch(combine_indexed<float>, blocks, 256, stream, op, a, how);
          else
            launch(combine_indexed<int64_t>, blocks, 256, stream, op, a, how);
          return;
        }
        by_size(a.item,
                [&](auto word) { launch_early(write_indexed<decltype(word)>, blocks, 256, stream, op, a); });
      });
}

// ---------------------------------------------------------------- gather and scatter

Tensor as_index(const char* op, const Tensor& index, Device device) {
  FL_CHECK(index.dtype() == DType::Int64 || index.dtype() == DType::Int32, "[", op,
           "] expected indices of dtype int64 or int32, got ", name_of(index.dtype()));
  FL_CHECK(index.device() == device, "[", op, "] expected indices on ", to_string(device), ", got ",
           to_string(index.device()));
  return to_dtype(index, DType::Int64);
}

Selection along(const char* op, const Tensor& data, int64_t dim, const Tensor& index, const Tensor& partner) {
  Selection s;
  s.data = at_least_1d(data);
  s.partner = at_least_1d(partner);
  const Tensor idx = at_least_1d(as_index(op, index, data.device()));
  FL_CHECK(s.data.dim() == idx.dim() && s.partner.dim() == idx.dim(), "[", op, "] expected an index of ",
           data.dim(), " dimensions, got shape ", index.sizes());
  const int64_t d = wrap_dim(op, dim, data.dim());
  for (int64_t k = 0; k < idx.dim(); ++k) {
    FL_CHECK(k == d || idx.size(k) <= s.data.size(k), "[", op, "] expected an index no larger than ",
             data.sizes(), " apart from dimension ", d, ", got shape ", index.sizes());
    FL_CHECK(idx.size(k) <= s.partner.size(k), "[", op, "] expected an index no larger than the source ",
             partner.sizes(), ", got shape ", index.sizes());
  }
  s.shape = Dims(idx.sizes());
  s.data_strides = Dims(s.data.strides());
  s.data_strides[d] = 0;
  s.index = {idx};
  s.size = {s.data.size(d)};
  s.place = {s.data.stride(d)};
  return s;
}

Tensor gather(const Tensor& self, int64_t dim, const Tensor& index, bool) {
  const Tensor out = empty(index.sizes(), self.options());
  wrap_dim("gather", dim, self.dim());
  if (index.numel()) read("gather", along("gather", self, dim, index, out), false);
  return out;
}

Tensor scattered(const char* op, const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src,
                 Combine how) {
  FL_CHECK(self.dtype() == src.dtype(), "[", op, "] expected a source of dtype ", name_of(self.dtype()),
           ", got ", name_of(src.dtype()));
  self.bump_version();
  if (index.numel()) write(op, along(op, self, dim, index, src), false, how);
  return self;
}
Tensor scatter_src_(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src) {
  return scattered("scatter", self, dim, index, src, Combine::Assign);
}
Tensor scatter_src(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src) {
  return scatter_src_(copied_contiguous(self), dim, index, src);
}
Tensor scatter_add_(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src) {
  return scattered("scatter_add", self, dim, index, src, Combine::Add);
}
Tensor scatter_add(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src) {
  return scatter_add_(copied_contiguous(self), dim, index, src);
}
// One number for all places.
Tensor scatter_value_(const Tensor& self, int64_t dim, const Tensor& index, const Scalar& value) {
  const Tensor one = scalar_tensor(value, {self.dtype(), self.device()});
  const Dims zero(index.dim());
  return scatter_src_(self, dim, index, alias(one, index.sizes(), zero, 0));
}
Tensor scatter_value(const Tensor& self, int64_t dim, const Tensor& index, const Scalar& value) {
  return scatter_value_(copied_contiguous(self), dim, index, value);
}

Tensor scatter_reduce(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src,
                      std::string_view reduce, bool include_self) {
  const Combine how = reduce == "sum"    ? Combine::Add
                      : reduce == "prod" ? Combine::Mul
                      : reduce == "amax" ? Combine::Max
                                         : Combine::Min;
  FL_CHECK(how != Combine::Min || reduce == "amin",
           "[scatter_reduce] expected reduce sum, prod, mean, amax or amin, got ", reduce);
  const Tensor out = copied_contiguous(self);
  if (!include_self) scatter_value_(out, dim, index, identity_of(how, self.dtype()));
  return scattered("scatter_reduce", out, dim, index, src, how);
}
// Means, and products of complex numbers, go by the definition.
void scatter_reduce_or_define(const Operator& op, void* context, KeySet keys, Value* args, Value* results) {
  const bool sums = args[4].string() == "sum", complex = is_complex(args[0].tensor().dtype());
  if (args[4].string() == "mean" || (complex && !sums)) return by_definition(op, keys, args, results);
  checked<&scatter_reduce>(op, context, keys, args, results);
}
const detail::Register scatter_reduction{
    "scatter_reduce.two", {Key::CUDA}, Kernel{scatter_reduce_or_define, nullptr}};

// ---------------------------------------------------------------- non-zero elements

struct IsSet {
  const bool* flags;
  __device__ __forceinline__ bool operator()(int64_t i) const { return flags[i]; }
};

__global__ void coordinates(const int64_t* flat, int64_t* out, int64_t count, int ndim,
                            const Geometry<1> shape) {
  const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
  if (i >= count) return;
  uint32_t rest = static_cast<uint32_t>(flat[i]);
  for (int d = 0; d < ndim; ++d) {
    const uint32_t q = shape.size[d].divide(rest);
    out[(ndim - 1 - d) * count + i] = rest - q * shape.size[d].divisor;
    rest = q;
  }
}

// Positions of the set elements in row-major order, by one pass of selection; waits for their number.
Tensor positions(const Tensor& mask) {
  const Tensor flags = contiguous(to_dtype(mask, DType::Bool));
  const int64_t n = flags.numel();
  const Device device = mask.device();
  Tensor places = empty({n}, {DType::Int64, device});
  if (n == 0) return places;
  FL_CHECK(n < int64_t(1) << 31, "[nonzero] expected at most 2**31 elements on CUDA, got ", n);
  OnDevice on(device.index);
  const cudaStream_t stream = current_stream();
  const Tensor count = empty({}, {DType::Int64, device});
  thrust::counting_iterator<int64_t> all(0);
  size_t bytes = 0;
  check(cub::DeviceSelect::If(nullptr, bytes, all, places.data<int64_t>(), count.data<int64_t>(), int(n),
                              IsSet{flags.data<bool>()}, stream),
        "nonzero");
  Scratch scratch(bytes, device.index, stream);
  check(cub::DeviceSelect::If(scratch.get(), bytes, all, places.data<int64_t>(), count.data<int64_t>(),
                              int(n), IsSet{flags.data<bool>()}, stream),
        "nonzero");
  const int64_t total = item(count).to<int64_t>();
  return alias(places, {total}, {1}, 0);
}

Tensor nonzero(const Tensor& self) {
  const Tensor flat = positions(self);
  const int64_t count = flat.numel(), nd = self.dim();
  // A coordinate after the other, as on the CPU.
  const Tensor lines = empty({nd, count}, {DType::Int64, self.device()});
  const Tensor out = alias(lines, {count, nd}, {1, std::max<int64_t>(count, 1)}, 0);
  if (count == 0 || nd == 0) return out;
  FL_CHECK(nd <= kMaxDims, "[nonzero] expected at most ", kMaxDims, " dimensions on CUDA, got ", nd);
  Geometry<1> shape;
  shape.ndim = static_cast<int>(nd);
  for (int64_t d = 0; d < nd; ++d) shape.size[d] = Divider(static_cast<uint32_t>(self.size(nd - 1 - d)));
  OnDevice on(self.device().index);
  launch(coordinates, static_cast<unsigned>((count + 255) / 256), 256, current_stream(), "nonzero",
         flat.data<int64_t>(), out.data<int64_t>(), count, int(nd), shape);
  return out;
}

// ---------------------------------------------------------------- lists of index tensors

Tensor moved(const Tensor& t, Device device) {
  if (t.device() == device) return t;
  const Tensor there = empty(t.sizes(), {t.dtype(), device});
  copy_into(there, t);
  return there;
}

Selection selection(const char* op, const Tensor& self, const std::vector<Tensor>& index_list) {
  // Masks become the positions where they are true, one index for each of their dimensions.
  std::vector<Tensor> indices;
  for (const Tensor& t : index_list) {
    if (!t.defined()) {
      indices.push_back(t);
      continue;
    }
    FL_CHECK_KIND(t.dtype() == DType::Bool || is_integral(t.dtype()), Index, "[", op,
                  "] expected indices of integer or bool dtype, got ", name_of(t.dtype()));
    if (t.dtype() == DType::Bool || t.dtype() == DType::UInt8) {
      const int64_t first = static_cast<int64_t>(indices.size());
      for (int64_t d = 0; d < t.dim(); ++d)
        FL_CHECK_KIND(first + d < self.dim() && t.size(d) == self.size(first + d), Index, "[", op,
                      "] expected a mask of the shape of what it selects from, got ", t.sizes(), " for ",
                      self.sizes());
      const Tensor places = nonzero(moved(t, self.device()));
      for (int64_t d = 0; d < t.dim(); ++d)
        indices.push_back(alias(places, {places.size(0)}, {1}, d * places.stride(1)));
    } else {
      indices.push_back(moved(to_dtype(t, DType::Int64), self.device()));
    }
  }
  FL_CHECK_KIND(static_cast<int64_t>(indices.size()) <= self.dim(), Index, "[", op, "] expected at most ",
                self.dim(), " indices for shape ", self.sizes(), ", got ",
                static_cast<int64_t>(indices.size()));
  indices.resize(self.dim());
  Dims common;
  bool any = false, adjacent = true;
  int64_t first = -1, last = -1;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (!indices[d].defined()) continue;
    if (any && d != last + 1) adjacent = false;
    if (first < 0) first = d;
    last = d;
    try {
      common = any ? broadcast_shapes(op, common, indices[d].sizes()) : Dims(indices[d].sizes());
    } catch (const Error& error) {
      fail(ErrorKind::Index, error.what());
    }
    any = true;
  }
  Selection s;
  s.data = self;
  const int64_t lead = any && adjacent ? first : 0;
  const auto add_common = [&] {
    for (int64_t n : common) {
      s.shape.push_back(n);
      s.data_strides.push_back(0);
    }
  };
  int64_t before = 0;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (any && before == lead && (adjacent ? d == first : d == 0)) add_common();
    if (indices[d].defined()) continue;
    s.shape.push_back(self.size(d));
    s.data_strides.push_back(self.stride(d));
    ++before;
  }
  const size_t at = any ? static_cast<size_t>(lead) : 0;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (!indices[d].defined()) continue;
    // The index dimensions stand at `at`; the others are repeated.
    const Tensor wide = expanded(op, indices[d], common);
    Dims strides(s.shape.size());
    for (size_t k = 0; k < common.size(); ++k) strides[at + k] = wide.stride(k);
    s.index.push_back(alias(wide, s.shape, strides, wide.offset()));
    s.size.push_back(self.size(d));
    s.place.push_back(self.stride(d));
  }
  return s;
}

Tensor index(const Tensor& self, const std::vector<Tensor>& indices) {
  Selection s = selection("index", self, indices);
  const Tensor out = empty(s.shape, self.options());
  s.partner = out;
  read("index", s, true);
  return out;
}

Tensor index_put_(const Tensor& self, const std::vector<Tensor>& indices, const Tensor& values,
                  bool accumulate) {
  Tensor from = values;
  // One value under one mask is a fill, and a fill converts.
  int64_t indexed = 0;
  bool fill = !accumulate && from.numel() == 1;
  for (const Tensor& t : indices)
    if (t.defined()) {
      fill &= t.dtype() == DType::Bool && self.dim() > 0;
      ++indexed;
    }
  if (fill && indexed == 1) from = to_dtype(from, self.dtype());
  FL_CHECK(self.dtype() == from.dtype(), "[index_put_] expected values of dtype ", name_of(self.dtype()),
           ", got ", name_of(from.dtype()));
  Selection s = selection("index_put_", self, indices);
  if (from.device() != self.device()) {
    FL_CHECK(from.is_cpu() && from.numel() == 1, "[index_put_] expected values on ", to_string(self.device()),
             ", got ", to_string(from.device()));
    from = moved(from, self.device());
  }
  if (from->storage.get() == self->storage.get()) from = copied(from);
  while (from.dim() > static_cast<int64_t>(s.shape.size()) && from.size(0) == 1)
    from = alias(from, IntSpan(from.sizes().begin() + 1, from.dim() - 1),
                 IntSpan(from.strides().begin() + 1, from.dim() - 1), from.offset());
  s.partner = expanded("index_put_", from, s.shape);
  self.bump_version();
  write("index_put_", s, true, accumulate ? Combine::Add : Combine::Assign);
  return self;
}
Tensor index_put(const Tensor& self, const std::vector<Tensor>& indices, const Tensor& values,
                 bool accumulate) {
  return index_put_(copied(self), indices, values, accumulate);
}

Tensor index_select(const Tensor& self, int64_t dim, const Tensor& index) {
  FL_CHECK(index.dim() <= 1, "[index_select] expected an index of at most one dimension, got ",
           index.sizes());
  const int64_t d = wrap_dim("index_select", dim, self.dim());
  const Tensor idx = at_least_1d(as_index("index_select", index, self.device())), data = at_least_1d(self);
  Selection s;
  s.data = data;
  s.shape = Dims(data.sizes());
  s.shape[d] = idx.size(0);
  s.data_strides = Dims(data.strides());
  s.data_strides[d] = 0;
  Dims strides(s.shape.size());
  strides[d] = idx.stride(0);
  s.index = {alias(idx, s.shape, strides, idx.offset())};
  s.size = {data.size(d)};
  s.place = {data.stride(d)};
  const Tensor out = self.dim() ? empty(s.shape, self.options()) : empty({}, self.options());
  s.partner = at_least_1d(out);
  read("index_select", s, false);
  return out;
}

Tensor embedding(const Tensor& weight, const Tensor& indices, int64_t, bool, bool) {
  FL_CHECK(weight.dim() == 2, "[embedding] expected a weight of 2 dimensions, got ", weight.sizes());
  const Tensor idx = as_index("embedding", indices, weight.device());
  Selection s;
  s.data = weight;
  s.shape = Dims(indices.sizes());
  s.shape.push_back(weight.size(1));
  s.data_strides = Dims(s.shape.size());
  s.data_strides.back() = weight.stride(1);
  Dims strides(idx.strides());
  strides.push_back(0);
  s.index = {alias(idx, s.shape, strides, idx.offset())};
  s.size = {weight.size(0)};
  s.place = {weight.stride(0)};
  s.partner = empty(s.shape, weight.options());
  read("embedding", s, false);
  return s.partner;
}

// ---------------------------------------------------------------- slices along a dimension

// Writes slices of the source to those of `self` that the index names: a scatter whose index is the same for
// all elements of a slice. The operator's arguments have been checked.
void write_slices(const char* op, const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                  Combine how) {
  const Tensor to = at_least_1d(self), from = at_least_1d(source);
  const int64_t d = wrap_dim(op, dim, to.dim());
  const Tensor flat = at_least_1d(as_index(op, index, self.device()));
  Dims strides(static_cast<size_t>(from.dim()));
  strides[d] = flat.stride(0);
  scattered(op, to, d, alias(flat, from.sizes(), strides, flat.offset()), from, how);
}

template <bool kInPlace>
void index_copy(const Operator& op, void*, KeySet, Value* args, Value* results) {
  check_on_device(op, args);
  Described described(op, args);
  OnDevice on(args[0].tensor().device().index);
  const Tensor self = kInPlace ? args[0].tensor() : copied_contiguous(args[0].tensor());
  write_slices("index_copy", self, args[1].to_int(), args[2].tensor(), args[3].tensor(), Combine::Assign);
  results[0] = Value(self);
}

template <bool kInPlace>
void index_add(const Operator& op, void*, KeySet keys, Value* args, Value* results) {
  check_on_device(op, args);
  Described described(op, args);
  const Tensor target = args[0].tensor();
  OnDevice on(target.device().index);
  const Scalar alpha = args[4].to_scalar();
  if (alpha.is_complex() || alpha.to<double>() != 1.0) {
    Value copy[1];
    by_definition(OperatorTable::get().at("index_add"), keys, args, copy);
    if (kInPlace) copy_into(target, copy[0].tensor());
    if (kInPlace) target.bump_version();
    results[0] = kInPlace ? Value(target) : std::move(copy[0]);
    return;
  }
  const Tensor self = kInPlace ? target : copied_contiguous(target);
  write_slices("index_add", self, args[1].to_int(), args[2].tensor(), args[3].tensor(), Combine::Add);
  results[0] = Value(self);
}

const detail::Register index_copy_kernel{"index_copy", {Key::CUDA}, Kernel{index_copy<false>, nullptr}};
const detail::Register index_copy_kernel_in_place{
    "index_copy_", {Key::CUDA}, Kernel{index_copy<true>, nullptr}};
const detail::Register index_add_kernel{"index_add", {Key::CUDA}, Kernel{index_add<false>, nullptr}};
const detail::Register index_add_kernel_in_place{"index_add_", {Key::CUDA}, Kernel{index_add<true>, nullptr}};

FL_CUDA_KERNEL("gather", gather);
FL_CUDA_KERNEL("scatter.src", scatter_src);
FL_CUDA_KERNEL("scatter_.src", scatter_src_);
FL_CUDA_KERNEL("scatter.value", scatter_value);
FL_CUDA_KERNEL("scatter_.value", scatter_value_);
FL_CUDA_KERNEL("scatter_add", scatter_add);
FL_CUDA_KERNEL("scatter_add_", scatter_add_);
FL_CUDA_KERNEL_MIXED("nonzero", nonzero);
FL_CUDA_KERNEL_MIXED("index.Tensor", index);
FL_CUDA_KERNEL_MIXED("index_put_", index_put_);
FL_CUDA_KERNEL_MIXED("index_put", index_put);
FL_CUDA_KERNEL("index_select", index_select);
FL_CUDA_KERNEL("embedding", embedding);

}  // namespace

void check_indices() {
  int* flag = failure_flag();
  if (__builtin_expect(*flag, 0)) {
    *flag = 0;
    fail(ErrorKind::Index,
         "[index] an earlier kernel on this device was given an index out of bounds; CUDA_LAUNCH_BLOCKING=1 "
         "shows which call it was");
  }
}

}  // namespace fl::cuda

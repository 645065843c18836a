// Cutting a tensor into views along a dimension. split and unbind make all their views at once, which may not
// be written in place while gradients are recorded; the NumPy-style relatives are decompositions into slice.
#include "autograd/node.h"
#include "dispatch/kernel.h"

namespace fl {
namespace {

Tensor slice(const Tensor& self, int64_t dim, int64_t start, int64_t end) {
  static const Operator& op = OperatorTable::get().at("slice");
  return call_tensor(op, self, dim, start, end, int64_t(1));
}

// Pieces of the given lengths.
std::vector<Tensor> pieces(const Tensor& self, int64_t d, IntSpan lengths) {
  std::vector<Tensor> out;
  out.reserve(lengths.size());
  Dims sizes(self.sizes());
  int64_t offset = self.offset();
  for (int64_t length : lengths) {
    sizes[d] = length;
    out.push_back(alias(self, sizes, self.strides(), offset));
    offset += length * self.stride(d);
  }
  return out;
}

std::vector<Tensor> split(const Tensor& self, int64_t split_size, int64_t dim) {
  FL_CHECK(self.dim() > 0, "[split] expected a tensor with dimensions, got a 0-d tensor");
  FL_CHECK(split_size >= 0, "[split] expected a split size that is not negative, got ", split_size);
  const int64_t d = wrap_dim("split", dim, self.dim()), n = self.size(d);
  FL_CHECK(split_size > 0 || n == 0, "[split] expected a positive split size for a dimension of size ", n,
           ", got 0");
  std::vector<int64_t> lengths(split_size ? std::max<int64_t>((n + split_size - 1) / split_size, 1) : 1,
                               split_size);
  lengths.back() = n - split_size * (static_cast<int64_t>(lengths.size()) - 1);
  return pieces(self, d, lengths);
}

std::vector<Tensor> split_with_sizes(const Tensor& self, IntSpan sizes, int64_t dim) {
  FL_CHECK(self.dim() > 0, "[split_with_sizes] expected a tensor with dimensions, got a 0-d tensor");
  const int64_t d = wrap_dim("split_with_sizes", dim, self.dim()), n = self.size(d);
  int64_t total = 0;
  for (int64_t s : sizes) {
    FL_CHECK(s >= 0, "[split_with_sizes] expected sizes that are not negative, got ", sizes);
    if (__builtin_add_overflow(total, s, &total)) total = -1;
  }
  FL_CHECK(total == n, "[split_with_sizes] expected sizes that sum to ", n, ", the size of dimension ", d,
           ", got ", sizes);
  return pieces(self, d, sizes);
}

std::vector<Tensor> call_split(const char* name, const Tensor& self, const Value& how, int64_t dim) {
  Value args[3] = {Value::borrow(self.impl()), how, Value(dim)};
  Value result[1];
  OperatorTable::get().at(name).call(args, result);
  return {result[0].tensors(), result[0].tensors() + result[0].length()};
}

constexpr int64_t kMostParts = int64_t(1)
                               << 24;  // more (mostly empty) views than this would only exhaust the memory

std::vector<Tensor> chunk(const Tensor& self, int64_t chunks, int64_t dim) {
  FL_CHECK(self.dim() > 0, "[chunk] expected a tensor with dimensions, got a 0-d tensor");
  FL_CHECK(chunks > 0, "[chunk] expected a number of chunks greater than zero, got ", chunks,
           ": chunk expects `chunks` to be greater than 0");
  const int64_t d = wrap_dim("chunk", dim, self.dim()), n = self.size(d);
  FL_CHECK_KIND(chunks <= kMostParts, OutOfMemory, "[chunk] expected at most ", kMostParts, " chunks, got ",
                chunks);
  const int64_t size = (n + chunks - 1) / chunks;
  if (size == 0) return call_split("split_with_sizes", self, Value(std::vector<int64_t>(chunks, 0)), d);
  return call_split("split.Tensor", self, Value(size), d);
}

// The base and the other pieces do not learn of writes to a piece of the unsafe forms.
std::vector<Tensor> forgetful(std::vector<Tensor>&& parts) {
  for (const Tensor& t : parts) {
    autograd::forget_base(t);
    if (!t->inference) t->own_version = std::make_shared<std::atomic<uint32_t>>(0);
  }
  return std::move(parts);
}
std::vector<Tensor> unsafe_split(const Tensor& self, int64_t size, int64_t dim) {
  return forgetful(call_split("split.Tensor", self, Value(size), dim));
}
std::vector<Tensor> unsafe_split_with_sizes(const Tensor& self, IntSpan sizes, int64_t dim) {
  return forgetful(call_split("split_with_sizes", self, Value(sizes.vec()), dim));
}
std::vector<Tensor> unsafe_chunk(const Tensor& self, int64_t chunks, int64_t dim) {
  return forgetful(chunk(self, chunks, dim));
}

std::vector<Tensor> cut_sections(const char* op, const Tensor& self, int64_t sections, int64_t dim) {
  FL_CHECK(self.dim() > 0, "[", op, "] expected a tensor with dimensions, got a 0-d tensor");
  const int64_t d = wrap_dim(op, dim, self.dim()), n = self.size(d);
  FL_CHECK(sections > 0, "[", op, "] expected a number of sections greater than zero, got ", sections);
  FL_CHECK_KIND(sections <= kMostParts, OutOfMemory, "[", op, "] expected at most ", kMostParts,
                " sections, got ", sections);
  std::vector<Tensor> out;
  int64_t at = 0;
  for (int64_t i = 0; i < sections; ++i) {
    const int64_t length = n / sections + (i < n % sections);
    out.push_back(slice(self, d, at, at + length));
    at += length;
  }
  return out;
}
std::vector<Tensor> cut_indices(const char* op, const Tensor& self, IntSpan indices, int64_t dim) {
  FL_CHECK(self.dim() > 0, "[", op, "] expected a tensor with dimensions, got a 0-d tensor");
  const int64_t d = wrap_dim(op, dim, self.dim());
  std::vector<Tensor> out;
  int64_t at = 0;
  for (int64_t i : indices) {
    out.push_back(slice(self, d, at, i));
    at = i;
  }
  out.push_back(slice(self, d, at, self.size(d)));
  return out;
}

std::vector<Tensor> tensor_split_sections(const Tensor& self, int64_t sections, int64_t dim) {
  return cut_sections("tensor_split", self, sections, dim);
}
std::vector<Tensor> tensor_split_indices(const Tensor& self, IntSpan indices, int64_t dim) {
  return cut_indices("tensor_split", self, indices, dim);
}
std::vector<Tensor> tensor_split_tensor(const Tensor& self, const Tensor& sections, int64_t dim) {
  FL_CHECK(sections.is_cpu(), "[tensor_split] expected sections or indices on the CPU, got ",
           to_string(sections.device()));
  FL_CHECK(sections.dtype() == DType::Int64,
           "[tensor_split] expected sections or indices of dtype int64, got ", name_of(sections.dtype()));
  FL_CHECK(sections.dim() <= 1, "[tensor_split] expected a number or a vector of indices, got shape ",
           sections.sizes());
  if (sections.dim() == 0) return cut_sections("tensor_split", self, item(sections).to<int64_t>(), dim);
  const Tensor dense = contiguous(sections);
  return cut_indices("tensor_split", self, {dense.data<int64_t>(), static_cast<size_t>(dense.numel())}, dim);
}

int64_t split_dim(const char* op, const Tensor& self, int64_t least) {
  FL_CHECK(self.dim() >= least, "[", op, "] expected at least ", least, " dimensions, got shape ",
           self.sizes(), ": torch.", op, " requires a tensor with at least ", least,
           " dimension, but got a tensor with ", self.dim(), " dimensions!");
  return least == 1 ? (self.dim() == 1 ? 0 : 1) : least == 2 ? 0 : 2;
}
std::vector<Tensor> even_split(const char* op, const Tensor& self, int64_t sections, int64_t least) {
  const int64_t d = split_dim(op, self, least);
  FL_CHECK(sections > 0 && self.size(d) % sections == 0, "[", op,
           "] expected a number of sections that divides ", self.size(d), ", got ", sections, ": torch.", op,
           " attempted to split along dimension ", d, ", but the size of the dimension ", self.size(d),
           " is not divisible by the split_size ", sections, "!");
  return cut_sections(op, self, sections, d);
}
std::vector<Tensor> hsplit(const Tensor& self, int64_t sections) {
  return even_split("hsplit", self, sections, 1);
}
std::vector<Tensor> vsplit(const Tensor& self, int64_t sections) {
  return even_split("vsplit", self, sections, 2);
}
std::vector<Tensor> dsplit(const Tensor& self, int64_t sections) {
  return even_split("dsplit", self, sections, 3);
}
std::vector<Tensor> hsplit_at(const Tensor& self, IntSpan indices) {
  return cut_indices("hsplit", self, indices, split_dim("hsplit", self, 1));
}
std::vector<Tensor> vsplit_at(const Tensor& self, IntSpan indices) {
  return cut_indices("vsplit", self, indices, split_dim("vsplit", self, 2));
}
std::vector<Tensor> dsplit_at(const Tensor& self, IntSpan indices) {
  return cut_indices("dsplit", self, indices, split_dim("dsplit", self, 3));
}

std::vector<Tensor> unbind(const Tensor& self, int64_t dim) {
  FL_CHECK_KIND(self.dim() > 0, Index, "[unbind] expected a tensor with dimensions, got a 0-d tensor");
  const int64_t d = wrap_dim("unbind", dim, self.dim()), n = self.size(d);
  Dims sizes, strides;
  for (int64_t i = 0; i < self.dim(); ++i) {
    if (i == d) continue;
    sizes.push_back(self.size(i));
    strides.push_back(self.stride(i));
  }
  std::vector<Tensor> out;
  out.reserve(n);
  for (int64_t i = 0; i < n; ++i)
    out.push_back(alias(self, sizes, strides, self.offset() + i * self.stride(d)));
  return out;
}

Tensor narrow(const Tensor& self, int64_t dim, int64_t start, int64_t length) {
  FL_CHECK(self.dim() > 0, "[narrow] expected a tensor with dimensions, got a 0-d tensor");
  FL_CHECK(length >= 0, "[narrow] expected a length that is not negative, got ", length);
  const int64_t d = wrap_dim("narrow", dim, self.dim()), n = self.size(d);
  FL_CHECK_KIND(start >= -n && start <= n, Index, "[narrow] expected a start in [", -n, ", ", n, "], got ",
                start);
  if (start < 0) start += n;
  FL_CHECK(start <= n - length, "[narrow] expected a range inside dimension ", d, " of size ", n,
           ", got start ", start, " and length ", length);
  return slice(self, d, start, start + length);
}
Tensor narrow_tensor(const Tensor& self, int64_t dim, const Tensor& start, int64_t length) {
  FL_CHECK(start.dim() == 0 && is_integral(start.dtype()),
           "[narrow] expected a 0-d integer tensor as start, got shape ", start.sizes(), " of ",
           name_of(start.dtype()));
  return narrow(self, dim, item(start).to<int64_t>(), length);
}

Tensor broadcast_to(const Tensor& self, IntSpan size) {
  static const Operator& op = OperatorTable::get().at("expand");
  Value args[3] = {Value::borrow(self.impl()), Value::borrow(size), Value(false)};
  Value result[1];
  op.call(args, result);
  return result[0].take_tensor();
}

FL_KERNEL("broadcast_to", broadcast_to, kComposite);
FL_KERNEL("split.Tensor", split, kEverywhere);
FL_KERNEL("split.sizes", split_with_sizes, kEverywhere);
FL_KERNEL("split_with_sizes", split_with_sizes, kEverywhere);
FL_KERNEL("unbind.int", unbind, kEverywhere);
FL_KERNEL("unsafe_split.Tensor", unsafe_split, kComposite);
FL_KERNEL("unsafe_split_with_sizes", unsafe_split_with_sizes, kComposite);
FL_KERNEL("chunk", chunk, kComposite);
FL_KERNEL("unsafe_chunk", unsafe_chunk, kComposite);
FL_KERNEL("tensor_split.sections", tensor_split_sections, kComposite);
FL_KERNEL("tensor_split.indices", tensor_split_indices, kComposite);
FL_KERNEL("tensor_split.tensor_indices_or_sections", tensor_split_tensor, kComposite);
FL_KERNEL("hsplit.int", hsplit, kComposite);
FL_KERNEL("hsplit.array", hsplit_at, kComposite);
FL_KERNEL("vsplit.int", vsplit, kComposite);
FL_KERNEL("vsplit.array", vsplit_at, kComposite);
FL_KERNEL("dsplit.int", dsplit, kComposite);
FL_KERNEL("dsplit.array", dsplit_at, kComposite);
FL_KERNEL("narrow", narrow, kComposite);
FL_KERNEL("narrow.Tensor", narrow_tensor, kComposite);

}  // namespace
}  // namespace fl

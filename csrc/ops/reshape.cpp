// Reshaping ops that are other views in disguise, or copy when no view will do: decompositions above the
// dispatcher, so that derivatives and other transformations see only the primitive views.
#include "core/views.h"
#include "core/warning.h"
#include "dispatch/kernel.h"
#include "ops/deferred.h"

#include <atomic>

namespace fl {
namespace {

template <class... A>
Tensor call(const char* name, const Operator*& op, const A&... args) {
  if (!op) op = &OperatorTable::get().at(name);
  return call_tensor(*op, args...);
}
// Calls an operator by name, looked up once at each place.
#define CALL(name, ...)                  \
  [&] {                                  \
    static const Operator* op = nullptr; \
    return call(name, op, __VA_ARGS__);  \
  }()

Tensor view(const Tensor& self, IntSpan sizes) {
  static const Operator& op = OperatorTable::get().at("view");
  Value args[2] = {Value::borrow(self.impl()), Value::borrow(sizes)};
  Value result[1];
  op.call(args, result);
  return result[0].take_tensor();
}
Tensor permute(const Tensor& self, IntSpan dims) {
  static const Operator& op = OperatorTable::get().at("permute");
  Value args[2] = {Value::borrow(self.impl()), Value::borrow(dims)};
  Value result[1];
  op.call(args, result);
  return result[0].take_tensor();
}
Tensor transpose(const Tensor& self, int64_t a, int64_t b) {
  return CALL("transpose", self, a, b);
}

Tensor reshape(const Tensor& self, IntSpan shape) {
  const Dims sizes = infer_size("reshape", shape, self.numel());
  if (self.is_contiguous() || view_strides(self.sizes(), self.strides(), sizes)) return view(self, sizes);
  return view(CALL("clone", self, Value(MemoryFormat::Contiguous)), sizes);
}

Tensor flatten(const Tensor& self, int64_t start_dim, int64_t end_dim) {
  const int64_t a = wrap_dim("flatten", start_dim, self.dim()), b = wrap_dim("flatten", end_dim, self.dim());
  FL_CHECK(a <= b, "[flatten] expected start_dim not after end_dim, got ", start_dim, " and ", end_dim,
           ": start_dim cannot come after end_dim");
  if (self.dim() == 0) return reshape(self, {1});
  if (a == b) return self;
  Dims sizes;
  int64_t joined = 1;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (d < a || d > b) {
      sizes.push_back(self.size(d));
      continue;
    }
    joined *= self.size(d);
    if (d == b) sizes.push_back(joined);
  }
  return reshape(self, sizes);
}

Tensor unflatten(const Tensor& self, int64_t dim, IntSpan sizes) {
  const int64_t d = wrap_dim("unflatten", dim, self.dim());
  FL_CHECK(sizes.size() > 0, "[unflatten] expected at least one size, got none");
  FL_CHECK_KIND(self.dim() > 0, Index, "[unflatten] expected a tensor with dimensions, got a 0-d tensor");
  const Dims inner = infer_size("unflatten", sizes, self.size(d));
  Dims all;
  for (int64_t i = 0; i < self.dim(); ++i) {
    if (i != d)
      all.push_back(self.size(i));
    else
      for (int64_t s : inner) all.push_back(s);
  }
  return view(self, all);
}

Tensor contiguous_op(const Tensor& self, MemoryFormat format) {
  FL_CHECK(format != MemoryFormat::Preserve,
           "[contiguous] expected a memory format to convert to, got preserve_format");
  if (self.is_contiguous(format)) return self;
  return CALL("clone", self, Value(format));
}

Tensor ravel(const Tensor& self) {
  return reshape(contiguous_op(self, MemoryFormat::Contiguous), {-1});
}
Tensor reshape_as(const Tensor& self, const Tensor& other) {
  return reshape(self, other.sizes());
}
Tensor view_as(const Tensor& self, const Tensor& other) {
  return view(self, other.sizes());
}
Tensor expand_as(const Tensor& self, const Tensor& other) {
  static const Operator& op = OperatorTable::get().at("expand");
  Value args[3] = {Value::borrow(self.impl()), Value::borrow(other.sizes()), Value(false)};
  Value result[1];
  op.call(args, result);
  return result[0].take_tensor();
}

Tensor t(const Tensor& self) {
  FL_CHECK(self.dim() <= 2, "[t] expected at most 2 dimensions, got shape ", self.sizes());
  return self.dim() < 2 ? CALL("alias", self) : transpose(self, 0, 1);
}
Tensor numpy_T(const Tensor& self) {
  const int64_t n = self.dim();
  static std::atomic_flag said;
  if (n != 2 && n != 0 && !said.test_and_set())
    warn("[T] expected a matrix, got a tensor of " + std::to_string(n) +
         " dimensions: write .mT for batches of matrices, or permute to reverse all dimensions");
  Dims dims(n);
  for (int64_t i = 0; i < n; ++i) dims[i] = n - 1 - i;
  return permute(self, dims);
}
Tensor mT(const Tensor& self) {
  FL_CHECK(self.dim() != 1, "[mT] expected a matrix or a batch of matrices, got shape ", self.sizes(),
           ": tensor.mT is only supported on matrices or batches of matrices");
  return self.dim() == 0 ? CALL("alias", self) : transpose(self, -2, -1);
}
// Whether a view of the tensor may be conjugated when it is read. Where calls are handled in Python, or
// recorded by somebody who does not know of that, and on devices from outside, a copy is.
bool may_defer(const Tensor& self) {
  return !self->sparse && self.device().type < DeviceType::Custom0 && !self->keys.has(Key::Python) &&
         (!thread_state().included.has(Key::Python) || defers_in_records());
}
Tensor conj(const Tensor& self) {
  if (!is_complex(self.dtype())) return self;
  return may_defer(self) ? CALL("_conj", self) : CALL("conj_physical", self);
}
Tensor mH(const Tensor& self) {
  FL_CHECK(self.dim() != 1, "[mH] expected a matrix or a batch of matrices, got shape ", self.sizes(),
           ": tensor.mH is only supported on matrices or batches of matrices");
  return self.dim() == 0 ? conj(self) : conj(transpose(self, -2, -1));
}
Tensor H(const Tensor& self) {
  FL_CHECK(self.dim() == 0 || self.dim() == 2, "[H] expected a matrix, got shape ", self.sizes(),
           ": only supported on matrices (2-D tensors)");
  return mH(self);
}
Tensor resolve_conj(const Tensor& self) {
  return self->keys.has(Key::Conjugate) ? CALL("conj_physical", CALL("_conj", self)) : self;
}
Tensor resolve_neg(const Tensor& self) {
  return self->keys.has(Key::Negative) ? CALL("neg", CALL("_neg_view", self)) : self;
}

Tensor movedim(const Tensor& self, IntSpan source, IntSpan destination) {
  const int64_t n = self.dim(), k = static_cast<int64_t>(source.size());
  FL_CHECK(source.size() == destination.size(), "[movedim] expected as many destinations as sources, got ",
           source, " and ", destination,
           ": movedim: Invalid source or destination dims: they differ in number");
  Dims order(n, -1);
  uint64_t taken = 0, placed = 0;
  for (int64_t i = 0; i < k; ++i) {
    const int64_t from = wrap_dim("movedim", source[i], n), to = wrap_dim("movedim", destination[i], n);
    FL_CHECK(!(taken >> from & 1) && !(placed >> to & 1), "[movedim] expected each dimension once, got ",
             source, " to ", destination, ": movedim: repeated dim in `",
             taken >> from & 1 ? "source" : "destination", "`");
    taken |= uint64_t(1) << from;
    placed |= uint64_t(1) << to;
    if (n > 0) order[to] = from;
  }
  if (n == 0) return CALL("alias", self);
  int64_t next = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (order[i] >= 0) continue;
    while (taken >> next & 1) ++next;
    order[i] = next++;
  }
  return permute(self, order);
}
Tensor movedim_int(const Tensor& self, int64_t source, int64_t destination) {
  return movedim(self, {source}, {destination});
}

// A part of complex elements; of deferred ones it may be one that is negated when it is read.
Tensor part(const Tensor& self, int64_t which) {
  Tensor plain = self;
  const bool negative = self->keys.has(Key::Negative), conjugate = self->keys.has(Key::Conjugate);
  if (negative) plain = CALL("_neg_view", plain);
  if (conjugate) plain = CALL("_conj", plain);
  const Tensor taken = CALL("select", CALL("view_as_real", plain), Value(int64_t(-1)), Value(which));
  return negative != (conjugate && which == 1) ? CALL("_neg_view", taken) : taken;
}
Tensor real(const Tensor& self) {
  return is_complex(self.dtype()) ? part(self, 0) : self;
}
Tensor imag(const Tensor& self) {
  FL_CHECK(is_complex(self.dtype()), "[imag] expected a complex tensor, got ", name_of(self.dtype()));
  return part(self, 1);
}

FL_KERNEL("reshape", reshape, kComposite);
FL_KERNEL("flatten", flatten, kComposite);
FL_KERNEL("unflatten", unflatten, kComposite);
FL_KERNEL("ravel", ravel, kComposite);
FL_KERNEL("reshape_as", reshape_as, kComposite);
FL_KERNEL("view_as", view_as, kComposite);
FL_KERNEL("expand_as", expand_as, kComposite);
FL_KERNEL("contiguous", contiguous_op, kComposite);
FL_KERNEL("t", t, kComposite);
FL_KERNEL("adjoint", mH, kComposite);
FL_KERNEL("swapaxes", transpose, kComposite);
FL_KERNEL("swapdims", transpose, kComposite);
FL_KERNEL("movedim.int", movedim_int, kComposite);
FL_KERNEL("movedim.intlist", movedim, kComposite);
FL_KERNEL("moveaxis.int", movedim_int, kComposite);
FL_KERNEL("moveaxis.intlist", movedim, kComposite);
FL_KERNEL("real", real, kComposite);
FL_KERNEL("imag", imag, kComposite);
FL_KERNEL("resolve_conj", resolve_conj, kComposite);
FL_KERNEL("resolve_neg", resolve_neg, kComposite);
FL_KERNEL("conj", conj, kComposite);
FL_KERNEL("_numpy_T", numpy_T, kComposite);
FL_KERNEL("_mT", mT, kComposite);
FL_KERNEL("_H", H, kComposite);
FL_KERNEL("_mH", mH, kComposite);

}  // namespace
}  // namespace fl

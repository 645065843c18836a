// Tensors from nothing: empty, constant fills, ranges and their `like` and `new_` relatives.
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "core/accelerator.h"
#include "core/parallel.h"
#include "core/scalar_range.h"
#include "core/stored_dtypes.h"
#include "dispatch/kernel.h"
#include "ops/layout.h"
#include "ops/sequences.h"
#include "ops/uninitialized.h"

namespace fl {

std::atomic<bool> fill_uninitialized{false};

DeviceFunction<void(const Tensor&, const Scalar&, const Scalar&, std::optional<double>)> device::spaced{
    "linspace"};
DeviceFunction<void(const Tensor&, int64_t, int64_t, int64_t, bool)> device::triangle{"tril_indices"};

namespace {

using MaybeDType = std::optional<DType>;
using MaybeLayout = std::optional<Layout>;
using MaybeDevice = std::optional<Device>;
using MaybeBool = std::optional<bool>;
using MaybeFormat = std::optional<MemoryFormat>;

// What factories are asked for: the options of a tensor, and whether its memory is to be pinned.
struct Wanted : Options {
  bool pinned;
};

Wanted options(const char* op, MaybeDType dtype, MaybeLayout layout, MaybeDevice device, MaybeBool pin_memory,
               Options otherwise = {default_dtype(), Device{}}) {
  FL_CHECK(layout.value_or(Layout::Strided) == Layout::Strided, "[", op,
           "] expected a strided layout, got a sparse one");
  const Wanted wanted{{dtype.value_or(otherwise.dtype), device.value_or(otherwise.device)},
                      pin_memory.value_or(false)};
  FL_CHECK(!wanted.pinned || accelerator(), "[", op,
           "] expected pin_memory=False, because no accelerator is available, got True");
  FL_CHECK(!wanted.pinned || wanted.device.type == DeviceType::CPU, "[", op,
           "] expected the CPU for pin_memory=True, got ", to_string(wanted.device));
  return wanted;
}

Wanted options_like(const char* op, const Tensor& like, MaybeDType dtype, MaybeLayout layout,
                    MaybeDevice device, MaybeBool pin_memory) {
  return options(op, dtype, layout, device, pin_memory, {like.dtype(), like.device()});
}

Tensor pinned(const Tensor& t, const Wanted& o) {
  if (o.pinned) t->storage = accelerator()->allocate_pinned(t->storage->bytes);
  return t;
}
Tensor empty(IntSpan size, const Wanted& o) {
  return pinned(fl::empty(size, static_cast<const Options&>(o)), o);
}
Tensor empty_strided(IntSpan size, IntSpan stride, const Wanted& o) {
  return pinned(fl::empty_strided(size, stride, static_cast<const Options&>(o)), o);
}

// ---------------------------------------------------------------- fills

template <class T>
void fill_run(T* p, T x, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) p[i] = x;
}

// Writes one bit pattern over a dense block.
void fill_dense(const Tensor& t, const void* pattern) {
  const int64_t item = t.itemsize(), n = t.numel();
  char* p = t.raw();
  bool zero = true;
  for (int64_t i = 0; i < item; ++i) zero &= static_cast<const char*>(pattern)[i] == 0;
  parallel_for(n, kGrain * 2, [&](int64_t b, int64_t e) {
    char* at = p + b * item;
    if (item == 1 || (zero && (e - b) * item < (1 << 16))) {
      std::memset(at, *static_cast<const unsigned char*>(pattern), (e - b) * item);
    } else if (item == 16) {
      for (int64_t i = b; i < e; ++i) std::memcpy(p + i * 16, pattern, 16);
    } else {
      const auto run = [&](auto x) {
        std::memcpy(&x, pattern, sizeof x);
        fill_run(reinterpret_cast<decltype(x)*>(at), x, e - b);
      };
      if (item == 2) run(uint16_t());
      if (item == 4) run(uint32_t());
      if (item == 8) run(uint64_t());
    }
  });
}

void fill_with(const Tensor& t, const Scalar& value) {
  if (t.is_meta() || t.numel() == 0) return;
  alignas(16) char pattern[16];
  store_scalar(value, t.dtype(), pattern);
  if (!t.is_cpu()) return the_accelerator().fill(t, pattern);
  if (is_dense(t))
    fill_dense(t, pattern);
  else
    copy_into(t, scalar_tensor(value, {t.dtype(), Device{}}));
}

Tensor filled(Tensor t, const Scalar& value) {
  fill_with(t, value);
  return t;
}

Tensor fill_(const Tensor& self, const Operand& value) {
  if (value.is_tensor()) {
    const Tensor v = value.tensor();
    FL_CHECK(v.dim() == 0, "[fill_] expected a number or a 0-d tensor, got shape ", v.sizes());
    self.bump_version();
    if (!self.is_meta()) fill_with(self, item(v));
    return self;
  }
  check_fits("fill_", value.value->to_scalar(), self.dtype());
  self.bump_version();
  fill_with(self, value.value->to_scalar());
  return self;
}

Tensor fill(const Tensor& self, const Operand& value) {
  return fill_(empty_like(self, self.dtype()), value);
}

Tensor zero_(const Tensor& self) {
  self.bump_version();
  fill_with(self, Scalar(int64_t(0)));
  return self;
}

// ---------------------------------------------------------------- of given sizes

Tensor empty_as(const char* op, IntSpan size, MemoryFormat format, const Wanted& o) {
  return pinned(empty_in(op, size, format, o), o);
}

// Of no elements that are there: what `zeros` and `empty` are in sparse layouts.
Tensor sparse_zeros(IntSpan size, MaybeDType dtype, Layout layout, MaybeDevice device) {
  static const Operator& op = OperatorTable::get().at("_sparse_zeros");
  return call_tensor(op, size.vec(), Value(dtype.value_or(default_dtype())), Value(layout),
                     Value(device.value_or(Device{})));
}
bool is_sparse(MaybeLayout layout) {
  return __builtin_expect(layout && *layout != Layout::Strided, 0);
}

Tensor empty_op(IntSpan size, MaybeDType dtype, MaybeLayout layout, MaybeDevice device, MaybeBool pin,
                MaybeFormat format) {
  if (is_sparse(layout)) return sparse_zeros(size, dtype, *layout, device);
  FL_CHECK(format.value_or(MemoryFormat::Contiguous) != MemoryFormat::Preserve,
           "[empty] expected a memory format that sizes determine, got preserve_format");
  return uninitialized(empty_as("empty", size, format.value_or(MemoryFormat::Contiguous),
                                options("empty", dtype, layout, device, pin)));
}
Tensor zeros(IntSpan size, MaybeDType dtype, MaybeLayout layout, MaybeDevice device, MaybeBool pin) {
  if (is_sparse(layout)) return sparse_zeros(size, dtype, *layout, device);
  return filled(empty(size, options("zeros", dtype, layout, device, pin)), Scalar(int64_t(0)));
}
Tensor ones(IntSpan size, MaybeDType dtype, MaybeLayout layout, MaybeDevice device, MaybeBool pin) {
  return filled(empty(size, options("ones", dtype, layout, device, pin)), Scalar(int64_t(1)));
}
Tensor full(IntSpan size, const Scalar& value, MaybeDType dtype, MaybeLayout layout, MaybeDevice device,
            MaybeBool pin) {
  Tensor out = empty(size, options("full", dtype.value_or(number_dtype(value)), layout, device, pin));
  check_fits("full", value, out.dtype());
  return filled(out, value);
}
Tensor eye_m(int64_t n, int64_t m, MaybeDType dtype, MaybeLayout layout, MaybeDevice device, MaybeBool pin) {
  FL_CHECK(n >= 0 && m >= 0, "[eye] expected sizes that are not negative, got ", n, " and ", m,
           ": n and m must be greater or equal to 0");
  Tensor out = filled(empty({n, m}, options("eye", dtype, layout, device, pin)), Scalar(int64_t(0)));
  fill_with(alias(out, {std::min(n, m)}, {m + 1}, 0), Scalar(int64_t(1)));
  return out;
}
Tensor eye(int64_t n, MaybeDType dtype, MaybeLayout layout, MaybeDevice device, MaybeBool pin) {
  return eye_m(n, n, dtype, layout, device, pin);
}
Tensor empty_strided_op(IntSpan size, IntSpan stride, MaybeDType dtype, MaybeLayout layout,
                        MaybeDevice device, MaybeBool pin) {
  return uninitialized(empty_strided(size, stride, options("empty_strided", dtype, layout, device, pin)));
}
Tensor empty_permuted(IntSpan size, IntSpan order, MaybeDType dtype, MaybeLayout layout, MaybeDevice device,
                      MaybeBool pin) {
  const int64_t n = static_cast<int64_t>(size.size());
  FL_CHECK(static_cast<int64_t>(order.size()) == n, "[empty_permuted] expected one position for each of ", n,
           " dimensions, got ", order);
  numel_of(size);
  Dims strides(n);
  uint64_t seen = 0;
  int64_t step = 1;
  for (int64_t i = n; i-- > 0;) {
    const int64_t d = order[i];
    FL_CHECK(d >= 0 && d < n && !(seen >> d & 1),
             "[empty_permuted] expected a permutation of the dimensions, got ", order);
    seen |= uint64_t(1) << d;
    strides[d] = step;
    step *= std::max<int64_t>(size[d], 1);
  }
  return uninitialized(empty_strided(size, strides, options("empty_permuted", dtype, layout, device, pin)));
}
Tensor scalar_tensor_op(const Scalar& s, MaybeDType dtype, MaybeLayout layout, MaybeDevice device,
                        MaybeBool pin) {
  const Wanted wanted = options("scalar_tensor", dtype, layout, device, pin);
  check_fits("scalar_tensor", s, wanted.dtype);
  return scalar_tensor(s, wanted);
}

// ---------------------------------------------------------------- like another tensor

Tensor empty_like_as(const char* op, const Tensor& self, MaybeDType dtype, MaybeLayout layout,
                     MaybeDevice device, MaybeBool pin, MaybeFormat format) {
  const Wanted o = options_like(op, self, dtype, layout, device, pin);
  if (format.value_or(MemoryFormat::Preserve) != MemoryFormat::Preserve)
    return empty_as(op, self.sizes(), *format, o);
  if (o.device == self.device()) return pinned(empty_like(self, o.dtype), o);
  if (self.is_contiguous()) return empty(self.sizes(), o);
  return empty_strided(self.sizes(), is_dense(self) ? Dims(self.strides()) : contiguous_strides(self.sizes()),
                       o);
}
Tensor empty_like_op(const Tensor& self, MaybeDType dtype, MaybeLayout layout, MaybeDevice device,
                     MaybeBool pin, MaybeFormat format) {
  return uninitialized(empty_like_as("empty_like", self, dtype, layout, device, pin, format));
}
Tensor zeros_like(const Tensor& self, MaybeDType dtype, MaybeLayout layout, MaybeDevice device, MaybeBool pin,
                  MaybeFormat format) {
  return filled(empty_like_as("zeros_like", self, dtype, layout, device, pin, format), Scalar(int64_t(0)));
}
Tensor ones_like(const Tensor& self, MaybeDType dtype, MaybeLayout layout, MaybeDevice device, MaybeBool pin,
                 MaybeFormat format) {
  return filled(empty_like_as("ones_like", self, dtype, layout, device, pin, format), Scalar(int64_t(1)));
}
Tensor full_like(const Tensor& self, const Scalar& value, MaybeDType dtype, MaybeLayout layout,
                 MaybeDevice device, MaybeBool pin, MaybeFormat format) {
  Tensor out = empty_like_as("full_like", self, dtype, layout, device, pin, format);
  check_fits("full_like", value, out.dtype());
  return filled(out, value);
}
Tensor new_empty(const Tensor& self, IntSpan size, MaybeDType dtype, MaybeLayout layout, MaybeDevice device,
                 MaybeBool pin) {
  return uninitialized(empty(size, options_like("new_empty", self, dtype, layout, device, pin)));
}
Tensor new_zeros(const Tensor& self, IntSpan size, MaybeDType dtype, MaybeLayout layout, MaybeDevice device,
                 MaybeBool pin) {
  return filled(empty(size, options_like("new_zeros", self, dtype, layout, device, pin)), Scalar(int64_t(0)));
}
Tensor new_ones(const Tensor& self, IntSpan size, MaybeDType dtype, MaybeLayout layout, MaybeDevice device,
                MaybeBool pin) {
  return filled(empty(size, options_like("new_ones", self, dtype, layout, device, pin)), Scalar(int64_t(1)));
}
Tensor new_full(const Tensor& self, IntSpan size, const Scalar& value, MaybeDType dtype, MaybeLayout layout,
                MaybeDevice device, MaybeBool pin) {
  Tensor out = empty(size, options_like("new_full", self, dtype, layout, device, pin));
  check_fits("new_full", value, out.dtype());
  return filled(out, value);
}
Tensor new_empty_strided(const Tensor& self, IntSpan size, IntSpan stride, MaybeDType dtype,
                         MaybeLayout layout, MaybeDevice device, MaybeBool pin) {
  return uninitialized(
      empty_strided(size, stride, options_like("new_empty_strided", self, dtype, layout, device, pin)));
}

// ---------------------------------------------------------------- ranges

void check_bounds(const char* op, double start, double end, double step) {
  FL_CHECK(step != 0, "[", op, "] expected a step that is not zero, got 0");
  FL_CHECK(std::isfinite(start) && std::isfinite(end), "[", op, "] expected finite bounds, got ", start,
           " and ", end);
  FL_CHECK((step > 0 && end >= start) || (step < 0 && end <= start), "[", op,
           "] expected bounds that agree with the sign of step ", step, ", got ", start, " to ", end);
  FL_CHECK((end - start) / step < 9e18, "[", op, "] expected a length below 2**63, got bounds ", start,
           " to ", end, " with step ", step);
}

// out[i] = start + i * step
void fill_range(const Tensor& out, const Scalar& start, const Scalar& step) {
  const int64_t n = out.numel();
  if (out.is_meta()) return;
  if (!out.is_cpu()) return the_accelerator().fill_range(out, start, step);
  dispatch(out.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    T* p = out.data<T>();
    using C = std::conditional_t<std::is_integral_v<T>, int64_t, double>;
    if constexpr (!is_complex_type<T>) {
      const C a = start.to<C>(), s = step.to<C>();
      parallel_for(n, kGrain, [&](int64_t b, int64_t e) {
        for (int64_t i = b; i < e; ++i) p[i] = convert<T>(static_cast<C>(a + static_cast<C>(i) * s));
      });
    }
  });
}

Tensor arange_start_step(const Scalar& start, const Scalar& end, const Scalar& step, MaybeDType dtype,
                         MaybeLayout layout, MaybeDevice device, MaybeBool pin) {
  const bool integral = start.is_integral() && end.is_integral() && step.is_integral();
  const DType t = dtype.value_or(integral ? DType::Int64 : default_dtype());
  FL_CHECK(!start.is_complex() && !end.is_complex() && !step.is_complex(),
           "[arange] expected real bounds, got complex ones");
  FL_CHECK_KIND(t != DType::Bool && !is_complex(t), NotImplemented,
                "[arange] expected an integer or floating dtype, got ", name_of(t));
  check_bounds("arange", start.to<double>(), end.to<double>(), step.to<double>());
  int64_t n;
  // Integer results are counted and computed in integers; PyTorch truncates float bounds first for an int64
  // result.
  if (integral || t == DType::Int64) {
    const int64_t a = start.to<int64_t>(), b = end.to<int64_t>(), s = step.to<int64_t>();
    FL_CHECK_KIND(s != 0, Value, "[arange] expected a step that is not zero as an integer, got ",
                  step.to<double>());
    const __int128 span = static_cast<__int128>(b) - a;
    n = static_cast<int64_t>((span + s + (s > 0 ? -1 : 1)) / s);
  } else {
    n = static_cast<int64_t>(std::ceil((end.to<double>() - start.to<double>()) / step.to<double>()));
  }
  Tensor out = empty({std::max<int64_t>(n, 0)}, options("arange", t, layout, device, pin));
  fill_range(out, start, step);
  return out;
}
Tensor arange(const Scalar& end, MaybeDType dtype, MaybeLayout layout, MaybeDevice device, MaybeBool pin) {
  return arange_start_step(Scalar(int64_t(0)), end, Scalar(int64_t(1)), dtype, layout, device, pin);
}
Tensor arange_start(const Scalar& start, const Scalar& end, MaybeDType dtype, MaybeLayout layout,
                    MaybeDevice device, MaybeBool pin) {
  return arange_start_step(start, end, Scalar(int64_t(1)), dtype, layout, device, pin);
}
// Includes the end.
Tensor range(const Scalar& start, const Scalar& end, const Scalar& step, MaybeDType dtype, MaybeLayout layout,
             MaybeDevice device, MaybeBool pin) {
  const DType t = dtype.value_or(default_dtype());
  FL_CHECK_KIND(t != DType::Bool && !is_complex(t), NotImplemented,
                "[range] expected an integer or floating dtype, got ", name_of(t));
  check_bounds("range", start.to<double>(), end.to<double>(), step.to<double>());
  const double n = std::floor((end.to<double>() - start.to<double>()) / step.to<double>());
  Tensor out = empty({static_cast<int64_t>(n) + 1}, options("range", t, layout, device, pin));
  fill_range(out, start, step);
  return out;
}

// A bound of linspace: a number or a 0-d tensor.
Scalar bound(const char* op, const Operand& o, bool& is_complex_bound) {
  if (!o.is_tensor()) {
    const Scalar s = o.value->to_scalar();
    is_complex_bound |= s.is_complex();
    return s;
  }
  const Tensor t = o.tensor();
  FL_CHECK(t.dim() == 0, "[", op, "] expected bounds that are numbers or 0-d tensors, got shape ", t.sizes());
  is_complex_bound |= is_complex(t.dtype());
  return t.is_meta() ? Scalar(int64_t(0)) : item(t);
}

Wanted spaced_options(const char* op, const Operand& start, const Operand& end, bool complex_bound,
                      int64_t steps, MaybeDType dtype, MaybeLayout layout, MaybeDevice device,
                      MaybeBool pin) {
  FL_CHECK(steps >= 0, "[", op, "] expected a number of steps that is not negative, got ", steps);
  if (!device)
    for (const Operand* o : {&start, &end})
      if (o->is_tensor() && !o->tensor().is_cpu()) device = o->tensor().device();
  const DType natural = complex_bound ? complex_of(default_dtype()) : default_dtype();
  FL_CHECK(!complex_bound || is_complex(dtype.value_or(natural)), "[", op,
           "] expected a complex dtype for complex bounds, got ", name_of(dtype.value_or(natural)),
           ": torch.", op, "(): inferred dtype ", name_of(natural), " can't be safely cast to passed dtype ",
           name_of(dtype.value_or(natural)));
  return options(op, dtype.value_or(natural), layout, device, pin);
}

// The type in which values of a dtype are spaced, before they are rounded to it.
DType widest(DType t) {
  return is_complex(t) ? DType::ComplexDouble : is_integral(t, true) ? DType::Int64 : DType::Double;
}

// Calls f(i, value) for evenly spaced values, computed from the nearer end so that both ends are exact.
template <class C, class F>
void spaced(int64_t steps, const Scalar& start, const Scalar& end, const F& f) {
  const C a = start.to<C>(), b = end.to<C>();
  const C step = steps > 1 ? (b - a) / static_cast<C>(static_cast<double>(steps - 1)) : C(0);
  const int64_t half = steps / 2;
  parallel_for(steps, kGrain / 4, [&](int64_t begin, int64_t finish) {
    for (int64_t i = begin; i < finish; ++i)
      f(i, i < half || steps == 1 ? a + step * static_cast<C>(static_cast<double>(i))
                                  : b - step * static_cast<C>(static_cast<double>(steps - i - 1)));
  });
}

// Evenly spaced integers, rounded towards zero. Doubles cannot hold the largest ones: the ends are
// written as they are, and what rounds to 2^63 becomes the largest integer.
void spaced_integers(int64_t steps, int64_t start, int64_t end, int64_t* out) {
  const double a = static_cast<double>(start), b = static_cast<double>(end);
  const double step = steps > 1 ? (b - a) / static_cast<double>(steps - 1) : 0.0;
  for (int64_t i = 0; i < steps; ++i) {
    const double value = i < steps / 2 ? std::fma(step, static_cast<double>(i), a)
                                       : std::fma(-step, static_cast<double>(steps - i - 1), b);
    out[i] = value < 0x1p63 ? static_cast<int64_t>(value) : std::numeric_limits<int64_t>::max();
  }
  if (steps > 1) out[steps - 1] = end;
  if (steps > 0) out[0] = start;
}

// Whether an accelerator makes them itself; the others are made here and copied.
bool made_there(const Wanted& o) {
  return o.device.type == DeviceType::CUDA && !is_complex(o.dtype) && !is_stored_only(o.dtype);
}
Tensor spaced_there(const Wanted& o, int64_t steps, const Scalar& start, const Scalar& end,
                    std::optional<double> base) {
  const Tensor out = empty({steps}, o);
  device::spaced(o.device.type, out, start, end, base);
  return out;
}
Tensor placed(const Tensor& sequence, const Wanted& o) {
  if (sequence.device().type == o.device.type) return sequence;
  const Tensor out = empty(sequence.sizes(), o);
  copy_into(out, sequence);
  return out;
}

Tensor linspace(const Operand& start, const Operand& end, int64_t steps, MaybeDType dtype, MaybeLayout layout,
                MaybeDevice device, MaybeBool pin) {
  bool complex_bound = false;
  const Scalar a = bound("linspace", start, complex_bound), b = bound("linspace", end, complex_bound);
  const Wanted o = spaced_options("linspace", start, end, complex_bound, steps, dtype, layout, device, pin);
  if (o.device.type == DeviceType::Meta) return empty({steps}, o);
  if (made_there(o)) return spaced_there(o, steps, a, b, std::nullopt);
  const Tensor wide = empty({steps}, {widest(o.dtype), Device{}});
  if (wide.dtype() == DType::Int64) {
    spaced_integers(steps, a.to<int64_t>(), b.to<int64_t>(), wide.data<int64_t>());
  } else if (wide.dtype() == DType::Double) {
    spaced<double>(steps, a, b, [p = wide.data<double>()](int64_t i, double x) { p[i] = x; });
  } else {
    spaced<complex128>(steps, a, b, [p = wide.data<complex128>()](int64_t i, complex128 x) { p[i] = x; });
  }
  return placed(to_dtype(wide, o.dtype), o);
}

Tensor logspace(const Operand& start, const Operand& end, int64_t steps, double base, MaybeDType dtype,
                MaybeLayout layout, MaybeDevice device, MaybeBool pin) {
  bool complex_bound = false;
  const Scalar a = bound("logspace", start, complex_bound), b = bound("logspace", end, complex_bound);
  const Wanted o = spaced_options("logspace", start, end, complex_bound, steps, dtype, layout, device, pin);
  if (o.device.type == DeviceType::Meta) return empty({steps}, o);
  // Integers are truncated from powers, which the device does not compute exactly.
  if (made_there(o) && is_floating(o.dtype)) return spaced_there(o, steps, a, b, base);
  const Tensor wide = empty({steps}, {is_complex(o.dtype) ? DType::ComplexDouble : DType::Double, Device{}});
  if (is_complex(o.dtype)) {
    complex128* p = wide.data<complex128>();
    spaced<complex128>(steps, a, b, [&](int64_t i, complex128 x) { p[i] = std::pow(complex128(base), x); });
  } else {
    double* p = wide.data<double>();
    const auto whole = [&](const Scalar& s) {
      return widest(o.dtype) == DType::Int64 ? Scalar(s.to<int64_t>()) : s;
    };
    spaced<double>(steps, whole(a), whole(b), [&](int64_t i, double x) { p[i] = std::pow(base, x); });
  }
  return placed(to_dtype(wide, o.dtype), o);
}

}  // namespace

void fill_as_uninitialized(const Tensor& t) {
  const DType d = t.dtype();
  if (is_floating(d) || is_complex(d)) return fill_with(t, Scalar(std::numeric_limits<double>::quiet_NaN()));
  if (d == DType::Bool) return fill_with(t, Scalar(true));
  if (d == DType::UInt64) {  // whose largest value no Scalar holds
    const int64_t ones = -1;
    if (t.is_cpu() && is_dense(t)) fill_dense(t, &ones);
    return;
  }
  const int bits = static_cast<int>(size_of(d) * 8) - (is_unsigned(d) ? 0 : 1);
  fill_with(t, Scalar(static_cast<int64_t>(~uint64_t(0) >> (64 - bits))));
}

namespace {

FL_KERNEL("empty", empty_op, kEverywhere);
FL_KERNEL("empty_strided", empty_strided_op, kEverywhere);
FL_KERNEL("empty_permuted", empty_permuted, kEverywhere);
FL_KERNEL("empty_like", empty_like_op, kEverywhere);
FL_KERNEL("new_empty", new_empty, kEverywhere);
FL_KERNEL("new_empty_strided", new_empty_strided, kEverywhere);
FL_KERNEL("zeros", zeros, kDevices);
FL_KERNEL("ones", ones, kDevices);
FL_KERNEL("full", full, kDevices);
FL_KERNEL("eye", eye, kDevices);
FL_KERNEL("eye.m", eye_m, kDevices);
FL_KERNEL("scalar_tensor", scalar_tensor_op, kDevices);
FL_KERNEL("zeros_like", zeros_like, kDevices);
FL_KERNEL("ones_like", ones_like, kDevices);
FL_KERNEL("full_like", full_like, kDevices);
FL_KERNEL("new_zeros", new_zeros, kDevices);
FL_KERNEL("new_ones", new_ones, kDevices);
FL_KERNEL("new_full", new_full, kDevices);
FL_KERNEL("fill_", fill_, kDevices);
FL_KERNEL("fill", fill, kDevices);
FL_KERNEL("zero_", zero_, kDevices);
FL_KERNEL("arange", arange, kDevices);
FL_KERNEL("arange.start", arange_start, kDevices);
FL_KERNEL("arange.start_step", arange_start_step, kDevices);
FL_KERNEL("range", range, kDevices);
FL_KERNEL("linspace", linspace, kDevices);
FL_KERNEL("logspace", logspace, kDevices);

}  // namespace
}  // namespace fl

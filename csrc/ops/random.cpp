// Random operators: filling tensors from a distribution, and the factories that do so. Sampling from
// parameters that are tensors is in distributions.cpp.
#include "ops/random.h"

#include <cmath>

#include "dispatch/generator.h"
#include "dispatch/kernel.h"
#include "ops/layout.h"
#include "ops/sequences.h"

namespace fl {

DeviceFunction<void(const Tensor&, const RandomCall&)> device::random{"random"};
DeviceFunction<void(const Tensor&, const RandomCall&, double, const Tensor&, const Tensor&)> device::dropout{
    "native_dropout"};
DeviceFunction<void(const Tensor&, Generator::State)> device::shuffle{"randperm"};

namespace {

// Fills any tensor, in place; complex ones as twice as many reals.
Tensor fill(const char* op, const Tensor& self, Opaque* generator, RandomKind kind,
            const RandomParams& params, bool wide = false) {
  FL_CHECK(!has_internal_overlap(self), "[", op,
           "] expected a tensor whose elements are distinct in memory, got an expanded tensor: unsupported "
           "operation: more than one element of the "
           "written-to tensor refers to a single memory location");
  self.bump_version();
  if (self.is_meta()) return self;
  const Generator::State state = generator_of(generator, self.device()).take();
  if (self.numel() == 0) return self;
  const Tensor flat = self.is_contiguous() ? self : empty(self.sizes(), self.options());
  Tensor real = flat;
  if (is_complex(self.dtype())) {
    real = alias(flat, {flat.numel() * 2}, {1}, flat.offset() * 2);
    real->dtype = real_of(self.dtype());
  }
  device::random(real.device().type, real, {kind, wide, state.seed, state.offset, params});
  if (!flat.same(self)) copy_into(self, flat);
  return self;
}

Tensor fill_floating(const char* op, const Tensor& self, Opaque* generator, RandomKind kind,
                     const RandomParams& params) {
  return fill(op, self, generator, kind, params, compute_of(real_of(self.dtype())) == DType::Double);
}

void check_floating(const char* op, const Tensor& self, bool complex = false) {
  FL_CHECK_KIND(is_floating(self.dtype()) || (complex && is_complex(self.dtype())), NotImplemented, "[", op,
                "] expected a floating point tensor, got ", name_of(self.dtype()));
}

double largest(DType t) {
  switch (real_of(t)) {
    case DType::Half:
      return 65504.0;
    case DType::BFloat16:
      return 3.3895313892515355e38;
    case DType::Float:
      return 3.4028234663852886e38;
    default:
      return 1.7976931348623157e308;
  }
}

int mantissa_bits(DType t) {  // with the implicit one
  switch (real_of(t)) {
    case DType::Half:
      return 11;
    case DType::BFloat16:
      return 8;
    case DType::Float:
      return 24;
    default:
      return 53;
  }
}

// ---------------------------------------------------------------- distributions in place

Tensor uniform_(const Tensor& self, double from, double to, Opaque* generator) {
  check_floating("uniform_", self, true);
  const double most = largest(self.dtype());
  FL_CHECK(from >= -most && from <= most && to >= -most && to <= most, "[uniform_] expected bounds that ",
           name_of(self.dtype()), " can hold, got ", from, " and ", to);
  FL_CHECK(from <= to, "[uniform_] expected from <= to, got ", from, " and ", to,
           ": uniform_ expects to return a [from, to) range");
  FL_CHECK(to - from <= most, "[uniform_] expected a range that ", name_of(self.dtype()), " can hold, got ",
           from, " to ", to);
  RandomParams p;
  p.a = from;
  p.b = to;
  p.bits = std::min(24, mantissa_bits(self.dtype()));
  return fill_floating("uniform_", self, generator, RandomKind::Uniform, p);
}

Tensor normal_(const Tensor& self, double mean, double std, Opaque* generator) {
  check_floating("normal_", self, true);
  FL_CHECK(std >= 0.0, "[normal_] expected std >= 0, got ", std,
           ": normal expects std >= 0.0, but found std ", std);
  RandomParams p;
  p.a = mean;
  p.b = is_complex(self.dtype()) ? std / std::sqrt(2.0) : std;
  fill_floating("normal_", self, generator, RandomKind::Normal, p);
  if (is_complex(self.dtype()) && mean != 0 && self.is_cpu()) {
    // The mean is real; the loop gave it to both parts.
    dispatch(self.dtype(), [&](auto type) {
      using T = typename decltype(type)::type;
      if constexpr (is_complex_type<T>) {
        const Tensor flat = contiguous(self);
        T* x = flat.template data<T>();
        for (int64_t i = 0; i < flat.numel(); ++i) x[i] -= T(0, static_cast<typename T::value_type>(mean));
        if (!flat.same(self)) copy_into(self, flat);
      }
    });
  }
  return self;
}

Tensor exponential_(const Tensor& self, double lambd, Opaque* generator) {
  check_floating("exponential_", self);
  FL_CHECK(lambd > 0.0, "[exponential_] expected lambd > 0, got ", lambd);
  RandomParams p;
  p.a = lambd;
  return fill_floating("exponential_", self, generator, RandomKind::Exponential, p);
}

Tensor cauchy_(const Tensor& self, double median, double sigma, Opaque* generator) {
  check_floating("cauchy_", self);
  FL_CHECK(sigma > 0.0, "[cauchy_] expected sigma > 0, got ", sigma);
  RandomParams p;
  p.a = median;
  p.b = sigma;
  return fill_floating("cauchy_", self, generator, RandomKind::Cauchy, p);
}

Tensor log_normal_(const Tensor& self, double mean, double std, Opaque* generator) {
  check_floating("log_normal_", self);
  FL_CHECK(std > 0.0, "[log_normal_] expected std > 0, got ", std);
  RandomParams p;
  p.a = mean;
  p.b = std;
  return fill_floating("log_normal_", self, generator, RandomKind::LogNormal, p);
}

Tensor geometric_(const Tensor& self, double prob, Opaque* generator) {
  FL_CHECK_KIND(!is_complex(self.dtype()) && self.dtype() != DType::Bool, NotImplemented,
                "[geometric_] expected an integer or floating tensor, got ", name_of(self.dtype()));
  FL_CHECK(0 < prob && prob < 1, "[geometric_] expected p in (0, 1), got ", prob);
  RandomParams p;
  p.a = prob;
  return fill("geometric_", self, generator, RandomKind::Geometric, p);
}

// ---------------------------------------------------------------- integers

Tensor fill_range(const char* op, const Tensor& self, int64_t low, uint64_t range, Opaque* generator) {
  RandomParams p;
  p.low = low;
  p.range = range;
  const bool narrow = range != 0 && range <= uint64_t(1) << 32;
  return fill(op, self, generator, narrow ? RandomKind::Range32 : RandomKind::Range64, p);
}

// Largest integer up to which every integer is a value of the dtype, and the smallest.
void integer_bounds(DType t, int64_t& low, int64_t& high) {
  low = std::numeric_limits<int64_t>::min();
  high = std::numeric_limits<int64_t>::max();
  if (is_floating(t)) {
    high = int64_t(1) << mantissa_bits(t);
    low = -high;
  } else if (is_unsigned(t)) {
    low = 0;  // bounds are int64, so the upper half of uint64 is not drawn
    if (t != DType::UInt64) high = t == DType::Bool ? 1 : (int64_t(1) << 8 * size_of(t)) - 1;
  } else if (t != DType::Int64) {
    low = -(int64_t(1) << (8 * size_of(t) - 1));
    high = -low - 1;
  }
}

void check_random(const Tensor& self) {
  FL_CHECK_KIND(!is_complex(self.dtype()), NotImplemented, "[random_] expected a real tensor, got ",
                name_of(self.dtype()));
}

Tensor random_(const Tensor& self, Opaque* generator) {
  check_random(self);
  int64_t low, high;
  integer_bounds(self.dtype(), low, high);
  return fill_range("random_", self, 0, static_cast<uint64_t>(high) + 1, generator);
}

// The bounds of a float tensor may be any numbers of its range; those of an integer one must be values of its
// type.
void check_bound(const Tensor& self, const char* name, int64_t value) {
  if (is_floating(self.dtype())) {
    const double most = largest(self.dtype()), x = static_cast<double>(value);
    FL_CHECK(x >= -most && x <= most, "[random_] expected ", name, " to fit in ", name_of(self.dtype()),
             ", got ", value, ": ", name, " is out of bounds for ", name_of(self.dtype()));
    return;
  }
  int64_t low, high;
  integer_bounds(self.dtype(), low, high);
  FL_CHECK(value >= low && value <= high, "[random_] expected ", name, " to fit in ", name_of(self.dtype()),
           ", got ", value, ": ", name, " is out of bounds for ", name_of(self.dtype()));
}

Tensor random_from(const Tensor& self, int64_t from, std::optional<int64_t> to, Opaque* generator) {
  check_random(self);
  if (!to) {
    check_bound(self, "from", from);
    int64_t low, high;
    integer_bounds(self.dtype(), low, high);
    return fill_range("random_", self, from, static_cast<uint64_t>(high) - static_cast<uint64_t>(from) + 1,
                      generator);
  }
  FL_CHECK(from < *to, "[random_] expected from < to, got ", from, " and ", *to,
           ": random_ expects 'from' to be less than 'to', but got from=", from, " >= to=", *to);
  check_bound(self, "from", from);
  check_bound(self, "to - 1", *to - 1);
  return fill_range("random_", self, from, static_cast<uint64_t>(*to) - static_cast<uint64_t>(from),
                    generator);
}

Tensor random_to(const Tensor& self, int64_t to, Opaque* generator) {
  return random_from(self, 0, to, generator);
}

// ---------------------------------------------------------------- bernoulli with one probability

void check_probability(const char* op, double p) {
  FL_CHECK(p >= 0 && p <= 1, "[", op, "] expected a probability in [0, 1], got ", p);
}

Tensor bernoulli_float_(const Tensor& self, double p, Opaque* generator) {
  check_probability("bernoulli_", p);
  FL_CHECK_KIND(!is_complex(self.dtype()), NotImplemented, "[bernoulli_] expected a real tensor, got ",
                name_of(self.dtype()));
  RandomParams params;
  params.range = static_cast<uint64_t>(std::ldexp(p, 32));
  return fill("bernoulli_", self, generator, RandomKind::Bernoulli, params);
}

// ---------------------------------------------------------------- factories

Options factory(const char* op, std::optional<DType> dtype, std::optional<Layout> layout,
                std::optional<Device> device, DType standard) {
  FL_CHECK(layout.value_or(Layout::Strided) == Layout::Strided, "[", op,
           "] expected layout torch.strided, got another");
  return {dtype.value_or(standard), device.value_or(Device{})};
}

Tensor rand(IntSpan size, Opaque* generator, std::optional<DType> dtype, std::optional<Layout> layout,
            std::optional<Device> device, std::optional<bool>) {
  return uniform_(empty(size, factory("rand", dtype, layout, device, default_dtype())), 0, 1, generator);
}

Tensor randn(IntSpan size, Opaque* generator, std::optional<DType> dtype, std::optional<Layout> layout,
             std::optional<Device> device, std::optional<bool>) {
  return normal_(empty(size, factory("randn", dtype, layout, device, default_dtype())), 0, 1, generator);
}

Tensor randint_low(int64_t low, int64_t high, IntSpan size, Opaque* generator, std::optional<DType> dtype,
                   std::optional<Layout> layout, std::optional<Device> device, std::optional<bool>) {
  return random_from(empty(size, factory("randint", dtype, layout, device, DType::Int64)), low, high,
                     generator);
}
Tensor randint(int64_t high, IntSpan size, Opaque* generator, std::optional<DType> dtype,
               std::optional<Layout> layout, std::optional<Device> device, std::optional<bool> pin_memory) {
  return randint_low(0, high, size, generator, dtype, layout, device, pin_memory);
}

// A fresh tensor of the shape of another one, in the memory format asked for.
Tensor make_like(const char* op, const Tensor& self, std::optional<DType> dtype, std::optional<Layout> layout,
                 std::optional<Device> device, std::optional<MemoryFormat> format) {
  const Options options =
      factory(op, dtype.value_or(self.dtype()), layout, device.value_or(self.device()), self.dtype());
  const MemoryFormat f = format.value_or(MemoryFormat::Preserve);
  if (f != MemoryFormat::Preserve) return empty_in(op, self.sizes(), f, options);
  const Tensor like = empty_like(self, options.dtype);
  return options.device == self.device() ? like : empty_strided(like.sizes(), like.strides(), options);
}

Tensor rand_like(const Tensor& self, Opaque* generator, std::optional<DType> dtype,
                 std::optional<Layout> layout, std::optional<Device> device, std::optional<bool>,
                 std::optional<MemoryFormat> format) {
  return uniform_(make_like("rand_like", self, dtype, layout, device, format), 0, 1, generator);
}
Tensor randn_like(const Tensor& self, Opaque* generator, std::optional<DType> dtype,
                  std::optional<Layout> layout, std::optional<Device> device, std::optional<bool>,
                  std::optional<MemoryFormat> format) {
  return normal_(make_like("randn_like", self, dtype, layout, device, format), 0, 1, generator);
}
Tensor randint_like_low(const Tensor& self, int64_t low, int64_t high, Opaque* generator,
                        std::optional<DType> dtype, std::optional<Layout> layout,
                        std::optional<Device> device, std::optional<bool>,
                        std::optional<MemoryFormat> format) {
  return random_from(make_like("randint_like", self, dtype, layout, device, format), low, high, generator);
}
Tensor randint_like(const Tensor& self, int64_t high, Opaque* generator, std::optional<DType> dtype,
                    std::optional<Layout> layout, std::optional<Device> device,
                    std::optional<bool> pin_memory, std::optional<MemoryFormat> format) {
  return randint_like_low(self, 0, high, generator, dtype, layout, device, pin_memory, format);
}

Tensor randperm(int64_t n, Opaque* generator, std::optional<DType> dtype, std::optional<Layout> layout,
                std::optional<Device> device, std::optional<bool>) {
  FL_CHECK(n >= 0, "[randperm] expected n >= 0, got ", n);
  const Tensor out = empty({n}, factory("randperm", dtype, layout, device, DType::Int64));
  FL_CHECK_KIND(!is_complex(out.dtype()) && out.dtype() != DType::Bool, NotImplemented,
                "[randperm] expected a numeric dtype, got ", name_of(out.dtype()));
  int64_t low, high;
  integer_bounds(out.dtype(), low, high);
  FL_CHECK(n - 1 <= high, "[randperm] expected n to fit in ", name_of(out.dtype()), ", got ", n);
  if (out.is_meta()) return out;
  const Generator::State state = generator_of(generator, out.device()).take();
  device::shuffle(out.device().type, out, state);
  return out;
}

// ---------------------------------------------------------------- dropout

// (input * mask / (1 - p), mask); the mask is true where a value is kept.
std::tuple<Tensor, Tensor> native_dropout(const Tensor& input, double p, std::optional<bool> train) {
  check_probability("dropout", p);
  FL_CHECK(is_floating(input.dtype()) || is_complex(input.dtype()),
           "[dropout] expected a floating point tensor, got ", name_of(input.dtype()));
  Tensor out = empty_like(input, input.dtype());
  Tensor mask = empty_like(input, DType::Bool);
  if (input.is_meta()) return {out, mask};
  if (!train.value_or(true)) {
    copy_into(out, input);
    copy_into(mask, scalar_tensor(Scalar(true), {DType::Bool, Device{}}));
    return {out, mask};
  }
  const bool plain = out.strides() == input.strides() && is_dense(input);
  const Tensor source = plain ? input : contiguous(input);
  const Tensor target = plain || out.is_contiguous() ? out : empty(out.sizes(), out.options());
  const Tensor drawn = plain || mask.is_contiguous() ? mask : empty(mask.sizes(), mask.options());
  const Generator::State state = default_generator(input.device().type).take();
  RandomParams params;
  params.range = static_cast<uint64_t>(std::ldexp(1 - p, 32));
  const RandomCall call{RandomKind::Bernoulli, false, state.seed, state.offset, params};
  const double scale = p == 1 ? 0.0 : 1 / (1 - p);
  const DeviceType device = input.device().type;
  if (!device::dropout.exists_on(device)) {
    static const Operator& mul = OperatorTable::get().at("mul.Tensor");
    device::random(device, drawn, call);
    if (!drawn.same(mask)) copy_into(mask, drawn);
    return {call_tensor(mul, call_tensor(mul, input, Scalar(scale)), mask), mask};
  }
  device::dropout(device, source, call, scale, target, drawn);
  if (!target.same(out)) copy_into(out, target);
  if (!drawn.same(mask)) copy_into(mask, drawn);
  return {out, mask};
}

FL_KERNEL("uniform_", uniform_, kDevices);
FL_KERNEL("normal_", normal_, kDevices);
FL_KERNEL("exponential_", exponential_, kDevices);
FL_KERNEL("cauchy_", cauchy_, kDevices);
FL_KERNEL("log_normal_", log_normal_, kDevices);
FL_KERNEL("geometric_", geometric_, kDevices);
FL_KERNEL("random_", random_, kDevices);
FL_KERNEL("random_.from", random_from, kDevices);
FL_KERNEL("random_.to", random_to, kDevices);
FL_KERNEL("bernoulli_.float", bernoulli_float_, kDevices);
FL_KERNEL("rand", rand, kDevices);
FL_KERNEL("randn", randn, kDevices);
FL_KERNEL("randint", randint, kDevices);
FL_KERNEL("randint.low", randint_low, kDevices);
FL_KERNEL("rand_like", rand_like, kDevices);
FL_KERNEL("randn_like", randn_like, kDevices);
FL_KERNEL("randint_like", randint_like, kDevices);
FL_KERNEL("randint_like.low_dtype", randint_like_low, kDevices);
FL_KERNEL("randperm", randperm, kDevices);
FL_KERNEL("native_dropout", native_dropout, kDevices);

}  // namespace
}  // namespace fl

// Tensors from nothing: empty, full, arange and their relatives.
#include <cmath>

#include "cpu/parallel.h"
#include "cpu/pointwise.h"
#include "dispatch/kernel.h"

namespace fl {
namespace {

Options options(std::optional<DType> dtype, std::optional<Device> device) {
  return {dtype.value_or(default_dtype()), device.value_or(Device{})};
}

Tensor empty_op(IntSpan size, std::optional<DType> dtype, std::optional<Device> device, std::optional<MemoryFormat> format) {
  const MemoryFormat f = format.value_or(MemoryFormat::Contiguous);
  if (f == MemoryFormat::ChannelsLast || f == MemoryFormat::ChannelsLast3d) {
    numel_of(size);
    const size_t want = f == MemoryFormat::ChannelsLast ? 4 : 5;
    FL_CHECK(size.size() == want, "[empty] expected ", static_cast<int64_t>(want), " dimensions for channels_last, got ", size);
    return empty_strided(size, channels_last_strides(size), options(dtype, device));
  }
  return empty(size, options(dtype, device));
}

Tensor empty_strided_op(IntSpan size, IntSpan stride, std::optional<DType> dtype, std::optional<Device> device) {
  return empty_strided(size, stride, options(dtype, device));
}

Tensor fill_(const Tensor& self, const Operand& value) {
  Tensor v = value.tensor();
  FL_CHECK(v.dim() == 0, "[fill_] expected a number or a 0-d tensor, got shape ", v.sizes());
  FL_CHECK(!has_internal_overlap(self), "[fill_] expected a tensor whose elements are distinct in memory, got an expanded tensor");
  FL_CHECK(!is_complex(v.dtype()) || is_complex(self.dtype()) || item(v).im == 0,
           "[fill_] expected a real value for a ", name_of(self.dtype()), " tensor, got a complex one");
  self.bump_version();
  if (!self.is_meta()) copy_into(self, v);
  return self;
}

int64_t arange_count(double start, double end, double step) {
  FL_CHECK(step != 0, "[arange] expected a step that is not zero, got 0");
  FL_CHECK(std::isfinite(start) && std::isfinite(end), "[arange] expected finite bounds, got ", start, " and ", end);
  FL_CHECK((step > 0 && end >= start) || (step < 0 && end <= start), "[arange] expected bounds that agree with the sign of step ", step,
           ", got ", start, " to ", end);
  const double count = std::ceil((end - start) / step);
  FL_CHECK(count < 9e18, "[arange] expected a length below 2**63, got bounds ", start, " to ", end, " with step ", step);
  return static_cast<int64_t>(count);
}

Tensor arange(const Scalar& start, const Scalar& end, const Scalar& step, std::optional<DType> dtype, std::optional<Device> device) {
  const bool integral = start.is_integral() && end.is_integral() && step.is_integral();
  const DType t = dtype.value_or(integral ? DType::Int64 : default_dtype());
  FL_CHECK_KIND(t != DType::Bool && !is_complex(t), NotImplemented, "[arange] expected an integer or floating dtype, got ", name_of(t));
  int64_t n;
  if (integral) {
    const int64_t a = start.i, b = end.i, s = step.i;
    arange_count(static_cast<double>(a), static_cast<double>(b), static_cast<double>(s));
    n = s > 0 ? (b - a + s - 1) / s : (a - b - s - 1) / -s;
  } else {
    n = arange_count(start.to<double>(), end.to<double>(), step.to<double>());
  }
  Tensor out = empty({n}, {t, device.value_or(Device{})});
  if (out.is_meta()) return out;
  dispatch(t, [&](auto type) {
    using T = typename decltype(type)::type;
    T* p = out.data<T>();
    if constexpr (std::is_integral_v<T>) {
      const int64_t a = start.to<int64_t>(), s = step.to<int64_t>();
      parallel_for(n, kGrain, [&](int64_t b, int64_t e) {
        for (int64_t i = b; i < e; ++i) p[i] = static_cast<T>(a + i * s);
      });
    } else if constexpr (!is_complex_type<T>) {
      const double a = start.to<double>(), s = step.to<double>();
      parallel_for(n, kGrain, [&](int64_t b, int64_t e) {
        for (int64_t i = b; i < e; ++i) p[i] = convert<T>(a + static_cast<double>(i) * s);
      });
    }
  });
  return out;
}

Tensor scalar_tensor_op(const Scalar& s, std::optional<DType> dtype, std::optional<Device> device) {
  return scalar_tensor(s, options(dtype, device));
}

FL_KERNEL_ALL("_empty", empty_op);
FL_KERNEL_ALL("empty_strided", empty_strided_op);
FL_KERNEL("fill_", fill_);
FL_KERNEL("_arange", arange);
FL_KERNEL("scalar_tensor", scalar_tensor_op);

}  // namespace
}  // namespace fl

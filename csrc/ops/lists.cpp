// Passes over all tensors of a list: norms, and the unscaling of a scaled loss's gradients.
#include <cmath>

#include "core/parallel.h"
#include "dispatch/kernel.h"
#include "ops/each.h"
#include "ops/lists.h"

namespace fl {

DeviceFunction<std::vector<Tensor>(const Tensor*, size_t, double)> device::norms{"_foreach_norm"};

// ---------------------------------------------------------------- norms

namespace {

constexpr int64_t kPiece = 32768;            // elements summed by one thread at a time
constexpr int64_t kNormGrain = 16 * kGrain;  // adding is so fast that a second thread pays late
constexpr int64_t kRun = 1024;               // elements summed in the dtype's own precision

enum class Order { One, Two, Largest };

// Part of a norm: of the sum of absolute values or of squares, or the largest absolute value.
template <class T>
double part_of_norm(const T* data, int64_t n, Order order) {
  using C = std::conditional_t<std::is_same_v<T, double>, double, float>;
  double total = 0;
  for (int64_t at = 0; at < n; at += kRun) {
    const int64_t end = std::min(n, at + kRun);
    C part = 0;
    if (order == Order::Two) {
#pragma omp simd reduction(+ : part)
      for (int64_t i = at; i < end; ++i) part += static_cast<C>(data[i]) * static_cast<C>(data[i]);
      total += part;
    } else if (order == Order::One) {
#pragma omp simd reduction(+ : part)
      for (int64_t i = at; i < end; ++i) part += std::abs(static_cast<C>(data[i]));
      total += part;
    } else {
      C nan = 0;  // comparisons lose NaN
#pragma omp simd reduction(max : part) reduction(+ : nan)
      for (int64_t i = at; i < end; ++i) {
        const C x = std::abs(static_cast<C>(data[i]));
        part = std::max(part, x);
        nan += x != x ? C(1) : C(0);
      }
      if (nan != 0) return std::numeric_limits<double>::quiet_NaN();
      total = std::max<double>(total, part);
    }
  }
  return total;
}

// All tensors in one parallel region.
std::vector<Tensor> norms_of(const Tensor* list, size_t n, Order order) {
  struct Piece {
    size_t tensor;
    int64_t begin, end;
  };
  std::vector<Piece> pieces;
  int64_t total = 0;
  for (size_t i = 0; i < n; ++i) {
    total += list[i].numel();
    for (int64_t at = 0; at < list[i].numel(); at += kPiece)
      pieces.push_back({i, at, std::min(list[i].numel(), at + kPiece)});
  }
  std::vector<double> parts(pieces.size());
  const int64_t count = static_cast<int64_t>(pieces.size());
  parallel_for(count, std::max<int64_t>(1, count * kNormGrain / std::max<int64_t>(total, 1)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t k = begin; k < end; ++k) {
                   const Piece& p = pieces[k];
                   dispatch(list[p.tensor].dtype(), [&](auto type) {
                     using T = typename decltype(type)::type;
                     if constexpr (std::is_floating_point_v<T> || is_reduced_type<T>)
                       parts[k] = part_of_norm(list[p.tensor].data<T>() + p.begin, p.end - p.begin, order);
                   });
                 }
               });
  std::vector<Tensor> norms;
  norms.reserve(n);
  size_t k = 0;
  for (size_t i = 0; i < n; ++i) {
    double value = 0;
    for (; k < pieces.size() && pieces[k].tensor == i; ++k)
      value = order != Order::Largest ? value + parts[k]
              : value != value        ? value
              : parts[k] != parts[k]  ? parts[k]
                                      : std::max(value, parts[k]);
    if (order == Order::Two) value = std::sqrt(value);
    norms.push_back(empty(IntSpan(), {list[i].dtype(), list[i].device()}));
    dispatch(list[i].dtype(), [&](auto type) {
      using T = typename decltype(type)::type;
      *norms.back().data<T>() = convert<T>(value);
    });
  }
  return norms;
}

// Norms of the usual orders, of dense tensors that nothing watches; false when it is another case.
bool norms_at_once(KeySet keys, Value* args, Value* results) {
  const bool device = keys.bits() == KeySet(Key::CUDA).bits();
  if ((!device && keys.bits() != KeySet(Key::CPU).bits()) || !args[2].is_none()) return false;
  const Scalar ord = args[1].to_scalar();
  const double p = ord.is_complex() ? 0 : ord.to<double>();
  if (p != 1 && p != 2 && p != std::numeric_limits<double>::infinity()) return false;
  const Tensor* list = args[0].tensors();
  const size_t n = args[0].length();
  for (size_t i = 0; i < n; ++i)
    if (!is_floating(list[i].dtype()) || !is_dense(list[i])) return false;
  if (device) {
    for (size_t i = 0; i < n; ++i)
      if (list[i].dtype() != list[0].dtype() || list[i].device() != list[0].device()) return false;
    results[0] = Value(device::norms(DeviceType::CUDA, list, n, p));
    return true;
  }
  results[0] = Value(norms_of(list, n, p == 1 ? Order::One : p == 2 ? Order::Two : Order::Largest));
  return true;
}

EachDef each_norm{"linalg_vector_norm"};

void foreach_norm(const Operator& op, void*, KeySet keys, Value* args, Value* results) {
  if (args[0].length() > 0 && norms_at_once(keys, args, results)) return;
  each_kernel(op, &each_norm, keys, args, results);
}

detail::Register register_norm{"_foreach_norm.Scalar", {Key::Composite}, Kernel{foreach_norm, nullptr}};

}  // namespace

// ---------------------------------------------------------------- gradients of a scaled loss

namespace {

// Multiplies in place; true when all results, and what they were made from, are finite.
template <class T>
bool scale_run(T* data, int64_t n, float factor) {
  using C = std::conditional_t<std::is_same_v<T, double>, double, float>;
  int bad = 0;
#pragma omp simd reduction(| : bad)
  for (int64_t i = 0; i < n; ++i) {
    const C x = static_cast<C>(data[i]);
    bad |= !(x - x == C(0));
    data[i] = T(x * static_cast<C>(factor));
  }
  return bad == 0;
}

void unscale(const std::vector<Tensor>& self, const Tensor& found_inf, const Tensor& inv_scale) {
  constexpr const char* name = "_amp_foreach_non_finite_check_and_unscale_";
  FL_CHECK(found_inf.numel() == 1 && inv_scale.numel() == 1, "[", name,
           "] expected found_inf and inv_scale of one element");
  FL_CHECK(found_inf.dtype() == DType::Float && inv_scale.dtype() == DType::Float, "[", name,
           "] expected found_inf and inv_scale in float32");
  for (const Tensor& t : self)
    FL_CHECK(is_floating(t.dtype()), "[", name, "] expected floating point gradients, got ",
             name_of(t.dtype()));
  if (found_inf.is_meta()) return;
  const float factor = *inv_scale.data<float>();
  bool finite = true;
  for (const Tensor& t : self) {
    const bool linear = is_dense(t);
    const Tensor work = linear ? t : contiguous(t);
    dispatch(t.dtype(), [&](auto type) {
      using T = typename decltype(type)::type;
      if constexpr (std::is_floating_point_v<T> || is_reduced_type<T>) {
        std::atomic<bool> fine{true};
        T* data = work.data<T>();
        parallel_for(work.numel(), kGrain, [&](int64_t begin, int64_t end) {
          if (!scale_run(data + begin, end - begin, factor)) fine = false;
        });
        finite &= fine;
      }
    });
    if (!linear) copy_into(t, work);
    t.bump_version();
  }
  if (!finite) *found_inf.data<float>() = 1.0f;
  found_inf.bump_version();
}

}  // namespace

FL_KERNEL("_amp_foreach_non_finite_check_and_unscale_", unscale, kCpu);

}  // namespace fl

// Plans for the CPU Fourier transforms, private to fft_kernel.cpp: which passes a length takes,
// their twiddles, Bluestein's chirp for awkward lengths, and the bounded cache of plans.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

#include "cpu/engine/arch.h"
#include "cpu/fft/kernel.h"
#include "cpu/fft/loops.h"

namespace fl::cpu::fft_detail {

FL_DECLARE_ARCH(const FftLoops<float>, fft_loops_float);
FL_DECLARE_ARCH(const FftLoops<double>, fft_loops_double);

template <typename T>
const FftLoops<T>& fft_loops() {
  if constexpr (std::is_same_v<T, float>)
    return picked_fft_loops_float();
  else
    return picked_fft_loops_double();
}

// exp(-2*pi*i*k/n), accurate to the last bit of double by reducing to the first octant exactly.
inline std::complex<double> unit_root(int64_t k, int64_t n) {
  const double two_pi = 6.283185307179586476925;
  k %= n;
  if (k < 0) k += n;
  bool flip_im = false, flip_re = false, swap = false;
  int64_t num = 4 * k;  // the angle in units of a quarter turn, times n
  if (num > 2 * n) {
    num = 4 * n - num;
    flip_im = true;
  }
  if (num > n) {
    num = 2 * n - num;
    flip_re = true;
  }
  if (2 * num > n) {
    num = n - num;
    swap = true;
  }
  const double angle = two_pi * static_cast<double>(num) / (4.0 * static_cast<double>(n));
  double c = std::cos(angle), s = std::sin(angle);
  if (swap) std::swap(c, s);
  return {flip_re ? -c : c, flip_im ? s : -s};
}

// The radices for n in pass order, empty when some prime factor is too large for a pass.
inline std::vector<int> factorise(int64_t n) {
  std::vector<int> radices;
  int twos = 0;
  for (; n % 2 == 0; n /= 2) ++twos;
  if (twos == 1) {
    radices.push_back(2);
  } else {
    const int fours = (3 - twos % 3) % 3;  // 8s, and one or two 4s for what 8s cannot cover
    for (int i = 0; i < (twos - 2 * fours) / 3; ++i) radices.push_back(8);
    for (int i = 0; i < fours; ++i) radices.push_back(4);
  }
  for (int radix : {5, 3}) {
    for (; n % radix == 0; n /= radix) radices.push_back(radix);
  }
  for (int radix = 7; radix <= kMaxGenericRadix && n > 1; radix += 2) {
    for (; n % radix == 0; n /= radix) radices.push_back(radix);
  }
  if (n > 1) return {};
  return radices;
}

// A rough operation count of the passes for n; infinite when there are none.
inline double cost_of_passes(int64_t n, const std::vector<int>& radices) {
  if (radices.empty() && n > 1) return HUGE_VAL;
  double per_element = 0;
  for (int radix : radices) per_element += radix <= 8 ? 7 + 0.5 * radix : 4 + 2.0 * radix;
  return per_element * static_cast<double>(n);
}

// The cheapest length >= least without large factors; multiples of 8 keep a single line vectorised.
inline int64_t convolution_length(int64_t least) {
  int64_t best = 8;
  while (best < least) best *= 2;
  for (int64_t five = 8; five < best; five *= 5) {
    for (int64_t three = five; three < best; three *= 3) {
      int64_t length = three;
      while (length < least) length *= 2;
      best = std::min(best, length);
    }
  }
  return best;
}

enum class PlanUse { complex_line, half_of_real };

template <typename T>
struct Plan {
  int64_t n = 1;
  std::vector<Pass<T>> passes;
  std::vector<std::unique_ptr<T[]>> tables;

  std::shared_ptr<const Plan> convolution;  // Bluestein: the plan the convolution runs with
  std::vector<T> chirp;                     // exp(-pi*i*j^2/n), interleaved
  std::vector<T> chirp_spectrum;            // of the conjugate chirp, divided by the length

  std::vector<T> real_twiddles;  // half_of_real: n cosines, then n sines of 2*pi*k/(2n)

  bool bluestein() const { return convolution != nullptr; }
  int64_t rows() const { return bluestein() ? convolution->n : n; }
  bool has_line_passes() const { return !bluestein() && passes.size() >= 2; }

  T* table(int64_t count) {
    tables.emplace_back(new T[static_cast<size_t>(std::max<int64_t>(count, 1))]);
    return tables.back().get();
  }
};

template <typename T>
void make_passes(Plan<T>& plan, const std::vector<int>& radices) {
  int64_t rest = plan.n;
  for (int radix : radices) {
    const int64_t m = rest / radix;
    T* twiddles = plan.table(m * (radix - 1) * 2);
    T* line_twiddles = plan.passes.empty() ? plan.table(m * (radix - 1) * 2) : nullptr;
    T* roots = plan.table(2 * radix);
    for (int64_t p = 0; p < m; ++p) {
      for (int k = 1; k < radix; ++k) {
        const std::complex<double> w = unit_root(p * k, rest);
        T* to = twiddles + (p * (radix - 1) + k - 1) * 2;
        to[0] = static_cast<T>(w.real());
        to[1] = static_cast<T>(w.imag());
        if (!line_twiddles) continue;
        line_twiddles[(k - 1) * 2 * m + p] = to[0];
        line_twiddles[(k - 1) * 2 * m + m + p] = to[1];
      }
    }
    for (int j = 0; j < radix; ++j) {
      const std::complex<double> w = unit_root(j, radix);
      roots[2 * j] = static_cast<T>(w.real());
      roots[2 * j + 1] = static_cast<T>(-w.imag());
    }
    plan.passes.push_back({radix, m, twiddles, line_twiddles, roots});
    rest = m;
  }
}

template <typename T>
std::shared_ptr<const Plan<T>> get_plan(int64_t n, PlanUse use);

// Bluestein: j*k = (j^2 + k^2 - (k-j)^2) / 2 turns the transform into a convolution with a chirp,
// done with a transform of a convenient length. The chirp's spectrum is computed in double.
template <typename T>
void make_bluestein(Plan<T>& plan, int64_t length) {
  const int64_t n = plan.n;
  plan.convolution = get_plan<T>(length, PlanUse::complex_line);
  plan.chirp.resize(static_cast<size_t>(2 * n));
  std::vector<std::complex<double>> wrapped(static_cast<size_t>(length));
  int64_t square = 0;  // j^2 mod 2n
  for (int64_t j = 0; j < n; ++j) {
    const std::complex<double> w = unit_root(square, 2 * n);
    plan.chirp[2 * j] = static_cast<T>(w.real());
    plan.chirp[2 * j + 1] = static_cast<T>(w.imag());
    wrapped[j] = std::conj(w);
    if (j) wrapped[length - j] = std::conj(w);
    square = (square + 2 * j + 1) % (2 * n);
  }
  const int64_t stride = 1;
  fft_c2c<double>(wrapped.data(), wrapped.data(), {1, 0, &length, &stride, &stride}, true,
                  1.0 / static_cast<double>(length));
  plan.chirp_spectrum.resize(static_cast<size_t>(2 * length));
  for (int64_t j = 0; j < length; ++j) {
    plan.chirp_spectrum[2 * j] = static_cast<T>(wrapped[j].real());
    plan.chirp_spectrum[2 * j + 1] = static_cast<T>(wrapped[j].imag());
  }
}

template <typename T>
std::shared_ptr<const Plan<T>> make_plan(int64_t n, PlanUse use) {
  auto plan = std::make_shared<Plan<T>>();
  plan->n = n;
  const std::vector<int> radices = factorise(n);
  const int64_t length = convolution_length(2 * n - 1);
  const double bluestein_cost = 2 * cost_of_passes(length, factorise(length)) + 12.0 * length;
  if (cost_of_passes(n, radices) <= bluestein_cost) {
    make_passes(*plan, radices);
  } else {
    make_bluestein(*plan, length);
  }
  if (use == PlanUse::half_of_real) {
    plan->real_twiddles.resize(static_cast<size_t>(2 * n));
    for (int64_t k = 0; k < n; ++k) {
      const std::complex<double> w = unit_root(k, 2 * n);
      plan->real_twiddles[k] = static_cast<T>(w.real());
      plan->real_twiddles[n + k] = static_cast<T>(w.imag());
    }
  }
  return plan;
}

// The most recently used plans, newest first, bounded in number and in the elements they hold.
template <typename T>
class PlanCache {
 public:
  static PlanCache& instance() {
    static PlanCache* cache = new PlanCache;
    return *cache;
  }

  std::shared_ptr<const Plan<T>> find(int64_t n, PlanUse use) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto it = plans_.begin(); it != plans_.end(); ++it) {
      if (it->plan->n != n || it->use != use) continue;
      plans_.splice(plans_.begin(), plans_, it);
      return plans_.front().plan;
    }
    return nullptr;
  }

  void add(std::shared_ptr<const Plan<T>> plan, PlanUse use) {
    std::lock_guard<std::mutex> lock(mutex_);
    held_ += plan->rows();
    plans_.push_front({std::move(plan), use});
    while (plans_.size() > 1 && (plans_.size() > kMaxPlans || held_ > kMaxElements)) {
      held_ -= plans_.back().plan->rows();
      plans_.pop_back();
    }
  }

  void clear() {
    std::lock_guard<std::mutex> lock(mutex_);
    plans_.clear();
    held_ = 0;
  }

 private:
  static constexpr size_t kMaxPlans = 64;
  static constexpr int64_t kMaxElements = int64_t(1) << 23;
  struct Entry {
    std::shared_ptr<const Plan<T>> plan;
    PlanUse use;
  };
  std::mutex mutex_;
  std::list<Entry> plans_;
  int64_t held_ = 0;
};

template <typename T>
std::shared_ptr<const Plan<T>> get_plan(int64_t n, PlanUse use) {
  auto& cache = PlanCache<T>::instance();
  auto plan = cache.find(n, use);
  if (!plan) {
    plan = make_plan<T>(n, use);  // outside the lock: two threads may both make it, harmlessly
    cache.add(plan, use);
  }
  return plan;
}

}  // namespace fl::cpu::fft_detail

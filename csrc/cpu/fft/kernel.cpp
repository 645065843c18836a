// The driver of the Fourier transforms, which walks the lines of a strided batch; plans are made in
// fft_plan.h, the arithmetic is in kernels/fft_passes.h.
#include "cpu/fft/kernel.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/parallel.h"
#include "cpu/fft/plan.h"

namespace fl::cpu::fft_detail {
namespace {

// ---- scratch --------------------------------------------------------------------------------

template <typename T>
struct Planar {
  T* re;
  T* im;
  Planar swapped() const { return {im, re}; }
};

// Memory kept by the calling thread between calls (up to a bound) and handed out in slices.
class Scratch {
 public:
  ~Scratch() { release(); }
  void* get(size_t bytes) {
    if (bytes > size_) {
      release();
      const size_t rounded = (bytes + 4095) / 4096 * 4096;
      data_ = std::aligned_alloc(4096, rounded);
      if (!data_) throw std::bad_alloc();
      size_ = rounded;
    }
    return data_;
  }
  void release() {
    std::free(data_);
    data_ = nullptr;
    size_ = 0;
  }
  void trim() {
    if (size_ > kKeep) release();
  }
  static Scratch& mine() {
    static thread_local Scratch scratch;
    return scratch;
  }

 private:
  static constexpr size_t kKeep = size_t(32) << 20;
  void* data_ = nullptr;
  size_t size_ = 0;
};

// ---- the driver -----------------------------------------------------------------------------

enum class Kind { c2c, r2c, c2r };

struct BatchDim {
  int64_t size, in_stride, out_stride;
};

// The batch dimensions, fastest first, neighbours merged where both sides allow it.
std::vector<BatchDim> batch_dims(const FftGeometry& g) {
  std::vector<BatchDim> dims;
  for (int d = 0; d < g.rank; ++d) {
    if (d != g.dim && g.sizes[d] != 1) {
      dims.push_back({g.sizes[d], g.in_strides[d], g.out_strides[d]});
    }
  }
  std::stable_sort(dims.begin(), dims.end(), [](const BatchDim& a, const BatchDim& b) {
    const int64_t x = std::abs(a.in_stride), y = std::abs(b.in_stride);
    return x != y ? x < y : std::abs(a.out_stride) < std::abs(b.out_stride);
  });
  std::vector<BatchDim> merged;
  for (const BatchDim& dim : dims) {
    if (!merged.empty() && dim.in_stride == merged.back().in_stride * merged.back().size &&
        dim.out_stride == merged.back().out_stride * merged.back().size) {
      merged.back().size *= dim.size;
    } else {
      merged.push_back(dim);
    }
  }
  return merged;
}

bool consecutive(const int64_t* offsets, int count) {
  for (int b = 1; b < count; ++b) {
    if (offsets[b] != offsets[0] + b) return false;
  }
  return true;
}

template <typename T>
class Driver {
 public:
  Driver(Kind kind, const T* in, T* out, const FftGeometry& g, bool forward, bool onesided, T scale)
      : kind_(kind),
        in_(in),
        out_(out),
        forward_(forward),
        onesided_(onesided),
        scale_(scale),
        n_(g.sizes[g.dim]),
        half_(n_ / 2),
        in_step_(g.in_strides[g.dim]),
        out_step_(g.out_strides[g.dim]),
        dims_(batch_dims(g)),
        kernels_(fft_loops<T>()) {
    if (n_ < 1) {
      throw std::runtime_error("[fft] expected a transform length of at least 1, got " + std::to_string(n_));
    }
    lines_ = 1;
    for (const BatchDim& dim : dims_) lines_ *= dim.size;
  }

  void run() {
    if (lines_ == 0) return;
    packed_ = kind_ != Kind::c2c && n_ % 2 == 0;
    plan_ = packed_ ? get_plan<T>(half_, PlanUse::half_of_real) : get_plan<T>(n_, PlanUse::complex_line);
    choose_block();

    const int64_t blocks = (lines_ + block_ - 1) / block_;
    const int64_t rows = std::max(plan_->rows(), packed_ ? half_ + 1 : n_);
    plane_ = (rows * block_ + 15) / 16 * 16 + 80;  // the odd cache lines keep planes off one set
    const size_t per_thread = static_cast<size_t>(4 * plane_) * sizeof(T);
    const int threads = thread_count(blocks);
    char* memory = static_cast<char*>(Scratch::mine().get(per_thread * threads));
    if (threads == 1) {
      for (int64_t i = 0; i < blocks; ++i) run_block(i, reinterpret_cast<T*>(memory));
    } else {
      parallel_pieces(threads, work() / 3, [&](int piece, int pieces) {
        T* const mine = reinterpret_cast<T*>(memory + per_thread * piece);
        for (int64_t i = blocks * piece / pieces; i < blocks * (piece + 1) / pieces; ++i) run_block(i, mine);
      });
    }
    Scratch::mine().trim();
  }

 private:
  static constexpr int kMaxBlock = 32;
  static constexpr int64_t kCacheBytes = int64_t(2) << 20;

  // A contiguous line of some length is best done alone, straight from and to the tensor. Others
  // are gathered, as many at a time as stay in the second-level cache: long rows please memory.
  void choose_block() {
    const bool contiguous = in_step_ == 1 && (kind_ == Kind::c2r || out_step_ == 1);
    line_mode_ = kind_ != Kind::c2r && contiguous && plan_->has_line_passes() &&
                 (kind_ == Kind::c2c || (packed_ && half_ > 1));
    if (line_mode_ && (plan_->n >= 32 || lines_ == 1)) {
      block_ = 1;
      return;
    }
    line_mode_ = false;
    block_ = kMaxBlock;
    while (block_ > 4 && plan_->rows() * block_ * 4 * int64_t(sizeof(T)) > kCacheBytes) {
      block_ /= 2;
    }
    if (in_step_ == 1 && plan_->n >= 64 && !plan_->passes.empty() && plan_->passes[0].radix >= 4) {
      block_ = 1;
    }
    block_ = std::min(block_, lines_);
  }

  int thread_count(int64_t blocks) const {
    if (blocks < 2 || in_parallel()) return 1;
    if (work() < 60000) return 1;
    return static_cast<int>(std::min<int64_t>(thread_model::pieces_for(work() / 3), blocks));
  }
  // Steps of elements; three take about a nanosecond.
  double work() const {
    return static_cast<double>(lines_) * static_cast<double>(plan_->rows()) *
           (2 + std::log2(static_cast<double>(plan_->rows())));
  }

  void offsets(int64_t line, int64_t& in, int64_t& out) const {
    in = out = 0;
    for (const BatchDim& dim : dims_) {
      const int64_t at = line % dim.size;
      line /= dim.size;
      in += at * dim.in_stride;
      out += at * dim.out_stride;
    }
  }

  void run_block(int64_t index, T* memory) const {
    const int64_t first = index * block_;
    const int count = static_cast<int>(std::min(block_, lines_ - first));
    const Planar<T> x = {memory, memory + plane_};
    const Planar<T> y = {memory + 2 * plane_, memory + 3 * plane_};
    int64_t in_at[kMaxBlock], out_at[kMaxBlock];
    for (int b = 0; b < count; ++b) offsets(first + b, in_at[b], out_at[b]);
    if (line_mode_) {
      run_line(in_at[0], out_at[0], x, y);
      return;
    }
    switch (kind_) {
      case Kind::c2c:
        return block_c2c(in_at, out_at, count, x, y);
      case Kind::r2c:
        return block_r2c(in_at, out_at, count, x, y);
      case Kind::c2r:
        return block_c2r(in_at, out_at, count, x, y);
    }
  }

  void run_line(int64_t in_at, int64_t out_at, Planar<T> x, Planar<T> y) const {
    const auto& passes = plan_->passes;
    const int count = static_cast<int>(passes.size());
    if (kind_ == Kind::c2c) {
      kernels_.run_line(passes.data(), count, in_ + 2 * in_at, out_ + 2 * out_at, !forward_, scale_, x.re,
                        x.im, y.re, y.im);
      return;
    }
    const bool in_y =
        kernels_.run_line(passes.data(), count, in_ + in_at, nullptr, false, T(1), x.re, x.im, y.re, y.im);
    const Planar<T> z = in_y ? y : x;
    T* to = out_ + 2 * out_at;
    kernels_.real_post_line(z.re, z.im, half_, plan_->real_twiddles.data(), scale_, forward_ ? T(1) : T(-1),
                            to);
    if (!onesided_) {
      for (int64_t k = 1; k < half_; ++k) {
        to[2 * (n_ - k)] = to[2 * k];
        to[2 * (n_ - k) + 1] = -to[2 * k + 1];
      }
    }
  }

  // Forward transform of `count` planar lines; the result is in x or y, which is returned.
  Planar<T> transform(int count, Planar<T> x, Planar<T> y) const {
    if (!plan_->bluestein()) return passes_over(*plan_, count, x, y);
    const int64_t n = plan_->n, length = plan_->convolution->n;
    kernels_.multiply_rows(x.re, x.im, plan_->chirp.data(), false, n, count, y.re, y.im);
    std::fill(y.re + n * count, y.re + length * count, T(0));
    std::fill(y.im + n * count, y.im + length * count, T(0));
    Planar<T> z = passes_over(*plan_->convolution, count, y, x);
    Planar<T> other = z.re == y.re ? x : y;
    kernels_.multiply_rows(z.re, z.im, plan_->chirp_spectrum.data(), false, length, count, z.re, z.im);
    z = passes_over(*plan_->convolution, count, z.swapped(), other.swapped()).swapped();
    kernels_.multiply_rows(z.re, z.im, plan_->chirp.data(), false, n, count, z.re, z.im);
    return z;
  }

  Planar<T> passes_over(const Plan<T>& plan, int count, Planar<T> x, Planar<T> y) const {
    const bool in_y = kernels_.run_planar(plan.passes.data(), static_cast<int>(plan.passes.size()), count,
                                          x.re, x.im, y.re, y.im);
    return in_y ? y : x;
  }

  Planar<T> transform(int count, Planar<T> x, Planar<T> y, bool forward) const {
    return forward ? transform(count, x, y) : transform(count, x.swapped(), y.swapped()).swapped();
  }

  void block_c2c(const int64_t* in_at, const int64_t* out_at, int count, Planar<T> x, Planar<T> y) const {
    gather_complex(in_at, count, n_, x);
    scatter_complex(transform(count, x, y, forward_), out_at, count, n_);
  }

  void block_r2c(const int64_t* in_at, const int64_t* out_at, int count, Planar<T> x, Planar<T> y) const {
    Planar<T> spectrum;
    if (packed_) {
      if (in_step_ == 1) {
        gather_pairs(in_at, count, half_, x);
      } else {
        gather_real(in_at, count, half_, 0, 2, x.re);
        gather_real(in_at, count, half_, 1, 2, x.im);
      }
      const Planar<T> z = transform(count, x, y);
      spectrum = z.re == x.re ? y : x;
      kernels_.real_post_rows(z.re, z.im, half_, count, plan_->real_twiddles.data(), spectrum.re,
                              spectrum.im);
    } else {
      gather_real(in_at, count, n_, 0, 1, x.re);
      std::fill(x.im, x.im + n_ * count, T(0));
      spectrum = transform(count, x, y);
      std::fill(spectrum.im, spectrum.im + count, T(0));  // exactly real
    }
    if (!forward_) negate(spectrum.im, (half_ + 1) * count);
    scatter_complex(spectrum, out_at, count, half_ + 1);
    if (onesided_) return;
    for (int b = 0; b < count; ++b) {
      T* line = out_ + 2 * out_at[b];
      for (int64_t k = 1; k < n_ - half_; ++k) {
        const T* from = line + 2 * k * out_step_;
        T* to = line + 2 * (n_ - k) * out_step_;
        to[0] = from[0];
        to[1] = -from[1];
      }
    }
  }

  void block_c2r(const int64_t* in_at, const int64_t* out_at, int count, Planar<T> x, Planar<T> y) const {
    gather_complex(in_at, count, half_ + 1, x);
    if (forward_) negate(x.im, (half_ + 1) * count);
    if (packed_) {
      kernels_.real_pre_rows(x.re, x.im, half_, count, plan_->real_twiddles.data(), y.re, y.im);
      const Planar<T> z = transform(count, y, x, false);
      if (out_step_ == 1) {
        scatter_pairs(z, out_at, count, half_);
      } else {
        scatter_real(z.re, out_at, count, half_, 0, 2);
        scatter_real(z.im, out_at, count, half_, 1, 2);
      }
      return;
    }
    std::fill(x.im, x.im + count, T(0));
    for (int64_t k = 1; k < n_ - half_; ++k) {
      for (int b = 0; b < count; ++b) {
        x.re[(n_ - k) * count + b] = x.re[k * count + b];
        x.im[(n_ - k) * count + b] = -x.im[k * count + b];
      }
    }
    scatter_real(transform(count, x, y, false).re, out_at, count, n_, 0, 1);
  }

  static void negate(T* values, int64_t count) {
    for (int64_t i = 0; i < count; ++i) values[i] = -values[i];
  }

  // Contiguous lines of interleaved pairs (complex numbers, or reals two by two); offsets count T.
  void gather_pairs(const int64_t* at, int count, int64_t rows, Planar<T> to) const {
    if (count == 1) {
      kernels_.deinterleave(in_ + at[0], rows, to.re, to.im);
    } else {
      kernels_.transpose_in(in_, at, count, rows, to.re, to.im);
    }
  }

  void scatter_pairs(Planar<T> from, const int64_t* at, int count, int64_t rows) const {
    if (count == 1) {
      kernels_.interleave(from.re, from.im, rows, scale_, out_ + at[0]);
    } else {
      kernels_.transpose_out(from.re, from.im, count, rows, scale_, out_, at);
    }
  }

  void gather_complex(const int64_t* at, int count, int64_t rows, Planar<T> to) const {
    if (in_step_ == 1) {
      int64_t doubled[kMaxBlock];
      for (int b = 0; b < count; ++b) doubled[b] = 2 * at[b];
      gather_pairs(doubled, count, rows, to);
    } else if (consecutive(at, count)) {
      for (int64_t j = 0; j < rows; ++j) {
        kernels_.deinterleave(in_ + 2 * (at[0] + j * in_step_), count, to.re + j * count, to.im + j * count);
      }
    } else {
      for (int b = 0; b < count; ++b) {
        const T* from = in_ + 2 * at[b];
        for (int64_t j = 0; j < rows; ++j) {
          to.re[j * count + b] = from[2 * j * in_step_];
          to.im[j * count + b] = from[2 * j * in_step_ + 1];
        }
      }
    }
  }

  void scatter_complex(Planar<T> from, const int64_t* at, int count, int64_t rows) const {
    if (out_step_ == 1) {
      int64_t doubled[kMaxBlock];
      for (int b = 0; b < count; ++b) doubled[b] = 2 * at[b];
      scatter_pairs(from, doubled, count, rows);
    } else if (consecutive(at, count)) {
      for (int64_t j = 0; j < rows; ++j) {
        kernels_.interleave(from.re + j * count, from.im + j * count, count, scale_,
                            out_ + 2 * (at[0] + j * out_step_));
      }
    } else {
      for (int b = 0; b < count; ++b) {
        T* to = out_ + 2 * at[b];
        for (int64_t j = 0; j < rows; ++j) {
          to[2 * j * out_step_] = from.re[j * count + b] * scale_;
          to[2 * j * out_step_ + 1] = from.im[j * count + b] * scale_;
        }
      }
    }
  }

  // Elements start, start + every, ... of each line.
  void gather_real(const int64_t* at, int count, int64_t rows, int64_t start, int64_t every, T* to) const {
    const bool rows_contiguous = consecutive(at, count);
    for (int64_t j = 0; rows_contiguous && j < rows; ++j) {
      const T* from = in_ + at[0] + (start + j * every) * in_step_;
      std::copy(from, from + count, to + j * count);
    }
    if (rows_contiguous) return;
    for (int b = 0; b < count; ++b) {
      const T* from = in_ + at[b] + start * in_step_;
      for (int64_t j = 0; j < rows; ++j) to[j * count + b] = from[j * every * in_step_];
    }
  }

  void scatter_real(const T* from, const int64_t* at, int count, int64_t rows, int64_t start,
                    int64_t every) const {
    const bool rows_contiguous = consecutive(at, count);
    for (int64_t j = 0; rows_contiguous && j < rows; ++j) {
      T* to = out_ + at[0] + (start + j * every) * out_step_;
      for (int b = 0; b < count; ++b) to[b] = from[j * count + b] * scale_;
    }
    if (rows_contiguous) return;
    for (int b = 0; b < count; ++b) {
      T* to = out_ + at[b] + start * out_step_;
      for (int64_t j = 0; j < rows; ++j) to[j * every * out_step_] = from[j * count + b] * scale_;
    }
  }

  const Kind kind_;
  const T* const in_;
  T* const out_;
  const bool forward_, onesided_;
  const T scale_;
  const int64_t n_, half_, in_step_, out_step_;
  const std::vector<BatchDim> dims_;
  const FftLoops<T>& kernels_;
  std::shared_ptr<const Plan<T>> plan_;
  bool packed_ = false;     // real, even length: through a complex transform of half the length
  bool line_mode_ = false;  // one contiguous line at a time, not gathered
  int64_t lines_ = 0, block_ = 1, plane_ = 0;
};

}  // namespace
}  // namespace fl::cpu::fft_detail

namespace fl::cpu {

using fft_detail::Driver;
using fft_detail::Kind;

template <typename T>
void fft_c2c(const std::complex<T>* in, std::complex<T>* out, const FftGeometry& geometry, bool forward,
             T scale) {
  Driver<T>(Kind::c2c, reinterpret_cast<const T*>(in), reinterpret_cast<T*>(out), geometry, forward, false,
            scale)
      .run();
}

template <typename T>
void fft_r2c(const T* in, std::complex<T>* out, const FftGeometry& geometry, bool forward, bool onesided,
             T scale) {
  Driver<T>(Kind::r2c, in, reinterpret_cast<T*>(out), geometry, forward, onesided, scale).run();
}

template <typename T>
void fft_c2r(const std::complex<T>* in, T* out, const FftGeometry& geometry, bool forward, T scale) {
  Driver<T>(Kind::c2r, reinterpret_cast<const T*>(in), out, geometry, forward, true, scale).run();
}

void fft_clear_cache() {
  fft_detail::PlanCache<float>::instance().clear();
  fft_detail::PlanCache<double>::instance().clear();
  fft_detail::Scratch::mine().release();
}

#define FL_INSTANTIATE(T)                                                                          \
  template void fft_c2c<T>(const std::complex<T>*, std::complex<T>*, const FftGeometry&, bool, T); \
  template void fft_r2c<T>(const T*, std::complex<T>*, const FftGeometry&, bool, bool, T);         \
  template void fft_c2r<T>(const std::complex<T>*, T*, const FftGeometry&, bool, T);
FL_INSTANTIATE(float)
FL_INSTANTIATE(double)
#undef FL_INSTANTIATE

}  // namespace fl::cpu

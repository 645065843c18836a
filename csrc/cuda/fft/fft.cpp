// Fourier transforms by cuFFT, which is opened at first use; without it they go by their definition. Plans
// are kept. The transformed dimensions are moved last and made contiguous, three at a time.
#include <algorithm>
#include <list>
#include <mutex>

#include "cuda/engine/kernels.h"
#include "cuda/runtime/library.h"
#include "dispatch/kernel.h"
#include "ops/fft.h"
#include "ops/indexed.h"

namespace fl::cuda {

namespace {

enum FftType { kR2C = 0x2a, kC2R = 0x2c, kC2C = 0x29, kD2Z = 0x6a, kZ2D = 0x6c, kZ2Z = 0x69 };

struct CuFft {
  bool found;
  int (*create)(int*);
  int (*destroy)(int);
  int (*set_auto_allocation)(int, int);
  int (*set_work_area)(int, void*);
  int (*set_stream)(int, cudaStream_t);
  int (*make_plan)(int, int, long long*, long long*, long long, long long, long long*, long long, long long,
                   int, long long, size_t*);
  int (*r2c)(int, void*, void*);
  int (*c2r)(int, void*, void*);
  int (*d2z)(int, void*, void*);
  int (*z2d)(int, void*, void*);
  int (*c2c)(int, void*, void*, int);
  int (*z2z)(int, void*, void*, int);

  static const CuFft& get() {
    static const CuFft all = [] {
      CuFft f{};
      static const char* const names[] = {"libcufft.so.12", "libcufft.so.11", "libcufft.so", nullptr};
      Library library(names);
      library.find(f.create, "cufftCreate");
      library.find(f.destroy, "cufftDestroy");
      library.find(f.set_auto_allocation, "cufftSetAutoAllocation");
      library.find(f.set_work_area, "cufftSetWorkArea");
      library.find(f.set_stream, "cufftSetStream");
      library.find(f.make_plan, "cufftMakePlanMany64");
      library.find(f.r2c, "cufftExecR2C");
      library.find(f.c2r, "cufftExecC2R");
      library.find(f.d2z, "cufftExecD2Z");
      library.find(f.z2d, "cufftExecZ2D");
      library.find(f.c2c, "cufftExecC2C");
      library.find(f.z2z, "cufftExecZ2Z");
      f.found = library.complete();
      return f;
    }();
    return all;
  }
};

void check_fft(int status, const char* what) {
  FL_CHECK(status == 0, "[fft] cuFFT error ", status, " in ", what);
}

// ---------------------------------------------------------------- plans

struct Plan {
  int device, type, rank;
  long long n[3], batch;
  int handle;
  size_t work;
  bool same(const Plan& p) const {
    return device == p.device && type == p.type && rank == p.rank && n[0] == p.n[0] && n[1] == p.n[1] &&
           n[2] == p.n[2] && batch == p.batch;
  }
};

constexpr size_t kMostPlans = 64;
std::mutex mutex;
std::list<Plan> plans;  // the last used first

const Plan& plan_for(Plan wanted) {
  for (auto it = plans.begin(); it != plans.end(); ++it)
    if (it->same(wanted)) {
      plans.splice(plans.begin(), plans, it);
      return plans.front();
    }
  const CuFft& f = CuFft::get();
  if (plans.size() >= kMostPlans) {
    f.destroy(plans.back().handle);
    plans.pop_back();
  }
  check_fft(f.create(&wanted.handle), "cufftCreate");
  int status = f.set_auto_allocation(wanted.handle, 0);
  if (status == 0)
    status = f.make_plan(wanted.handle, wanted.rank, wanted.n, nullptr, 1, 0, nullptr, 1, 0, wanted.type,
                         wanted.batch, &wanted.work);
  if (status != 0) {
    f.destroy(wanted.handle);
    check_fft(status, "cufftMakePlanMany64");
  }
  plans.push_front(wanted);
  return plans.front();
}

// ---------------------------------------------------------------- transforms

// The tensor with some dimensions moved last, in their order.
Tensor moved_last(const Tensor& t, IntSpan dims) {
  Dims sizes, strides;
  const auto chosen = [&](int64_t d) { return std::find(dims.begin(), dims.end(), d) != dims.end(); };
  for (int64_t d = 0; d < t.dim(); ++d)
    if (!chosen(d)) {
      sizes.push_back(t.size(d));
      strides.push_back(t.stride(d));
    }
  for (int64_t d : dims) {
    sizes.push_back(t.size(d));
    strides.push_back(t.stride(d));
  }
  return alias(t, sizes, strides, t.offset());
}

// One to three dimensions.
void transform(const Tensor& to, const Tensor& input, IntSpan dims, bool forward, double scale) {
  const bool from_real = !is_complex(input.dtype()), to_real = !is_complex(to.dtype());
  const bool wide = real_of(to.dtype()) == DType::Double;
  const int64_t last = dims[dims.size() - 1];
  Tensor from = input;
  if (to_real && from.size(last) != to.size(last) / 2 + 1) {
    Dims sizes(from.sizes());
    sizes[last] = to.size(last) / 2 + 1;
    from = alias(from, sizes, from.strides(), from.offset());
  }
  Tensor source = contiguous(moved_last(from, dims));
  const Tensor target = moved_last(to, dims);
  const Tensor result = target.is_contiguous() ? target : empty(target.sizes(), target.options());
  // The library wants data on the boundaries of complex numbers. A transform to real numbers spoils its
  // input; the other sign is that of the conjugate.
  const bool aligned = reinterpret_cast<uintptr_t>(source.raw()) % (wide ? 16 : 8) == 0;
  if (!aligned || (to_real && source->storage.get() == input->storage.get())) source = copied(source);
  if (to_real && forward) fft_finish(source, 1, true);

  Plan wanted{};
  wanted.device = input.device().index;
  wanted.type = from_real ? (wide ? kD2Z : kR2C) : to_real ? (wide ? kZ2D : kC2R) : (wide ? kZ2Z : kC2C);
  wanted.rank = static_cast<int>(dims.size());
  const Tensor& lengths = to_real ? to : input;
  int64_t transformed = 1;
  for (int d = 0; d < wanted.rank; ++d) transformed *= wanted.n[d] = lengths.size(dims[d]);
  wanted.batch = lengths.numel() / transformed;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    const CuFft& f = CuFft::get();
    const cudaStream_t stream = current_stream();
    const Plan& plan = plan_for(wanted);
    Scratch work(plan.work, plan.device, stream);
    check_fft(f.set_stream(plan.handle, stream), "cufftSetStream");
    check_fft(f.set_work_area(plan.handle, work.get()), "cufftSetWorkArea");
    void *in = source.raw(), *out = result.raw();
    const int direction = forward ? -1 : 1;
    int status;
    if (from_real)
      status = (wide ? f.d2z : f.r2c)(plan.handle, in, out);
    else if (to_real)
      status = (wide ? f.z2d : f.c2r)(plan.handle, in, out);
    else
      status = (wide ? f.z2z : f.c2c)(plan.handle, in, out, direction);
    check_fft(status, "cufftExec");
    launched("fft");
  }
  if (scale != 1 || (from_real && !forward)) fft_finish(result, scale, from_real && !forward);
  if (!result.same(target)) copy_into(target, result);
}

// Operators whose own kernel calls `fft` below.
void by_library(const Operator& op, void*, KeySet keys, Value* args, Value* results) {
  check_on_device(op, args);
  if (!CuFft::get().found) return by_definition(op, keys, args, results);
  const Kernel own = op.kernel(Key::CPU);
  own.fn(op, own.context, keys, args, results);
}
const detail::Register complex_to_complex{"_fft_c2c", {Key::CUDA}, Kernel{by_library, nullptr}};
const detail::Register real_to_complex{"_fft_r2c", {Key::CUDA}, Kernel{by_library, nullptr}};
const detail::Register complex_to_real{"_fft_c2r", {Key::CUDA}, Kernel{by_library, nullptr}};

}  // namespace

void fft(const Tensor& to, const Tensor& from, IntSpan dims, bool forward, double scale) {
  OnDevice on(from.device().index);
  if (is_complex(from.dtype()) && is_complex(to.dtype())) {
    Tensor source = from;
    for (size_t first = 0; first < dims.size(); first += 3) {
      const size_t count = std::min<size_t>(3, dims.size() - first);
      transform(to, source, IntSpan(dims.data() + first, count), forward,
                first + count == dims.size() ? scale : 1);
      source = to;
    }
    return;
  }
  // Between real and complex numbers the last dimension is transformed alone: first towards complex numbers,
  // last towards real ones.
  const IntSpan last(dims.data() + dims.size() - 1, 1), others(dims.data(), dims.size() - 1);
  if (!is_complex(from.dtype())) {
    transform(to, from, last, forward, scale);
    if (!others.empty()) fft(to, to, others, forward, 1);
    return;
  }
  if (others.empty()) return transform(to, from, last, forward, scale);
  const Tensor spread = empty(from.sizes(), from.options());
  fft(spread, from, others, forward, 1);
  transform(to, spread, last, forward, scale);
}

FL_ATTACH(fft, CUDA, fft);

}  // namespace fl::cuda

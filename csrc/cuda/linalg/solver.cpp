// Factorisations by cuSOLVER and triangular systems by cuBLAS, opened at run time as LAPACK is on the host.
// Small matrices of a batch go together where the libraries have that, else one after the other.
#include "cuda/linalg/solver.h"

#include <library_types.h>

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "cuda/engine/kernels.h"
#include "cuda/runtime/library.h"

namespace fl::cuda {

namespace {

using linalg::Part;
using Handle = void*;

// ---------------------------------------------------------------- the libraries

struct Libraries {
  Library *blas, *solver;

  static const Libraries& get() {
    static const Libraries libraries = [] {
      // cuSOLVER looks for those it is made of under these names: opened before, they are found wherever they
      // lie.
      static const char* const lt[] = {"libcublasLt.so.13", "libcublasLt.so.12", nullptr};
      static const char* const blas[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so", nullptr};
      static const char* const linker[] = {"libnvJitLink.so.13", "libnvJitLink.so.12", nullptr};
      static const char* const sparse[] = {"libcusparse.so.12", "libcusparse.so.11", nullptr};
      static const char* const solver[] = {"libcusolver.so.12", "libcusolver.so.11", "libcusolver.so",
                                           nullptr};
      new Library(lt);
      Libraries l;
      l.blas = new Library(blas);
      new Library(linker);
      new Library(sparse);
      l.solver = new Library(solver);
      return l;
    }();
    return libraries;
  }
};

using Routine = void (*)();

// A function of a library, looked up once; null when it has none of that name.
Routine find(Library* library, const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, Routine> known;
  std::lock_guard<std::mutex> lock(mutex);
  const auto it = known.find(name);
  if (it != known.end()) return it->second;
  Routine routine = nullptr;
  library->find(routine, name.c_str());
  return known[name] = routine;
}

template <class... A>
void call(Library* library, const std::string& name, A... args) {
  const Routine routine = find(library, name);
  FL_CHECK_KIND(routine != nullptr, NotImplemented, "[linalg] expected a cuSOLVER with ", name,
                ", got none on this machine");
  const int status = reinterpret_cast<int (*)(A...)>(routine)(args...);
  FL_CHECK(status == 0, "[linalg] CUDA library error ", status, " in ", name);
}

// The handle of this thread for a device, with its stream set.
Handle handle(Library* library, const char* create, const char* set_stream) {
  thread_local std::map<std::pair<Library*, int>, Handle> handles;
  Handle& h = handles[{library, current_device()}];
  if (!h) call(library, create, &h);
  call(library, set_stream, h, current_stream());
  return h;
}

// ---------------------------------------------------------------- calls by type

// As the libraries' complex numbers are aligned: they read factors in the host's memory as a whole.
template <class R, int Width>
struct alignas(sizeof(R) * Width) Scalar_ {
  R part[Width];
};
template <class F>
void by_type(DType dtype, F f) {
  switch (dtype) {
    case DType::Float:
      return f(Scalar_<float, 1>{}, 'S');
    case DType::Double:
      return f(Scalar_<double, 1>{}, 'D');
    case DType::ComplexFloat:
      return f(Scalar_<float, 2>{}, 'C');
    default:
      return f(Scalar_<double, 2>{}, 'Z');
  }
}
cudaDataType cuda_type(DType t) {
  return t == DType::Float          ? CUDA_R_32F
         : t == DType::Double       ? CUDA_R_64F
         : t == DType::ComplexFloat ? CUDA_C_32F
                                    : CUDA_C_64F;
}

int narrow(int64_t n) {
  FL_CHECK(n < int64_t(1) << 31, "[linalg] expected matrix sizes below 2**31, got ", n);
  return static_cast<int>(n);
}
int leading(const Tensor& t) {
  return std::max(1, narrow(t.size(-2)));
}

// cuBLAS's enumerations.
int operation(char trans) {
  return trans == 'N' ? 0 : trans == 'T' ? 1 : 2;
}
int fill_mode(Part part) {
  return part == Part::Upper ? 1 : 0;
}

// One call of cuSOLVER for each matrix of a batch: its handle, names, workspace and room for an info that
// nobody asks for.
class Call {
 public:
  explicit Call(const Tensor& a)
      : on_(a.device().index),
        device_(a.device().index),
        dtype_(a.dtype()),
        library_(Libraries::get().solver),
        handle_(cuda::handle(library_, "cusolverDnCreate", "cusolverDnSetStream")),
        info_(sizeof(int), device_, current_stream()) {}

  // f(T, name) where name(routine) is its name for the type.
  template <class F>
  void typed(F f) const {
    by_type(dtype_, [&](auto t, char prefix) {
      f(t, [prefix](const char* real, const char* complex = nullptr) {
        const bool second = complex && (prefix == 'C' || prefix == 'Z');
        return std::string("cusolverDn") + prefix + (second ? complex : real);
      });
    });
  }
  template <class... A>
  void run(const std::string& name, A... args) const {
    call(library_, name, handle_, args...);
  }
  // How many elements of workspace a routine wants.
  template <class... A>
  int ask(const std::string& name, A... args) const {
    int count = 0;
    call(library_, name + "_bufferSize", handle_, args..., &count);
    return count;
  }
  Scratch scratch(size_t bytes) const { return {std::max<size_t>(bytes, 16), device_, current_stream()}; }
  int* ignored() const { return info_.as<int>(); }
  Library* library() const { return library_; }
  bool has(const char* name) const { return find(library_, name) != nullptr; }

 private:
  OnDevice on_;
  int device_;
  DType dtype_;
  Library* library_;
  Handle handle_;
  Scratch info_;
};

template <class T>
T* matrix(const Tensor& t, int64_t i) {
  return t.data<T>() + i * t.size(-2) * t.size(-1);
}
template <class T>
T* vector(const Tensor& t, int64_t i) {
  return t.data<T>() + i * t.size(-1);
}
int64_t batch_of(const Tensor& t) {
  return t.numel() / std::max<int64_t>(1, t.size(-1) * t.size(-2));
}

// What cuSOLVER's generic routines ask for besides a handle.
void* settings(const Call& c) {
  thread_local void* parameters = nullptr;
  if (!parameters) call(c.library(), "cusolverDnCreateParams", &parameters);
  return parameters;
}

// Whether the matrices of a batch go together: large ones fill the device by themselves.
bool together(const Tensor& a) {
  return batch_of(a) > 1 && a.size(-1) <= 256 && a.size(-2) <= 256;
}

// The addresses of matrices that lie one after the other, on the device.
class Addresses {
 public:
  Addresses(const Tensor& t, int64_t batch)
      : list_(sizeof(void*) * batch, t.device().index, current_stream()) {
    list_addresses(list_.as<void*>(), t.raw(), t.numel() / batch * t.itemsize(), batch);
  }
  template <class T>
  T** of() const {
    return list_.as<T*>();
  }

 private:
  Scratch list_;
};

// cuBLAS for a scope: its handle and the names of its routines.
class Blas {
 public:
  explicit Blas(const Tensor& a)
      : on_(a.device().index),
        library_(Libraries::get().blas),
        handle_(cuda::handle(library_, "cublasCreate_v2", "cublasSetStream_v2")) {}
  template <class... A>
  void run(const std::string& name, A... args) const {
    call(library_, "cublas" + name, handle_, args...);
  }

 private:
  OnDevice on_;
  Library* library_;
  Handle handle_;
};

// ---------------------------------------------------------------- the solver

class CuSolver final : public Elements {
 public:
  void getrf(const Tensor& a, const Tensor& pivots, const Tensor& info, bool pivot) override {
    const Call c(a);
    const int m = narrow(a.size(-2)), n = narrow(a.size(-1)), ld = leading(a);
    if (!pivot) count_pivots(pivots);
    if (m == n && together(a)) {
      const Blas blas(a);
      const int batch = narrow(batch_of(a));
      const Addresses each(a, batch);
      return by_type(a.dtype(), [&](auto t, char prefix) {
        using T = decltype(t);
        blas.run(prefix + std::string("getrfBatched"), n, each.of<T>(), ld,
                 pivot ? pivots.data<int>() : nullptr, info.data<int>(), batch);
      });
    }
    c.typed([&](auto t, auto name) {
      using T = decltype(t);
      const Scratch work = c.scratch(sizeof(T) * c.ask(name("getrf"), m, n, a.data<T>(), ld));
      for (int64_t i = 0; i < batch_of(a); ++i)
        c.run(name("getrf"), m, n, matrix<T>(a, i), ld, work.as<T>(),
              pivot ? vector<int>(pivots, i) : nullptr, info.data<int>() + i);
    });
  }

  void getrs(char trans, const Tensor& lu, const Tensor& pivots, const Tensor& x) override {
    const Call c(lu);
    const int n = narrow(lu.size(-1)), ld = leading(lu);
    const int64_t batch = batch_of(lu), size = x.numel() / batch;
    const int columns = narrow(size / n);
    if (together(lu)) {
      const Blas blas(lu);
      const Addresses factors(lu, batch), each(x, batch);
      return by_type(lu.dtype(), [&](auto t, char prefix) {
        using T = decltype(t);
        int wrong = 0;  // in the host's memory
        blas.run(prefix + std::string("getrsBatched"), operation(trans), n, columns, factors.of<T>(), ld,
                 static_cast<const int*>(pivots.data<int>()), each.of<T>(), n, &wrong, narrow(batch));
      });
    }
    c.typed([&](auto t, auto name) {
      using T = decltype(t);
      for (int64_t i = 0; i < batch; ++i)
        c.run(name("getrs"), operation(trans), n, columns, static_cast<const T*>(matrix<T>(lu, i)), ld,
              static_cast<const int*>(vector<int>(pivots, i)), x.data<T>() + i * size, n, c.ignored());
    });
  }

  void potrf(Part part, const Tensor& a, const Tensor& info) override {
    const Call c(a);
    const int n = narrow(a.size(-1)), ld = leading(a), uplo = fill_mode(part);
    if (together(a)) {
      const int batch = narrow(batch_of(a));
      const Addresses each(a, batch);
      return c.typed([&](auto t, auto name) {
        using T = decltype(t);
        c.run(name("potrfBatched"), uplo, n, each.of<T>(), ld, info.data<int>(), batch);
      });
    }
    c.typed([&](auto t, auto name) {
      using T = decltype(t);
      const int count = c.ask(name("potrf"), uplo, n, a.data<T>(), ld);
      const Scratch work = c.scratch(sizeof(T) * count);
      for (int64_t i = 0; i < batch_of(a); ++i)
        c.run(name("potrf"), uplo, n, matrix<T>(a, i), ld, work.as<T>(), count, info.data<int>() + i);
    });
  }

  void potrs(Part part, const Tensor& a, const Tensor& x) override {
    const Call c(a);
    const int n = narrow(a.size(-1)), ld = leading(a);
    c.typed([&](auto t, auto name) {
      using T = decltype(t);
      for (int64_t i = 0; i < batch_of(a); ++i)
        c.run(name("potrs"), fill_mode(part), n, narrow(x.size(-1)), static_cast<const T*>(matrix<T>(a, i)),
              ld, matrix<T>(x, i), n, c.ignored());
    });
  }

  void sytrf(const Tensor& a, const Tensor& pivots, const Tensor& info) override {
    const Call c(a);
    const int n = narrow(a.size(-1)), ld = leading(a);
    c.typed([&](auto t, auto name) {
      using T = decltype(t);
      const int count = c.ask(name("sytrf"), n, a.data<T>(), ld);
      const Scratch work = c.scratch(sizeof(T) * count);
      for (int64_t i = 0; i < batch_of(a); ++i)
        c.run(name("sytrf"), fill_mode(Part::Lower), n, matrix<T>(a, i), ld, vector<int>(pivots, i),
              work.as<T>(), count, info.data<int>() + i);
    });
  }

  void sytrs(const Tensor& a, const Tensor& pivots, const Tensor& x) override {
    const Call c(a);
    const int64_t n = a.size(-1), columns = x.size(-1);
    const int type = cuda_type(a.dtype()), uplo = fill_mode(Part::Lower);
    const Tensor wide = to_dtype(pivots, DType::Int64);
    for (int64_t i = 0; i < batch_of(a); ++i) {
      const void* factors = a.raw() + i * n * n * a.itemsize();
      void* rhs = x.raw() + i * n * columns * x.itemsize();
      const int64_t* swaps = vector<int64_t>(wide, i);
      size_t there = 0, here = 0;
      c.run("cusolverDnXsytrs_bufferSize", uplo, n, columns, type, factors, n, swaps, type, rhs, n, &there,
            &here);
      const Scratch work = c.scratch(there);
      std::vector<char> host(here + 1);
      c.run("cusolverDnXsytrs", uplo, n, columns, type, factors, n, swaps, type, rhs, n, work.get(), there,
            static_cast<void*>(host.data()), here, c.ignored());
      if (here) check(cudaStreamSynchronize(current_stream()), "linalg");
    }
  }

  void geqrf(const Tensor& a, const Tensor& tau) override {
    const Call c(a);
    const int m = narrow(a.size(-2)), n = narrow(a.size(-1)), ld = leading(a);
    c.typed([&](auto t, auto name) {
      using T = decltype(t);
      const int count = c.ask(name("geqrf"), m, n, a.data<T>(), ld);
      const Scratch work = c.scratch(sizeof(T) * count);
      for (int64_t i = 0; i < batch_of(a); ++i)
        c.run(name("geqrf"), m, n, matrix<T>(a, i), ld, vector<T>(tau, i), work.as<T>(), count, c.ignored());
    });
  }

  void orgqr(const Tensor& q, const Tensor& tau) override {
    const Call c(q);
    const int m = narrow(q.size(-2)), n = narrow(q.size(-1)), k = narrow(tau.size(-1)), ld = leading(q);
    c.typed([&](auto t, auto name) {
      using T = decltype(t);
      const std::string routine = name("orgqr", "ungqr");
      const int count = c.ask(routine, m, n, k, static_cast<const T*>(q.data<T>()), ld,
                              static_cast<const T*>(tau.data<T>()));
      const Scratch work = c.scratch(sizeof(T) * count);
      for (int64_t i = 0; i < batch_of(q); ++i)
        c.run(routine, m, n, k, matrix<T>(q, i), ld, static_cast<const T*>(vector<T>(tau, i)), work.as<T>(),
              count, c.ignored());
    });
  }

  void ormqr(bool left, bool transpose, const Tensor& a, const Tensor& tau, const Tensor& x) override {
    const Call c(a);
    const int m = narrow(x.size(-2)), n = narrow(x.size(-1)), k = narrow(tau.size(-1)), ld = leading(a),
              side = left ? 0 : 1,
              trans = !transpose              ? 0
                      : is_complex(a.dtype()) ? 2
                                              : 1;
    c.typed([&](auto t, auto name) {
      using T = decltype(t);
      const std::string routine = name("ormqr", "unmqr");
      const int count = c.ask(routine, side, trans, m, n, k, static_cast<const T*>(a.data<T>()), ld,
                              static_cast<const T*>(tau.data<T>()), static_cast<const T*>(x.data<T>()), m);
      const Scratch work = c.scratch(sizeof(T) * count);
      for (int64_t i = 0; i < batch_of(a); ++i)
        c.run(routine, side, trans, m, n, k, static_cast<const T*>(matrix<T>(a, i)), ld,
              static_cast<const T*>(vector<T>(tau, i)), matrix<T>(x, i), m, work.as<T>(), count, c.ignored());
    });
  }

  // By Jacobi's rotations.
  void gesvd(char job, const Tensor& a, const Tensor& s, const Tensor& u, const Tensor& v,
             const Tensor& info) override {
    const Call c(a);
    const int m = narrow(a.size(-2)), n = narrow(a.size(-1)), ld = leading(a), batch = narrow(batch_of(a));
    const int vectors = job != 'N', thin = job != 'A';
    thread_local void* rotations = nullptr;
    if (!rotations) call(c.library(), "cusolverDnCreateGesvdjInfo", &rotations);
    constexpr int kMostRows = 32;  // of matrices that go together
    const bool all = batch > 1 && m <= kMostRows;
    // Together, all left vectors are found; room for vectors is asked for even where none are wanted.
    Dims tall(a.sizes()), square(a.sizes());
    tall[tall.size() - 1] = all ? m : n;
    square[square.size() - 2] = n;
    const Tensor left = vectors && !(all && thin && m > n) ? u : empty(tall, a.options());
    const Tensor right = vectors ? v : empty(square, a.options());
    c.typed([&](auto t, auto name) {
      using T = decltype(t);
      using R = std::decay_t<decltype(t.part[0])>;
      int count = 0;
      if (all) {
        c.run(name("gesvdjBatched_bufferSize"), vectors, m, n, a.data<T>(), ld, s.data<R>(), left.data<T>(),
              m, right.data<T>(), n, &count, rotations, batch);
        const Scratch work = c.scratch(sizeof(T) * count);
        return c.run(name("gesvdjBatched"), vectors, m, n, a.data<T>(), ld, s.data<R>(), left.data<T>(), m,
                     right.data<T>(), n, work.as<T>(), count, info.data<int>(), rotations, batch);
      }
      c.run(name("gesvdj_bufferSize"), vectors, thin, m, n, a.data<T>(), ld, s.data<R>(), left.data<T>(), m,
            right.data<T>(), n, &count, rotations);
      const Scratch work = c.scratch(sizeof(T) * count);
      for (int64_t i = 0; i < batch; ++i)
        c.run(name("gesvdj"), vectors, thin, m, n, matrix<T>(a, i), ld, vector<R>(s, i), matrix<T>(left, i),
              m, matrix<T>(right, i), n, work.as<T>(), count, info.data<int>() + i, rotations);
    });
    if (vectors && !left.same(u)) copy_part(u, left, Part::All, false);
  }

  void syevd(bool vectors, Part part, const Tensor& a, const Tensor& w, const Tensor& info) override {
    const Call c(a);
    const int n = narrow(a.size(-1)), ld = leading(a), job = vectors ? 1 : 0, uplo = fill_mode(part);
    if (together(a) && c.has("cusolverDnXsyevBatched")) {
      const int64_t wide = n, batch = batch_of(a);
      const int type = cuda_type(a.dtype()), real = cuda_type(w.dtype());
      void *matrices = a.raw(), *values = w.raw();
      size_t there = 0, here = 0;
      c.run("cusolverDnXsyevBatched_bufferSize", settings(c), job, uplo, wide, type, matrices, wide, real,
            values, type, &there, &here, batch);
      const Scratch work = c.scratch(there);
      std::vector<char> host(here + 1);
      c.run("cusolverDnXsyevBatched", settings(c), job, uplo, wide, type, matrices, wide, real, values, type,
            work.get(), there, static_cast<void*>(host.data()), here, info.data<int>(), batch);
      if (here) check(cudaStreamSynchronize(current_stream()), "linalg");
      return;
    }
    c.typed([&](auto t, auto name) {
      using T = decltype(t);
      using R = std::decay_t<decltype(t.part[0])>;
      const std::string routine = name("syevd", "heevd");
      const int count = c.ask(routine, job, uplo, n, static_cast<const T*>(a.data<T>()), ld,
                              static_cast<const R*>(w.data<R>()));
      const Scratch work = c.scratch(sizeof(T) * count);
      for (int64_t i = 0; i < batch_of(a); ++i)
        c.run(routine, job, uplo, n, matrix<T>(a, i), ld, vector<R>(w, i), work.as<T>(), count,
              info.data<int>() + i);
    });
  }

  void geev(const Tensor& a, const Tensor& w, const Tensor& v, const Tensor& info) override {
    const Call c(a);
    const int64_t n = a.size(-1), none = 1;
    const int type = cuda_type(a.dtype()), no = 0, right = v.defined() ? 1 : 0;
    for (int64_t i = 0; i < batch_of(a); ++i) {
      void* input = a.raw() + i * n * n * a.itemsize();
      void* values = w.raw() + i * n * w.itemsize();
      void* vectors = v.defined() ? v.raw() + i * n * n * v.itemsize() : nullptr;
      void* nothing = nullptr;
      size_t there = 0, here = 0;
      c.run("cusolverDnXgeev_bufferSize", settings(c), no, right, n, type, static_cast<const void*>(input), n,
            type, static_cast<const void*>(values), type, static_cast<const void*>(nothing), none, type,
            static_cast<const void*>(vectors), n, type, &there, &here);
      const Scratch work = c.scratch(there);
      std::vector<char> host(here + 1);
      c.run("cusolverDnXgeev", settings(c), no, right, n, type, input, n, type, values, type, nothing, none,
            type, vectors, n, type, work.get(), there, static_cast<void*>(host.data()), here,
            info.data<int>() + i);
      check(cudaStreamSynchronize(current_stream()), "linalg");  // the host's part of the workspace goes
    }
  }

  void trsm(bool left, Part part, char trans, bool unit, const Tensor& a, const Tensor& b) override {
    const Blas blas(a);
    const int order = narrow(a.size(-1)), m = left ? order : narrow(b.size(-2)),
              n = left ? narrow(b.size(-1)) : order;
    const int side = left ? 0 : 1, uplo = fill_mode(part), op = operation(trans), diagonal = unit ? 1 : 0;
    by_type(a.dtype(), [&](auto t, char prefix) {
      using T = decltype(t);
      T one{};
      one.part[0] = 1;
      const T* alpha = &one;
      const int64_t batch = batch_of(a);
      if (together(a)) {
        const Addresses factors(a, batch), each(b, batch);
        return blas.run(prefix + std::string("trsmBatched"), side, uplo, op, diagonal, m, n, alpha,
                        factors.of<T>(), leading(a), each.of<T>(), leading(b), narrow(batch));
      }
      for (int64_t i = 0; i < batch; ++i)
        blas.run(prefix + std::string("trsm_v2"), side, uplo, op, diagonal, m, n, alpha,
                 static_cast<const T*>(matrix<T>(a, i)), leading(a), matrix<T>(b, i), leading(b));
    });
  }
};

}  // namespace

linalg::Solver& solver() {
  static CuSolver the_solver;
  FL_CHECK_KIND(find(Libraries::get().solver, "cusolverDnCreate") != nullptr, NotImplemented,
                "[linalg] expected cuSOLVER for factorisations on CUDA, got none on this machine");
  return the_solver;
}

FL_ATTACH(solver, CUDA, solver);

}  // namespace fl::cuda

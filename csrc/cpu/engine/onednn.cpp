// Opens oneDNN and OpenBLAS at first use: see onednn.h.
#include "cpu/engine/onednn.h"

#include <dlfcn.h>

#include <cstdlib>
#include <new>
#include <string>

#include "cpu/engine/library.h"
#include "cpu/engine/openmp_bridge.h"

namespace fl::cpu {
namespace {

const OneDnn* load_onednn() {
  const char* chosen = std::getenv("FLAMBEAU_ONEDNN_LIB");
  void* handle = chosen && *chosen ? dlopen(chosen, RTLD_LAZY | RTLD_LOCAL)
                                   : open_library("dnnl", {"libdnnl.so.3", "libdnnl.so"});
  if (!handle) return nullptr;
  auto* table = new OneDnn;  // lives as long as the process: threads may still be using it at exit
  bool complete = true;
#define FL_RESOLVE(name)                                                               \
  table->name = reinterpret_cast<decltype(table->name)>(dlsym(handle, "dnnl_" #name)); \
  complete = complete && table->name;
  FL_ONEDNN_FUNCTIONS(FL_RESOLVE)
#undef FL_RESOLVE
  if (complete) table->on_pool = use_pool_for_openmp(handle);
  if (complete && table->engine_create(&table->engine, dnnl_cpu, 0) == dnnl_success) return table;
  delete table;
  return nullptr;
}

const OpenBlas* load_openblas() {
  // OpenBLAS starts worker threads while it is loaded, which would compete with the OpenMP pool;
  // it reads this variable at that moment only.
  const char* before = std::getenv("OPENBLAS_NUM_THREADS");
  const std::string saved = before ? before : "";
  setenv("OPENBLAS_NUM_THREADS", "1", 1);
  void* handle = open_library("openblas", {"libscipy_openblas.so", "libopenblas.so.0", "libopenblas.so"});
  if (before)
    setenv("OPENBLAS_NUM_THREADS", saved.c_str(), 1);
  else
    unsetenv("OPENBLAS_NUM_THREADS");
  if (!handle) return nullptr;

  const auto find = [&](const char* name) { return find_blas_function(handle, name); };
  if (void* f = find("openblas_set_num_threads")) reinterpret_cast<void (*)(int)>(f)(1);
  auto* table = new OpenBlas;
  table->dgemm = reinterpret_cast<OpenBlas::RealGemm>(find("cblas_dgemm"));
  table->cgemm = reinterpret_cast<OpenBlas::Gemm>(find("cblas_cgemm"));
  table->zgemm = reinterpret_cast<OpenBlas::Gemm>(find("cblas_zgemm"));
  if (table->dgemm && table->cgemm && table->zgemm) return table;
  delete table;
  return nullptr;
}

}  // namespace

const OneDnn* onednn() {
  static const OneDnn* const table = load_onednn();
  return table;
}

dnnl_stream_t onednn_stream() {
  // Never destroyed: a CPU stream holds no resources worth a destructor at thread exit.
  thread_local dnnl_stream_t stream = [] {
    dnnl_stream_t s = nullptr;
    onednn()->stream_create(&s, onednn()->engine, dnnl_stream_default_flags);
    return s;
  }();
  return stream;
}

const OpenBlas* openblas() {
  static const OpenBlas* const table = load_openblas();
  return table;
}

BlasMatrix blas_matrix(int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride) {
  constexpr int64_t limit = INT32_MAX;
  const bool plain = (col_stride == 1 || cols <= 1) && (row_stride >= cols || rows <= 1);
  const bool turned = (row_stride == 1 || rows <= 1) && (col_stride >= rows || cols <= 1);
  int64_t lead = plain ? (rows <= 1 ? cols : row_stride) : (cols <= 1 ? rows : col_stride);
  if (lead < 1) lead = 1;
  const bool fits = (plain || turned) && lead < limit && rows < limit && cols < limit;
  return {fits, !plain, fits ? int(lead) : 0};
}

template <class T>
bool blas_gemm(int64_t m, int64_t n, int64_t k, T alpha, const T* a, int64_t a_row, int64_t a_col, const T* b,
               int64_t b_row, int64_t b_col, T beta, T* c, int64_t c_row, int64_t c_col) {
  if (c_col != 1 && c_row == 1)  // C^T = B^T A^T is row-major
    return blas_gemm(n, m, k, alpha, b, b_col, b_row, a, a_col, a_row, beta, c, c_col, c_row);
  const BlasMatrix la = blas_matrix(m, k, a_row, a_col), lb = blas_matrix(k, n, b_row, b_col);
  const BlasMatrix lc = blas_matrix(m, n, c_row, c_col);
  if (!la.fits || !lb.fits || !lc.fits || lc.transposed) return false;
  if constexpr (sizeof(T) == 4) {
    if (!onednn()) return false;
    const ThreadLimit limit(1);
    return onednn()->sgemm(la.transposed ? 'T' : 'N', lb.transposed ? 'T' : 'N', m, n, k, alpha, a, la.lead,
                           b, lb.lead, beta, c, lc.lead) == dnnl_success;
  } else {
    if (!openblas()) return false;
    constexpr int row_major = 101, plain = 111, transposed = 112;
    openblas()->dgemm(row_major, la.transposed ? transposed : plain, lb.transposed ? transposed : plain,
                      int(m), int(n), int(k), alpha, a, la.lead, b, lb.lead, beta, c, lc.lead);
    return true;
  }
}

template bool blas_gemm(int64_t, int64_t, int64_t, float, const float*, int64_t, int64_t, const float*,
                        int64_t, int64_t, float, float*, int64_t, int64_t);
template bool blas_gemm(int64_t, int64_t, int64_t, double, const double*, int64_t, int64_t, const double*,
                        int64_t, int64_t, double, double*, int64_t, int64_t);

Workspace::~Workspace() {
  std::free(data_);
}

void* Workspace::get(size_t bytes) {
  if (bytes > size_) {
    const size_t rounded = (bytes + 4095) & ~size_t(4095);
    std::free(data_);
    size_ = 0;
    data_ = std::aligned_alloc(4096, rounded);
    if (!data_) throw std::bad_alloc();
    size_ = rounded;
  }
  return data_;
}

uint64_t PrimitiveKey::hash() const {
  uint64_t h = 0x9e3779b97f4a7c15u ^ uint64_t(count_);
  for (int i = 0; i < count_; ++i) {
    h = (h ^ uint64_t(words_[i])) * 0xff51afd7ed558ccdu;
    h ^= h >> 32;
  }
  return h;
}

}  // namespace fl::cpu

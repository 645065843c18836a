// Late binding to the two native libraries the CPU layer can use: oneDNN (convolutions, large
// float products) and OpenBLAS (complex and
// large double products).
//
// Neither is linked.  Each is opened at first use and its few functions resolved into a table, so
// importing the framework costs nothing, and a missing library only means slower code of our own.
// library.h says where they are looked for, under the names "dnnl" and "openblas"; for oneDNN the
// environment variable FLAMBEAU_ONEDNN_LIB comes before everything else.
#pragma once

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace fl::cpu {

// ---- oneDNN ------------------------------------------------------------------------------------

// clang-format off
#define FL_ONEDNN_FUNCTIONS(X) \
  X(engine_create) \
  X(stream_create) \
  X(memory_desc_create_with_strides) \
  X(memory_desc_create_with_tag) \
  X(memory_desc_destroy) \
  X(memory_desc_equal) \
  X(memory_desc_get_size) \
  X(memory_create) \
  X(memory_destroy) \
  X(primitive_desc_destroy) \
  X(primitive_desc_query_md) \
  X(primitive_create) \
  X(primitive_execute) \
  X(primitive_destroy) \
  X(primitive_attr_create) \
  X(primitive_attr_destroy) \
  X(primitive_attr_set_scratchpad_mode) \
  X(primitive_attr_set_post_ops) \
  X(post_ops_create) \
  X(post_ops_destroy) \
  X(post_ops_append_binary) \
  X(post_ops_append_eltwise) \
  X(sgemm) \
  X(convolution_forward_primitive_desc_create) \
  X(convolution_backward_data_primitive_desc_create) \
  X(convolution_backward_weights_primitive_desc_create) \
  X(reorder_primitive_desc_create)
// clang-format on

// The oneDNN functions in use, named as in the C API less the dnnl_ prefix, and the CPU engine.
struct OneDnn {
#define FL_DECLARE(name) decltype(&::dnnl_##name) name = nullptr;
  FL_ONEDNN_FUNCTIONS(FL_DECLARE)
#undef FL_DECLARE
  dnnl_engine_t engine = nullptr;
  bool on_pool = false;  // its regions run on our pool, not on threads of OpenMP's own
};

// The table, or null where oneDNN cannot be loaded.  Thread safe; cheap after the first call.
const OneDnn* onednn();

// This thread's stream on the CPU engine; requires onednn().
dnnl_stream_t onednn_stream();

// Makes OpenMP code of other libraries, called by this thread, use `threads` threads meanwhile.
class ThreadLimit {
 public:
  explicit ThreadLimit(int threads) : before_(omp_get_max_threads()), changed_(threads != before_) {
    if (changed_) omp_set_num_threads(threads);
  }
  ~ThreadLimit() {
    if (changed_) omp_set_num_threads(before_);
  }
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;

 private:
  const int before_;
  const bool changed_;
};

// A grow-only, 64-byte aligned buffer belonging to one thread: scratch memory of kernels.
class Workspace {
 public:
  ~Workspace();
  Workspace() = default;
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  void* get(size_t bytes);

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

// What identifies a primitive: a short list of numbers (type, sizes, strides, flags, threads).
class PrimitiveKey {
 public:
  static constexpr int kMax = 56;
  void add(int64_t v) { words_[count_++] = v; }
  uint64_t hash() const;
  bool operator==(const PrimitiveKey& o) const {
    return count_ == o.count_ && std::memcmp(words_, o.words_, count_ * sizeof(int64_t)) == 0;
  }

 private:
  int count_ = 0;
  int64_t words_[kMax];
};

// Caches built primitives by key.  In front, each thread has a small set-associative table found
// without locking; behind it, one bounded map shared by all threads.  Value is immutable once made.
template <class Value>
class PrimitiveCache {
 public:
  using Ptr = std::shared_ptr<const Value>;

  // Front table: 32 sets of 4 entries.  Make one thread_local per cache.
  class Front {
    friend class PrimitiveCache;
    static constexpr int kSets = 32, kWays = 4;
    struct Entry {
      uint64_t hash = 0;
      PrimitiveKey key;
      Ptr value;
    };
    Entry entries_[kSets][kWays];
    uint8_t next_[kSets] = {};
  };

  // The cached value, or the one `make` builds.  The pointer stays valid until this thread's next
  // lookups push the entry out of the front table: do not keep it across calls.
  template <class Make>
  const Value& get(Front& front, const PrimitiveKey& key, Make&& make) {
    const uint64_t hash = key.hash();
    const int set = int(hash >> 32) & (Front::kSets - 1);
    for (auto& e : front.entries_[set])
      if (e.value && e.hash == hash && e.key == key) return *e.value;
    auto& e = front.entries_[set][front.next_[set]++ % Front::kWays];
    e.value = shared(key, make);
    e.hash = hash;
    e.key = key;
    return *e.value;
  }

 private:
  static constexpr size_t kCapacity = 512;

  struct Hash {
    size_t operator()(const PrimitiveKey& k) const { return size_t(k.hash()); }
  };

  template <class Make>
  Ptr shared(const PrimitiveKey& key, Make&& make) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto it = map_.find(key);
    if (it != map_.end()) return it->second;
    Ptr value = make();
    if (map_.size() >= kCapacity) map_.clear();  // entries in use live on in the front tables
    map_.emplace(key, value);
    return value;
  }

  std::mutex mutex_;
  std::unordered_map<PrimitiveKey, Ptr, Hash> map_;
};

// ---- BLAS ----------------------------------------------------------------------------------

// How BLAS sees a matrix: row-major, or the transpose of a row-major one, rows `lead` elements apart.
struct BlasMatrix {
  bool fits;  // false: it cannot be described so
  bool transposed;
  int lead;
};
BlasMatrix blas_matrix(int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride);

// C = alpha * A @ B + beta * C on this thread alone, through oneDNN (float) or OpenBLAS (double);
// false: not available for these strides, C is untouched.
template <class T>
bool blas_gemm(int64_t m, int64_t n, int64_t k, T alpha, const T* a, int64_t a_row, int64_t a_col, const T* b,
               int64_t b_row, int64_t b_col, T beta, T* c, int64_t c_row, int64_t c_col);

// Products of OpenBLAS, single-threaded: callers split the work over our own pool.
struct OpenBlas {
  using Gemm = void (*)(int order, int trans_a, int trans_b, int m, int n, int k, const void* alpha,
                        const void* a, int lda, const void* b, int ldb, const void* beta, void* c, int ldc);
  using RealGemm = void (*)(int order, int trans_a, int trans_b, int m, int n, int k, double alpha,
                            const double* a, int lda, const double* b, int ldb, double beta, double* c,
                            int ldc);
  RealGemm dgemm = nullptr;
  Gemm cgemm = nullptr;
  Gemm zgemm = nullptr;
};

// The table, or null where OpenBLAS cannot be loaded.
const OpenBlas* openblas();

}  // namespace fl::cpu

// Threads: splits a range over OpenMP threads when it is long enough to pay.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <exception>

namespace fl {

constexpr int64_t kGrain =
    32768;  // simple element operations below which a second thread costs more than it saves

int num_threads();
void set_num_threads(int n);

// Calls f(begin, end) on disjoint pieces of [0, n), each of at least `grain` except when n is smaller.
template <class F>
void parallel_for(int64_t n, int64_t grain, const F& f) {
  if (n <= 0) return;
  const int64_t most = (n + grain - 1) / std::max<int64_t>(grain, 1);
  const int threads = static_cast<int>(std::min<int64_t>(num_threads(), most));
  if (threads <= 1 || omp_in_parallel()) {
    f(int64_t(0), n);
    return;
  }
  std::exception_ptr error;
#pragma omp parallel num_threads(threads)
  {
    const int64_t piece = (n + threads - 1) / threads;
    const int64_t begin = omp_get_thread_num() * piece;
    const int64_t end = std::min(n, begin + piece);
    if (begin < end) {
      try {
        f(begin, end);
      } catch (...) {
#pragma omp critical
        error = std::current_exception();
      }
    }
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace fl

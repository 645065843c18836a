// The number of threads, and what becomes of it in a forked child.
#include "core/parallel.h"

#include <pthread.h>

#include <atomic>
#include <cstdlib>

namespace fl {

namespace {
std::atomic<int> threads{0};

int initial() {
  // libgomp's pool does not survive fork: a child that enters a parallel region would wait for ever.
  pthread_atfork(nullptr, nullptr, [] { threads = 1; });
  return std::max(1, omp_get_max_threads());
}
}  // namespace

int num_threads() {
  int n = threads.load(std::memory_order_relaxed);
  if (__builtin_expect(n == 0, 0)) {
    n = initial();
    threads = n;
  }
  return n;
}

void set_num_threads(int n) {
  num_threads();
  threads = std::max(1, n);
  omp_set_num_threads(std::max(1, n));
}

}  // namespace fl

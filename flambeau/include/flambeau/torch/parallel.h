// at::parallel_for: a range in pieces, on threads of the caller's.
#pragma once

#include <flambeau/torch/types.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace at {

inline int get_num_threads() {
  return fl_num_threads();
}
inline void set_num_threads(int threads) {
  fl_set_num_threads(threads);
}

// Calls f(begin, end) for parts of a range that have `grain_size` or more elements each.
template <class F>
void parallel_for(int64_t begin, int64_t end, int64_t grain_size, const F& f) {
  const int64_t length = end - begin;
  if (length <= 0) return;
  const int64_t most = std::max<int64_t>(1, length / std::max<int64_t>(1, grain_size));
  const int64_t pieces = std::min<int64_t>(get_num_threads(), most);
  if (pieces <= 1) return f(begin, end);
  std::exception_ptr failure;
  std::mutex mutex;
  const auto run = [&](int64_t piece) {
    try {
      f(begin + length * piece / pieces, begin + length * (piece + 1) / pieces);
    } catch (...) {
      const std::lock_guard<std::mutex> lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (int64_t piece = 1; piece < pieces; ++piece) threads.emplace_back(run, piece);
  run(0);
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace at

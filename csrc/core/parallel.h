// Threads: divides ranges among the threads of the pool when they are long enough to pay.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/thread_pool.h"

namespace fl {

// Simple element operations that are worth a region of their own: some microseconds of one core.
constexpr int64_t kGrain = 32768;

namespace thread_model {
// A model of the machine, in nanoseconds: kGrain operations on one thread, and what each further thread adds
// to the start and the end of a region. The time of a region of k threads is about work / k + k * kThread,
// which is least for k = sqrt(work / kThread).
constexpr double kGrainTime = 5000, kThread = 250;

// The number of pieces for work that takes one thread this long.
inline int pieces_for(double nanoseconds) {
  const int most = num_threads();
  if (nanoseconds < kGrainTime || most <= 1 || in_parallel()) return 1;
  return std::clamp(static_cast<int>(std::sqrt(nanoseconds / kThread)), 1, most);
}
}  // namespace thread_model

// Calls f(piece, pieces) for each piece, of work that takes one thread so many nanoseconds altogether.
template <class F>
void parallel_pieces(int pieces, double nanoseconds, const F& f) {
  if (pieces <= 1) return f(0, 1);
  run_pieces(
      pieces,
      [](const void* context, int piece, int count) { (*static_cast<const F*>(context))(piece, count); }, &f,
      nanoseconds);
}

// Calls f(begin, end) on disjoint parts of [0, n). `grain` items are worth kGrain simple operations: fewer
// are never divided.
template <class F>
void parallel_for(int64_t n, int64_t grain, const F& f) {
  if (n <= 0) return;
  if (n <= grain) return f(int64_t(0), n);
  const double time =
      static_cast<double>(n) / static_cast<double>(std::max<int64_t>(grain, 1)) * thread_model::kGrainTime;
  const int64_t most = std::min<int64_t>(n, thread_model::pieces_for(time));
  if (most <= 1) return f(int64_t(0), n);
  int64_t part = (n + most - 1) / most;
  if (part >= 1024) part = (part + 63) / 64 * 64;  // no two threads write to one cache line
  const int pieces = static_cast<int>((n + part - 1) / part);
  parallel_pieces(pieces, time, [&](int piece, int) {
    const int64_t begin = piece * part;
    f(begin, std::min(n, begin + part));
  });
}

}  // namespace fl

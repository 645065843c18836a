// The pool of worker threads that every kernel of the CPU shares.
//
// A region is a function and a number of pieces. The caller hands one piece each to idle workers, runs a
// piece itself, and waits until all pieces have run. Which thread runs a piece changes nothing about its
// result: the number of pieces follows from the work alone, the number of workers from who is idle and awake
// at that moment. A piece whose worker has not begun when the caller is through with its own is taken back
// and run by the caller, so that a worker that sleeps or was preempted never delays a region that it has not
// entered.
//
// Workers spin for a short time after a piece and then sleep on a futex. Several callers share the idle
// workers; a region inside a piece runs on the thread of that piece.
#pragma once

#include <cstdint>

namespace fl {

// Runs one piece of a region. Pieces are numbered from 0 to pieces - 1.
using PieceFunction = void (*)(const void* context, int piece, int pieces);

// Calls function(context, piece, pieces) once for every piece, on this thread and on idle workers.
// `nanoseconds` is an estimate of the whole work on one thread: short regions do not wake workers that sleep.
// The first exception of a piece is thrown again when all pieces have ended.
void run_pieces(int pieces, PieceFunction function, const void* context, double nanoseconds);

// The same with one thread for every piece, all of them at a time: for code that waits for its other pieces,
// as OpenMP regions of other libraries do. The caller runs piece 0 itself between the two calls.
class Gang {
 public:
  Gang(int pieces, PieceFunction function, const void* context);
  ~Gang();  // waits for the pieces
  Gang(const Gang&) = delete;
  Gang& operator=(const Gang&) = delete;

 private:
  struct State;
  State* const state_;
};

constexpr int kMostThreads = 512;

// The number of threads that a region may use, the caller's included.
int num_threads();
void set_num_threads(int n);

// Whether this thread runs a piece of a region.
bool in_parallel();

// Whether this process was forked from one that used the library: threads of other runtimes, whose pools do
// not survive that, must not be waited for.
bool is_forked();

// While one exists, idle workers stay awake for longer: a program that will soon enter the next region has
// one.
class PoolHold {
 public:
  PoolHold();
  ~PoolHold();
  PoolHold(const PoolHold&) = delete;
  PoolHold& operator=(const PoolHold&) = delete;
};

// What the pool has done since the process began, for tests and measurements.
struct PoolCounters {
  uint64_t regions;     // with more than one piece
  uint64_t alone;       // of them those that the caller ran without any worker
  uint64_t members;     // workers that were handed a piece
  uint64_t woken;       // of them those that had to be woken from sleep
  uint64_t taken_back;  // pieces that the caller ran because their worker had not begun
  uint64_t wait_ns;     // that callers spent waiting for workers
  uint64_t workers;     // threads of the pool
};
PoolCounters pool_counters();

}  // namespace fl

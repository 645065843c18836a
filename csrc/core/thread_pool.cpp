// See thread_pool.h. A worker and its caller meet in one cache line: the caller posts a piece there, the
// worker claims it, and its end is seen there, too.
#include "core/thread_pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>

#include "core/thread_limits.h"
#include "core/thread_places.h"

namespace fl {
namespace {

constexpr int kMostWorkers = kMostThreads - 1, kWords = kMostThreads / 64;

// How long idle workers and waiting callers spin, in nanoseconds.
constexpr int64_t kSpin = 300'000, kHeldSpin = 2'000'000, kSharedSpin = 50'000;
constexpr int64_t kCallerSpin = 20'000, kCallerYield = 200'000;
constexpr int64_t kPreempted = 500'000;      // between two looks at the clock: somebody else had the core
constexpr int64_t kSharedFor = 100'000'000;  // that the machine counts as shared after that
constexpr int64_t kAccident = 2'000'000;     // within which preemptions are one event
constexpr int64_t kLeastWake = 20'000, kMostWake = 200'000;  // work that pays for waking workers

int64_t now() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void futex_wait(std::atomic<uint32_t>& word, uint32_t value) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}
void futex_wake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

thread_local int depth = 0;  // of regions that this thread runs pieces of

// What the threads of a region share; it lives on the caller's stack.
struct Region {
  PieceFunction function;
  const void* context;
  int pieces;
  std::atomic<int> next;  // the first piece that was handed to nobody
  std::atomic<bool> failed{false};
  std::exception_ptr error;

  Region(PieceFunction function, const void* context, int pieces, int next)
      : function(function), context(context), pieces(pieces), next(next) {}

  void run(int piece) noexcept { run(function, context, piece, pieces); }
  void run(PieceFunction function, const void* context, int piece, int pieces) noexcept {
    ++depth;
    try {
      function(context, piece, pieces);
    } catch (...) {
      if (!failed.exchange(true)) error = std::current_exception();
    }
    --depth;
  }
  void run_rest() noexcept {
    if (next.load(std::memory_order_relaxed) >= pieces) return;
    for (int piece; (piece = next.fetch_add(1, std::memory_order_relaxed)) < pieces;) run(piece);
  }
};

enum State : uint32_t { kIdle, kPosted, kRunning, kAwaited };  // awaited: running, and the caller sleeps

struct alignas(128) Worker {
  std::atomic<uint32_t> state{kIdle};
  std::atomic<uint32_t> asleep{0};  // a futex
  int piece = 0, pieces = 0;
  PieceFunction function = nullptr;  // copies of the region's, which spare the worker a look at another line
  const void* context = nullptr;
  Region* region = nullptr;
  bool slept = false;       // when the piece was posted
  bool surplus = false;     // the region has pieces that were handed to nobody
  int wakes[2] = {-1, -1};  // workers that this one wakes before it begins: waking is shared
};

// Sets of workers, as bits.
struct alignas(128) WorkerSet {
  std::atomic<uint64_t> words[kWords] = {};
  void add(int worker) { words[worker / 64].fetch_or(uint64_t(1) << worker % 64, std::memory_order_seq_cst); }
  void remove(int worker) {
    words[worker / 64].fetch_and(~(uint64_t(1) << worker % 64), std::memory_order_seq_cst);
  }
  bool has(int worker) const { return words[worker / 64].load(std::memory_order_relaxed) >> worker % 64 & 1; }
};

struct Members {
  int count = 0;
  int16_t ids[kMostWorkers];
};

class Pool {
 public:
  static Pool& get() {
    static Pool* const pool = new Pool;  // lives as long as the process: workers use it at exit
    return *pool;
  }

  int threads() const { return threads_.load(std::memory_order_relaxed); }
  void set_threads(int n) { threads_ = std::clamp(n, 1, kMostWorkers + 1); }

  void run(int pieces, PieceFunction function, const void* context, double time) {
    Members members;
    reserve(members, std::min(pieces, threads()) - 1, wakes_for(time));
    Region region(function, context, pieces, members.count + 1);
    count(regions_, 1);
    if (!members.count) count(alone_, 1);
    post(members, region, false);
    region.run(0);
    region.run_rest();
    int slept = 0, in_vain = 0;
    for (int i = members.count - 1; i >= 0; --i) {
      Worker& worker = workers_[members.ids[i]];
      slept += worker.slept;
      in_vain += join(worker, region) && worker.slept;
    }
    if (slept) learn_wake_time(2 * in_vain > slept);
    release(members);
    if (region.failed.load(std::memory_order_acquire)) std::rethrow_exception(region.error);
  }

  // Exactly so many workers; waits until there are enough.
  void gather(Members& members, int wanted) {
    const std::lock_guard<std::mutex> one_at_a_time(*gathering_);
    for (;;) {
      reserve(members, wanted, true);
      if (members.count == wanted) return;
      if (started_.load() < wanted)
        throw std::runtime_error("[threads] expected to start " + std::to_string(wanted) +
                                 " threads, got only " + std::to_string(started_.load()));
      sched_yield();
    }
  }
  void post(Members& members, Region& region, bool all_must_run) {
    count(members_, members.count);
    const bool surplus = region.pieces > members.count + 1;
    for (int i = 0; i < members.count; ++i) {
      Worker& worker = workers_[members.ids[i]];
      worker.region = &region;
      worker.function = region.function;
      worker.context = region.context;
      worker.piece = i + 1;
      worker.pieces = region.pieces;
      worker.surplus = surplus;
      worker.slept = asleep_.has(members.ids[i]);
      worker.wakes[0] = worker.wakes[1] = -1;
    }
    // Members that sleep wake each other: the caller wakes the first, each one two more.
    int sleeping[kMostWorkers], count_sleeping = 0;
    for (int i = 0; i < members.count; ++i)
      if (workers_[members.ids[i]].slept) sleeping[count_sleeping++] = members.ids[i];
    for (int i = 0; i < count_sleeping; ++i)
      for (int child = 0; child < 2 && 2 * i + 1 + child < count_sleeping; ++child)
        workers_[sleeping[i]].wakes[child] = sleeping[2 * i + 1 + child];
    for (int i = 0; i < members.count; ++i)
      workers_[members.ids[i]].state.store(kPosted, std::memory_order_release);
    if (count_sleeping) {
      count(woken_, count_sleeping);
      wake(sleeping[0]);
    }
    if (!all_must_run) return;  // a piece of a worker that falls asleep just now is taken back
    std::atomic_thread_fence(std::memory_order_seq_cst);
    for (int i = 0; i < members.count; ++i) {  // those that fell asleep meanwhile
      const int id = members.ids[i];
      if (asleep_.has(id) && !std::count(sleeping, sleeping + count_sleeping, id)) wake(id);
    }
  }
  // Waits for the piece of a worker, or runs it here if the worker has not begun: then the result is true.
  bool join(Worker& worker, Region& region) {
    uint32_t state = worker.state.load(std::memory_order_acquire);
    for (int spin = 0; state == kPosted && !worker.slept && spin < 32; ++spin) {
      pause();
      state = worker.state.load(std::memory_order_acquire);
    }
    if (state == kPosted && worker.state.compare_exchange_strong(state, kIdle, std::memory_order_acq_rel)) {
      count(taken_back_, 1);
      region.run(worker.piece);
      return true;
    }
    wait(worker);
    return false;
  }
  void wait(Worker& worker) {
    if (worker.state.load(std::memory_order_acquire) == kIdle) return;
    const int64_t start = now();
    for (int64_t waited = 0;;) {
      for (int spin = 0; spin < 16; ++spin) {
        if (worker.state.load(std::memory_order_acquire) == kIdle) {
          count(wait_ns_, static_cast<uint64_t>(now() - start));
          return;
        }
        pause();
      }
      waited = now() - start;
      const bool shared = oversubscribed();
      if (waited > kCallerYield) {
        uint32_t running = kRunning;
        if (worker.state.compare_exchange_strong(running, kAwaited, std::memory_order_acq_rel) ||
            running == kAwaited)
          futex_wait(worker.state, kAwaited);
        else
          sched_yield();
      } else if (shared || waited > kCallerSpin) {
        sched_yield();
      }
    }
  }
  void release(const Members& members) {
    for (int i = 0; i < members.count;) {
      const int word = members.ids[i] / 64;
      uint64_t bits = 0;
      for (; i < members.count && members.ids[i] / 64 == word; ++i)
        bits |= uint64_t(1) << members.ids[i] % 64;
      idle_.words[word].fetch_or(bits, std::memory_order_release);
    }
  }
  Worker& worker(int id) { return workers_[id]; }

  bool forked() const { return forked_; }

  void hold(int change) { holds_.fetch_add(change, std::memory_order_relaxed); }

  PoolCounters counters() const {
    return {
        regions_, alone_, members_, woken_, taken_back_, wait_ns_, static_cast<uint64_t>(started_.load())};
  }

 private:
  Pool() : threads_(std::min(usable_threads(), kMostWorkers + 1)), processors_(usable_processors()) {
    pthread_atfork(nullptr, nullptr, [] { get().forget_workers(); });
  }

  // Regions shorter than waking takes leave sleepers alone, unless several came shortly after each other.
  bool wakes_for(double time) {
    const int64_t pays = wake_time_.load(std::memory_order_relaxed);
    if (time >= static_cast<double>(pays)) return true;
    const int64_t at = now(), before = last_short_.exchange(at, std::memory_order_relaxed);
    const int64_t debt =
        (at - before > kSharedFor ? 0 : debt_.load(std::memory_order_relaxed)) + int64_t(time);
    debt_.store(debt > pays ? 0 : debt, std::memory_order_relaxed);
    return debt > pays;
  }
  // Where workers wake too late for the regions that woke them, longer ones are left alone as well.
  void learn_wake_time(bool in_vain) {
    const int64_t before = wake_time_.load(std::memory_order_relaxed);
    wake_time_.store(std::clamp(in_vain ? before + before / 4 : before - before / 8, kLeastWake, kMostWake),
                     std::memory_order_relaxed);
  }

  void reserve(Members& members, int wanted, bool sleepers) {
    if (wanted > started_.load(std::memory_order_acquire)) start(wanted);
    const int words = (started_.load(std::memory_order_relaxed) + 63) / 64;
    for (const bool any : {false, true}) {
      if (any && !sleepers) return;
      for (int word = 0; word < words && members.count < wanted; ++word) {
        uint64_t idle = idle_.words[word].load(std::memory_order_relaxed), chosen;
        do {
          uint64_t usable = any ? idle : idle & ~asleep_.words[word].load(std::memory_order_relaxed);
          chosen = 0;
          for (int missing = wanted - members.count; missing > 0 && usable; --missing) {
            chosen |= usable & -usable;
            usable &= usable - 1;
          }
        } while (chosen && !idle_.words[word].compare_exchange_weak(
                               idle, idle & ~chosen, std::memory_order_acquire, std::memory_order_relaxed));
        for (; chosen; chosen &= chosen - 1)
          members.ids[members.count++] = static_cast<int16_t>(word * 64 + __builtin_ctzll(chosen));
      }
    }
  }

  void start(int wanted) {
    const std::lock_guard<std::mutex> lock(*starting_);
    sigset_t all, before;  // signals are for the threads of the program
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int id = started_.load(); id < std::min(wanted, kMostWorkers); ++id) {
      pthread_t thread;
      pthread_attr_t attributes;
      pthread_attr_init(&attributes);
      pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
      const int failed = pthread_create(
          &thread, &attributes,
          [](void* id) -> void* {
            get().serve(static_cast<int>(reinterpret_cast<intptr_t>(id)));
            return nullptr;
          },
          reinterpret_cast<void*>(static_cast<intptr_t>(id)));
      pthread_attr_destroy(&attributes);
      if (failed) break;
      pthread_setname_np(thread, "flambeau");
      idle_.add(id);
      started_.store(id + 1, std::memory_order_release);
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  void serve(int id) {
    settle_worker(id);
    Worker& worker = workers_[id];
    for (;;) {
      wait_for_piece(id, worker);
      uint32_t posted = kPosted;
      if (!worker.state.compare_exchange_strong(posted, kRunning, std::memory_order_acq_rel)) continue;
      for (int other : worker.wakes)
        if (other >= 0) wake(other);
      Region& region = *worker.region;
      region.run(worker.function, worker.context, worker.piece, worker.pieces);
      if (worker.surplus) region.run_rest();
      if (worker.state.exchange(kIdle, std::memory_order_acq_rel) == kAwaited) futex_wake(worker.state);
    }
  }

  void wait_for_piece(int id, Worker& worker) {
    const int64_t start = now();
    for (int64_t last = start, limit = spin_time(start);;) {
      for (int spin = 0; spin < 32; ++spin) {
        if (worker.state.load(std::memory_order_acquire) == kPosted) return;
        pause();
      }
      const int64_t at = now();
      if (at - last > kPreempted) note_preemption(at);
      last = at;
      if (at - start < limit) continue;
      limit = spin_time(at);
      if (at - start >= limit) return sleep(id, worker);
    }
  }

  // Once is an accident, which may stop all threads at a time; again after a while is a neighbour.
  void note_preemption(int64_t at) {
    const int64_t since = at - last_preemption_.load(std::memory_order_relaxed);
    if (since < kAccident) return;
    last_preemption_.store(at, std::memory_order_relaxed);
    if (since < kSharedFor) shared_until_.store(at + kSharedFor, std::memory_order_relaxed);
  }

  void sleep(int id, Worker& worker) {
    worker.asleep.store(1, std::memory_order_relaxed);
    asleep_.add(id);
    while (worker.state.load(std::memory_order_seq_cst) != kPosted &&
           worker.asleep.load(std::memory_order_relaxed))
      futex_wait(worker.asleep, 1);
    asleep_.remove(id);
  }
  void wake(int id) {
    workers_[id].asleep.store(0, std::memory_order_relaxed);
    futex_wake(workers_[id].asleep);
  }

  bool oversubscribed() const { return threads() > processors_; }
  int64_t spin_time(int64_t at) const {
    if (oversubscribed()) return 0;
    if (at < shared_until_.load(std::memory_order_relaxed)) return kSharedSpin;
    return holds_.load(std::memory_order_relaxed) > 0 ? kHeldSpin : kSpin;
  }

  // A forked child has the memory of the pool, but none of its threads.
  void forget_workers() {
    for (int id = 0; id < started_.load(); ++id) new (&workers_[id]) Worker;
    new (&idle_) WorkerSet;
    new (&asleep_) WorkerSet;
    starting_ = new std::mutex;
    gathering_ = new std::mutex;
    started_ = 0;
    holds_ = 0;
    forked_ = true;
  }

  static void count(std::atomic<uint64_t>& counter, int64_t by) {
    counter.fetch_add(static_cast<uint64_t>(by), std::memory_order_relaxed);
  }

  std::atomic<int> threads_, started_{0}, holds_{0};
  const int processors_;
  bool forked_ = false;
  std::atomic<int64_t> last_preemption_{0}, shared_until_{0}, last_short_{0}, debt_{0},
      wake_time_{kLeastWake};
  std::mutex *starting_ = new std::mutex, *gathering_ = new std::mutex;
  WorkerSet idle_, asleep_;
  alignas(128) std::atomic<uint64_t> regions_{0}, alone_{0}, members_{0}, woken_{0},
      taken_back_{0}, wait_ns_{0};
  Worker workers_[kMostWorkers];
};

}  // namespace

void run_pieces(int pieces, PieceFunction function, const void* context, double nanoseconds) {
  if (pieces > 1 && depth == 0 && Pool::get().threads() > 1)
    return Pool::get().run(pieces, function, context, nanoseconds);
  for (int piece = 0; piece < pieces; ++piece) function(context, piece, pieces);
}

struct Gang::State {
  Region region;
  Members members;
};

Gang::Gang(int pieces, PieceFunction function, const void* context)
    : state_(new State{Region(function, context, pieces, pieces), {}}) {
  Pool::get().gather(state_->members, pieces - 1);
  Pool::get().post(state_->members, state_->region, true);
  ++depth;
}

Gang::~Gang() {
  --depth;
  for (int i = 0; i < state_->members.count; ++i)
    Pool::get().wait(Pool::get().worker(state_->members.ids[i]));
  Pool::get().release(state_->members);
  delete state_;
}

int num_threads() {
  return Pool::get().threads();
}
void set_num_threads(int n) {
  Pool::get().set_threads(n);
}
bool in_parallel() {
  return depth > 0;
}
bool is_forked() {
  return Pool::get().forked();
}

PoolHold::PoolHold() {
  Pool::get().hold(1);
}
PoolHold::~PoolHold() {
  Pool::get().hold(-1);
}

PoolCounters pool_counters() {
  return Pool::get().counters();
}

}  // namespace fl

// The memory that the ranks of a group on one host share, and how they wait for each other in it.
//
// Each rank has a control block, two slots for data and a ring of bytes towards every other rank. Collectives
// proceed in rounds: a rank fills its slot, publishes the number of the round, waits until all others have
// published it, and reads their slots. A rank publishes a round only when it is through with reading the one
// before, hence two slots suffice: who sees everybody at round k may overwrite what was written for round k
// - 1.
//
// Waiting spins for some microseconds and then sleeps on a futex. Sleepers wake now and then to see whether
// the rank they wait for is still alive (a pidfd tells), has left the group, or is late.
#pragma once

#include <atomic>
#include <string>

#include "core/dtype.h"
#include "distributed/store.h"

namespace fl::dist {

enum class Collective : uint8_t {
  None,
  Barrier,
  Broadcast,
  AllReduce,
  Reduce,
  AllGather,
  Gather,
  Scatter,
  ReduceScatter,
  AllToAll,
  Send,
  Receive,
};
const char* name_of(Collective op);

enum class Reduction : uint8_t { Sum, Average, Product, Min, Max, And, Or, Xor, PremulSum, None };
const char* name_of(Reduction reduction);

// What a rank is about to do. All ranks of a group have to agree on it.
struct Fingerprint {
  uint64_t sequence = 0;  // of the collective within its group
  Collective op = Collective::None;
  DType dtype = DType::UInt8;
  Reduction reduction = Reduction::None;
  uint8_t dims = 0;
  int32_t root = -1;
  int32_t pass = 0, bucket = 0;  // of a reducer, from 1; a bucket below 0 belongs to a pass that failed
  int64_t count = 0;             // elements
  int64_t sizes[8] = {};

  bool matches(const Fingerprint& other) const {
    return op == other.op && dtype == other.dtype && reduction == other.reduction && root == other.root &&
           pass == other.pass && bucket == other.bucket && count == other.count;
  }
  std::string describe() const;
};

enum class Standing : uint32_t { Joining, Member, Left, Failed };

constexpr uint64_t kMagic = 0x7561656d616c6631;
constexpr int kMostRanks = 1024;

// The start of a segment, for those who look at it from outside (`flambeau dist-status`).
struct alignas(4096) Header {
  uint64_t magic;
  int32_t ranks;
  std::atomic<uint64_t> reported;  // the sequence number of the last collective whose wait was reported
  char name[128];
};

struct alignas(64) Control {
  std::atomic<uint64_t> round;              // the last one that was published
  alignas(64) std::atomic<uint32_t> rings;  // the futex word on which this rank sleeps
  std::atomic<uint32_t> sleepers;
  alignas(64) std::atomic<Standing> standing;
  std::atomic<int32_t> pid;
  std::atomic<uint64_t> bytes;    // moved so far, for the status table
  std::atomic<uint64_t> waiting;  // nanoseconds spent waiting for others
  Fingerprint fingerprints[2];
  Fingerprint current;  // of what runs now or ran last
  std::atomic<int32_t>
      stacks;  // 1 + the descriptor to which this process writes its Python stacks on kStackSignal
  // A group of the survivors that this rank, as the first of them, has made after a failure.
  std::atomic<int32_t> successor;  // 1 + the descriptor of its memory
  std::atomic<uint64_t> members[kMostRanks / 64];
};

int stack_signal();  // asks a process to write its Python stacks

struct alignas(64) Ring {
  std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> read;
  std::atomic<uint64_t> refused;  // number of the last message that the receiver could not take
};

class Segment {
 public:
  // New memory for a group. Other processes open it by this process's id and descriptor().
  static std::unique_ptr<Segment> create(int ranks);
  static std::unique_ptr<Segment> open(int pid, int descriptor, int ranks);
  // The number of ranks of a group whose memory another process has; 0 when it is none.
  static int ranks_at(int pid, int descriptor);
  ~Segment();

  int descriptor() const { return descriptor_; }
  int ranks() const { return ranks_; }
  Header& header() const { return *reinterpret_cast<Header*>(memory_); }
  Control& control(int rank) const { return controls_[rank]; }
  char* slot(int rank, uint64_t round) const {
    return slots_ + (static_cast<size_t>(rank) * 2 + (round & 1)) * slot_bytes_;
  }
  size_t slot_bytes() const { return slot_bytes_; }
  Ring& ring(int from, int to) const {
    return *reinterpret_cast<Ring*>(rings_ +
                                    (static_cast<size_t>(from) * ranks_ + to) * (sizeof(Ring) + ring_bytes_));
  }
  char* ring_data(int from, int to) const { return reinterpret_cast<char*>(&ring(from, to) + 1); }
  size_t ring_bytes() const { return ring_bytes_; }

 private:
  Segment(int descriptor, int ranks);

  int descriptor_, ranks_;
  char* memory_ = nullptr;
  size_t total_ = 0, slot_bytes_ = 0, ring_bytes_ = 0;
  Control* controls_ = nullptr;
  char *slots_ = nullptr, *rings_ = nullptr;
};

constexpr Milliseconds kPatience{4000};  // after which a wait is reported

// Called now and then by threads that wait, without locks; throws when the wait is to be given up. Set by the
// binding.
extern void (*on_waiting)();

// While this thread carries out an operation in the background: whether somebody waits for it by now. Null in
// the foreground.
extern thread_local const std::atomic<bool>* awaited;

// A rank's view of its segment: signalling and waiting.
class Presence {
 public:
  Presence(std::unique_ptr<Segment> segment, int rank, std::string name);
  ~Presence();

  Segment& segment() const { return *segment_; }
  int rank() const { return rank_; }
  int ranks() const { return segment_->ranks(); }
  const std::string& name() const { return name_; }
  Control& own() const { return segment_->control(rank_); }

  void wake(int rank) const;
  void wake_all() const;
  void leave(Standing standing) const;  // and wake everybody who may wait for this rank
  // Why a rank cannot be waited for: it ended, left or failed; empty when it is fine.
  std::string trouble(int rank) const;
  bool ended(int rank) const;  // the process is gone, or has left the group
  // Every rank's last collective and its Python stacks, as text.
  std::string stacks() const;

  // Returns when ready() holds. Raises when `peer` is in trouble or the deadline is over; `peer` -1 is
  // nobody.
  template <class Ready>
  void wait(int peer, const Fingerprint& what, Clock::time_point deadline, Milliseconds timeout,
            Ready ready) const {
    const bool behind = awaited && !awaited->load(std::memory_order_relaxed);
    for (int i = 0; i < (behind ? background_spins_ : spins_); ++i) {
      if (ready()) return;
      __builtin_ia32_pause();
    }
    const auto start = Clock::now();
    auto counted = start;
    const auto count = [&] {
      const auto now = Clock::now();
      own().waiting.fetch_add(static_cast<uint64_t>((now - counted).count()), std::memory_order_relaxed);
      counted = now;
    };
    bool told = false;
    while (!sleep_unless(ready)) {
      count();
      check(peer, what, deadline, timeout, ready);
      if (!told && counted - start > kPatience) told = tell(peer, what);
    }
    count();
  }
  // Sleeps a few milliseconds at most; true when ready() held.
  template <class Ready>
  bool sleep_unless(Ready ready) const {
    Control& me = own();
    me.sleepers.fetch_add(1);
    const uint32_t rings = me.rings.load();
    const bool now = ready();
    if (!now) sleep(rings);
    me.sleepers.fetch_sub(1);
    return now || ready();
  }
  std::atomic<bool> closing{false};

 private:
  template <class Ready>
  void check(int peer, const Fingerprint& what, Clock::time_point deadline, Milliseconds timeout,
             Ready ready) const {
    if (closing)
      fail_as(Failure::Backend, "[", name_of(what.op), "] the process group was destroyed meanwhile");
    const std::string problem = peer < 0 ? "" : trouble(peer);
    if (!problem.empty() && !ready())
      fail_as(Failure::Backend, "[", name_of(what.op), "] expected ", what.describe(), " from rank ", peer,
              " of group '", name_, "', got none: ", problem);
    if (Clock::now() >= deadline && !ready()) fail_late(peer, what, timeout);
  }
  void sleep(uint32_t rings) const;
  bool process_ended(int rank) const;
  bool tell(int peer, const Fingerprint& what) const;  // on standard error: who is waited for; true
  [[noreturn]] void fail_late(int peer, const Fingerprint& what, Milliseconds timeout) const;

  std::unique_ptr<Segment> segment_;
  int rank_;
  std::string name_;
  int spins_ = 0;
  int background_spins_ = 0;            // while the process computes: its core is better used by that
  mutable std::vector<int> processes_;  // a pidfd for each rank, opened at the first need
};

}  // namespace fl::dist

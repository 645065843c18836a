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
  int64_t count = 0;  // elements
  int64_t sizes[8] = {};

  bool matches(const Fingerprint& other) const {
    return op == other.op && dtype == other.dtype && reduction == other.reduction && root == other.root &&
           count == other.count;
  }
  std::string describe() const;
};

enum class Standing : uint32_t { Joining, Member, Left, Failed };

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
};

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
  ~Segment();

  int descriptor() const { return descriptor_; }
  int ranks() const { return ranks_; }
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

constexpr Milliseconds kPatience{5000};  // after which a wait is reported

// Called now and then by threads that wait, without locks; throws when the wait is to be given up. Set by the
// binding.
extern void (*on_waiting)();

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

  // Returns when ready() holds. Raises when `peer` is in trouble or the deadline is over; `peer` -1 is
  // nobody.
  template <class Ready>
  void wait(int peer, const Fingerprint& what, Clock::time_point deadline, Milliseconds timeout,
            Ready ready) const {
    for (int i = 0; i < spins_; ++i) {
      if (ready()) return;
      __builtin_ia32_pause();
    }
    const auto start = Clock::now();
    bool told = false;
    while (!sleep_unless(ready)) {
      check(peer, what, deadline, timeout, ready);
      if (!told && Clock::now() - start > kPatience) told = tell(peer, what);
    }
    own().waiting.fetch_add(static_cast<uint64_t>((Clock::now() - start).count()), std::memory_order_relaxed);
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
  bool tell(int peer, const Fingerprint& what) const;  // on standard error: who is waited for; true
  [[noreturn]] void fail_late(int peer, const Fingerprint& what, Milliseconds timeout) const;

  std::unique_ptr<Segment> segment_;
  int rank_;
  std::string name_;
  int spins_ = 0;
  mutable std::vector<int> processes_;  // a pidfd for each rank, opened at the first need
};

}  // namespace fl::dist

// Collectives over a segment: every one is an exchange of pieces between ranks, in rounds (segment.h).
#pragma once

#include <mutex>

#include "distributed/segment.h"

namespace fl::dist {

struct Piece {
  char* data = nullptr;
  int64_t bytes = 0;
};

// What one rank contributes to and expects from an exchange.
struct Exchange {
  bool shared = true;          // one piece for everybody, or one for each destination
  std::vector<Piece> send;     // one piece, or one for each destination; empty when this rank only receives
  std::vector<Piece> receive;  // a piece for each source, or empty when this rank only sends
  Piece reduced;               // instead of `receive`: where the pieces of all sources are reduced to
  int64_t largest = 0;         // bytes of the largest piece that any rank sends: all have to agree on it
};

struct Limit {
  Clock::time_point deadline;
  Milliseconds timeout;
  static Limit after(Milliseconds timeout) { return {Clock::now() + timeout, timeout}; }
};

// One entry of the flight recorder.
struct Trace {
  Fingerprint what;
  int64_t start = 0, end = 0;  // nanoseconds of the steady clock; end 0: it did not end
};

class Joined;

class Collectives {
 public:
  explicit Collectives(Presence& presence) : presence_(presence) {}

  void exchange(Fingerprint what, const Exchange& exchange, const Limit& limit);
  void all_reduce(Fingerprint what, const std::vector<Piece>& pieces, const Limit& limit);
  // Sizes differ from pair to pair; they are compared first.
  void all_to_all(Fingerprint what, const std::vector<Piece>& send, const std::vector<Piece>& receive,
                  const Limit& limit);
  uint64_t sequence() const { return sequence_; }
  std::vector<Trace> recent() const;  // the last collectives, the oldest first

 private:
  void all_reduce_small(Fingerprint what, const Joined& data, const Limit& limit);
  void finish();
  void begin(Fingerprint& what);
  // Publishes what was written to slot() and waits for everybody's; the first time compares fingerprints.
  void meet(const Fingerprint& what, const Limit& limit);
  void compare(const Fingerprint& what) const;
  char* next_slot();  // this rank's slot of the round that the next meet() publishes
  const char* slot_of(int rank) const { return presence_.segment().slot(rank, round_); }

  Presence& presence_;
  uint64_t round_ = 0, sequence_ = 0;
  bool first_ = false;
  std::string failure_;  // why nothing more is possible in this group
  static constexpr int kTraces = 256;
  mutable std::mutex trace_mutex_;
  Trace traces_[kTraces];
  uint64_t traced_ = 0;
};

}  // namespace fl::dist

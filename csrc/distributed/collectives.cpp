#include "distributed/collectives.h"

#include <algorithm>
#include <cstring>

#include "distributed/reduce.h"

namespace fl::dist {

namespace {

constexpr int64_t kSmall = 32 << 10;  // up to here every rank reduces everything itself, which saves a round

void copy(char* to, const char* from, int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<size_t>(bytes));
}

}  // namespace

// Pieces of memory as if each lay behind the one before.
class Joined {
 public:
  explicit Joined(const std::vector<Piece>& pieces) : pieces_(pieces) {
    ends_.reserve(pieces.size());
    for (const Piece& piece : pieces) ends_.push_back(bytes_ += piece.bytes);
  }
  int64_t bytes() const { return bytes_; }
  char* whole() const { return pieces_.size() == 1 ? pieces_[0].data : nullptr; }
  // part(memory, its distance from `begin`, bytes) for the connected parts of a range.
  template <class F>
  void each(int64_t begin, int64_t bytes, F part) const {
    size_t i = std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin();
    for (int64_t done = 0; done < bytes; ++i) {
      const int64_t skipped = begin + done - (ends_[i] - pieces_[i].bytes);
      const int64_t size = std::min(bytes - done, pieces_[i].bytes - skipped);
      if (size > 0) part(pieces_[i].data + skipped, done, size);
      done += size;
    }
  }
  void read(int64_t begin, int64_t bytes, char* to) const {
    each(begin, bytes, [&](const char* at, int64_t offset, int64_t size) { copy(to + offset, at, size); });
  }
  void write(int64_t begin, int64_t bytes, const char* from) const {
    each(begin, bytes, [&](char* at, int64_t offset, int64_t size) { copy(at, from + offset, size); });
  }

 private:
  const std::vector<Piece>& pieces_;
  std::vector<int64_t> ends_;
  int64_t bytes_ = 0;
};

void Collectives::begin(Fingerprint& what) {
  if (!failure_.empty())
    fail_as(Failure::Backend, "[", name_of(what.op),
            "] expected a working group, got one that failed before: ", failure_);
  what.sequence = ++sequence_;
  presence_.own().current = what;
  first_ = true;
  std::lock_guard<std::mutex> lock(trace_mutex_);
  traces_[traced_++ % kTraces] = {what, Clock::now().time_since_epoch().count(), 0};
}

void Collectives::finish() {
  std::lock_guard<std::mutex> lock(trace_mutex_);
  traces_[(traced_ - 1) % kTraces].end = Clock::now().time_since_epoch().count();
}

std::vector<Trace> Collectives::recent() const {
  std::lock_guard<std::mutex> lock(trace_mutex_);
  std::vector<Trace> list;
  for (uint64_t i = traced_ > kTraces ? traced_ - kTraces : 0; i < traced_; ++i)
    list.push_back(traces_[i % kTraces]);
  return list;
}

char* Collectives::next_slot() {
  return presence_.segment().slot(presence_.rank(), ++round_);
}

void Collectives::meet(const Fingerprint& what, const Limit& limit) {
  Control& own = presence_.own();
  if (first_) own.fingerprints[round_ & 1] = what;
  own.round.store(round_);
  presence_.wake_all();
  try {
    for (int rank = 0; rank < presence_.ranks(); ++rank) {
      const auto& round = presence_.segment().control(rank).round;
      presence_.wait(rank, what, limit.deadline, limit.timeout,
                     [&] { return round.load(std::memory_order_acquire) >= round_; });
    }
  } catch (const Error& error) {
    failure_ = error.what();
    presence_.leave(Standing::Failed);
    throw;
  } catch (...) {
    failure_ = "it was interrupted";
    presence_.leave(Standing::Failed);
    throw;
  }
  if (first_) compare(what);
  first_ = false;
}

void Collectives::compare(const Fingerprint& what) const {
  const auto of_rank = [&](int rank) -> const Fingerprint& {
    return presence_.segment().control(rank).fingerprints[round_ & 1];
  };
  bool same = true;
  for (int rank = 0; rank < presence_.ranks(); ++rank) same = same && of_rank(rank).matches(what);
  if (same) return;
  std::string all;
  for (int rank = 0; rank < presence_.ranks(); ++rank)
    all += message(rank ? ", rank " : "rank ", rank, " runs ", of_rank(rank).describe());
  fail_as(Failure::Backend, "[", name_of(what.op), "] expected the same collective on all ranks of group '",
          presence_.name(), "', got a mismatch: ", all);
}

void Collectives::exchange(Fingerprint what, const Exchange& exchange, const Limit& limit) {
  begin(what);
  const int ranks = presence_.ranks(), own = presence_.rank();
  const size_t capacity = presence_.segment().slot_bytes();
  const int64_t unit = static_cast<int64_t>(exchange.shared ? capacity : capacity / ranks / 64 * 64);
  const int64_t rounds = std::max<int64_t>(1, (exchange.largest + unit - 1) / unit);
  const auto part = [&](const Piece& piece, int64_t round) {
    return std::clamp<int64_t>(piece.bytes - round * unit, 0, unit);
  };
  const auto place = [&](int destination) { return exchange.shared ? 0 : destination * unit; };
  const Piece* mine = exchange.send.empty() ? nullptr : &exchange.send[exchange.shared ? 0 : own];
  if (mine && !exchange.receive.empty()) {
    const Piece& to = exchange.receive[own];
    copy(to.data, mine->data, std::min(mine->bytes, to.bytes));
  }
  std::vector<const void*> sources(ranks);
  for (int64_t round = 0; round < rounds; ++round) {
    char* slot = next_slot();
    if (mine && ranks > 1)
      for (int to = 0; to < (exchange.shared ? 1 : ranks); ++to)
        if (exchange.shared || to != own) {
          const Piece& piece = exchange.send[to];
          copy(slot + place(to), piece.data + round * unit, part(piece, round));
        }
    meet(what, limit);
    for (int from = 0; from < ranks; ++from) {
      const char* theirs = slot_of(from) + place(own);
      sources[from] = from == own && mine ? mine->data + round * unit : theirs;
      if (from != own && !exchange.receive.empty() && exchange.receive[from].data)
        copy(exchange.receive[from].data + round * unit, theirs, part(exchange.receive[from], round));
    }
    if (exchange.reduced.data)
      reduce(exchange.reduced.data + round * unit, sources.data(), ranks,
             part(exchange.reduced, round) / size_of(what.dtype), what.dtype, what.reduction);
  }
  presence_.own().bytes.fetch_add(static_cast<uint64_t>(exchange.largest), std::memory_order_relaxed);
  finish();
}

void Collectives::all_reduce_small(Fingerprint what, const Joined& data, const Limit& limit) {
  std::vector<char> joined(static_cast<size_t>(data.bytes()));
  char* at = data.whole() ? data.whole() : joined.data();
  if (!data.whole()) data.read(0, data.bytes(), at);
  exchange(what, {true, {{at, data.bytes()}}, {}, {at, data.bytes()}, data.bytes()}, limit);
  if (!data.whole()) data.write(0, data.bytes(), at);
}

void Collectives::all_reduce(Fingerprint what, const std::vector<Piece>& pieces, const Limit& limit) {
  const Joined data(pieces);
  const int64_t item = size_of(what.dtype), bytes = data.bytes();
  const int ranks = presence_.ranks(), own = presence_.rank();
  if (bytes <= kSmall || ranks == 1) return all_reduce_small(what, data, limit);
  begin(what);
  // Block by block, so that it stays in the cache: each rank reduces its share, then all shares are handed
  // round.
  const int64_t block = static_cast<int64_t>(presence_.segment().slot_bytes());
  std::vector<const char*> sources(ranks);
  std::vector<const void*> parts(ranks);
  for (int64_t start = 0; start < bytes; start += block) {
    const int64_t size = std::min(block, bytes - start);
    const int64_t share = (size / ranks + 63) / 64 * 64;
    const auto begin_of = [&](int rank) { return std::min(size, rank * share); };
    const auto bytes_of = [&](int rank) {
      return (rank + 1 == ranks ? size : begin_of(rank + 1)) - begin_of(rank);
    };
    const int64_t first = begin_of(own);
    char* slot = next_slot();
    for (int rank = 0; rank < ranks; ++rank)
      if (rank != own) data.read(start + begin_of(rank), bytes_of(rank), slot + begin_of(rank));
    meet(what, limit);
    for (int rank = 0; rank < ranks; ++rank) sources[rank] = slot_of(rank) + first;
    char* reduced = next_slot() + first;
    data.each(start + first, bytes_of(own), [&](char* at, int64_t offset, int64_t part) {
      for (int rank = 0; rank < ranks; ++rank) parts[rank] = rank == own ? at : sources[rank] + offset;
      reduce(at, parts.data(), ranks, part / item, what.dtype, what.reduction, reduced + offset);
    });
    meet(what, limit);
    for (int rank = 0; rank < ranks; ++rank)
      if (rank != own) data.write(start + begin_of(rank), bytes_of(rank), slot_of(rank) + begin_of(rank));
  }
  presence_.own().bytes.fetch_add(static_cast<uint64_t>(bytes), std::memory_order_relaxed);
  finish();
}

void Collectives::all_to_all(Fingerprint what, const std::vector<Piece>& send,
                             const std::vector<Piece>& receive, const Limit& limit) {
  const int ranks = presence_.ranks(), own = presence_.rank();
  std::vector<int64_t> sizes(ranks), all(static_cast<size_t>(ranks) * ranks);
  for (int rank = 0; rank < ranks; ++rank) sizes[rank] = send[rank].bytes;
  const auto row = static_cast<int64_t>(ranks * sizeof(int64_t));
  std::vector<Piece> rows(ranks);
  for (int rank = 0; rank < ranks; ++rank) rows[rank] = {reinterpret_cast<char*>(&all[rank * ranks]), row};
  exchange(what, {true, {{reinterpret_cast<char*>(sizes.data()), row}}, rows, {}, row}, limit);
  for (int from = 0; from < ranks; ++from)
    for (int to = 0; to < ranks; ++to)
      if (to == own && all[from * ranks + to] != receive[from].bytes)
        failure_ = message("rank ", from, " sends ", all[from * ranks + to], " bytes to rank ", to,
                           ", which expects ", receive[from].bytes);
  if (!failure_.empty()) {
    presence_.leave(Standing::Failed);
    fail_as(Failure::Backend, "[all_to_all] expected split sizes that agree, got a mismatch: ", failure_);
  }
  const int64_t largest = *std::max_element(all.begin(), all.end());
  exchange(what, {false, send, receive, {}, largest}, limit);
}

}  // namespace fl::dist

#include "distributed/messages.h"

#include <algorithm>
#include <cstring>

namespace fl::dist {

void Work::wait(Milliseconds timeout) {
  awaited_.store(true, std::memory_order_relaxed);
  std::unique_lock<std::mutex> lock(mutex_);
  const auto is_done = [&] { return done_.load(); };
  if (timeout.count() < 0)
    finished_.wait(lock, is_done);
  else if (!finished_.wait_for(lock, timeout, is_done))
    fail_as(Failure::Timeout, "[Work.wait] Timed out waiting ", timeout.count(),
            "ms for an operation to complete");
  if (error_) std::rethrow_exception(error_);
}

std::exception_ptr Work::error() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return error_;
}

void Work::then(std::function<void()> callback) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!done_) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

void Work::finish(std::exception_ptr error) {
  if (at_end) at_end();
  std::vector<std::function<void()>> callbacks;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    error_ = std::move(error);
    done_ = true;
    callbacks.swap(callbacks_);
  }
  finished_.notify_all();
  for (auto& callback : callbacks) callback();
}

namespace {

// Copies between a ring and flat memory, around the ring's end.
void into_ring(char* ring, size_t capacity, uint64_t position, const char* from, size_t bytes) {
  const size_t at = position % capacity, first = std::min(bytes, capacity - at);
  std::memcpy(ring + at, from, first);
  std::memcpy(ring, from + first, bytes - first);
}

void from_ring(const char* ring, size_t capacity, uint64_t position, char* to, size_t bytes) {
  const size_t at = position % capacity, first = std::min(bytes, capacity - at);
  std::memcpy(to, ring + at, first);
  std::memcpy(to + first, ring, bytes - first);
}

}  // namespace

Messages::Messages(Presence& presence)
    : presence_(presence), outgoing_(presence.ranks()), incoming_(presence.ranks()) {}

Messages::~Messages() {
  close();
}

void Messages::close() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    presence_.closing = true;
  }
  posted_.notify_all();
  if (thread_.joinable()) thread_.join();
  const auto error = std::make_exception_ptr(DistributedError(
      Failure::Backend, "[send, recv] the process group was destroyed before the message was through"));
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto& queue : outgoing_) {
    for (auto& operation : queue.waiting) operation.work->finish(error);
    queue.waiting.clear();
  }
  for (auto& operation : receives_) operation.work->finish(error);
  receives_.clear();
}

void Messages::send(const Fingerprint& what, Piece data, int to, int64_t tag, const Limit& limit,
                    std::shared_ptr<Work> work, bool wait) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    presence_.own().current = what;
    outgoing_[to].waiting.push_back({what, data, to, tag, limit, work, nullptr});
  }
  if (wait)
    drive(work);
  else
    start_thread();
}

void Messages::receive(const Fingerprint& what, Piece data, int from, int64_t tag, const Limit& limit,
                       std::shared_ptr<Work> work, std::function<void()> then, bool wait) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    presence_.own().current = what;
    receives_.push_back({what, data, from, tag, limit, work, std::move(then)});
  }
  if (wait)
    drive(work);
  else
    start_thread();
}

void Messages::start_thread() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  posted_.notify_all();
}

bool Messages::something_to_do() const {
  return !receives_.empty() || std::any_of(outgoing_.begin(), outgoing_.end(), [](const auto& queue) {
    return !queue.waiting.empty();
  }) || std::any_of(incoming_.begin(), incoming_.end(), [](const auto& one) {
    return one.target.has_value();
  });
}

void Messages::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_) {
    if (!something_to_do()) {
      posted_.wait(lock);
      continue;
    }
    if (progress()) continue;
    lock.unlock();
    presence_.sleep_unless([&] {
      std::lock_guard<std::mutex> inner(mutex_);
      return stopping_ || progress();
    });
    lock.lock();
  }
}

void Messages::drive(const std::shared_ptr<Work>& work) {
  for (;;) {
    for (int spin = 0; spin < 200; ++spin) {
      {
        std::lock_guard<std::mutex> lock(mutex_);
        progress();
      }
      if (work->done()) return work->wait(Milliseconds(-1));
      __builtin_ia32_pause();
    }
    if (on_waiting) on_waiting();
    presence_.sleep_unless([&] {
      std::lock_guard<std::mutex> lock(mutex_);
      progress();
      return work->done();
    });
  }
}

bool Messages::progress() {
  bool moved = serve_parked();
  for (int rank = 0; rank < presence_.ranks(); ++rank) {
    moved |= push(rank);
    moved |= pull(rank);
  }
  return expire() || moved;
}

void Messages::finish(Operation& operation, std::exception_ptr error) {
  if (!error && operation.then) try {
      operation.then();
    } catch (...) {
      error = std::current_exception();
    }
  operation.work->finish(std::move(error));
  presence_.wake(presence_.rank());
}

bool Messages::push(int to) {
  Outgoing& queue = outgoing_[to];
  if (queue.waiting.empty()) return false;
  Segment& segment = presence_.segment();
  Ring& ring = segment.ring(presence_.rank(), to);
  char* data = segment.ring_data(presence_.rank(), to);
  const size_t capacity = segment.ring_bytes();
  Operation& operation = queue.waiting.front();
  uint64_t written = ring.written.load();
  const uint64_t read = ring.read.load();
  const uint64_t before = written;
  if (queue.written < 0 && capacity - (written - read) >= sizeof(MessageHead)) {
    const MessageHead head{++queue.number, operation.tag, operation.data.bytes, operation.what};
    into_ring(data, capacity, written, reinterpret_cast<const char*>(&head), sizeof head);
    written += sizeof head;
    queue.written = 0;
    queue.end = written + static_cast<uint64_t>(operation.data.bytes);
  }
  if (queue.written >= 0 && queue.written < operation.data.bytes) {
    const auto room = static_cast<int64_t>(capacity - (written - read));
    const int64_t bytes = std::min(room, operation.data.bytes - queue.written);
    into_ring(data, capacity, written, operation.data.data + queue.written, static_cast<size_t>(bytes));
    queue.written += bytes;
    written += static_cast<uint64_t>(bytes);
  }
  if (written != before) {
    ring.written.store(written);
    presence_.wake(to);
  }
  if (queue.written < operation.data.bytes || ring.read.load() < queue.end) return written != before;
  std::exception_ptr error;
  if (ring.refused.load() == queue.number)
    error = std::make_exception_ptr(DistributedError(
        Failure::Backend, message("[send] expected rank ", to, " to receive ", operation.what.describe(),
                                  ", got a receive of another size or dtype there")));
  finish(operation, error);
  queue.waiting.pop_front();
  queue.written = -1;
  return true;
}

std::optional<Messages::Operation> Messages::take_matching(int from, int64_t tag) {
  for (auto it = receives_.begin(); it != receives_.end(); ++it)
    if ((it->peer == from || it->peer < 0) && it->tag == tag) {
      Operation operation = std::move(*it);
      receives_.erase(it);
      return operation;
    }
  return std::nullopt;
}

bool Messages::start_message(int from) {
  Segment& segment = presence_.segment();
  Ring& ring = segment.ring(from, presence_.rank());
  const uint64_t read = ring.read.load();
  if (ring.written.load() - read < sizeof(MessageHead)) return false;
  Incoming& incoming = incoming_[from];
  from_ring(segment.ring_data(from, presence_.rank()), segment.ring_bytes(), read,
            reinterpret_cast<char*>(&incoming.head), sizeof(MessageHead));
  const MessageHead& head = incoming.head;
  incoming.target = take_matching(from, head.tag);
  incoming.got = 0;
  incoming.active = true;
  const bool fits = incoming.target && incoming.target->data.bytes == head.bytes &&
                    incoming.target->what.dtype == head.what.dtype;
  if (incoming.target && !fits) ring.refused.store(head.number);
  incoming.has_parked = !fits;
  if (!fits) {
    parked_.push_back({head, from, std::vector<char>(static_cast<size_t>(head.bytes))});
    incoming.parked = std::prev(parked_.end());
  }
  ring.read.store(read + sizeof head);
  return true;
}

void Messages::finish_receive(Operation& operation, int from, const MessageHead& head) {
  operation.work->source = from;
  std::exception_ptr error;
  if (operation.data.bytes != head.bytes || operation.what.dtype != head.what.dtype)
    error = std::make_exception_ptr(DistributedError(
        Failure::Backend,
        message("[recv] expected ", operation.what.describe(), " on rank ", presence_.rank(),
                ", got a message of another size or dtype: rank ", from, " runs ", head.what.describe())));
  finish(operation, error);
}

bool Messages::pull(int from) {
  Incoming& incoming = incoming_[from];
  bool moved = false;
  if (!incoming.active) {
    if (receives_.empty()) return false;  // leave it in the ring until somebody wants something
    if (!start_message(from)) return false;
    moved = true;
  }
  Segment& segment = presence_.segment();
  Ring& ring = segment.ring(from, presence_.rank());
  const MessageHead& head = incoming.head;
  const bool fits = incoming.target && incoming.target->data.bytes == head.bytes &&
                    incoming.target->what.dtype == head.what.dtype;
  if (!incoming.target && !incoming.has_parked) return moved;  // given up
  char* to = fits ? incoming.target->data.data : incoming.parked->bytes.data();
  const uint64_t read = ring.read.load();
  const int64_t bytes = std::min(static_cast<int64_t>(ring.written.load() - read), head.bytes - incoming.got);
  if (bytes > 0) {
    from_ring(segment.ring_data(from, presence_.rank()), segment.ring_bytes(), read, to + incoming.got,
              static_cast<size_t>(bytes));
    incoming.got += bytes;
    ring.read.store(read + static_cast<uint64_t>(bytes));
    moved = true;
  }
  if (moved) presence_.wake(from);
  if (incoming.got < head.bytes) return moved;
  incoming.active = false;
  if (incoming.target) {
    if (!fits) parked_.erase(incoming.parked);
    Operation operation = std::move(*incoming.target);
    incoming.target.reset();
    finish_receive(operation, from, head);
  } else {
    incoming.parked->complete = true;
  }
  return true;
}

bool Messages::serve_parked() {
  bool moved = false;
  for (auto it = parked_.begin(); it != parked_.end();) {
    std::optional<Operation> operation;
    if (it->complete && (operation = take_matching(it->from, it->head.tag))) {
      if (operation->data.bytes == it->head.bytes)
        std::memcpy(operation->data.data, it->bytes.data(), it->bytes.size());
      finish_receive(*operation, it->from, it->head);
      it = parked_.erase(it);
      moved = true;
    } else {
      ++it;
    }
  }
  return moved;
}

// Fails operations that are late or whose peer is gone.
bool Messages::expire() {
  const auto now = Clock::now();
  const auto problem_of = [&](const Operation& operation) -> std::string {
    if (operation.peer >= 0) return presence_.trouble(operation.peer);
    std::string all;
    for (int rank = 0; rank < presence_.ranks(); ++rank) {
      if (rank == presence_.rank()) continue;
      const std::string one = presence_.trouble(rank);
      if (one.empty()) return "";
      all += one + "; ";
    }
    return all;
  };
  // Looking at processes costs system calls: not at every turn.
  static thread_local Clock::time_point last_look;
  const bool look = now - last_look > Milliseconds(15);
  if (look) last_look = now;
  const auto error_of = [&](const Operation& operation) -> std::exception_ptr {
    if (now >= operation.limit.deadline)
      return std::make_exception_ptr(DistributedError(
          Failure::Timeout,
          message("[", name_of(operation.what.op), "] Timed out waiting ", operation.limit.timeout.count(),
                  "ms for ", name_of(operation.what.op),
                  " operation to complete: ", operation.what.describe(), " between rank ", presence_.rank(),
                  " and rank ", operation.peer, " of group '", presence_.name(), "'")));
    const std::string problem = look ? problem_of(operation) : "";
    if (problem.empty()) return nullptr;
    // What it sent before it ended is taken first.
    if (operation.what.op == Collective::Receive)
      for (int rank = 0; rank < presence_.ranks(); ++rank)
        if (operation.peer < 0 || operation.peer == rank) {
          const Ring& ring = presence_.segment().ring(rank, presence_.rank());
          if (ring.written.load() != ring.read.load()) return nullptr;
        }
    return std::make_exception_ptr(DistributedError(
        Failure::Backend,
        message("[", name_of(operation.what.op), "] expected a peer for ", operation.what.describe(),
                " in group '", presence_.name(), "', got none: ", problem)));
  };
  bool moved = false;
  for (auto& queue : outgoing_)
    if (!queue.waiting.empty())
      if (auto error = error_of(queue.waiting.front())) {
        // Half a message in the ring would be read as the head of the next.
        if (queue.written >= 0 && queue.written < queue.waiting.front().data.bytes)
          presence_.leave(Standing::Failed);
        finish(queue.waiting.front(), error);
        queue.waiting.pop_front();
        queue.written = -1;
        moved = true;
      }
  for (auto& incoming : incoming_)
    if (incoming.target)
      if (auto error = error_of(*incoming.target)) {
        finish(*incoming.target, error);
        incoming.target.reset();
        presence_.leave(Standing::Failed);  // the rest of the message has no place to go to
        moved = true;
      }
  for (auto it = receives_.begin(); it != receives_.end();) {
    if (auto error = error_of(*it)) {
      finish(*it, error);
      it = receives_.erase(it);
      moved = true;
    } else {
      ++it;
    }
  }
  return moved;
}

}  // namespace fl::dist

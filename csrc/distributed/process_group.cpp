#include "distributed/process_group.h"

#include <algorithm>

#include "dispatch/profiling.h"
#include "distributed/reduce.h"

namespace fl::dist {

namespace {

// A dense CPU tensor that stands for another; the same one when that is dense and on the CPU already.
Tensor dense(const Tensor& t) {
  if (t.is_cpu()) return contiguous(t);
  Tensor copy = empty(t.sizes(), {t.dtype(), Device{}});
  copy_into(copy, t);
  return copy;
}

// Memory for a result that is going to be written to `t`.
Tensor room_for(const Tensor& t) {
  return t.is_cpu() && t.is_contiguous() ? t : empty(t.sizes(), {t.dtype(), Device{}});
}

Tensors dense(const Tensors& list) {
  Tensors copies;
  for (const Tensor& t : list) copies.push_back(dense(t));
  return copies;
}

Tensors room_for(const Tensors& list) {
  Tensors rooms;
  for (const Tensor& t : list) rooms.push_back(room_for(t));
  return rooms;
}

void deliver(const Tensor& to, const Tensor& from) {
  if (!to.same(from)) copy_into(to, from);
  to.bump_version();
}

void deliver(const Tensors& to, const Tensors& from) {
  for (size_t i = 0; i < to.size(); ++i) deliver(to[i], from[i]);
}

Piece piece_of(const Tensor& t) {
  return {t.numel() ? t.raw() : nullptr, t.numel() * t.itemsize()};
}

std::vector<Piece> pieces_of(const Tensors& list) {
  std::vector<Piece> pieces;
  for (const Tensor& t : list) pieces.push_back(piece_of(t));
  return pieces;
}

Fingerprint fingerprint(Collective op, const Tensor& t, Reduction reduction = Reduction::None,
                        int root = -1) {
  FL_CHECK((t->keys & kDeferred).empty(),
           "[distributed] expected a tensor whose memory holds its elements, got one that is conjugated or "
           "negated "
           "when it is read; use resolve_conj() and resolve_neg()");
  Fingerprint what;
  what.op = op;
  what.dtype = t.dtype();
  what.reduction = reduction;
  what.root = root;
  what.count = t.numel();
  what.dims = static_cast<uint8_t>(std::min<int64_t>(t.dim(), 8));
  for (int i = 0; i < what.dims; ++i) what.sizes[i] = t.size(i);
  return what;
}

// The range of an operation in a profile, from its call to its end on whichever thread that is, under
// PyTorch's name.
class Recording {
 public:
  explicit Recording(const Fingerprint& what) {
    if (!profiling::active.load(std::memory_order_relaxed)) return;
    start_ = profiling::now();
    const bool any = what.op == Collective::Receive && what.root < 0;
    name_ = message("gloo:", any ? "recvAnySource" : name_of(what.op));
    if (what.op == Collective::Barrier) return;
    std::string sizes = "[";
    for (int i = 0; i < what.dims; ++i) sizes += message(i ? ", " : "", what.sizes[i]);
    shapes_ = {sizes + "]"};
  }
  bool active() const { return start_ != 0; }
  void end() const { profiling::record(name_, start_, shapes_); }

 private:
  int64_t start_ = 0;
  std::string name_;
  std::vector<std::string> shapes_;
};

void record(const Recording& recording, Work& work) {
  if (recording.active()) work.at_end = [recording] { recording.end(); };
}

void check_list(const char* op, const Tensors& list, int ranks) {
  FL_CHECK(static_cast<int>(list.size()) == ranks, "[", op, "] expected a list of ", ranks,
           " tensors, one for each rank, got ", list.size());
}

void check_alike(const char* op, const Tensors& list, const Tensor& like) {
  for (const Tensor& t : list) {
    FL_CHECK(t.dtype() == like.dtype(), "[", op, "] Invalid tensor type: expected tensors of ",
             name_of(like.dtype()), ", got ", name_of(t.dtype()));
    FL_CHECK(t.numel() == like.numel(), "[", op, "] Invalid tensor size: expected tensors of ", like.numel(),
             " elements, got ", t.numel());
  }
}

}  // namespace

ProcessGroup::ProcessGroup(std::unique_ptr<Segment> segment, int rank, std::string name)
    : presence_(std::move(segment), rank, std::move(name)), collectives_(presence_), messages_(presence_) {}

ProcessGroup::~ProcessGroup() {
  close();
}

std::shared_ptr<ProcessGroup> ProcessGroup::make(std::unique_ptr<Segment> segment, int rank,
                                                 std::string name) {
  return {new ProcessGroup(std::move(segment), rank, std::move(name)), [](ProcessGroup* group) {
            const auto here = std::this_thread::get_id();
            if (here == group->thread_.get_id() || here == group->messages_.thread()) {
              std::thread([group] { delete group; }).detach();
            } else {
              delete group;
            }
          }};
}

void ProcessGroup::close() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    presence_.closing = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  messages_.close();
  presence_.leave(Standing::Left);
}

std::pair<std::unique_ptr<Segment>, std::vector<int>> ProcessGroup::succeed(const Limit& limit) {
  presence_.leave(Standing::Failed);  // who still waits here comes, too
  for (;;) {
    std::vector<int> left;
    for (int rank = 0; rank < size(); ++rank)
      if (!presence_.ended(rank)) left.push_back(rank);
    Control& leader = presence_.segment().control(left[0]);
    if (left[0] == rank()) {
      auto segment = Segment::create(static_cast<int>(left.size()));
      // Who is lost before it comes is missed by its process, which the old group knows.
      for (size_t i = 0; i < left.size(); ++i)
        segment->control(static_cast<int>(i)).pid.store(presence_.segment().control(left[i]).pid.load());
      for (auto& word : leader.members) word.store(0);
      for (int rank : left) leader.members[rank / 64].fetch_or(uint64_t{1} << (rank % 64));
      leader.successor.store(segment->descriptor() + 1);
      return {std::move(segment), left};
    }
    if (const int descriptor = leader.successor.load()) {
      std::vector<int> members;
      for (int rank = 0; rank < size(); ++rank)
        if (leader.members[rank / 64].load() >> (rank % 64) & 1) members.push_back(rank);
      return {Segment::open(leader.pid.load(), descriptor - 1, static_cast<int>(members.size())), members};
    }
    if (on_waiting) on_waiting();
    if (Clock::now() > limit.deadline)
      fail_as(Failure::Timeout, "[reform] Timed out waiting ", limit.timeout.count(), "ms for rank ", left[0],
              " to form the group of the ", left.size(), " processes that are left");
    std::this_thread::sleep_for(Milliseconds(2));
  }
}

void ProcessGroup::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Task task = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    std::exception_ptr error;
    awaited = &task.work->awaited();
    try {
      std::lock_guard<std::mutex> running(running_);
      task.body(Limit::after(task.mode.timeout));
    } catch (...) {
      error = std::current_exception();
    }
    awaited = nullptr;
    task.body = nullptr;
    pending_.fetch_sub(1);
    task.work->finish(error);
    task.work.reset();
    lock.lock();
  }
}

template <class F>
WorkRef ProcessGroup::submit(const Fingerprint& what, const Mode& mode, Tensors results, F&& body) {
  const Recording recording(what);
  if (!mode.async && pending_.load() == 0) {
    std::lock_guard<std::mutex> running(running_);
    FL_CHECK(!presence_.closing, "[distributed] expected a process group, got one that was destroyed");
    body(Limit::after(mode.timeout));
    if (recording.active()) recording.end();
    return nullptr;
  }
  auto work = std::make_shared<Work>(std::move(results));
  record(recording, *work);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    FL_CHECK(!stopping_, "[distributed] expected a process group, got one that was destroyed");
    pending_.fetch_add(1);
    queue_.push_back({Body(std::forward<F>(body)), mode, work});
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  }
  changed_.notify_one();
  if (mode.async) return work;
  work->wait(Milliseconds(-1));
  return nullptr;
}

WorkRef ProcessGroup::barrier(const Mode& mode) {
  Fingerprint what;
  what.op = Collective::Barrier;
  return submit(what, mode, {}, [=](const Limit& limit) { collectives_.exchange(what, {}, limit); });
}

// Ranks index pieces of shared memory, so one that no process has must not get through.
void ProcessGroup::check_rank(const char* op, const char* role, int rank, int lowest) const {
  FL_CHECK(rank >= lowest && rank < size(), "[", op, "] expected a ", role, " rank from 0 to ", size() - 1,
           ", got ", rank, ": invalid ", role, " rank: ", rank);
}

WorkRef ProcessGroup::broadcast(const Tensor& tensor, int root, const Mode& mode) {
  check_rank("broadcast", "root", root);
  const Fingerprint what = fingerprint(Collective::Broadcast, tensor, Reduction::None, root);
  const bool sends = root == rank();
  const Tensor buffer = sends ? dense(tensor) : room_for(tensor);
  return submit(what, mode, {tensor}, [=](const Limit& limit) {
    const Piece piece = piece_of(buffer);
    Exchange exchange{true, {}, {}, {}, piece.bytes};
    if (sends) {
      exchange.send = {piece};
    } else {
      exchange.receive.resize(size());
      exchange.receive[root] = piece;
    }
    collectives_.exchange(what, exchange, limit);
    if (!sends) deliver(tensor, buffer);
  });
}

WorkRef ProcessGroup::all_reduce(const Tensor& tensor, Reduction reduction, const Mode& mode) {
  check_reduction("all_reduce", tensor.dtype(), reduction);
  const Fingerprint what = fingerprint(Collective::AllReduce, tensor, reduction);
  const Tensor buffer = dense(tensor);
  return submit(what, mode, {tensor}, [=](const Limit& limit) {
    collectives_.all_reduce(what, {piece_of(buffer)}, limit);
    deliver(tensor, buffer);
  });
}

WorkRef ProcessGroup::all_reduce_gradients(const Tensors& tensors, Reduction reduction, int pass, int bucket,
                                           const Mode& mode) {
  Fingerprint what = fingerprint(Collective::AllReduce, tensors.at(0), reduction);
  what.dims = 1;
  what.count = 0;
  for (const Tensor& t : tensors) what.count += t.numel();
  what.sizes[0] = what.count;
  what.pass = pass;
  what.bucket = bucket;
  return submit(what, mode, tensors, [=](const Limit& limit) {
    collectives_.all_reduce(what, pieces_of(tensors), limit);
    for (const Tensor& t : tensors) t.bump_version();
  });
}

WorkRef ProcessGroup::reduce(const Tensor& tensor, int root, Reduction reduction, const Mode& mode) {
  check_rank("reduce", "root", root);
  check_reduction("reduce", tensor.dtype(), reduction);
  const Fingerprint what = fingerprint(Collective::Reduce, tensor, reduction, root);
  const Tensor buffer = dense(tensor);
  return submit(what, mode, {tensor}, [=](const Limit& limit) {
    const Piece piece = piece_of(buffer);
    collectives_.exchange(what, {true, {piece}, {}, root == rank() ? piece : Piece{}, piece.bytes}, limit);
    if (root == rank()) deliver(tensor, buffer);
  });
}

WorkRef ProcessGroup::all_gather(const Tensors& to, const Tensor& from, const Mode& mode) {
  check_list("all_gather", to, size());
  check_alike("all_gather", to, from);
  const Fingerprint what = fingerprint(Collective::AllGather, from);
  const Tensor input = dense(from);
  const Tensors rooms = room_for(to);
  return submit(what, mode, to, [=](const Limit& limit) {
    const Piece piece = piece_of(input);
    collectives_.exchange(what, {true, {piece}, pieces_of(rooms), {}, piece.bytes}, limit);
    deliver(to, rooms);
  });
}

WorkRef ProcessGroup::gather(const Tensors& to, const Tensor& from, int root, const Mode& mode) {
  check_rank("gather", "root", root);
  if (root == rank()) {
    check_list("gather", to, size());
    check_alike("gather", to, from);
  }
  const Fingerprint what = fingerprint(Collective::Gather, from, Reduction::None, root);
  const Tensor input = dense(from);
  const Tensors rooms = root == rank() ? room_for(to) : Tensors{};
  return submit(what, mode, to, [=](const Limit& limit) {
    const Piece piece = piece_of(input);
    collectives_.exchange(what, {true, {piece}, pieces_of(rooms), {}, piece.bytes}, limit);
    if (root == rank()) deliver(to, rooms);
  });
}

WorkRef ProcessGroup::scatter(const Tensor& to, const Tensors& from, int root, const Mode& mode) {
  check_rank("scatter", "root", root);
  if (root == rank()) {
    check_list("scatter", from, size());
    check_alike("scatter", from, to);
  }
  const Fingerprint what = fingerprint(Collective::Scatter, to, Reduction::None, root);
  const Tensors inputs = root == rank() ? dense(from) : Tensors{};
  const Tensor room = room_for(to);
  return submit(what, mode, {to}, [=](const Limit& limit) {
    const Piece piece = piece_of(room);
    Exchange exchange{false, pieces_of(inputs), std::vector<Piece>(size()), {}, piece.bytes};
    exchange.receive[root] = piece;
    collectives_.exchange(what, exchange, limit);
    deliver(to, room);
  });
}

WorkRef ProcessGroup::reduce_scatter(const Tensor& to, const Tensors& from, Reduction reduction,
                                     const Mode& mode) {
  check_list("reduce_scatter", from, size());
  check_alike("reduce_scatter", from, to);
  check_reduction("reduce_scatter", to.dtype(), reduction);
  const Fingerprint what = fingerprint(Collective::ReduceScatter, to, reduction);
  const Tensors inputs = dense(from);
  const Tensor room = room_for(to);
  return submit(what, mode, {to}, [=](const Limit& limit) {
    const Piece piece = piece_of(room);
    collectives_.exchange(what, {false, pieces_of(inputs), {}, piece, piece.bytes}, limit);
    deliver(to, room);
  });
}

WorkRef ProcessGroup::all_to_all(const Tensors& to, const Tensors& from, const Mode& mode) {
  check_list("all_to_all", to, size());
  check_list("all_to_all", from, size());
  Fingerprint what = fingerprint(Collective::AllToAll, from[0]);
  what.count = -1;  // sizes differ from rank to rank
  const Tensors inputs = dense(from), rooms = room_for(to);
  return submit(what, mode, to, [=](const Limit& limit) {
    collectives_.all_to_all(what, pieces_of(inputs), pieces_of(rooms), limit);
    deliver(to, rooms);
  });
}

WorkRef ProcessGroup::send(const Tensor& tensor, int to, int64_t tag, const Mode& mode) {
  check_rank("send", "destination", to);
  const Fingerprint what = fingerprint(Collective::Send, tensor, Reduction::None, to);
  const Tensor buffer = dense(tensor);
  auto work = std::make_shared<Work>(Tensors{tensor, buffer});
  record(Recording(what), *work);
  messages_.send(what, piece_of(buffer), to, tag, Limit::after(mode.timeout), work, !mode.async);
  return work;
}

WorkRef ProcessGroup::receive(const Tensor& tensor, int from, int64_t tag, const Mode& mode) {
  check_rank("recv", "source", from, -1);
  const Fingerprint what = fingerprint(Collective::Receive, tensor, Reduction::None, from);
  const Tensor room = room_for(tensor);
  auto work = std::make_shared<Work>(Tensors{tensor});
  record(Recording(what), *work);
  messages_.receive(
      what, piece_of(room), from, tag, Limit::after(mode.timeout), work, [=] { deliver(tensor, room); },
      !mode.async);
  return work;
}

}  // namespace fl::dist

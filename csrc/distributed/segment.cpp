#include "distributed/segment.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <thread>

namespace fl::dist {

void (*on_waiting)() = nullptr;
thread_local const std::atomic<bool>* awaited = nullptr;

const char* name_of(Collective op) {
  constexpr const char* names[] = {"none",           "barrier",    "broadcast", "all_reduce",
                                   "reduce",         "all_gather", "gather",    "scatter",
                                   "reduce_scatter", "all_to_all", "send",      "recv"};
  return names[static_cast<int>(op)];
}

const char* name_of(Reduction reduction) {
  constexpr const char* names[] = {"sum",  "avg", "product", "min",        "max",
                                   "band", "bor", "bxor",    "premul_sum", "none"};
  return names[static_cast<int>(reduction)];
}

std::string Fingerprint::describe() const {
  std::string text = name_of(op);
  if (op == Collective::None) return "no collective yet";
  if (op == Collective::Barrier) return message(text, "() #", sequence);
  text += message("(", fl::name_of(dtype), " [");
  for (int i = 0; i < dims; ++i) text += message(i ? ", " : "", sizes[i]);
  text += "]";
  if (reduction != Reduction::None) text += message(", op=", name_of(reduction));
  if (root >= 0) text += message(", root=", root);
  if (bucket > 0) text += message(", gradients of bucket ", bucket, " in backward pass ", pass);
  if (bucket < 0)
    text += message(", nothing for bucket ", -bucket, ": backward pass ", pass, " raised an error");
  return text + message(") #", sequence);
}

namespace {

size_t round_up(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

int available_cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

}  // namespace

Segment::Segment(int descriptor, int ranks) : descriptor_(descriptor), ranks_(ranks) {
  const size_t n = static_cast<size_t>(ranks);
  slot_bytes_ = n <= 4 ? size_t{1} << 20 : round_up((size_t{4} << 20) / n, 4096);
  ring_bytes_ = n <= 8 ? size_t{1} << 17 : size_t{1} << 14;
  FL_CHECK(ranks <= kMostRanks, "[init_process_group] expected at most ", kMostRanks,
           " processes of one host in a group, got ", ranks);
  const size_t controls = sizeof(Header) + round_up(n * sizeof(Control), 4096);
  const size_t slots = n * 2 * slot_bytes_;
  total_ = controls + slots + n * n * (sizeof(Ring) + ring_bytes_);
  struct stat status;
  FL_CHECK(fstat(descriptor_, &status) == 0, "[init_process_group] cannot read the size of shared memory");
  if (status.st_size == 0)
    FL_CHECK(ftruncate(descriptor_, static_cast<off_t>(total_)) == 0, "[init_process_group] expected ",
             total_, " bytes of shared memory, got: ", std::string(strerror(errno)));
  memory_ = static_cast<char*>(mmap(nullptr, total_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0));
  FL_CHECK(memory_ != MAP_FAILED, "[init_process_group] cannot map ", total_,
           " bytes of shared memory: ", std::string(strerror(errno)));
  controls_ = reinterpret_cast<Control*>(memory_ + sizeof(Header));
  slots_ = memory_ + controls;
  rings_ = slots_ + slots;
}

std::unique_ptr<Segment> Segment::create(int ranks) {
  const int descriptor = memfd_create("flambeau-group", MFD_CLOEXEC);
  FL_CHECK(descriptor >= 0, "[init_process_group] cannot make shared memory: ", std::string(strerror(errno)));
  std::unique_ptr<Segment> segment(new Segment(descriptor, ranks));
  segment->header().ranks = ranks;
  segment->header().magic = kMagic;
  return segment;
}

std::unique_ptr<Segment> Segment::open(int pid, int descriptor, int ranks) {
  const std::string path = message("/proc/", pid, "/fd/", descriptor);
  const int own = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (own < 0)
    fail_as(Failure::Backend, "[init_process_group] expected shared memory of process ", pid,
            ", got: ", std::string(strerror(errno)));
  return std::unique_ptr<Segment>(new Segment(own, ranks));
}

int Segment::ranks_at(int pid, int descriptor) {
  const std::string path = message("/proc/", pid, "/fd/", descriptor);
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  struct {
    uint64_t magic;
    int32_t ranks;
  } start{};
  const bool whole = pread(file, &start, sizeof start, 0) == sizeof start;
  close(file);
  return whole && start.magic == kMagic ? start.ranks : 0;
}

Segment::~Segment() {
  if (memory_) munmap(memory_, total_);
  close(descriptor_);
}

Presence::Presence(std::unique_ptr<Segment> segment, int rank, std::string name)
    : segment_(std::move(segment)), rank_(rank), name_(std::move(name)), processes_(segment_->ranks(), -1) {
  // With fewer cores than ranks the one who is waited for may need this core.
  const int cores = available_cores();
  spins_ = cores < segment_->ranks() ? 20 : 2000;
  background_spins_ = cores < 2 * segment_->ranks() ? 20 : spins_;
  if (rank_ == 0) {
    char* text = segment_->header().name;
    std::strncpy(text, name_.c_str(), sizeof(Header::name) - 1);
  }
  own().pid.store(getpid());
  own().standing.store(Standing::Member);
}

Presence::~Presence() {
  leave(Standing::Left);
  for (int descriptor : processes_)
    if (descriptor >= 0) close(descriptor);
}

void Presence::wake(int rank) const {
  Control& peer = segment_->control(rank);
  if (peer.sleepers.load() == 0) return;
  peer.rings.fetch_add(1);
  syscall(SYS_futex, &peer.rings, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Presence::wake_all() const {
  for (int rank = 0; rank < ranks(); ++rank)
    if (rank != rank_) wake(rank);
}

void Presence::leave(Standing standing) const {
  own().standing.store(standing);
  wake_all();
}

void Presence::sleep(uint32_t rings) const {
  const timespec tick{0, 20'000'000};
  syscall(SYS_futex, &own().rings, FUTEX_WAIT, rings, &tick, nullptr, 0);
}

std::string Presence::trouble(int rank) const {
  Control& peer = segment_->control(rank);
  const int pid = peer.pid.load();
  const std::string last = "; its last collective: " + peer.current.describe();
  switch (peer.standing.load()) {
    case Standing::Left:
      return "rank " + std::to_string(rank) + " has left the group" + last;
    case Standing::Failed:
      return "rank " + std::to_string(rank) + " gave up after an error" + last;
    default:
      break;
  }
  if (rank == rank_ || pid == 0) return "";
  return process_ended(rank) ? message("rank ", rank, " (process ", pid, ") has ended", last) : "";
}

bool Presence::process_ended(int rank) const {
  int& process = processes_[rank];
  if (process < 0) process = static_cast<int>(syscall(SYS_pidfd_open, segment_->control(rank).pid.load(), 0));
  if (process < 0) return errno == ESRCH;
  pollfd polled{process, POLLIN, 0};
  return poll(&polled, 1, 0) == 1;
}

bool Presence::ended(int rank) const {
  const Control& peer = segment_->control(rank);
  if (rank == rank_ || peer.pid.load() == 0) return false;
  return peer.standing.load() == Standing::Left || process_ended(rank);
}

int stack_signal() {
  return SIGRTMIN + 9;
}

std::string Presence::stacks() const {
  std::vector<int> files(ranks(), -1);
  std::vector<off_t> starts(ranks(), 0);
  for (int rank = 0; rank < ranks(); ++rank) {
    const Control& control = segment_->control(rank);
    const int descriptor = control.stacks.load() - 1;
    if (descriptor < 0 || (rank != rank_ && !trouble(rank).empty())) continue;
    const std::string path = message("/proc/", control.pid.load(), "/fd/", descriptor);
    files[rank] = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (files[rank] < 0) continue;
    starts[rank] = lseek(files[rank], 0, SEEK_END);
    kill(control.pid.load(), stack_signal());
  }
  std::this_thread::sleep_for(Milliseconds(300));  // a process answers when it runs next
  std::string text;
  for (int rank = 0; rank < ranks(); ++rank) {
    const Control& control = segment_->control(rank);
    const std::string problem = rank == rank_ ? "" : trouble(rank);
    text += message("--- rank ", rank, " (process ", control.pid.load(),
                    "): ", problem.empty() ? "in or after " + control.current.describe() : problem, "\n");
    if (files[rank] < 0) continue;
    const off_t end = lseek(files[rank], 0, SEEK_END);
    std::string part(static_cast<size_t>(std::max<off_t>(0, end - starts[rank])), '\0');
    const ssize_t got = pread(files[rank], part.data(), part.size(), starts[rank]);
    part.resize(static_cast<size_t>(std::max<ssize_t>(0, got)));
    text += part.empty() ? "no answer: the process runs native code or is stopped\n" : part;
    close(files[rank]);
  }
  return text;
}

bool Presence::tell(int peer, const Fingerprint& what) const {
  if (peer < 0) return true;
  const Control& control = segment_->control(peer);
  std::string line =
      message("[", name_of(what.op), "] rank ", rank_, " of group '", name_, "' has waited ",
              kPatience.count() / 1000, " s in ", what.describe(), " for rank ", peer, " (process ",
              control.pid.load(), "), which was last seen in ", control.current.describe(), "\n");
  // One rank asks all for their stacks; the others only say what they wait for.
  uint64_t before = segment_->header().reported.load();
  if (before != what.sequence && segment_->header().reported.compare_exchange_strong(before, what.sequence))
    line += stacks();
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
  return true;
}

void Presence::fail_late(int peer, const Fingerprint& what, Milliseconds timeout) const {
  std::string who = "a peer";
  if (peer >= 0) {
    const Control& control = segment_->control(peer);
    who = message("rank ", peer, " (process ", control.pid.load(), "), which was last seen in ",
                  control.current.describe());
  }
  fail_as(Failure::Timeout, "[", name_of(what.op), "] Timed out waiting ", timeout.count(), "ms in ",
          what.describe(), " on rank ", rank_, " of group '", name_, "' for ", who);
}

}  // namespace fl::dist

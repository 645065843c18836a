#include "distributed/segment.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>

namespace fl::dist {

void (*on_waiting)() = nullptr;

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
  const size_t controls = round_up(n * sizeof(Control), 4096);
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
  controls_ = reinterpret_cast<Control*>(memory_);
  slots_ = memory_ + controls;
  rings_ = slots_ + slots;
}

std::unique_ptr<Segment> Segment::create(int ranks) {
  const int descriptor = memfd_create("flambeau-group", MFD_CLOEXEC);
  FL_CHECK(descriptor >= 0, "[init_process_group] cannot make shared memory: ", std::string(strerror(errno)));
  return std::unique_ptr<Segment>(new Segment(descriptor, ranks));
}

std::unique_ptr<Segment> Segment::open(int pid, int descriptor, int ranks) {
  const std::string path = message("/proc/", pid, "/fd/", descriptor);
  const int own = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (own < 0)
    fail_as(Failure::Backend, "[init_process_group] expected shared memory of process ", pid,
            ", got: ", std::string(strerror(errno)));
  return std::unique_ptr<Segment>(new Segment(own, ranks));
}

Segment::~Segment() {
  if (memory_) munmap(memory_, total_);
  close(descriptor_);
}

Presence::Presence(std::unique_ptr<Segment> segment, int rank, std::string name)
    : segment_(std::move(segment)), rank_(rank), name_(std::move(name)), processes_(segment_->ranks(), -1) {
  // With fewer cores than ranks the one who is waited for may need this core.
  spins_ = available_cores() < segment_->ranks() ? 20 : 2000;
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
  int& process = processes_[rank];
  if (process < 0) process = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  bool ended = process < 0 && errno == ESRCH;
  if (process >= 0) {
    pollfd polled{process, POLLIN, 0};
    ended = poll(&polled, 1, 0) == 1;
  }
  return ended ? message("rank ", rank, " (process ", pid, ") has ended", last) : "";
}

bool Presence::tell(int peer, const Fingerprint& what) const {
  if (peer < 0) return true;
  const Control& control = segment_->control(peer);
  const std::string line =
      message("[", name_of(what.op), "] rank ", rank_, " of group '", name_, "' has waited ",
              kPatience.count() / 1000, " s in ", what.describe(), " for rank ", peer, " (process ",
              control.pid.load(), "), which was last seen in ", control.current.describe(), "\n");
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

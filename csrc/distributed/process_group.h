// A group of processes: collectives and messages on tensors.
//
// Collectives run in the order in which they were called, one at a time. Blocking ones run on the caller's
// thread when nothing is queued, the others on a thread of the group. Tensors that are not dense or not on
// the CPU are exchanged through copies.
#pragma once

#include <deque>
#include <thread>

#include "distributed/collectives.h"
#include "distributed/messages.h"
#include "distributed/work.h"

namespace fl::dist {

using Tensors = std::vector<Tensor>;
using WorkRef = std::shared_ptr<Work>;

struct Mode {
  bool async = false;
  Milliseconds timeout{0};
};

class ProcessGroup {
 public:
  ProcessGroup(std::unique_ptr<Segment> segment, int rank, std::string name);
  ~ProcessGroup();
  // The last reference may go with a callback on a thread of the group, which cannot wait for its own end:
  // the group then ends on another one.
  static std::shared_ptr<ProcessGroup> make(std::unique_ptr<Segment> segment, int rank, std::string name);
  // Ends the threads and lets peers who wait for this rank know. Idempotent.
  void close();

  // Blocking calls return null once they are done.
  WorkRef barrier(const Mode& mode);
  WorkRef broadcast(const Tensor& tensor, int root, const Mode& mode);
  WorkRef all_reduce(const Tensor& tensor, Reduction reduction, const Mode& mode);
  // Dense CPU tensors of one dtype, reduced where they lie: a bucket of a reducer (Fingerprint).
  WorkRef all_reduce_gradients(const Tensors& tensors, Reduction reduction, int pass, int bucket,
                               const Mode& mode);
  WorkRef reduce(const Tensor& tensor, int root, Reduction reduction, const Mode& mode);
  WorkRef all_gather(const Tensors& to, const Tensor& from, const Mode& mode);
  WorkRef gather(const Tensors& to, const Tensor& from, int root, const Mode& mode);
  WorkRef scatter(const Tensor& to, const Tensors& from, int root, const Mode& mode);
  WorkRef reduce_scatter(const Tensor& to, const Tensors& from, Reduction reduction, const Mode& mode);
  WorkRef all_to_all(const Tensors& to, const Tensors& from, const Mode& mode);
  WorkRef send(const Tensor& tensor, int to, int64_t tag, const Mode& mode);
  WorkRef receive(const Tensor& tensor, int from, int64_t tag, const Mode& mode);  // from -1: anybody

  int rank() const { return presence_.rank(); }
  int size() const { return presence_.ranks(); }
  uint64_t sequence() const { return collectives_.sequence(); }
  Presence& presence() { return presence_; }
  std::vector<Trace> recent() const { return collectives_.recent(); }
  // After a failure: the memory of a group of the processes that are left, made by the first of them, and
  // their ranks here.
  std::pair<std::unique_ptr<Segment>, std::vector<int>> succeed(const Limit& limit);

 private:
  using Body = std::function<void(const Limit&)>;
  struct Task {
    Body body;
    Mode mode;
    WorkRef work;
  };

  template <class F>
  WorkRef submit(const Fingerprint& what, const Mode& mode, Tensors results, F&& body);
  void run();
  void check_rank(const char* op, const char* role, int rank, int lowest = 0) const;

  Presence presence_;
  Collectives collectives_;
  Messages messages_;
  std::mutex running_;  // held while a collective runs
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> queue_;
  std::atomic<int> pending_{0};  // queued or running on the thread
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace fl::dist

// Programs as graphs of an accelerator: recorded once, then run again with a single launch.
//
// A program that is called often with the same tensors is recorded on its second call. Inputs that lie where
// they lay in the first call (parameters) or that another recording makes (what forward leaves for backward)
// are used in place, others are copied into memory of the graph before each run. Results lie in the graph's
// memory, and are overwritten by the next run: a result that somebody still holds by then is moved away
// first, below the tensors that view it. So a caller never sees a result change, and pays for a copy only
// when it keeps one.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "core/tensor.h"

namespace fl::compiled {

struct Program;

class Replay {
 public:
  std::vector<Tensor> run(const Program& program, const Tensor* tensors);

 private:
  // Where a result comes from: memory of the graph (`block`), or an input.
  struct Result {
    int block = -1, input = -1;
  };
  // A graph and its memory. Results that callers hold keep it.
  struct Recording {
    explicit Recording(Device device);
    ~Recording();
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;

    int device;
    uint64_t pool;
    void *graph = nullptr, *executable = nullptr;
    std::vector<Tensor> outputs;
    std::vector<Ref<Storage>> blocks;  // the graph's memory that results lie in
  };
  enum class State { Cold, Warm, Recorded, Off };

  std::vector<Tensor> first_run(const Program& program, const Tensor* tensors);
  bool record(const Program& program, const Tensor* tensors);
  std::vector<Tensor> replay(const Program& program, const Tensor* tensors);
  void take_states(const Program& program);
  void move_held_results();

  std::mutex mutex_;
  State state_ = State::Cold;
  int recordings_ = 0;
  std::vector<const void*> addresses_;  // of the inputs, in the call before
  std::vector<bool> in_place_;          // inputs that are used where they are
  std::shared_ptr<Recording> recording_;
  std::vector<Tensor> inputs_;
  std::vector<Result> results_;
  std::vector<Ref<Storage>> lent_;  // as callers of the last run see it
  Tensor states_;                   // of random streams, a row for each
  void* stream_ = nullptr;
};

}  // namespace fl::compiled

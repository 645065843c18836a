// The handle of an operation that runs in the background.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>

#include "core/tensor.h"
#include "distributed/store.h"

namespace fl::dist {

class Work {
 public:
  explicit Work(std::vector<Tensor> results) : results(std::move(results)) {}

  // Raises the operation's error, or Failure::Timeout when it is not done in time (no limit when negative).
  void wait(Milliseconds timeout);
  const std::atomic<bool>& awaited() const { return awaited_; }  // somebody has called wait()
  bool done() const { return done_.load(std::memory_order_acquire); }
  std::exception_ptr error() const;
  // Calls `callback` when the operation is done, at once when it is done already.
  void then(std::function<void()> callback);
  void finish(std::exception_ptr error = nullptr);

  const std::vector<Tensor> results;
  std::function<void()> at_end;  // called before anybody learns that the operation is done
  std::atomic<int> source{-1};   // of a received message

 private:
  mutable std::mutex mutex_;
  std::condition_variable finished_;
  std::atomic<bool> done_{false}, awaited_{false};
  std::exception_ptr error_;
  std::vector<std::function<void()>> callbacks_;
};

}  // namespace fl::dist

// Recording of calls: what ran when, on which thread, with which shapes and how much memory. When nothing is
// recorded a call costs one read of a flag.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "dispatch/value.h"

namespace fl {

class Operator;

namespace profiling {

struct Options {
  bool shapes = false, memory = false, stack = false;
};

struct Event {
  std::string name;
  int64_t start = 0, end = 0;  // nanoseconds of the monotonic clock
  int64_t thread = 0;
  int64_t memory = 0;  // bytes allocated less bytes freed meanwhile
  int64_t sequence = 0;
  int depth = 0;                    // events open around it on its thread; -1: it is not nested, see `record`
  std::vector<std::string> shapes;  // of the arguments, one for each; empty for those that are not tensors
  std::string stack;                // Python's, innermost first
};

extern std::atomic<bool> active;
// The Python stack of the calling thread, set by the binding.
extern std::string (*describe_stack)();

void start(Options options);
std::vector<Event> stop();  // what was recorded since start

int64_t now();
// A range that began at `start` and ends now, on any thread and beside what is open there, as an operation in
// the background is. Its name is kept as it is.
void record(std::string name, int64_t start, std::vector<std::string> shapes);

// Records from here to the end of the block.
class Scope {
 public:
  Scope(const Operator& op, const Value* args) {
    if (__builtin_expect(active.load(std::memory_order_relaxed), 0)) open(op, args);
  }
  // A range with a name of its own, made only when it is recorded.
  template <class Name>
  explicit Scope(const Name& name) {
    if (__builtin_expect(active.load(std::memory_order_relaxed), 0)) open(name());
  }
  ~Scope() {
    if (__builtin_expect(open_, 0)) close();
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  void open(const Operator& op, const Value* args);
  void open(std::string name);
  void close();

  bool open_ = false;
};

}  // namespace profiling
}  // namespace fl

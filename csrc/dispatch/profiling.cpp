// The recorder: a stack of open events for each thread, one list of finished ones.
#include "dispatch/profiling.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <mutex>

#include "core/allocator.h"
#include "dispatch/operator.h"

namespace fl::profiling {

std::atomic<bool> active{false};
std::string (*describe_stack)() = nullptr;

namespace {

std::mutex mutex;
std::vector<Event> finished;
Options options;
std::atomic<int64_t> generation{0};  // events that outlive their recording are dropped
std::atomic<int64_t> sequence{0};
int64_t began = 0;  // when recording started

struct Open {
  const Operator* op = nullptr;
  int64_t generation = 0;
  Event event;
};
std::vector<Open>& stack() {
  thread_local std::vector<Open> open;
  return open;
}

int64_t thread_number() {
  thread_local const int64_t id = static_cast<int64_t>(::syscall(SYS_gettid));
  return id;
}

std::string sizes_text(const TensorImpl* t) {
  std::string text = "[";
  for (size_t i = 0; i < t->sizes.size(); ++i) {
    if (i) text += ", ";
    text += std::to_string(t->sizes[i]);
  }
  return text + "]";
}

Open& push(const Operator* op, std::string name) {
  auto& open = stack();
  open.emplace_back();
  Open& scope = open.back();
  scope.op = op;
  scope.generation = generation.load(std::memory_order_relaxed);
  scope.event.name = std::move(name);
  scope.event.thread = thread_number();
  scope.event.depth = static_cast<int>(open.size()) - 1;
  scope.event.sequence = sequence.fetch_add(1, std::memory_order_relaxed);
  if (options.stack && describe_stack) scope.event.stack = describe_stack();
  if (options.memory) scope.event.memory = -cpu_memory_stats().allocated;
  return scope;
}

}  // namespace

int64_t now() {
  using namespace std::chrono;
  return duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

void record(std::string name, int64_t start, std::vector<std::string> shapes) {
  Event event;
  event.name = std::move(name);
  event.start = start;
  event.end = now();
  event.thread = thread_number();
  event.depth = -1;
  event.sequence = sequence.fetch_add(1, std::memory_order_relaxed);
  std::lock_guard<std::mutex> lock(mutex);
  if (!active.load(std::memory_order_relaxed) || start < began) return;
  if (options.shapes) event.shapes = std::move(shapes);
  finished.push_back(std::move(event));
}

void start(Options wanted) {
  std::lock_guard<std::mutex> lock(mutex);
  options = wanted;
  finished.clear();
  began = now();
  generation.fetch_add(1);
  sequence.store(0);
  active.store(true);
}

std::vector<Event> stop() {
  active.store(false);
  std::lock_guard<std::mutex> lock(mutex);
  generation.fetch_add(1);
  return std::exchange(finished, {});
}

void Scope::open(const Operator& op, const Value* args) {
  // One call passes the dispatcher once for each of its keys.
  if (!stack().empty() && stack().back().op == &op) return;
  Open& scope = push(&op, op.schema.name);
  if (options.shapes)
    for (size_t i = 0; i < op.schema.args.size(); ++i) {
      std::string text;
      if (args[i].is_tensor()) {
        text = sizes_text(args[i].tensor_impl());
      } else if (args[i].is_tensor_list()) {
        for (size_t k = 0; k < args[i].length(); ++k)
          if (args[i].tensors()[k].defined())
            text += (k ? ", " : "") + sizes_text(args[i].tensors()[k].impl());
        text = "[" + text + "]";
      }
      scope.event.shapes.push_back(std::move(text));
    }
  open_ = true;
  scope.event.start = now();
}

void Scope::open(std::string name) {
  Open& scope = push(nullptr, std::move(name));
  open_ = true;
  scope.event.start = now();
}

void Scope::close() {
  const int64_t end = now();
  auto& open = stack();
  Open done = std::move(open.back());
  open.pop_back();
  done.event.end = end;
  if (options.memory) done.event.memory += cpu_memory_stats().allocated;
  std::lock_guard<std::mutex> lock(mutex);
  if (done.generation == generation.load(std::memory_order_relaxed))
    finished.push_back(std::move(done.event));
}

}  // namespace fl::profiling

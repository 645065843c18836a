// Devices that record: a call becomes a node of a graph, shaped by the kernel for tensors without data, and
// runs when a value is wanted, as a part of one program.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "lazy/trace.h"

namespace fl::lazy {

// The error of a program that could not be made or run. Its tensors have no values: whoever asks for one gets
// the error again.
class Failure : public Counted {
 public:
  // Says which line recorded the call that failed; `exact` is false where only the first line of the program
  // is known.
  virtual void recorded_at(int line, bool exact) = 0;
  // Whether somebody stopped the program, which says nothing about its calls.
  virtual bool is_interruption() const = 0;
  [[noreturn]] virtual void raise() = 0;
};

// What a storage of a recording device stands for: memory of the device below, a slot of the graph, or
// nothing where the program failed that would have written it.
struct Recorded : Counted {
  Tensor base;
  bool shared = false;  // something else looks at the memory of the base, which has to stay the same
  int slot = -1;
  Ref<Failure> failure;
};

struct Metrics {
  uint64_t operators = 0, graphs = 0, hits = 0, host_calls = 0;
  uint64_t execute_ns = 0;
};

class Recorder {
 public:
  // Makes a program of a graph; null where the graph has to run call by call. Numbers that it cannot take
  // as parameters are given back to `keep_constant` before.
  using Compile = std::function<Ref<Executable>(const Graph& graph, const std::vector<int>& outputs,
                                                const std::vector<Tensor>& inputs, const char* why)>;

  Recorder(DeviceType type, Device base) : type_(type), base_(base) {}
  static Recorder& make(DeviceType type, Device base);
  static Recorder* find(DeviceType type);

  // Runs what has been recorded.
  void flush(const char* why);
  // A copy of what has been recorded and has not run yet, its inputs, and the slots that are wanted.
  Graph recorded(std::vector<Tensor>& inputs, std::vector<int>& outputs);
  // The tensor on the device below.
  Tensor on_base(const Tensor& t, const char* why);
  // The same for whoever keeps looking at its memory.
  Tensor shared_base(const Tensor& t, const char* why);
  // A tensor of the device below as one of this device.
  Tensor wrapped(const Tensor& base) const;

  void call(const Operator& op, Value* args, Value* results);

  Compile compile;
  std::function<int()> line;                               // the line of the program that runs
  std::function<void(const std::function<void()>&)> wait;  // runs what blocks, without Python\'s lock
  std::function<Ref<Failure>()> caught;                    // the exception in flight
  bool interprets_single_calls = false;                    // a graph of one call needs no program
  size_t most_calls = 4096;
  Metrics metrics;
  Device base() const { return base_; }
  void set_base(Device base);
  void forget_programs();
  // The numbers among the graph's parameters that were none at first are constants from now on.
  void keep_constant(const Graph& graph);

 private:
  enum class Kind : uint8_t { Record, Host, Copy, ToCopy };
  // Bit i of a mask says something of argument i.
  struct Known {
    Kind kind = Kind::Record;
    uint32_t parametric = 0;  // if it is a number, that is a parameter of programs
    uint32_t integers = 0;    // and so it is if it is an integer
    uint32_t candidates = 0;  // a number that becomes a parameter once it has changed from run to run
    uint32_t operands = 0;    // it may be a tensor as well
    bool update = false, mutates = false;
  };
  struct PairHash {
    size_t operator()(const std::pair<uint64_t, uint64_t>& p) const { return p.first; }
  };

  Known& known(const Operator& op);
  bool is_here(const Tensor& t) const { return t.device().type == type_; }
  Recorded& state(const Tensor& t);
  void check_value(const Tensor& t);
  int slot_of(const Tensor& t);
  int host_slot(const Tensor& t);
  Window window_of(const Tensor& t);
  // Numbers (numbers.cpp).
  static bool is_parameter(const Known& known, size_t argument, const Value& v, Scalar& number);
  void note_changes(const Graph& graph, const std::vector<int>& outputs);
  std::unique_lock<std::recursive_mutex> lock();
  bool is_window(const Operator& op, const Value* args, const std::vector<Tensor>& twins,
                 const Value* results) const;
  bool record(const Operator& op, const Known& known, Value* args, Value* results, int where);
  void enter(const Operator& op, const Known& known, const Value* args, Call& call, bool is_view = false);
  void run_meta(const Operator& op, const Value* args, std::vector<Tensor>& twins, Value* results);
  void take_results(const Operator& op, const Value* args, const std::vector<Tensor>& twins, Value* results,
                    Call& call, std::vector<TracedResult>& traced);
  void on_host(const Operator& op, Value* args, Value* results);
  void copy(const Operator& op, Value* args, Value* results, int where);
  void to_copy(const Operator& op, Value* args, Value* results, int where);
  void advance_states(const Operator& op, Value* args, std::vector<std::vector<Tensor>>& before);
  void check_generator();
  void draw();
  Tensor new_result(const TracedResult& result);
  void finish_call(const Operator& op, const Known& known, const Value* args, size_t calls);
  // Traces (trace.cpp).
  bool follow(const Operator& op, const Known& known, Value* args, Value* results, int where);
  const TracedCall* expected_call(const Operator& op, const Known& known, const Value* args);
  bool fits(const Trace& trace, const TracedCall& expected, const Known& known, const Value* args);
  bool fits_tensor(const Trace& trace, const Tensor& t, const Window& window, size_t bytes);
  void drop_slots(size_t count);
  void take_values(const TracedCall& expected, const Value* args);
  void make_results(const TracedCall& expected, const Value* args, Value* results);
  void leave_trace();
  Ref<Trace> finished_trace();
  void trace_call(const Operator& op, const Known& known, const Value* args, const Value* results, Call call,
                  std::vector<TracedResult> traced, bool is_view);
  void keep_trace(const Graph& graph, std::vector<Ref<TracedCall>> calls, const std::vector<int>& outputs,
                  const Ref<Executable>& program);
  std::vector<Tensor> inputs_of(const Graph& graph) const;
  Ref<Executable> program_of(const Graph& graph, const std::vector<int>& outputs,
                             const std::vector<Tensor>& inputs, const char* why);
  std::vector<Tensor> run(const Graph& graph, Executable& program, const std::vector<Tensor>& inputs);
  void store(const Graph& graph, const std::vector<int>& outputs, const std::vector<int>& replaced,
             std::vector<Tensor>& results);
  Ref<Failure> located(const Graph& graph, const std::vector<Tensor>& inputs, Ref<Failure> failure);
  void forget_values(const Graph& graph, const std::vector<int>& outputs, bool ran,
                     const Ref<Failure>& failure);

  const DeviceType type_;
  Device base_;
  std::recursive_mutex mutex_;
  Graph graph_;
  std::unordered_map<const Operator*, Known> known_;
  std::unordered_map<std::pair<uint64_t, uint64_t>, Ref<Executable>, PairHash> programs_;
  // Constants of the last graph that had to be compiled, by all else that such a graph is.
  std::unordered_map<std::pair<uint64_t, uint64_t>, std::vector<Scalar>, PairHash> constants_;

  std::vector<Ref<Trace>> traces_;  // the latest used first
  Ref<Trace> trace_;                // the one that is followed, whose calls are not in the graph
  size_t followed_ = 0;             // calls of it
  std::vector<int> lines_;          // of these calls
  bool tracing_ = false;            // programs repeat themselves: what is recorded becomes a trace
  std::vector<Ref<TracedCall>> traced_;
};

// The kernel of all operators on recording devices.
void recording_kernel(const Operator& op, void* context, KeySet keys, Value* args, Value* results);

}  // namespace fl::lazy

// Devices that record: a call becomes a node of a graph, shaped by the kernel for tensors without data, and
// runs when a value is wanted, as a part of one program.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "lazy/graph.h"

namespace fl::lazy {

// What a storage of a recording device stands for: memory of the device below, or a slot of the graph.
struct Recorded : Counted {
  Ref<Storage> base;
  int slot = -1;
};

struct Metrics {
  uint64_t operators = 0, graphs = 0, hits = 0, host_calls = 0;
  uint64_t execute_ns = 0;
};

class Recorder {
 public:
  using Compile = std::function<Ref<Executable>(const Graph& graph, const std::vector<int>& outputs,
                                                const std::vector<Tensor>& inputs, const char* why)>;

  Recorder(DeviceType type, Device base) : type_(type), base_(base) {}
  static Recorder& make(DeviceType type, Device base);
  static Recorder* find(DeviceType type);

  // Runs what has been recorded.
  void flush(const char* why);
  // The tensor on the device below.
  Tensor on_base(const Tensor& t, const char* why);
  // A tensor of the device below as one of this device.
  Tensor wrapped(const Tensor& base) const;

  void call(const Operator& op, Value* args, Value* results);

  Compile compile;
  std::function<int()> line;  // the line of the program that runs
  // Raises an error of a run again, with the line that recorded the operator.
  std::function<void(const Graph&, const std::vector<Tensor>& inputs)> explain;
  size_t most_calls = 4096;
  Metrics metrics;
  Device base() const { return base_; }
  void set_base(Device base);
  void forget_programs() { programs_.clear(); }

 private:
  enum class Kind : uint8_t { Record, Host, Copy, ToCopy };
  struct Known {
    Kind kind = Kind::Record;
    uint32_t parametric = 0;  // bit i: argument i is a number that may change from run to run
    bool update = false;
  };
  struct PairHash {
    size_t operator()(const std::pair<uint64_t, uint64_t>& p) const { return p.first; }
  };

  const Known& known(const Operator& op);
  bool is_here(const Tensor& t) const { return t.device().type == type_; }
  Recorded& state(const Tensor& t);
  int slot_of(const Tensor& t);
  int host_slot(const Tensor& t);
  Window window_of(const Tensor& t);
  bool record(const Operator& op, const Known& known, Value* args, Value* results);
  void enter(const Operator& op, const Known& known, const Value* args, Call& call);
  void run_meta(const Operator& op, const Value* args, std::vector<Tensor>& twins, Value* results);
  void take_results(const Operator& op, const Value* args, const std::vector<Tensor>& twins, Value* results,
                    Call& call);
  void on_host(const Operator& op, Value* args, Value* results);
  void copy(const Operator& op, Value* args, Value* results);
  void to_copy(const Operator& op, Value* args, Value* results);
  void advance_states(const Operator& op, Value* args, std::vector<std::vector<Tensor>>& before);
  bool draw();
  std::vector<Tensor> inputs_of(const Graph& graph) const;
  void store(const Graph& graph, const std::vector<int>& outputs, std::vector<Tensor>& results);

  const DeviceType type_;
  Device base_;
  std::recursive_mutex mutex_;
  Graph graph_;
  std::unordered_map<const Operator*, Known> known_;
  std::unordered_map<std::pair<uint64_t, uint64_t>, Ref<Executable>, PairHash> programs_;
};

// The kernel of all operators on recording devices.
void recording_kernel(const Operator& op, void* context, KeySet keys, Value* args, Value* results);

}  // namespace fl::lazy

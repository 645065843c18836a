// What was recorded for a graph that ran before, call by call: arguments, results and slots. While a program
// repeats itself the recorder follows a trace: it checks that a call is the expected one and makes the
// results that are known, without shapes to find out and nodes to make.
#pragma once

#include <vector>

#include "lazy/graph.h"

namespace fl::lazy {

// A result of a call: an argument, a window on an argument's memory, or a tensor with memory of its own.
struct TracedResult {
  enum class Kind : uint8_t { Argument, View, New };
  Kind kind;
  int position = -1, element = -1;  // of the argument
  Window window;
  size_t bytes = 0;  // of new memory
};

struct TracedCall : Counted {
  Call call;                  // of a view: slots are -1, for it takes no part in the graph
  bool is_view = false;       // nothing runs
  std::vector<size_t> bytes;  // of the storages of call.tensors
  std::vector<TracedResult> results;
  std::vector<int> result_lengths;  // of each result of the operator: of a list, kOneTensor or kOtherValue
  std::vector<Value> other_values;  // of each result of the operator: one that is no tensor
  DType default_dtype;              // by which operators may choose what they make
  Hash after;                       // of the graph with this call

  static constexpr int kOneTensor = -1, kOtherValue = -2;
};

struct Trace : Counted {
  std::vector<Ref<TracedCall>> calls;
  std::vector<Slot::Kind> slot_kinds;
  std::vector<Window> slot_roots;
  std::vector<int> outputs;
  Ref<Executable> program;

  // The hash of the graph before the call at this place.
  std::pair<uint64_t, uint64_t> hash_before(size_t at) const {
    return (at ? calls[at - 1]->after : Hash()).value();
  }
  // Enters the first calls into a graph that has their slots and parameters already.
  void enter_calls(Graph& graph, size_t count, const std::vector<int>& lines) const;
};

// Whether values that are no tensors are the same, floating-point numbers bit by bit.
bool same_value(const Value& a, const Value& b);
// Whether a value is a Python number that stands where a tensor may.
inline bool is_wrapped(const Value& v) {
  return v.is_tensor() && v.tensor_impl()->wrapped_number;
}
inline Scalar number_of(const Value& v) {
  return v.is_tensor() ? item(v.tensor()) : v.to_scalar();
}
// Adds a value that is no tensor to a hash.
void add_value(Hash& hash, const Value& v);

}  // namespace fl::lazy

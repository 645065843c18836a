// A compiled graph as the machine runs it: memory, generated loops and operator calls in a fixed order.
//
// A program works on slots. The first ones hold its inputs; steps fill the others and let go of them after
// their last use. Everything about a program is settled when it is made, so that running it decides nothing:
// another set of sizes is another program, over the same generated loops.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "core/tensor.h"
#include "dispatch/operator.h"

namespace fl::compiled {

// A generated loop: pointers to the first elements it works on, then numbers (threads, sizes, strides).
using Entry = void (*)(void* const* pointers, const int64_t* numbers);

struct Allocate {
  int slot;
  Dims sizes, strides;
  DType dtype;
};

// Another window on the memory of a slot; the offset is counted from the slot's first element.
struct View {
  int slot, base;
  Dims sizes, strides;
  int64_t offset;
};

struct Launch {
  struct Pointer {
    int slot;
    int64_t bytes;  // from the slot's first element
  };
  Entry entry;
  std::vector<Pointer> pointers;
  std::vector<int64_t> numbers;  // the first is replaced by the number of threads
  int64_t work;                  // operations, to decide how many threads pay
};

struct Call {
  struct List {
    int argument;
    std::vector<int> slots;  // -1 for an absent element
  };
  const Operator* op;
  std::vector<Value> arguments;              // tensors are filled in at each run
  std::vector<std::pair<int, int>> tensors;  // argument and slot
  std::vector<List> lists;
  std::vector<std::pair<int, int>> numbers;  // arguments that are floats, and slots of tensors of one double
  std::vector<int> results;                  // slots; -1 for what nobody uses
};

struct Release {
  std::vector<int> slots;
};

using Step = std::variant<Allocate, View, Launch, Call, Release>;

struct Program {
  int inputs = 0, slots = 0;
  std::vector<Tensor> constants;  // in the slots after the inputs
  std::vector<Step> steps;
  std::vector<int> outputs;  // slots; -1 for None
  std::vector<int> written;  // inputs that the program writes to

  // Runs on the given inputs and returns the outputs, without history.
  std::vector<Tensor> run(const Tensor* given) const;
};

}  // namespace fl::compiled

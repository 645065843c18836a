// A compiled graph as the machine runs it: memory, generated loops and operator calls in a fixed order.
//
// A program works on slots. The first ones hold its inputs; steps fill the others and let go of them after
// their last use. What neither leaves a program nor is given to operators lies in the arena of a run and has
// no slot. Everything about a program is settled when it is made, so that running it decides nothing: another
// set of sizes is another program, over the same generated loops.
#pragma once

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "compiled/replay.h"
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

// Another window on the memory of a slot, maybe of another dtype, in elements of which the offset from the
// slot's first element is counted.
struct View {
  int slot, base;
  Dims sizes, strides;
  int64_t offset;
  DType dtype;
};

// A tensor at a place in the arena, for operators.
struct Place {
  int slot;
  int64_t bytes;  // from the beginning of the arena
  Dims sizes, strides;
  DType dtype;
};

// What an operator made is written over from here on: if somebody else has hold of it, it is copied first.
struct Own {
  int slot;
};

struct Launch {
  struct Pointer {
    int slot;       // -1: the arena
    int64_t bytes;  // from the slot's first element
  };
  Entry entry;
  std::vector<Pointer> pointers;
  std::vector<int64_t> numbers;  // the first is replaced by the number of threads
  int64_t work;                  // operations, to decide how many threads pay
};

// Loops that know nothing of each other and are too small for several threads: each thread runs some of them.
struct Together {
  std::vector<Launch> launches;
  std::vector<int64_t> done;  // work of all before each, and of all
};

// A generated kernel of an accelerator. It takes pointers, then numbers of 32 or 64 bits, then two pointers
// to scratch memory that the generated ones never use.
struct Kernel {
  void* function;
  unsigned grid[3];
  unsigned threads, shared;
  std::vector<Launch::Pointer> pointers;
  std::vector<int64_t> numbers;
  bool wide;
};

// The seed and offset of a stream of random numbers, taken from the device's generator, as a tensor of two
// integers.
struct Random {
  int slot;
};

constexpr size_t kMostOffers = 8;  // of one call

struct Call {
  // A place in the arena for the result of a slot.
  struct Offered {
    int64_t offset, bytes;
    int slot;
  };
  struct List {
    int argument;
    std::vector<int> slots;  // -1 for an absent element
  };
  const Operator* op;
  std::vector<Value> arguments;              // tensors are filled in at each run
  std::vector<std::pair<int, int>> tensors;  // argument and slot
  std::vector<List> lists;
  std::vector<std::pair<int, int>> numbers;  // arguments that are scalars, and slots of tensors that hold them
  std::vector<int> results;                  // slots; -1 for what nobody uses
  std::vector<Offered> offers;
  std::vector<Dims> strides;  // of the results, where an operator may choose others; or none
};

struct Release {
  std::vector<int> slots;
};

using Step = std::variant<Allocate, View, Place, Own, Launch, Together, Kernel, Random, Call, Release>;

struct Kept;

struct Program {
  int inputs = 0, slots = 0;
  size_t arena = 0;                         // bytes that a run works in
  Device device;                            // of the memory that it allocates, and of its kernels
  std::vector<Tensor> constants;            // in the slots after the inputs
  std::vector<std::shared_ptr<Kept>> kept;  // in the slots after those
  std::vector<Step> steps;
  std::vector<int> outputs;  // slots; -1 for None
  std::vector<int> written;  // inputs that the program writes to

  std::shared_ptr<Replay> replay;  // of a program that is to be recorded

  // Runs on the given inputs and returns the outputs, without history.
  std::vector<Tensor> run(const Tensor* given) const {
    return replay ? replay->run(*this, given) : execute(given);
  }
  // Runs step by step. States of random streams are rows of `states`, if that is given, and else fresh.
  std::vector<Tensor> execute(const Tensor* given, const Tensor* states = nullptr) const;
};

}  // namespace fl::compiled

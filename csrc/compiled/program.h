// A compiled graph as the machine runs it: memory, generated loops and operator calls in a fixed order.
//
// A program works on slots. The first ones hold its inputs; steps fill the others and let go of them after
// their last use. What neither leaves a program nor is given to operators lies in the arena of a run and has
// no slot. Everything about a program is settled when it is made, so that running it decides nothing: another
// set of sizes is another program, over the same generated loops.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "compiled/arena_layout.h"
#include "compiled/replay.h"
#include "core/tensor.h"
#include "core/thread_pool.h"
#include "dispatch/operator.h"

namespace fl::compiled {

// A generated loop: pointers to the first elements it works on, then numbers (the address of its LoopThreads,
// sizes, strides).
using Entry = void (*)(void* const* pointers, const int64_t* numbers);

// The threads of a generated loop. The prelude of generated sources declares the same structure.
struct LoopThreads {
  int64_t count;
  void (*divide)(const LoopThreads*, PieceFunction, const void* context);
  double time;  // of the whole loop on one thread, in nanoseconds
};
// Runs a generated loop on so many threads; replaces the first number.
void run_loop(Entry entry, void* const* pointers, int64_t* numbers, int threads, double time);

struct AllocateStep {
  int slot;
  Dims sizes, strides;
  DType dtype;
};

// Another window on the memory of a slot, maybe of another dtype, in elements of which the offset from the
// slot's first element is counted.
struct ViewStep {
  int slot, base;
  Dims sizes, strides;
  int64_t offset;
  DType dtype;
};

// Where something lies: bytes from the first element of a slot, or of block ~slot of the arena.
struct Location {
  int slot;
  int64_t bytes;
};

// A tensor in the arena, for operators.
struct ArenaTensorStep {
  int slot;
  Location location;
  Dims sizes, strides;
  DType dtype;
};

// What an operator returned is written over from here on: if somebody else holds it, it is copied first.
struct UnshareStep {
  int slot;
};

// A call of a generated loop of the host.
struct LoopStep {
  Entry entry;
  std::vector<Location> pointers;
  std::vector<int64_t> numbers;  // the first is replaced by the address of the threads
  int64_t work;                  // operations, to decide how many threads pay
};

// Independent loops that are too small for several threads: each thread runs some of them.
struct ConcurrentLoopsStep {
  std::vector<LoopStep> loops;
};

// A generated kernel of an accelerator. It takes pointers, then numbers of 32 or 64 bits, then two pointers
// to scratch memory that the generated ones never use. A device from outside launches its kernels itself.
struct KernelStep {
  void* function;
  unsigned grid[3];
  unsigned threads, shared;
  std::vector<Location> pointers;
  std::vector<int64_t> numbers;
  bool wide;
  bool waits;  // itself for the kernel before it
  std::function<void(void* const* pointers, size_t count)> outside;
};

// The seed and offset of a stream of random numbers, taken from the device's generator, as a tensor of two
// integers.
struct RandomStateStep {
  int slot;
};

constexpr size_t kMostOffers = 8;  // of one call

struct CallStep {
  // Memory of the arena for the result of a slot.
  struct Offered {
    Location location;
    int64_t bytes;
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
  std::vector<std::pair<int, int>>
      scalars;               // arguments that are scalars, and slots of tensors that hold them
  std::vector<int> results;  // slots; -1 for what nobody uses
  std::vector<Offered> offers;
  std::vector<Dims> strides;  // of the results, where an operator may choose others; or none
};

struct ReleaseStep {
  std::vector<int> slots;
};

using Step = std::variant<AllocateStep, ViewStep, ArenaTensorStep, UnshareStep, LoopStep, ConcurrentLoopsStep,
                          KernelStep, RandomStateStep, CallStep, ReleaseStep>;

struct KeptValue;

// Bytes that are written over an operator's result, and bytes of that result, which must not be fewer.
struct Room {
  int64_t wanted, available;
};

struct Program {
  int inputs = 0, slots = 0;
  std::vector<BlockSpan> blocks;       // of the arena that a run works in
  std::vector<int64_t> block_offsets;  // where they lie there
  size_t arena = 0;                    // bytes of it
  std::vector<Room> room;
  Device device;                                 // of the memory that it allocates, and of its kernels
  std::vector<Tensor> constants;                 // in the slots after the inputs
  std::vector<std::shared_ptr<KeptValue>> kept;  // in the slots after those
  std::vector<Step> steps;
  std::vector<int> outputs;  // slots; -1 for None
  std::vector<int> written;  // inputs that the program writes to

  std::shared_ptr<Replay> replay;  // of a program that is to be recorded

  // Decides where the blocks of the arena lie.
  void lay_out();

  // Runs on the given inputs and returns the outputs, without history.
  std::vector<Tensor> run(const Tensor* tensors) const {
    return replay ? replay->run(*this, tensors) : execute(tensors);
  }
  // The same, and lets go of each input after its last use.
  std::vector<Tensor> run_once(std::vector<Tensor>& tensors) const {
    return replay ? replay->run(*this, tensors.data()) : execute(tensors.data(), nullptr, tensors.data());
  }
  // Runs step by step. States of random streams are rows of `states`, if that is given, and else fresh.
  // `owned` are the inputs, if those may be let go of; `kept_values` what `kept` is for them, if that is
  // known.
  std::vector<Tensor> execute(const Tensor* tensors, const Tensor* states = nullptr, Tensor* owned = nullptr,
                              const Tensor* kept_values = nullptr) const;
};

}  // namespace fl::compiled

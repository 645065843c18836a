// A recorded graph: operator calls on windows of numbered storages, and the hash by which a program is found.
#pragma once

#include <vector>

#include "core/random.h"
#include "core/tensor.h"
#include "dispatch/operator.h"

namespace fl::lazy {

// 128 bits over everything that decides which program a graph is; parameters and data are no part of it.
class Hash {
 public:
  void add(uint64_t x) {
    low_ = (low_ ^ x) * 0x9E3779B97F4A7C15ull;
    low_ ^= low_ >> 29;
    high_ = (high_ + x) * 0xD6E8FEB86659FD93ull;
    high_ ^= high_ >> 32;
  }
  void add(IntSpan values) {
    add(values.size());
    for (int64_t v : values) add(static_cast<uint64_t>(v));
  }
  void add(std::string_view text) {
    for (char c : text) add(static_cast<uint64_t>(c));
  }
  std::pair<uint64_t, uint64_t> value() const { return {low_, high_}; }

 private:
  uint64_t low_ = 1, high_ = 2;
};

// A tensor of a call: a window on a storage of the graph.
struct Window {
  int storage;
  DType dtype;
  Dims sizes, strides;
  int64_t offset;
};

// Where a tensor stands among the arguments; `element` is -1 but in lists.
struct TensorArgument {
  int position, element;
  Window window;
};

// A tensor that a call makes, and which one it is among all the tensors that the call returns.
struct NewResult {
  Window window;
  int place;
};

struct Call {
  const Operator* op;
  std::vector<Value> values;      // without the tensors
  std::vector<int> list_lengths;  // by argument: of lists of tensors, else -1
  std::vector<TensorArgument> tensors;
  std::vector<std::pair<int, int>> parameters;  // arguments that are numbers, and their places among those
  std::vector<NewResult> results;
  int line;  // of the program
};

// Memory that the graph works on.
struct Slot {
  enum class Kind { Input, Host, Empty, Result };
  Kind kind;
  Ref<Storage> storage;  // of the recording device; null for Host
  Tensor host;           // a number in a tensor of the host
  Window root;           // as what it enters the graph, or is made
};

struct Graph {
  std::vector<Slot> slots;
  std::vector<Call> calls;
  std::vector<Scalar> parameters;
  Hash hash;
  int draws = 0;  // of random streams
  Generator::State first_draw{0, 0};

  // Slots whose values are wanted when the graph has run.
  std::vector<int> outputs() const;
};

// Whether the record of an operator has a tag, or is of that kind.
bool has_tag(const Operator& op, const char* tag);

// The window on memory of a device.
Tensor window_on(const Ref<Storage>& storage, Device device, DType dtype, IntSpan sizes, IntSpan strides,
                 int64_t offset);
inline Tensor window_on(const Ref<Storage>& storage, Device device, const Window& w) {
  return window_on(storage, device, w.dtype, w.sizes, w.strides, w.offset);
}
// A value as the slot with this root has to lie in memory: copied where it lies otherwise.
Tensor laid_out(const Tensor& t, const Window& root, size_t bytes, Device device);

// A graph as a program. Inputs are the slots that are given, in order, then the parameters.
class Executable : public Counted {
 public:
  virtual std::vector<Tensor> run(const std::vector<Tensor>& inputs) = 0;

  // Inputs that are not written where they lie: their new values follow the results.
  std::vector<int> replaced;
};

}  // namespace fl::lazy

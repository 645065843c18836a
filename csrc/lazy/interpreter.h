// Runs a recorded graph call by call on the device below: graphs of one call, graphs that no compiler takes,
// and the search for the call that made a program fail.
#pragma once

#include "lazy/graph.h"

namespace fl::lazy {

class Interpreter final : public Executable {
 public:
  Interpreter(const Graph& graph, std::vector<int> outputs, Device base);

  std::vector<Tensor> run(const std::vector<Tensor>& inputs) override;
  // The call that runs, or ran last.
  size_t position() const { return position_; }

 private:
  // A slot without its storage, so that a program keeps no memory of the graph that it was made for.
  struct Root {
    Slot::Kind kind;
    Window window;
    size_t bytes;
  };

  void run_call(const Call& call, const std::vector<Tensor>& inputs, std::vector<Tensor>& roots) const;

  std::vector<Root> roots_;
  std::vector<Call> calls_;
  std::vector<int> outputs_;
  size_t given_ = 0;  // slots that are inputs; the parameters follow them
  Device base_;
  size_t position_ = 0;
};

}  // namespace fl::lazy

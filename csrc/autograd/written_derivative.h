// Derivatives that are written as functions over operators: what each of their parameters stands for.
#pragma once

#include <vector>

#include "autograd/node.h"

namespace fl {
struct BuiltinOperator;
}

namespace fl::autograd {

struct WrittenDerivative {
  const BuiltinOperator* row = nullptr;
  struct Source {
    enum Kind { Grad, Arg, Sizes, DTypeOf, DeviceOf, Window, Result, Needs } kind;
    int index;
  };
  std::vector<Source> sources;

  // Whether a gradient arrived that the function mentions.
  bool concerned(const OperatorNode& node, const std::vector<Tensor>& grads) const;
};

// Reads the names of the parameters; marks in the derivative what a node has to save for them.
void read_sources(const Operator& op, const BuiltinOperator& row, WrittenDerivative& written,
                  Derivative& derivative);

}  // namespace fl::autograd

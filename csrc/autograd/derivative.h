// Derivatives of pointwise operators as the generator writes them.
#pragma once

#include <cstdint>

namespace fl {

struct PointwiseGradient {
  const char* op;     // operator that computes it; null: zero, unless one of the next two says otherwise
  bool identity;      // the gradient is the incoming one
  int n_sources;      // -1: the derivative is not known
  int8_t source[10];  // the operator's inputs: -1 the incoming gradient, -2 the result, else the position of
                      // an argument
};

struct PointwiseDerivative {
  int operands;
  PointwiseGradient gradient[4];
};

}  // namespace fl

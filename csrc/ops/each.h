// Operators over lists of tensors that call another operator for each position (`_foreach_add` and the like).
#pragma once

#include "dispatch/operator.h"

namespace fl {

struct EachDef {
  const char* target;  // full name of the operator for one tensor
  // Found at the first call.
  const Operator* op = nullptr;
  std::vector<int> position;  // of each argument among the target's
};

void each_kernel(const Operator& op, void* definition, KeySet keys, Value* args, Value* results);

}  // namespace fl

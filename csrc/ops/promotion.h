// Type promotion.
#pragma once

#include "dispatch/value.h"

namespace fl {

// The dtype that PyTorch's promotion gives to these operands (tensors or numbers).
DType result_type(const Value* const* operands, int count);

}  // namespace fl

// What out= and in-place forms ask of the tensor they write to, where they do not convert to it.
#pragma once

#include "core/tensor.h"

namespace fl {

// No two of its elements lie in one place.
void check_distinct(const char* op, const Tensor& out);
// It shares no memory with an argument.
void check_apart(const char* op, const Tensor& out, const Tensor& argument);
// Resizes it if need be, and copies a value of its dtype and device.
Tensor write_out(const char* op, const Tensor& out, const Tensor& value);

}  // namespace fl

// What out= and in-place forms ask of the tensor they write to.
#pragma once

#include "core/tensor.h"

namespace fl {

// Makes `out` fit the result of an op: checks that the dtype can hold it and resizes with a warning if need
// be.
void prepare_out(const char* op, const Tensor& out, IntSpan sizes, DType result, bool may_resize);
void resize_output(const Tensor& out, IntSpan sizes);

// Where a form does not convert to the dtype of the tensor:

// No two of its elements lie in one place.
void check_distinct(const char* op, const Tensor& out);
// The same for operators that write one value to all places: an expanded tensor is warned about.
void advise_distinct(const char* op, const Tensor& out);
// It shares no memory with an argument.
void check_apart(const char* op, const Tensor& out, const Tensor& argument);
// Resizes it if need be, and copies a value of its dtype and device.
Tensor write_out(const char* op, const Tensor& out, const Tensor& value);

}  // namespace fl

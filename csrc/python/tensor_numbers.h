// What the Tensor type takes from tensor_numbers.cpp.
#pragma once

#include <vector>

#include "python/common.h"

namespace fl::py {

// Adds arithmetic, comparison, conversion to Python's numbers, length, membership and indexing.
void add_number_slots(std::vector<PyType_Slot>& slots);

}  // namespace fl::py

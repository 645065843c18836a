// Tensors that are conjugated or negated when they are read.
#pragma once

#include "core/tensor.h"

namespace fl {

// A tensor with the same elements whose memory holds them: itself, nearly always.
Tensor elements_of(const Tensor& t);

// Whether this thread makes such views where its calls are recorded, too: the recorder knows them.
bool& defers_in_records();

}  // namespace fl

// Elementwise reductions of several buffers into one.
#pragma once

#include "distributed/segment.h"

namespace fl::dist {

// Raises for pairs of dtype and reduction that have no meaning (bitwise on floats, order on complex numbers).
void check_reduction(const char* op, DType dtype, Reduction reduction);
// to[i] = sources[0][i] op sources[1][i] …, in that order, so that every rank computes the same bits. `to`
// may be one of the sources. Averages divide by the number of sources.
// `also`: where the result is written a second time, if anywhere.
void reduce(void* to, const void* const* sources, int count, int64_t elements, DType dtype,
            Reduction reduction, void* also = nullptr);

}  // namespace fl::dist

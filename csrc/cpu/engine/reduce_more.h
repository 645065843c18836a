// Reductions whose accumulators are more than one number: extremes with their index, moments, log-sum-exp.
#pragma once

#include "ops/reduce_loops.h"

namespace fl {

// Tables over the slots Float, Double, Int and BFloat16 (the rest are empty). Other dtypes are converted.
struct ReduceMore {
  ReduceLoops max_with_index[kReduceSlots], min_with_index[kReduceSlots];  // results: value, index
  ReduceLoops argmax[kReduceSlots], argmin[kReduceSlots];                  // result: index
  ReduceLoops moments[kReduceSlots];    // results: variance (its root when params[1] is set), mean; params[0]
                                        // corrects the count
  ReduceLoops logsumexp[kReduceSlots];  // result: the logarithm of the sum of exponentials
};

}  // namespace fl

// The seam to an accelerator's factorisations.
#include "ops/solver.h"

namespace fl {

DeviceFunction<linalg::Solver&()> device::solver{"linalg"};

}  // namespace fl

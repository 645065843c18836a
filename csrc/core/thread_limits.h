// How many threads the environment lets this process run at a time.
#pragma once

namespace fl {

// Processors that this process may use: its affinity mask, and what its control groups grant of their time.
int usable_processors();

// Threads that kernels use unless told otherwise: OMP_NUM_THREADS, or else the usable processors.
int usable_threads();

}  // namespace fl

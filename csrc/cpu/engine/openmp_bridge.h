// Lets a library that was built with GNU OpenMP run its parallel regions on our pool.
//
// Two pools of threads in one process take the cores from each other: each one's threads spin or must be
// woken whenever kernels of both follow each other, as convolutions of oneDNN and our normalisation do. A
// library opened by us calls the few functions of OpenMP through its table of imported functions; here those
// entries are pointed at functions that do the same on the pool.
#pragma once

namespace fl::cpu {

// Redirects the OpenMP functions that the library behind a handle of dlopen imports. False, and nothing has
// changed, if the library imports one that has no counterpart here (another OpenMP runtime, say).
bool use_pool_for_openmp(void* handle);

}  // namespace fl::cpu

// The few functions of the CUDA driver that the runtime has no equal for, found in the library it has opened.
#pragma once

#include <cuda.h>

#include "cuda/runtime/runtime.h"

namespace fl::cuda {

struct Driver {
  CUresult (*module_load)(CUmodule*, const void*);
  CUresult (*module_function)(CUfunction*, CUmodule, const char*);
  CUresult (*function_set)(CUfunction, CUfunction_attribute, int);
  CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                     CUstream, void**, void**);
  CUresult (*error_string)(CUresult, const char**);

  bool graphs;  // whether the driver has all of these
  CUresult (*graph_create)(CUgraph*, unsigned);
  CUresult (*graph_add_kernel)(CUgraphNode*, CUgraph, const CUgraphNode*, size_t,
                               const CUDA_KERNEL_NODE_PARAMS*);
  CUresult (*graph_instantiate)(CUgraphExec*, CUgraph, unsigned long long);
  CUresult (*graph_set_kernel)(CUgraphExec, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS*);
  CUresult (*graph_launch)(CUgraphExec, CUstream);
  CUresult (*graph_destroy)(CUgraph);
  CUresult (*executable_destroy)(CUgraphExec);

  bool early;  // whether the driver has these, of CUDA 12.3
  CUresult (*launch_with)(const CUlaunchConfig*, CUfunction, void**, void**);
  CUresult (*capture_info)(CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*, const CUgraphNode**,
                           const void**, size_t*);
  CUresult (*node_type)(CUgraphNode, CUgraphNodeType*);

  decltype(&cuTensorMapEncodeTiled) tensor_map;  // null in drivers before CUDA 12

  void check(CUresult status, const char* what) const {
    if (__builtin_expect(status != CUDA_SUCCESS, 0)) raise(status, what);
  }
  [[noreturn]] void raise(CUresult status, const char* what) const;
};

const Driver& driver();

}  // namespace fl::cuda

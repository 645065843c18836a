// Convolutions as execution plans of cuDNN's graphs. A plan is made once for a geometry; running it takes the
// host a few microseconds, where the library's functions find their way anew in every call.
#pragma once

#include <memory>

#include "cuda/runtime/runtime.h"

namespace fl::cuda {

struct ConvolutionShape {
  int way;             // 0: forward, 1: the gradient of x, 2: that of w
  int type;            // cuDNN's number of the dtype
  bool deterministic;  // the same bits in every run
  struct Operand {
    Dims sizes, strides;
  } x, w, y;
  Dims stride, padding, dilation;
};

class ConvolutionPlan {
 public:
  // Null where the library has no plan that can be had at once, or no graphs.
  static std::unique_ptr<ConvolutionPlan> make(void* handle, const ConvolutionShape& shape,
                                               size_t most_workspace);
  ~ConvolutionPlan();
  ConvolutionPlan(const ConvolutionPlan&) = delete;

  size_t workspace() const { return workspace_; }
  // Pointers are multiples of 16; the library's status.
  int run(void* handle, const void* x, const void* w, const void* y, void* workspace) const;

 private:
  struct Parts;
  ConvolutionPlan(std::unique_ptr<Parts> parts, size_t workspace);
  std::unique_ptr<Parts> parts_;
  size_t workspace_;
};

}  // namespace fl::cuda

// Convolutions as execution plans of cuDNN's graphs. A plan is made once for a geometry; running it takes the
// host a few microseconds, where the library's older functions take it some two hundred for every call.
#pragma once

#include <memory>
#include <vector>

#include "cuda/runtime.h"

namespace fl::cuda {

struct ConvolutionShape {
  int way;        // 0: forward, 1: the gradient of x, 2: that of w
  int type;       // cuDNN's number of the dtype
  bool rounding;  // whether float may be rounded to fewer bits for the tensor cores
  Dims x, w, y, stride, padding, dilation;
  bool last;  // channels innermost
};

class ConvolutionPlan {
 public:
  // Null where the library has none for the shape, or no graphs.
  static std::unique_ptr<ConvolutionPlan> make(void* handle, const ConvolutionShape& shape,
                                               size_t most_workspace);
  ~ConvolutionPlan();
  ConvolutionPlan(const ConvolutionPlan&) = delete;

  size_t workspace() const { return workspace_; }
  // Pointers are multiples of 16; false if the library refused.
  bool run(void* handle, const void* x, const void* w, const void* y, void* workspace) const;

 private:
  ConvolutionPlan() = default;
  std::vector<void*> parts_;  // descriptors that the plan refers to
  void* plan_ = nullptr;
  size_t workspace_ = 0;
};

}  // namespace fl::cuda

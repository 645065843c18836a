// Gradients of attention over blocks by products of four warps together.
#include "cuda/flash_backward.cuh"

namespace fl::cuda::flash {

void backward_by_groups(const Args& args, bool brain, cudaStream_t stream) {
  dispatch<true, Backward>(args, brain, stream);
}

}  // namespace fl::cuda::flash

// Gradients of attention over blocks by the products of warps, or on Hopper of groups of them.
#include "cuda/attention/flash_backward.cuh"

namespace fl::cuda::flash {

void backward(const Args& args, bool brain, cudaStream_t stream) {
  if (!args.keep && !args.grad_scores && has_groups(args)) return backward_by_groups(args, brain, stream);
  dispatch<false, Backward>(args, brain, stream);
}

}  // namespace fl::cuda::flash

// Attention over blocks by the products of warps, or on Hopper of groups of them.
#include "cuda/attention/flash_forward.cuh"

namespace fl::cuda::flash {

void forward(const Args& args, bool brain, cudaStream_t stream) {
  if (!args.keep && has_groups(args)) return forward_by_groups(args, brain, stream);
  dispatch<false, Forward>(args, brain, stream);
}

}  // namespace fl::cuda::flash

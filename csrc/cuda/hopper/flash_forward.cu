// Attention over blocks of keys by groups of warps. While a group makes weights of the scores of one block,
// the tensor cores sum the values of the block before.
#include "cuda/hopper/flash_forward.cuh"

namespace fl::cuda::flash {

void forward_by_groups(const Args& args, bool brain, cudaStream_t stream) {
  dispatch<true, ForwardByGroups>(args, brain, stream);
}

}  // namespace fl::cuda::flash

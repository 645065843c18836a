// Attention over blocks by products of four warps together.
#include "cuda/flash_forward.cuh"

namespace fl::cuda::flash {

void forward_by_groups(const Args& args, bool brain, cudaStream_t stream) {
  dispatch<true, Forward>(args, brain, stream);
}

}  // namespace fl::cuda::flash

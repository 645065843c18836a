// Gradients of attention over blocks by products of four warps together.
#include "cuda/hopper/flash_backward.cuh"

namespace fl::cuda::flash {

namespace {
// For narrow heads three blocks of one group are on a multiprocessor at once, which hides their waits, too.
template <class K>
struct BackwardOfWidth {
  static void run(const Args& a, cudaStream_t stream) {
    if constexpr (K::D > 64)
      BackwardByGroups<K>::run(a, stream);
    else
      Backward<K>::run(a, stream);
  }
};
}  // namespace

void backward_by_groups(const Args& args, bool brain, cudaStream_t stream) {
  dispatch<true, BackwardOfWidth>(args, brain, stream);
}

}  // namespace fl::cuda::flash

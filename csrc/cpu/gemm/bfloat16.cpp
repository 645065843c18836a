// Dense products of bfloat16.
#include "cpu/gemm/floating.h"

namespace fl::cpu::products {

void gemm_bfloat16(const GemmArgs& g) {
  gemm_floating<BFloat16, float>(g);
}

}  // namespace fl::cpu::products

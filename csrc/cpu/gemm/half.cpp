// Dense products of half.
#include "cpu/gemm/floating.h"

namespace fl::cpu::products {

void gemm_half(const GemmArgs& g) {
  gemm_floating<Half, float>(g);
}

}  // namespace fl::cpu::products

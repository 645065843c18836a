// Dense products of float.
#include "cpu/gemm/floating.h"

namespace fl::cpu::products {

void gemm_float(const GemmArgs& g) {
  gemm_floating<float, float>(g);
}

}  // namespace fl::cpu::products

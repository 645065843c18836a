// Dense products of double.
#include "cpu/gemm/floating.h"

namespace fl::cpu::products {

void gemm_double(const GemmArgs& g) {
  gemm_floating<double, double>(g);
}

}  // namespace fl::cpu::products

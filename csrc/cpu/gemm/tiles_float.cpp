// Tile kernels of dense products in float.
#include "cpu/gemm/tile_kernels.h"

namespace fl::cpu::products {

template <>
const TileSet<float>& TileSet<float>::get() {
  static const TileSet set = best_tiles<float>();
  return set;
}

}  // namespace fl::cpu::products

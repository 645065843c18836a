// Tile kernels of dense products in double.
#include "cpu/gemm/tile_kernels.h"

namespace fl::cpu::products {

template <>
const TileSet<double>& TileSet<double>::get() {
  static const TileSet set = best_tiles<double>();
  return set;
}

}  // namespace fl::cpu::products

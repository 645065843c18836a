// Describing operands of attention to the copy engine of Hopper.
#include "cuda/hopper/boxes.h"

#include "cuda/runtime/driver.h"

namespace fl::cuda::flash {

Rows rows_of(const Operand& t, bool brain, int depth, int rows, int heads, int batches, int box_rows) {
  Rows described{};
  described.heads = heads > 1 && t.head != 0;
  described.batches = batches > 1 && t.batch != 0;
  const cuuint64_t sizes[] = {cuuint64_t(depth), cuuint64_t(rows), cuuint64_t(described.heads ? heads : 1),
                              cuuint64_t(described.batches ? batches : 1)};
  // Where there is only one of something, its stride may be anything but must look right.
  const cuuint64_t strides[] = {cuuint64_t(rows > 1 ? t.row : 256),
                                cuuint64_t(described.heads ? t.head : 256),
                                cuuint64_t(described.batches ? t.batch : 256)};
  const cuuint32_t box[] = {64, cuuint32_t(box_rows), 1, 1}, steps[] = {1, 1, 1, 1};
  driver().check(
      driver().tensor_map(
          &described.box, brain ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4,
          t.data, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
          CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
      "scaled_dot_product_attention");
  return described;
}

int processors() {
  return properties(current_device()).multiProcessorCount;
}

}  // namespace fl::cuda::flash

// Weights of eight bits as an opaque tensor: a header, panels, and the sums of columns, for each group of a
// convolution.
#pragma once

#include <optional>
#include <string_view>

#include "core/tensor.h"
#include "cpu/gemm/bytes.h"

namespace fl::cpu::quantized {

// What is packed: rows of k bytes each, those of a group after the other.
struct PackedShape {
  int64_t rows = 0, k = 0, groups = 1;
  int64_t more = 0;  // 32-bit units behind them, for another form of the same weights
};

// Rows that lie one after the other as a new tensor; without data (on meta) of the same size.
Tensor packed_rows(const int8_t* rows, PackedShape shape, Device device);

// Checks that a tensor is what packed_rows returned for such a shape in a process like this.
void check_packed(const char* name, const Tensor& packed, PackedShape shape);

// Where the units of another form begin.
uint32_t* other_form(const Tensor& packed, PackedShape shape);

// The weights of one group.
products::PackedBytes group_of(const Tensor& packed, PackedShape shape, int64_t group);

// What follows the product, from the arguments that the operators share. Keeps tensors that had to be made.
class Finishing {
 public:
  struct Arguments {
    const Tensor &weight_scales, &weight_zero_points, &bias;
    double output_scale;
    int64_t output_zero_point;
    // none, add or an activation (relu, gelu, gelu_tanh, silu, sigmoid, tanh), or both, as add_relu
    std::string_view post_op;
    const Tensor& other;  // with `add`
    double other_scale;
    int64_t other_zero_point;
  };
  // `other` has the sizes of `out` and is brought into its layout.
  Finishing(const char* name, const Tensor& out, int64_t n, const Arguments& arguments);

  // Columns from `first` on, for results and `other` with rows that far apart.
  products::ByteFinish columns_from(int64_t first, int64_t row) const;

 private:
  products::ByteFinish finish_;
  Tensor scale_, zero_, bias_, other_;
};

// The dtype of a result: float32, bfloat16, uint8 or int8.
DType result_dtype(const char* name, std::optional<DType> dtype);

// uint8 or int8, with a zero point that its range holds.
void check_bytes(const char* name, const Tensor& x, int64_t zero_point);

}  // namespace fl::cpu::quantized

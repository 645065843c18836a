// What the generated CUDA sources hand to the host: tables of kernels by record name, and their parameters.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "cuda/engine/geometry.h"

namespace fl {
class Tensor;
}

namespace fl::cuda {

// ---------------------------------------------------------------- pointwise

enum PointwiseSlot { kFloat, kDouble, kInt, kBool, kPointwiseSlots };

// Operands that lie contiguously need no more than this.
struct FlatArgs {
  char* out;
  const char* in[4];
  uint64_t constant[4], param[6];  // doubles or int64s, by the type of computation
  uint32_t n;
  DType out_dtype, in_dtype[4];
  int8_t out_size, in_size[4];
  uint8_t constants = 0;  // bit k: operand k is the same number everywhere
  uint8_t repeated = 0;   // bit k: along a row it is
};
struct PointwiseArgs : FlatArgs {
  Geometry<5> geometry;
};

struct PointwiseKernels {
  void (*strided)(const PointwiseArgs) = nullptr;
  void (*vector)(const FlatArgs) = nullptr;  // for float only, as the next
  void (*rows)(const PointwiseArgs) = nullptr;
};

// Complex numbers have parameters of two parts.
struct ComplexArgs : PointwiseArgs {
  double imaginary_constant[4], imaginary_param[6];
};
using ComplexKernel = void (*)(const ComplexArgs);

struct ComplexTable {
  const char* name;
  const ComplexKernel* kernels;  // by variant
};

struct PointwiseTable {
  const char* name;
  PointwiseKernels (*kernels)[kPointwiseSlots];  // by variant
  const char* cases[5];
  const PointwiseTable* case_tables[5];
  const ComplexTable* complex = nullptr;
};

// ---------------------------------------------------------------- reductions

struct ReduceArgs {
  const char* in;
  char* out;      // null where only the second result is wanted
  char* second;   // of reductions that have two, or null
  void* partial;  // accumulators of the parts, when the reduced elements are divided among blocks
  double param[2];
  int64_t count;          // elements reduced to one result
  uint32_t outputs;       // results
  uint32_t length, part;  // reduced elements, and how many of them one block takes
  uint32_t parts;
  DType in_dtype, out_dtype, second_dtype;
  int8_t in_item, out_item, second_item;  // bytes
  int8_t unit;                            // bytes: where vectors begin
  int8_t group_bits;                      // of the threads of one result, where a block has several
  bool contiguous;                        // the reduced elements lie in one dimension
  bool wide;                              // they lie side by side, in vectors
  Geometry<2> kept;                       // input in bytes, results in elements
  Geometry<1> reduced;
};

// From so many results on, a block reduces the parts of 32 of them, else of one.
constexpr uint32_t kFinishByColumns = 1024;

struct ReduceKernels {
  void (*rows)(const ReduceArgs) = nullptr;          // a block for each result
  void (*groups)(const ReduceArgs) = nullptr;        // some threads of a warp for each result
  void (*columns)(const ReduceArgs) = nullptr;       // neighbouring threads for neighbouring results
  void (*finish)(const ReduceArgs) = nullptr;        // reduces the parts
  void (*wide_columns)(const ReduceArgs) = nullptr;  // columns by eight
  bool (*by_eight)(DType) = nullptr;                 // whether elements of a dtype are taken by eight
  int accumulator = 0;                               // bytes
};

// Reduces the dimensions in `mask`. Reductions of pairs write two results of one shape, each if it is
// defined.
void reduce_by(const ReduceKernels& kernels, const char* op, const Tensor& self, uint64_t mask,
               const Tensor& out, const Tensor& second, const double (&params)[2]);

struct ReduceTable {
  const char* name;
  ReduceKernels kernels[kPointwiseSlots];
  const ReduceKernels* complex = nullptr;
};

struct ComplexReduceTable {
  const char* name;
  ReduceKernels kernels;
};

// ---------------------------------------------------------------- updates

constexpr int kUpdateChunk = 2048;  // elements of one block
constexpr int kUpdateThreads = 256;
constexpr int kUpdateTensors = 32;  // tensors of one launch; a power of two

struct UpdateArgs {
  char* data[8][kUpdateTensors];
  DType dtype[8][kUpdateTensors];
  int64_t numel[kUpdateTensors];
  double value[16];    // what the loop uses, the same for all
  const double* rows;  // or, if not null, rows of it on the device
  uint32_t row[kUpdateTensors];
  uint32_t first[kUpdateTensors];  // block of each tensor; beyond the last tensor, more than there are
};
// What is computed once for each tensor, where its scalar states are on the device.
struct UpdateOnceArgs {
  char* scalar[4][kUpdateTensors];
  DType dtype[4][kUpdateTensors];
  double number[16];
  double* rows;
  int count;
};
struct UpdateTable {
  const char* name;
  void (*single)(const UpdateArgs);
  void (*twice)(const UpdateArgs);
  void (*once)(const UpdateOnceArgs);
};

struct Generated {
  PointwiseTable* const* pointwise;
  int n_pointwise;
  ReduceTable* const* reductions;
  int n_reductions;
  const UpdateTable* const* updates;
  int n_updates;
  const ComplexTable* const* complex;
  int n_complex;
  const ComplexReduceTable* const* complex_reductions;
  int n_complex_reductions;
};
const Generated& generated();

}  // namespace fl::cuda

// Elementwise operators: promotion, broadcasting, output allocation and the call of a generated loop.
#pragma once

#include "dispatch/operator.h"
#include "ops/iterator.h"

namespace fl {

// Loops are stored by compute type.
enum LoopSlot {
  kSlotFloat,
  kSlotDouble,
  kSlotInt,
  kSlotBool,
  kSlotComplexFloat,
  kSlotComplexDouble,
  kLoopSlots
};

struct PointwiseDef;

// A condition on the arguments that promotion and broadcasting do not express; raises when it does not hold.
using PointwiseCheck = void (*)(const PointwiseDef& def, const Value* const* operand, const Scalar* params,
                                DType common);
PointwiseCheck find_check(const char* name);

// Cheaper arithmetic for a particular number as last operand: x ** 2 is x * x.
struct PointwiseCase {
  double value;
  const StridedIterator::Loop (*loops)[kLoopSlots];  // over the operands before the last
};

struct PointwiseDef {
  const char* name;
  int operands;           // tensor (or number) arguments
  int8_t operand_arg[4];  // their positions in the schema
  uint8_t mask;           // bit i: operand i is a bool mask outside promotion
  int params;             // number of Scalar parameters
  int8_t param_arg[6];    // their positions
  int8_t select_arg;      // position of the str argument that picks a variant, or -1
  int variants;
  const char* const* variant_names;
  char promote;  // 'd' default, 'f' integers become floating, 'i' bool becomes int64, 'm' the first operand's
  char result;   // 's' same, 'b' bool, 'r' real
  bool contiguous;                                   // the result always is; else it lies as the operands do
  const char* classes;                               // accepted dtype classes
  const StridedIterator::Loop (*loops)[kLoopSlots];  // [variant][slot]
  int cost;                                          // work of one element relative to an addition
  PointwiseCheck check;                              // or null
  int n_cases;
  PointwiseCase cases[4];
  const void* device = nullptr;  // the accelerator's kernels, when it has been opened
};

// A call as the accelerator gets it.
struct PointwiseCall {
  const PointwiseDef& def;
  int variant, chosen;  // the case chosen among def.cases, or -1
  LoopSlot slot;
  const Value* const* operand;
  int operands;
  const Tensor& out;
  DType common, compute, result;  // of the operands, of the arithmetic and of what it yields
  const Scalar* params;
  bool same;  // all operands are tensors of one shape and layout
};

void pointwise_kernel(const Operator& op, void* definition, KeySet keys, Value* args, Value* results);

// The dtype that PyTorch's promotion gives to these operands (tensors or numbers).
DType result_type(const Value* const* operands, int count);

// Makes `out` fit the result of an op: checks that the dtype can hold it and resizes with a warning if need
// be.
void prepare_out(const char* op, const Tensor& out, IntSpan sizes, DType result, bool may_resize);
void resize_output(const Tensor& out, IntSpan sizes);

}  // namespace fl

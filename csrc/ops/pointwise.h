// Elementwise operators: promotion, broadcasting, output allocation and the call of a generated loop.
#pragma once

#include "core/device_function.h"
#include "dispatch/operator.h"
#include "ops/pointwise_loops.h"

namespace fl {

struct PointwiseDef;

// A condition on the arguments that promotion and broadcasting do not express; raises when it does not hold.
using PointwiseCheck = void (*)(const PointwiseDef& def, const Value* const* operand, const Scalar* params,
                                DType common);
PointwiseCheck find_check(const char* name);

// Cheaper arithmetic for a particular number as last operand: x ** 2 is x * x.
struct PointwiseCase {
  double value;
  const PointwiseLoop (*loops)[kLoopSlots];  // over the operands before the last
};

// Loops over elements as they are stored, without conversion (cpu/narrow.h).
enum class StoredLoop : uint8_t { None, Add, Sub, Mul, And, Or, Xor, Not, Equal, Abs };

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
  bool contiguous;                           // the result always is; else it lies as the operands do
  const char* classes;                       // accepted dtype classes
  const PointwiseLoop (*loops)[kLoopSlots];  // [variant][slot]
  int cost;                                  // work of one element relative to an addition
  PointwiseCheck check;                      // or null
  int n_cases;
  PointwiseCase cases[5];
  StoredLoop narrow, boolean, complex_float;  // for integers below 64 bits, bool and complex64
  bool modular;                               // the loops over int64 serve uint64, too
  const void* device = nullptr;               // the accelerator's kernels, when it has been opened
};

// A call as a device gets it: shapes and dtypes are settled, the result is allocated.
struct PointwiseCall {
  const PointwiseDef& def;
  int variant, chosen;  // the case chosen among def.cases, or -1
  LoopSlot slot;
  PointwiseLoop loop;  // the CPU's, of that variant, case and slot
  const Value* const* operand;
  int operands;
  const Tensor& out;
  DType common, compute, result;  // of the operands, of the arithmetic and of what it yields
  const Scalar* params;
  bool same;  // all operands are tensors of one shape and layout, and contiguous
};

namespace device {
extern DeviceFunction<void(const PointwiseCall&)> pointwise;
}

// The kernel of all pointwise records; `definition` is the record's PointwiseDef.
void pointwise_kernel(const Operator& op, void* definition, KeySet keys, Value* args, Value* results);

}  // namespace fl

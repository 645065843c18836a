// Updates of lists of tensors in place: the steps of the optimizers. The loops are generated from the update
// records; the engine (updates.cpp) runs one over all tensors of the lists in one parallel region.
#pragma once

#include "cpu/engine/arch.h"
#include "dispatch/operator.h"

namespace fl {

constexpr int kUpdateLists = 8;
constexpr int kUpdateScalars = 4;
constexpr int kUpdateNumbers = 16;
constexpr int kUpdateValues = 16;

// What depends on scalar states s and numbers h alone: the values u that the loop uses, the new scalar states
// o.
using UpdateOnce = void (*)(const double* s, const double* h, double* o, double* u);
// New values of n elements of each list's tensor, in place.
using UpdateLoop = void (*)(void* const* a, int64_t n, const double* u);

struct UpdateLoops {
  UpdateOnce once;
  UpdateLoop single, twice;  // in float, in double
};

struct UpdateDef {
  const char* name;
  int lists;  // of tensors walked element by element, and their positions in the schema
  int8_t list_arg[kUpdateLists];
  int scalars;  // lists of one-element tensors
  int8_t scalar_arg[kUpdateScalars];
  int numbers;
  int8_t number_arg[kUpdateNumbers];
  uint32_t written, scalars_written;  // bit k: list k gets new values
  int values;                         // how many the loop uses
  const UpdateLoops* loops;
  const void* device = nullptr;  // the accelerator's kernels, when it has been opened
};

// A step as the accelerator gets it. Tensors of one position lie alike and are dense.
struct UpdateCall {
  const UpdateDef& def;
  size_t length;
  const Tensor* const* lists;    // def.lists of them
  const double* const* values;   // for each position, what the loop uses; null if that is to be computed of
  const Tensor* const* scalars;  // scalar states on the device, which are to be changed then,
  const double* numbers;         // and numbers
};

void update_kernel(const Operator& op, void* definition, KeySet keys, Value* args, Value* results);

}  // namespace fl

// Updates of lists of tensors in place: the steps of the optimizers. The loops are generated from the update
// records; updates.cpp runs one over all tensors of the lists in one parallel region, or asks the device.
#pragma once

#include "core/device_function.h"
#include "dispatch/operator.h"
#include "ops/update_loops.h"

namespace fl {

constexpr int kUpdateLists = 8;
constexpr int kUpdateScalars = 4;
constexpr int kUpdateNumbers = 16;
constexpr int kUpdateValues = 16;

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

// One element of each list.
struct UpdateJob {
  char* data[kUpdateLists];
  DType dtype[kUpdateLists];
  int64_t end = 0;  // in the sequence of all elements
  int64_t numel = 0;
  int values = 0;       // where its values begin
  bool wide = false;    // computes in double
  bool direct = false;  // all tensors are of the type of computation
};

// A step as a device gets it. Tensors of one position lie alike and are dense.
struct UpdateCall {
  const UpdateDef& def;
  size_t length;
  // On an accelerator, or a device from outside.
  const Tensor* const* lists;    // def.lists of them
  const double* const* values;   // for each position, what the loop uses, then the scalar states as they will
                                 // be and as they were; null if that is to be computed of
  const Tensor* const* scalars;  // scalar states on the device, which are to be changed then,
  const double* numbers;         // and numbers
  // On the CPU.
  const UpdateJob* jobs;  // `length` of them
  int64_t total;          // elements of all jobs
  const double* table;    // values of the jobs
};

namespace device {
extern DeviceFunction<void(const UpdateCall&)> update;
}

void update_kernel(const Operator& op, void* definition, KeySet keys, Value* args, Value* results);

}  // namespace fl

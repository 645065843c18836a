// Mixed precision: while it is on for a device, operators with a rule get their tensors in another dtype. The
// kernels sit at the dispatch key Autocast, which is in a thread's set of keys only while some device has it
// on; otherwise nothing of this runs.
#pragma once

#include "dispatch/operator.h"

namespace fl::autocast {

enum class Rule : uint8_t {
  None,
  Lower,    // in the device's lower precision: matrix products and convolutions
  Single,   // in float32: what loses too much otherwise
  Widest,   // in the widest dtype of the arguments
  Refused,  // has no safe precision
  First,    // in the dtype of the first argument
  Own,      // in the dtype of its arguments, and so do the operators it consists of
};

// State of the calling thread.
bool enabled(DeviceType device);
void set_enabled(DeviceType device, bool on);
DType lower_dtype(DeviceType device);
void set_lower_dtype(DeviceType device, DType dtype);
bool cache_enabled();
void set_cache_enabled(bool on);
int increment_nesting();
int decrement_nesting();
// Forgets the parameters converted so far. They are kept for the outermost context, so that a parameter used
// many times is converted once.
void clear_cache();

// While a function is recorded on tensors without data: the device they stand for. Returns the one before.
DeviceType set_recorded_device(DeviceType device);
// A number that differs between states in which operators run in different precisions.
uint64_t signature();

// Gives an operator a rule on one type of device.
void set_rule(Operator& op, DeviceType device, Rule rule);
// The rules of the records, for operators that make new tensors. Devices from outside follow those of
// accelerators.
void install_rules(DeviceType device);

}  // namespace fl::autocast

// The table of built-in operators that tools/generate.py writes from the op records.
#pragma once

#include "dispatch/operator.h"

namespace fl {

struct PointwiseDef;
struct PointwiseDerivative;

struct BuiltinOperator {
  const char* schema;
  uint32_t flags;
  const char* module;  // where the Python function lives, "" for the top level
  const char* name;    // its public name
  bool function, method;
  const char* inplace;          // schema of the derived in-place form, or null
  const char* out;              // schema of the derived out= form, or null
  const char* python_module;    // Python module holding the decomposition, or ""
  const char* python_function;  // its name there
  PointwiseDef* pointwise;
  PointwiseDerivative* derivative;  // of a pointwise op
  const char* vjp_module;           // derivative written in ops: its Python module, function
  const char* vjp_function;
  const char* vjp_parameters;      // and parameter names, separated by commas
  const char* tags;                // the kind of the record and its tags, separated by spaces
  const char* node;                // name of the autograd node, or "" where it follows from the operator's
  const char* aten;                // overload that ATen has for it, or "" where it is the same
  uint8_t on_cpu, on_accelerator;  // autocast::Rule
};

extern const BuiltinOperator builtin_operators[];
extern const int builtin_operator_count;

// The operator of each row, once define_builtin_operators() ran.
Operator& builtin_operator(int row);

}  // namespace fl

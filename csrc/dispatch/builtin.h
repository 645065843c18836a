// The table of built-in operators that tools/generate.py writes from the op records.
#pragma once

#include "dispatch/operator.h"

namespace fl {

struct PointwiseDef;

struct BuiltinOperator {
  const char* schema;
  uint32_t flags;
  const char* module;   // where the Python function lives, "" for the top level
  const char* name;     // its public name
  bool function, method;
  const char* inplace;  // schema of the derived in-place form, or null
  const char* out;      // schema of the derived out= form, or null
  const char* python_module;    // Python module holding the decomposition, or ""
  const char* python_function;  // its name there
  PointwiseDef* pointwise;
};

extern const BuiltinOperator builtin_operators[];
extern const int builtin_operator_count;

}  // namespace fl

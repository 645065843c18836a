// Guards of compiled functions: what must hold for an artifact to be valid, as a tree of places with checks.
// The tree is described by tuples from flambeau/_dynamo/guards.py and evaluated here at every call.
#pragma once

#include <memory>

#include "python/common.h"

namespace fl::py {

class GuardTree {
 public:
  // Raises ValueError on a malformed description.
  static std::unique_ptr<GuardTree> build(PyObject* description);
  virtual ~GuardTree() = default;
  // Whether all checks hold for these arguments. Never raises; an error while looking is a failed check.
  virtual bool check(PyObject* const* args, size_t count) = 0;
  // The place of the check that failed last, as the description names it; borrowed, may be null.
  virtual PyObject* failed() const = 0;
};

void add_guards(PyObject* module);
void add_compiled_function(PyObject* module);
// Whether __torch_function__ modes are active in this thread.
bool function_modes_active();

}  // namespace fl::py

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
  // For the garbage collector: everything that the tree refers to.
  virtual int traverse(visitproc visit, void* arg) const = 0;
  // Whether a check is under way: it runs code of the user's, which came back, or lets another thread run.
  virtual bool busy() const = 0;
  // The place of the check that failed last, as the description names it; borrowed, may be null.
  virtual PyObject* failed() const = 0;
};

void add_guards(PyObject* module);
void add_guarded_function(PyObject* module);
void add_frame_hook(PyObject* module);

// Runs a GuardedFunction on arguments in the order of its code's parameters. False when the original is to
// run.
bool call_compiled(PyObject* compiled, PyObject* const* values, Py_ssize_t count, Object& result);
// What the compiled function that this thread runs has to choose compiled forms; null when none runs.
Object running_chooser();

// Compiled code itself is not offered to the frame hook.
struct PauseFrameHook {
  PauseFrameHook();
  ~PauseFrameHook();
  PauseFrameHook(const PauseFrameHook&) = delete;
  PauseFrameHook& operator=(const PauseFrameHook&) = delete;
  PyObject* const before;
};

// Whether __torch_function__ modes are active in this thread.
bool function_modes_active();

}  // namespace fl::py

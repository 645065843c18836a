// Calls of compiled scripts without Python on the way.
#pragma once

#include "python/common.h"

namespace fl::py {

void add_script_fronts(PyObject* module);
bool module_needs_hooks(PyObject* attributes);  // whether hooks look at calls of a module (nn_module.cpp)

}  // namespace fl::py

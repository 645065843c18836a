// Lines of the user's program, as numbers: which one runs, and where it stands.
#pragma once

#include "python/common.h"

namespace fl::py {

// The innermost line outside of this package that runs on this thread; -1 where there is none.
int line_of_program();
// (file, line) of a number, or None.
PyObject* line_object(int number);

}  // namespace fl::py

// The state of the interpreter, spelt the same for all versions of Python.
#pragma once

#include <Python.h>

namespace fl::py {

// Whether the interpreter shuts down. It counts as not initialised then, but its collector still runs.
inline bool interpreter_is_ending() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing();
#else
  return _Py_IsFinalizing();
#endif
}

}  // namespace fl::py

// Threads that the interpreter ends while it shuts down.
//
// A daemon thread that asks for the interpreter lock then is ended by pthread_exit (before Python 3.14),
// whose forced unwinding runs the destructors of our frames: they would release a lock that the thread does
// not hold, and references beside the collector. Such a thread sleeps instead, as in Python 3.14, until the
// process is gone. The linker sends the personality routine of this module's frames here (--wrap), so that
// the rest costs nothing.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <unistd.h>
#include <unwind.h>

#include "python/interpreter.h"

extern "C" {
_Unwind_Reason_Code __real___gxx_personality_v0(int version, _Unwind_Action actions,
                                                _Unwind_Exception_Class kind, _Unwind_Exception* exception,
                                                _Unwind_Context* context);

_Unwind_Reason_Code __wrap___gxx_personality_v0(int version, _Unwind_Action actions,
                                                _Unwind_Exception_Class kind, _Unwind_Exception* exception,
                                                _Unwind_Context* context) {
  if ((actions & _UA_FORCE_UNWIND) && fl::py::interpreter_is_ending())
    while (true) pause();
  return __real___gxx_personality_v0(version, actions, kind, exception, context);
}
}

// The frame hook of PEP 523, for what call sites cannot reach: Python functions that native code calls back
// (key functions, callbacks, hooks of modules). While a compiled function performs a call that it could not
// capture, frames that this call leads to are offered to the compiler.
//
// Nothing of it is there at other times: the interpreter's evaluator is replaced only during such calls,
// since with another evaluator Python calls between Python functions are no longer short cuts.
#include "python/guards.h"

#include <algorithm>
#include <utility>

#define Py_BUILD_CORE
#include <internal/pycore_frame.h>
#undef Py_BUILD_CORE

namespace fl::py {
namespace {

using Frame = _PyInterpreterFrame;

#if PY_VERSION_HEX >= 0x030D0000
PyCodeObject* code_of(Frame* f) {
  return reinterpret_cast<PyCodeObject*>(f->f_executable);
}
PyObject* function_of(Frame* f) {
  return f->f_funcobj;
}
void run_next(Frame* f, PyCodeObject* code) {
  f->f_executable = Py_NewRef(reinterpret_cast<PyObject*>(code));
  f->instr_ptr = reinterpret_cast<_Py_CODEUNIT*>(code->co_code_adaptive);
}
#else
PyCodeObject* code_of(Frame* f) {
  return f->f_code;
}
PyObject* function_of(Frame* f) {
#if PY_VERSION_HEX >= 0x030C0000
  return f->f_funcobj;
#else
  return reinterpret_cast<PyObject*>(f->f_func);
#endif
}
void run_next(Frame* f, PyCodeObject* code) {
  f->f_code = reinterpret_cast<PyCodeObject*>(Py_NewRef(reinterpret_cast<PyObject*>(code)));
  f->prev_instr = reinterpret_cast<_Py_CODEUNIT*>(code->co_code_adaptive) - 1;
}
#endif

#if PY_VERSION_HEX >= 0x030C0000
constexpr auto request_extra = PyUnstable_Eval_RequestCodeExtraIndex;
constexpr auto get_extra = PyUnstable_Code_GetExtra;
constexpr auto set_extra = PyUnstable_Code_SetExtra;
#else
constexpr auto request_extra = _PyEval_RequestCodeExtraIndex;
constexpr auto get_extra = _PyCode_GetExtra;
constexpr auto set_extra = _PyCode_SetExtra;
#endif

// Called with a function; returns its compiled form, or None when its code is never to be captured. Borrowed:
// the call that set it keeps it.
thread_local PyObject* chooser = nullptr;
int installed = 0;                     // calls, of all threads, during which the evaluator is replaced
PyCodeObject* return_given = nullptr;  // returns what lies on the stack
PyTypeObject* module_type = nullptr;   // nn.Module
Py_ssize_t extra_index = -1;           // where code objects keep whether they are skipped
char skipped;                          // its address marks them

bool is_skipped(PyCodeObject* code) {
  void* extra = nullptr;
  if (get_extra(reinterpret_cast<PyObject*>(code), extra_index, &extra) < 0) PyErr_Clear();
  return extra == &skipped;
}

void mark_skipped(PyObject* code) {
  if (set_extra(code, extra_index, &skipped) < 0) PyErr_Clear();
}

bool is_of_interest(PyObject* o) {
  return is_tensor(o) || (module_type && PyObject_TypeCheck(o, module_type));
}

// Capturing costs milliseconds: only functions that are given tensors or modules are worth it.
bool has_tensors(PyObject* const* values, Py_ssize_t n) {
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject* o = values[i];
    if (o == nullptr) continue;
    if (is_of_interest(o)) return true;
    if (!PyTuple_CheckExact(o) && !PyList_CheckExact(o)) continue;
    const Py_ssize_t items = std::min<Py_ssize_t>(PySequence_Fast_GET_SIZE(o), 16);
    for (Py_ssize_t k = 0; k < items; ++k)
      if (is_of_interest(PySequence_Fast_GET_ITEM(o, k))) return true;
  }
  return false;
}

// Runs a frame's function compiled. False when the frame is to be evaluated as it is; true with the result,
// or with null and an exception.
bool run_compiled(Frame* frame, PyObject*& result) {
  PyCodeObject* code = code_of(frame);
  constexpr int kSuspends = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR | CO_ITERABLE_COROUTINE;
  constexpr int kFunction = CO_OPTIMIZED | CO_NEWLOCALS;
  if ((code->co_flags & kSuspends) || (code->co_flags & kFunction) != kFunction || is_skipped(code))
    return false;
  const Py_ssize_t n = code->co_argcount + code->co_kwonlyargcount + bool(code->co_flags & CO_VARARGS) +
                       bool(code->co_flags & CO_VARKEYWORDS);
  PyObject* function = function_of(frame);
  if (!has_tensors(frame->localsplus, n) || function == nullptr || !PyFunction_Check(function)) return false;
  const PauseFrameHook pause;
  Object compiled = Object::steal(PyObject_CallOneArg(pause.before, function));
  if (!compiled) {
    PyErr_Clear();
    return false;
  }
  if (compiled.get() == Py_None) {
    mark_skipped(reinterpret_cast<PyObject*>(code));
    return false;
  }
  result = nullptr;
  const PyObject* done = guarded([&]() -> PyObject* {
    Object replacement;
    if (!call_compiled(compiled.get(), frame->localsplus, n, replacement)) return Py_None;
    result = replacement.release();
    return Py_True;
  });
  return done != Py_None;
}

PyObject* evaluate(PyThreadState* thread, Frame* frame, int throwing) {
  PyObject* result = nullptr;
  const bool observed =
      thread->c_tracefunc || thread->c_profilefunc;  // who looks on sees the frames themselves
  if (chooser == nullptr || throwing || observed || !run_compiled(frame, result))
    return _PyEval_EvalFrameDefault(thread, frame, throwing);
  // The frame is there and has to be left in the interpreter's way: it returns the result, or goes on with
  // the exception, before its first line, so that it does not appear in the traceback.
  Object code = Object::steal(reinterpret_cast<PyObject*>(code_of(frame)));
  run_next(frame, return_given);
  if (result) frame->localsplus[frame->stacktop++] = result;
  return _PyEval_EvalFrameDefault(thread, frame, result == nullptr);
}

// _call_hooked(chooser, function, *args, **kwargs); without a chooser, that of the compiled function that
// runs.
PyObject* call_hooked(PyObject*, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  return guarded([&]() -> PyObject* {
    FL_CHECK_KIND(n >= 2, Type, "[_call_hooked] expected a chooser and a function");
    Object wanted = Object::borrow(args[0]);
    if (wanted.get() == Py_None) wanted = running_chooser();
    PyInterpreterState* interpreter = PyInterpreterState_Get();
    const auto present = _PyInterpreterState_GetEvalFrameFunc(interpreter);
    // An evaluator of somebody else's is left alone.
    if (!wanted || return_given == nullptr || (present != _PyEval_EvalFrameDefault && present != evaluate))
      return PyObject_Vectorcall(args[1], args + 2, n - 2, names);
    PyObject* before = std::exchange(chooser, wanted.get());
    if (installed++ == 0) _PyInterpreterState_SetEvalFrameFunc(interpreter, evaluate);
    PyObject* result = PyObject_Vectorcall(args[1], args + 2, n - 2, names);
    if (--installed == 0) _PyInterpreterState_SetEvalFrameFunc(interpreter, _PyEval_EvalFrameDefault);
    chooser = before;
    return result;
  });
}

// _prepare_frame_hook(code, module): the code that returns what lies on the stack, and the class nn.Module.
PyObject* prepare(PyObject*, PyObject* args) {
  PyObject *code, *module;
  if (!PyArg_ParseTuple(args, "O!O!", &PyCode_Type, &code, &PyType_Type, &module)) return nullptr;
  if (return_given == nullptr) {
    extra_index = request_extra(nullptr);
    if (extra_index < 0) Py_RETURN_NONE;  // all places are taken: no hook
    module_type = reinterpret_cast<PyTypeObject*>(Py_NewRef(module));
    return_given = reinterpret_cast<PyCodeObject*>(Py_NewRef(code));
  }
  Py_RETURN_NONE;
}

PyObject* skip_code(PyObject*, PyObject* code) {
  return guarded([&]() -> PyObject* {
    FL_CHECK_KIND(PyCode_Check(code), Type, "[skip_code] expected a code object, got ",
                  Py_TYPE(code)->tp_name);
    if (return_given != nullptr) mark_skipped(code);
    Py_RETURN_NONE;
  });
}

PyObject* is_hooked(PyObject*, PyObject*) {
  return PyBool_FromLong(installed > 0);
}

PyMethodDef functions[] = {
    {"_call_hooked", reinterpret_cast<PyCFunction>(call_hooked), METH_FASTCALL | METH_KEYWORDS, nullptr},
    {"_prepare_frame_hook", prepare, METH_VARARGS, nullptr},
    {"_skip_code", skip_code, METH_O, nullptr},
    {"_frame_hook_active", is_hooked, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

PauseFrameHook::PauseFrameHook() : before(std::exchange(chooser, nullptr)) {}
PauseFrameHook::~PauseFrameHook() {
  chooser = before;
}

void add_frame_hook(PyObject* module) {
  check(PyModule_AddFunctions(module, functions));
}

}  // namespace fl::py

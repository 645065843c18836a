// The recorder of calls, from Python: start, stop with the events, and the stack of the caller.
#include "dispatch/profiling.h"

#include "python/common.h"

namespace fl::py {

namespace {

constexpr int kFrames = 12;

// Frames of the calling thread, innermost first, as "file(line): function" and separated by newlines.
std::string python_stack() {
  std::string text;
  if (!Py_IsInitialized()) return text;
  const PyGILState_STATE state = PyGILState_Ensure();
  PyObject *kind, *value, *trace;
  PyErr_Fetch(&kind, &value, &trace);
  Object frame = Object::steal(reinterpret_cast<PyObject*>(PyThreadState_GetFrame(PyThreadState_Get())));
  for (int i = 0; i < kFrames && frame; ++i) {
    auto* f = reinterpret_cast<PyFrameObject*>(frame.get());
    Object code = Object::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(f)));
    auto* c = reinterpret_cast<PyCodeObject*>(code.get());
    const char* file = PyUnicode_AsUTF8(c->co_filename);
    const char* name = PyUnicode_AsUTF8(c->co_name);
    if (i) text += "\n";
    text += std::string(file ? file : "?") + "(" + std::to_string(PyFrame_GetLineNumber(f)) +
            "): " + (name ? name : "?");
    frame = Object::steal(reinterpret_cast<PyObject*>(PyFrame_GetBack(f)));
  }
  PyErr_Restore(kind, value, trace);
  PyGILState_Release(state);
  return text;
}

// _profiler_start(shapes, memory, stack)
PyObject* start(PyObject*, PyObject* args) {
  int shapes, memory, stack;
  if (!PyArg_ParseTuple(args, "ppp", &shapes, &memory, &stack)) return nullptr;
  profiling::describe_stack = python_stack;
  profiling::start({shapes != 0, memory != 0, stack != 0});
  Py_RETURN_NONE;
}

// _profiler_stop(): tuples of name, start, end, thread, memory, depth, number, shapes, stack.
PyObject* stop(PyObject*, PyObject*) {
  return guarded([&]() -> PyObject* {
    const std::vector<profiling::Event> events = profiling::stop();
    Object list = own(PyList_New(static_cast<Py_ssize_t>(events.size())));
    for (size_t i = 0; i < events.size(); ++i) {
      const profiling::Event& e = events[i];
      Object shapes = own(PyTuple_New(static_cast<Py_ssize_t>(e.shapes.size())));
      for (size_t k = 0; k < e.shapes.size(); ++k)
        PyTuple_SET_ITEM(shapes.get(), k, check(PyUnicode_FromString(e.shapes[k].c_str())));
      PyList_SET_ITEM(list.get(), i,
                      check(Py_BuildValue("sLLLLiLOs", e.name.c_str(), (long long)e.start, (long long)e.end,
                                          (long long)e.thread, (long long)e.memory, e.depth,
                                          (long long)e.sequence, shapes.get(), e.stack.c_str())));
    }
    return list.release();
  });
}

// _profiler_record(name, start, shapes): a range that began at `start` and ends now (`profiling::record`).
PyObject* record(PyObject*, PyObject* args) {
  const char* name;
  long long start;
  PyObject* shapes;
  if (!PyArg_ParseTuple(args, "sLO!", &name, &start, &PyTuple_Type, &shapes)) return nullptr;
  return guarded([&]() -> PyObject* {
    std::vector<std::string> texts;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(shapes); ++i) {
      const char* text = PyUnicode_AsUTF8(PyTuple_GET_ITEM(shapes, i));
      if (!text) return nullptr;
      texts.emplace_back(text);
    }
    profiling::record(name, start, std::move(texts));
    Py_RETURN_NONE;
  });
}

PyMethodDef functions[] = {{"_profiler_start", start, METH_VARARGS, nullptr},
                           {"_profiler_stop", stop, METH_NOARGS, nullptr},
                           {"_profiler_record", record, METH_VARARGS, nullptr},
                           {}};

}  // namespace

void add_profiling(PyObject* module) {
  check(PyModule_AddFunctions(module, functions));
}

}  // namespace fl::py

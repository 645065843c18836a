// Recording devices seen from Python: graphs become lists of calls for the compiler, programs come back.
#include "python/common.h"
// Python.h must come first.

#include "compiled/specialized_function.h"
#include "lazy/recorder.h"
#include "python/library.h"
#include "python/parse.h"
#include "python/program_lines.h"

namespace fl::py {

compiled::CompiledGraph* compiled_graph_of(PyObject* o);

namespace {

using lazy::Call;
using lazy::Graph;
using lazy::Recorder;
using lazy::Slot;
using lazy::Window;

PyObject* dims_object(IntSpan dims) {
  PyObject* tuple = check(PyTuple_New(static_cast<Py_ssize_t>(dims.size())));
  for (size_t i = 0; i < dims.size(); ++i) PyTuple_SET_ITEM(tuple, i, check(PyLong_FromLongLong(dims[i])));
  return tuple;
}

PyObject* class_named(const char* name) {
  Object module = own(PyImport_ImportModule("flambeau.lazy.graph"));
  return check(PyObject_GetAttrString(module.get(), name));
}

PyObject* window_object(const Window& w) {
  static PyObject* type = class_named("Window");
  return check(PyObject_CallFunction(type, "iONNL", w.storage, dtype_object(w.dtype), dims_object(w.sizes),
                                     dims_object(w.strides), static_cast<long long>(w.offset)));
}

PyObject* arguments_object(const Call& call) {
  static PyObject* parameter = class_named("Parameter");
  const Py_ssize_t n = static_cast<Py_ssize_t>(call.values.size());
  Object arguments = own(PyList_New(n));
  for (Py_ssize_t i = 0; i < n; ++i) {
    const int length = call.list_lengths.empty() ? -1 : call.list_lengths[i];
    if (length < 0) {
      PyList_SET_ITEM(arguments.get(), i, check(to_python(call.values[i])));
      continue;
    }
    PyObject* list = check(PyList_New(length));
    for (int k = 0; k < length; ++k) PyList_SET_ITEM(list, k, Py_NewRef(Py_None));
    PyList_SET_ITEM(arguments.get(), i, list);
  }
  for (const auto& t : call.tensors) {
    PyObject* window = window_object(t.window);
    if (t.element < 0)
      check(PyList_SetItem(arguments.get(), t.position, window));
    else
      check(PyList_SetItem(PyList_GET_ITEM(arguments.get(), t.position), t.element, window));
  }
  for (auto [position, place] : call.parameters)
    check(PyList_SetItem(
        arguments.get(), position,
        check(PyObject_CallFunction(parameter, "iN", place, to_python(call.values[position])))));
  return arguments.release();
}

// ---------------------------------------------------------------- graphs

PyObject* graph_object(const Graph& graph, const std::vector<int>& outputs, Device device) {
  static PyObject* type = class_named("Graph");
  static PyObject* call_type = class_named("Call");
  Object slots = own(PyList_New(0)), calls = own(PyList_New(0)), wanted = own(PyList_New(0));
  static const char* kinds[] = {"input", "host", "empty", "result"};
  for (const Slot& slot : graph.slots) {
    Object row = own(Py_BuildValue("(sN)", kinds[static_cast<int>(slot.kind)], window_object(slot.root)));
    check(PyList_Append(slots.get(), row.get()));
  }
  for (const Call& call : graph.calls) {
    Object results = own(PyList_New(0));
    for (const auto& result : call.results)
      check(PyList_Append(results.get(), own(window_object(result.window)).get()));
    Object row = own(PyObject_CallFunction(call_type, "ONON", overload_object(*call.op),
                                           arguments_object(call), results.get(), line_object(call.line)));
    check(PyList_Append(calls.get(), row.get()));
  }
  for (int slot : outputs) check(PyList_Append(wanted.get(), own(PyLong_FromLong(slot)).get()));
  return check(PyObject_CallFunction(type, "OOOnN", slots.get(), calls.get(), wanted.get(),
                                     static_cast<Py_ssize_t>(graph.parameters.size()), make_device(device)));
}

PyObject* tensors_object(const std::vector<Tensor>& tensors) {
  PyObject* list = check(PyList_New(static_cast<Py_ssize_t>(tensors.size())));
  for (size_t i = 0; i < tensors.size(); ++i) PyList_SET_ITEM(list, i, check(wrap(tensors[i])));
  return list;
}

class NativeProgram final : public lazy::Executable {
 public:
  explicit NativeProgram(compiled::CompiledGraph* graph) : graph_(graph) {}
  std::vector<Tensor> run(const std::vector<Tensor>& inputs) override {
    return graph_->forward.run(inputs.data());
  }

 private:
  Ref<compiled::CompiledGraph> graph_;
};

class PythonProgram final : public lazy::Executable {
 public:
  // A function of the inputs, or an object with the inputs that it replaces and `results`.
  explicit PythonProgram(PyObject* program) {
    if (!PyObject_HasAttrString(program, "written")) {
      function_ = Py_NewRef(program);
      return;
    }
    function_ = check(PyObject_GetAttrString(program, "results"));
    Object written = own(PyObject_GetAttrString(program, "written"));
    Object fast = own(PySequence_Fast(written.get(), "[lazy] expected a list of inputs"));
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast.get()); ++i)
      replaced.push_back(static_cast<int>(PyLong_AsLong(PySequence_Fast_GET_ITEM(fast.get(), i))));
  }
  std::vector<Tensor> run(const std::vector<Tensor>& inputs) override {
    const WithGIL gil;
    const BelowModes below;
    Object input_list = own(tensors_object(inputs));
    Object answer = own(PyObject_CallOneArg(function_, input_list.get()));
    Object fast = own(PySequence_Fast(answer.get(), "[lazy] expected a list of tensors"));
    std::vector<Tensor> results;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast.get()); ++i)
      results.push_back(unwrap(PySequence_Fast_GET_ITEM(fast.get(), i)));
    return results;
  }

 private:
  PyObject* function_;
};

// An error of Python, or one of ours as Python sees it. `flambeau.lazy.errors` writes the line into its
// message.
class PythonFailure final : public lazy::Failure {
 public:
  PythonFailure() {
    translate_exception();
    now_ = current_error();
  }
  ~PythonFailure() override {
    const PyGILState_STATE state = PyGILState_Ensure();
    Py_XDECREF(now_);
    Py_XDECREF(later_);
    PyGILState_Release(state);
  }
  void recorded_at(int line, bool exact) override {
    const WithGIL gil;
    Object errors = own(PyImport_ImportModule("flambeau.lazy.errors"));
    Object place = own(line_object(line));
    Object pair = own(PyObject_CallMethod(errors.get(), "with_line", "OOi", now_, place.get(), int(exact)));
    Py_SETREF(now_, Py_NewRef(PyTuple_GetItem(pair.get(), 0)));
    later_ = Py_NewRef(PyTuple_GetItem(pair.get(), 1));
  }
  bool is_interruption() const override {
    const WithGIL gil;
    return !PyObject_IsInstance(now_, PyExc_Exception);
  }
  [[noreturn]] void raise() override {
    const WithGIL gil;
    PyObject* error = Py_NewRef(now_);
    if (later_) Py_SETREF(now_, std::exchange(later_, nullptr));
    PyException_SetTraceback(error, Py_None);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error)), error);
    Py_DECREF(error);
    throw PythonError();
  }

 private:
  // The error that is set, which is no longer set afterwards.
  static PyObject* current_error() {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return value;
  }

  PyObject* now_ = nullptr;    // what is raised at first
  PyObject* later_ = nullptr;  // what is raised from then on
};

Recorder& recorder_named(const char* name) {
  Recorder* recorder = Recorder::find(parse_device(name).type);
  FL_CHECK_KIND(recorder != nullptr, Value, "[lazy] expected a device that records, got ", std::string(name));
  return *recorder;
}

PyObject* make_recorder(PyObject*, PyObject* args) {
  // _lazy_recorder(name, base, compile, single): calls on the device are recorded from now on. `compile` may
  // answer None, then a graph runs call by call, as one of a single call does where `single` is true; False
  // says that the graph's numbers should have been constants.
  const char* name;
  PyObject *base, *compile;
  int single;
  if (!PyArg_ParseTuple(args, "sOOp", &name, &base, &compile, &single)) return nullptr;
  return guarded([&]() -> PyObject* {
    const DeviceType type = parse_device(name).type;
    Recorder& recorder = Recorder::make(type, device_from(base));
    recorder.line = line_of_program;
    recorder.wait = [](const std::function<void()>& block) {
      if (!PyGILState_Check()) return block();
      Py_BEGIN_ALLOW_THREADS;
      block();
      Py_END_ALLOW_THREADS;
    };
    recorder.compile = [&recorder, function = Py_NewRef(compile)](
                           const Graph& graph, const std::vector<int>& outputs,
                           const std::vector<Tensor>& inputs, const char* why) {
      const WithGIL gil;
      Object described = own(graph_object(graph, outputs, recorder.base())),
             input_list = own(tensors_object(inputs));
      Object program = own(PyObject_CallFunction(function, "OOs", described.get(), input_list.get(), why));
      if (program.get() == Py_False) recorder.keep_constant(graph);
      if (program.get() == Py_None || program.get() == Py_False) return Ref<lazy::Executable>();
      if (auto* native = compiled_graph_of(program.get()))
        return Ref<lazy::Executable>(new NativeProgram(native));
      return Ref<lazy::Executable>(new PythonProgram(program.get()));
    };
    recorder.caught = [] {
      const WithGIL gil;
      return Ref<lazy::Failure>(new PythonFailure);
    };
    recorder.interprets_single_calls = single != 0;
    Py_RETURN_NONE;
  });
}

PyObject* flush(PyObject*, PyObject* args) {
  const char *name, *why;
  if (!PyArg_ParseTuple(args, "ss", &name, &why)) return nullptr;
  return guarded([&]() -> PyObject* {
    recorder_named(name).flush(why);
    Py_RETURN_NONE;
  });
}

PyObject* recorded(PyObject*, PyObject* name) {
  // _lazy_recorded(name) -> (graph, inputs): what has been recorded and has not run yet.
  return guarded([&]() -> PyObject* {
    Recorder& recorder = recorder_named(PyUnicode_AsUTF8(name));
    std::vector<Tensor> inputs;
    std::vector<int> outputs;
    const Graph graph = recorder.recorded(inputs, outputs);
    return Py_BuildValue("(NN)", graph_object(graph, outputs, recorder.base()), tensors_object(inputs));
  });
}

PyObject* on_base(PyObject*, PyObject* o) {
  return guarded([&]() -> PyObject* {
    const Tensor t = unwrap(o);
    return wrap(
        recorder_named(device_type_name(t.device().type).c_str()).shared_base(t, "its memory is asked for"));
  });
}

PyObject* set_recorder(PyObject*, PyObject* args) {
  // _lazy_set(name, base or None, most calls): changes what the recorder does.
  const char* name;
  PyObject* base;
  Py_ssize_t most;
  if (!PyArg_ParseTuple(args, "sOn", &name, &base, &most)) return nullptr;
  return guarded([&]() -> PyObject* {
    Recorder& recorder = recorder_named(name);
    if (base != Py_None) recorder.set_base(device_from(base));
    if (most > 0) recorder.most_calls = static_cast<size_t>(most);
    Py_RETURN_NONE;
  });
}

PyObject* metrics(PyObject*, PyObject* name) {
  return guarded([&]() -> PyObject* {
    const lazy::Metrics& m = recorder_named(PyUnicode_AsUTF8(name)).metrics;
    return Py_BuildValue("{sKsKsKsKsK}", "operators", m.operators, "graphs", m.graphs, "hits", m.hits,
                         "host_calls", m.host_calls, "execute_ns", m.execute_ns);
  });
}

PyObject* clear_metrics(PyObject*, PyObject* name) {
  return guarded([&]() -> PyObject* {
    recorder_named(PyUnicode_AsUTF8(name)).metrics = {};
    Py_RETURN_NONE;
  });
}

PyMethodDef lazy_functions[] = {{"_lazy_recorder", make_recorder, METH_VARARGS, nullptr},
                                {"_lazy_flush", flush, METH_VARARGS, nullptr},
                                {"_lazy_recorded", recorded, METH_O, nullptr},
                                {"_lazy_on_base", on_base, METH_O, nullptr},
                                {"_lazy_set", set_recorder, METH_VARARGS, nullptr},
                                {"_lazy_metrics", metrics, METH_O, nullptr},
                                {"_lazy_clear_metrics", clear_metrics, METH_O, nullptr},
                                {}};

}  // namespace

void add_lazy(PyObject* module) {
  check(PyModule_AddFunctions(module, lazy_functions));
}

}  // namespace fl::py

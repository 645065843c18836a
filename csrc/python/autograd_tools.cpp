// The modes of autograd, callbacks of a running backward, and small doors into the graph for the autograd
// package.
#include "python/autograd.h"
#include "python/library.h"

namespace fl::py {

using autograd::Node;

namespace {

PyObject* is_grad_enabled(PyObject*, PyObject*) {
  return PyBool_FromLong(thread_state().grad_mode);
}
PyObject* set_grad_enabled(PyObject*, PyObject* on) {
  return PyBool_FromLong(std::exchange(thread_state().grad_mode, PyObject_IsTrue(on) == 1));
}
PyObject* is_inference(PyObject*, PyObject*) {
  return PyBool_FromLong(thread_state().inference_mode);
}
PyObject* set_inference(PyObject*, PyObject* on) {
  return PyBool_FromLong(std::exchange(thread_state().inference_mode, PyObject_IsTrue(on) == 1));
}

PyObject* call_python(const char* module, const char* function, PyObject* arg) {
  Object m = own(PyImport_ImportModule(module));
  Object f = own(PyObject_GetAttrString(m.get(), function));
  return arg ? PyObject_CallOneArg(f.get(), arg) : PyObject_CallNoArgs(f.get());
}
std::string trace_of_caller() {
  WithGIL gil;
  Object text = Object::steal(call_python("flambeau.autograd.anomaly_mode", "_trace", nullptr));
  if (!text) {
    PyErr_Clear();
    return "";
  }
  const char* s = PyUnicode_AsUTF8(text.get());
  return s ? s : "";
}
void tell_trace(const Node& node) {
  WithGIL gil;
  PyObject *type, *value, *tb;
  PyErr_Fetch(&type, &value, &tb);
  Object pair = Object::steal(
      Py_BuildValue("(ss)", node.name().c_str(), node.extras ? node.extras->trace.c_str() : ""));
  Object done =
      pair ? Object::steal(call_python("flambeau.autograd.anomaly_mode", "_report", pair.get())) : Object();
  if (!done) PyErr_Clear();
  PyErr_Restore(type, value, tb);
}
PyObject* set_anomaly(PyObject*, PyObject* args) {
  int on, nan;
  if (!PyArg_ParseTuple(args, "pp", &on, &nan)) return nullptr;
  autograd::anomaly_mode = on;
  autograd::anomaly_check_nan = nan;
  Py_RETURN_NONE;
}
PyObject* get_anomaly(PyObject*, PyObject*) {
  return Py_BuildValue("(NN)", PyBool_FromLong(autograd::anomaly_mode),
                       PyBool_FromLong(autograd::anomaly_check_nan));
}
PyObject* queue_callback(PyObject*, PyObject* fn) {
  return guarded([&]() -> PyObject* {
    Ref<PyOpaque> held(new PyOpaque(fn));
    autograd::queue_callback([held] {
      WithGIL gil;
      own(PyObject_CallNoArgs(held->object));
    });
    Py_RETURN_NONE;
  });
}
PyObject* current_node(PyObject*, PyObject*) {
  return guarded([&] { return wrap_node(Ref<Node>(autograd::current_node())); });
}
PyObject* in_backward(PyObject*, PyObject*) {
  return PyBool_FromLong(autograd::in_backward());
}
PyObject* current_run(PyObject*, PyObject*) {
  return PyLong_FromLongLong(autograd::current_run());
}
PyObject* current_run_keeps_graph(PyObject*, PyObject*) {
  return PyBool_FromLong(autograd::current_run_keeps_graph());
}
PyObject* current_run_is_partial(PyObject*, PyObject*) {
  return PyBool_FromLong(autograd::current_run_is_partial());
}
PyObject* will_run(PyObject*, PyObject* o) {
  return guarded([&]() -> PyObject* {
    FL_CHECK(!is_tensor(o),
             "[_will_engine_execute_node] expected a graph node, got a Tensor: it expects an grad_fn");
    return PyBool_FromLong(autograd::will_run(node_of(o).get()));
  });
}
PyObject* node_trace(PyObject*, PyObject* o) {
  return guarded([&] {
    Ref<Node> node = node_of(o);
    return PyUnicode_FromString(node->extras ? node->extras->trace.c_str() : "");
  });
}
// The shapes, dtypes and devices of a node's outputs.
PyObject* node_outputs(PyObject*, PyObject* o) {
  return guarded([&]() -> PyObject* {
    Ref<Node> node = node_of(o);
    Object list = own(PyList_New(0));
    for (const auto& m : node->outputs) {
      Object row =
          own(Py_BuildValue("(NON)", make_size(m.sizes), dtype_object(m.dtype), make_device(m.device)));
      check(PyList_Append(list.get(), row.get()));
    }
    return list.release();
  });
}

std::vector<int64_t> ints_of(PyObject* o) {
  Object fast = own(PySequence_Fast(o, "[autograd] expected a sequence of integers"));
  std::vector<int64_t> out;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast.get()); ++i)
    out.push_back(int_value(PySequence_Fast_GET_ITEM(fast.get(), i)));
  return out;
}
PyObject* scatter_window(PyObject*, PyObject* args) {
  PyObject *grad, *base_sizes, *base_strides, *sizes, *strides;
  long long offset;
  if (!PyArg_ParseTuple(args, "OOOOOL", &grad, &base_sizes, &base_strides, &sizes, &strides, &offset))
    return nullptr;
  return guarded([&]() -> PyObject* {
    return wrap(autograd::scatter_window(unwrap(grad), ints_of(base_sizes), ints_of(base_strides),
                                         ints_of(sizes), ints_of(strides), offset));
  });
}

PyObject* choose_derivatives(PyObject*, PyObject* on) {
  autograd::use_native_derivatives(PyObject_IsTrue(on) == 1);
  Py_RETURN_NONE;
}

PyObject* detach_inplace(PyObject*, PyObject* o) {
  return guarded([&]() -> PyObject* {
    const Tensor t = unwrap(o);
    if (auto* m = autograd::meta_of(t)) {
      FL_CHECK(!m->base.defined(),
               "[detach_] expected a tensor that is not a view, got a view: can't detach views in-place, use "
               "detach() instead");
      autograd::detach_in_place(t);
    }
    Py_RETURN_NONE;
  });
}
PyObject* check_inplace(PyObject*, PyObject* args) {
  PyObject* tensor;
  const char* name;
  if (!PyArg_ParseTuple(args, "Os", &tensor, &name)) return nullptr;
  return guarded([&]() -> PyObject* {
    autograd::check_inplace(unwrap(tensor), name);
    Py_RETURN_NONE;
  });
}
PyObject* set_version(PyObject*, PyObject* args) {
  PyObject* tensor;
  unsigned version;
  if (!PyArg_ParseTuple(args, "OI", &tensor, &version)) return nullptr;
  TensorImpl* t = impl_of(tensor);
  t->writes().fetch_add(version - t->version(), std::memory_order_relaxed);
  Py_RETURN_NONE;
}

// The history of a result whose graph a backward inside of a compiled function has used up.
struct SpentBackward final : Node {
  explicit SpentBackward(std::string name) : name_(std::move(name)) {}
  std::string name() const override { return name_; }
  std::vector<Tensor> apply(std::vector<Tensor>&&) override {
    fail(
        ErrorKind::Runtime, "[backward] expected the saved tensors of ", name_,
        " to be there, got a graph that was freed: Trying to backward through the graph a second time (or to "
        "access saved tensors after they have already been freed); Specify retain_graph=True if you need to "
        "backward "
        "through the graph a second time");
  }

 private:
  std::string name_;
};

// _mark_spent(tensor, name): gives the tensor a history that cannot be used again.
PyObject* mark_spent(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  return guarded([&]() -> PyObject* {
    FL_CHECK_KIND(nargs == 2 && is_tensor(args[0]) && PyUnicode_Check(args[1]), Type,
                  "[_mark_spent] expected a tensor and a name");
    const Tensor& t = unwrap(args[0]);
    Ref<Node> node(new SpentBackward(PyUnicode_AsUTF8(args[1])));
    autograd::set_history(t, node, node->add_output(t));
    Py_RETURN_NONE;
  });
}

// _gradient_facts(tensor) -> (whether it lies densely, whether nobody else holds it or its memory).
PyObject* gradient_facts(PyObject*, PyObject* o) {
  return guarded([&]() -> PyObject* {
    FL_CHECK_KIND(is_tensor(o), Type, "[_gradient_facts] expected a tensor");
    const TensorImpl* t = impl_of(o);
    const bool alone = t->use_count() == 1 && t->storage->use_count() == 1;
    return Py_BuildValue("(NN)", PyBool_FromLong(is_dense(unwrap(o))), PyBool_FromLong(alone));
  });
}

PyMethodDef tools[] = {{"is_grad_enabled", is_grad_enabled, METH_NOARGS,
                        "Whether operators are recorded for backward().\n"
                        "\n"
                        ">>> with flambeau.no_grad():\n"
                        "...     flambeau.is_grad_enabled()\n"
                        "False\n"
                        "\n"
                        "See also: no_grad, enable_grad"},
                       {"_set_grad_enabled", set_grad_enabled, METH_O, nullptr},
                       {"is_inference_mode_enabled", is_inference, METH_NOARGS,
                        "Whether tensors are made without what autograd needs.\n"
                        "\n"
                        ">>> with flambeau.inference_mode():\n"
                        "...     flambeau.is_inference_mode_enabled()\n"
                        "True\n"
                        "\n"
                        "See also: inference_mode"},
                       {"_set_inference_mode", set_inference, METH_O, nullptr},
                       {"_set_anomaly_mode", set_anomaly, METH_VARARGS, nullptr},
                       {"_get_anomaly_mode", get_anomaly, METH_NOARGS, nullptr},
                       {"_queue_callback", queue_callback, METH_O, nullptr},
                       {"_current_autograd_node", current_node, METH_NOARGS, nullptr},
                       {"_in_backward", in_backward, METH_NOARGS, nullptr},
                       {"_current_graph_task_id", current_run, METH_NOARGS, nullptr},
                       {"_get_current_graph_task_keep_graph", current_run_keeps_graph, METH_NOARGS, nullptr},
                       {"_backward_is_partial", current_run_is_partial, METH_NOARGS, nullptr},
                       {"_will_engine_execute_node", will_run, METH_O, nullptr},
                       {"_node_trace", node_trace, METH_O, nullptr},
                       {"_node_outputs", node_outputs, METH_O, nullptr},
                       {"_use_native_derivatives", choose_derivatives, METH_O, nullptr},
                       {"_scatter_window", scatter_window, METH_VARARGS, nullptr},
                       {"_detach_", detach_inplace, METH_O, nullptr},
                       {"_check_inplace", check_inplace, METH_VARARGS, nullptr},
                       {"_gradient_facts", gradient_facts, METH_O, nullptr},
                       {"_mark_spent", reinterpret_cast<PyCFunction>(mark_spent), METH_FASTCALL, nullptr},
                       {"_set_version", set_version, METH_VARARGS, nullptr},
                       {}};

}  // namespace

void add_autograd_tools(PyObject* module) {
  check(PyModule_AddFunctions(module, tools));
  autograd::capture_trace = trace_of_caller;
  autograd::report_trace = tell_trace;
}

}  // namespace fl::py

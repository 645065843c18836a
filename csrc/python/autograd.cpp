// Autograd as Python sees it: attributes and hooks of tensors, saved tensors, and the engine's entry. Nodes
// and the class of hooks are in autograd_nodes.cpp.
#include "autograd/node.h"
#include "autograd/set_data.h"
#include "compiled/kept_value.h"
#include "core/changes.h"
#include "dispatch/builtin.h"
#include "dispatch/kernel.h"
#include "python/autograd_nodes.h"
#include "python/library.h"
#include "python/parse.h"

namespace fl::py {

using autograd::Edge;
using autograd::Node;

Object tuple_of(const std::vector<Tensor>& list) {
  Object t = own(PyTuple_New(list.size()));
  for (size_t i = 0; i < list.size(); ++i) PyTuple_SET_ITEM(t.get(), i, check(wrap(list[i])));
  return t;
}

namespace {

// ---------------------------------------------------------------- nodes made in Python

// _make_node(name, callback, on_release, inputs): inputs are tensors or None.
PyObject* make_node(PyObject*, PyObject* args) {
  const char* name;
  PyObject *callback, *release, *inputs;
  if (!PyArg_ParseTuple(args, "sOOO", &name, &callback, &release, &inputs)) return nullptr;
  return guarded([&]() -> PyObject* {
    Ref<Node> node(new PyNode(name, callback, release));
    Object fast = own(PySequence_Fast(inputs, "[autograd] expected a sequence of inputs"));
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast.get()); ++i) {
      PyObject* o = PySequence_Fast_GET_ITEM(fast.get(), i);
      node->next.push_back(o == Py_None || !is_tensor(o) ? Edge() : autograd::gradient_edge(unwrap(o)));
    }
    return wrap_node(node);
  });
}
// _attach(node, tensor, inplace): the tensor becomes an output of the node; returns its index.
PyObject* attach_output(PyObject*, PyObject* args) {
  PyObject *node, *tensor;
  int inplace = 0;
  if (!PyArg_ParseTuple(args, "OO|p", &node, &tensor, &inplace)) return nullptr;
  return guarded([&]() -> PyObject* {
    Ref<Node> n = node_of(node);
    if (tensor == Py_None) {
      n->outputs.emplace_back();
      return PyLong_FromSize_t(n->outputs.size() - 1);
    }
    const Tensor t = unwrap(tensor);
    const uint32_t at = n->add_output(t);
    if (is_floating(t.dtype()) || is_complex(t.dtype())) {
      if (inplace)
        autograd::rebase_history(t, n, at);
      else if (inplace >= 0) {
        autograd::set_history(t, n, at);
        autograd::note_custom_function(t);
      }
    }
    return PyLong_FromUnsignedLong(at);
  });
}
PyObject* add_output_only(PyObject*, PyObject* args) {
  PyObject *node, *tensor;
  if (!PyArg_ParseTuple(args, "OO", &node, &tensor)) return nullptr;
  return guarded(
      [&]() -> PyObject* { return PyLong_FromUnsignedLong(node_of(node)->add_output(unwrap(tensor))); });
}

// ---------------------------------------------------------------- the engine

struct WithoutGIL {
  PyThreadState* state = PyEval_SaveThread();
  ~WithoutGIL() { PyEval_RestoreThread(state); }
};

std::vector<Tensor> run_engine(const std::vector<Edge>& edges, std::vector<Tensor> values,
                               const std::vector<Edge>& wanted, const autograd::BackwardOptions& options) {
  const WithoutGIL others_may_run;
  std::vector<Tensor> out = autograd::run_backward(edges, std::move(values), wanted, options);
  values.clear();
  return out;
}

// _run_backward(roots, grads, inputs or None, retain_graph, create_graph, accumulate)
PyObject* run_backward(PyObject*, PyObject* args) {
  PyObject *roots, *grads, *inputs;
  int retain, create, accumulate;
  if (!PyArg_ParseTuple(args, "OOOppp", &roots, &grads, &inputs, &retain, &create, &accumulate))
    return nullptr;
  return guarded([&]() -> PyObject* {
    const SavedHooksKept restores_hooks;
    std::vector<Edge> edges, wanted;
    std::vector<Tensor> values;
    Object r = own(PySequence_Fast(roots, "[backward] expected a sequence of tensors"));
    Object g = own(PySequence_Fast(grads, "[backward] expected a sequence of gradients"));
    const auto edge_of = [](PyObject* o) -> Edge {
      if (is_tensor(o)) return autograd::gradient_edge(unwrap(o));
      if (PyTuple_Check(o))  // GradientEdge(node, output_nr)
        return Edge{node_of(PyTuple_GET_ITEM(o, 0)),
                    static_cast<uint32_t>(int_value(PyTuple_GET_ITEM(o, 1)))};
      fail(ErrorKind::Type, "[backward] expected tensors, got ", std::string(Py_TYPE(o)->tp_name));
    };
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(r.get()); ++i) {
      edges.push_back(edge_of(PySequence_Fast_GET_ITEM(r.get(), i)));
      FL_CHECK(bool(edges.back()),
               "[backward] expected tensors that require grad and have a grad_fn, got element ",
               static_cast<int64_t>(i),
               " of tensors, which does not require grad and does not have a grad_fn; was it computed under "
               "no_grad(), from detached tensors, or from parameters without requires_grad?");
      PyObject* o = PySequence_Fast_GET_ITEM(g.get(), i);
      values.push_back(o == Py_None ? Tensor() : unwrap(o));
    }
    if (inputs != Py_None) {
      Object in = own(PySequence_Fast(inputs, "[backward] expected a sequence of inputs"));
      for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(in.get()); ++i) {
        wanted.push_back(edge_of(PySequence_Fast_GET_ITEM(in.get(), i)));
        FL_CHECK(bool(wanted.back()),
                 "[grad] expected inputs that require grad, got one that does not at index ",
                 static_cast<int64_t>(i));
      }
    }
    autograd::BackwardOptions options;
    options.retain_graph = retain;
    options.create_graph = create;
    options.accumulate = accumulate;
    return tuple_of(run_engine(edges, std::move(values), wanted, options)).release();
  });
}

// _backward_of_loss(loss, retain_graph, create_graph) -> whether it ran: what most calls of
// Tensor.backward() are, a real scalar with history whose gradient is one. Others are for Python to check.
PyObject* backward_of_loss(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  return guarded([&]() -> PyObject* {
    FL_CHECK_KIND(nargs == 3, Type, "[backward] expected three arguments, got ", static_cast<int64_t>(nargs));
    if (Py_TYPE(args[0]) != tensor_type) Py_RETURN_FALSE;
    const Tensor loss = unwrap(args[0]);
    const Edge edge = autograd::gradient_edge(loss);
    if (!edge || loss.numel() != 1 || !is_floating(loss.dtype())) Py_RETURN_FALSE;
    autograd::BackwardOptions options;
    options.retain_graph = args[1] == Py_True;
    options.create_graph = args[2] == Py_True;
    options.accumulate = true;
    const SavedHooksKept restores_hooks;
    static const Operator& ones_like = OperatorTable::get().at("ones_like");
    run_engine({edge},
               {call_tensor(ones_like, loss, Value(), Value(), Value(), Value(), MemoryFormat::Preserve)}, {},
               options);
    Py_RETURN_TRUE;
  });
}

// ---------------------------------------------------------------- attributes and methods of tensors

PyObject* get_requires_grad(PyObject* self, void*) {
  return guarded([&] { return PyBool_FromLong(autograd::wants_grad(unwrap(self))); });
}
int set_requires_grad(PyObject* self, PyObject* value, void*) {
  return guarded_int([&] {
    FL_CHECK(value, "[requires_grad] expected a bool, got a deletion: it can be set, not removed");
    FL_CHECK_KIND(PyBool_Check(value) || PyLong_Check(value), Type,
                  "[requires_grad] expected a bool, got another type");
    autograd::set_requires_grad(unwrap(self), PyObject_IsTrue(value));
    return 0;
  });
}
PyObject* get_grad(PyObject* self, void*) {
  const Tensor t = unwrap(self);
  const auto* m = autograd::meta_of(t);
  if (m && m->grad.defined()) return wrap(m->grad);
  if (m && !m->retains_grad && !autograd::is_leaf(t) &&
      PyErr_WarnEx(
          PyExc_UserWarning,
          "[grad] expected a leaf, got the result of an operator: backward() gives it no gradient unless "
          "retain_grad() was called on it before",
          1) < 0)
    return nullptr;
  Py_RETURN_NONE;
}
int set_grad(PyObject* self, PyObject* value, void*) {
  return guarded_int([&] {
    const Tensor t = unwrap(self);
    if (value == nullptr || value == Py_None) {
      if (auto* m = autograd::meta_of(t)) m->grad = Tensor();
      return 0;
    }
    FL_CHECK_KIND(is_tensor(value), Type, "[grad] expected a Tensor or None, got ",
                  std::string(Py_TYPE(value)->tp_name),
                  ": assigned grad expected to be a Tensor or None but got grad of type ",
                  std::string(Py_TYPE(value)->tp_name));
    FL_CHECK(value != self, "[grad] expected another tensor than the one it belongs to, got itself");
    const Tensor g = unwrap(value);
    FL_CHECK(g.sizes() == t.sizes(), "[grad] expected a gradient of shape ", t.sizes(), ", got ", g.sizes());
    FL_CHECK(g.dtype() == t.dtype(), "[grad] expected a gradient of dtype ", name_of(t.dtype()), ", got ",
             name_of(g.dtype()));
    FL_CHECK(g.device() == t.device(), "[grad] expected a gradient on ", to_string(t.device()), ", got ",
             to_string(g.device()));
    autograd::ensure_meta(t).grad = g;
    return 0;
  });
}
PyObject* get_grad_fn(PyObject* self, void*) {
  return guarded([&] { return wrap_node(autograd::grad_fn_of(unwrap(self))); });
}
PyObject* get_is_leaf(PyObject* self, void*) {
  return guarded([&] { return PyBool_FromLong(autograd::is_leaf(unwrap(self))); });
}
PyObject* get_output_nr(PyObject* self, void*) {
  const auto* m = autograd::meta_of(unwrap(self));
  return PyLong_FromUnsignedLong(m ? m->output : 0);
}
PyObject* get_base(PyObject* self, void*) {
  const auto* m = autograd::meta_of(unwrap(self));
  if (!m || !m->base.defined()) Py_RETURN_NONE;
  return wrap(m->base);
}
PyObject* get_retains_grad(PyObject* self, void*) {
  const auto* m = autograd::meta_of(unwrap(self));
  return PyBool_FromLong(m && m->retains_grad);
}
PyObject* get_data(PyObject* self, void*) {
  return guarded([&]() -> PyObject* {
    const Tensor t = unwrap(self);
    Tensor out = autograd::detach(t);
    out->own_version = compiled::version_beside(t);
    out->version_offset = 0;
    return wrap(out);
  });
}
int set_data(PyObject* self, PyObject* value, void*) {
  return guarded_int([&] {
    FL_CHECK(value, "[data] expected a Tensor, got a deletion: it can be replaced, not removed");
    FL_CHECK_KIND(is_tensor(value), Type, "[data] expected a Tensor, got ",
                  std::string(Py_TYPE(value)->tp_name));
    autograd::set_data(unwrap(self), unwrap(value));
    return 0;
  });
}

PyGetSetDef getset[] = {
    {"requires_grad", get_requires_grad, set_requires_grad,
     "Whether backward() finds a gradient for this tensor. A leaf may set it.", nullptr},
    {"grad", get_grad, set_grad,
     "The gradient that backward() added up, or None. optimizer.zero_grad() resets it.", nullptr},
    {"_grad", get_grad, set_grad, nullptr, nullptr},
    {"grad_fn", get_grad_fn, nullptr,
     "The node of the autograd graph that made this tensor; None for a leaf.", nullptr},
    {"is_leaf", get_is_leaf, nullptr,
     "Whether the user made this tensor, not an operator that records gradients: backward() keeps .grad of "
     "leaves alone.",
     nullptr},
    {"output_nr", get_output_nr, nullptr, "Which result of its grad_fn this tensor is.", nullptr},
    {"_base", get_base, nullptr, nullptr, nullptr},
    {"retains_grad", get_retains_grad, nullptr,
     "Whether backward() keeps .grad of this result of an operator, because retain_grad() asked for it.",
     nullptr},
    {"data", get_data, set_data,
     "The same elements without history. Writes to it are not seen by autograd; detach() is safer.", nullptr},
    {}};

// Raises inside of a function that a transform was given, whose tensors have gradients of the transform.
void refuse_inside_transforms(const char* method, const char* instead) {
  const Object module = own(PyImport_ImportModule("flambeau.autograd.transforming"));
  own(PyObject_CallMethod(module.get(), "refuse", "ss", method, instead));
}
PyObject* requires_grad_(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return guarded([&]() -> PyObject* {
    const Py_ssize_t total = nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
    FL_CHECK_KIND(total == 0 || PyBool_Check(args[0]), Type, "[requires_grad_] expected a bool, got ",
                  std::string(Py_TYPE(args[0])->tp_name));
    const bool wanted = total == 0 || args[0] == Py_True;
    if (wanted && autograd::wants_grad(unwrap(self)))  // of a tensor of its own the function may ask it
      refuse_inside_transforms("Tensor.requires_grad_()",
                               "Call it outside, or transform a function of this tensor.");
    autograd::set_requires_grad(unwrap(self), wanted);
    return Py_NewRef(self);
  });
}
PyObject* forget_accumulator(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    autograd::forget_accumulator(unwrap(self));
    return Py_NewRef(Py_None);
  });
}
PyObject* retain_grad(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    const Tensor t = unwrap(self);
    refuse_inside_transforms("Tensor.retain_grad()",
                             "Return the tensor as well, or transform a function of it.");
    autograd::retain_grad(t);
    Py_RETURN_NONE;
  });
}
PyObject* register_hook(PyObject* self, PyObject* fn) {
  return guarded([&]() -> PyObject* {
    const Tensor t = unwrap(self);
    FL_CHECK(autograd::wants_grad(t),
             "[register_hook] expected a tensor that requires grad, got one that does not: cannot register a "
             "hook on a tensor that doesn't require gradient");
    Ref<autograd::Hook> hook(new PyHook(fn, PyHook::Tensor1));
    auto& m = autograd::ensure_meta(t);
    if (autograd::is_leaf(t)) {
      m.more().hooks.push_back(hook);
      count_tensor_change();
      return make_remover({Ref<Node>(), t, hook.get()});
    }
    Ref<Node> node = autograd::grad_fn_of(t);
    node->more().tensor_hooks.push_back({m.output, hook});
    return make_remover({node, Tensor(), hook.get()});
  });
}
PyObject* has_hooks(PyObject* self, PyObject*) {
  return PyBool_FromLong(autograd::has_hooks(*impl_of(self)));
}
PyObject* leaf_hooks(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    const Tensor t = unwrap(self);
    Object before = own(PyList_New(0)), after = own(PyList_New(0));
    const auto* m = static_cast<const autograd::Meta*>(t.impl()->autograd.get());
    const auto list = [](const std::vector<Ref<autograd::Hook>>& hooks, PyObject* into) {
      for (const auto& hook : hooks) {
        const auto* python = dynamic_cast<const PyHook*>(hook.get());
        auto* owner = python ? python->fn : static_cast<PyObject*>(hook->python);
        check(PyList_Append(into, owner ? owner : Py_None));
      }
    };
    if (m && m->extras) {
      list(m->extras->hooks, before.get());
      list(m->extras->post_accumulate, after.get());
    }
    return Py_BuildValue("(OO)", before.get(), after.get());
  });
}
PyObject* register_post_accumulate(PyObject* self, PyObject* fn) {
  return guarded([&]() -> PyObject* {
    const Tensor t = unwrap(self);
    FL_CHECK(t.requires_grad() && autograd::is_leaf(t),
             "[register_post_accumulate_grad_hook] expected a leaf that requires grad, got another tensor");
    Ref<autograd::Hook> hook(new PyHook(fn, PyHook::PostAccumulate));
    autograd::ensure_meta(t).more().post_accumulate.push_back(hook);
    count_tensor_change();
    return make_remover({Ref<Node>(), t, hook.get()});
  });
}
PyObject* gradient_edge_of(PyObject*, PyObject* o) {
  return guarded([&]() -> PyObject* {
    const Edge e = autograd::gradient_edge(unwrap(o));
    FL_CHECK(bool(e), "[get_gradient_edge] expected a tensor that requires grad, got one that does not");
    Object node = own(wrap_node(e.node));
    return Py_BuildValue("(OI)", node.get(), e.input);
  });
}
PyMethodDef methods[] = {
    {"_forget_accumulator", forget_accumulator, METH_NOARGS, nullptr},
    {"requires_grad_", reinterpret_cast<PyCFunction>(requires_grad_), METH_FASTCALL | METH_KEYWORDS, nullptr},
    {"retain_grad", retain_grad, METH_NOARGS, nullptr},
    {"_register_hook", register_hook, METH_O, nullptr},
    {"_has_hooks", has_hooks, METH_NOARGS, "Whether functions run when a gradient arrives here."},
    {"_leaf_hooks", leaf_hooks, METH_NOARGS, "A leaf's hooks before and after its gradient is accumulated."},
    {"_register_post_accumulate_grad_hook", register_post_accumulate, METH_O, nullptr},
    {}};

PyMethodDef functions[] = {
    {"_run_backward", run_backward, METH_VARARGS, nullptr},
    {"_backward_of_loss", reinterpret_cast<PyCFunction>(backward_of_loss), METH_FASTCALL, nullptr},
    {"_make_node", make_node, METH_VARARGS, nullptr},
    {"_attach_output", attach_output, METH_VARARGS, nullptr},
    {"_add_output", add_output_only, METH_VARARGS, nullptr},
    {"_gradient_edge", gradient_edge_of, METH_O, nullptr},
    {}};

}  // namespace

int traverse_autograd(TensorImpl* impl, visitproc visit, void* arg) {
  auto* m = static_cast<autograd::Meta*>(impl->autograd.get());
  const auto visit_hook = [&](const Ref<autograd::Hook>& hook) {
    Py_VISIT(static_cast<PyHook*>(hook.get())->fn);
    return 0;
  };
  if (m->extras) {
    for (const auto& h : m->extras->hooks)
      if (int stop = visit_hook(h)) return stop;
    for (const auto& h : m->extras->post_accumulate)
      if (int stop = visit_hook(h)) return stop;
  }
  // What only this tensor's node holds.
  return m->grad_fn && m->grad_fn->use_count() == 1 ? traverse_node(*m->grad_fn, visit, arg) : 0;
}

void clear_autograd(TensorImpl* impl) {
  auto* m = static_cast<autograd::Meta*>(impl->autograd.get());
  m->extras.reset();
  if (m->grad_fn && m->grad_fn->use_count() == 1) m->grad_fn = Ref<Node>();
}

void add_autograd(PyObject* module) {
  add_nodes(module);
  check(PyModule_AddFunctions(module, functions));
  make_overridable(getset);
  for (PyGetSetDef* d = getset; d->name; ++d) {
    Object descriptor = own(PyDescr_NewGetSet(tensor_type, d));
    check(PyObject_SetAttrString(reinterpret_cast<PyObject*>(tensor_type), d->name, descriptor.get()));
  }
  make_overridable(tensor_type, methods);
  name_attributes(tensor_type);
  autograd::install_kernels();
  autograd::install_pointwise_derivatives();
  add_derivatives();
  autograd::install_native_derivatives();
  add_autograd_tools(module);
  add_saved_tensors(module);
}

}  // namespace fl::py

// Nodes of the graph as Python objects, the hooks on them, and nodes made in Python.
#include "python/autograd_nodes.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <unordered_map>

#include "autograd/node_names.h"
#include "core/changes.h"
#include "python/library.h"
#include "python/parse.h"

namespace fl::py {

using autograd::Node;

namespace {

struct NodeObject {
  PyObject_HEAD Node* node;  // owned
};
PyTypeObject* node_type;

}  // namespace

// Each kind of node has a class of its own, so that type(grad_fn).__name__ says what it is.
static PyTypeObject* type_of_node(const std::string& name) {
  static auto* types = new std::unordered_map<std::string, PyTypeObject*>;
  PyTypeObject*& type = (*types)[name];
  if (!type) {
    static auto* names = new std::deque<std::string>;
    names->push_back("torch.autograd.graph." + name);
    PyType_Slot slots[] = {{0, nullptr}};
    PyType_Spec spec{names->back().c_str(), 0, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                     slots};
    type = reinterpret_cast<PyTypeObject*>(
        check(PyType_FromSpecWithBases(&spec, reinterpret_cast<PyObject*>(node_type))));
  }
  return type;
}

// A node keeps no reference to its Python object; the object is found again while it lives.
PyObject* wrap_node(const Ref<Node>& node) {
  if (!node) Py_RETURN_NONE;
  if (node->python) return Py_NewRef(static_cast<PyObject*>(node->python));
  PyTypeObject* type = type_of_node(node->name());
  auto* o = reinterpret_cast<NodeObject*>(check(type->tp_alloc(type, 0)));
  o->node = node.get();
  o->node->retain();
  node->python = o;
  return reinterpret_cast<PyObject*>(o);
}
Ref<Node> node_of(PyObject* o) {
  FL_CHECK_KIND(PyType_IsSubtype(Py_TYPE(o), node_type), Type, "[autograd] expected a graph node, got ",
                std::string(Py_TYPE(o)->tp_name));
  return Ref<Node>(reinterpret_cast<NodeObject*>(o)->node);
}

int traverse_node(const Node& node, visitproc visit, void* arg) {
  const auto visit_hook = [&](const Ref<autograd::Hook>& hook) {
    Py_VISIT(static_cast<PyHook*>(hook.get())->fn);
    return 0;
  };
  if (const auto* extras = node.extras.get()) {
    for (const auto& [at, hook] : extras->tensor_hooks)
      if (int stop = visit_hook(hook)) return stop;
    for (const auto& hook : extras->pre_hooks)
      if (int stop = visit_hook(hook)) return stop;
    for (const auto& hook : extras->post_hooks)
      if (int stop = visit_hook(hook)) return stop;
  }
  if (auto* from_python = dynamic_cast<const PyNode*>(&node)) {
    Py_VISIT(from_python->callback);
    Py_VISIT(from_python->on_release);
  }
  return 0;
}

namespace {

// The object of a node that the graph holds as well is alive with it, and so is what the node holds.
int node_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  const Node* node = reinterpret_cast<NodeObject*>(self)->node;
  return node && node->use_count() == 1 ? traverse_node(*node, visit, arg) : 0;
}

int node_clear(PyObject* self) {
  Node* node = reinterpret_cast<NodeObject*>(self)->node;
  if (!node || node->use_count() != 1) return 0;
  node->extras.reset();
  if (auto* from_python = dynamic_cast<PyNode*>(node)) {
    Py_SETREF(from_python->callback, Py_NewRef(Py_None));
    Py_SETREF(from_python->on_release, Py_NewRef(Py_None));
  }
  return 0;
}

void node_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  auto* o = reinterpret_cast<NodeObject*>(self);
  PyTypeObject* type = Py_TYPE(self);
  if (o->node) {
    o->node->python = nullptr;
    o->node->release();
  }
  type->tp_free(self);
  Py_DECREF(type);
}

Node& self_node(PyObject* self) {
  return *reinterpret_cast<NodeObject*>(self)->node;
}

PyObject* node_name(PyObject* self, PyObject*) {
  return PyUnicode_FromString(self_node(self).name().c_str());
}
PyObject* node_repr(PyObject* self) {
  return PyUnicode_FromFormat("<%s object at %p>", self_node(self).name().c_str(), &self_node(self));
}
PyObject* node_next(PyObject* self, void*) {
  return guarded([&]() -> PyObject* {
    const auto& next = autograd::shown(self_node(self)).next;
    Object tuple = own(PyTuple_New(next.size()));
    for (size_t i = 0; i < next.size(); ++i) {
      Object node = own(wrap_node(next[i].node));
      PyTuple_SET_ITEM(tuple.get(), i, check(Py_BuildValue("(OI)", node.get(), next[i].input)));
    }
    return tuple.release();
  });
}
PyObject* node_sequence(PyObject* self, PyObject*) {
  return PyLong_FromUnsignedLongLong(self_node(self).sequence);
}
PyObject* node_set_sequence(PyObject* self, PyObject* number) {
  return guarded([&]() -> PyObject* {
    self_node(self).sequence = int_value(number);
    Py_RETURN_NONE;
  });
}
PyObject* node_variable(PyObject* self, void*) {
  auto* leaf = dynamic_cast<autograd::Accumulate*>(&self_node(self));
  if (leaf) return wrap(leaf->variable);
  PyErr_SetString(PyExc_AttributeError, "variable: only AccumulateGrad nodes have it");
  return nullptr;
}
PyObject* node_metadata(PyObject* self, void*) {
  return guarded([&]() -> PyObject* {
    Node& node = self_node(self);
    Ref<Counted>& metadata = node.more().metadata;
    if (!metadata) {
      Object dict = own(PyDict_New());
      metadata = Ref<Counted>(new PyOpaque(dict.get()));
    }
    return Py_NewRef(static_cast<PyOpaque*>(metadata.get())->object);
  });
}

}  // namespace

// ---------------------------------------------------------------- hooks

PyHook::~PyHook() {
  if (!Py_IsInitialized()) return;
  WithGIL gil;
  Py_DECREF(fn);
}

void PyHook::replace(std::vector<Tensor>& grads, PyObject* result) {
  if (result == Py_None) return;
  if (is_tensor(result)) {
    FL_CHECK(grads.size() == 1, "[hook] expected ", static_cast<int64_t>(grads.size()),
             " gradients back, got one");
    grads[0] = unwrap(result);
    return;
  }
  FL_CHECK_KIND((PyTuple_Check(result) || PyList_Check(result)) &&
                    PySequence_Fast_GET_SIZE(result) == static_cast<Py_ssize_t>(grads.size()),
                Type, "[hook] expected None or ", static_cast<int64_t>(grads.size()), " gradients back, got ",
                std::string(Py_TYPE(result)->tp_name));
  for (size_t i = 0; i < grads.size(); ++i) {
    PyObject* o = PySequence_Fast_GET_ITEM(result, i);
    grads[i] = o == Py_None ? Tensor() : unwrap(o);
  }
}

void PyHook::call(std::vector<Tensor>& grads, const std::vector<Tensor>* inputs) {
  WithGIL gil;
  Object result;
  switch (kind) {
    case Tensor1: {
      if (!grads[0].defined()) return;
      Object g = own(wrap(grads[0]));
      result = own(PyObject_CallOneArg(fn, g.get()));
      if (result.get() != Py_None) {
        FL_CHECK_KIND(is_tensor(result.get()), Type, "[hook] expected None or a Tensor back, got ",
                      std::string(Py_TYPE(result.get())->tp_name));
        const Tensor fresh = unwrap(result.get());
        FL_CHECK(fresh.sizes() == grads[0].sizes(), "[hook] expected a gradient of shape ", grads[0].sizes(),
                 " back, got ", fresh.sizes());
        grads[0] = fresh;
      }
      return;
    }
    case PostAccumulate: {
      Object t = own(wrap(grads[0]));
      result = own(PyObject_CallOneArg(fn, t.get()));
      FL_CHECK_KIND(result.get() == Py_None || is_tensor(result.get()), Type,
                    "[hook] expected a post accumulate grad hook to return None, got ",
                    std::string(Py_TYPE(result.get())->tp_name));
      FL_CHECK(result.get() == Py_None,
               "[hook] expected None, got a Tensor: Tensor post accumulate grad hooks should return None.");
      return;
    }
    case Pre: {
      Object t = tuple_of(grads);
      result = own(PyObject_CallOneArg(fn, t.get()));
      break;
    }
    case Post: {
      Object out = tuple_of(grads), in = tuple_of(*inputs);
      result = own(PyObject_CallFunctionObjArgs(fn, out.get(), in.get(), nullptr));
      break;
    }
  }
  replace(grads, result.get());
}

namespace {

void remove_hook(Remover& r) {
  const auto drop = [&](auto& list) {
    list.erase(std::remove_if(list.begin(), list.end(),
                              [&](auto& h) {
                                if constexpr (std::is_same_v<std::decay_t<decltype(h)>, Ref<autograd::Hook>>)
                                  return h.get() == r.hook;
                                else
                                  return h.second.get() == r.hook;
                              }),
               list.end());
  };
  if (r.node && r.node->extras) {
    drop(r.node->extras->pre_hooks);
    drop(r.node->extras->post_hooks);
    drop(r.node->extras->tensor_hooks);
  }
  if (r.tensor.defined())
    if (auto* m = autograd::meta_of(r.tensor); m && m->extras) {
      drop(m->extras->hooks);
      drop(m->extras->post_accumulate);
    }
  count_tensor_change();
}

}  // namespace

PyObject* make_remover(Remover r) {
  static PyMethodDef def{"remove",
                         [](PyObject* capsule, PyObject*) -> PyObject* {
                           auto* r = static_cast<Remover*>(PyCapsule_GetPointer(capsule, "hook"));
                           if (!r) return nullptr;
                           remove_hook(*r);
                           Py_RETURN_NONE;
                         },
                         METH_NOARGS, nullptr};
  Object capsule = own(PyCapsule_New(new Remover(std::move(r)), "hook", [](PyObject* c) {
    delete static_cast<Remover*>(PyCapsule_GetPointer(c, "hook"));
  }));
  return PyCFunction_New(&def, capsule.get());
}

// ---------------------------------------------------------------- nodes made in Python (autograd.Function)

PyNode::~PyNode() {
  if (!Py_IsInitialized()) return;
  WithGIL gil;
  Py_DECREF(callback);
  Py_DECREF(on_release);
}

std::vector<Tensor> PyNode::apply(std::vector<Tensor>&& grads) {
  WithGIL gil;
  Object in = tuple_of(grads);
  Object self = own(wrap_node(Ref<Node>(this)));
  Object result = own(PyObject_CallFunctionObjArgs(callback, self.get(), in.get(), nullptr));
  std::vector<Tensor> out(next.size());
  if (result.get() == Py_None) return out;
  Object fast = own(PySequence_Fast(result.get(), "[Function] expected a tuple of gradients"));
  const size_t n = PySequence_Fast_GET_SIZE(fast.get());
  for (size_t i = 0; i < out.size() && i < n; ++i) {
    PyObject* o = PySequence_Fast_GET_ITEM(fast.get(), i);
    if (o == Py_None) continue;
    FL_CHECK_KIND(is_tensor(o), Type, "[", label, "] expected backward to return tensors or None, got ",
                  std::string(Py_TYPE(o)->tp_name));
    out[i] = unwrap(o);
  }
  return out;
}

void PyNode::release_saved() {
  if (on_release == Py_None) return;
  WithGIL gil;
  own(PyObject_CallNoArgs(on_release));
}

namespace {

PyObject* context_of(Node& node) {
  auto* from_python = dynamic_cast<PyNode*>(&node);
  return from_python && PyMethod_Check(from_python->callback) ? PyMethod_GET_SELF(from_python->callback)
                                                              : nullptr;
}

// ---------------------------------------------------------------- attributes of nodes

PyObject* node_add_hook(PyObject* self, PyObject* fn, PyHook::Kind kind) {
  return guarded([&]() -> PyObject* {
    Ref<Node> node(&self_node(self));
    Ref<autograd::Hook> hook(new PyHook(fn, kind));
    (kind == PyHook::Pre ? node->more().pre_hooks : node->more().post_hooks).push_back(hook);
    if (dynamic_cast<autograd::Accumulate*>(node.get())) count_tensor_change();
    return make_remover({node, Tensor(), hook.get()});
  });
}
PyObject* node_register_hook(PyObject* self, PyObject* fn) {
  return node_add_hook(self, fn, PyHook::Post);
}
PyObject* node_register_prehook(PyObject* self, PyObject* fn) {
  return node_add_hook(self, fn, PyHook::Pre);
}

// Saved values under the names of the schema: node._saved_self, node._saved_result, node._saved_dim ...
PyObject* node_getattro(PyObject* self, PyObject* name) {
  const char* text = PyUnicode_AsUTF8(name);
  const bool raw = text && !std::strncmp(text, "_raw_saved_", 11);
  if (raw || (text && !std::strncmp(text, "_saved_", 7))) {
    if (auto* node = dynamic_cast<autograd::OperatorNode*>(&self_node(self)))
      return guarded([&]() -> PyObject* {
        if (PyObject* saved = saved_of_node(*node, text + (raw ? 11 : 7), raw)) return saved;
        if (!PyErr_Occurred()) PyErr_SetObject(PyExc_AttributeError, name);
        throw PythonError();
      });
  }
  if (PyObject* attribute = PyObject_GenericGetAttr(self, name)) return attribute;
  // The node of a Function has the attributes of its context.
  PyObject* context = context_of(self_node(self));
  if (!context || !PyErr_ExceptionMatches(PyExc_AttributeError)) return nullptr;
  PyErr_Clear();
  return guarded([&]() -> PyObject* {
    if (text && std::strcmp(text, "saved_tensors") == 0)
      return PyObject_CallMethod(context, "_unpack", "O", self);
    return PyObject_GetAttr(context, name);
  });
}

PyObject* node_call(PyObject* self, PyObject* args, PyObject*) {
  return guarded([&]() -> PyObject* {
    const int64_t count = PyTuple_GET_SIZE(args), wanted = self_node(self).outputs.size();
    FL_CHECK_KIND(count == wanted, Type, "[", self_node(self).name(), "] expected ", wanted,
                  " arguments, got ", count, " instead");
    std::vector<Tensor> grads;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i) {
      PyObject* o = PyTuple_GET_ITEM(args, i);
      grads.push_back(o == Py_None ? Tensor() : unwrap(o));
    }
    std::vector<Tensor> out = self_node(self).apply(std::move(grads));
    if (out.size() == 1) return wrap(out[0]);
    return tuple_of(out).release();
  });
}

PyGetSetDef node_getset[] = {{"next_functions", node_next, nullptr, nullptr, nullptr},
                             {"metadata", node_metadata, nullptr, nullptr, nullptr},
                             {"variable", node_variable, nullptr, nullptr, nullptr},
                             {}};
PyMethodDef node_methods[] = {{"name", node_name, METH_NOARGS, nullptr},
                              {"_sequence_nr", node_sequence, METH_NOARGS, nullptr},
                              {"_set_sequence_nr", node_set_sequence, METH_O, nullptr},
                              {"_register_hook", node_register_hook, METH_O, nullptr},
                              {"_register_prehook", node_register_prehook, METH_O, nullptr},
                              {}};

}  // namespace

void add_nodes(PyObject* module) {
  PyType_Slot node_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(node_dealloc)},
                              {Py_tp_traverse, reinterpret_cast<void*>(node_traverse)},
                              {Py_tp_clear, reinterpret_cast<void*>(node_clear)},
                              {Py_tp_repr, reinterpret_cast<void*>(node_repr)},
                              {Py_tp_call, reinterpret_cast<void*>(node_call)},
                              {Py_tp_getattro, reinterpret_cast<void*>(node_getattro)},
                              {Py_tp_getset, node_getset},
                              {Py_tp_methods, node_methods},
                              {0, nullptr}};
  constexpr unsigned kFlags =
      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_HAVE_GC;
  PyType_Spec node_spec{"torch.autograd.graph.Node", sizeof(NodeObject), 0, kFlags, node_slots};
  node_type = reinterpret_cast<PyTypeObject*>(check(PyType_FromSpec(&node_spec)));
  check(PyModule_AddObjectRef(module, "Node", reinterpret_cast<PyObject*>(node_type)));
}

}  // namespace fl::py

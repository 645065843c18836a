// Tensors saved for backward as Python sees them: those of nodes and of Functions, and the hooks that pack
// and unpack them.
#include <cstring>

#include "python/autograd.h"
#include "python/library.h"

namespace fl::py {

namespace {

// A tensor saved for backward, with its version and history: an own one (of a Function), or one of a node.
struct SavedObject {
  PyObject_HEAD autograd::SavedTensor* saved;
  autograd::Node* node;  // held, when the saved tensor is its; else null
};
PyTypeObject* saved_type;

PyObject* make_saved(autograd::SavedTensor* saved, autograd::Node* node) {
  auto* o = reinterpret_cast<SavedObject*>(check(saved_type->tp_alloc(saved_type, 0)));
  o->saved = saved;
  o->node = node;
  if (node) node->retain();
  return reinterpret_cast<PyObject*>(o);
}
PyObject* save_tensor(PyObject*, PyObject* args) {
  PyObject* tensor;
  int is_output;
  if (!PyArg_ParseTuple(args, "Op", &tensor, &is_output)) return nullptr;
  return guarded([&]() -> PyObject* {
    auto saved =
        std::make_unique<autograd::SavedTensor>(tensor == Py_None ? Tensor() : unwrap(tensor), is_output);
    return make_saved(saved.release(), nullptr);
  });
}
PyObject* saved_unpack(PyObject* self, PyObject* args) {
  PyObject* node;
  const char* name;
  if (!PyArg_ParseTuple(args, "Os", &node, &name)) return nullptr;
  return guarded([&]() -> PyObject* {
    return wrap(reinterpret_cast<SavedObject*>(self)->saved->unpack(
        node == Py_None ? nullptr : node_of(node).get(), name));
  });
}
PyObject* saved_release(PyObject* self, PyObject*) {
  reinterpret_cast<SavedObject*>(self)->saved->reset();
  Py_RETURN_NONE;
}
void saved_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  auto* o = reinterpret_cast<SavedObject*>(self);
  if (o->node)
    o->node->release();
  else
    delete o->saved;
  type->tp_free(self);
  Py_DECREF(type);
}
PyObject* saved_new(PyTypeObject*, PyObject*, PyObject*) {
  PyErr_SetString(
      PyExc_RuntimeError,
      "[SavedTensor] expected operators to save tensors, got a call of the class: Trying to create "
      "a SavedTensor object from Python is forbidden.");
  return nullptr;
}

// saved_tensors_hooks: a stack of (pack, unpack) pairs, by thread.
thread_local std::vector<std::pair<Object, Object>>* saved_hooks = nullptr;
struct Packed final : Counted {
  Object value, unpack;
  Packed(const Tensor& t, PyObject* pack, const Object& unpack_fn) : unpack(unpack_fn) {
    Object o = own(wrap(t));
    const uint32_t version = t->version();
    const bool recording =
        std::exchange(thread_state().grad_mode, false);  // what it does is no part of the graph
    PyObject* const result = PyObject_CallOneArg(pack, o.get());
    thread_state().grad_mode = recording;
    value = own(result);
    FL_CHECK(
        t->version() == version,
        "[saved_tensors_hooks] expected a pack hook that leaves its input as it is, got a write to it: A "
        "saved tensor pack hook is modifying its input in place. Write to a clone() instead.");
  }
  ~Packed() override {
    if (!Py_IsInitialized()) return;
    WithGIL gil;
    value = Object();
    unpack = Object();
  }
};
Ref<Counted> pack(const Tensor& t) {
  if (!saved_hooks || saved_hooks->empty()) return {};
  WithGIL gil;
  const auto [pack_fn, unpack_fn] = saved_hooks->back();
  if (pack_fn.get() == Py_None) return {};
  if (PyUnicode_Check(pack_fn.get()))
    fail("[saved_tensors_hooks] ", std::string(PyUnicode_AsUTF8(pack_fn.get())));
  Ref<Packed> packed(new Packed(t, pack_fn.get(), unpack_fn));
  return Ref<Counted>(packed.get());
}
Tensor unpack(const Ref<Counted>& c) {
  WithGIL gil;
  auto* packed = static_cast<Packed*>(c.get());
  Object o = own(PyObject_CallOneArg(packed->unpack.get(), packed->value.get()));
  FL_CHECK_KIND(is_tensor(o.get()), Type, "[saved_tensors_hooks] expected unpack to return a Tensor, got ",
                std::string(Py_TYPE(o.get())->tp_name),
                ": Output of saved tensor unpack_hook expected to be a Tensor but got result of type ",
                std::string(Py_TYPE(o.get())->tp_name));
  return unwrap(o.get());
}
PyObject* push_saved_hooks(PyObject*, PyObject* args) {
  PyObject *a, *b;
  if (!PyArg_ParseTuple(args, "OO", &a, &b)) return nullptr;
  if (!saved_hooks) saved_hooks = new std::vector<std::pair<Object, Object>>;
  saved_hooks->emplace_back(Object::borrow(a), Object::borrow(b));
  autograd::pack_hooks_active = true;
  Py_RETURN_NONE;
}
PyObject* saved_hooks_depth(PyObject*, PyObject*) {
  return PyLong_FromSize_t(saved_hooks ? saved_hooks->size() : 0);
}

PyObject* pop_saved_hooks(PyObject*, PyObject*) {
  if (saved_hooks && !saved_hooks->empty()) saved_hooks->pop_back();
  autograd::pack_hooks_active = saved_hooks && !saved_hooks->empty();
  Py_RETURN_NONE;
}

PyObject* saved_register_hooks(PyObject* self, PyObject* args) {
  PyObject *pack_fn = nullptr, *unpack_fn = nullptr;
  if (!PyArg_UnpackTuple(args, "register_hooks", 0, 2, &pack_fn, &unpack_fn)) return nullptr;
  return guarded([&]() -> PyObject* {
    FL_CHECK_KIND(unpack_fn && PyCallable_Check(pack_fn) && PyCallable_Check(unpack_fn), Type,
                  "[register_hooks] expected a pack and an unpack function, got incompatible function "
                  "arguments");
    autograd::SavedTensor& saved = *reinterpret_cast<SavedObject*>(self)->saved;
    FL_CHECK(saved.defined(),
             "[register_hooks] expected a saved tensor, got None: Calling register_hooks on "
             "a saved tensor with value None is forbidden");
    FL_CHECK(!saved.released(),
             "[register_hooks] expected a saved tensor, got one that was freed: Calling "
             "register_hooks on a saved tensor after it has been freed");
    FL_CHECK(!saved.packed(),
             "[register_hooks] expected no hooks, got a second pair: Calling register_hooks "
             "on a saved tensor whose hooks have already been set");
    saved.pack(Ref<Counted>(new Packed(saved.kept(), pack_fn, Object::borrow(unpack_fn))));
    Py_RETURN_NONE;
  });
}

PyObject* saved_released(PyObject* self, void*) {
  return PyBool_FromLong(reinterpret_cast<SavedObject*>(self)->saved->released());
}

const char* const saved_doc =
    "A tensor that a node saves for backward.\n\n"
    ">>> y = flambeau.ones(1, requires_grad=True).exp()\n"
    ">>> saved = y.grad_fn._raw_saved_result\n"
    ">>> saved.register_hooks(lambda t: t.tolist(), flambeau.tensor)\n"
    ">>> y.grad_fn._saved_result\n"
    "tensor([2.7183], grad_fn=<ExpBackward0>)\n";

PyGetSetDef saved_getset[] = {{"released", saved_released, nullptr, nullptr, nullptr}, {}};
PyMethodDef saved_methods[] = {{"unpack", saved_unpack, METH_VARARGS, nullptr},
                               {"release", saved_release, METH_NOARGS, nullptr},
                               {"register_hooks", saved_register_hooks, METH_VARARGS,
                                "Packs the tensor by a function now, and unpacks it by another when backward "
                                "asks for it."},
                               {}};

PyMethodDef functions[] = {{"_save_tensor", save_tensor, METH_VARARGS, nullptr},
                           {"_push_saved_tensors_hooks", push_saved_hooks, METH_VARARGS, nullptr},
                           {"_pop_saved_tensors_hooks", pop_saved_hooks, METH_NOARGS, nullptr},
                           {"_saved_tensors_hooks_depth", saved_hooks_depth, METH_NOARGS, nullptr},
                           {}};

// What the tensors of one argument are given as: one, or a tuple for a list.
PyObject* saved_of_argument(autograd::OperatorNode& node, size_t argument, bool raw) {
  const size_t begin = node.arg_begin[argument], end = node.arg_begin[argument + 1];
  const auto one = [&](size_t at) {
    return raw ? make_saved(&node.saved_args[at], &node) : wrap(node.saved_arg(at));
  };
  if (!node.op->schema.args[argument].list) return one(begin);
  Object tuple = own(PyTuple_New(end - begin));
  for (size_t i = begin; i < end; ++i) PyTuple_SET_ITEM(tuple.get(), i - begin, check(one(i)));
  return tuple.release();
}

// Sizes of arguments: NAME_sym_sizes, NAME_sym_sizes_opt, NAME_sym_argsize_K, NAME_sym_argsize_minus_K.
PyObject* size_of_argument(const autograd::OperatorNode& node, size_t argument, const char* rest) {
  const bool present = node.has(argument);
  const Dims none{};
  const Dims& sizes = present ? node.inputs[node.arg_begin[argument]].sizes : none;
  if (!std::strcmp(rest, "_sym_sizes") || !std::strcmp(rest, "_sym_sizes_opt")) {
    if (present) return make_size(sizes);
    return Py_BuildValue("(i)", 0);
  }
  if (std::strncmp(rest, "_sym_argsize_", 13)) return nullptr;
  const bool from_end = !std::strncmp(rest + 13, "minus_", 6);
  const int64_t k = std::atoll(rest + (from_end ? 19 : 13)), n = sizes.size();
  const int64_t at = from_end ? n - k : k;
  return at < 0 || at >= n ? nullptr : PyLong_FromLongLong(sizes[at]);
}

}  // namespace

SavedHooksKept::SavedHooksKept() {
  if (saved_hooks) before = *saved_hooks;
}
SavedHooksKept::~SavedHooksKept() {
  if (!saved_hooks) return;
  saved_hooks->swap(before);
  autograd::pack_hooks_active = !saved_hooks->empty();
}

PyObject* saved_of_node(autograd::OperatorNode& node, const char* name, bool raw) {
  const auto& args = node.op->schema.args;
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i].name == name) {
      if (node.has(i)) return saved_of_argument(node, i, raw);
      return raw ? nullptr : to_python(node.args[i]);
    }
    if (!raw && !std::strncmp(name, args[i].name.c_str(), args[i].name.size()))
      if (PyObject* size = size_of_argument(node, i, name + args[i].name.size())) return size;
  }
  if (std::strcmp(name, "result") || node.saved_results.empty()) return nullptr;
  return raw ? make_saved(&node.saved_results[0], &node) : wrap(node.saved_result(0));
}

void add_saved_tensors(PyObject* module) {
  PyType_Slot slots[] = {{Py_tp_doc, const_cast<char*>(saved_doc)},
                         {Py_tp_dealloc, reinterpret_cast<void*>(saved_dealloc)},
                         {Py_tp_new, reinterpret_cast<void*>(saved_new)},
                         {Py_tp_methods, saved_methods},
                         {Py_tp_getset, saved_getset},
                         {0, nullptr}};
  PyType_Spec spec{"torch._C._autograd.SavedTensor", sizeof(SavedObject), 0, Py_TPFLAGS_DEFAULT, slots};
  saved_type = reinterpret_cast<PyTypeObject*>(check(PyType_FromSpec(&spec)));
  check(PyModule_AddObjectRef(module, "SavedTensor", reinterpret_cast<PyObject*>(saved_type)));
  check(PyModule_AddFunctions(module, functions));
  autograd::pack_hook = pack;
  autograd::unpack_hook = unpack;
}

}  // namespace fl::py

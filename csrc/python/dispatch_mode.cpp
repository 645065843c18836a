// __torch_dispatch__: the kernel of the Python key, which hands a call to the innermost mode or to the
// subclasses among the arguments, and wrapper tensors that have a shape but no memory of their own.
#include <sys/mman.h>

#include <unordered_map>

#include "python/library.h"
#include "python/parse.h"

namespace fl::py {

namespace {

PyObject* hook_name;   // "__torch_dispatch__"
PyObject* parts_name;  // "_sees_parts"
thread_local std::vector<Object>* mode_stack = nullptr;

std::vector<Object>& modes() {
  if (!mode_stack) mode_stack = new std::vector<Object>;
  return *mode_stack;
}

// Calls reach the Python key as long as a mode is on the stack.
void refresh_included() {
  auto& state = thread_state();
  state.included = modes().empty() ? state.included - KeySet(Key::Python) : state.included | Key::Python;
}

// What a handler sees of an operator that ATen has no single operator for: `aten_parts` of
// flambeau/ops/rules.py has a function for each such operator, by which the call is made of ATen's operators
// or has another name.
PyObject* parts_of(const Operator& op) {
  static auto* known = new std::unordered_map<std::string, PyObject*>;  // nullptr: the operator is the same
  const std::string name = op.schema.full_name();
  if (const auto it = known->find(name); it != known->end()) return it->second;
  Object module = own(PyImport_ImportModule("flambeau.ops.rules"));
  Object rules = own(PyObject_GetAttrString(module.get(), "aten_parts"));
  Object rule = own(PyObject_CallMethod(rules.get(), "find", "s", name.c_str()));
  return (*known)[name] = rule.get() == Py_None ? nullptr : Py_NewRef(rule.get());
}

// Modes and classes of our own see operators as they are.
bool sees_parts(PyObject* handler) {
  Object wants = Object::steal(PyObject_GetAttr(handler, parts_name));
  if (!wants.get()) PyErr_Clear();
  return wants.get() == Py_True;
}

// Takes the innermost mode off the stack while alive.
class WithoutInnermost {
 public:
  WithoutInnermost() : mode_(modes().back()) {
    modes().pop_back();
    refresh_included();
  }
  ~WithoutInnermost() {
    modes().push_back(mode_);
    refresh_included();
  }
  PyObject* mode() const { return mode_.get(); }

 private:
  Object mode_;
};

void collect(TensorImpl* t, std::vector<PyObject*>& handlers) {
  if (!t->keys.has(Key::Python) || !t->python) return;
  auto* object = static_cast<PyObject*>(t->python);
  PyTypeObject* type = Py_TYPE(object);
  for (PyObject* seen : handlers)
    if (Py_TYPE(seen) == type) return;
  // Subclasses come before the classes they refine.
  size_t at = 0;
  while (at < handlers.size() && !PyType_IsSubtype(type, Py_TYPE(handlers[at]))) ++at;
  handlers.insert(handlers.begin() + at, object);
}

void python_key_kernel(const Operator& op, void*, KeySet, Value* args, Value* results) {
  WithGIL gil;
  std::vector<PyObject*> handlers;
  for (size_t i = 0; i < op.schema.args.size(); ++i) {
    if (args[i].is_tensor()) {
      collect(args[i].tensor_impl(), handlers);
    } else if (args[i].is_tensor_list()) {
      for (size_t j = 0; j < args[i].length(); ++j)
        if (args[i].tensors()[j].defined()) collect(args[i].tensors()[j].impl(), handlers);
    }
  }
  Object positional, keywords;
  unparse_given(op, args, positional, keywords);
  Object types = own(PyTuple_New(handlers.size()));
  for (size_t i = 0; i < handlers.size(); ++i)
    PyTuple_SET_ITEM(types.get(), i, Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(handlers[i]))));
  PyObject* function = overload_object(op);
  Object other;  // keeps another function alive
  PyObject* handler = !modes().empty()   ? modes().back().get()
                      : handlers.empty() ? nullptr
                                         : reinterpret_cast<PyObject*>(Py_TYPE(handlers[0]));
  if (PyObject* parts = handler && sees_parts(handler) ? parts_of(op) : nullptr) {
    TorchFunctionSwitch plain_functions(true);
    ExcludeKeys below_autograd(KeySet(Key::Autograd) | Key::Autocast);
    Object answer = own(PyObject_Call(parts, positional.get(), keywords.get()));
    if (PyTuple_CheckExact(answer.get())) {  // the operator and the arguments that ATen has for it
      other = Object::borrow(PyTuple_GET_ITEM(answer.get(), 0));
      function = other.get();
      positional = Object::borrow(PyTuple_GET_ITEM(answer.get(), 1));
      keywords = own(PyDict_New());
    } else if (answer.get() != Py_NotImplemented) {
      return store_python_results(op, answer.get(), args, results);
    }
  }

  // The handler is the user's code again, and what it computes is below autograd.
  TorchFunctionSwitch user_code(false);
  ExcludeKeys below_autograd(KeySet(Key::Autograd) | Key::Autocast);
  const auto ask = [&](PyObject* owner) {
    Object hook = own(PyObject_GetAttr(owner, hook_name));
    return own(PyObject_CallFunctionObjArgs(hook.get(), function, types.get(), positional.get(),
                                            keywords.get(), nullptr));
  };
  if (!modes().empty()) {
    WithoutInnermost guard;
    Object result = ask(guard.mode());
    if (result.get() != Py_NotImplemented) return store_python_results(op, result.get(), args, results);
  }
  for (PyObject* o : handlers) {
    Object result = ask(reinterpret_cast<PyObject*>(Py_TYPE(o)));
    if (result.get() != Py_NotImplemented) return store_python_results(op, result.get(), args, results);
  }
  if (handlers.empty() && modes().empty()) {  // a tensor whose Python object is gone: nobody to ask
    ExcludeKeys plain{KeySet(Key::Python)};
    return op.call(args, results);
  }
  std::string names;
  for (PyObject* o : handlers) names += (names.empty() ? "" : ", ") + std::string(Py_TYPE(o)->tp_name);
  fail(ErrorKind::Type, "[", op.schema.full_name(), "] expected an active mode or one of the types (", names,
       ") to implement it in __torch_dispatch__, got NotImplemented from all");
}

PyObject* push_mode(PyObject*, PyObject* mode) {
  modes().push_back(Object::borrow(mode));
  refresh_included();
  Py_RETURN_NONE;
}
PyObject* pop_mode(PyObject*, PyObject*) {
  if (modes().empty()) {
    PyErr_SetString(PyExc_RuntimeError, "[torch_dispatch] expected a mode on the stack, got an empty stack");
    return nullptr;
  }
  Object mode = modes().back();
  modes().pop_back();
  refresh_included();
  return mode.release();
}
PyObject* mode_count(PyObject*, PyObject*) {
  return PyLong_FromSize_t(mode_stack ? mode_stack->size() : 0);
}
PyObject* mode_at(PyObject*, PyObject* arg) {
  const Py_ssize_t i = PyLong_AsSsize_t(arg);
  if (i < 0 || !mode_stack || static_cast<size_t>(i) >= mode_stack->size()) {
    if (!PyErr_Occurred())
      PyErr_SetString(PyExc_IndexError,
                      "[torch_dispatch] expected the index of a mode, got one out of range");
    return nullptr;
  }
  return Py_NewRef((*mode_stack)[i].get());
}

PyObject* disabled(PyObject*, PyObject* args, PyObject*) {
  // _disabled_torch_dispatch_impl(func, types, args, kwargs): call without handlers.
  PyObject *func, *types, *positional = nullptr, *keywords = nullptr;
  if (!PyArg_ParseTuple(args, "OO|OO", &func, &types, &positional, &keywords)) return nullptr;
  ExcludeKeys plain{KeySet(Key::Python)};
  Object none = Object::steal(PyTuple_New(0));
  return PyObject_Call(func, positional ? positional : none.get(),
                       keywords && keywords != Py_None ? keywords : nullptr);
}

// _call_above_autograd(func, *args, **kwargs): a handler's call on the tensors it unwrapped, which have a
// history of their own.
PyObject* call_above_autograd(PyObject*, PyObject* args, PyObject* kwargs) {
  struct Restore {
    KeySet saved = thread_state().excluded;
    Restore() { thread_state().excluded = saved - (KeySet(Key::Autograd) | Key::Autocast); }
    ~Restore() { thread_state().excluded = saved; }
  } restore;
  if (PyTuple_GET_SIZE(args) < 1) {
    PyErr_SetString(PyExc_TypeError, "[_call_above_autograd] expected a function, got no arguments");
    return nullptr;
  }
  Object rest = Object::steal(PyTuple_GetSlice(args, 1, PyTuple_GET_SIZE(args)));
  if (!rest.get()) return nullptr;
  return PyObject_Call(PyTuple_GET_ITEM(args, 0), rest.get(), kwargs);
}

// ---------------------------------------------------------------- wrapper tensors

// Wrappers are never meant to be read, but reading one by mistake must not crash: all of them look at one
// range of addresses that the system backs with pages only when touched.
constexpr size_t kRange = size_t(1) << 40;
void* shared_range() {
  static void* range =
      mmap(nullptr, kRange, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return range == MAP_FAILED ? nullptr : range;
}

std::vector<int64_t> int_list(PyObject* o, const char* what) {
  Object fast = own(PySequence_Fast(o, what));
  std::vector<int64_t> list;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast.get()); ++i)
    list.push_back(int_value(PySequence_Fast_GET_ITEM(fast.get(), i)));
  return list;
}

PyObject* make_wrapper(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"cls",
                                "size",
                                "strides",
                                "storage_offset",
                                "memory_format",
                                "dtype",
                                "layout",
                                "device",
                                "pin_memory",
                                "requires_grad",
                                "dispatch_sizes_strides_policy",
                                "dispatch_device",
                                "dispatch_layout",
                                "_extra_dispatch_keys",
                                "storage_size",
                                nullptr};
  PyObject *cls, *size, *strides = Py_None, *offset = Py_None, *format = Py_None, *dtype = Py_None,
                        *layout = Py_None, *device = Py_None;
  PyObject *policy = Py_None, *keys = Py_None, *storage_size = Py_None;
  int pin = 0, requires_grad = 0, dispatch_device = 0, dispatch_layout = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|OOOOOOppOppOO", const_cast<char**>(names), &cls, &size,
                                   &strides, &offset, &format, &dtype, &layout, &device, &pin, &requires_grad,
                                   &policy, &dispatch_device, &dispatch_layout, &keys, &storage_size))
    return nullptr;
  return guarded([&]() -> PyObject* {
    FL_CHECK_KIND(PyType_Check(cls) && PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(cls), tensor_type),
                  Type, "[_make_wrapper_subclass] expected a subclass of Tensor, got another object");
    const auto sizes = int_list(size, "[_make_wrapper_subclass] expected a sequence of sizes");
    numel_of(sizes);
    Ref<TensorImpl> impl(new TensorImpl);
    impl->sizes = Dims(sizes);
    if (strides != Py_None)
      impl->strides = Dims(int_list(strides, "[_make_wrapper_subclass] expected a sequence of strides"));
    else if (format != Py_None && is_memory_format(format) &&
             memory_format_value(format) > MemoryFormat::Preserve)
      impl->strides = channels_last_strides(impl->sizes);
    else
      impl->strides = contiguous_strides(impl->sizes);
    FL_CHECK(impl->strides.size() == sizes.size(),
             "[_make_wrapper_subclass] expected as many strides as sizes, got ",
             static_cast<int64_t>(impl->strides.size()), " and ", static_cast<int64_t>(sizes.size()));
    impl->dtype = dtype == Py_None ? default_dtype() : dtype_value(dtype);
    impl->device = device == Py_None ? Device{} : device_from(device);
    impl->offset = offset == Py_None ? 0 : int_value(offset);
    impl->keys = KeySet(backend_key(impl->device.type)) | Key::Python;
    impl->refresh();
    int64_t extent = impl->numel ? impl->offset + 1 : 0;
    for (size_t d = 0; d < sizes.size() && impl->numel; ++d) extent += (sizes[d] - 1) * impl->strides[d];
    const size_t bytes = storage_size != Py_None ? static_cast<size_t>(int_value(storage_size))
                                                 : static_cast<size_t>(extent) * size_of(impl->dtype);
    if (impl->device.type == DeviceType::Meta || (bytes <= kRange && shared_range()))
      impl->storage = Storage::adopt(impl->device.type == DeviceType::Meta ? nullptr : shared_range(), bytes,
                                     impl->device, [](void*) {});
    else
      impl->storage = Storage::allocate(bytes, impl->device);
    Object wrapper = own(wrap_as(reinterpret_cast<PyTypeObject*>(cls), Tensor(std::move(impl))));
    if (requires_grad) {
      ExcludeKeys plain{KeySet(Key::Python)};
      TorchFunctionSwitch plain_functions(true);
      own(PyObject_CallMethod(wrapper.get(), "requires_grad_", "O", Py_True));
    }
    return wrapper.release();
  });
}

PyMethodDef mode_functions[] = {
    {"_push_torch_dispatch_mode", push_mode, METH_O, nullptr},
    {"_push_on_torch_dispatch_stack", push_mode, METH_O, nullptr},
    {"_pop_torch_dispatch_mode", pop_mode, METH_NOARGS, nullptr},
    {"_pop_torch_dispatch_stack", reinterpret_cast<PyCFunction>(pop_mode), METH_NOARGS, nullptr},
    {"_len_torch_dispatch_stack", mode_count, METH_NOARGS, nullptr},
    {"_get_dispatch_stack_at", mode_at, METH_O, nullptr},
    {"_disabled_torch_dispatch_impl", reinterpret_cast<PyCFunction>(disabled), METH_VARARGS | METH_KEYWORDS,
     nullptr},
    {"_call_above_autograd", reinterpret_cast<PyCFunction>(call_above_autograd), METH_VARARGS | METH_KEYWORDS,
     nullptr},
    {"_make_wrapper_subclass", reinterpret_cast<PyCFunction>(make_wrapper), METH_VARARGS | METH_KEYWORDS,
     nullptr},
    {}};

}  // namespace

void add_dispatch_modes(PyObject* module) {
  hook_name = check(PyUnicode_InternFromString("__torch_dispatch__"));
  parts_name = check(PyUnicode_InternFromString("_sees_parts"));
  check(PyModule_AddFunctions(module, mode_functions));
  OperatorTable::get().set_fallback(Key::Python, Kernel{python_key_kernel, nullptr});
  auto* tensor = reinterpret_cast<PyObject*>(tensor_type);
  for (const char* name : {"_make_wrapper_subclass", "_make_subclass"}) {
    Object function = own(PyObject_GetAttrString(module, name));
    Object shared =
        own(PyObject_CallOneArg(reinterpret_cast<PyObject*>(&PyStaticMethod_Type), function.get()));
    check(PyObject_SetAttrString(tensor, name, shared.get()));
  }
  Object none = own(PyObject_GetAttrString(module, "_disabled_torch_dispatch_impl"));
  check(PyObject_SetAttrString(tensor, "__torch_dispatch__", none.get()));
  check(PyObject_SetAttr(tensor, parts_name, Py_True));
}

}  // namespace fl::py

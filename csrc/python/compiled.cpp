// Compiled functions seen from Python: programs are built from lists of steps, and called like functions.
#include "compiled/function.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "autograd/autocast.h"
#include "compiled/kept.h"
#include "core/accelerator.h"
#include "core/changes.h"
#include "python/library.h"
#include "python/parse.h"

namespace fl::py {

namespace {

using compiled::Function;
using compiled::Graph;
using compiled::Program;

// ---------------------------------------------------------------- reading steps

PyObject* item(PyObject* tuple, Py_ssize_t i) {
  FL_CHECK_KIND(PyTuple_Check(tuple) && i < PyTuple_GET_SIZE(tuple), Type,
                "[program] expected a tuple of more items");
  return PyTuple_GET_ITEM(tuple, i);
}

std::vector<int64_t> ints(PyObject* sequence) {
  Object fast = own(PySequence_Fast(sequence, "[program] expected a sequence of integers"));
  std::vector<int64_t> read;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast.get()); ++i)
    read.push_back(int_value(PySequence_Fast_GET_ITEM(fast.get(), i)));
  return read;
}

std::vector<int> slots(PyObject* sequence) {
  const std::vector<int64_t> read = ints(sequence);
  return {read.begin(), read.end()};
}

Dims dims(PyObject* sequence) {
  return Dims(IntSpan(ints(sequence)));
}

std::vector<Tensor> tensors(PyObject* sequence) {
  Object fast = own(PySequence_Fast(sequence, "[program] expected a sequence of tensors"));
  std::vector<Tensor> read;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast.get()); ++i) {
    PyObject* o = PySequence_Fast_GET_ITEM(fast.get(), i);
    FL_CHECK_KIND(o == Py_None || is_tensor(o), Type, "[program] expected tensors, got ",
                  Py_TYPE(o)->tp_name);
    read.push_back(o == Py_None ? Tensor() : unwrap(o));
  }
  return read;
}

// ("call", op, args, kwargs, slots of the tensors among the arguments in schema order, slots of the results,
// pairs of an argument that is a float and the slot to read it from, pairs of a place for a result and its
// bytes, strides that results must have or none)
compiled::Call read_call(PyObject* step) {
  compiled::Call call;
  call.op = operator_of(item(step, 1));
  std::vector<PyObject*> arguments;
  PyObject* args = item(step, 2);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i) arguments.push_back(PyTuple_GET_ITEM(args, i));
  const Py_ssize_t positional = PyTuple_GET_SIZE(args);
  Object names = own(PyTuple_New(PyDict_GET_SIZE(item(step, 3))));
  PyObject *key, *value;
  for (Py_ssize_t at = 0, i = 0; PyDict_Next(item(step, 3), &at, &key, &value); ++i) {
    PyTuple_SET_ITEM(names.get(), i, Py_NewRef(key));
    arguments.push_back(value);
  }
  ValueStack values(kMaxArgs);
  Arena arena;
  std::string why;
  if (!parse(*call.op, arguments.data(), positional, names.get(), values.data(), arena, nullptr, &why))
    fail(ErrorKind::Type, "[", call.op->schema.full_name(), "] expected ", why);
  const std::vector<int> given = slots(item(step, 4));
  size_t next = 0;
  const auto take = [&] {
    FL_CHECK(next < given.size(), "[program] expected a slot for each tensor of a call, got ", given.size());
    return given[next++];
  };
  for (size_t i = 0; i < call.op->schema.args.size(); ++i) {
    const Value& v = values.data()[i];
    if (v.is_tensor() && !v.tensor()->wrapped_number) {
      call.arguments.emplace_back();
      call.tensors.emplace_back(static_cast<int>(i), take());
    } else if (v.is_tensor_list()) {
      compiled::Call::List list{static_cast<int>(i), {}};
      for (size_t k = 0; k < v.length(); ++k) list.slots.push_back(v.tensors()[k].defined() ? take() : -1);
      call.arguments.emplace_back();
      call.lists.push_back(std::move(list));
    } else {
      call.arguments.push_back(v);
    }
  }
  FL_CHECK(next == given.size(), "[program] expected ", next, " slots for the tensors of ",
           call.op->schema.full_name(), ", got ", given.size());
  call.results = slots(item(step, 5));
  const std::vector<int64_t> numbers = ints(item(step, 6));
  for (size_t i = 0; i + 1 < numbers.size(); i += 2)
    call.numbers.emplace_back(static_cast<int>(numbers[i]), static_cast<int>(numbers[i + 1]));
  const std::vector<int64_t> offers = ints(item(step, 7));
  for (size_t i = 0; i + 2 < offers.size() && call.offers.size() < compiled::kMostOffers; i += 3)
    if (offers[i + 1] > 0) call.offers.push_back({offers[i], offers[i + 1], static_cast<int>(offers[i + 2])});
  PyObject* layouts = item(step, 8);
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(layouts); ++i)
    call.strides.push_back(dims(PyList_GET_ITEM(layouts, i)));
  return call;
}

// Slot, bytes, slot, bytes ...
std::vector<compiled::Launch::Pointer> read_pointers(PyObject* sequence) {
  const std::vector<int64_t> read = ints(sequence);
  std::vector<compiled::Launch::Pointer> pointers;
  for (size_t i = 0; i + 1 < read.size(); i += 2)
    pointers.push_back({static_cast<int>(read[i]), read[i + 1]});
  return pointers;
}

compiled::Launch read_launch(PyObject* step) {
  compiled::Launch launch;
  launch.entry = reinterpret_cast<compiled::Entry>(PyLong_AsVoidPtr(item(step, 1)));
  FL_CHECK(launch.entry != nullptr, "[program] expected the address of a loop, got none");
  launch.pointers = read_pointers(item(step, 2));
  launch.numbers = ints(item(step, 3));
  launch.work = int_value(item(step, 4));
  FL_CHECK(launch.pointers.size() <= 256 && !launch.numbers.empty() && launch.numbers.size() <= 1024,
           "[program] expected at most 256 pointers and 1024 numbers for a loop, got ",
           launch.pointers.size(), " and ", launch.numbers.size());
  return launch;
}

// ("together", launches)
compiled::Together read_together(PyObject* step) {
  compiled::Together together;
  Object launches = own(PySequence_Fast(item(step, 1), "[program] expected a list of launches"));
  int64_t work = 0;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(launches.get()); ++i) {
    together.launches.push_back(read_launch(PySequence_Fast_GET_ITEM(launches.get(), i)));
    together.done.push_back(work);
    work += std::min<int64_t>(together.launches.back().work, int64_t(1) << 40);
  }
  together.done.push_back(work);
  return together;
}

// ("kernel", function, grid, threads, shared memory, pointers, numbers, whether these have 64 bits)
compiled::Kernel read_kernel(PyObject* step) {
  compiled::Kernel kernel;
  kernel.function = PyLong_AsVoidPtr(item(step, 1));
  FL_CHECK(kernel.function != nullptr, "[program] expected a kernel, got none");
  const std::vector<int64_t> grid = ints(item(step, 2));
  FL_CHECK(grid.size() == 3, "[program] expected a grid of three dimensions, got ", grid.size());
  for (int i = 0; i < 3; ++i) kernel.grid[i] = static_cast<unsigned>(grid[i]);
  kernel.threads = static_cast<unsigned>(int_value(item(step, 3)));
  kernel.shared = static_cast<unsigned>(int_value(item(step, 4)));
  kernel.pointers = read_pointers(item(step, 5));
  kernel.numbers = ints(item(step, 6));
  kernel.wide = item(step, 7) == Py_True;
  FL_CHECK(kernel.pointers.size() <= 256 && kernel.numbers.size() <= 1024,
           "[program] expected at most 256 pointers and 1024 numbers for a kernel, got ",
           kernel.pointers.size(), " and ", kernel.numbers.size());
  return kernel;
}

compiled::Step read_step(PyObject* step) {
  const std::string kind = PyUnicode_AsUTF8(item(step, 0));
  const auto number = [&](int i) { return static_cast<int>(int_value(item(step, i))); };
  if (kind == "allocate")
    return compiled::Allocate{number(1), dims(item(step, 2)), dims(item(step, 3)),
                              dtype_value(item(step, 4))};
  if (kind == "view")
    return compiled::View{number(1),
                          number(2),
                          dims(item(step, 3)),
                          dims(item(step, 4)),
                          int_value(item(step, 5)),
                          dtype_value(item(step, 6))};
  if (kind == "place")
    return compiled::Place{number(1), int_value(item(step, 2)), dims(item(step, 3)), dims(item(step, 4)),
                           dtype_value(item(step, 5))};
  if (kind == "own") return compiled::Own{number(1)};
  if (kind == "launch") return read_launch(step);
  if (kind == "together") return read_together(step);
  if (kind == "kernel") return read_kernel(step);
  if (kind == "random") return compiled::Random{number(1)};
  if (kind == "call") return read_call(step);
  FL_CHECK_KIND(kind == "release", Value, "[program] expected a kind of step, got ", kind);
  return compiled::Release{slots(item(step, 1))};
}

constexpr const char* kKept = "flambeau._C.Kept";

// Tensors, then what `_kept` made.
void read_constants(PyObject* sequence, Program& program) {
  Object fast = own(PySequence_Fast(sequence, "[program] expected a sequence of constants"));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast.get()); ++i) {
    PyObject* o = PySequence_Fast_GET_ITEM(fast.get(), i);
    if (PyCapsule_IsValid(o, kKept)) {
      program.kept.push_back(*static_cast<std::shared_ptr<compiled::Kept>*>(PyCapsule_GetPointer(o, kKept)));
      continue;
    }
    FL_CHECK_KIND(is_tensor(o) && program.kept.empty(), Type, "[program] expected tensors first, got ",
                  Py_TYPE(o)->tp_name);
    program.constants.push_back(unwrap(o));
  }
}

// (inputs, slots, constants, steps, outputs, written, device, whether it is to be recorded, bytes of the
// arena)
Program read_program(PyObject* spec) {
  Program program;
  program.inputs = static_cast<int>(int_value(item(spec, 0)));
  program.slots = static_cast<int>(int_value(item(spec, 1)));
  read_constants(item(spec, 2), program);
  Object steps = own(PySequence_Fast(item(spec, 3), "[program] expected a list of steps"));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(steps.get()); ++i)
    program.steps.push_back(read_step(PySequence_Fast_GET_ITEM(steps.get(), i)));
  program.outputs = slots(item(spec, 4));
  program.written = slots(item(spec, 5));
  program.device = canonical(device_value(item(spec, 6)));
  program.arena = static_cast<size_t>(int_value(item(spec, 8)));
  if (item(spec, 7) == Py_True) program.replay = std::make_shared<compiled::Replay>();
  return program;
}

// _kept(inputs, program): the one output of a program over some of the inputs of another, which is kept until
// one of these changes. It stands among the constants of the other.
PyObject* make_kept(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    auto made = std::make_unique<std::shared_ptr<compiled::Kept>>(std::make_shared<compiled::Kept>());
    (*made)->inputs = slots(item(args, 0));
    (*made)->program = read_program(item(args, 1));
    FL_CHECK((*made)->program.outputs.size() == 1, "[kept] expected a program with one output, got ",
             (*made)->program.outputs.size());
    PyObject* capsule = check(PyCapsule_New(made.get(), kKept, [](PyObject* o) {
      delete static_cast<std::shared_ptr<compiled::Kept>*>(PyCapsule_GetPointer(o, kKept));
    }));
    made.release();
    return capsule;
  });
}

// ---------------------------------------------------------------- objects

struct GraphObject {
  PyObject_HEAD;
  Ref<Graph> graph;
};
struct FunctionObject {
  PyObject_HEAD;
  vectorcallfunc vectorcall;
  Ref<Function> function;
};

// A function with some of its inputs given: `_bind` of a function. A tensor is read from its object again
// when a tensor changed, since two objects may have swapped theirs.
struct BoundObject {
  PyObject_HEAD;
  vectorcallfunc vectorcall;
  Ref<Function> function;
  PyObject* objects;               // the tensors given, which this keeps
  std::vector<int> positions;      // where they stand
  std::vector<int> rest;           // where the arguments of a call stand
  std::vector<TensorImpl*> given;  // by position
  std::unique_ptr<compiled::Fixed> fixed;
  uint64_t changes;
  bool busy;
};

PyTypeObject bound_type = {PyVarObject_HEAD_INIT(nullptr, 0)};
PyTypeObject graph_type = {PyVarObject_HEAD_INIT(nullptr, 0)};
PyTypeObject function_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

// A Python callable shared with native code, released under the interpreter's lock.
std::shared_ptr<PyObject> shared(PyObject* o) {
  return {Py_NewRef(o), [](PyObject* p) {
            if (!Py_IsInitialized()) return;
            WithGIL lock;
            Py_DECREF(p);
          }};
}

Object list_of(const std::vector<Tensor>& given) {
  Object made = own(PyList_New(static_cast<Py_ssize_t>(given.size())));
  for (size_t i = 0; i < given.size(); ++i)
    PyList_SET_ITEM(made.get(), static_cast<Py_ssize_t>(i), check(wrap(given[i])));
  return made;
}

// _compiled_graph(inputs, grad_mode, forward, backward, results, gradients_of, gradients_from, recorded,
// gradient_strides):
// `inputs` are tensors that show the geometry.
PyObject* make_graph(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    Ref<Graph> graph(new Graph());
    for (const Tensor& t : tensors(item(args, 0))) graph->inputs.push_back(compiled::spec_of(t));
    graph->grad_mode = item(args, 1) == Py_True;
    graph->autocast = autocast::signature();
    graph->forward = read_program(item(args, 2));
    if (item(args, 3) != Py_None) graph->backward = std::make_unique<Program>(read_program(item(args, 3)));
    graph->results = static_cast<int>(int_value(item(args, 4)));
    graph->gradients_of = slots(item(args, 5));
    graph->gradients_from = slots(item(args, 6));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(item(args, 8)); ++i)
      graph->gradient_strides.push_back(dims(item(item(args, 8), i)));
    if (item(args, 7) != Py_None) {
      graph->recorded = [callable = shared(item(args, 7))](const std::vector<Tensor>& inputs,
                                                           const std::vector<Tensor>& grads) {
        WithGIL lock;
        Object given = list_of(inputs), of = list_of(grads);
        Object made = own(PyObject_CallFunctionObjArgs(callable.get(), given.get(), of.get(), nullptr));
        return tensors(made.get());
      };
    }
    auto* self = reinterpret_cast<GraphObject*>(check(graph_type.tp_alloc(&graph_type, 0)));
    new (&self->graph) Ref<Graph>(std::move(graph));
    return reinterpret_cast<PyObject*>(self);
  });
}

Object tuple_of(const std::vector<Tensor>& made) {
  Object result = own(PyTuple_New(static_cast<Py_ssize_t>(made.size())));
  for (size_t i = 0; i < made.size(); ++i)
    PyTuple_SET_ITEM(result.get(), static_cast<Py_ssize_t>(i), check(wrap(made[i])));
  return result;
}

PyObject* call_function(PyObject* callable, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  return guarded([&]() -> PyObject* {
    Function& function = *reinterpret_cast<FunctionObject*>(callable)->function;
    const Py_ssize_t n = PyVectorcall_NARGS(nargsf);
    FL_CHECK_KIND(n == function.inputs && kwnames == nullptr, Type, "[compiled function] expected ",
                  function.inputs, " tensors, got ", static_cast<int64_t>(n), " arguments");
    std::vector<Tensor> given;
    given.reserve(n);
    for (Py_ssize_t i = 0; i < n; ++i) {
      FL_CHECK_KIND(is_tensor(args[i]), Type, "[compiled function] expected tensors, got ",
                    Py_TYPE(args[i])->tp_name);
      given.push_back(unwrap(args[i]));
    }
    return tuple_of(function.call(given.data())).release();
  });
}

// A tensor is a counted pointer and nothing else, so that an array of pointers can be lent as one of tensors.
static_assert(sizeof(Tensor) == sizeof(TensorImpl*));

PyObject* call_bound(PyObject* callable, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  return guarded([&]() -> PyObject* {
    auto& self = *reinterpret_cast<BoundObject*>(callable);
    const auto n = static_cast<size_t>(PyVectorcall_NARGS(nargsf));
    FL_CHECK_KIND(n == self.rest.size() && kwnames == nullptr, Type, "[compiled function] expected ",
                  self.rest.size(), " tensors, got ", n, " arguments");
    FL_CHECK(self.objects, "[compiled function] expected a function in use, got one that was cleared");
    const uint64_t changes = tensor_changes.load(std::memory_order_relaxed);
    if (changes != self.changes) {
      for (size_t i = 0; i < self.positions.size(); ++i)
        self.given[self.positions[i]] = impl_of(PyTuple_GET_ITEM(self.objects, static_cast<Py_ssize_t>(i)));
      if (!self.busy) self.fixed->forget();
      self.changes = changes;
    }
    constexpr size_t kInline = 32;
    TensorImpl* local[kInline];
    std::vector<TensorImpl*> spilled;
    TensorImpl** given = local;
    if (self.given.size() > kInline) {
      spilled.resize(self.given.size());
      given = spilled.data();
    }
    std::memcpy(given, self.given.data(), self.given.size() * sizeof(TensorImpl*));
    for (size_t i = 0; i < n; ++i) {
      FL_CHECK_KIND(is_tensor(args[i]), Type, "[compiled function] expected tensors, got ",
                    Py_TYPE(args[i])->tp_name);
      given[self.rest[i]] = impl_of(args[i]);
    }
    Object keep = Object::borrow(callable);
    // A call that compiles may lead to other calls; those do without what is remembered here.
    const bool outermost = !self.busy;
    struct Busy {
      bool& flag;
      const bool before = std::exchange(flag, true);
      ~Busy() { flag = before; }
    } busy{self.busy};
    const auto* tensors = reinterpret_cast<const Tensor*>(given);
    return tuple_of(self.function->call(tensors, outermost ? self.fixed.get() : nullptr)).release();
  });
}

// _bind(positions, tensors): the function of the other inputs.
PyObject* bind(PyObject* callable, PyObject* args) {
  return guarded([&]() -> PyObject* {
    const Ref<Function>& function = reinterpret_cast<FunctionObject*>(callable)->function;
    const std::vector<int> positions = slots(item(args, 0));
    PyObject* objects = item(args, 1);
    FL_CHECK_KIND(
        PyTuple_Check(objects) && PyTuple_GET_SIZE(objects) == static_cast<Py_ssize_t>(positions.size()),
        Type, "[compiled function] expected a tuple of as many tensors as positions");
    std::vector<bool> is_fixed(function->inputs);
    for (size_t i = 0; i < positions.size(); ++i) {
      PyObject* o = PyTuple_GET_ITEM(objects, static_cast<Py_ssize_t>(i));
      FL_CHECK_KIND(is_tensor(o) && positions[i] >= 0 && positions[i] < function->inputs, Type,
                    "[compiled function] expected tensors for inputs of the function, got ",
                    Py_TYPE(o)->tp_name);
      // A view may change without being counted: it is looked at in every call.
      is_fixed[positions[i]] = autograd::watch(unwrap(o));
    }
    auto* self = reinterpret_cast<BoundObject*>(check(bound_type.tp_alloc(&bound_type, 0)));
    self->vectorcall = call_bound;
    new (&self->function) Ref<Function>(function);
    self->objects = Py_NewRef(objects);
    new (&self->positions) std::vector<int>(positions);
    new (&self->rest) std::vector<int>();
    for (int i = 0; i < function->inputs; ++i)
      if (std::find(positions.begin(), positions.end(), i) == positions.end()) self->rest.push_back(i);
    new (&self->given) std::vector<TensorImpl*>(function->inputs);
    new (&self->fixed) std::unique_ptr<compiled::Fixed>(new compiled::Fixed(is_fixed));
    self->changes = tensor_changes.load(std::memory_order_relaxed) - 1;
    return reinterpret_cast<PyObject*>(self);
  });
}

PyMethodDef function_methods[] = {
    {"_bind", bind, METH_VARARGS, "The function with the inputs at some positions given."},
    {nullptr, nullptr, 0, nullptr},
};

// _compiled_function(inputs, miss, original): miss(tensors) returns a graph for a geometry not met before, or
// None; original(*tensors) is the function itself.
PyObject* make_function_object(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    Ref<Function> function(new Function());
    function->inputs = static_cast<int>(int_value(item(args, 0)));
    const int inputs = function->inputs;
    function->miss = [callable = shared(item(args, 1)), inputs](const Tensor* given) {
      WithGIL lock;
      Object list = list_of({given, given + inputs});
      Object made = own(PyObject_CallOneArg(callable.get(), list.get()));
      if (made.get() == Py_None) return Ref<Graph>();
      FL_CHECK_KIND(Py_TYPE(made.get()) == &graph_type, Type, "[compiled function] expected a graph, got ",
                    Py_TYPE(made.get())->tp_name);
      return reinterpret_cast<GraphObject*>(made.get())->graph;
    };
    function->original = [callable = shared(item(args, 2)), inputs](const Tensor* given) {
      WithGIL lock;
      Object list = list_of({given, given + inputs});
      Object arguments = own(PyList_AsTuple(list.get()));
      Object made = own(PyObject_CallObject(callable.get(), arguments.get()));
      return is_tensor(made.get()) ? std::vector<Tensor>{unwrap(made.get())} : tensors(made.get());
    };
    auto* self = reinterpret_cast<FunctionObject*>(check(function_type.tp_alloc(&function_type, 0)));
    self->vectorcall = call_function;
    new (&self->function) Ref<Function>(std::move(function));
    return reinterpret_cast<PyObject*>(self);
  });
}

// _load_kernel(image, name, shared memory, device index): a kernel of a compiled image, for the steps of
// programs.
PyObject* load_kernel(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    FL_CHECK_KIND(PyBytes_Check(item(args, 0)), Type, "[load_kernel] expected bytes");
    void* function = the_accelerator().load(PyBytes_AS_STRING(item(args, 0)), PyUnicode_AsUTF8(item(args, 1)),
                                            static_cast<int>(int_value(item(args, 2))));
    return check(PyLong_FromVoidPtr(function));
  });
}

PyMethodDef functions[] = {
    {"_load_kernel", load_kernel, METH_VARARGS, nullptr},
    {"_compiled_graph", make_graph, METH_VARARGS, nullptr},
    {"_kept", make_kept, METH_VARARGS, nullptr},
    {"_compiled_function", make_function_object, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void add_compiled(PyObject* module) {
  graph_type.tp_name = "flambeau._C.CompiledGraph";
  graph_type.tp_basicsize = sizeof(GraphObject);
  graph_type.tp_flags = Py_TPFLAGS_DEFAULT;
  graph_type.tp_dealloc = [](PyObject* self) {
    reinterpret_cast<GraphObject*>(self)->graph.~Ref();
    Py_TYPE(self)->tp_free(self);
  };
  check(PyType_Ready(&graph_type));
  function_type.tp_name = "flambeau._C.CompiledGraphs";
  function_type.tp_basicsize = sizeof(FunctionObject);
  function_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL;
  function_type.tp_vectorcall_offset = offsetof(FunctionObject, vectorcall);
  function_type.tp_call = PyVectorcall_Call;
  function_type.tp_methods = function_methods;
  function_type.tp_dealloc = [](PyObject* self) {
    reinterpret_cast<FunctionObject*>(self)->function.~Ref();
    Py_TYPE(self)->tp_free(self);
  };
  check(PyType_Ready(&function_type));
  bound_type.tp_name = "flambeau._C.BoundGraphs";
  bound_type.tp_basicsize = sizeof(BoundObject);
  bound_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC;
  bound_type.tp_traverse = [](PyObject* o, visitproc visit, void* arg) -> int {
    Py_VISIT(reinterpret_cast<BoundObject*>(o)->objects);
    return 0;
  };
  bound_type.tp_clear = [](PyObject* o) -> int {
    Py_CLEAR(reinterpret_cast<BoundObject*>(o)->objects);
    return 0;
  };
  bound_type.tp_vectorcall_offset = offsetof(BoundObject, vectorcall);
  bound_type.tp_call = PyVectorcall_Call;
  bound_type.tp_dealloc = [](PyObject* o) {
    PyObject_GC_UnTrack(o);
    auto* self = reinterpret_cast<BoundObject*>(o);
    self->fixed.~unique_ptr();  // first: what it keeps may be the last to hold a tensor but for its object
    self->function.~Ref();
    self->positions.~vector();
    self->rest.~vector();
    self->given.~vector();
    Py_XDECREF(self->objects);
    Py_TYPE(o)->tp_free(o);
  };
  check(PyType_Ready(&bound_type));
  check(PyModule_AddFunctions(module, functions));
}

}  // namespace fl::py

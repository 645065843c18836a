// Compiled functions seen from Python: programs are built from lists of steps, and called like functions.
#include "compiled/specialized_function.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "autograd/autocast.h"
#include "compiled/kept_value.h"
#include "core/accelerator.h"
#include "core/changes.h"
#include "core/parallel.h"
#include "cpu/gemm/product_finish.h"
#include "python/library.h"
#include "python/native_launch.h"
#include "python/parse.h"

namespace fl::py {

namespace {

using compiled::CompiledGraph;
using compiled::Program;
using compiled::SpecializedFunction;

// ---------------------------------------------------------------- reading fields

PyObject* item(PyObject* tuple, Py_ssize_t i) {
  FL_CHECK_KIND(PyTuple_Check(tuple) && i < PyTuple_GET_SIZE(tuple), Type,
                "[program] expected a tuple of more items");
  return PyTuple_GET_ITEM(tuple, i);
}

// The fields of flambeau/_inductor/steps.py by name.
class Fields {
 public:
  explicit Fields(PyObject* object) : object_(object) {}

  // A field's name, interned at its first use.
  class Name {
   public:
    Name(const char* text) : text_(check(PyUnicode_InternFromString(text))) {}
    PyObject* get() const { return text_; }

   private:
    PyObject* text_;
  };

  Object operator[](const Name& name) const { return own(PyObject_GetAttr(object_, name.get())); }

 private:
  PyObject* object_;
};

#define FL_FIELD(object, name)                \
  ([&] {                                      \
    static const Fields::Name interned(name); \
    return Fields(object)[interned];          \
  }())

template <class F>
void for_each(PyObject* sequence, const F& f) {
  Object fast = own(PySequence_Fast(sequence, "[program] expected a sequence"));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast.get()); ++i)
    f(PySequence_Fast_GET_ITEM(fast.get(), i));
}

std::vector<int64_t> ints(PyObject* sequence) {
  std::vector<int64_t> read;
  for_each(sequence, [&](PyObject* o) { read.push_back(int_value(o)); });
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
  std::vector<Tensor> read;
  for_each(sequence, [&](PyObject* o) {
    FL_CHECK_KIND(o == Py_None || is_tensor(o), Type, "[program] expected tensors, got ",
                  Py_TYPE(o)->tp_name);
    read.push_back(o == Py_None ? Tensor() : unwrap(o));
  });
  return read;
}

int slot(const Object& o) {
  return static_cast<int>(int_value(o.get()));
}

compiled::Location location(PyObject* pair) {
  return {static_cast<int>(int_value(item(pair, 0))), int_value(item(pair, 1))};
}

std::vector<compiled::Location> locations(PyObject* sequence) {
  std::vector<compiled::Location> read;
  for_each(sequence, [&](PyObject* o) { read.push_back(location(o)); });
  return read;
}

// ---------------------------------------------------------------- reading steps

// Arguments of a call, in the order of the schema; where tensors stand, slots are filled in at each run.
void read_arguments(PyObject* step, compiled::CallStep& call) {
  std::vector<PyObject*> arguments;
  const Object args = FL_FIELD(step, "args"), kwargs = FL_FIELD(step, "kwargs");
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args.get()); ++i)
    arguments.push_back(PyTuple_GET_ITEM(args.get(), i));
  const Py_ssize_t positional = PyTuple_GET_SIZE(args.get());
  Object names = own(PyTuple_New(PyDict_GET_SIZE(kwargs.get())));
  PyObject *key, *value;
  for (Py_ssize_t at = 0, i = 0; PyDict_Next(kwargs.get(), &at, &key, &value); ++i) {
    PyTuple_SET_ITEM(names.get(), i, Py_NewRef(key));
    arguments.push_back(value);
  }
  ValueStack values(kMaxArgs);
  Arena arena;
  std::string why;
  if (!parse(*call.op, arguments.data(), positional, names.get(), values.data(), arena, nullptr, &why))
    fail(ErrorKind::Type, "[", call.op->schema.full_name(), "] expected ", why);
  const std::vector<int> input_slots = slots(FL_FIELD(step, "tensors").get());
  size_t next = 0;
  const auto take = [&] {
    FL_CHECK(next < input_slots.size(), "[program] expected a slot for each tensor of a call, got ",
             input_slots.size());
    return input_slots[next++];
  };
  for (size_t i = 0; i < call.op->schema.args.size(); ++i) {
    const Value& v = values.data()[i];
    // A number on the meta device stands for one that a step computes.
    if (v.is_tensor() && (!v.tensor()->wrapped_number || v.tensor().is_meta())) {
      call.arguments.emplace_back();
      call.tensors.emplace_back(static_cast<int>(i), take());
    } else if (v.is_tensor_list()) {
      compiled::CallStep::List list{static_cast<int>(i), {}};
      for (size_t k = 0; k < v.length(); ++k) list.slots.push_back(v.tensors()[k].defined() ? take() : -1);
      call.arguments.emplace_back();
      call.lists.push_back(std::move(list));
    } else {
      call.arguments.push_back(v);
    }
  }
  FL_CHECK(next == input_slots.size(), "[program] expected ", next, " slots for the tensors of ",
           call.op->schema.full_name(), ", got ", input_slots.size());
}

compiled::Step read_call(PyObject* step) {
  compiled::CallStep call;
  call.op = operator_of(FL_FIELD(step, "op").get());
  read_arguments(step, call);
  call.results = slots(FL_FIELD(step, "results").get());
  for (const compiled::Location& scalar : locations(FL_FIELD(step, "scalars").get()))
    call.scalars.emplace_back(scalar.slot, static_cast<int>(scalar.bytes));
  for_each(FL_FIELD(step, "offers").get(), [&](PyObject* offer) {
    const int64_t bytes = int_value(FL_FIELD(offer, "bytes").get());
    if (bytes > 0 && call.offers.size() < compiled::kMostOffers)
      call.offers.push_back(
          {location(FL_FIELD(offer, "location").get()), bytes, slot(FL_FIELD(offer, "slot"))});
  });
  for_each(FL_FIELD(step, "strides").get(), [&](PyObject* o) { call.strides.push_back(dims(o)); });
  return call;
}

constexpr size_t kMaxPointers = 256, kMaxNumbers = 1024;

void check_counts(size_t pointers, size_t numbers) {
  FL_CHECK(pointers <= kMaxPointers && numbers <= kMaxNumbers, "[program] expected at most ", kMaxPointers,
           " pointers and ", kMaxNumbers, " numbers for a kernel, got ", pointers, " and ", numbers);
}

compiled::LoopStep read_loop_step(PyObject* step) {
  compiled::LoopStep loop;
  loop.entry = reinterpret_cast<compiled::Entry>(PyLong_AsVoidPtr(FL_FIELD(step, "address").get()));
  FL_CHECK(loop.entry != nullptr, "[program] expected the address of a loop, got none");
  loop.pointers = locations(FL_FIELD(step, "pointers").get());
  loop.numbers = ints(FL_FIELD(step, "numbers").get());
  loop.work = int_value(FL_FIELD(step, "work").get());
  check_counts(loop.pointers.size(), loop.numbers.size());
  FL_CHECK(!loop.numbers.empty(), "[program] expected a number for the threads of a loop, got none");
  return loop;
}

compiled::Step read_loop(PyObject* step) {
  return read_loop_step(step);
}

compiled::Step read_concurrent_loops(PyObject* step) {
  compiled::ConcurrentLoopsStep concurrent;
  for_each(FL_FIELD(step, "loops").get(),
           [&](PyObject* loop) { concurrent.loops.push_back(read_loop_step(loop)); });
  return concurrent;
}

std::shared_ptr<PyObject> shared(PyObject* o);

compiled::Step read_kernel(PyObject* step) {
  compiled::KernelStep kernel{};
  const Object launch = FL_FIELD(step, "launch");
  if (launch.get() != Py_None) {
    kernel.pointers = locations(FL_FIELD(step, "pointers").get());
    check_counts(kernel.pointers.size(), 0);
    if (PyCapsule_IsValid(launch.get(), kNativeLaunch)) {
      const auto* native =
          static_cast<const NativeLaunch*>(PyCapsule_GetPointer(launch.get(), kNativeLaunch));
      kernel.outside = [native, keeps_alive = shared(launch.get())](void* const* pointers, size_t count) {
        const char* wrong = native->run(native->context, pointers, count);
        FL_CHECK(wrong == nullptr, wrong);
      };
      return kernel;
    }
    kernel.outside = [callable = shared(launch.get())](void* const* pointers, size_t count) {
      const WithGIL lock;
      const BelowModes below;
      Object addresses = own(PyTuple_New(static_cast<Py_ssize_t>(count)));
      for (size_t i = 0; i < count; ++i)
        PyTuple_SET_ITEM(addresses.get(), i, check(PyLong_FromVoidPtr(pointers[i])));
      own(PyObject_CallOneArg(callable.get(), addresses.get()));
    };
    return kernel;
  }
  kernel.function = PyLong_AsVoidPtr(FL_FIELD(step, "function").get());
  FL_CHECK(kernel.function != nullptr, "[program] expected a kernel, got none");
  const std::vector<int64_t> grid = ints(FL_FIELD(step, "grid").get());
  FL_CHECK(grid.size() == 3, "[program] expected a grid of three dimensions, got ", grid.size());
  for (int i = 0; i < 3; ++i) kernel.grid[i] = static_cast<unsigned>(grid[i]);
  kernel.threads = static_cast<unsigned>(int_value(FL_FIELD(step, "threads").get()));
  kernel.shared = static_cast<unsigned>(int_value(FL_FIELD(step, "shared").get()));
  kernel.pointers = locations(FL_FIELD(step, "pointers").get());
  kernel.numbers = ints(FL_FIELD(step, "numbers").get());
  kernel.wide = FL_FIELD(step, "wide").get() == Py_True;
  kernel.waits = FL_FIELD(step, "waits").get() == Py_True;
  check_counts(kernel.pointers.size(), kernel.numbers.size());
  return kernel;
}

compiled::Step read_allocate(PyObject* step) {
  return compiled::AllocateStep{slot(FL_FIELD(step, "slot")), dims(FL_FIELD(step, "size").get()),
                                dims(FL_FIELD(step, "stride").get()),
                                dtype_value(FL_FIELD(step, "dtype").get())};
}

compiled::Step read_view(PyObject* step) {
  return compiled::ViewStep{slot(FL_FIELD(step, "slot")),
                            slot(FL_FIELD(step, "base")),
                            dims(FL_FIELD(step, "size").get()),
                            dims(FL_FIELD(step, "stride").get()),
                            int_value(FL_FIELD(step, "offset").get()),
                            dtype_value(FL_FIELD(step, "dtype").get())};
}

compiled::Step read_arena_tensor(PyObject* step) {
  return compiled::ArenaTensorStep{slot(FL_FIELD(step, "slot")), location(FL_FIELD(step, "location").get()),
                                   dims(FL_FIELD(step, "size").get()), dims(FL_FIELD(step, "stride").get()),
                                   dtype_value(FL_FIELD(step, "dtype").get())};
}

compiled::Step read_step(PyObject* step) {
  using Reader = compiled::Step (*)(PyObject*);
  static const std::unordered_map<std::string_view, Reader> readers = {
      {"allocate", read_allocate},
      {"view", read_view},
      {"arena tensor", read_arena_tensor},
      {"unshare",
       [](PyObject* o) -> compiled::Step { return compiled::UnshareStep{slot(FL_FIELD(o, "slot"))}; }},
      {"loop", read_loop},
      {"concurrent loops", read_concurrent_loops},
      {"kernel", read_kernel},
      {"random state",
       [](PyObject* o) -> compiled::Step { return compiled::RandomStateStep{slot(FL_FIELD(o, "slot"))}; }},
      {"call", read_call},
      {"release",
       [](PyObject* o) -> compiled::Step {
         return compiled::ReleaseStep{slots(FL_FIELD(o, "slots").get())};
       }},
  };
  const Object kind = FL_FIELD(step, "kind");
  const auto reader = readers.find(PyUnicode_AsUTF8(kind.get()));
  FL_CHECK_KIND(reader != readers.end(), Value, "[program] expected a kind of step, got ",
                PyUnicode_AsUTF8(kind.get()));
  return reader->second(step);
}

constexpr const char* kKeptValue = "flambeau._C.KeptValue";

// Tensors, then what `_kept` made.
void read_constants(PyObject* sequence, Program& program) {
  for_each(sequence, [&](PyObject* o) {
    if (PyCapsule_IsValid(o, kKeptValue)) {
      program.kept.push_back(
          *static_cast<std::shared_ptr<compiled::KeptValue>*>(PyCapsule_GetPointer(o, kKeptValue)));
      return;
    }
    FL_CHECK_KIND(is_tensor(o) && program.kept.empty(), Type, "[program] expected tensors first, got ",
                  Py_TYPE(o)->tp_name);
    program.constants.push_back(unwrap(o));
  });
}

std::vector<compiled::BlockSpan> read_blocks(PyObject* sequence) {
  std::vector<compiled::BlockSpan> blocks;
  for_each(sequence, [&](PyObject* o) {
    blocks.push_back(
        {ints(FL_FIELD(o, "extents").get()), slot(FL_FIELD(o, "first")), slot(FL_FIELD(o, "last"))});
  });
  return blocks;
}

Program read_program(PyObject* spec) {
  Program program;
  program.inputs = slot(FL_FIELD(spec, "inputs"));
  program.slots = slot(FL_FIELD(spec, "slots"));
  read_constants(FL_FIELD(spec, "constants").get(), program);
  for_each(FL_FIELD(spec, "steps").get(), [&](PyObject* o) { program.steps.push_back(read_step(o)); });
  program.outputs = slots(FL_FIELD(spec, "outputs").get());
  program.written = slots(FL_FIELD(spec, "written").get());
  program.device = canonical(device_value(FL_FIELD(spec, "device").get()));
  program.blocks = read_blocks(FL_FIELD(spec, "blocks").get());
  for_each(FL_FIELD(spec, "room").get(),
           [&](PyObject* o) { program.room.push_back({int_value(item(o, 0)), int_value(item(o, 1))}); });
  program.lay_out();
  if (FL_FIELD(spec, "replay").get() == Py_True) program.replay = std::make_shared<compiled::Replay>();
  return program;
}

// _lay_out_arena(blocks): the offset of each block, and the bytes of the arena.
PyObject* lay_out_arena(PyObject*, PyObject* blocks) {
  return guarded([&]() -> PyObject* {
    std::vector<int64_t> offsets;
    const int64_t bytes = compiled::lay_out_arena(read_blocks(blocks), offsets);
    Object list = own(PyList_New(static_cast<Py_ssize_t>(offsets.size())));
    for (size_t i = 0; i < offsets.size(); ++i)
      PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), check(PyLong_FromLongLong(offsets[i])));
    return check(Py_BuildValue("(OL)", list.get(), static_cast<long long>(bytes)));
  });
}

// _kept(inputs, program): the one output of a program over some of the inputs of another, which is kept until
// one of these changes. It stands among the constants of the other.
PyObject* make_kept(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    auto program =
        std::make_unique<std::shared_ptr<compiled::KeptValue>>(std::make_shared<compiled::KeptValue>());
    (*program)->inputs = slots(item(args, 0));
    (*program)->program = read_program(item(args, 1));
    FL_CHECK((*program)->program.outputs.size() == 1, "[kept] expected a program with one output, got ",
             (*program)->program.outputs.size());
    PyObject* capsule = check(PyCapsule_New(program.get(), kKeptValue, [](PyObject* o) {
      delete static_cast<std::shared_ptr<compiled::KeptValue>*>(PyCapsule_GetPointer(o, kKeptValue));
    }));
    program.release();
    return capsule;
  });
}

// ---------------------------------------------------------------- objects

struct GraphObject {
  PyObject_HEAD;
  Ref<CompiledGraph> graph;
};
struct FunctionObject {
  PyObject_HEAD;
  vectorcallfunc vectorcall;
  Ref<SpecializedFunction> function;
};

// A function with some of its inputs given: `_bind` of a function. A tensor is read from its object again
// when a tensor changed, since two objects may have swapped theirs.
struct BoundObject {
  PyObject_HEAD;
  vectorcallfunc vectorcall;
  Ref<SpecializedFunction> function;
  PyObject* objects;               // the tensors given, which this keeps
  std::vector<int> positions;      // where they stand
  std::vector<int> rest;           // where the arguments of a call stand
  std::vector<TensorImpl*> bound;  // by position
  std::unique_ptr<compiled::FixedInputs> fixed;
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

Object list_of(const std::vector<Tensor>& tensors) {
  Object list = own(PyList_New(static_cast<Py_ssize_t>(tensors.size())));
  for (size_t i = 0; i < tensors.size(); ++i)
    PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), check(wrap(tensors[i])));
  return list;
}

// Calls Python for the gradients of the inputs.
auto recorded_gradients(PyObject* function) {
  return [callable = shared(function)](const std::vector<Tensor>& inputs, const std::vector<Tensor>& grads) {
    WithGIL lock;
    Object input_list = list_of(inputs), of = list_of(grads);
    Object gradients = own(PyObject_CallFunctionObjArgs(callable.get(), input_list.get(), of.get(), nullptr));
    return tensors(gradients.get());
  };
}

// _compiled_graph(spec): a graph as GraphSpec describes it.
PyObject* make_graph(PyObject*, PyObject* spec) {
  return guarded([&]() -> PyObject* {
    Ref<CompiledGraph> graph(new CompiledGraph());
    for (const Tensor& t : tensors(FL_FIELD(spec, "inputs").get()))
      graph->inputs.push_back(compiled::spec_of(t));
    graph->grad_mode = FL_FIELD(spec, "grad_mode").get() == Py_True;
    graph->autocast = autocast::signature();
    graph->forward = read_program(FL_FIELD(spec, "forward").get());
    const Object backward = FL_FIELD(spec, "backward"), recorded = FL_FIELD(spec, "recorded");
    if (backward.get() != Py_None) graph->backward = std::make_unique<Program>(read_program(backward.get()));
    graph->results = slot(FL_FIELD(spec, "results"));
    graph->gradients_of = slots(FL_FIELD(spec, "gradients_of").get());
    graph->gradients_from = slots(FL_FIELD(spec, "gradients_from").get());
    graph->families = slots(FL_FIELD(spec, "families").get());
    for_each(FL_FIELD(spec, "gradient_strides").get(),
             [&](PyObject* o) { graph->gradient_strides.push_back(dims(o)); });
    if (recorded.get() != Py_None) graph->recorded = recorded_gradients(recorded.get());
    auto* self = reinterpret_cast<GraphObject*>(check(graph_type.tp_alloc(&graph_type, 0)));
    new (&self->graph) Ref<CompiledGraph>(std::move(graph));
    return reinterpret_cast<PyObject*>(self);
  });
}

}  // namespace

compiled::CompiledGraph* compiled_graph_of(PyObject* o) {
  return Py_TYPE(o) == &graph_type ? reinterpret_cast<GraphObject*>(o)->graph.get() : nullptr;
}

namespace {

Object tuple_of(const std::vector<Tensor>& tensors) {
  Object result = own(PyTuple_New(static_cast<Py_ssize_t>(tensors.size())));
  for (size_t i = 0; i < tensors.size(); ++i)
    PyTuple_SET_ITEM(result.get(), static_cast<Py_ssize_t>(i), check(wrap(tensors[i])));
  return result;
}

PyObject* call_function(PyObject* callable, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  return guarded([&]() -> PyObject* {
    SpecializedFunction& function = *reinterpret_cast<FunctionObject*>(callable)->function;
    const Py_ssize_t n = PyVectorcall_NARGS(nargsf);
    FL_CHECK_KIND(n == function.inputs && kwnames == nullptr, Type, "[compiled function] expected ",
                  function.inputs, " tensors, got ", static_cast<int64_t>(n), " arguments");
    std::vector<Tensor> inputs;
    inputs.reserve(n);
    for (Py_ssize_t i = 0; i < n; ++i) {
      FL_CHECK_KIND(is_tensor(args[i]), Type, "[compiled function] expected tensors, got ",
                    Py_TYPE(args[i])->tp_name);
      inputs.push_back(unwrap(args[i]));
    }
    return tuple_of(function.call(inputs.data())).release();
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
        self.bound[self.positions[i]] = impl_of(PyTuple_GET_ITEM(self.objects, static_cast<Py_ssize_t>(i)));
      if (!self.busy) self.fixed->forget();
      self.changes = changes;
    }
    constexpr size_t kInline = 32;
    TensorImpl* local[kInline];
    std::vector<TensorImpl*> spilled;
    TensorImpl** inputs = local;
    if (self.bound.size() > kInline) {
      spilled.resize(self.bound.size());
      inputs = spilled.data();
    }
    std::memcpy(inputs, self.bound.data(), self.bound.size() * sizeof(TensorImpl*));
    for (size_t i = 0; i < n; ++i) {
      FL_CHECK_KIND(is_tensor(args[i]), Type, "[compiled function] expected tensors, got ",
                    Py_TYPE(args[i])->tp_name);
      inputs[self.rest[i]] = impl_of(args[i]);
    }
    Object keep = Object::borrow(callable);
    // A call that compiles may lead to other calls; those do without what is remembered here.
    const bool outermost = !self.busy;
    struct Busy {
      bool& flag;
      const bool before = std::exchange(flag, true);
      ~Busy() { flag = before; }
    } busy{self.busy};
    const auto* tensors = reinterpret_cast<const Tensor*>(inputs);
    return tuple_of(self.function->call(tensors, outermost ? self.fixed.get() : nullptr)).release();
  });
}

// _bind(positions, tensors): the function of the other inputs.
PyObject* bind(PyObject* callable, PyObject* args) {
  return guarded([&]() -> PyObject* {
    const Ref<SpecializedFunction>& function = reinterpret_cast<FunctionObject*>(callable)->function;
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
    new (&self->function) Ref<SpecializedFunction>(function);
    self->objects = Py_NewRef(objects);
    new (&self->positions) std::vector<int>(positions);
    new (&self->rest) std::vector<int>();
    for (int i = 0; i < function->inputs; ++i)
      if (std::find(positions.begin(), positions.end(), i) == positions.end()) self->rest.push_back(i);
    new (&self->bound) std::vector<TensorImpl*>(function->inputs);
    new (&self->fixed) std::unique_ptr<compiled::FixedInputs>(new compiled::FixedInputs(is_fixed));
    self->changes = tensor_changes.load(std::memory_order_relaxed) - 1;
    return reinterpret_cast<PyObject*>(self);
  });
}

PyMethodDef function_methods[] = {
    {"_bind", bind, METH_VARARGS, "The function with the inputs at some positions given."},
    {nullptr, nullptr, 0, nullptr},
};

// _specialized_function(inputs, miss, original): miss(tensors) returns a graph for a geometry not met before,
// or None; original(*tensors) is the function itself.
PyObject* make_function_object(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    Ref<SpecializedFunction> function(new SpecializedFunction());
    function->inputs = static_cast<int>(int_value(item(args, 0)));
    const int inputs = function->inputs;
    function->parametric = item(args, 3) == Py_True;
    function->miss = [callable = shared(item(args, 1)), inputs](const Tensor* arguments) {
      WithGIL lock;
      Object list = list_of({arguments, arguments + inputs});
      Object graph = own(PyObject_CallOneArg(callable.get(), list.get()));
      if (graph.get() == Py_None) return Ref<CompiledGraph>();
      FL_CHECK_KIND(Py_TYPE(graph.get()) == &graph_type, Type, "[compiled function] expected a graph, got ",
                    Py_TYPE(graph.get())->tp_name);
      return reinterpret_cast<GraphObject*>(graph.get())->graph;
    };
    function->original = [callable = shared(item(args, 2)), inputs](const Tensor* arguments) {
      WithGIL lock;
      Object list = list_of({arguments, arguments + inputs});
      Object tuple = own(PyList_AsTuple(list.get()));
      Object result = own(PyObject_CallObject(callable.get(), tuple.get()));
      return is_tensor(result.get()) ? std::vector<Tensor>{unwrap(result.get())} : tensors(result.get());
    };
    auto* self = reinterpret_cast<FunctionObject*>(check(function_type.tp_alloc(&function_type, 0)));
    self->vectorcall = call_function;
    new (&self->function) Ref<SpecializedFunction>(std::move(function));
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

// _instantiated_graphs(): how many graphs were made from others instead of being recorded.
PyObject* instantiated_graphs(PyObject*, PyObject*) {
  return PyLong_FromLongLong(compiled::instantiated_graphs);
}

// _run_loop(entry, pointers, numbers, threads): runs a generated loop, all given as addresses.
PyObject* run_loop(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    const auto address = [&](int i) { return int_value(item(args, i)); };
    compiled::run_loop(reinterpret_cast<compiled::Entry>(address(0)),
                       reinterpret_cast<void* const*>(address(1)), reinterpret_cast<int64_t*>(address(2)),
                       static_cast<int>(address(3)), HUGE_VAL);
    Py_RETURN_NONE;
  });
}

PyMethodDef functions[] = {
    {"_run_loop", run_loop, METH_VARARGS, nullptr},
    {"_instantiated_graphs", instantiated_graphs, METH_NOARGS, nullptr},
    {"_load_kernel", load_kernel, METH_VARARGS, nullptr},
    {"_compiled_graph", make_graph, METH_O, nullptr},
    {"_lay_out_arena", lay_out_arena, METH_O, nullptr},
    {"_kept", make_kept, METH_VARARGS, nullptr},
    {"_specialized_function", make_function_object, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

// Numbers that the planner shares with native code.
void add_constants(PyObject* module) {
  using cpu::FinishKind;
  check(PyModule_AddIntConstant(module, "_ARENA_ALIGNMENT", compiled::kArenaAlignment));
  check(PyModule_AddIntConstant(module, "_PARALLEL_GRAIN", kGrain));
  check(PyModule_AddIntConstant(module, "_MOST_THREADS", kMostThreads));
  const std::pair<const char*, FinishKind> steps[] = {
      {"Add", FinishKind::Add},         {"Mul", FinishKind::Mul},           {"Relu", FinishKind::Relu},
      {"Gelu", FinishKind::Gelu},       {"GeluTanh", FinishKind::GeluTanh}, {"Silu", FinishKind::Silu},
      {"Sigmoid", FinishKind::Sigmoid}, {"Tanh", FinishKind::Tanh},
  };
  static_assert(std::size(steps) == static_cast<size_t>(FinishKind::Count));
  Object numbers = own(PyDict_New());
  for (const auto& [name, kind] : steps) {
    Object number = own(PyLong_FromLongLong(static_cast<long long>(kind)));
    check(PyDict_SetItemString(numbers.get(), name, number.get()));
  }
  check(PyModule_AddObjectRef(module, "_PRODUCT_STEPS", numbers.get()));
}

}  // namespace

const Ref<CompiledGraph>& compiled_graph(PyObject* o) {
  FL_CHECK_KIND(Py_TYPE(o) == &graph_type, Type, "[compiled graph] expected a compiled graph, got ",
                Py_TYPE(o)->tp_name);
  return reinterpret_cast<GraphObject*>(o)->graph;
}

void add_compiled(PyObject* module) {
  graph_type.tp_name = "flambeau._C.CompiledGraph";
  graph_type.tp_basicsize = sizeof(GraphObject);
  graph_type.tp_flags = Py_TPFLAGS_DEFAULT;
  graph_type.tp_dealloc = [](PyObject* self) {
    reinterpret_cast<GraphObject*>(self)->graph.~Ref();
    Py_TYPE(self)->tp_free(self);
  };
  check(PyType_Ready(&graph_type));
  function_type.tp_name = "flambeau._C.SpecializedFunction";
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
  bound_type.tp_name = "flambeau._C.BoundSpecializedFunction";
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
    self->bound.~vector();
    Py_XDECREF(self->objects);
    Py_TYPE(o)->tp_free(o);
  };
  check(PyType_Ready(&bound_type));
  check(PyModule_AddFunctions(module, functions));
  add_constants(module);
}

}  // namespace fl::py

// Packages seen from Python: recorded graphs are grouped and written as plans, and packages are loaded and
// run.
#include "runtime/package.h"
#include "ops/deferred.h"

#include "python/common.h"

namespace fl::py {
namespace {

using runtime::Package;
using runtime::PackagePlan;

constexpr const char* kPackage = "flambeau._C.Package";
constexpr size_t kMostSamples = 128;  // of one family

template <class F>
void for_each(PyObject* sequence, const F& f) {
  Object fast = own(PySequence_Fast(sequence, "[package] expected a sequence"));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast.get()); ++i)
    f(PySequence_Fast_GET_ITEM(fast.get(), i));
}

PyObject* item(PyObject* sequence, Py_ssize_t i) {
  FL_CHECK_KIND(PyTuple_Check(sequence) && i < PyTuple_GET_SIZE(sequence), Type,
                "[package] expected a tuple of more items");
  return PyTuple_GET_ITEM(sequence, i);
}

std::string text(PyObject* o) {
  const char* utf8 = PyUnicode_AsUTF8(o);
  if (utf8 == nullptr) throw PythonError();
  return utf8;
}

std::vector<int64_t> ints(PyObject* sequence) {
  std::vector<int64_t> read;
  for_each(sequence, [&](PyObject* o) { read.push_back(int_value(o)); });
  return read;
}

Object list_of_ints(const std::vector<size_t>& values) {
  Object list = own(PyList_New(static_cast<Py_ssize_t>(values.size())));
  for (size_t i = 0; i < values.size(); ++i)
    PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), check(PyLong_FromSize_t(values[i])));
  return list;
}

// ---------------------------------------------------------------- writing

// _group_plans(graphs): groups of graphs of one structure whose integers are polynomials of sizes, each as
// whether there are enough to know them, and the indices of the graphs.
PyObject* group_plans(PyObject*, PyObject* graphs) {
  return guarded([&]() -> PyObject* {
    struct Group {
      compiled::PlanFamily family;
      std::vector<size_t> members;
    };
    std::vector<Group> groups;
    size_t index = 0;
    for_each(graphs, [&](PyObject* o) {
      const Ref<compiled::CompiledGraph>& graph = compiled_graph(o);
      FL_CHECK(compiled::PlanFamily::accepts_recorded(*graph),
               "[package] expected graphs without derivatives, got another one");
      bool taken = false;
      for (Group& group : groups) {
        if (taken || !group.family.add(*graph)) continue;
        group.members.push_back(index);
        taken = true;
      }
      if (!taken)
        groups.push_back({compiled::PlanFamily(graph, compiled::kMaxSymbols, kMostSamples), {index}});
      ++index;
    });
    Object result = own(PyList_New(0));
    for (const Group& group : groups) {
      Object pair = own(Py_BuildValue("(NN)", PyBool_FromLong(group.family.is_ready()),
                                      list_of_ints(group.members).release()));
      check(PyList_Append(result.get(), pair.get()));
    }
    return result.release();
  });
}

runtime::PlanVariant read_variant(PyObject* graphs, PyObject* samples) {
  std::unique_ptr<compiled::PlanFamily> family;
  for_each(graphs, [&](PyObject* o) {
    const Ref<compiled::CompiledGraph>& graph = compiled_graph(o);
    if (!family)
      family = std::make_unique<compiled::PlanFamily>(graph, compiled::kMaxSymbols, kMostSamples);
    else
      FL_CHECK(family->add(*graph), "[package] expected graphs of one structure, got others");
  });
  FL_CHECK(family, "[package] expected graphs for a plan, got none");
  runtime::PlanVariant variant;
  variant.plan = family->plan();
  for_each(samples, [&](PyObject* o) { variant.samples.push_back(ints(o)); });
  return variant;
}

// _uncovered(groups, constants, candidates): indices of the lists of inputs that no plan of the groups is
// for.
PyObject* uncovered(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    std::vector<compiled::SizePlan> plans;
    Object none = own(PyTuple_New(0));
    for_each(item(args, 0),
             [&](PyObject* graphs) { plans.push_back(read_variant(graphs, none.get()).plan); });
    const auto constants = static_cast<size_t>(int_value(item(args, 1)));
    std::vector<size_t> missing;
    size_t index = 0;
    for_each(item(args, 2), [&](PyObject* tensors) {
      std::vector<Tensor> inputs;
      for_each(tensors, [&](PyObject* o) {
        FL_CHECK_KIND(is_tensor(o), Type, "[package] expected tensors, got ", Py_TYPE(o)->tp_name);
        inputs.push_back(unwrap(o));
      });
      bool covered = false;
      for (const compiled::SizePlan& plan : plans)
        covered = covered || bool(runtime::instantiate(plan, constants, inputs));
      if (!covered) missing.push_back(index);
      ++index;
    });
    return list_of_ints(missing).release();
  });
}

// _program_constants(graphs): the tensors that programs hold besides their inputs.
PyObject* program_constants(PyObject*, PyObject* graphs) {
  return guarded([&]() -> PyObject* {
    Object result = own(PyList_New(0));
    for_each(graphs, [&](PyObject* o) {
      for (const Tensor& t : compiled_graph(o)->forward.constants) {
        Object wrapped = own(wrap(t));
        check(PyList_Append(result.get(), wrapped.get()));
      }
    });
    return result.release();
  });
}

// _write_plan(kernels, constants, input_constants, inputs, outputs, ranges, variants, device, images): the
// bytes of a plan.
PyObject* write_plan(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    PackagePlan plan;
    for_each(item(args, 0), [&](PyObject* o) { plan.kernels.push_back(text(o)); });
    for_each(item(args, 1), [&](PyObject* o) {
      FL_CHECK_KIND(is_tensor(item(o, 1)), Type, "[package] expected a tensor for each constant");
      const Tensor tensor = unwrap(item(o, 1));
      plan.tensors.push_back(tensor);
      plan.constants.push_back({text(item(o, 0)), tensor.dtype(), Dims(tensor.sizes()),
                                Dims(tensor.strides()), int_value(item(o, 2)), int_value(item(o, 3)),
                                tensor.device()});
    });
    plan.input_constants = static_cast<int>(int_value(item(args, 2)));
    for_each(item(args, 3), [&](PyObject* o) {
      plan.inputs.push_back(
          {text(item(o, 0)), dtype_value(item(o, 1)), ints(item(o, 2)), device_value(item(o, 3))});
    });
    for_each(item(args, 4), [&](PyObject* o) { plan.outputs.push_back(text(o)); });
    for_each(item(args, 5), [&](PyObject* o) {
      plan.ranges.push_back({static_cast<int>(int_value(item(o, 0))), static_cast<int>(int_value(item(o, 1))),
                             int_value(item(o, 2)), int_value(item(o, 3))});
    });
    for_each(item(args, 6),
             [&](PyObject* o) { plan.variants.push_back(read_variant(item(o, 0), item(o, 1))); });
    plan.device = device_value(item(args, 7));
    for_each(item(args, 8),
             [&](PyObject* o) { plan.images.push_back({text(item(o, 0)), int_value(item(o, 1))}); });
    check_plan(plan);
    const std::string bytes = runtime::write_plan(plan);
    return check(PyBytes_FromStringAndSize(bytes.data(), static_cast<Py_ssize_t>(bytes.size())));
  });
}

// ---------------------------------------------------------------- loading

Package& package_of(PyObject* o) {
  FL_CHECK_KIND(PyCapsule_IsValid(o, kPackage), Type, "[package] expected a package, got ",
                Py_TYPE(o)->tp_name);
  return **static_cast<std::shared_ptr<Package>*>(PyCapsule_GetPointer(o, kPackage));
}

// _load_package(path or bytes, index of the device)
PyObject* load_package(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    std::shared_ptr<Package> package;
    PyObject* source = item(args, 0);
    const auto device = static_cast<int>(int_value(item(args, 1)));
    if (PyBytes_Check(source))
      package = Package::load_memory(PyBytes_AS_STRING(source), static_cast<size_t>(PyBytes_GET_SIZE(source)),
                                     device);
    else
      package = Package::load(text(source), device);
    auto held = std::make_unique<std::shared_ptr<Package>>(std::move(package));
    PyObject* capsule = check(PyCapsule_New(held.get(), kPackage, [](PyObject* o) {
      delete static_cast<std::shared_ptr<Package>*>(PyCapsule_GetPointer(o, kPackage));
    }));
    held.release();
    return capsule;
  });
}

// _run_package(package, tensors): a list of tensors.
PyObject* run_package(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    const Package& package = package_of(item(args, 0));
    std::vector<Tensor> inputs, outputs;
    for_each(item(args, 1), [&](PyObject* o) {
      FL_CHECK_KIND(is_tensor(o), Type, "[package] expected tensors, got ", Py_TYPE(o)->tp_name);
      inputs.push_back(elements_of(unwrap(o)));
    });
    {
      struct Unlocked {
        PyThreadState* state = PyEval_SaveThread();
        ~Unlocked() { PyEval_RestoreThread(state); }
      } unlocked;
      outputs = package.run(inputs);
    }
    Object list = own(PyList_New(static_cast<Py_ssize_t>(outputs.size())));
    for (size_t i = 0; i < outputs.size(); ++i)
      PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), check(wrap(outputs[i])));
    return list.release();
  });
}

// _package_constants(package): pairs of name and tensor, of those that can be replaced.
PyObject* package_constants(PyObject*, PyObject* o) {
  return guarded([&]() -> PyObject* {
    const Package& package = package_of(o);
    const std::vector<Tensor> tensors = package.constant_tensors();
    Object list = own(PyList_New(0));
    for (size_t i = 0; i < package.replaceable_constants(); ++i) {
      Object pair = own(Py_BuildValue("(sN)", package.constants()[i].name.c_str(), wrap(tensors[i])));
      check(PyList_Append(list.get(), pair.get()));
    }
    return list.release();
  });
}

// _update_package(package, pairs, in_place)
PyObject* update_package(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    std::vector<std::pair<std::string, Tensor>> constants;
    for_each(item(args, 1), [&](PyObject* o) {
      FL_CHECK_KIND(is_tensor(item(o, 1)), Type, "[package] expected tensors for constants");
      constants.emplace_back(text(item(o, 0)), unwrap(item(o, 1)));
    });
    package_of(item(args, 0)).update(constants, item(args, 2) == Py_True);
    Py_RETURN_NONE;
  });
}

// _package_facts(package): signature, metadata and instruction set.
PyObject* package_facts(PyObject*, PyObject* o) {
  return guarded([&]() -> PyObject* {
    const Package& package = package_of(o);
    return check(Py_BuildValue("(sss)", package.signature().c_str(), package.metadata().c_str(),
                               package.instruction_set().c_str()));
  });
}

// _package_names(package): names of its inputs, and of its outputs.
PyObject* package_names(PyObject*, PyObject* o) {
  return guarded([&]() -> PyObject* {
    const Package& package = package_of(o);
    Object inputs = own(PyList_New(0)), outputs = own(PyList_New(0));
    for (const auto& input : package.inputs())
      check(PyList_Append(inputs.get(), own(PyUnicode_FromString(input.name.c_str())).get()));
    for (const std::string& output : package.outputs())
      check(PyList_Append(outputs.get(), own(PyUnicode_FromString(output.c_str())).get()));
    return check(PyTuple_Pack(2, inputs.get(), outputs.get()));
  });
}

// _package_samples(package): for each plan, tensors like those that it was recorded with, on meta.
PyObject* package_samples(PyObject*, PyObject* o) {
  return guarded([&]() -> PyObject* {
    Object lists = own(PyList_New(0));
    for (const auto& inputs : package_of(o).samples()) {
      Object list = own(PyList_New(0));
      for (const compiled::InputSpec& input : inputs) {
        const Tensor like = empty(input.sizes, {input.dtype, Device{DeviceType::Meta}});
        check(PyList_Append(list.get(), own(wrap(like)).get()));
      }
      check(PyList_Append(lists.get(), list.get()));
    }
    return lists.release();
  });
}

// _package_operators(package): names of the operators that runs call.
PyObject* package_operators(PyObject*, PyObject* o) {
  return guarded([&]() -> PyObject* {
    Object list = own(PyList_New(0));
    for (const std::string& name : package_of(o).operators())
      check(PyList_Append(list.get(), own(PyUnicode_FromString(name.c_str())).get()));
    return list.release();
  });
}

PyMethodDef functions[] = {
    {"_package_operators", package_operators, METH_O, nullptr},
    {"_package_names", package_names, METH_O, nullptr},
    {"_package_samples", package_samples, METH_O, nullptr},
    {"_group_plans", group_plans, METH_O, nullptr},
    {"_uncovered", uncovered, METH_VARARGS, nullptr},
    {"_program_constants", program_constants, METH_O, nullptr},
    {"_write_plan", write_plan, METH_VARARGS, nullptr},
    {"_load_package", load_package, METH_VARARGS, nullptr},
    {"_run_package", run_package, METH_VARARGS, nullptr},
    {"_package_constants", package_constants, METH_O, nullptr},
    {"_update_package", update_package, METH_VARARGS, nullptr},
    {"_package_facts", package_facts, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void add_packages(PyObject* module) {
  check(PyModule_AddFunctions(module, functions));
}

}  // namespace fl::py

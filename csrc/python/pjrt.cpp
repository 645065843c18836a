// Plugins of PJRT seen from Python: `flambeau.xla.pjrt` wraps these functions.
#include "pjrt/client.h"

#include "python/library.h"
#include "python/parse.h"

namespace fl::py {
namespace {

constexpr const char* kClient = "flambeau.pjrt.client";
constexpr const char* kExecutable = "flambeau.pjrt.executable";

struct Opened {
  std::shared_ptr<const pjrt::Plugin> plugin;
  std::shared_ptr<pjrt::Client> client;  // made when it is first needed
};

template <class T>
PyObject* capsule_of(T* object, const char* name) {
  return check(PyCapsule_New(object, name, [](PyObject* capsule) {
    delete static_cast<T*>(PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule)));
  }));
}

template <class T>
T& object_of(PyObject* capsule, const char* name) {
  void* object = PyCapsule_GetPointer(capsule, name);
  if (!object) throw PythonError();
  return *static_cast<T*>(object);
}

PyObject* strings(const std::vector<std::string>& all) {
  PyObject* list = check(PyList_New(0));
  for (const std::string& text : all)
    check(PyList_Append(list, own(PyUnicode_FromString(text.c_str())).get()));
  return list;
}

pjrt::Options options_from(PyObject* dict) {
  pjrt::Options options;
  PyObject *key, *value;
  Py_ssize_t at = 0;
  while (PyDict_Next(dict, &at, &key, &value)) {
    const std::string name = PyUnicode_AsUTF8(key);
    if (PyBool_Check(value))
      options.emplace_back(name, value == Py_True);
    else if (PyLong_Check(value))
      options.emplace_back(name, static_cast<int64_t>(PyLong_AsLongLong(value)));
    else if (PyFloat_Check(value))
      options.emplace_back(name, PyFloat_AsDouble(value));
    else
      options.emplace_back(name, std::string(PyUnicode_AsUTF8(value)));
  }
  return options;
}

// Compilers and devices take their time; Python goes on meanwhile.
template <class F>
auto without_lock(F f) {
  struct Released {
    PyThreadState* state = PyEval_SaveThread();
    ~Released() { PyEval_RestoreThread(state); }
  } released;
  return f();
}

PyObject* pjrt_open(PyObject*, PyObject* args) {
  // _pjrt_open(path) -> (plugin, (major, minor), ["name=value", ...])
  const char* path;
  if (!PyArg_ParseTuple(args, "s", &path)) return nullptr;
  return guarded([&]() -> PyObject* {
    const std::string file = path;
    auto plugin = without_lock([&] { return std::make_shared<const pjrt::Plugin>(file); });
    const auto [major, minor] = plugin->version();
    Object attributes = own(strings(plugin->attributes()));
    return Py_BuildValue("(N(ii)O)", capsule_of(new Opened{plugin, nullptr}, kClient), major, minor,
                         attributes.get());
  });
}

PyObject* pjrt_client(PyObject*, PyObject* args) {
  // _pjrt_client(plugin, options) -> (platform, its version, [device, ...]): makes the plugin's client.
  PyObject *capsule, *options;
  if (!PyArg_ParseTuple(args, "OO!", &capsule, &PyDict_Type, &options)) return nullptr;
  return guarded([&]() -> PyObject* {
    auto& opened = object_of<Opened>(capsule, kClient);
    const pjrt::Options chosen = options_from(options);
    if (!opened.client)
      opened.client = without_lock([&] { return std::make_shared<pjrt::Client>(opened.plugin, chosen); });
    const pjrt::Client& client = *opened.client;
    return Py_BuildValue("(ssN)", client.platform().c_str(), client.platform_version().c_str(),
                         strings(client.devices()));
  });
}

PyObject* pjrt_compile(PyObject*, PyObject* args) {
  // _pjrt_compile(plugin, code) -> executable
  PyObject* capsule;
  const char* code;
  Py_ssize_t size;
  if (!PyArg_ParseTuple(args, "Os#", &capsule, &code, &size)) return nullptr;
  return guarded([&]() -> PyObject* {
    auto& opened = object_of<Opened>(capsule, kClient);
    FL_CHECK(opened.client != nullptr, "[xla.compile] expected a client, got a plugin without one");
    const std::string text(code, static_cast<size_t>(size));
    auto executable = without_lock([&] { return opened.client->compile(text); });
    return capsule_of(new std::shared_ptr<pjrt::Executable>(std::move(executable)), kExecutable);
  });
}

PyObject* pjrt_run(PyObject*, PyObject* args) {
  // _pjrt_run(executable, tensors) -> tensors. All are contiguous and in the host's memory.
  PyObject *capsule, *list;
  if (!PyArg_ParseTuple(args, "OO", &capsule, &list)) return nullptr;
  return guarded([&]() -> PyObject* {
    const auto& executable = object_of<std::shared_ptr<pjrt::Executable>>(capsule, kExecutable);
    Object fast = own(PySequence_Fast(list, "[xla.run] expected a list of tensors"));
    std::vector<Tensor> inputs;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast.get()); ++i) {
      inputs.push_back(unwrap(PySequence_Fast_GET_ITEM(fast.get(), i)));
      FL_CHECK(inputs.back().is_cpu() && inputs.back().is_contiguous(),
               "[xla.run] expected contiguous tensors of the CPU, got another one");
    }
    const std::vector<Tensor> results = without_lock([&] { return executable->run(inputs); });
    PyObject* result_list = check(PyList_New(static_cast<Py_ssize_t>(results.size())));
    for (size_t i = 0; i < results.size(); ++i) PyList_SET_ITEM(result_list, i, check(wrap(results[i])));
    return result_list;
  });
}

PyMethodDef pjrt_functions[] = {{"_pjrt_open", pjrt_open, METH_VARARGS, nullptr},
                                {"_pjrt_client", pjrt_client, METH_VARARGS, nullptr},
                                {"_pjrt_compile", pjrt_compile, METH_VARARGS, nullptr},
                                {"_pjrt_run", pjrt_run, METH_VARARGS, nullptr},
                                {}};

}  // namespace

void add_pjrt(PyObject* module) {
  check(PyModule_AddFunctions(module, pjrt_functions));
}

}  // namespace fl::py

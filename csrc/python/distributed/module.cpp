// The extension module flambeau._distributed: stores, process groups and their work handles for Python. It is
// loaded when flambeau.distributed first needs it, and with it libflambeau_distributed.
#include "python/distributed/common.h"

namespace fl::dist::py {

PyTypeObject* tensor_type = nullptr;
PyObject* errors[5] = {};  // by Failure
PyTypeObject *store_type, *group_type, *work_type;

void PythonError::forget() const noexcept {
  const WithGIL gil;
  PyErr_Clear();
}

void set_error(std::exception_ptr error) {
  try {
    std::rethrow_exception(std::move(error));
  } catch (const PythonError&) {
  } catch (const DistributedError& e) {
    PyErr_SetString(errors[static_cast<int>(e.failure)], e.what());
  } catch (const Error& e) {
    PyObject* kind = e.kind == ErrorKind::Value  ? PyExc_ValueError
                     : e.kind == ErrorKind::Type ? PyExc_TypeError
                                                 : PyExc_RuntimeError;
    PyErr_SetString(kind, e.what());
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
  }
}

namespace {

// Lets handlers of signals run while a thread waits in native code; gives up when one raises.
void check_signals() {
  if (!Py_IsInitialized()) return;
  const PyGILState_STATE state = PyGILState_Ensure();
  const int status = PyErr_CheckSignals();
  PyGILState_Release(state);
  if (status < 0) throw PythonError();
}

// ---------------------------------------------------------------- stores

PyObject* values_list(const Values& values) {
  Object list = own(PyList_New(static_cast<Py_ssize_t>(values.size())));
  for (size_t i = 0; i < values.size(); ++i)
    PyList_SET_ITEM(
        list.get(), i,
        check(PyBytes_FromStringAndSize(values[i].data(), static_cast<Py_ssize_t>(values[i].size()))));
  return list.release();
}

// Waits in pieces, so that an interrupt is noticed.
Values call_store(Store& store, const Request& request, Milliseconds timeout) {
  const auto until = Clock::now() + timeout;
  for (;;) {
    const auto left = std::chrono::duration_cast<Milliseconds>(until - Clock::now());
    const auto piece = std::clamp(left, Milliseconds(0), Milliseconds(500));
    try {
      Released released;
      return store.call(request, piece);
    } catch (const DistributedError& error) {
      if (error.failure != Failure::Store && error.failure != Failure::QueueEmpty) throw;
    }
    check(PyErr_CheckSignals());
    if (Clock::now() >= until) fail_waiting(request, timeout);
  }
}

// call(command, fields, timeout_ms) -> values
PyObject* store_call(PyObject* self, PyObject* args) {
  int command;
  PyObject* fields;
  long long timeout;
  if (!PyArg_ParseTuple(args, "iOL", &command, &fields, &timeout)) return nullptr;
  return guarded([&] {
    Request request{static_cast<Command>(command), {}};
    Object sequence = own(PySequence_Fast(fields, "[Store] expected a list of bytes"));
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence.get()); ++i)
      request.fields.push_back(bytes_of(PySequence_Fast_GET_ITEM(sequence.get(), i)));
    return values_list(call_store(value_of<Store>(self), request, Milliseconds(timeout)));
  });
}

PyObject* store_port(PyObject* self, PyObject*) {
  auto* store = dynamic_cast<TcpStore*>(&value_of<Store>(self));
  return PyLong_FromLong(store ? store->port() : 0);
}

PyMethodDef store_methods[] = {
    {"call", store_call, METH_VARARGS, nullptr}, {"port", store_port, METH_NOARGS, nullptr}, {}};

PyObject* hash_store(PyObject*, PyObject*) {
  return guarded([&] { return hold<Store>(store_type, std::make_shared<HashStore>()); });
}

PyObject* file_store(PyObject*, PyObject* args) {
  const char* path;
  if (!PyArg_ParseTuple(args, "s", &path)) return nullptr;
  return guarded([&] { return hold<Store>(store_type, std::make_shared<FileStore>(path)); });
}

// tcp_store(host, port, serve, share, listening, timeout_ms)
PyObject* tcp_store(PyObject*, PyObject* args) {
  const char* host;
  int port, serve, share, listening;
  long long timeout;
  if (!PyArg_ParseTuple(args, "sippiL", &host, &port, &serve, &share, &listening, &timeout)) return nullptr;
  return guarded([&] {
    const std::string name = host;
    std::shared_ptr<Store> store;
    {
      Released released;
      store = std::make_shared<TcpStore>(name, static_cast<uint16_t>(port), serve != 0, share != 0, listening,
                                         Milliseconds(timeout));
    }
    return hold<Store>(store_type, std::move(store));
  });
}

// ---------------------------------------------------------------- work

// wait(timeout_ms): no limit when it is negative. Waits in pieces, so that an interrupt is noticed.
PyObject* work_wait(PyObject* self, PyObject* o) {
  return guarded([&]() -> PyObject* {
    Work& work = value_of<Work>(self);
    const int64_t timeout = int_of(o);
    const auto until = Clock::now() + Milliseconds(timeout < 0 ? int64_t{1} << 40 : timeout);
    while (!work.done()) {
      const auto left = std::chrono::duration_cast<Milliseconds>(until - Clock::now());
      try {
        Released released;
        work.wait(std::clamp(left, Milliseconds(0), Milliseconds(500)));
      } catch (const DistributedError& error) {
        if (work.done() || Clock::now() >= until) throw;
      }
      check(PyErr_CheckSignals());
    }
    if (auto error = work.error()) std::rethrow_exception(error);
    Py_RETURN_NONE;
  });
}

PyObject* work_done(PyObject* self, PyObject*) {
  return PyBool_FromLong(value_of<Work>(self).done());
}

PyObject* work_source(PyObject* self, PyObject*) {
  return PyLong_FromLong(value_of<Work>(self).source);
}

// error() -> the exception, or None
PyObject* work_error(PyObject* self, PyObject*) {
  auto error = value_of<Work>(self).error();
  if (!error) Py_RETURN_NONE;
  set_error(error);
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  Py_XDECREF(type);
  Py_XDECREF(trace);
  return value;
}

// then(callback): called with no arguments, on the thread that finished the work
PyObject* work_then(PyObject* self, PyObject* callback) {
  std::shared_ptr<PyObject> shared_callback(Py_NewRef(callback), [](PyObject* o) {
    const PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF(o);
    PyGILState_Release(state);
  });
  std::shared_ptr<Work> work = *reinterpret_cast<Held<Work>*>(self)->value;
  Released released;
  work->then([shared_callback = std::move(shared_callback)] {
    const PyGILState_STATE state = PyGILState_Ensure();
    PyObject* result = PyObject_CallNoArgs(shared_callback.get());
    if (result)
      Py_DECREF(result);
    else
      PyErr_WriteUnraisable(shared_callback.get());
    PyGILState_Release(state);
  });
  Py_RETURN_NONE;
}

PyMethodDef work_methods[] = {
    {"wait", work_wait, METH_O, nullptr},          {"done", work_done, METH_NOARGS, nullptr},
    {"source", work_source, METH_NOARGS, nullptr}, {"error", work_error, METH_NOARGS, nullptr},
    {"then", work_then, METH_O, nullptr},          {}};

// ---------------------------------------------------------------- groups

void delete_segment(PyObject* capsule) {
  delete static_cast<Segment*>(PyCapsule_GetPointer(capsule, "segment"));
}

// create_segment(ranks) -> (segment, descriptor)
PyObject* create_segment(PyObject*, PyObject* o) {
  return guarded([&]() -> PyObject* {
    auto segment = Segment::create(static_cast<int>(int_of(o)));
    const int descriptor = segment->descriptor();
    Object capsule = own(PyCapsule_New(segment.release(), "segment", delete_segment));
    return Py_BuildValue("(Oi)", capsule.get(), descriptor);
  });
}

// open_segment(pid, descriptor, ranks) -> segment
PyObject* open_segment(PyObject*, PyObject* args) {
  int pid, descriptor, ranks;
  if (!PyArg_ParseTuple(args, "iii", &pid, &descriptor, &ranks)) return nullptr;
  return guarded([&] {
    return PyCapsule_New(Segment::open(pid, descriptor, ranks).release(), "segment", delete_segment);
  });
}

// Group(segment, rank, name); the segment belongs to the group afterwards.
PyObject* make_group(PyObject*, PyObject* args) {
  PyObject* capsule;
  int rank;
  const char* name;
  if (!PyArg_ParseTuple(args, "Ois", &capsule, &rank, &name)) return nullptr;
  return guarded([&]() -> PyObject* {
    std::unique_ptr<Segment> segment(static_cast<Segment*>(PyCapsule_GetPointer(capsule, "segment")));
    if (!segment) throw PythonError();
    PyCapsule_SetDestructor(capsule, nullptr);
    PyCapsule_SetName(capsule, "used");
    return hold(group_type, ProcessGroup::make(std::move(segment), rank, name));
  });
}

// The methods below end with (…, async, timeout_ms) and return a work handle, or None when they are done.
template <Py_ssize_t count, class F>
PyObject* run(PyObject* self, Arguments args, Py_ssize_t received, F&& f) {
  return guarded([&]() -> PyObject* {
    FL_CHECK_KIND(received == count, Type, "[distributed] expected ", count, " arguments, got ", received);
    const Mode mode{args[count - 2] == Py_True, Milliseconds(int_of(args[count - 1]))};
    std::shared_ptr<ProcessGroup> group = *reinterpret_cast<Held<ProcessGroup>*>(self)->value;
    WorkRef work = f(*group, mode);
    if (!work) Py_RETURN_NONE;
    return hold(work_type, std::move(work));
  });
}

template <class F>
WorkRef released(F&& f) {
  Released released;
  return f();
}

PyObject* group_barrier(PyObject* self, Arguments args, Py_ssize_t n) {
  return run<2>(self, args, n, [&](ProcessGroup& group, const Mode& mode) {
    return released([&] { return group.barrier(mode); });
  });
}

PyObject* group_broadcast(PyObject* self, Arguments args, Py_ssize_t n) {
  return run<4>(self, args, n, [&](ProcessGroup& group, const Mode& mode) {
    const Tensor tensor = tensor_of(args[0]);
    const int root = static_cast<int>(int_of(args[1]));
    return released([&] { return group.broadcast(tensor, root, mode); });
  });
}

PyObject* group_all_reduce(PyObject* self, Arguments args, Py_ssize_t n) {
  return run<4>(self, args, n, [&](ProcessGroup& group, const Mode& mode) {
    const Tensor tensor = tensor_of(args[0]);
    const auto reduction = static_cast<Reduction>(int_of(args[1]));
    return released([&] { return group.all_reduce(tensor, reduction, mode); });
  });
}

PyObject* group_reduce(PyObject* self, Arguments args, Py_ssize_t n) {
  return run<5>(self, args, n, [&](ProcessGroup& group, const Mode& mode) {
    const Tensor tensor = tensor_of(args[0]);
    const int root = static_cast<int>(int_of(args[1]));
    const auto reduction = static_cast<Reduction>(int_of(args[2]));
    return released([&] { return group.reduce(tensor, root, reduction, mode); });
  });
}

PyObject* group_all_gather(PyObject* self, Arguments args, Py_ssize_t n) {
  return run<4>(self, args, n, [&](ProcessGroup& group, const Mode& mode) {
    const Tensors to = tensors_of(args[0]);
    const Tensor from = tensor_of(args[1]);
    return released([&] { return group.all_gather(to, from, mode); });
  });
}

PyObject* group_gather(PyObject* self, Arguments args, Py_ssize_t n) {
  return run<5>(self, args, n, [&](ProcessGroup& group, const Mode& mode) {
    const Tensors to = tensors_of(args[0]);
    const Tensor from = tensor_of(args[1]);
    const int root = static_cast<int>(int_of(args[2]));
    return released([&] { return group.gather(to, from, root, mode); });
  });
}

PyObject* group_scatter(PyObject* self, Arguments args, Py_ssize_t n) {
  return run<5>(self, args, n, [&](ProcessGroup& group, const Mode& mode) {
    const Tensor to = tensor_of(args[0]);
    const Tensors from = tensors_of(args[1]);
    const int root = static_cast<int>(int_of(args[2]));
    return released([&] { return group.scatter(to, from, root, mode); });
  });
}

PyObject* group_reduce_scatter(PyObject* self, Arguments args, Py_ssize_t n) {
  return run<5>(self, args, n, [&](ProcessGroup& group, const Mode& mode) {
    const Tensor to = tensor_of(args[0]);
    const Tensors from = tensors_of(args[1]);
    const auto reduction = static_cast<Reduction>(int_of(args[2]));
    return released([&] { return group.reduce_scatter(to, from, reduction, mode); });
  });
}

PyObject* group_all_to_all(PyObject* self, Arguments args, Py_ssize_t n) {
  return run<4>(self, args, n, [&](ProcessGroup& group, const Mode& mode) {
    const Tensors to = tensors_of(args[0]), from = tensors_of(args[1]);
    return released([&] { return group.all_to_all(to, from, mode); });
  });
}

PyObject* group_send(PyObject* self, Arguments args, Py_ssize_t n) {
  return run<5>(self, args, n, [&](ProcessGroup& group, const Mode& mode) {
    const Tensor tensor = tensor_of(args[0]);
    const int to = static_cast<int>(int_of(args[1]));
    const int64_t tag = int_of(args[2]);
    return released([&] { return group.send(tensor, to, tag, mode); });
  });
}

PyObject* group_receive(PyObject* self, Arguments args, Py_ssize_t n) {
  return run<5>(self, args, n, [&](ProcessGroup& group, const Mode& mode) {
    const Tensor tensor = tensor_of(args[0]);
    const int from = static_cast<int>(int_of(args[1]));
    const int64_t tag = int_of(args[2]);
    return released([&] { return group.receive(tensor, from, tag, mode); });
  });
}

PyObject* group_close(PyObject* self, PyObject*) {
  Released released;
  value_of<ProcessGroup>(self).close();
  Py_RETURN_NONE;
}

PyObject* group_sequence(PyObject* self, PyObject*) {
  return PyLong_FromUnsignedLongLong(value_of<ProcessGroup>(self).sequence());
}

// status() -> [(pid, collectives, last collective, bytes, seconds waited, trouble)] by rank
PyObject* group_status(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    Presence& presence = value_of<ProcessGroup>(self).presence();
    Object rows = own(PyList_New(presence.ranks()));
    for (int rank = 0; rank < presence.ranks(); ++rank) {
      const Control& control = presence.segment().control(rank);
      PyList_SET_ITEM(rows.get(), rank,
                      check(Py_BuildValue("(iKsKds)", control.pid.load(), control.current.sequence,
                                          control.current.describe().c_str(), control.bytes.load(),
                                          static_cast<double>(control.waiting.load()) * 1e-9,
                                          presence.trouble(rank).c_str())));
    }
    return rows.release();
  });
}

// recent() -> [(sequence, description, start ns, end ns)], the oldest first
PyObject* group_recent(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    const std::vector<Trace> traces = value_of<ProcessGroup>(self).recent();
    Object rows = own(PyList_New(static_cast<Py_ssize_t>(traces.size())));
    for (size_t i = 0; i < traces.size(); ++i)
      PyList_SET_ITEM(rows.get(), static_cast<Py_ssize_t>(i),
                      check(Py_BuildValue(
                          "(KsLL)", traces[i].what.sequence, traces[i].what.describe().c_str(),
                          static_cast<long long>(traces[i].start), static_cast<long long>(traces[i].end))));
    return rows.release();
  });
}

// stacks() -> every rank's last collective and Python stacks
PyObject* group_stacks(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    std::string text;
    {
      Released released;
      text = value_of<ProcessGroup>(self).presence().stacks();
    }
    return PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
  });
}

// write_stacks_to(descriptor): where this process writes its stacks when a peer asks
PyObject* group_write_stacks_to(PyObject* self, PyObject* o) {
  return guarded([&]() -> PyObject* {
    value_of<ProcessGroup>(self).presence().own().stacks.store(static_cast<int>(int_of(o)) + 1);
    Py_RETURN_NONE;
  });
}

// succeed(timeout_ms) -> (segment, ranks of this group that are left)
PyObject* group_succeed(PyObject* self, PyObject* o) {
  return guarded([&]() -> PyObject* {
    const Milliseconds timeout(int_of(o));
    std::pair<std::unique_ptr<Segment>, std::vector<int>> result;
    {
      Released released;
      result = value_of<ProcessGroup>(self).succeed(Limit::after(timeout));
    }
    Object ranks = own(PyList_New(static_cast<Py_ssize_t>(result.second.size())));
    for (size_t i = 0; i < result.second.size(); ++i)
      PyList_SET_ITEM(ranks.get(), static_cast<Py_ssize_t>(i), check(PyLong_FromLong(result.second[i])));
    Object capsule = own(PyCapsule_New(result.first.release(), "segment", delete_segment));
    return Py_BuildValue("(OO)", capsule.get(), ranks.get());
  });
}

// status_of(pid, descriptor) -> (name, [(pid, sequence, last collective, bytes, seconds waited)]) of a group
// of other processes, or None when the memory is no group's
PyObject* status_of(PyObject*, PyObject* args) {
  int pid, descriptor;
  if (!PyArg_ParseTuple(args, "ii", &pid, &descriptor)) return nullptr;
  return guarded([&]() -> PyObject* {
    const int ranks = Segment::ranks_at(pid, descriptor);
    if (ranks <= 0) Py_RETURN_NONE;
    const auto segment = Segment::open(pid, descriptor, ranks);
    Object rows = own(PyList_New(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      const Control& control = segment->control(rank);
      PyList_SET_ITEM(rows.get(), rank,
                      check(Py_BuildValue("(iKsKd)", control.pid.load(), control.current.sequence,
                                          control.current.describe().c_str(), control.bytes.load(),
                                          static_cast<double>(control.waiting.load()) * 1e-9)));
    }
    return Py_BuildValue("(sO)", segment->header().name, rows.get());
  });
}

PyObject* stack_signal_number(PyObject*, PyObject*) {
  return PyLong_FromLong(stack_signal());
}

PyMethodDef group_methods[] = {{"barrier", fast(group_barrier), METH_FASTCALL, nullptr},
                               {"broadcast", fast(group_broadcast), METH_FASTCALL, nullptr},
                               {"all_reduce", fast(group_all_reduce), METH_FASTCALL, nullptr},
                               {"reduce", fast(group_reduce), METH_FASTCALL, nullptr},
                               {"all_gather", fast(group_all_gather), METH_FASTCALL, nullptr},
                               {"gather", fast(group_gather), METH_FASTCALL, nullptr},
                               {"scatter", fast(group_scatter), METH_FASTCALL, nullptr},
                               {"reduce_scatter", fast(group_reduce_scatter), METH_FASTCALL, nullptr},
                               {"all_to_all", fast(group_all_to_all), METH_FASTCALL, nullptr},
                               {"send", fast(group_send), METH_FASTCALL, nullptr},
                               {"receive", fast(group_receive), METH_FASTCALL, nullptr},
                               {"close", group_close, METH_NOARGS, nullptr},
                               {"sequence", group_sequence, METH_NOARGS, nullptr},
                               {"status", group_status, METH_NOARGS, nullptr},
                               {"recent", group_recent, METH_NOARGS, nullptr},
                               {"stacks", group_stacks, METH_NOARGS, nullptr},
                               {"write_stacks_to", group_write_stacks_to, METH_O, nullptr},
                               {"succeed", group_succeed, METH_O, nullptr},
                               {}};

PyMethodDef functions[] = {{"hash_store", hash_store, METH_NOARGS, nullptr},
                           {"file_store", file_store, METH_VARARGS, nullptr},
                           {"tcp_store", tcp_store, METH_VARARGS, nullptr},
                           {"create_segment", create_segment, METH_O, nullptr},
                           {"open_segment", open_segment, METH_VARARGS, nullptr},
                           {"make_group", make_group, METH_VARARGS, nullptr},
                           {"status_of", status_of, METH_VARARGS, nullptr},
                           {"make_reducer", make_reducer, METH_VARARGS, nullptr},
                           {"stack_signal", stack_signal_number, METH_NOARGS, nullptr},
                           {}};

PyObject* make_error(PyObject* module, const char* name, PyObject* base) {
  PyObject* error =
      check(PyErr_NewException((std::string("flambeau.distributed.") + name).c_str(), base, nullptr));
  check(PyModule_AddObjectRef(module, name, error));
  return error;
}

PyModuleDef definition{PyModuleDef_HEAD_INIT, "flambeau._distributed", "Stores and process groups.", -1,
                       functions};

}  // namespace

PyObject* make_module() {
  return guarded([]() -> PyObject* {
    Object module = own(PyModule_Create(&definition));
    Object core = own(PyImport_ImportModule("flambeau._C"));
    tensor_type = reinterpret_cast<PyTypeObject*>(check(PyObject_GetAttrString(core.get(), "Tensor")));
    store_type = make_type<Store>(module.get(), "flambeau._distributed.Store", store_methods);
    work_type = make_type<Work>(module.get(), "flambeau._distributed.Work", work_methods);
    group_type = make_type<ProcessGroup>(module.get(), "flambeau._distributed.Group", group_methods);
    make_reducer_type(module.get());
    PyObject* base = make_error(module.get(), "DistError", PyExc_RuntimeError);
    PyObject* backend = make_error(module.get(), "DistBackendError", base);
    PyObject* store = make_error(module.get(), "DistStoreError", base);
    PyObject* network = make_error(module.get(), "DistNetworkError", base);
    PyObject* empty = make_error(module.get(), "QueueEmptyError", store);
    errors[static_cast<int>(Failure::Backend)] = backend;
    errors[static_cast<int>(Failure::Timeout)] = backend;
    errors[static_cast<int>(Failure::Store)] = store;
    errors[static_cast<int>(Failure::Network)] = network;
    errors[static_cast<int>(Failure::QueueEmpty)] = empty;
    on_waiting = check_signals;
    return module.release();
  });
}

}  // namespace fl::dist::py

PyMODINIT_FUNC PyInit__distributed() {
  return fl::dist::py::make_module();
}

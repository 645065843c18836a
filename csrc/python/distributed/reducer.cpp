// The reducer of data-parallel training for Python. Its owner is an object with the methods `_begin`,
// `_start` and
// `_finish` (flambeau/distributed/_reducer.py), which are called once for a backward pass or a bucket.
#include "distributed/reducer.h"

#include "python/distributed/common.h"

namespace fl::dist::py {

PyTypeObject* reducer_type;

namespace {

// (group or None, timeout_ms, divisor, at_end)
Pass pass_of(PyObject* o) {
  PyObject* group;
  long long timeout;
  int at_end;
  Pass pass;
  if (!PyArg_ParseTuple(o, "OLdp", &group, &timeout, &pass.divisor, &at_end)) throw PythonError();
  if (group != Py_None) pass.group = *reinterpret_cast<Held<ProcessGroup>*>(group)->value;
  pass.timeout = Milliseconds(timeout);
  pass.at_end = at_end != 0;
  return pass;
}

class Owner final : public ReducerOwner {
 public:
  explicit Owner(PyObject* object) : object_(object) {}
  bool begin(Pass& pass) override {
    const WithGIL gil;
    Object answer = own(PyObject_CallMethod(object_, "_begin", nullptr));
    if (answer.get() == Py_None) return false;
    pass = pass_of(answer.get());
    return true;
  }
  void start(int bucket) override {
    const WithGIL gil;
    own(PyObject_CallMethod(object_, "_start", "i", bucket));
  }
  void finish() override {
    const WithGIL gil;
    own(PyObject_CallMethod(object_, "_finish", nullptr));
  }

 private:
  PyObject* object_;  // it owns the reducer
};

std::shared_ptr<Reducer> reducer_of(PyObject* self) {
  return *reinterpret_cast<Held<Reducer>*>(self)->value;
}

template <class F>
PyObject* done(F&& f) {
  return guarded([&]() -> PyObject* {
    f();
    Py_RETURN_NONE;
  });
}

std::vector<std::vector<int>> buckets_of(PyObject* o) {
  Object lists = own(PySequence_Fast(o, "[Reducer] expected lists of indices"));
  std::vector<std::vector<int>> buckets;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(lists.get()); ++i) {
    Object list = own(
        PySequence_Fast(PySequence_Fast_GET_ITEM(lists.get(), i), "[Reducer] expected a list of indices"));
    buckets.emplace_back();
    for (Py_ssize_t j = 0; j < PySequence_Fast_GET_SIZE(list.get()); ++j)
      buckets.back().push_back(static_cast<int>(int_of(PySequence_Fast_GET_ITEM(list.get(), j))));
  }
  return buckets;
}

PyObject* assign(PyObject* self, PyObject* o) {
  return done([&] { reducer_of(self)->assign(buckets_of(o)); });
}

// set_memory(bucket, views, counts or None)
PyObject* set_memory(PyObject* self, PyObject* args) {
  int bucket;
  PyObject *views, *used;
  if (!PyArg_ParseTuple(args, "iOO", &bucket, &views, &used)) return nullptr;
  return done([&] {
    reducer_of(self)->set_memory(bucket, tensors_of(views), used == Py_None ? Tensor() : tensor_of(used));
  });
}

PyObject* begin(PyObject* self, PyObject*) {
  return done([&] { reducer_of(self)->begin(); });
}

PyObject* shadow(PyObject* self, PyObject* pass) {
  return done([&] { reducer_of(self)->shadow(pass_of(pass)); });
}

PyObject* work(PyObject* self, PyObject* bucket) {
  return guarded([&]() -> PyObject* {
    WorkRef running = reducer_of(self)->work(static_cast<int>(int_of(bucket)));
    if (!running) Py_RETURN_NONE;
    return hold(work_type, std::move(running));
  });
}

PyObject* repeats(PyObject* self, PyObject* bucket) {
  return guarded(
      [&] { return PyBool_FromLong(reducer_of(self)->repeats(static_cast<int>(int_of(bucket)))); });
}

PyObject* repeat(PyObject* self, PyObject* bucket) {
  return done([&] { reducer_of(self)->repeat(static_cast<int>(int_of(bucket))); });
}

// hand_out(bucket, as_view, counted)
PyObject* hand_out(PyObject* self, PyObject* args) {
  int bucket, as_view, counted;
  if (!PyArg_ParseTuple(args, "ipp", &bucket, &as_view, &counted)) return nullptr;
  return done([&] { reducer_of(self)->hand_out(bucket, as_view != 0, counted != 0); });
}

PyObject* order(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    const std::vector<int> order = reducer_of(self)->order();
    Object list = own(PyList_New(static_cast<Py_ssize_t>(order.size())));
    for (size_t i = 0; i < order.size(); ++i)
      PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), check(PyLong_FromLong(order[i])));
    return list.release();
  });
}

PyObject* times(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    const auto [first_start, backward_end] = reducer_of(self)->times();
    return Py_BuildValue("LL", static_cast<long long>(first_start), static_cast<long long>(backward_end));
  });
}

PyObject* expect_repeats(PyObject* self, PyObject*) {
  return done([&] { reducer_of(self)->expect_repeats(); });
}

PyMethodDef methods[] = {{"assign", assign, METH_O, nullptr},
                         {"set_memory", set_memory, METH_VARARGS, nullptr},
                         {"begin", begin, METH_NOARGS, nullptr},
                         {"shadow", shadow, METH_O, nullptr},
                         {"work", work, METH_O, nullptr},
                         {"repeats", repeats, METH_O, nullptr},
                         {"repeat", repeat, METH_O, nullptr},
                         {"hand_out", hand_out, METH_VARARGS, nullptr},
                         {"order", order, METH_NOARGS, nullptr},
                         {"times", times, METH_NOARGS, nullptr},
                         {"expect_repeats", expect_repeats, METH_NOARGS, nullptr},
                         {}};

}  // namespace

void make_reducer_type(PyObject* module) {
  reducer_type = make_type<Reducer>(module, "flambeau._distributed.Reducer", methods);
}

// make_reducer(owner, parameters): the owner keeps it and lives longer
PyObject* make_reducer(PyObject*, PyObject* args) {
  PyObject *owner, *parameters;
  if (!PyArg_ParseTuple(args, "OO", &owner, &parameters)) return nullptr;
  return guarded([&]() -> PyObject* {
    auto reducer = std::make_shared<Reducer>(tensors_of(parameters), std::make_unique<Owner>(owner));
    reducer->attach(owner);
    return hold(reducer_type, std::move(reducer));
  });
}

}  // namespace fl::dist::py

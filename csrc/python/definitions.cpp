// Definitions as native code evaluates them, seen from Python: for tests that compare the two.
#include "definitions/object.h"
#include "dispatch/builtin.h"
#include "python/library.h"
#include "python/parse.h"

namespace fl::py {
namespace {

// A Python object as a value of definitions.
definitions::Object object_of(PyObject* o) {
  using definitions::Object;
  if (o == Py_None) return {};
  if (is_tensor(o)) return Object(unwrap(o));
  if (PyUnicode_Check(o)) return Object(PyUnicode_AsUTF8(o));
  if (PyTuple_Check(o) || PyList_Check(o)) {
    definitions::Objects items;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); ++i)
      items.push_back(object_of(PySequence_Fast_GET_ITEM(o, i)));
    return PyTuple_Check(o) ? Object::tuple(std::move(items)) : Object::list(std::move(items));
  }
  if (is_dtype(o)) return Object(dtype_value(o));
  Value number;
  FL_CHECK_KIND(number_value(o, number), NotImplemented,
                "[definition] expected a value that native code knows, got ", Py_TYPE(o)->tp_name);
  return definitions::from_value(number);
}

Value carried(PyObject* o) {
  return Value(Ref<Opaque>(new definitions::Carried(object_of(o))));
}

// _run_definition(full name, *args, **kwargs): the results of an operator by its definition, without Python.
PyObject* run_definition(PyObject*, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return guarded([&]() -> PyObject* {
    FL_CHECK_KIND(nargs > 0, Type, "[definition] expected an operator, got no argument");
    const Operator& op = *operator_of(args[0]);
    FL_CHECK(op.record != nullptr && op.record->python_module[0] != 0,
             "[definition] expected an operator with a definition, got ", op.schema.full_name());
    ValueStack values(kMaxArgs);
    Arena arena;
    std::string why;
    if (!parse(op, args + 1, nargs - 1, kwnames, values.data(), arena, nullptr, &why))
      fail(ErrorKind::Type, "[", op.schema.name, "] expected ", why);
    // Objects that travel as they are become values of definitions.
    for (size_t i = 0; i < op.schema.args.size(); ++i) {
      Value& value = values.data()[i];
      if (value.tag() != Value::Tag::Opaque) continue;
      auto* opaque = dynamic_cast<PyOpaque*>(value.opaque());
      if (opaque == nullptr || opaque->generator() != nullptr) continue;
      value = carried(opaque->object);
    }
    std::vector<Value> results(kMaxArgs);
    definitions::run_definition(op, *op.record, values.data(), results.data());
    return wrap_results(op, results.data());
  });
}

PyMethodDef functions[] = {
    {"_run_definition", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(run_definition)),
     METH_FASTCALL | METH_KEYWORDS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void add_definitions(PyObject* module) {
  check(PyModule_AddFunctions(module, functions));
}

}  // namespace fl::py

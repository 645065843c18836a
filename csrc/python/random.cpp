// torch.Generator: a seed and a position, shared with the kernels.
#include "python/common.h"
// Python.h must come first.

#include <structmember.h>

#include <cstddef>
#include <cstring>

#include "core/random.h"

namespace fl::py {

namespace {

struct GeneratorObject {
  PyObject_HEAD Generator* generator;  // owned
  PyObject* weakrefs;
};

PyTypeObject* generator_type;
constexpr int64_t kStateBytes = 16;  // seed, offset

Generator& self_generator(PyObject* self) {
  return *reinterpret_cast<GeneratorObject*>(self)->generator;
}

PyObject* make_generator(PyTypeObject* type, Ref<Generator> generator) {
  auto* o = reinterpret_cast<GeneratorObject*>(check(type->tp_alloc(type, 0)));
  o->generator = generator.leak();
  return reinterpret_cast<PyObject*>(o);
}

PyObject* generator_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"device", nullptr};
  PyObject* device = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O", const_cast<char**>(names), &device)) return nullptr;
  return guarded([&]() -> PyObject* {
    const Device d = device && device != Py_None ? device_from(device) : Device{};
    return make_generator(type, Ref<Generator>(new Generator(d)));
  });
}

void generator_dealloc(PyObject* self) {
  auto* o = reinterpret_cast<GeneratorObject*>(self);
  PyTypeObject* type = Py_TYPE(self);
  if (o->weakrefs) PyObject_ClearWeakRefs(self);
  if (o->generator) o->generator->release();
  type->tp_free(self);
  Py_DECREF(type);
}

// Any 64-bit integer, signed or not.
uint64_t seed_value(PyObject* o) {
  FL_CHECK(PyIndex_Check(o), "[manual_seed] expected an integer, got ", std::string(Py_TYPE(o)->tp_name));
  Object index = own(PyNumber_Index(o));
  int overflow = 0;
  const int64_t i = PyLong_AsLongLongAndOverflow(index.get(), &overflow);
  if (overflow > 0) {
    const unsigned long long u = PyLong_AsUnsignedLongLong(index.get());
    if (!PyErr_Occurred()) return u;
    PyErr_Clear();
  }
  FL_CHECK_KIND(
      overflow == 0, Value,
      "[manual_seed] expected a seed that fits in 64 bits, got another: Overflow when unpacking long long");
  return static_cast<uint64_t>(i);
}

PyObject* generator_manual_seed(PyObject* self, PyObject* seed) {
  return guarded([&]() -> PyObject* {
    self_generator(self).manual_seed(seed_value(seed));
    return Py_NewRef(self);
  });
}
PyObject* generator_seed(PyObject* self, PyObject*) {
  return PyLong_FromUnsignedLongLong(self_generator(self).reseed());
}
PyObject* generator_initial_seed(PyObject* self, PyObject*) {
  return PyLong_FromUnsignedLongLong(self_generator(self).initial_seed());
}
PyObject* generator_get_offset(PyObject* self, PyObject*) {
  return PyLong_FromUnsignedLongLong(self_generator(self).state().offset);
}
PyObject* generator_set_offset(PyObject* self, PyObject* offset) {
  return guarded([&]() -> PyObject* {
    Generator& g = self_generator(self);
    g.set_state({g.state().seed, seed_value(offset)});
    return Py_NewRef(self);
  });
}

PyObject* generator_get_state(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    Tensor t = empty({kStateBytes}, {DType::UInt8, Device{}});
    const Generator::State s = self_generator(self).state();
    std::memcpy(t.raw(), &s.seed, 8);
    std::memcpy(t.raw() + 8, &s.offset, 8);
    return wrap(t);
  });
}

PyObject* generator_set_state(PyObject* self, PyObject* state) {
  return guarded([&]() -> PyObject* {
    FL_CHECK_KIND(is_tensor(state), Type, "[set_state] expected a Tensor, got ",
                  std::string(Py_TYPE(state)->tp_name));
    Tensor t = unwrap(state);
    FL_CHECK_KIND(t.dtype() == DType::UInt8 && t.is_cpu(), Type,
                  "[set_state] expected a uint8 tensor on the CPU, got ", name_of(t.dtype()), " on ",
                  to_string(t.device()));
    FL_CHECK(t.numel() == kStateBytes, "[set_state] expected ", kStateBytes, " bytes, got ", t.numel());
    t = contiguous(t);
    Generator::State s;
    std::memcpy(&s.seed, t.raw(), 8);
    std::memcpy(&s.offset, t.raw() + 8, 8);
    self_generator(self).set_state(s);
    return Py_NewRef(self);
  });
}

PyObject* generator_clone_state(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    Ref<Generator> fresh(new Generator(self_generator(self).device));
    fresh->set_state(self_generator(self).state());
    return make_generator(Py_TYPE(self), fresh);
  });
}

PyObject* generator_graphsafe_set_state(PyObject* self, PyObject* other) {
  return guarded([&]() -> PyObject* {
    FL_CHECK_KIND(is_generator(other), Type, "[graphsafe_set_state] expected a Generator, got ",
                  std::string(Py_TYPE(other)->tp_name));
    self_generator(self).set_state(self_generator(other).state());
    return Py_NewRef(self);
  });
}

PyObject* generator_device(PyObject* self, void*) {
  return guarded([&]() -> PyObject* { return make_device(self_generator(self).device); });
}

PyObject* generator_reduce(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    const std::string device = to_string(self_generator(self).device);
    const Generator::State s = self_generator(self).state();
    Object module = own(PyImport_ImportModule("flambeau.random"));
    Object restore = own(PyObject_GetAttrString(module.get(), "_restore_generator"));
    return Py_BuildValue("O(sKK)", restore.get(), device.c_str(), static_cast<unsigned long long>(s.seed),
                         static_cast<unsigned long long>(s.offset));
  });
}

PyObject* generator_repr(PyObject* self) {
  const std::string device = to_string(self_generator(self).device);
  return PyUnicode_FromFormat("<torch._C.Generator on %s>", device.c_str());
}

PyMethodDef generator_methods[] = {{"manual_seed", generator_manual_seed, METH_O, nullptr},
                                   {"seed", generator_seed, METH_NOARGS, nullptr},
                                   {"initial_seed", generator_initial_seed, METH_NOARGS, nullptr},
                                   {"get_state", generator_get_state, METH_NOARGS, nullptr},
                                   {"set_state", generator_set_state, METH_O, nullptr},
                                   {"clone_state", generator_clone_state, METH_NOARGS, nullptr},
                                   {"graphsafe_get_state", generator_clone_state, METH_NOARGS, nullptr},
                                   {"graphsafe_set_state", generator_graphsafe_set_state, METH_O, nullptr},
                                   {"get_offset", generator_get_offset, METH_NOARGS, nullptr},
                                   {"set_offset", generator_set_offset, METH_O, nullptr},
                                   {"__reduce__", generator_reduce, METH_NOARGS, nullptr},
                                   {}};
PyGetSetDef generator_getset[] = {{"device", generator_device, nullptr, nullptr, nullptr}, {}};
PyMemberDef generator_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(GeneratorObject, weakrefs), READONLY, nullptr}, {}};

}  // namespace

bool is_generator(PyObject* o) {
  return Py_TYPE(o) == generator_type || PyType_IsSubtype(Py_TYPE(o), generator_type);
}

Generator* PyOpaque::generator() {
  return is_generator(object) ? reinterpret_cast<GeneratorObject*>(object)->generator : nullptr;
}

static PyObject* default_generator_of(PyObject*, PyObject* device) {
  return guarded([&]() -> PyObject* {
    return make_generator(generator_type, Ref<Generator>(&default_generator(device_from(device).type)));
  });
}
static PyMethodDef random_functions[] = {{"_default_generator", default_generator_of, METH_O, nullptr}, {}};

void add_random(PyObject* module) {
  check(PyModule_AddFunctions(module, random_functions));
#define SLOT(s, f) {s, reinterpret_cast<void*>(f)}
  PyType_Slot slots[] = {SLOT(Py_tp_new, generator_new),
                         SLOT(Py_tp_dealloc, generator_dealloc),
                         SLOT(Py_tp_repr, generator_repr),
                         SLOT(Py_tp_methods, generator_methods),
                         SLOT(Py_tp_getset, generator_getset),
                         SLOT(Py_tp_members, generator_members),
                         {0, nullptr}};
#undef SLOT
  PyType_Spec spec{"torch._C.Generator", sizeof(GeneratorObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                   slots};
  generator_type = reinterpret_cast<PyTypeObject*>(check(PyType_FromSpec(&spec)));
  check(PyModule_AddObjectRef(module, "Generator", reinterpret_cast<PyObject*>(generator_type)));
  Object standard = own(make_generator(generator_type, Ref<Generator>(&default_generator())));
  check(PyModule_AddObjectRef(module, "default_generator", standard.get()));
}

}  // namespace fl::py

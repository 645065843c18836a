// Tensors in Python's operators and built-in functions: a + b, a < b, float(a), len(a), x in a.
#include "python/tensor_numbers.h"

#include "python/library.h"
#include "python/parse.h"

namespace fl::py {

namespace {

// Calls the first-found overload of an operator packet with two operands; NotImplemented when they do not
// fit.
struct OperatorSlot {
  const char* name;
  PyObject* method = nullptr;  // the method object on the Tensor class
};

PyObject* call_method(OperatorSlot& slot, PyObject* a, PyObject* b) {
  if (!slot.method) {
    slot.method = PyObject_GetAttrString(reinterpret_cast<PyObject*>(tensor_type), slot.name);
    if (!slot.method) return nullptr;
  }
  PyObject* args[2] = {a, b};
  return PyObject_Vectorcall(slot.method, args, b ? 2 : 1, nullptr);
}

bool fits(PyObject* o) {
  if (is_tensor(o) || PyFloat_Check(o) || PyLong_Check(o) || PyComplex_Check(o)) return true;
  Value v;
  if (number_value(o, v)) return true;
  return any_override(&o, 1);
}

// Whether the error that is set says that all __torch_function__ declined; it is cleared then.
bool all_declined() {
  if (!PyErr_ExceptionMatches(PyExc_TypeError)) return false;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  const Object text = own(PyObject_Str(value));
  const std::string_view message = PyUnicode_AsUTF8(text.get());
  if (message.size() > kAllDeclined.size() &&
      message.substr(message.size() - kAllDeclined.size()) == kAllDeclined) {
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return true;
  }
  PyErr_Restore(type, value, traceback);
  return false;
}

PyObject* binary(OperatorSlot& slot, PyObject* a, PyObject* b) {
  return guarded([&]() -> PyObject* {
    if (!fits(a) || !fits(b)) Py_RETURN_NOTIMPLEMENTED;
    PyObject* result = call_method(slot, a, b);
    if (result == nullptr && all_declined()) Py_RETURN_NOTIMPLEMENTED;
    return result;
  });
}

// The operators whose fast path is worth having: two plain tensors, or a tensor and a number.
PyObject* fast_binary(OperatorSlot& slot, const Operator*& op, const char* full_name, PyObject* a,
                      PyObject* b, bool alpha) {
  if (Py_TYPE(a) == tensor_type &&
      (Py_TYPE(b) == tensor_type || Py_TYPE(b) == &PyFloat_Type || Py_TYPE(b) == &PyLong_Type)) {
    PyObject* pair[2] = {a, b};
    if (!any_override(pair, 2)) {
      return guarded([&]() -> PyObject* {
        if (!op) op = &OperatorTable::get().at(full_name);
        Value values[3] = {Value::borrow(impl_of(a)), Value(), Value()};
        if (Py_TYPE(b) == tensor_type)
          values[1] = Value::borrow(impl_of(b));
        else
          number_value(b, values[1]);
        if (alpha) values[2] = Value(int64_t(1));
        return call_operator(*op, values);
      });
    }
  }
  return binary(slot, a, b);
}

#define FAST(fn, python, full, alpha)                \
  PyObject* nb_##fn(PyObject* a, PyObject* b) {      \
    static OperatorSlot slot{python};                \
    static const Operator* op = nullptr;             \
    return fast_binary(slot, op, full, a, b, alpha); \
  }
#define BINARY(fn, python)                      \
  PyObject* nb_##fn(PyObject* a, PyObject* b) { \
    static OperatorSlot slot{python};           \
    return binary(slot, a, b);                  \
  }
#define UNARY(fn, python)                 \
  PyObject* nb_##fn(PyObject* a) {        \
    static OperatorSlot slot{python};     \
    return call_method(slot, a, nullptr); \
  }

FAST(add, "add", "add.Tensor", true)
FAST(subtract, "sub", "sub.Tensor", true)
FAST(multiply, "mul", "mul.Tensor", false)
FAST(true_divide, "div", "div.Tensor", false)
BINARY(floor_divide, "floor_divide")
BINARY(remainder, "remainder")
BINARY(and, "bitwise_and")
BINARY(or, "bitwise_or")
BINARY(xor, "bitwise_xor")
BINARY(lshift, "bitwise_left_shift")
BINARY(rshift, "bitwise_right_shift")
BINARY(inplace_add, "add_")
BINARY(inplace_subtract, "sub_")
BINARY(inplace_multiply, "mul_")
BINARY(inplace_true_divide, "div_")
BINARY(inplace_floor_divide, "floor_divide_")
BINARY(inplace_remainder, "remainder_")
BINARY(inplace_and, "bitwise_and_")
BINARY(inplace_or, "bitwise_or_")
BINARY(inplace_xor, "bitwise_xor_")
BINARY(inplace_lshift, "bitwise_left_shift_")
BINARY(inplace_rshift, "bitwise_right_shift_")
UNARY(negative, "neg")
UNARY(absolute, "abs")
UNARY(bitwise_not, "bitwise_not")
UNARY(positive, "positive")

// Unlike the function, the operator raises TypeError for other dtypes.
PyObject* nb_invert(PyObject* self) {
  PyObject* result = nb_bitwise_not(self);
  if (!result && PyErr_ExceptionMatches(PyExc_NotImplementedError) && !is_integral(impl_of(self)->dtype))
    PyErr_Format(PyExc_TypeError, "[bitwise_not] expected a tensor of integers or bools, got %s",
                 std::string(name_of(impl_of(self)->dtype)).c_str());
  return result;
}

// A number on the left: 2 - t, 2 / t, 2 ** t ... becomes a tensor that takes part in promotion as the number
// would.
PyObject* number_tensor(PyObject* o) {
  return guarded([&]() -> PyObject* {
    Value v;
    if (!number_value(o, v)) return Py_NewRef(o);  // something with __torch_function__
    return wrap(wrapped_number(v.to_scalar()));
  });
}

template <class F>
PyObject* reflected(PyObject* a, PyObject* b, const F& operation) {
  try {
    if (!fits(a)) Py_RETURN_NOTIMPLEMENTED;
  } catch (...) {
    translate_exception();
    return nullptr;
  }
  Object left = Object::steal(number_tensor(a));
  return left ? operation(left.get(), b) : nullptr;
}

#define REFLECT(fn)                                                 \
  PyObject* slot_##fn(PyObject* a, PyObject* b) {                   \
    return is_tensor(a) ? nb_##fn(a, b) : reflected(a, b, nb_##fn); \
  }
REFLECT(add)
REFLECT(subtract)
REFLECT(multiply)
REFLECT(true_divide)
REFLECT(floor_divide)
REFLECT(remainder)
REFLECT(and)
REFLECT(or)
REFLECT(xor)
REFLECT(lshift)
REFLECT(rshift)

PyObject* power(PyObject* a, PyObject* b) {
  static OperatorSlot slot{"pow"};
  return binary(slot, a, b);
}
PyObject* nb_power(PyObject* a, PyObject* b, PyObject*) {
  return is_tensor(a) ? power(a, b) : reflected(a, b, power);
}
PyObject* nb_inplace_power(PyObject* a, PyObject* b, PyObject*) {
  static OperatorSlot slot{"pow_"};
  return binary(slot, a, b);
}
PyObject* nb_matmul(PyObject* a, PyObject* b) {
  static OperatorSlot slot{"matmul"};
  if (!is_tensor(a) || !is_tensor(b)) {
    PyObject* pair[2] = {a, b};
    if (!is_tensor(a) || !any_override(pair, 2)) Py_RETURN_NOTIMPLEMENTED;
  }
  return binary(slot, a, b);
}

PyObject* compare(PyObject* a, PyObject* b, int op) {
  static OperatorSlot slots[] = {{"lt"}, {"le"}, {"eq"}, {"ne"}, {"gt"}, {"ge"}};
  static_assert(Py_LT == 0 && Py_LE == 1 && Py_EQ == 2 && Py_NE == 3 && Py_GT == 4 && Py_GE == 5);
  return binary(slots[op], a, b);
}

// What an overridden bool(), int(), float(), index() or len() must return.
Object overridden(const char* name, PyObject* self) {
  return own(call_slot_override(name, self));
}

int tensor_bool(PyObject* self) {
  return guarded_int([&] {
    if (overrides_slot(self)) return check(PyObject_IsTrue(overridden("__bool__", self).get()));
    const Tensor t = unwrap(self);
    FL_CHECK(t.numel() == 1, "[bool] expected one element (use any() or all()), got a tensor of shape ",
             t.sizes(), ": Boolean value of Tensor with ", t.numel() ? "more than one value" : "no values",
             " is ambiguous");
    return item(t).to<bool>() ? 1 : 0;
  });
}
PyObject* tensor_int(PyObject* self) {
  return guarded([&]() -> PyObject* {
    if (overrides_slot(self)) return overridden("__int__", self).release();
    const Tensor t = unwrap(self);
    FL_CHECK_KIND(t.numel() == 1, Value, "[int] expected one element, got a tensor of shape ", t.sizes());
    if (t.dtype() == DType::UInt64) return tensor_item(self, nullptr);  // a scalar holds 63 bits exactly
    const Scalar s = item(t);
    if (s.is_floating()) return PyLong_FromDouble(s.re);
    FL_CHECK(!s.is_complex() || s.im == 0, "[int] expected a real number, got a complex one");
    return PyLong_FromLongLong(s.to<int64_t>());
  });
}
PyObject* tensor_float(PyObject* self) {
  return guarded([&]() -> PyObject* {
    if (overrides_slot(self)) return overridden("__float__", self).release();
    const Tensor t = unwrap(self);
    FL_CHECK_KIND(t.numel() == 1, Value, "[float] expected one element, got a tensor of shape ", t.sizes());
    const Scalar s = item(t);
    FL_CHECK(!s.is_complex() || s.im == 0, "[float] expected a real number, got a complex one");
    return PyFloat_FromDouble(s.to<double>());
  });
}
PyObject* tensor_index(PyObject* self) {
  return guarded([&]() -> PyObject* {
    if (overrides_slot(self)) return overridden("__index__", self).release();
    const Tensor t = unwrap(self);
    FL_CHECK_KIND(t.numel() == 1 && is_integral(t.dtype(), true), Type,
                  "[index] expected an integer tensor of one element, got ", name_of(t.dtype()), " of shape ",
                  t.sizes());
    if (t.dtype() == DType::UInt64) return tensor_item(self, nullptr);
    return PyLong_FromLongLong(item(t).to<int64_t>());
  });
}

Py_ssize_t tensor_length(PyObject* self) {
  if (overrides_slot(self)) {
    Py_ssize_t length = -1;
    Object text = Object::steal(guarded([&]() -> PyObject* {
      length = int_value(overridden("__len__", self).get());
      Py_RETURN_NONE;
    }));
    return length;
  }
  const TensorImpl* t = impl_of(self);
  if (t->sizes.empty()) {
    PyErr_SetString(PyExc_TypeError, "[len] expected a tensor with at least one dimension, got a 0-d tensor");
    return -1;
  }
  return static_cast<Py_ssize_t>(t->sizes[0]);
}
Py_hash_t tensor_hash(PyObject* self) {
  return static_cast<Py_hash_t>(reinterpret_cast<uintptr_t>(self) >> 4);
}

int contains(PyObject* self, PyObject* value) {
  if (overrides_slot(self))
    return guarded_int(
        [&] { return check(PyObject_IsTrue(own(call_slot_override("__contains__", self, value)).get())); });
  Object hit = Object::steal(PyObject_RichCompare(self, value, Py_EQ));
  if (!hit) return -1;
  if (!is_tensor(hit.get())) return PyObject_IsTrue(hit.get());
  Object any = Object::steal(PyObject_CallMethod(hit.get(), "any", nullptr));
  return any ? PyObject_IsTrue(any.get()) : -1;
}

}  // namespace

void add_number_slots(std::vector<PyType_Slot>& slots) {
#define SLOT(s, f) {s, reinterpret_cast<void*>(f)}
  slots.insert(slots.end(), {SLOT(Py_tp_hash, tensor_hash),
                             SLOT(Py_tp_richcompare, compare),
                             SLOT(Py_nb_add, slot_add),
                             SLOT(Py_nb_subtract, slot_subtract),
                             SLOT(Py_nb_multiply, slot_multiply),
                             SLOT(Py_nb_true_divide, slot_true_divide),
                             SLOT(Py_nb_floor_divide, slot_floor_divide),
                             SLOT(Py_nb_remainder, slot_remainder),
                             SLOT(Py_nb_and, slot_and),
                             SLOT(Py_nb_or, slot_or),
                             SLOT(Py_nb_xor, slot_xor),
                             SLOT(Py_nb_lshift, slot_lshift),
                             SLOT(Py_nb_rshift, slot_rshift),
                             SLOT(Py_nb_power, nb_power),
                             SLOT(Py_nb_inplace_power, nb_inplace_power),
                             SLOT(Py_nb_matrix_multiply, nb_matmul),
                             SLOT(Py_nb_inplace_add, nb_inplace_add),
                             SLOT(Py_nb_inplace_subtract, nb_inplace_subtract),
                             SLOT(Py_nb_inplace_multiply, nb_inplace_multiply),
                             SLOT(Py_nb_inplace_true_divide, nb_inplace_true_divide),
                             SLOT(Py_nb_inplace_floor_divide, nb_inplace_floor_divide),
                             SLOT(Py_nb_inplace_remainder, nb_inplace_remainder),
                             SLOT(Py_nb_inplace_and, nb_inplace_and),
                             SLOT(Py_nb_inplace_or, nb_inplace_or),
                             SLOT(Py_nb_inplace_xor, nb_inplace_xor),
                             SLOT(Py_nb_inplace_lshift, nb_inplace_lshift),
                             SLOT(Py_nb_inplace_rshift, nb_inplace_rshift),
                             SLOT(Py_nb_negative, nb_negative),
                             SLOT(Py_nb_absolute, nb_absolute),
                             SLOT(Py_nb_invert, nb_invert),
                             SLOT(Py_nb_positive, nb_positive),
                             SLOT(Py_nb_bool, tensor_bool),
                             SLOT(Py_nb_int, tensor_int),
                             SLOT(Py_nb_float, tensor_float),
                             SLOT(Py_nb_index, tensor_index),
                             SLOT(Py_sq_contains, contains),
                             SLOT(Py_mp_length, tensor_length),
                             SLOT(Py_mp_subscript, tensor_getitem),
                             SLOT(Py_mp_ass_subscript, tensor_setitem)});
#undef SLOT
}

}  // namespace fl::py

// What guards know of a program: how a place is reached, what is checked there, and relations between sizes.
#pragma once

#include <cstring>

#include "autograd/node.h"
#include "core/changes.h"
#include "core/keys.h"
#include "python/guards.h"
#include "python/watched_dicts.h"

namespace fl::py::guards {

// How a place is reached, what is checked there, and the instructions of relations between sizes: the numbers
// and, for flambeau/_dynamo/guards.py, their names (`guard_names`).
#define FL_GUARD_ACCESSES(X)         \
  X(Argument, "argument")            \
  X(Constant, "constant")            \
  X(Attribute, "attribute")          \
  X(Item, "item")                    \
  X(DictItem, "dict_item")           \
  X(Cell, "cell")                    \
  X(Type, "type")                    \
  X(TypeAttribute, "type_attribute") \
  X(Instance, "instance")            \
  X(Grad, "tensor_grad")             \
  X(Apply, "apply")
#define FL_GUARD_CHECKS(X)               \
  X(Id, "id")                            \
  X(Type, "type")                        \
  X(Equals, "equals")                    \
  X(Length, "length")                    \
  X(DictKeys, "dict_keys")               \
  X(Tensor, "tensor")                    \
  X(Absent, "absent")                    \
  X(Function, "function")                \
  X(EqualsContainer, "equals_container") \
  X(Module, "module")                    \
  X(Present, "present")                  \
  X(Integer, "integer")                  \
  X(Float, "float")
#define FL_GUARD_OPCODES(X) \
  X(Const, "const")         \
  X(Symbol, "symbol")       \
  X(Add, "add")             \
  X(Mul, "mul")             \
  X(FloorDiv, "floordiv")   \
  X(Max, "max")             \
  X(Min, "min")             \
  X(Eq, "eq")               \
  X(Ne, "ne")               \
  X(Le, "le")               \
  X(And, "and")             \
  X(Or, "or")
#define FL_ENUMERATOR(name, text) name,
#define FL_NAME(name, text) text,
enum class Access : int { FL_GUARD_ACCESSES(FL_ENUMERATOR) };
enum class CheckKind : int { FL_GUARD_CHECKS(FL_ENUMERATOR) };
enum class Opcode : int { FL_GUARD_OPCODES(FL_ENUMERATOR) };

struct TensorFacts {
  PyTypeObject* type;
  DType dtype;
  Device device;
  bool requires_grad, inference, dynamic, hooked, contiguous = false;
  uint32_t keys;
  Dims sizes, strides;
  std::vector<int> symbols;  // of each size: index of the symbol it defines, or -1

  bool match(PyObject* o, int64_t* values) const {
    if (Py_TYPE(o) != type) return false;
    const TensorImpl* t = impl_of(o);
    if (t->dtype != dtype || t->device != device || t->inference != inference || t->keys.bits() != keys)
      return false;
    if ((t->autograd && t->autograd->requires_grad) != requires_grad) return false;
    if (requires_grad && autograd::has_hooks(*t) != hooked) return false;
    const size_t n = sizes.size();
    if (t->sizes.size() != n) return false;
    if (!dynamic) {
      return std::memcmp(t->sizes.data(), sizes.data(), n * sizeof(int64_t)) == 0 &&
             std::memcmp(t->strides.data(), strides.data(), n * sizeof(int64_t)) == 0;
    }
    if (contiguous && !t->contiguous) return false;
    for (size_t i = 0; i < n; ++i) {
      if (symbols[i] >= 0) {
        values[symbols[i]] = t->sizes[i];
      } else if (sizes[i] >= 0 && t->sizes[i] != sizes[i]) {
        return false;
      }
      if (symbols[n + i] >= 0) {
        values[symbols[n + i]] = t->strides[i];
      } else if (strides[i] >= 0 && t->strides[i] != strides[i]) {
        return false;
      }
    }
    return true;
  }
};

struct Check {
  CheckKind kind;
  Object value;
  Object code;  // of a function, when it was captured
  Py_ssize_t number = 0;
  std::unique_ptr<TensorFacts> tensor;
  std::vector<Object> keys;
};

struct Node;
struct Later {
  const Node* node;
  Object object;  // what the node's place holds
};

// What is to be looked at again below a module whose members are known.
struct Remembered {
  std::vector<Later> always;
  std::vector<Later> tensors;  // only after a tensor changed, or if one has another class
  std::vector<PyTypeObject*> classes;
  uint64_t changes = 0;
  WatchedDicts attributes;  // of the module and of those below it

  void clear() {
    attributes.clear();
    always.clear();
    tensors.clear();
    classes.clear();
  }
};

struct Node {
  Access access;
  Object key;
  Py_ssize_t index = 0;
  std::vector<Check> checks;
  std::vector<std::unique_ptr<Node>> children;
  Object name;
  int slot = -1;
  bool module = false;  // an nn.Module: members are known to be unchanged while the counter stands still
  bool stable = false;  // a member of a module that changes only together with the counter
  // Of a module: what was found when the counter had this value.
  mutable Object seen;  // owned: another module must not take its address
  mutable int64_t seen_count = -1;
  mutable Remembered remembered;

  // Whether all that is asked here is how a tensor looks, with every size given.
  bool asks_for_fixed_tensor() const {
    if (!children.empty()) return false;
    bool present = false;
    for (const Check& check : checks) {
      const bool fixed = check.kind == CheckKind::Tensor && !check.tensor->dynamic;
      if (!fixed && check.kind != CheckKind::Id && check.kind != CheckKind::Type) return false;
      present |= fixed;
    }
    return present;
  }
};

// A small postfix program over symbols: relations between sizes.
struct Relation {
  std::vector<std::pair<Opcode, int64_t>> program;
  Object name;
};
inline int64_t floor_divide(int64_t a, int64_t b, bool& bad) {
  if (b == 0) {
    bad = true;
    return 0;
  }
  const int64_t q = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}

inline int64_t apply(Opcode op, int64_t a, int64_t b, bool& bad) {
  switch (op) {
    case Opcode::Add:
      return a + b;
    case Opcode::Mul:
      return a * b;
    case Opcode::FloorDiv:
      return floor_divide(a, b, bad);
    case Opcode::Max:
      return std::max(a, b);
    case Opcode::Min:
      return std::min(a, b);
    case Opcode::Eq:
      return a == b;
    case Opcode::Ne:
      return a != b;
    case Opcode::Le:
      return a <= b;
    case Opcode::And:
      return a && b;
    case Opcode::Or:
      return a || b;
    case Opcode::Const:
    case Opcode::Symbol:
      break;
  }
  bad = true;
  return 0;
}

inline bool holds(const Relation& relation, const int64_t* symbols) {
  int64_t stack[64];
  int top = 0;
  bool bad = false;
  for (auto [op, value] : relation.program) {
    if (op == Opcode::Const) {
      stack[top++] = value;
    } else if (op == Opcode::Symbol) {
      stack[top++] = symbols[value];
    } else {
      const int64_t b = stack[--top];
      stack[top - 1] = apply(op, stack[top - 1], b, bad);
    }
    if (top > 60 || bad) return false;
  }
  return top == 1 && stack[0] != 0;
}

PyObject* mutations = nullptr;  // the list whose item counts changes of modules

inline int64_t mutation_count() {
  if (mutations == nullptr || PyList_GET_SIZE(mutations) == 0) return -1;
  return PyLong_AsLongLong(PyList_GET_ITEM(mutations, 0));
}

inline bool same_value(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (Py_TYPE(a) != Py_TYPE(b)) return false;
  if (PyFloat_CheckExact(a)) {
    const double x = PyFloat_AS_DOUBLE(a), y = PyFloat_AS_DOUBLE(b);
    return std::memcmp(&x, &y, sizeof x) == 0;
  }
  if (PyComplex_CheckExact(a)) {
    const Py_complex x = PyComplex_AsCComplex(a), y = PyComplex_AsCComplex(b);
    return std::memcmp(&x, &y, sizeof x) == 0;
  }
  const int equal = PyObject_RichCompareBool(a, b, Py_EQ);
  if (equal < 0) PyErr_Clear();
  return equal > 0;
}

// A function of the program, and the code that was captured.
struct FunctionFact {
  Object function, code;

  explicit FunctionFact(PyObject* f)
      : function(Object::borrow(f)), code(Object::borrow(PyFunction_GET_CODE(f))) {}
  bool holds() const { return PyFunction_GET_CODE(function.get()) == code.get(); }
  int traverse(visitproc visit, void* arg) const {
    Py_VISIT(function.get());
    Py_VISIT(code.get());
    return 0;
  }
};

// A class whose bases and special methods are what they were. While its version is the same, nothing changed;
// otherwise they are looked up again.
class ClassFact {
 public:
  ClassFact(PyObject* type, PyObject* names)
      : type_(Object::borrow(type)),
        names_(Object::borrow(names)),
        bases_(Object::borrow(this->type()->tp_mro)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); ++i)
      members_.push_back(Object::borrow(_PyType_Lookup(this->type(), PyTuple_GET_ITEM(names, i))));
    version_ = current_version();
  }

  bool holds() {
    const unsigned now = current_version();
    if (now != 0 && now == version_) return true;
    PyObject* bases = type()->tp_mro;
    const Py_ssize_t count = PyTuple_GET_SIZE(bases_.get());
    if (PyTuple_GET_SIZE(bases) != count) return false;
    for (Py_ssize_t i = 0; i < count; ++i)
      if (PyTuple_GET_ITEM(bases, i) != PyTuple_GET_ITEM(bases_.get(), i)) return false;
    for (size_t i = 0; i < members_.size(); ++i)
      if (_PyType_Lookup(type(), PyTuple_GET_ITEM(names_.get(), i)) != members_[i].get()) return false;
    version_ = current_version();
    return true;
  }

  int traverse(visitproc visit, void* arg) const {
    Py_VISIT(type_.get());
    Py_VISIT(names_.get());
    Py_VISIT(bases_.get());
    for (const Object& member : members_) Py_VISIT(member.get());
    return 0;
  }

 private:
  PyTypeObject* type() const { return reinterpret_cast<PyTypeObject*>(type_.get()); }
  // Unique in the process; 0 when the class changed and nothing was looked up in it since.
  unsigned current_version() const {
#if PY_VERSION_HEX < 0x030D0000
    if (!PyType_HasFeature(type(), Py_TPFLAGS_VALID_VERSION_TAG)) return 0;
#endif
    return type()->tp_version_tag;
  }

  Object type_, names_, bases_;
  std::vector<Object> members_;  // null for what is absent
  unsigned version_ = 0;
};

inline int traverse_node(const Node& node, visitproc visit, void* arg) {
  Py_VISIT(node.key.get());
  Py_VISIT(node.name.get());
  Py_VISIT(node.seen.get());
  for (const Check& check : node.checks) {
    Py_VISIT(check.value.get());
    Py_VISIT(check.code.get());
    for (const Object& key : check.keys) Py_VISIT(key.get());
  }
  for (const Later& later : node.remembered.always) Py_VISIT(later.object.get());
  for (const Later& later : node.remembered.tensors) Py_VISIT(later.object.get());
  for (const auto& child : node.children)
    if (const int result = traverse_node(*child, visit, arg)) return result;
  return 0;
}

}  // namespace fl::py::guards

// Evaluates guards natively: a walk over the places that a capture looked at, with one check after another.
#include "python/guards.h"

#include <algorithm>

#include "python/guard_facts.h"
#include "python/parse.h"

namespace fl::py {
namespace {

using namespace guards;

class Tree final : public GuardTree {
 public:
  std::vector<FunctionFact> functions;
  mutable std::vector<ClassFact> classes;
  std::vector<std::unique_ptr<Node>> roots;
  std::vector<std::pair<int, int>> same;
  std::vector<int> distinct;  // slots of things that are not each other, nor members
  std::vector<int> members;   // slots below modules, likewise; they change rarely
  std::vector<bool> is_member;
  std::vector<Relation> relations;
  mutable std::vector<PyObject*> slots;
  mutable std::vector<int64_t> symbols;
  mutable std::vector<PyObject*> sorted;
  mutable std::vector<PyObject*> sorted_members;
  mutable bool members_known = false;
  mutable PyObject* failure = nullptr;
  mutable Remembered* recorder = nullptr;
  Object function_failure, class_failure;  // what failed() says of them
  ThreadState state;
  DType default_type;
  DefaultDevice device;
  bool busy_ = false;

  bool fail(const Node& node) const {
    failure = node.name.get();
    return false;
  }

  bool satisfied(const Check& check, PyObject* o) const {
    switch (check.kind) {
      case CheckKind::Id:
        return o == check.value.get();
      case CheckKind::Type:
        return reinterpret_cast<PyObject*>(Py_TYPE(o)) == check.value.get();
      case CheckKind::Equals:
        return same_value(o, check.value.get());
      case CheckKind::Length: {
        Py_ssize_t n;
        if (PyTuple_Check(o)) {
          n = PyTuple_GET_SIZE(o);
        } else if (PyList_Check(o)) {
          n = PyList_GET_SIZE(o);
        } else {
          n = PyObject_Size(o);
        }
        return n == check.number;
      }
      case CheckKind::DictKeys: {
        if (!PyDict_Check(o) || PyDict_GET_SIZE(o) != static_cast<Py_ssize_t>(check.keys.size()))
          return false;
        if (PyDict_CheckExact(o)) {
          PyObject *key, *value;
          Py_ssize_t position = 0;
          for (size_t i = 0; PyDict_Next(o, &position, &key, &value); ++i)
            if (!same_value(key, check.keys[i].get())) return false;
          return true;
        }
        if (check.keys.empty()) return true;
        // An ordered dict keeps its order elsewhere.
        Object iterator = Object::steal(PyObject_GetIter(o));
        if (!iterator) return false;
        for (const Object& wanted : check.keys) {
          Object key = Object::steal(PyIter_Next(iterator.get()));
          if (!key || !same_value(key.get(), wanted.get())) return false;
        }
        return true;
      }
      case CheckKind::Tensor:
        return check.tensor->match(o, symbols.data());
      case CheckKind::Absent:
        return false;
      case CheckKind::Function: {
        if (!PyFunction_Check(o)) return false;
        PyObject* wanted = check.value.get();
        return PyFunction_GET_CODE(o) == check.code.get() &&
               PyFunction_GET_GLOBALS(o) == PyFunction_GET_GLOBALS(wanted) &&
               (PyFunction_GET_CLOSURE(o) == nullptr) == (PyFunction_GET_CLOSURE(wanted) == nullptr) &&
               (PyFunction_GET_DEFAULTS(o) == nullptr) == (PyFunction_GET_DEFAULTS(wanted) == nullptr) &&
               (PyFunction_GET_KW_DEFAULTS(o) == nullptr) == (PyFunction_GET_KW_DEFAULTS(wanted) == nullptr);
      }
      case CheckKind::EqualsContainer: {
        if (Py_TYPE(o) != Py_TYPE(check.value.get())) return false;
        return PyObject_RichCompareBool(o, check.value.get(), Py_EQ) > 0;
      }
      case CheckKind::Integer: {
        if (!PyLong_CheckExact(o)) return false;
        int overflow = 0;
        const int64_t value = PyLong_AsLongLongAndOverflow(o, &overflow);
        // Expressions over it are computed in 64 bits.
        if (overflow || value > (int64_t(1) << 31) || value < -(int64_t(1) << 31)) return false;
        symbols[check.number] = value;
        return true;
      }
      case CheckKind::Float:
        return PyFloat_CheckExact(o);
      case CheckKind::Module:
      case CheckKind::Present:
        return true;
    }
    return false;
  }

  bool visit(const Node& node, PyObject* o) const {
    for (const Check& check : node.checks)
      if (!satisfied(check, o)) return fail(node);
    if (node.slot >= 0 && slots[node.slot] != o) {
      slots[node.slot] = o;
      if (is_member[node.slot]) members_known = false;
    }
    if (node.children.empty()) return true;
    if (node.module && recorder == nullptr) {
      const int64_t count = mutation_count();
      if (node.seen.get() == o && node.seen_count == count && node.remembered.attributes.unchanged()) {
        return still_holds(node.remembered);
      }
      node.seen = Object();
      node.remembered.clear();
      node.remembered.changes = tensor_changes.load(std::memory_order_relaxed);
      recorder = &node.remembered;
      recorder->attributes.add(o);
      const bool good = visit_children(node, o);
      recorder = nullptr;
      if (good && count >= 0) {
        node.seen = Object::borrow(o);
        node.seen_count = count;
      }
      return good;
    }
    if (node.module) recorder->attributes.add(o);
    return visit_children(node, o);
  }

  bool still_holds(Remembered& remembered) const {
    const uint64_t changes = tensor_changes.load(std::memory_order_relaxed);
    bool same = remembered.changes == changes;
    // Classes can be assigned without anybody being told.
    for (size_t i = 0; same && i < remembered.tensors.size(); ++i)
      same = Py_TYPE(remembered.tensors[i].object.get()) == remembered.classes[i];
    if (!same) {
      for (const Later& later : remembered.tensors)
        if (!visit(*later.node, later.object.get())) return false;
      remembered.changes = changes;
    }
    for (const Later& later : remembered.always)
      if (!visit(*later.node, later.object.get())) return false;
    return true;
  }

  // Found below a module something that its counter does not cover.
  void remember(const Node& node, PyObject* o) const {
    if (is_tensor(o) && node.asks_for_fixed_tensor() && autograd::watch(unwrap(o))) {
      recorder->tensors.push_back({&node, Object::borrow(o)});
      recorder->classes.push_back(Py_TYPE(o));
    } else {
      recorder->always.push_back({&node, Object::borrow(o)});
    }
  }

  bool visit_children(const Node& node, PyObject* o) const {
    for (const auto& child : node.children)
      if (!reach(*child, o)) return false;
    return true;
  }

  // Found something at a child's place.
  bool arrive(const Node& node, PyObject* o) const {
    if (recorder != nullptr && !node.stable) {
      remember(node, o);
      auto* saved = std::exchange(recorder, nullptr);
      const bool good = visit(node, o);
      recorder = saved;
      return good;
    }
    return visit(node, o);
  }

  bool missing(const Node& node) const {
    if (PyErr_Occurred()) PyErr_Clear();
    return node.checks.size() == 1 && node.checks[0].kind == CheckKind::Absent ? true : fail(node);
  }

  bool reach(const Node& node, PyObject* parent) const {
    switch (node.access) {
      case Access::Item: {
        PyObject* value;
        if (PyTuple_Check(parent)) {
          if (node.index >= PyTuple_GET_SIZE(parent)) return missing(node);
          value = PyTuple_GET_ITEM(parent, node.index);
        } else if (PyList_Check(parent)) {
          if (node.index >= PyList_GET_SIZE(parent)) return missing(node);
          value = PyList_GET_ITEM(parent, node.index);
        } else {
          Object item = Object::steal(PySequence_GetItem(parent, node.index));
          return item ? arrive(node, item.get()) : missing(node);
        }
        return arrive(node, value);
      }
      case Access::DictItem: {
        if (!PyDict_Check(parent)) return fail(node);
        PyObject* value = PyDict_GetItemWithError(parent, node.key.get());
        return value ? arrive(node, value) : missing(node);
      }
      case Access::Cell: {
        if (!PyCell_Check(parent)) return fail(node);
        PyObject* value = PyCell_GET(parent);
        return value ? arrive(node, value) : missing(node);
      }
      case Access::Type:
        return arrive(node, reinterpret_cast<PyObject*>(Py_TYPE(parent)));
      case Access::TypeAttribute: {
        if (!PyType_Check(parent)) return fail(node);
        PyObject* value = _PyType_Lookup(reinterpret_cast<PyTypeObject*>(parent), node.key.get());
        return value ? arrive(node, value) : missing(node);
      }
      case Access::Instance: {
        Object dict = Object::steal(PyObject_GenericGetDict(parent, nullptr));
        if (!dict) return missing(node);
        PyObject* value = PyDict_GetItemWithError(dict.get(), node.key.get());
        return value ? arrive(node, value) : missing(node);
      }
      case Access::Attribute:
      case Access::Grad:
      case Access::Apply: {
        Object value =
            Object::steal(node.access == Access::Apply ? PyObject_CallOneArg(node.key.get(), parent)
                                                       : PyObject_GetAttr(parent, node.key.get()));
        if (!value) return missing(node);
        // The attribute may be computed: nothing else may keep it alive.
        auto* saved = std::exchange(recorder, nullptr);
        const bool good = visit(node, value.get());
        recorder = saved;
        if (saved != nullptr && !node.stable) never_cached = true;
        return good;
      }
      case Access::Argument:
      case Access::Constant:
        break;
    }
    return fail(node);
  }
  mutable bool never_cached = false;

  bool check(PyObject* const* args, size_t count) override {
    const ThreadState& now = thread_state();
    if (now.grad_mode != state.grad_mode || now.inference_mode != state.inference_mode ||
        now.included.bits() != state.included.bits() || now.excluded.bits() != state.excluded.bits() ||
        default_dtype() != default_type || default_device() != device) {
      failure = nullptr;
      return false;
    }
    busy_ = true;
    const bool good = check_roots(args, count);
    busy_ = false;
    return good;
  }

  bool check_roots(PyObject* const* args, size_t count) const {
    for (const auto& root : roots) {
      PyObject* o = root->key.get();
      if (root->access == Access::Argument) {
        if (static_cast<size_t>(root->index) >= count) return fail(*root);
        o = args[root->index];
      }
      recorder = nullptr;
      never_cached = false;
      if (!visit(*root, o)) return false;
      if (never_cached) forget(*root);
    }
    for (const FunctionFact& fact : functions)
      if (!fact.holds()) {
        failure = function_failure.get();
        return false;
      }
    for (ClassFact& fact : classes)
      if (!fact.holds()) {
        failure = class_failure.get();
        return false;
      }
    for (auto [a, b] : same)
      if (slots[a] != slots[b]) {
        failure = nullptr;
        return false;
      }
    if (!all_distinct()) {
      failure = nullptr;
      return false;
    }
    for (const Relation& relation : relations)
      if (!holds(relation, symbols.data())) {
        failure = relation.name.get();
        return false;
      }
    return true;
  }

  static bool has_twins(std::vector<PyObject*>& objects, const std::vector<int>& places,
                        const std::vector<PyObject*>& slots) {
    objects.clear();
    for (int slot : places) objects.push_back(slots[slot]);
    std::sort(objects.begin(), objects.end());
    return std::adjacent_find(objects.begin(), objects.end()) != objects.end();
  }

  // Things that were different ones during capture still are. Members of modules are compared with each other
  // only after one was replaced, so that the cost does not grow with a model.
  bool all_distinct() const {
    if (!members.empty()) {
      if (!members_known && has_twins(sorted_members, members, slots)) return false;
      members_known = true;
      for (int slot : distinct)
        if (std::binary_search(sorted_members.begin(), sorted_members.end(), slots[slot])) return false;
    }
    if (distinct.size() > 8) return !has_twins(sorted, distinct, slots);
    for (size_t i = 1; i < distinct.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        if (slots[distinct[i]] == slots[distinct[j]]) return false;
    return true;
  }

  void forget(const Node& node) const {
    node.seen = Object();
    for (const auto& child : node.children) forget(*child);
  }

  int traverse(visitproc visit, void* arg) const override {
    for (const auto& root : roots)
      if (const int result = traverse_node(*root, visit, arg)) return result;
    for (const FunctionFact& fact : functions)
      if (const int result = fact.traverse(visit, arg)) return result;
    for (const ClassFact& fact : classes)
      if (const int result = fact.traverse(visit, arg)) return result;
    return 0;
  }

  bool busy() const override { return busy_; }
  PyObject* failed() const override { return failure; }
};

int64_t number(PyObject* o) {
  const int64_t value = PyLong_AsLongLong(o);
  if (value == -1 && PyErr_Occurred()) throw PythonError();
  return value;
}

PyObject* item(PyObject* tuple, Py_ssize_t i) {
  FL_CHECK_KIND(PyTuple_Check(tuple) && i < PyTuple_GET_SIZE(tuple), Value,
                "[guards] expected a longer tuple");
  return PyTuple_GET_ITEM(tuple, i);
}

std::vector<int64_t> numbers(PyObject* o) {
  std::vector<int64_t> out;
  FL_CHECK_KIND(PyTuple_Check(o), Value, "[guards] expected a tuple of numbers");
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); ++i) out.push_back(number(PyTuple_GET_ITEM(o, i)));
  return out;
}

// (tensor, sizes, strides, symbols): sizes and strides of -1 are free, symbols say what they define.
std::unique_ptr<TensorFacts> tensor_facts(PyObject* description) {
  auto facts = std::make_unique<TensorFacts>();
  PyObject* tensor = item(description, 1);
  FL_CHECK_KIND(is_tensor(tensor), Value, "[guards] expected a tensor");
  const TensorImpl* t = impl_of(tensor);
  facts->type = Py_TYPE(tensor);
  facts->dtype = t->dtype;
  facts->device = t->device;
  facts->inference = t->inference;
  facts->requires_grad = t->autograd && t->autograd->requires_grad;
  facts->hooked = autograd::has_hooks(*t);
  facts->keys = t->keys.bits();
  facts->sizes = t->sizes;
  facts->strides = t->strides;
  facts->dynamic = PyTuple_GET_SIZE(description) > 2;
  if (facts->dynamic) {
    facts->sizes = Dims(numbers(item(description, 2)));
    facts->strides = Dims(numbers(item(description, 3)));
    facts->contiguous = item(description, 5) == Py_True;
    for (int64_t s : numbers(item(description, 4))) facts->symbols.push_back(static_cast<int>(s));
    FL_CHECK_KIND(facts->sizes.size() == t->sizes.size() && facts->strides.size() == t->sizes.size() &&
                      facts->symbols.size() == 2 * t->sizes.size(),
                  Value, "[guards] expected one symbol for each size and stride");
  }
  return facts;
}

Check make_check(PyObject* description) {
  Check check;
  check.kind = static_cast<CheckKind>(number(item(description, 0)));
  switch (check.kind) {
    case CheckKind::Length:
    case CheckKind::Integer:
      check.number = number(item(description, 1));
      break;
    case CheckKind::DictKeys: {
      PyObject* keys = item(description, 1);
      FL_CHECK_KIND(PyList_Check(keys), Value, "[guards] expected a list of keys");
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(keys); ++i)
        check.keys.push_back(Object::borrow(PyList_GET_ITEM(keys, i)));
      break;
    }
    case CheckKind::Tensor:
      check.tensor = tensor_facts(description);
      break;
    case CheckKind::Absent:
    case CheckKind::Module:
    case CheckKind::Present:
    case CheckKind::Float:
      break;
    case CheckKind::Function: {
      PyObject* function = item(description, 1);
      FL_CHECK_KIND(PyFunction_Check(function), Value, "[guards] expected a function");
      check.value = Object::borrow(function);
      check.code = Object::borrow(PyFunction_GET_CODE(function));
      break;
    }
    default:
      check.value = Object::borrow(item(description, 1));
  }
  return check;
}

// (access, key, checks, children, name, slot, stable)
std::unique_ptr<Node> make_node(PyObject* description) {
  auto node = std::make_unique<Node>();
  node->access = static_cast<Access>(number(item(description, 0)));
  PyObject* key = item(description, 1);
  node->key = Object::borrow(key);
  if (node->access == Access::Argument || node->access == Access::Item) node->index = number(key);
  PyObject* checks = item(description, 2);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(checks); ++i) {
    node->checks.push_back(make_check(PyTuple_GET_ITEM(checks, i)));
    if (node->checks.back().kind == CheckKind::Module) node->module = true;
  }
  PyObject* children = item(description, 3);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(children); ++i)
    node->children.push_back(make_node(PyTuple_GET_ITEM(children, i)));
  node->name = Object::borrow(item(description, 4));
  node->slot = static_cast<int>(number(item(description, 5)));
  node->stable = item(description, 6) == Py_True;
  return node;
}

PyObject* set_mutations(PyObject*, PyObject* list) {
  return guarded([&]() -> PyObject* {
    FL_CHECK_KIND(PyList_Check(list), Type, "[guards] expected a list");
    Py_XDECREF(mutations);
    mutations = Py_NewRef(list);
    Py_RETURN_NONE;
  });
}

PyObject* count_changes(PyObject*, PyObject*) {
  return PyLong_FromUnsignedLongLong(tensor_changes.load());
}

Object numbered(std::initializer_list<const char*> names) {
  Object dict = own(PyDict_New());
  Py_ssize_t i = 0;
  for (const char* name : names) {
    const Object index = own(PyLong_FromSsize_t(i++));
    check(PyDict_SetItemString(dict.get(), name, index.get()));
  }
  return dict;
}

// ({access: number}, {check: number}, {opcode: number})
PyObject* guard_names(PyObject*, PyObject*) {
  return guarded([&]() -> PyObject* {
    const Object accesses = numbered({FL_GUARD_ACCESSES(FL_NAME)});
    const Object checks = numbered({FL_GUARD_CHECKS(FL_NAME)});
    const Object opcodes = numbered({FL_GUARD_OPCODES(FL_NAME)});
    return PyTuple_Pack(3, accesses.get(), checks.get(), opcodes.get());
  });
}

PyMethodDef functions[] = {
    {"_guard_names", guard_names, METH_NOARGS, "The numbers of accesses, checks and opcodes, by name."},
    {"_tensor_changes", count_changes, METH_NOARGS, "How often a tensor changed what it looks like."},
    {"_set_module_mutations", set_mutations, METH_O, "Names the list whose item counts changes of modules."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

// (roots, same, distinct, slots, symbols, relations, members, functions, classes, names of special methods)
std::unique_ptr<GuardTree> GuardTree::build(PyObject* description) {
  auto tree = std::make_unique<Tree>();
  PyObject* roots = item(description, 0);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(roots); ++i)
    tree->roots.push_back(make_node(PyTuple_GET_ITEM(roots, i)));
  PyObject* same = item(description, 1);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(same); ++i) {
    const auto pair = numbers(PyTuple_GET_ITEM(same, i));
    tree->same.emplace_back(pair[0], pair[1]);
  }
  for (int64_t slot : numbers(item(description, 2))) tree->distinct.push_back(static_cast<int>(slot));
  tree->slots.resize(number(item(description, 3)));
  tree->is_member.resize(tree->slots.size());
  for (int64_t slot : numbers(item(description, 6))) {
    tree->members.push_back(static_cast<int>(slot));
    tree->is_member.at(slot) = true;
  }
  tree->symbols.resize(number(item(description, 4)));
  PyObject* relations = item(description, 5);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(relations); ++i) {
    PyObject* relation_tuple = PyTuple_GET_ITEM(relations, i);
    Relation relation;
    PyObject* program = item(relation_tuple, 0);
    for (Py_ssize_t j = 0; j < PyTuple_GET_SIZE(program); ++j) {
      const auto step = numbers(PyTuple_GET_ITEM(program, j));
      relation.program.emplace_back(static_cast<Opcode>(step[0]), step[1]);
    }
    relation.name = Object::borrow(item(relation_tuple, 1));
    tree->relations.push_back(std::move(relation));
  }
  PyObject* functions = item(description, 7);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(functions); ++i) {
    FL_CHECK_KIND(PyFunction_Check(item(functions, i)), Value, "[guards] expected a function");
    tree->functions.emplace_back(item(functions, i));
  }
  PyObject* classes = item(description, 8);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(classes); ++i) {
    PyObject* fact = item(classes, i);  // a class and the names of members
    FL_CHECK_KIND(PyType_Check(item(fact, 0)), Value, "[guards] expected a class");
    tree->classes.emplace_back(item(fact, 0), item(fact, 1));
  }
  tree->function_failure = own(PyUnicode_FromString("the code of a function"));
  tree->class_failure = own(PyUnicode_FromString("the bases or special methods of a class"));
  tree->state = thread_state();
  tree->default_type = default_dtype();
  tree->device = default_device();
  return tree;
}

void add_guards(PyObject* module) {
  check(PyModule_AddFunctions(module, functions));
}

}  // namespace fl::py

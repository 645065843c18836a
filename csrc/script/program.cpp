#include "script/program.h"

#include <cstdlib>

#include "definitions/operations.h"

namespace fl::script {
namespace {

const std::map<std::string, const char*>& casts() {
  static const std::map<std::string, const char*> table = {
      {"int", "Int"}, {"float", "Float"}, {"bool", "Bool"},     {"complex", "Complex"},
      {"str", "str"}, {"list", "list"},   {"sorted", "sorted"}, {"len", "len"},
      {"ord", "ord"}, {"range", "range"}, {"device", "device"}, {"wait", "wait"},
  };
  return table;
}

std::string_view before_last_dot(std::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
}
std::string_view after_last_dot(std::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? path : path.substr(dot + 1);
}

class Linker {
 public:
  explicit Linker(Program& program) : program_(program) {}

  void function(Function& f) {
    for (Parameter& parameter : f.parameters) tree(parameter.default_value);
    tree(f.body);
  }

  void tree(Tree& t) {
    if (t.op == Op::Call) return call(t);
    for (Tree& child : t.children) tree(child);
    if (t.op == Op::Path) path(t);
  }

 private:
  void path(Tree& t) {
    const std::string_view text = t.text;
    Object value;
    if (text.substr(0, 11) == "CONSTANTS.c") {
      const size_t index = std::strtoull(t.text.c_str() + 11, nullptr, 10);
      FL_CHECK(index < program_.constants.size(), "[jit.load] expected one of ", program_.constants.size(),
               " constants, got ", text);
      value = program_.constants[index];
    } else if (const Function* f = program_.find_function(text)) {
      auto* function_value = new FunctionValue;
      function_value->function = f;
      value = foreign(function_value);
    } else if (const Class* type = program_.find_class(before_last_dot(text));
               type && type->kind == Class::Kind::Enum) {
      value = enum_member(*type, after_last_dot(text));
    } else if (const std::string_view member = before_last_dot(text); is_member(member)) {
      value =
          get_attribute(enum_member(*program_.find_class(before_last_dot(member)), after_last_dot(member)),
                        after_last_dot(text));
    } else {
      return;  // the name of a type, or an error when it is evaluated
    }
    t.op = Op::Constant;
    t.constant = std::move(value);
  }

  // Whether a path names a member of an enumeration.
  bool is_member(std::string_view path) const {
    const Class* type = program_.find_class(before_last_dot(path));
    return type && type->kind == Class::Kind::Enum;
  }

  // Drops the callee of a call; its arguments are linked.
  void arguments(Tree& t, Op op) {
    t.op = op;
    t.children.erase(t.children.begin());
    for (Tree& child : t.children) tree(child);
  }

  void call(Tree& t) {
    Tree& callee = t.children[0];
    if (callee.op == Op::Attribute) {
      t.text = callee.text;
      Tree owner = std::move(callee.children[0]);
      t.children[0] = std::move(owner);
      t.op = Op::Method;
      t.names.insert(t.names.begin(), "");
      for (Tree& child : t.children) tree(child);
      return;
    }
    if (callee.op != Op::Path) {
      for (Tree& child : t.children) tree(child);
      return;
    }
    const std::string name = callee.text;
    if (special(t, name)) return;
    if (name.rfind("__torch__.", 0) == 0) return own(t, name);
    const Callee* replacement = changed(name, t.children.size() - 1);
    if (!replacement) replacement = operator_named(name);
    t.text = name;
    arguments(t, Op::Operator);
    t.callee = replacement;
  }

  bool special(Tree& t, const std::string& name) {
    const size_t count = t.children.size() - 1;
    if ((name == "annotate" || name == "unchecked_cast") && count == 2) {
      t.op = name == "annotate" ? Op::Annotate : Op::Cast;
      t.children.erase(t.children.begin());
      tree(t.children[1]);
    } else if (name == "isinstance" && count == 2) {
      t.op = Op::IsInstance;
      t.children.erase(t.children.begin());
      tree(t.children[0]);
    } else if (name == "uninitialized") {
      t.op = Op::Constant;
      t.children.clear();
    } else if (name == "getattr" && count == 2 && t.children[2].constant.is(Type::String)) {
      t.text = t.children[2].constant.text();
      t.children.pop_back();
      arguments(t, Op::Attribute);
    } else if ((name == "fork" || name == "awaitable") && count > 0) {
      arguments(t, name == "fork" ? Op::Fork : Op::Awaitable);
    } else if (name == "ops.prim.ModuleContainerIndex" && count == 2) {
      arguments(t, Op::Subscript);
    } else if (name == "print") {
      arguments(t, Op::Print);
    } else {
      return false;
    }
    return true;
  }

  void own(Tree& t, const std::string& name) {
    if (const Function* f = program_.find_function(name)) {
      arguments(t, Op::Function);
      t.function = f;
      return;
    }
    const Class* owner = program_.find_class(before_last_dot(name));
    if (const Function* method = owner ? owner->method(after_last_dot(name)) : nullptr) {  // a hook
      arguments(t, Op::Function);
      t.function = method;
      return;
    }
    const bool creates = after_last_dot(name) == "__new__";
    const Class* type = program_.find_class(creates ? before_last_dot(name) : std::string_view(name));
    FL_CHECK(type != nullptr, "[jit.load] expected a function or class of the archive, got ", name);
    t.type = type;
    if (creates) t.children.resize(1);
    arguments(t, creates ? Op::New : Op::Construct);
  }

  // Operators that meant something else up to a version of the format, called with two arguments.
  const Callee* changed(const std::string& name, size_t arguments) const {
    struct Row {
      const char* name;
      int64_t last;
      const char* old;
    };
    static constexpr Row rows[] = {{"torch.div", 3, "div_0_3"},
                                   {"torch.div_", 3, "div__0_3"},
                                   {"torch.full", 4, "full_0_4"},
                                   {"torch.linspace", 7, "linspace_0_7"},
                                   {"torch.logspace", 8, "logspace_0_8"}};
    for (const Row& row : rows)
      if (name == row.name && program_.version <= row.last && arguments == 2)
        return find_callee("aten", row.old);
    return nullptr;
  }

  static const Callee* operator_named(const std::string& name) {
    const auto cast = casts().find(name);
    if (cast != casts().end()) return find_callee("aten", cast->second);
    if (name.rfind("torch.", 0) == 0) return find_callee("aten", name.substr(6));
    if (name.rfind("ops.", 0) != 0) return nullptr;
    const size_t dot = name.find('.', 4);
    return dot == std::string::npos ? nullptr : find_callee(name.substr(4, dot - 4), name.substr(dot + 1));
  }

  Program& program_;
};

}  // namespace

const Class* Program::find_class(std::string_view name) const {
  const auto entry = classes.find(name);
  return entry == classes.end() ? nullptr : entry->second.get();
}

const Function* Program::find_function(std::string_view name) const {
  const auto entry = functions.find(name);
  return entry == functions.end() ? nullptr : entry->second.get();
}

void Program::link() {
  Linker linker(*this);
  for (auto& [name, type] : classes) {
    for (auto& [attribute, value] : type->constants) linker.tree(value);
    for (auto& method : type->methods) linker.function(*method);
  }
  for (auto& [name, f] : functions) linker.function(*f);
}

// ---------------------------------------------------------------- objects

Object foreign(Opaque* object) {
  Object instance;
  instance.type = Type::Foreign;
  instance.foreign = Ref<Opaque>(object);
  return instance;
}

Object new_instance(const std::shared_ptr<Program>& program, const Class& type) {
  FL_CHECK(type.kind == Class::Kind::Module || type.kind == Class::Kind::Object,
           "[jit] expected a class whose objects can be made, got ", type.name);
  return foreign(new Instance(program, type));
}

Object enum_member(const Class& type, std::string_view name) {
  for (const auto& [member, value] : type.constants)
    if (member == name && value.op == Op::Constant) return foreign(new Member(type, member, value.constant));
  fail("[jit] expected a member of ", type.name, ", got ", name);
}

Object enum_member(const Class& type, const Object& wanted) {
  for (const auto& [member, value] : type.constants)
    if (value.op == Op::Constant && value.constant.type == wanted.type && same(value.constant, wanted))
      return foreign(new Member(type, member, value.constant));
  fail("[jit] expected a value of ", type.name, ", got ", to_text(wanted));
}

Object named_tuple(const Class& type, Objects items) {
  FL_CHECK(type.kind == Class::Kind::NamedTuple && items.size() == type.attributes.size(), "[jit] expected ",
           type.attributes.size(), " fields of ", type.name, ", got ", items.size());
  Object tuple = Object::tuple(std::move(items));
  tuple.heap->names = type.attributes;
  tuple.heap->text = type.name;
  return tuple;
}

Object get_attribute(const Object& o, std::string_view name) {
  if (const auto* instance = as<Instance>(o)) {
    const int32_t at = instance->type.position(name);
    if (at >= 0) return instance->values[static_cast<size_t>(at)];
    for (const auto& [constant, value] : instance->type.constants)
      if (constant == name && value.op == Op::Constant) return value.constant;
    fail("[jit] expected an attribute of ", instance->type.name, ", got ", name);
  }
  if (const auto* member = as<Member>(o)) {
    if (name == "value") return member->value;
    if (name == "name") return Object(member->name);
  }
  if (o.is(Type::Tuple))
    for (size_t i = 0; i < o.heap->names.size(); ++i)
      if (o.heap->names[i] == name) return o.items()[i];
  if (o.is(Type::Tensor) || o.is(Type::Device) || o.is_number()) {
    const Callee* callee = find_callee("prim", std::string(name));
    if (callee) return call_operator(*callee, {o}, {});
  }
  fail("[jit] expected an attribute of ", type_name(o), ", got ", name);
}

void set_attribute(const Object& o, std::string_view name, Object value) {
  auto* instance = as<Instance>(o);
  FL_CHECK(instance != nullptr, "[jit] expected an object with attributes, got ", type_name(o));
  const int32_t at = instance->type.position(name);
  FL_CHECK(at >= 0, "[jit] expected an attribute of ", instance->type.name, ", got ", name);
  instance->values[static_cast<size_t>(at)] = std::move(value);
}

// ---------------------------------------------------------------- types

namespace {

bool all_of(const Objects& items, const Tree& type) {
  for (const Object& item : items)
    if (!is_instance(item, type)) return false;
  return true;
}

bool is_container_of(const Object& value, std::string_view head, const Tree& parameter) {
  const auto part = [&](size_t i) -> const Tree& {
    return parameter.op == Op::Tuple && i < parameter.children.size() ? parameter.children[i] : parameter;
  };
  const size_t count = parameter.op == Op::Tuple ? parameter.children.size() : 1;
  if (head == "List" || head == "list") return value.is(Type::List) && all_of(value.items(), parameter);
  if (head == "Optional") return value.is_none() || is_instance(value, parameter);
  if (head == "Dict" || head == "dict")
    return value.is(Type::Dict) && all_of(value.items(), part(0)) && all_of(value.heap->values, part(1));
  if (head == "Union") {
    for (size_t i = 0; i < count; ++i)
      if (is_instance(value, part(i))) return true;
    return false;
  }
  if (head == "Tuple" || head == "tuple") {
    if (!value.is(Type::Tuple) || value.items().size() != count) return false;
    for (size_t i = 0; i < count; ++i)
      if (!is_instance(value.items()[i], part(i))) return false;
    return true;
  }
  return false;
}

}  // namespace

bool is_instance(const Object& value, const Tree& type) {
  if (type.op == Op::Tuple || type.op == Op::List) {
    for (const Tree& one : type.children)
      if (is_instance(value, one)) return true;
    return false;
  }
  if (type.op == Op::Constant) return type.constant.is_none() && value.is_none();
  if (type.op == Op::Subscript) {
    const Tree& head = type.children[0];
    return head.op == Op::Path && is_container_of(value, head.text, type.children[1]);
  }
  if (type.op != Op::Path) return false;
  const std::string& name = type.text;
  if (const auto* instance = as<Instance>(value)) return name == instance->type.name || name == "Any";
  if (const auto* member = as<Member>(value)) return name == member->type.name || name == "Any";
  if (value.is(Type::Tuple) && !value.heap->names.empty() && name == value.heap->text) return true;
  if (name == "Any") return true;
  if (name == "number" || name == "Scalar") return value.is_number() && !value.is(Type::Bool);
  if (name == "Device") return value.is(Type::Device);
  return name == type_name(value);
}

}  // namespace fl::script

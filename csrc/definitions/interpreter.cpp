// Evaluates the trees of definitions.
#include <cmath>
#include <map>
#include <mutex>
#include <optional>

#include "definitions/object.h"
#include "definitions/operations.h"

namespace fl::definitions {

struct Environment {
  std::map<std::string_view, Object> variables;
  std::shared_ptr<Environment> outer;

  Object* find(std::string_view name) {
    for (Environment* e = this; e; e = e->outer.get()) {
      const auto variable = e->variables.find(name);
      if (variable != e->variables.end()) return &variable->second;
    }
    return nullptr;
  }
};

namespace {

using Scope = std::shared_ptr<Environment>;

enum class Flow { Next, Return, Break, Continue };

constexpr int kDeepest = 400;  // calls within calls

class Interpreter {
 public:
  explicit Interpreter(Scope scope) : scope_(std::move(scope)) {}

  Object expr(const Node& n);
  Flow run(const Node& n);
  Object result;

 private:
  std::optional<Object> literal(const Node& n);
  Object variable(const Node& n);
  Object first_that_decides(const Node& n);  // the value of `and` and `or`
  Object blueprint(const Node& n);           // of a class
  Object global(const Node& n);
  Object call_node(const Node& n);
  Object compare(const Node& n);
  Object comprehension(const Node& n);
  Object slice(const Node& n);
  Object subscript(const Node& n);
  Object dict(const Node& n);
  Object join(const Node& n);
  Object function(const Node& n);
  Objects sequence(const Node& n);
  void each(const Node& n, size_t loop, size_t first, Object& collection);
  void assign(const Node& target, const Object& value);
  void unpack(const Node& target, const Objects& values);
  Flow with(const Node& n);
  Flow attempt(const Node& n);
  Flow loop(const Node& n);
  [[noreturn]] void raise(const Node& n);

  Scope scope_;
};

Object Interpreter::global(const Node& n) {
  // Constants of modules are evaluated once.
  static std::mutex mutex;
  static auto* const known = new std::map<std::string_view, Object>;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    const auto entry = known->find(n.text);
    if (entry != known->end()) return entry->second;
  }
  Object value;
  if (const Node* tree = find_definition(n.text)) {
    value = Interpreter(std::make_shared<Environment>()).expr(*tree);
  } else {
    const size_t colon = n.text.find(':');
    value = find_global(std::string(n.text.substr(0, colon)), std::string(n.text.substr(colon + 1)));
  }
  const std::lock_guard<std::mutex> lock(mutex);
  return known->emplace(n.text, value).first->second;
}

Object Interpreter::function(const Node& n) {
  Object function = Object::of(Type::Function, {});
  function.heap->text = std::string(n.text);
  function.heap->function = &n;
  function.heap->scope = scope_;
  for (const Node& parameter : n.children)  // defaults, evaluated now
    if (parameter.kind == Kind::Parameter)
      function.heap->items.push_back(parameter.children.empty() ? Object() : expr(parameter.children[0]));
  return function;
}

std::optional<Object> Interpreter::literal(const Node& n) {
  switch (n.kind) {
    case Kind::Absent:
    case Kind::None:
      return Object();
    case Kind::True:
      return Object(true);
    case Kind::False:
      return Object(false);
    case Kind::Int:
      return Object(n.integer);
    case Kind::Float:
      return Object(n.number);
    case Kind::Imaginary:
      return from_scalar(Scalar(complex128(0, n.number)));
    case Kind::String:
      return Object(n.text);
    case Kind::Ellipsis:
      return Object::enumerator(Type::Ellipsis, 0);
    default:
      return std::nullopt;
  }
}

Object Interpreter::variable(const Node& n) {
  Object* value = scope_->find(n.text);
  FL_CHECK(value, "[definition] expected a variable with a value, got ", n.text);
  return *value;
}

Object Interpreter::first_that_decides(const Node& n) {
  Object value;
  for (const Node& child : n.children) {
    value = expr(child);
    if (truth(value) == (n.kind == Kind::Or)) break;
  }
  return value;
}

Object Interpreter::blueprint(const Node& n) {
  Object result = Object::of(Type::Blueprint, {});
  result.heap->function = &n;
  result.heap->scope = scope_;
  for (const Node& method : n.children) result.heap->items.push_back(function(method));
  return result;
}

Object Interpreter::expr(const Node& n) {
  switch (n.kind) {
    case Kind::Local:
      return variable(n);
    case Kind::Global:
      return global(n);
    case Kind::Attribute:
      return attribute(expr(n.children[0]), std::string(n.text));
    case Kind::Call:
      return call_node(n);
    case Kind::Binary: {
      const Object left = expr(n.children[0]);
      return binary(n.text, left, expr(n.children[1]));
    }
    case Kind::Unary:
      return unary(n.text, expr(n.children[0]));
    case Kind::And:
    case Kind::Or:
      return first_that_decides(n);
    case Kind::Compare:
      return compare(n);
    case Kind::Condition:
      return expr(n.children[truth(expr(n.children[0])) ? 1 : 2]);
    case Kind::Subscript:
      return subscript(n);
    case Kind::Slice:
      return slice(n);
    case Kind::Tuple:
      return Object::tuple(sequence(n));
    case Kind::List:
      return Object::list(sequence(n));
    case Kind::Set:
      return Object::of(Type::Set, sequence(n));
    case Kind::Dict:
      return dict(n);
    case Kind::Comprehension:
      return comprehension(n);
    case Kind::Join:
      return join(n);
    case Kind::Format:
      return Object(show(expr(n.children[0]), n.text == "r"));
    case Kind::Lambda:
    case Kind::Function:
      return function(n);
    case Kind::Class:
      return blueprint(n);
    case Kind::Walrus: {
      Object value = expr(n.children[1]);
      assign(n.children[0], value);
      return value;
    }
    default:
      if (std::optional<Object> value = literal(n)) return *value;
      fail("[definition] expected an expression, got a node of kind ", static_cast<int>(n.kind));
  }
}

Object Interpreter::slice(const Node& n) {
  Object slice = Object::of(Type::Slice, {});
  for (const Node& end : n.children) slice.heap->items.push_back(expr(end));
  return slice;
}

Object Interpreter::subscript(const Node& n) {
  const Object base = expr(n.children[0]);
  return item_of(base, expr(n.children[1]));
}

Object Interpreter::dict(const Node& n) {
  Object dict = Object::of(Type::Dict, {});
  for (size_t i = 0; i + 1 < n.children.size(); i += 2) {
    if (n.children[i].kind == Kind::Absent) {  // **other
      const Object other = expr(n.children[i + 1]);
      for (size_t k = 0; k < other.items().size(); ++k)
        set_item(dict, other.items()[k], other.heap->values[k]);
      continue;
    }
    const Object key = expr(n.children[i]);
    set_item(dict, key, expr(n.children[i + 1]));
  }
  return dict;
}

Object Interpreter::join(const Node& n) {
  std::string text;
  for (const Node& part : n.children) text += show(expr(part), false);
  return Object(text);
}

Objects Interpreter::sequence(const Node& n) {
  Objects items;
  for (const Node& child : n.children) {
    if (child.kind == Kind::Starred) {
      const Objects more = iterate(expr(child.children[0]));
      items.insert(items.end(), more.begin(), more.end());
    } else {
      items.push_back(expr(child));
    }
  }
  return items;
}

Object Interpreter::compare(const Node& n) {
  std::string_view names = n.text;
  Object left = expr(n.children[0]), value(true);
  for (size_t i = 1; i < n.children.size(); ++i) {
    const size_t space = names.find(' ');
    const Object right = expr(n.children[i]);
    value = definitions::compare(names.substr(0, space), left, right);
    if (i + 1 < n.children.size() && !truth(value)) break;
    left = right;
    names.remove_prefix(space == std::string_view::npos ? names.size() : space + 1);
  }
  return value;
}

void Interpreter::each(const Node& n, size_t loop, size_t first, Object& collection) {
  if (loop == n.children.size()) {
    if (n.text == "dict") {
      const Object key = expr(n.children[0]);
      set_item(collection, key, expr(n.children[1]));
    } else {
      collection.heap->items.push_back(expr(n.children[0]));
    }
    return;
  }
  const Node& clause = n.children[loop];
  for (const Object& value : iterate(expr(clause.children[1]))) {
    assign(clause.children[0], value);
    bool wanted = true;
    for (size_t i = 2; i < clause.children.size() && wanted; ++i) wanted = truth(expr(clause.children[i]));
    if (wanted) each(n, loop + 1, first, collection);
  }
}

Object Interpreter::comprehension(const Node& n) {
  Interpreter inner(std::make_shared<Environment>());
  inner.scope_->outer = scope_;
  const Type type = n.text == "dict" ? Type::Dict : n.text == "set" ? Type::Set : Type::List;
  Object collection = Object::of(type, {});
  const size_t elements = n.text == "dict" ? 2 : 1;
  inner.each(n, elements, elements, collection);
  return collection;
}

Object Interpreter::call_node(const Node& n) {
  const Object callable = expr(n.children[0]);
  Objects positional;
  Keywords keywords;
  for (size_t i = 1; i < n.children.size(); ++i) {
    const Node& child = n.children[i];
    if (child.kind == Kind::Starred) {
      const Objects more = iterate(expr(child.children[0]));
      positional.insert(positional.end(), more.begin(), more.end());
    } else if (child.kind != Kind::Keyword) {
      positional.push_back(expr(child));
    } else if (child.text.empty()) {
      const Object more = expr(child.children[0]);
      for (size_t k = 0; k < more.items().size(); ++k)
        keywords.emplace_back(more.items()[k].text(), more.heap->values[k]);
    } else {
      keywords.emplace_back(std::string(child.text), expr(child.children[0]));
    }
  }
  return invoke(callable, positional, keywords);
}

void Interpreter::unpack(const Node& target, const Objects& values) {
  const std::vector<Node>& parts = target.children;
  size_t star = 0;
  while (star < parts.size() && parts[star].kind != Kind::Starred) ++star;
  if (star == parts.size()) {
    FL_CHECK_KIND(parts.size() == values.size(), Value, "[definition] expected ", parts.size(),
                  " values to unpack, got ", values.size());
    for (size_t i = 0; i < parts.size(); ++i) assign(parts[i], values[i]);
    return;
  }
  FL_CHECK_KIND(values.size() + 1 >= parts.size(), Value, "[definition] expected at least ", parts.size() - 1,
                " values to unpack, got ", values.size());
  const size_t middle = values.size() + 1 - parts.size();
  for (size_t i = 0; i < star; ++i) assign(parts[i], values[i]);
  const auto begin = values.begin() + static_cast<ptrdiff_t>(star);
  assign(parts[star].children[0], Object::list(Objects(begin, begin + static_cast<ptrdiff_t>(middle))));
  for (size_t i = star + 1; i < parts.size(); ++i) assign(parts[i], values[i + middle - 1]);
}

void set_attribute(const Object& base, std::string_view name, const Object& value) {
  FL_CHECK_KIND(base.is(Type::Instance), Type, "[definition] expected an object with attributes, got ",
                type_name(base));
  Heap& heap = *base.heap;
  for (size_t i = 0; i < heap.items.size(); ++i)
    if (heap.items[i].text() == name) {
      heap.values[i] = value;
      return;
    }
  heap.items.emplace_back(name);
  heap.values.push_back(value);
}

void Interpreter::assign(const Node& target, const Object& value) {
  switch (target.kind) {
    case Kind::Local: {
      scope_->variables[target.text] = value;
      return;
    }
    case Kind::Tuple:
    case Kind::List:
      return unpack(target, iterate(value));
    case Kind::Attribute:
      return set_attribute(expr(target.children[0]), target.text, value);
    case Kind::Subscript: {
      Object base = expr(target.children[0]);
      return set_item(base, expr(target.children[1]), value);
    }
    default:
      fail("[definition] expected something to assign to, got a node of kind ",
           static_cast<int>(target.kind));
  }
}

void Interpreter::raise(const Node& n) {
  static const std::map<std::string, ErrorKind> kinds = {{"RuntimeError", ErrorKind::Runtime},
                                                         {"ValueError", ErrorKind::Value},
                                                         {"TypeError", ErrorKind::Type},
                                                         {"IndexError", ErrorKind::Index},
                                                         {"NotImplementedError", ErrorKind::NotImplemented}};
  std::string text = "an error";
  ErrorKind kind = ErrorKind::Runtime;
  if (!n.children.empty()) {
    const Node& raised = n.children[0];
    const Node& head = raised.kind == Kind::Call ? raised.children[0] : raised;
    const std::string name(head.text.substr(head.text.find(':') + 1));
    const auto entry = kinds.find(name);
    if (entry != kinds.end()) kind = entry->second;
    if (raised.kind == Kind::Call && raised.children.size() > 1) text = show(expr(raised.children[1]), false);
  }
  throw Error(kind, text);
}

Flow Interpreter::with(const Node& n) {
  struct Restore {
    bool grad_mode = thread_state().grad_mode;
    ~Restore() { thread_state().grad_mode = grad_mode; }
  } restore;
  for (size_t i = 0; i + 1 < n.children.size(); ++i) {
    const Object manager = expr(n.children[i]);
    FL_CHECK_KIND(manager.is(Type::Class), NotImplemented,
                  "[definition] expected no_grad or enable_grad, got ", type_name(manager));
    thread_state().grad_mode = manager.text() == "enable_grad";
  }
  return run(n.children.back());
}

Flow Interpreter::attempt(const Node& n) {
  try {
    return run(n.children[0]);
  } catch (const Error&) {
    if (n.children.size() < 2) throw;
  }
  return run(n.children[1]);
}

Flow Interpreter::loop(const Node& n) {
  const auto stops = [](Flow flow) { return flow == Flow::Return || flow == Flow::Break; };
  if (n.kind == Kind::While) {
    while (truth(expr(n.children[0]))) {
      const Flow flow = run(n.children[1]);
      if (stops(flow)) return flow == Flow::Return ? flow : Flow::Next;
    }
    return Flow::Next;
  }
  for (const Object& value : iterate(expr(n.children[1]))) {
    assign(n.children[0], value);
    const Flow flow = run(n.children[2]);
    if (stops(flow)) return flow == Flow::Return ? flow : Flow::Next;
  }
  return Flow::Next;
}

Flow Interpreter::run(const Node& n) {
  switch (n.kind) {
    case Kind::Block:
      for (const Node& statement : n.children) {
        const Flow flow = run(statement);
        if (flow != Flow::Next) return flow;
      }
      return Flow::Next;
    case Kind::Return:
      result = n.children.empty() ? Object() : expr(n.children[0]);
      return Flow::Return;
    case Kind::Assign: {
      const Object value = expr(n.children[0]);
      for (size_t i = 1; i < n.children.size(); ++i) assign(n.children[i], value);
      return Flow::Next;
    }
    case Kind::Augment: {
      const Object left = expr(n.children[0]);
      assign(n.children[0], augmented(n.text, left, expr(n.children[1])));
      return Flow::Next;
    }
    case Kind::If:
      return run(n.children[truth(expr(n.children[0])) ? 1 : 2]);
    case Kind::For:
    case Kind::While:
      return loop(n);
    case Kind::Break:
      return Flow::Break;
    case Kind::Continue:
      return Flow::Continue;
    case Kind::Pass:
      return Flow::Next;
    case Kind::Raise:
      raise(n);
    case Kind::With:
      return with(n);
    case Kind::Try:
      return attempt(n);
    case Kind::Function:
      scope_->variables[n.text] = function(n);
      return Flow::Next;
    case Kind::Delete:
      for (const Node& target : n.children)
        if (target.kind == Kind::Subscript)
          invoke(attribute(expr(target.children[0]), "pop"), {expr(target.children[1])});
      return Flow::Next;
    default:
      expr(n);
      return Flow::Next;
  }
}

// Gives the parameters of a function their values.
void bind_parameters(const Object& function, const Objects& positional, const Keywords& keywords,
                     Environment& scope) {
  const Node& n = *function.heap->function;
  size_t next = 0, parameter = 0;
  bool only_keywords = false;
  std::vector<bool> used(keywords.size());
  for (const Node& p : n.children) {
    if (p.kind != Kind::Parameter) break;
    const Object& fallback = function.heap->items[parameter++];
    if (p.text.substr(0, 2) == "**") {
      Object rest = Object::of(Type::Dict, {});
      for (size_t k = 0; k < keywords.size(); ++k)
        if (!used[k]) set_item(rest, Object(keywords[k].first), keywords[k].second), used[k] = true;
      scope.variables[p.text.substr(2)] = rest;
      continue;
    }
    if (p.text[0] == '*') {
      scope.variables[p.text.substr(1)] =
          Object::tuple(Objects(positional.begin() + static_cast<ptrdiff_t>(next), positional.end()));
      next = positional.size();
      only_keywords = true;
      continue;
    }
    if (!only_keywords && next < positional.size()) {
      scope.variables[p.text] = positional[next++];
      continue;
    }
    size_t k = 0;
    while (k < keywords.size() && keywords[k].first != p.text) ++k;
    FL_CHECK_KIND(k < keywords.size() || !p.children.empty(), Type, "[", function.text(),
                  "] expected a value for ", p.text, ", got none");
    if (k < keywords.size()) used[k] = true;
    scope.variables[p.text] = k < keywords.size() ? keywords[k].second : fallback;
  }
  FL_CHECK_KIND(next == positional.size(), Type, "[", function.text(), "] expected ", next,
                " arguments, got ", positional.size());
  for (size_t k = 0; k < keywords.size(); ++k)
    FL_CHECK_KIND(used[k], Type, "[", function.text(), "] expected one of its parameters, got ",
                  keywords[k].first);
}

}  // namespace

namespace {

// An object of a class of the definitions: names of attributes are items, its class comes first.
Object instantiate(const Object& blueprint, const Objects& positional, const Keywords& keywords) {
  Object instance = Object::of(Type::Instance, {Object("__class__")});
  instance.heap->values.push_back(blueprint);
  invoke(attribute(instance, "__init__"), positional, keywords);
  return instance;
}

}  // namespace

Object instance_attribute(const Object& instance, const std::string& name) {
  const Heap& heap = *instance.heap;
  for (size_t i = 0; i < heap.items.size(); ++i)
    if (heap.items[i].text() == name) return heap.values[i];
  for (const Object& method : heap.values[0].items()) {
    if (method.text() != name) continue;
    return Object::native([instance, method](const Objects& a, const Keywords& k) {
      Objects all{instance};
      all.insert(all.end(), a.begin(), a.end());
      return invoke(method, all, k);
    });
  }
  fail("[definition] expected an attribute of the object, got ", name);
}

Object invoke(const Object& callable, const Objects& positional, const Keywords& keywords) {
  if (callable.is(Type::Blueprint)) return instantiate(callable, positional, keywords);
  if (callable.is(Type::Native)) return callable.heap->native(positional, keywords);
  if (callable.is(Type::Class)) return invoke(find_global("classes", callable.text()), positional, keywords);
  FL_CHECK_KIND(callable.is(Type::Function), Type, "[definition] expected a function, got ",
                type_name(callable));
  static thread_local int depth = 0;
  struct Deeper {
    Deeper() { ++depth; }
    ~Deeper() { --depth; }
  } deeper;
  FL_CHECK(depth < kDeepest, "[definition] expected calls that end, got ", depth,
           " of them within each other");
  auto scope = std::make_shared<Environment>();
  scope->outer = callable.heap->scope;
  bind_parameters(callable, positional, keywords, *scope);
  Interpreter body(scope);
  body.run(callable.heap->function->children.back());
  return body.result;
}

Object evaluate(const std::string& name, const Objects& positional, const Keywords& keywords) {
  const Node* tree = find_definition(name);
  FL_CHECK_KIND(tree != nullptr, NotImplemented,
                "[definition] expected a definition that runs without Python, got ", name);
  Interpreter outer(std::make_shared<Environment>());
  return invoke(outer.expr(*tree), positional, keywords);
}

}  // namespace fl::definitions

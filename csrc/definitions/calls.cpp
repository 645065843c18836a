// Operators seen from definitions and from the C interface: the choice among overloads, and arguments as
// values.
#include <cstring>
#include <map>
#include <mutex>

#include "autograd/node.h"
#include "definitions/object.h"
#include "dispatch/builtin.h"

namespace fl::definitions {
namespace {

struct Tables {
  std::map<std::string, Packet> functions, methods, operators;
};

const Tables& tables() {
  static const Tables* const all = [] {
    define_builtin_operators();
    auto* tables = new Tables;
    for (int i = 0; i < builtin_operator_count; ++i) {
      const BuiltinOperator& row = builtin_operators[i];
      Operator* op = &builtin_operator(i);
      const auto add = [&](Operator* overload, const std::string& name) {
        tables->operators[overload->schema.name].overloads.push_back(overload);
        if (row.method) tables->methods[name].overloads.push_back(overload);
        if (!row.function) return;
        std::string modules = row.module;
        for (size_t end = 0; end != std::string::npos;) {
          end = modules.find(';');
          const std::string module = modules.substr(0, end);
          tables->functions[module.empty() ? name : module + "." + name].overloads.push_back(overload);
          if (end != std::string::npos) modules.erase(0, end + 1);
        }
      };
      add(op, row.name);
      if (op->inplace) add(op->inplace, std::string(row.name) + "_");
    }
    return tables;
  }();
  return *all;
}

const Packet* find(const std::map<std::string, Packet>& table, const std::string& name) {
  const auto entry = table.find(name);
  return entry == table.end() ? nullptr : &entry->second;
}

bool read_integer(const Object& o, int64_t& out) {
  if (o.is_integer()) return out = o.integer, true;
  if (!o.is(Type::Tensor) || o.tensor.numel() != 1 || !is_integral(o.tensor.dtype(), true)) return false;
  return out = item(o.tensor).to<int64_t>(), true;
}

bool read_float(const Object& o, double& out) {
  if (o.is_integer() || o.is(Type::Float)) return out = o.to_double(), true;
  if (!o.is(Type::Tensor) || o.tensor.numel() != 1 || is_complex(o.tensor.dtype())) return false;
  return out = item(o.tensor).to<double>(), true;
}

bool read_list(const Argument& arg, const Object* items, size_t n, Value& value) {
  if (arg.type == ArgType::Int) {
    std::vector<int64_t> list(n);
    for (size_t i = 0; i < n; ++i)
      if (!read_integer(items[i], list[i])) return false;
    return value = Value(list), true;
  }
  if (arg.type == ArgType::Float || arg.type == ArgType::Scalar) {
    std::vector<double> list(n);
    for (size_t i = 0; i < n; ++i)
      if (!read_float(items[i], list[i])) return false;
    return value = Value(list), true;
  }
  if (arg.type == ArgType::Bool) {
    const auto list = std::make_unique<bool[]>(n + 1);
    for (size_t i = 0; i < n; ++i) {
      if (!items[i].is(Type::Bool)) return false;
      list[i] = items[i].integer != 0;
    }
    const Value borrowed = Value::borrow(list.get(), n);
    return value = borrowed, true;
  }
  if (arg.type != ArgType::Tensor && arg.type != ArgType::TensorOrScalar) return false;
  std::vector<Tensor> list;
  for (size_t i = 0; i < n; ++i) {
    if (items[i].is(Type::Tensor))
      list.push_back(items[i].tensor);
    else if (items[i].is_none() && arg.list_optional)
      list.emplace_back();
    else if (arg.type == ArgType::TensorOrScalar && items[i].is_number())
      list.push_back(wrapped_number(items[i].scalar()));
    else
      return false;
  }
  return value = Value(list), true;
}

// The dtype that a class of Python's numbers stands for.
bool read_class(const std::string& name, Value& value) {
  static const std::map<std::string, DType> classes = {{"float", DType::Double},
                                                       {"int", DType::Int64},
                                                       {"bool", DType::Bool},
                                                       {"complex", DType::ComplexDouble}};
  const auto entry = classes.find(name);
  if (entry == classes.end()) return false;
  return value = Value(entry->second), true;
}

bool read_single(const Argument& arg, const Object& o, Value& value) {
  switch (arg.type) {
    case ArgType::Tensor:
      if (!o.is(Type::Tensor)) return false;
      return value = Value(o.tensor), true;
    case ArgType::TensorOrScalar:
      if (o.is(Type::Tensor)) return value = Value(o.tensor), true;
      if (!o.is_number()) return false;
      return value = Value(o.scalar()), true;
    case ArgType::Scalar:
      if (o.is(Type::Tensor)) {
        if (o.tensor.numel() != 1 || o.tensor.is_meta() || o.tensor.requires_grad()) return false;
        return value = Value(item(o.tensor)), true;
      }
      if (!o.is_number()) return false;
      return value = Value(o.scalar()), true;
    case ArgType::Int: {
      int64_t i = 0;
      if (!read_integer(o, i)) return false;
      return value = Value(i), true;
    }
    case ArgType::Float: {
      double d = 0;
      if (!read_float(o, d)) return false;
      return value = Value(d), true;
    }
    case ArgType::Bool:
      if (!o.is(Type::Bool)) return false;
      return value = Value(o.integer != 0), true;
    case ArgType::String:
      if (!o.is(Type::String)) return false;
      return value = Value(std::string_view(o.text())), true;
    case ArgType::DType:
      if (o.is(Type::Class)) return read_class(o.text(), value);
      if (!o.is(Type::DType)) return false;
      return value = Value(o.dtype()), true;
    case ArgType::Device:
      if (o.is(Type::String)) return value = Value(parse_device(o.text())), true;
      if (!o.is(Type::Device)) return false;
      return value = Value(o.device()), true;
    case ArgType::Layout:
      if (!o.is(Type::Layout)) return false;
      return value = Value(static_cast<Layout>(o.integer)), true;
    case ArgType::MemoryFormat:
      if (!o.is(Type::MemoryFormat)) return false;
      return value = Value(static_cast<MemoryFormat>(o.integer)), true;
    case ArgType::Generator:
      if (!o.is(Type::Foreign)) return false;
      return value = Value(o.foreign), true;
    case ArgType::Any:
      return value = Value(Ref<Opaque>(o.is(Type::Foreign) ? o.foreign.get() : new Carried(o))), true;
  }
  return false;
}

bool read(const Argument& arg, const Object& o, Value& value) {
  if (o.is_none() && (arg.optional || (arg.type == ArgType::Any && !arg.list))) return value = Value(), true;
  if (!arg.list) return read_single(arg, o, value);
  if (o.is_sequence()) return read_list(arg, o.items().data(), o.items().size(), value);
  if (arg.broadcast) {
    const Objects all(static_cast<size_t>(arg.broadcast), o);
    return read_list(arg, all.data(), all.size(), value);
  }
  return false;
}

bool same_name(const std::string& formal, const std::string& name) {
  return formal == name || (formal == "self" && name == "input") || (formal == "input" && name == "self") ||
         (formal == "dim" && name == "axis") || (formal == "keepdim" && name == "keepdims");
}

// Arguments of a call as an operator takes them.
struct Binding {
  const Operator& op;
  std::vector<Value> values;
  std::vector<bool> seen;
  bool requires_grad = false;
  const Object* out = nullptr;

  explicit Binding(const Operator& o) : op(o), values(o.schema.args.size()), seen(o.schema.args.size()) {}

  bool positional(const Objects& arguments) {
    const std::vector<Argument>& formals = op.schema.args;
    size_t most = 0;
    while (most < formals.size() && !formals[most].keyword_only) ++most;
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (i >= most) return false;
      const Argument& arg = formals[i];
      // x.view(2, 3): the rest of the positional arguments is the list.
      const bool begins_list = arg.list && arg.broadcast == 0 && i + 1 == most &&
                               !arguments[i].is_sequence() &&
                               ((arg.type == ArgType::Int && arguments[i].is_integer()) ||
                                (arg.type == ArgType::Tensor && arguments[i].is(Type::Tensor)));
      seen[i] = true;
      if (begins_list) return read_list(arg, arguments.data() + i, arguments.size() - i, values[i]);
      if (!read(arg, arguments[i], values[i])) return false;
    }
    return true;
  }

  bool keyword(const std::string& name, const Object& value) {
    const std::vector<Argument>& formals = op.schema.args;
    size_t at = 0;
    while (at < formals.size() && formals[at].name != name) ++at;
    if (at == formals.size()) {
      at = 0;
      while (at < formals.size() && !same_name(formals[at].name, name)) ++at;
    }
    if (at == formals.size()) {
      if (name == "out" && (op.out || value.is_none())) return out = value.is_none() ? nullptr : &value, true;
      if (name != "requires_grad" || !value.is(Type::Bool)) return false;
      requires_grad = value.integer != 0;
      return true;
    }
    if (seen[at]) return false;
    seen[at] = true;
    return read(formals[at], value, values[at]);
  }

  bool defaults() {
    for (size_t i = 0; i < values.size(); ++i) {
      if (seen[i]) continue;
      if (!op.schema.args[i].has_default) return false;
      values[i] = op.schema.args[i].default_value;
    }
    return true;
  }
};

std::string describe(const Objects& positional, const Keywords& keywords) {
  std::string text;
  for (const Object& o : positional) text += (text.empty() ? "" : ", ") + std::string(type_name(o));
  for (const auto& [name, o] : keywords) text += (text.empty() ? "" : ", ") + name + "=" + type_name(o);
  return "(" + text + ")";
}

// The values and the tensors that an out= form writes to.
Object call_out(Binding& bound) {
  const Operator& op = *bound.op.out;
  const Objects targets = bound.out->is_sequence() ? bound.out->items() : Objects{*bound.out};
  for (const Object& target : targets) {
    FL_CHECK_KIND(target.is(Type::Tensor), Type, "[", op.schema.name, "] expected tensors for 'out', got ",
                  type_name(target));
    bound.values.emplace_back(target.tensor);
  }
  FL_CHECK_KIND(bound.values.size() == op.schema.args.size(), Type, "[", op.schema.name, "] expected ",
                op.n_results(), " tensors for 'out', got ", targets.size());
  return call(op, bound.values.data());
}

}  // namespace

const Packet* find_function(const std::string& name) {
  return find(tables().functions, name);
}
const Packet* find_method(const std::string& name) {
  return find(tables().methods, name);
}
const Packet* find_operator(const std::string& name) {
  return find(tables().operators, name);
}

Object call(const Operator& op, Value* arguments) {
  const auto n = static_cast<size_t>(op.n_results());
  std::vector<Value> results(std::max<size_t>(n, 1));
  op.call(arguments, results.data());
  if (n == 0) return {};
  if (n == 1) return from_value(results[0]);
  Objects items;
  for (const Value& value : results) items.push_back(from_value(value));
  Object tuple = Object::tuple(std::move(items));
  tuple.heap->names = op.schema.return_names;
  return tuple;
}

Object call(const Packet& packet, const Objects& positional, const Keywords& keywords) {
  for (const Operator* op : packet.overloads) {
    Binding bound(*op);
    if (!bound.positional(positional)) continue;
    bool fits = true;
    for (const auto& [name, value] : keywords) fits = fits && bound.keyword(name, value);
    if (!fits || !bound.defaults()) continue;
    if (bound.out) return call_out(bound);
    Object result = call(*op, bound.values.data());
    if (bound.requires_grad && result.is(Type::Tensor)) autograd::set_requires_grad(result.tensor, true);
    return result;
  }
  std::string schemas;
  for (const Operator* op : packet.overloads) schemas += (schemas.empty() ? "" : " or ") + op->schema.text;
  fail(ErrorKind::Type, "[", packet.overloads[0]->schema.name, "] expected arguments of ", schemas, ", got ",
       describe(positional, keywords));
}

Object call(const std::string& name, const Objects& positional, const Keywords& keywords) {
  const Packet* packet = find_function(name);
  if (!packet) packet = find_operator(name);
  FL_CHECK_KIND(packet != nullptr, NotImplemented, "[library] expected an operator of this library, got ",
                name);
  return call(*packet, positional, keywords);
}

}  // namespace fl::definitions

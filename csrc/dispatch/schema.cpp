// Reads schemas: `name.overload(Type arg=default, *, Type arg) -> Type`. The grammar is described in ops/record.py.
#include <cctype>
#include <cmath>

#include "core/error.h"
#include "dispatch/operator.h"

namespace fl {

namespace {

std::string trim(const std::string& s) {
  size_t a = s.find_first_not_of(" \n\t"), b = s.find_last_not_of(" \n\t");
  return a == std::string::npos ? "" : s.substr(a, b - a + 1);
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  int depth = 0;
  size_t start = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '(' || c == '[') ++depth;
    if (c == ')' || c == ']') --depth;
    if (c == ',' && depth == 0) {
      parts.push_back(trim(text.substr(start, i - start)));
      start = i + 1;
    }
  }
  const std::string last = trim(text.substr(start));
  if (!last.empty()) parts.push_back(last);
  return parts;
}

ArgType arg_type(const std::string& name, const std::string& text) {
  static const std::unordered_map<std::string, ArgType> types{
      {"Tensor", ArgType::Tensor},       {"Tensor|Scalar", ArgType::TensorOrScalar},
      {"Scalar", ArgType::Scalar},       {"int", ArgType::Int},
      {"float", ArgType::Float},         {"bool", ArgType::Bool},
      {"str", ArgType::String},          {"dtype", ArgType::DType},
      {"device", ArgType::Device},       {"layout", ArgType::Layout},
      {"memory_format", ArgType::MemoryFormat}, {"Generator", ArgType::Generator},
      {"any", ArgType::Any},             {"SymInt", ArgType::Int},
      {"ScalarType", ArgType::DType},    {"Device", ArgType::Device},
      {"MemoryFormat", ArgType::MemoryFormat}, {"Layout", ArgType::Layout}};
  const auto it = types.find(name);
  FL_CHECK(it != types.end(), "[schema] expected a known type, got ", name, " in ", text);
  return it->second;
}

Value parse_default(const Argument& arg, const std::string& text) {
  if (text == "None") return Value();
  if (text == "True") return Value(true);
  if (text == "False") return Value(false);
  if (text[0] == '[' || text[0] == '(') {
    std::vector<int64_t> ints;
    std::vector<double> floats;
    for (const auto& part : split(text.substr(1, text.size() - 2))) {
      ints.push_back(static_cast<int64_t>(std::stod(part)));
      floats.push_back(std::stod(part));
    }
    return arg.type == ArgType::Float ? Value(floats) : Value(ints);
  }
  if (text[0] == '\'' || text[0] == '"') return Value(std::string_view(text).substr(1, text.size() - 2));
  if (arg.type == ArgType::MemoryFormat) {
    if (text == "contiguous_format") return Value(MemoryFormat::Contiguous);
    return Value(MemoryFormat::Preserve);
  }
  if (arg.type == ArgType::DType) {
    for (int i = 0; i < kDTypes; ++i)
      if (text == name_of(static_cast<DType>(i))) return Value(static_cast<DType>(i));
  }
  if (text == "inf") return Value(double(INFINITY));
  if (text == "-inf") return Value(-double(INFINITY));
  const bool floating = text.find_first_of(".e") != std::string::npos || arg.type == ArgType::Float;
  if (arg.list && arg.broadcast) {
    return arg.type == ArgType::Float ? Value(std::vector<double>(arg.broadcast, std::stod(text)))
                                      : Value(std::vector<int64_t>(arg.broadcast, std::stoll(text)));
  }
  return floating ? Value(std::stod(text)) : Value(static_cast<int64_t>(std::stoll(text)));
}

Argument parse_argument(const std::string& text, bool keyword_only) {
  Argument arg;
  arg.keyword_only = keyword_only;
  size_t equals = std::string::npos;
  for (size_t i = 0; i < text.size(); ++i)
    if (text[i] == '=') {
      equals = i;
      break;
    }
  const std::string head = trim(text.substr(0, equals));
  const size_t space = head.find_last_of(' ');
  FL_CHECK(space != std::string::npos, "[schema] expected `Type name`, got ", text);
  arg.name = head.substr(space + 1);
  std::string type = trim(head.substr(0, space));
  if (type.size() > 3 && type.substr(type.size() - 3) == "(!)") {
    arg.mutated = true;
    type = type.substr(0, type.size() - 3);
  }
  // ATen-style alias annotations: Tensor(a!), Tensor(a)
  const size_t annotation = type.find('(');
  if (annotation != std::string::npos) {
    const size_t close = type.find(')', annotation);
    arg.mutated |= type.substr(annotation, close - annotation).find('!') != std::string::npos;
    type = type.substr(0, annotation) + type.substr(close + 1);
  }
  if (type.back() == '?') {
    arg.optional = true;
    type.pop_back();
  }
  if (type.back() == ']') {
    arg.list = true;
    const size_t open = type.find_last_of('[');
    if (open + 2 < type.size()) arg.broadcast = std::stoi(type.substr(open + 1));
    type = type.substr(0, open);
    if (type.back() == '?') {
      arg.list_optional = true;
      type.pop_back();
    }
  }
  arg.type = arg_type(type, text);
  if (equals != std::string::npos) {
    arg.has_default = true;
    arg.default_value = parse_default(arg, trim(text.substr(equals + 1)));
  }
  return arg;
}

}  // namespace

Schema Schema::parse(const std::string& source) {
  Schema s;
  s.text = source;
  const size_t open = source.find('(');
  const size_t arrow = source.rfind("->");
  FL_CHECK(open != std::string::npos && arrow != std::string::npos && arrow > open,
           "[schema] expected name(args) -> type, got ", source);
  std::string name = trim(source.substr(0, open));
  const size_t dot = name.find('.');
  s.name = name.substr(0, dot);
  if (dot != std::string::npos) s.overload = name.substr(dot + 1);
  const std::string before = trim(source.substr(open, arrow - open));
  bool keyword_only = false;
  for (const auto& part : split(before.substr(1, before.size() - 2))) {
    if (part == "*")
      keyword_only = true;
    else
      s.args.push_back(parse_argument(part, keyword_only));
  }
  std::string returns = trim(source.substr(arrow + 2));
  if (returns.empty() || returns == "()" || returns == "None") return s;
  if (returns[0] == '(' ) returns = returns.substr(1, returns.size() - 2);
  for (const auto& part : split(returns)) {
    const size_t space = part.find_last_of(' ');
    s.returns.push_back(space == std::string::npos ? part : part.substr(0, space));
    s.return_names.push_back(space == std::string::npos ? "" : part.substr(space + 1));
  }
  s.returns_list = s.returns.size() == 1 && s.returns[0].find('[') != std::string::npos;
  return s;
}

}  // namespace fl

// Reads schemas: `name.overload(Type arg=default, *, Type arg) -> Type`. The grammar is described in
// ops/record.py.
#include <algorithm>
#include <cmath>
#include <string_view>

#include "core/error.h"
#include "dispatch/operator.h"

namespace fl {

namespace {

// Thousands of schemas are read when the library is loaded, so reading works on views of the text.
using View = std::string_view;

View trim(View s) {
  const size_t a = s.find_first_not_of(" \n\t"), b = s.find_last_not_of(" \n\t");
  return a == View::npos ? View() : s.substr(a, b - a + 1);
}

// Calls f for each part between top-level commas.
template <class F>
void for_each_part(View text, const F& f) {
  int depth = 0;
  size_t start = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '(' || c == '[') ++depth;
    if (c == ')' || c == ']') --depth;
    if (c == ',' && depth == 0) {
      f(trim(text.substr(start, i - start)));
      start = i + 1;
    }
  }
  const View last = trim(text.substr(start));
  if (!last.empty()) f(last);
}

ArgType arg_type(View name, View text) {
  static constexpr std::pair<View, ArgType> types[] = {{"Tensor", ArgType::Tensor},
                                                       {"int", ArgType::Int},
                                                       {"bool", ArgType::Bool},
                                                       {"dtype", ArgType::DType},
                                                       {"device", ArgType::Device},
                                                       {"Tensor|Scalar", ArgType::TensorOrScalar},
                                                       {"Scalar", ArgType::Scalar},
                                                       {"float", ArgType::Float},
                                                       {"str", ArgType::String},
                                                       {"layout", ArgType::Layout},
                                                       {"memory_format", ArgType::MemoryFormat},
                                                       {"Generator", ArgType::Generator},
                                                       {"any", ArgType::Any},
                                                       {"SymInt", ArgType::Int},
                                                       {"ScalarType", ArgType::DType},
                                                       {"Device", ArgType::Device},
                                                       {"MemoryFormat", ArgType::MemoryFormat},
                                                       {"Layout", ArgType::Layout}};
  for (const auto& [known, type] : types)
    if (name == known) return type;
  fail("[schema] expected a known type, got ", std::string(name), " in ", std::string(text));
}

Value parse_default(const Argument& arg, View view) {
  if (view == "None") return Value();
  if (view == "True") return Value(true);
  if (view == "False") return Value(false);
  const std::string text(view);
  if (text[0] == '[' || text[0] == '(') {
    std::vector<int64_t> ints;
    std::vector<double> floats;
    for_each_part(view.substr(1, view.size() - 2), [&](View part) {
      floats.push_back(std::stod(std::string(part)));
      ints.push_back(static_cast<int64_t>(floats.back()));
    });
    return arg.type == ArgType::Float ? Value(floats) : Value(ints);
  }
  if (text[0] == '\'' || text[0] == '"') return Value(std::string_view(text).substr(1, text.size() - 2));
  if (arg.type == ArgType::MemoryFormat) {
    if (text == "contiguous_format") return Value(MemoryFormat::Contiguous);
    return Value(MemoryFormat::Preserve);
  }
  if (arg.type == ArgType::DType) {
    for (int i = 0; i < kAllDTypes; ++i)
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

Argument parse_argument(View text, bool keyword_only) {
  Argument arg;
  arg.keyword_only = keyword_only;
  const size_t equals = text.find('=');
  const View head = trim(text.substr(0, equals));
  const size_t space = head.find_last_of(' ');
  FL_CHECK(space != View::npos, "[schema] expected `Type name`, got ", std::string(text));
  arg.name = head.substr(space + 1);
  View type = trim(head.substr(0, space));
  // Alias annotations: Tensor(!), or ATen's Tensor(a!) and Tensor(a).
  std::string without;
  const size_t annotation = type.find('(');
  if (annotation != View::npos) {
    const size_t close = type.find(')', annotation);
    arg.mutated = type.substr(annotation, close - annotation).find('!') != View::npos;
    without = std::string(type.substr(0, annotation)) + std::string(type.substr(close + 1));
    type = without;
  }
  if (type.back() == '?') {
    arg.optional = true;
    type.remove_suffix(1);
  }
  if (type.back() == ']') {
    arg.list = true;
    const size_t open = type.find_last_of('[');
    if (open + 2 < type.size()) arg.broadcast = std::stoi(std::string(type.substr(open + 1)));
    type = type.substr(0, open);
    if (type.back() == '?') {
      arg.list_optional = true;
      type.remove_suffix(1);
    }
  }
  arg.type = arg_type(type, text);
  if (equals != View::npos) {
    arg.has_default = true;
    arg.default_value = parse_default(arg, trim(text.substr(equals + 1)));
  }
  return arg;
}

}  // namespace

Schema Schema::parse(const std::string& source) {
  Schema s;
  s.text = source;
  const View text = source;
  const size_t open = text.find('('), arrow = text.rfind("->");
  FL_CHECK(open != View::npos && arrow != View::npos && arrow > open,
           "[schema] expected name(args) -> type, got ", source);
  const View name = trim(text.substr(0, open));
  const size_t dot = name.find('.');
  s.name = name.substr(0, dot);
  if (dot != View::npos) s.overload = name.substr(dot + 1);
  const View before = trim(text.substr(open, arrow - open)), args = before.substr(1, before.size() - 2);
  s.args.reserve(std::count(args.begin(), args.end(), ',') + 1);
  bool keyword_only = false;
  for_each_part(args, [&](View part) {
    if (part == "*")
      keyword_only = true;
    else
      s.args.push_back(parse_argument(part, keyword_only));
  });
  View returns = trim(text.substr(arrow + 2));
  if (returns.empty() || returns == "()" || returns == "None") return s;
  if (returns[0] == '(') returns = returns.substr(1, returns.size() - 2);
  for_each_part(returns, [&](View part) {
    const size_t space = part.find_last_of(' ');
    s.returns.emplace_back(part.substr(0, space));
    s.return_names.emplace_back(space == View::npos ? View() : part.substr(space + 1));
  });
  s.returns_list = s.returns.size() == 1 && s.returns[0].find('[') != std::string::npos;
  return s;
}

}  // namespace fl

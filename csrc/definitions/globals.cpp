// What definitions use besides operators: Python's own functions, math, and functions of the library that are
// no operators.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "core/determinism.h"
#include "core/random.h"
#include "definitions/object.h"
#include "definitions/operations.h"
#include "ops/promotion.h"

namespace fl::definitions {
namespace {

using Function = Object (*)(const Objects&, const Keywords&);

const std::string kModule = "module ";  // begins the name of a module that is a value

const Object& keyword(const Keywords& keywords, const char* name) {
  static const Object none;
  for (const auto& [keyword, value] : keywords)
    if (keyword == name) return value;
  return none;
}

// ---------------------------------------------------------------- Python's own functions

Object length(const Objects& a, const Keywords&) {
  if (a[0].is(Type::String)) return Object(a[0].text().size());
  if (a[0].is(Type::Tensor)) return Object(a[0].tensor.size(0));
  return Object(a[0].items().size());
}

Object range(const Objects& a, const Keywords&) {
  const int64_t first = a.size() > 1 ? a[0].integer : 0, last = a[a.size() > 1 ? 1 : 0].integer,
                step = a.size() > 2 ? a[2].integer : 1;
  Objects items;
  for (int64_t i = first; step > 0 ? i < last : i > last; i += step) items.emplace_back(i);
  return Object::list(std::move(items));
}

Object zip(const Objects& a, const Keywords&) {
  std::vector<Objects> columns;
  size_t least = std::numeric_limits<size_t>::max();
  for (const Object& o : a) {
    columns.push_back(iterate(o));
    least = std::min(least, columns.back().size());
  }
  Objects rows;
  for (size_t i = 0; i < (a.empty() ? 0 : least); ++i) {
    Objects row;
    for (const Objects& column : columns) row.push_back(column[i]);
    rows.push_back(Object::tuple(std::move(row)));
  }
  return Object::list(std::move(rows));
}

Object enumerate(const Objects& a, const Keywords& k) {
  int64_t i = a.size() > 1 ? a[1].integer : keyword(k, "start").integer;
  Objects rows;
  for (const Object& o : iterate(a[0])) rows.push_back(Object::tuple({Object(i++), o}));
  return Object::list(std::move(rows));
}

Object extreme(const Objects& a, const Keywords& k, const char* order) {
  const Objects items = a.size() == 1 ? iterate(a[0]) : a;
  if (items.empty()) {
    for (const auto& [name, value] : k)
      if (name == "default") return value;
    fail(ErrorKind::Value, "[definition] expected values to compare, got none");
  }
  const Object& key = keyword(k, "key");
  const auto rank = [&](const Object& o) { return key.is_none() ? o : invoke(key, {o}); };
  Object best = items[0];
  for (const Object& o : items)
    if (truth(compare(order, rank(o), rank(best)))) best = o;
  return best;
}

Object sum(const Objects& a, const Keywords& k) {
  Object total = a.size() > 1 ? a[1] : keyword(k, "start");
  if (total.is_none()) total = Object(0);
  for (const Object& o : iterate(a[0])) total = binary("Add", total, o);
  return total;
}

Object any(const Objects& a, const Keywords&) {
  for (const Object& o : iterate(a[0]))
    if (truth(o)) return Object(true);
  return Object(false);
}

Object all(const Objects& a, const Keywords&) {
  for (const Object& o : iterate(a[0]))
    if (!truth(o)) return Object(false);
  return Object(true);
}

Object absolute(const Objects& a, const Keywords&) {
  if (a[0].is(Type::Tensor)) return call("abs", a);
  if (a[0].is(Type::Complex)) return Object(std::hypot(a[0].number, a[0].imaginary));
  return a[0].is(Type::Float) ? Object(std::abs(a[0].number)) : Object(std::abs(a[0].integer));
}

Object reversed(const Objects& a, const Keywords&) {
  Objects items = iterate(a[0]);
  std::reverse(items.begin(), items.end());
  return Object::list(std::move(items));
}

Object sorted(const Objects& a, const Keywords& k) {
  Objects items = iterate(a[0]);
  const Object& key = keyword(k, "key");
  const auto rank = [&](const Object& o) { return key.is_none() ? o : invoke(key, {o}); };
  std::stable_sort(items.begin(), items.end(),
                   [&](const Object& x, const Object& y) { return truth(compare("Lt", rank(x), rank(y))); });
  if (truth(keyword(k, "reverse"))) std::reverse(items.begin(), items.end());
  return Object::list(std::move(items));
}

Object map(const Objects& a, const Keywords&) {
  Objects items;
  for (const Object& o : iterate(a[1])) items.push_back(invoke(a[0], {o}));
  return Object::list(std::move(items));
}

bool is_instance(const Object& o, const Object& type) {
  if (type.is(Type::Tuple))
    return std::any_of(type.items().begin(), type.items().end(),
                       [&](const Object& t) { return is_instance(o, t); });
  const std::string& name = type.text();
  switch (o.type) {
    case Type::Bool:
      return name == "bool" || name == "int";
    case Type::List:
      return name == "list" || name == "Sequence" || name == "Iterable";
    case Type::Tuple:
      return name == "tuple" || name == "Sequence" || name == "Iterable" || name == "Size";
    case Type::Tensor:
      return name == "Tensor";
    case Type::DType:
      return name == "dtype";
    default:
      return name == type_name(o);
  }
}

Object has_attribute(const Objects& a, const Keywords&) {
  try {
    attribute(a[0], a[1].text());
    return Object(true);
  } catch (const Error&) {
    return Object(false);
  }
}

const std::map<std::string, Function>& builtins() {
  static const std::map<std::string, Function> table = {
      {"len", length},
      {"range", range},
      {"zip", zip},
      {"enumerate", enumerate},
      {"sum", sum},
      {"any", any},
      {"all", all},
      {"abs", absolute},
      {"reversed", reversed},
      {"sorted", sorted},
      {"map", map},
      {"hasattr", has_attribute},
      {"min", [](const Objects& a, const Keywords& k) { return extreme(a, k, "Lt"); }},
      {"max", [](const Objects& a, const Keywords& k) { return extreme(a, k, "Gt"); }},
      {"isinstance", [](const Objects& a, const Keywords&) { return Object(is_instance(a[0], a[1])); }},
      {"repr", [](const Objects& a, const Keywords&) { return Object(show(a[0], true)); }},
      {"ord", [](const Objects& a, const Keywords&) { return Object(int64_t(a[0].text()[0])); }},
      {"chr", [](const Objects& a,
                 const Keywords&) { return Object(std::string(1, static_cast<char>(a[0].integer))); }},
      {"iter", [](const Objects& a, const Keywords&) { return Object::list(iterate(a[0])); }},
      {"next",
       [](const Objects& a, const Keywords&) {
         return a[0].items().empty() && a.size() > 1 ? a[1] : a[0].items().at(0);
       }},
      {"getattr",
       [](const Objects& a, const Keywords& k) {
         if (a.size() > 2 && !truth(has_attribute(a, k))) return a[2];
         return attribute(a[0], a[1].text());
       }},
      {"divmod",
       [](const Objects& a, const Keywords&) {
         return Object::tuple({binary("FloorDiv", a[0], a[1]), binary("Mod", a[0], a[1])});
       }},
      {"round",
       [](const Objects& a, const Keywords&) {
         return Object(static_cast<int64_t>(std::nearbyint(a[0].to_double())));
       }},
      {"type", [](const Objects& a, const Keywords&) { return Object::class_named(type_name(a[0])); }},
      {"id",
       [](const Objects& a, const Keywords&) {
         return Object(reinterpret_cast<int64_t>(
             a[0].is(Type::Tensor) ? static_cast<void*>(a[0].tensor.impl()) : a[0].heap.get()));
       }},
  };
  return table;
}

// ---------------------------------------------------------------- classes that are called

Object make_int(const Objects& a, const Keywords&) {
  const Object value = a[0].is(Type::Tensor) ? from_scalar(item(a[0].tensor)) : a[0];
  if (value.is(Type::String)) return Object(int64_t(std::stoll(value.text())));
  return value.is(Type::Float) ? Object(static_cast<int64_t>(value.number)) : Object(value.integer);
}

Object make_float(const Objects& a, const Keywords&) {
  if (a[0].is(Type::String)) return Object(std::strtod(a[0].text().c_str(), nullptr));
  return Object(a[0].is(Type::Tensor) ? item(a[0].tensor).to<double>() : a[0].to_double());
}

Object make_set(const Objects& a, const Keywords&) {
  Object set = Object::of(Type::Set, {});
  for (const Object& o : a.empty() ? Objects() : iterate(a[0]))
    if (!truth(compare("In", o, set))) set.heap->items.push_back(o);
  return set;
}

Object make_dict(const Objects& a, const Keywords& k) {
  Object dict = Object::of(Type::Dict, {});
  if (!a.empty() && a[0].is(Type::Dict)) {
    for (size_t i = 0; i < a[0].items().size(); ++i) set_item(dict, a[0].items()[i], a[0].heap->values[i]);
  } else if (!a.empty()) {
    for (const Object& pair : iterate(a[0])) set_item(dict, pair.items()[0], pair.items()[1]);
  }
  for (const auto& [name, value] : k) set_item(dict, Object(name), value);
  return dict;
}

const std::map<std::string, Function>& classes() {
  static const std::map<std::string, Function> table = {
      {"int", make_int},
      {"float", make_float},
      {"bool", [](const Objects& a, const Keywords&) { return Object(!a.empty() && truth(a[0])); }},
      {"str", [](const Objects& a, const Keywords&) { return Object(show(a[0], false)); }},
      {"list",
       [](const Objects& a, const Keywords&) { return Object::list(a.empty() ? Objects() : iterate(a[0])); }},
      {"tuple", [](const Objects& a,
                   const Keywords&) { return Object::tuple(a.empty() ? Objects() : iterate(a[0])); }},
      {"Size", [](const Objects& a,
                  const Keywords&) { return Object::tuple(a.empty() ? Objects() : iterate(a[0])); }},
      {"set", make_set},
      {"frozenset", make_set},
      {"dict", make_dict},
      {"complex",
       [](const Objects& a, const Keywords&) {
         return from_scalar(
             Scalar(complex128(a[0].to_double(), a.size() > 1 ? a[1].to_double() : a[0].imaginary)));
       }},
      {"no_grad", [](const Objects&, const Keywords&) { return Object::class_named("no_grad"); }},
      {"enable_grad", [](const Objects&, const Keywords&) { return Object::class_named("enable_grad"); }},
      {"device",
       [](const Objects& a, const Keywords&) {
         return a[0].is(Type::Device) ? a[0] : Object(parse_device(a[0].text()));
       }},
  };
  return table;
}

// ---------------------------------------------------------------- math and itertools

Object product(const Objects& a, const Keywords&) {
  Object total(1);
  for (const Object& o : iterate(a[0])) total = binary("Mult", total, o);
  return total;
}

Object pairwise(const Objects& a, const Keywords&) {
  const Objects items = iterate(a[0]);
  Objects pairs;
  for (size_t i = 0; i + 1 < items.size(); ++i) pairs.push_back(Object::tuple({items[i], items[i + 1]}));
  return Object::list(std::move(pairs));
}

Object accumulate(const Objects& a, const Keywords&) {
  Objects totals;
  for (const Object& o : iterate(a[0])) {
    Object next = o;
    if (!totals.empty())
      next = a.size() > 1 ? invoke(a[1], {totals.back(), o}) : binary("Add", totals.back(), o);
    totals.push_back(next);
  }
  return Object::list(std::move(totals));
}

Object chain(const Objects& a, const Keywords&) {
  Objects items;
  for (const Object& o : a) {
    const Objects more = iterate(o);
    items.insert(items.end(), more.begin(), more.end());
  }
  return Object::list(std::move(items));
}

template <double (*f)(double)>
Object of_float(const Objects& a, const Keywords&) {
  return Object(f(a[0].to_double()));
}

const std::map<std::string, Function>& mathematics() {
  static const std::map<std::string, Function> table = {
      {"prod", product},
      {"pairwise", pairwise},
      {"accumulate", accumulate},
      {"chain", chain},
      {"sqrt", of_float<std::sqrt>},
      {"exp", of_float<std::exp>},
      {"cos", of_float<std::cos>},
      {"sin", of_float<std::sin>},
      {"lgamma", of_float<std::lgamma>},
      {"log2", of_float<std::log2>},
      {"log",
       [](const Objects& a, const Keywords&) {
         return Object(std::log(a[0].to_double()) / (a.size() > 1 ? std::log(a[1].to_double()) : 1));
       }},
      {"floor", [](const Objects& a,
                   const Keywords&) { return Object(static_cast<int64_t>(std::floor(a[0].to_double()))); }},
      {"ceil", [](const Objects& a,
                  const Keywords&) { return Object(static_cast<int64_t>(std::ceil(a[0].to_double()))); }},
      {"isinf", [](const Objects& a, const Keywords&) { return Object(bool(std::isinf(a[0].to_double()))); }},
      {"isnan", [](const Objects& a, const Keywords&) { return Object(bool(std::isnan(a[0].to_double()))); }},
      {"isfinite",
       [](const Objects& a, const Keywords&) { return Object(bool(std::isfinite(a[0].to_double()))); }},
      {"copysign", [](const Objects& a,
                      const Keywords&) { return Object(std::copysign(a[0].to_double(), a[1].to_double())); }},
      {"gcd",
       [](const Objects& a, const Keywords&) { return Object(std::__gcd(a[0].integer, a[1].integer)); }},
  };
  return table;
}

// ---------------------------------------------------------------- the library

struct FloatLimits {
  double eps, max, tiny;
};
FloatLimits limits_of(DType t) {
  switch (real_of(t)) {
    case DType::Double:
      return {std::numeric_limits<double>::epsilon(), std::numeric_limits<double>::max(),
              std::numeric_limits<double>::min()};
    case DType::Half:
      return {0.0009765625, 65504, 6.103515625e-05};
    case DType::BFloat16:
      return {0.0078125, 3.3895313892515355e38, 1.1754943508222875e-38};
    default:
      return {std::numeric_limits<float>::epsilon(), std::numeric_limits<float>::max(),
              std::numeric_limits<float>::min()};
  }
}

Object float_info(const Objects& a, const Keywords&) {
  const FloatLimits limits = limits_of(a.empty() ? default_dtype() : a[0].dtype());
  Object limits_of_type = Object::tuple({Object(limits.eps), Object(limits.max), Object(-limits.max),
                                         Object(limits.tiny), Object(limits.tiny)});
  limits_of_type.heap->names = {"eps", "max", "min", "tiny", "smallest_normal"};
  return limits_of_type;
}

Object integer_info(const Objects& a, const Keywords&) {
  const DType t = a[0].dtype();
  const int64_t bits = size_of(t) * 8;
  const bool unsigned_type = is_unsigned(t);
  const int64_t most = bits == 64 ? std::numeric_limits<int64_t>::max()
                                  : (int64_t(1) << (unsigned_type ? bits : bits - 1)) - 1;
  Object limits_of_type =
      Object::tuple({Object(most), Object(unsigned_type ? int64_t(0) : -most - 1), Object(bits)});
  limits_of_type.heap->names = {"max", "min", "bits"};
  return limits_of_type;
}

Object broadcast_shapes(const Objects& a, const Keywords&) {
  std::vector<int64_t> shape;
  for (const Object& one : a) {
    const Objects sizes = one.is_sequence() ? one.items() : Objects{one};
    if (sizes.size() > shape.size()) shape.insert(shape.begin(), sizes.size() - shape.size(), 1);
    const size_t skipped = shape.size() - sizes.size();
    for (size_t d = 0; d < sizes.size(); ++d) {
      int64_t& size = shape[skipped + d];
      const int64_t other = sizes[d].integer;
      FL_CHECK(size == other || size == 1 || other == 1,
               "[broadcast_shapes] expected sizes that are equal or one, got ", size, " and ", other);
      if (size == 1) size = other;
    }
  }
  return Object::ints(IntSpan(shape));
}

// The dtype of a sum of tensors and numbers.
Object result_type(const Objects& a, const Keywords&) {
  Object total;
  for (const Object& o : a) {
    Object one = o;
    if (o.is(Type::Tensor)) {  // scalars promote within their category only
      const std::vector<int64_t> sizes(o.tensor.dim() ? 1 : 0, 1);
      one = Object(empty(IntSpan(sizes), {o.tensor.dtype(), Device{DeviceType::Meta}}));
    }
    if (one.is_number()) one = Object(wrapped_number(one.scalar()));
    if (one.is(Type::DType)) one = Object(empty(IntSpan({1}), {one.dtype(), Device{DeviceType::Meta}}));
    total = total.is_none() ? one : call("add", {total, one});
  }
  return Object(total.tensor.dtype());
}

Object make_tensor(const Objects& a, const Keywords& k) {
  return Object(as_tensor(a[0], a.size() > 1 ? a[1] : keyword(k, "dtype"), keyword(k, "device")));
}

Object first_argument(const Objects& a, const Keywords&) {
  return a.empty() ? Object() : a[0];
}

const std::map<std::string, Function>& library() {
  static const std::map<std::string, Function> table = {
      {"is_grad_enabled", [](const Objects&, const Keywords&) { return Object(thread_state().grad_mode); }},
      {"get_default_dtype", [](const Objects&, const Keywords&) { return Object(default_dtype()); }},
      {"finfo", float_info},
      {"iinfo", integer_info},
      {"broadcast_shapes", broadcast_shapes},
      {"result_type", result_type},
      {"_promote_operands", [](const Objects& a, const Keywords& k) { return result_type(a[0].items(), k); }},
      {"promote_types",
       [](const Objects& a, const Keywords&) { return Object(promote(a[0].dtype(), a[1].dtype())); }},
      {"tensor", make_tensor},
      {"as_tensor", make_tensor},
      {"is_tensor", [](const Objects& a, const Keywords&) { return Object(a[0].is(Type::Tensor)); }},
      {"is_floating_point",
       [](const Objects& a, const Keywords&) { return Object(is_floating(a[0].tensor.dtype())); }},
      {"is_complex",
       [](const Objects& a, const Keywords&) { return Object(is_complex(a[0].tensor.dtype())); }},
      {"numel", [](const Objects& a, const Keywords&) { return Object(a[0].tensor.numel()); }},
      {"sym_int", make_int},
      {"warn", [](const Objects&, const Keywords&) { return Object(); }},
      {"_alert_not_deterministic",
       [](const Objects& a, const Keywords&) {
         alert_not_deterministic(a[0].text().c_str());
         return Object();
       }},
      {"cast", [](const Objects& a, const Keywords&) { return a[1]; }},
      {"refuse_recording", first_argument},
  };
  return table;
}

bool find_constant(const std::string& name, Object& value) {
  for (int t = 0; t < kAllDTypes; ++t)
    if (name == name_of(static_cast<DType>(t))) return value = Object(static_cast<DType>(t)), true;
  static const std::map<std::string, Object> constants = {
      {"inf", Object(std::numeric_limits<double>::infinity())},
      {"nan", Object(std::numeric_limits<double>::quiet_NaN())},
      {"pi", Object(3.141592653589793)},
      {"e", Object(2.718281828459045)},
      {"long", Object(DType::Int64)},
      {"float", Object(DType::Float)},
      {"double", Object(DType::Double)},
      {"int", Object(DType::Int32)},
      {"half", Object(DType::Half)},
      {"strided", Object::enumerator(Type::Layout, 0)},
      {"sparse_coo", Object::enumerator(Type::Layout, 1)},
      {"sparse_csr", Object::enumerator(Type::Layout, 2)},
      {"sparse_csc", Object::enumerator(Type::Layout, 3)},
      {"contiguous_format", Object::enumerator(Type::MemoryFormat, 0)},
      {"preserve_format", Object::enumerator(Type::MemoryFormat, 1)},
      {"channels_last", Object::enumerator(Type::MemoryFormat, 2)},
      {"channels_last_3d", Object::enumerator(Type::MemoryFormat, 3)},
  };
  const auto entry = constants.find(name);
  if (entry == constants.end()) return false;
  return value = entry->second, true;
}

bool find_in(const std::map<std::string, Function>& table, const std::string& name, Object& value) {
  const auto entry = table.find(name);
  if (entry == table.end()) return false;
  return value = Object::native(entry->second), true;
}

Object of_packet(const Packet* packet) {
  return Object::native([packet](const Objects& a, const Keywords& k) { return call(*packet, a, k); });
}

// ---------------------------------------------------------------- attributes of other values

using Method = Object (*)(const Object& self, const Objects& a);

Object append(const Object& self, const Objects& a) {
  self.heap->items.push_back(a[0]);
  return {};
}
Object extend(const Object& self, const Objects& a) {
  const Objects more = iterate(a[0]);
  self.heap->items.insert(self.heap->items.end(), more.begin(), more.end());
  return {};
}
Object insert(const Object& self, const Objects& a) {
  self.heap->items.insert(self.heap->items.begin() + a[0].integer, a[1]);
  return {};
}
Object pop(const Object& self, const Objects& a) {
  Objects& items = self.heap->items;
  FL_CHECK_KIND(!items.empty(), Index, "[definition] expected a list with items, got an empty one");
  const int64_t at = a.empty() ? -1 : a[0].integer;
  const auto place = items.begin() + (at < 0 ? at + static_cast<int64_t>(items.size()) : at);
  Object taken = *place;
  items.erase(place);
  return taken;
}
Object index_of(const Object& self, const Objects& a) {
  const Objects& items = self.items();
  for (size_t i = 0; i < items.size(); ++i)
    if (same(items[i], a[0])) return Object(i);
  fail(ErrorKind::Value, "[definition] expected ", show(a[0], true), " in a list, got none");
}
Object count_of(const Object& self, const Objects& a) {
  int64_t n = 0;
  for (const Object& o : iterate(self)) n += same(o, a[0]);
  return Object(n);
}
Object get(const Object& self, const Objects& a) {
  for (size_t i = 0; i < self.items().size(); ++i)
    if (same(self.items()[i], a[0])) return self.heap->values[i];
  return a.size() > 1 ? a[1] : Object();
}
Object set_default(const Object& self, const Objects& a) {
  Object container = self;
  if (!truth(compare("In", a[0], self))) set_item(container, a[0], a[1]);
  return item_of(self, a[0]);
}
Object pairs(const Object& self, const Objects&) {
  Objects rows;
  for (size_t i = 0; i < self.items().size(); ++i)
    rows.push_back(Object::tuple({self.items()[i], self.heap->values[i]}));
  return Object::list(std::move(rows));
}
Object join(const Object& self, const Objects& a) {
  std::string text;
  bool first = true;
  for (const Object& o : iterate(a[0])) {
    text += (first ? "" : self.text()) + show(o, false);
    first = false;
  }
  return Object(text);
}
Object split(const Object& self, const Objects& a) {
  Objects parts;
  std::string rest = self.text();
  const std::string mark = a.empty() ? " " : a[0].text();
  for (size_t at = rest.find(mark); at != std::string::npos; at = rest.find(mark)) {
    parts.emplace_back(rest.substr(0, at));
    rest.erase(0, at + mark.size());
  }
  parts.emplace_back(rest);
  return Object::list(std::move(parts));
}
Object replace(const Object& self, const Objects& a) {
  return join(a[1], {split(self, {a[0]})});
}
Object partition(const Object& self, const Objects& a) {
  const size_t at = self.text().find(a[0].text());
  if (at == std::string::npos) return Object::tuple({self, Object(""), Object("")});
  return Object::tuple(
      {Object(self.text().substr(0, at)), a[0], Object(self.text().substr(at + a[0].text().size()))});
}
Object format(const Object& self, const Objects& a) {
  std::string text = self.text();
  for (const Object& o : a) {
    const size_t at = text.find("{}");
    if (at != std::string::npos) text.replace(at, 2, show(o, false));
  }
  return Object(text);
}

Object add_to_set(const Object& self, const Objects& a) {
  if (!truth(compare("In", a[0], self))) self.heap->items.push_back(a[0]);
  return {};
}
Object union_of(const Object& self, const Objects& a) {
  Object copy = Object::of(Type::Set, self.items());
  for (const Object& other : a)
    for (const Object& o : iterate(other)) add_to_set(copy, {o});
  return copy;
}

const std::map<std::string, Method>& methods() {
  static const std::map<std::string, Method> table = {
      {"append", append},
      {"extend", extend},
      {"insert", insert},
      {"pop", pop},
      {"index", index_of},
      {"count", count_of},
      {"get", get},
      {"setdefault", set_default},
      {"items", pairs},
      {"join", join},
      {"split", split},
      {"union", union_of},
      {"add", add_to_set},
      {"replace", replace},
      {"partition", partition},
      {"format", format},
      {"keys", [](const Object& self, const Objects&) { return Object::list(self.items()); }},
      {"values", [](const Object& self, const Objects&) { return Object::list(self.heap->values); }},
      {"copy", [](const Object& self, const Objects&) { return Object::of(self.type, self.items()); }},
      {"startswith",
       [](const Object& self, const Objects& a) { return Object(self.text().rfind(a[0].text(), 0) == 0); }},
      {"endswith",
       [](const Object& self, const Objects& a) {
         const std::string &text = self.text(), &end = a[0].text();
         return Object(text.size() >= end.size() &&
                       text.compare(text.size() - end.size(), end.size(), end) == 0);
       }},
      {"remove",
       [](const Object& self, const Objects& a) {
         self.heap->items.erase(self.heap->items.begin() + index_of(self, a).integer);
         return Object();
       }},
      {"isalpha",
       [](const Object& self, const Objects&) {
         return Object(std::isalpha(static_cast<unsigned char>(self.text()[0])) != 0);
       }},
      {"conjugate",
       [](const Object& self, const Objects&) {
         return self.is(Type::Complex) ? from_scalar(Scalar(complex128(self.number, -self.imaginary))) : self;
       }},
  };
  return table;
}

Object attribute_of_dtype(DType t, const std::string& name) {
  if (name == "is_floating_point") return Object(is_floating(t));
  if (name == "is_complex") return Object(is_complex(t));
  if (name == "itemsize") return Object(size_of(t));
  if (name == "is_signed") return Object(!is_unsigned(t));
  if (name == "to_real")
    return Object::native([t](const Objects&, const Keywords&) { return Object(real_of(t)); });
  if (name == "to_complex")
    return Object::native([t](const Objects&, const Keywords&) { return Object(complex_of(t)); });
  fail(ErrorKind::NotImplemented, "[definition] expected an attribute of dtypes, got ", name);
}

}  // namespace

Object attribute(const Object& o, const std::string& name) {
  if (o.is(Type::Tensor)) return tensor_attribute(o.tensor, name);
  if (o.is(Type::Class) && o.text().rfind(kModule, 0) == 0)
    return find_global(o.text().substr(kModule.size()), name);
  if (o.is(Type::Instance)) return instance_attribute(o, name);
  if (o.is(Type::DType)) return attribute_of_dtype(o.dtype(), name);
  if (o.is(Type::Device)) {
    if (name == "type") return Object(device_type_name(o.device().type));
    if (name == "index") return o.device().index < 0 ? Object() : Object(int64_t(o.device().index));
  }
  if (o.is_number() && name == "real") return Object(o.to_double());
  if (o.is_number() && name == "imag") return Object(o.imaginary);
  if (o.is(Type::Tuple))
    for (size_t i = 0; i < o.heap->names.size(); ++i)
      if (o.heap->names[i] == name) return o.items()[i];
  const auto entry = methods().find(name);
  FL_CHECK_KIND(entry != methods().end() && o.heap, NotImplemented, "[definition] expected an attribute of ",
                type_name(o), ", got ", name);
  return Object::native(
      [o, method = entry->second](const Objects& a, const Keywords&) { return method(o, a); });
}

Object find_global(const std::string& module, const std::string& name) {
  Object value;
  if (name.empty()) return Object::class_named(kModule + module);
  if (module == "classes") {
    FL_CHECK_KIND(find_in(classes(), name, value), NotImplemented,
                  "[definition] expected a class that can be made, got ", name);
    return value;
  }
  if (module == "builtins") {
    if (find_in(builtins(), name, value)) return value;
    return Object::class_named(name);
  }
  if (module == "math" || module == "itertools") {
    if (find_in(mathematics(), name, value) || find_constant(name, value)) return value;
  }
  if (module == "flambeau.ops.recording" && name == "_State") {  // nobody records here
    Object state = Object::tuple({Object(0), Object(), Object()});
    state.heap->names = {"depth", "derive", "device"};
    return Object::native([state](const Objects&, const Keywords&) { return state; });
  }
  if (module == "collections" || module == "typing")
    return Object::class_named(name.substr(name.rfind('.') + 1));
  if (module == "flambeau._ops" || module == "flambeau.ops") {
    const size_t dot = name.find('.');  // flambeau.ops.NAMESPACE.NAME
    const std::string space = dot == std::string::npos ? "aten" : name.substr(0, dot);
    const std::string own = dot == std::string::npos ? name : name.substr(dot + 1);
    if (const Packet* packet = find_operator(space == "aten" ? own : space + "::" + own))
      return of_packet(packet);
  }
  if (module == "flambeau" || module == "flambeau._C" || module == "flambeau.types") {
    const bool converts = name == "int" || name == "float" || name == "bool" || name == "complex";
    if (classes().count(name) && !converts) return Object::class_named(name);
    if (name == "Tensor" || name == "dtype" || name == "layout" || name == "Generator" || name == "device")
      return Object::class_named(name);
    if (find_in(library(), name, value) || find_constant(name, value)) return value;
  }
  const std::string path = module == "flambeau"                ? name
                           : module.rfind("flambeau.", 0) == 0 ? module.substr(9) + "." + name
                                                               : module + "." + name;
  if (const Packet* packet = find_function(path)) return of_packet(packet);
  const size_t last = name.rfind('.');
  if (const Packet* packet = find_operator(last == std::string::npos ? name : name.substr(last + 1));
      packet && module == "flambeau")
    return of_packet(packet);
  if (find_in(library(), name.substr(last == std::string::npos ? 0 : last + 1), value)) return value;
  fail(ErrorKind::NotImplemented, "[definition] expected something that is there without Python, got ",
       module, ".", name);
}

}  // namespace fl::definitions

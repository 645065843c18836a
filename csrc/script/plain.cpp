// Operators of TorchScript on numbers, strings, lists and dicts, and those that look at a tensor without
// computing. Arguments come from files, so every row checks what it takes.
#include <algorithm>
#include <cmath>
#include <map>

#include "autograd/node.h"
#include "definitions/operations.h"
#include "runtime/dlpack.h"
#include "script/program.h"

namespace fl::script {
namespace {

// ---------------------------------------------------------------- arguments

[[noreturn]] void refuse(const char* expected, const Objects& a, size_t i) {
  fail(ErrorKind::Type, "[jit] expected ", expected, " as argument ", i, " of an operator, got ",
       i < a.size() ? type_name(a[i]) : "none");
}
const Object& any(const Objects& a, size_t i) {
  if (i >= a.size()) refuse("a value", a, i);
  return a[i];
}
const Object& number(const Objects& a, size_t i) {
  if (i >= a.size() || !a[i].is_number()) refuse("a number", a, i);
  return a[i];
}
int64_t integer(const Objects& a, size_t i) {
  if (i >= a.size() || !a[i].is_integer()) refuse("an integer", a, i);
  return a[i].integer;
}
int64_t integer(const Objects& a, size_t i, int64_t fallback) {
  return i < a.size() && !a[i].is_none() ? integer(a, i) : fallback;
}
double real(const Objects& a, size_t i) {
  return number(a, i).to_double();
}
const std::string& text(const Objects& a, size_t i) {
  if (i >= a.size() || !a[i].is(Type::String)) refuse("a string", a, i);
  return a[i].text();
}
std::string text(const Objects& a, size_t i, const char* fallback) {
  return i < a.size() && !a[i].is_none() ? text(a, i) : std::string(fallback);
}
Objects& list(const Objects& a, size_t i) {
  if (i >= a.size() || !a[i].is(Type::List)) refuse("a list", a, i);
  return a[i].heap->items;
}
const Object& dict(const Objects& a, size_t i) {
  if (i >= a.size() || !a[i].is(Type::Dict)) refuse("a dict", a, i);
  return a[i];
}
const Tensor& tensor(const Objects& a, size_t i) {
  if (i >= a.size() || !a[i].is(Type::Tensor)) refuse("a tensor", a, i);
  return a[i].tensor;
}

size_t position(int64_t index, size_t count) {
  const int64_t at = index < 0 ? index + static_cast<int64_t>(count) : index;
  FL_CHECK_KIND(at >= 0 && at < static_cast<int64_t>(count), Index, "list index out of range");
  return static_cast<size_t>(at);
}

bool equal(const Object& a, const Object& b) {
  if (a.is(Type::Tensor) && b.is(Type::Tensor) && !a.tensor.same(b.tensor))
    return definitions::truth(definitions::call("equal", {a, b}));
  if (const auto* member = as<Member>(a)) {
    const auto* other = as<Member>(b);
    return other && &member->type == &other->type && member->name == other->name;
  }
  return same(a, b);
}

// ---------------------------------------------------------------- numbers

bool computes(const Object& x, const Object& y) {
  if (x.is_number() && y.is_number()) return true;
  return (x.is(Type::String) || x.is(Type::List)) && (y.type == x.type);
}

template <const char* name>
Object arithmetic(const Objects& a) {
  const Object &x = any(a, 0), &y = any(a, 1);
  if (!computes(x, y)) refuse("numbers, strings or lists of one kind", a, 1);
  return definitions::binary(name, x, y);
}
template <const char* name>
Object comparison(const Objects& a) {
  const Object &x = any(a, 0), &y = any(a, 1);
  if (!computes(x, y) && !(x.is(Type::Tuple) && y.is(Type::Tuple)))
    refuse("numbers, strings or lists of one kind", a, 1);
  return definitions::compare(name, x, y);
}
constexpr char kAdd[] = "Add", kSub[] = "Sub", kDiv[] = "Div", kFloorDiv[] = "FloorDiv", kMod[] = "Mod",
               kAnd[] = "BitAnd", kOr[] = "BitOr", kXor[] = "BitXor", kLt[] = "Lt", kLe[] = "LtE",
               kGt[] = "Gt", kGe[] = "GtE";

Object multiply(const Objects& a) {
  const Object &x = any(a, 0), &y = any(a, 1);
  const bool repeats = (x.is(Type::List) || x.is(Type::String)) && y.is_integer();
  if (!repeats && !(x.is_number() && y.is_number())) refuse("a number", a, 1);
  const size_t length = !repeats ? 0 : x.is(Type::List) ? x.items().size() : x.text().size();
  FL_CHECK(!repeats || y.integer <= 0 || length * static_cast<uint64_t>(y.integer) < (uint64_t(1) << 32),
           "[jit] expected a list that fits into memory, got ", y.integer, " copies");
  return definitions::binary("Mult", x, y);
}

Object power(const Objects& a) {
  const Object &x = number(a, 0), &y = number(a, 1);
  if (x.is(Type::Complex) || y.is(Type::Complex)) return definitions::binary("Pow", x, y);
  return Object(std::pow(x.to_double(), y.to_double()));
}

Object negative(const Objects& a) {
  const Object& x = number(a, 0);
  if (x.is_integer()) return Object(static_cast<int64_t>(-static_cast<uint64_t>(x.integer)));
  return definitions::binary("Sub", Object(0), x);
}

Object shift(const Objects& a, bool left) {
  const int64_t x = integer(a, 0), by = integer(a, 1);
  FL_CHECK(by >= 0 && by < 64, "[jit] expected to shift by 0 to 63 bits, got ", by);
  return Object(left ? static_cast<int64_t>(static_cast<uint64_t>(x) << by) : x >> by);
}

Object bitwise_not(const Objects& a) {
  return number(a, 0).is(Type::Bool) ? Object(a[0].integer == 0) : Object(~integer(a, 0));
}

Object absolute(const Objects& a) {
  const Object& x = number(a, 0);
  if (x.is(Type::Complex)) return Object(std::hypot(x.number, x.imaginary));
  return x.is(Type::Float) ? Object(std::abs(x.number)) : Object(x.integer < 0 ? -x.integer : x.integer);
}

template <double (*f)(double)>
Object of_float(const Objects& a) {
  return Object(f(real(a, 0)));
}
template <double (*f)(double, double)>
Object of_floats(const Objects& a) {
  return Object(f(real(a, 0), real(a, 1)));
}
template <double (*f)(double)>
Object rounded(const Objects& a) {
  if (number(a, 0).is_integer()) return a[0];
  return Object(static_cast<int64_t>(f(real(a, 0))));
}

Object extreme(const Objects& a, bool largest) {
  Objects all = a.size() == 1 ? list(a, 0) : a;
  FL_CHECK(!all.empty(), "[jit] expected values to compare, got none");
  Object best = all[0];
  for (size_t i = 0; i < all.size(); ++i) {
    const Objects pair{all[i], best};
    if (definitions::truth(largest ? comparison<kGt>(pair) : comparison<kLt>(pair))) best = all[i];
  }
  return best;
}

Object range_length(const Objects& a) {
  const int64_t low = integer(a, 0), high = integer(a, 1), step = integer(a, 2);
  FL_CHECK(step != 0, "range() arg 3 must not be zero");
  if (step > 0) return Object(low < high ? 1 + (high - 1 - low) / step : int64_t(0));
  return Object(low > high ? 1 + (low - 1 - high) / -step : int64_t(0));
}

Object range_list(const Objects& a) {
  const int64_t count = integer(a, 0);
  FL_CHECK(count < (int64_t(1) << 28), "[jit] expected a list that fits into memory, got ", count,
           " elements");
  Objects items;
  for (int64_t i = 0; i < count; ++i) items.emplace_back(i);
  return Object::list(std::move(items));
}

// ---------------------------------------------------------------- conversions

Object to_int(const Objects& a) {
  const Object& x = any(a, 0);
  if (x.is(Type::Tensor)) return to_int({definitions::from_scalar(item(tensor(a, 0)))});
  if (x.is(Type::String)) return Object(static_cast<int64_t>(std::strtoll(x.text().c_str(), nullptr, 10)));
  return number(a, 0).is(Type::Float) ? Object(static_cast<int64_t>(x.number)) : Object(x.integer);
}
Object to_float(const Objects& a) {
  const Object& x = any(a, 0);
  if (x.is(Type::Tensor)) return Object(item(x.tensor).to<double>());
  if (x.is(Type::String)) return Object(std::strtod(x.text().c_str(), nullptr));
  return Object(real(a, 0));
}
Object to_bool(const Objects& a) {
  const Object& x = any(a, 0);
  if (!x.is_number() && !x.is(Type::Tensor)) refuse("a number or tensor", a, 0);
  return Object(definitions::truth(x));
}
Object to_complex(const Objects& a) {
  const Object first =
      any(a, 0).is(Type::Tensor) ? definitions::from_scalar(item(a[0].tensor)) : number(a, 0);
  const double imaginary = a.size() > 1 ? real(a, 1) : first.imaginary;
  return definitions::from_scalar(Scalar(complex128(first.to_double(), imaginary)));
}
Object element(const Objects& a) {
  const Tensor& t = tensor(a, 0);
  FL_CHECK(t.numel() == 1, "[item] expected a tensor with one element, got the shape ", t.sizes());
  return definitions::from_scalar(item(t));
}

void check_numbers(const Object& data, int depth) {
  FL_CHECK(depth < 32, "[tensor] expected lists at most 32 deep");
  if (!data.is_sequence()) {
    FL_CHECK_KIND(data.is_number() || data.is(Type::Tensor), Type, "[tensor] expected numbers, got ",
                  type_name(data));
    return;
  }
  for (const Object& part : data.items()) check_numbers(part, depth + 1);
}

Object dtype_object(const Objects& a, size_t i) {
  if (i >= a.size() || a[i].is_none()) return {};
  if (a[i].is(Type::DType)) return a[i];
  return Object(runtime::dtype_of(static_cast<fl_dtype>(integer(a, i))));
}

Object make_tensor(const Objects& a) {
  check_numbers(any(a, 0), 0);
  const Object device = a.size() > 2 && a[2].is(Type::Device) ? a[2] : Object();
  const Object data = a[0].is(Type::Tensor) ? Object(autograd::detach(a[0].tensor)) : a[0];
  Object made(definitions::as_tensor(data, dtype_object(a, 1), device));
  if (a.size() > 3 && a[3].is(Type::Bool) && a[3].integer) autograd::set_requires_grad(made.tensor, true);
  return made;
}

// `to` in its forms: a dtype, a device, both, or another tensor; by position as archives write it.
Object convert(const Objects& a) {
  tensor(a, 0);
  Object dtype, device;
  bool copy = false;
  size_t flags = 0;
  for (size_t i = 1; i < a.size(); ++i) {
    if (a[i].is(Type::Tensor)) {
      dtype = Object(a[i].tensor.dtype());
      device = Object(a[i].tensor.device());
    } else if (a[i].is(Type::Device)) {
      device = a[i];
    } else if (a[i].is(Type::Bool)) {
      copy |= flags++ == 1 && a[i].integer != 0;
    } else if ((a[i].is(Type::Int) || a[i].is(Type::DType)) && dtype.is_none() && flags == 0) {
      dtype = dtype_object(a, i);
    }
  }
  Keywords options{{"copy", Object(copy)}};
  if (!dtype.is_none()) options.emplace_back("dtype", dtype);
  if (!device.is_none()) options.emplace_back("device", device);
  return definitions::call(*definitions::find_method("to"), {a[0]}, options);
}

// ---------------------------------------------------------------- text

std::string shown(const Object& o, bool quoted) {
  const auto join = [](const Objects& items, const char* open, const char* close) {
    std::string all = open;
    for (size_t i = 0; i < items.size(); ++i) all += (i ? ", " : "") + shown(items[i], true);
    return all + close;
  };
  if (o.is(Type::List)) return join(o.items(), "[", "]");
  if (o.is(Type::Tuple)) return join(o.items(), "(", o.items().size() == 1 ? ",)" : ")");
  if (o.is(Type::Dict)) {
    std::string all = "{";
    for (size_t i = 0; i < o.items().size(); ++i)
      all += (i ? ", " : "") + shown(o.items()[i], true) + ": " + shown(o.heap->values[i], true);
    return all + "}";
  }
  if (const auto* member = as<Member>(o))
    return member->type.name.substr(member->type.name.rfind('.') + 1) + "." + member->name;
  return definitions::show(o, quoted);
}

Object format(const Objects& a) {
  const std::string& pattern = text(a, 0);
  std::string all;
  size_t next = 1, from = 0;
  for (size_t at = pattern.find("{}"); at != std::string::npos; at = pattern.find("{}", from)) {
    FL_CHECK(next < a.size(), "Too few arguments for format string: ", pattern);
    all += pattern.substr(from, at - from) + shown(a[next++], false);
    from = at + 2;
  }
  return Object(all + pattern.substr(from));
}

Object percent_format(const Objects& a) {
  const std::string& pattern = text(a, 0);
  Objects values(a.begin() + 1, a.end());
  if (values.size() == 1 && values[0].is(Type::Tuple)) values = Objects(values[0].items());
  std::string all;
  size_t next = 0;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%' || i + 1 == pattern.size()) {
      all += pattern[i];
      continue;
    }
    const char kind = pattern[++i];
    if (kind == '%') {
      all += '%';
      continue;
    }
    FL_CHECK(next < values.size(), "Too few arguments for format string: ", pattern);
    const Object& one = values[next++];
    if (kind == 'd' || kind == 'i')
      all += shown(to_int({one}), false);
    else if (kind == 'f')
      all += std::to_string(real({one}, 0));
    else
      all += shown(one, kind == 'r');
  }
  return Object(all);
}

bool is_space(char c) {
  return std::isspace(static_cast<unsigned char>(c)) != 0;
}

Object strip(const Objects& a, bool left, bool right) {
  const std::string &s = text(a, 0), marks = text(a, 1, " \t\n\r\f\v");
  const size_t first = left ? s.find_first_not_of(marks) : 0,
               last = right ? s.find_last_not_of(marks) : s.size() - 1;
  if (s.empty() || first == std::string::npos || last == std::string::npos) return Object("");
  return Object(s.substr(first, last - first + 1));
}

Object split(const Objects& a) {
  const std::string& s = text(a, 0);
  const bool by_space = a.size() < 2 || a[1].is_none();
  int64_t most = integer(a, 2, -1);
  Objects parts;
  size_t from = 0;
  if (by_space) {
    for (size_t i = 0; i <= s.size(); ++i) {
      if (i < s.size() && !is_space(s[i])) continue;
      if (i > from) parts.emplace_back(s.substr(from, i - from));
      from = i + 1;
    }
    return Object::list(std::move(parts));
  }
  const std::string mark = text(a, 1);
  FL_CHECK_KIND(!mark.empty(), Value, "[split] expected a separator, got an empty string");
  for (size_t at = s.find(mark); at != std::string::npos && most-- != 0; at = s.find(mark, from)) {
    parts.emplace_back(s.substr(from, at - from));
    from = at + mark.size();
  }
  parts.emplace_back(s.substr(from));
  return Object::list(std::move(parts));
}

Object split_lines(const Objects& a) {
  const std::string& s = text(a, 0);
  Objects parts;
  size_t from = 0;
  for (size_t at = s.find('\n'); at != std::string::npos; at = s.find('\n', from)) {
    parts.emplace_back(s.substr(from, at - from + (a.size() > 1 && a[1].integer ? 1 : 0)));
    from = at + 1;
  }
  if (from < s.size()) parts.emplace_back(s.substr(from));
  return Object::list(std::move(parts));
}

Object join(const Objects& a) {
  const std::string& mark = text(a, 0);
  std::string all;
  const Objects& parts = list(a, 1);
  for (size_t i = 0; i < parts.size(); ++i) all += (i ? mark : std::string()) + text(parts, i);
  return Object(all);
}

Object replace(const Objects& a) {
  std::string s = text(a, 0);
  const std::string &from = text(a, 1), &to = text(a, 2);
  int64_t most = integer(a, 3, -1);
  if (from.empty()) return Object(s);
  for (size_t at = s.find(from); at != std::string::npos && most-- != 0; at = s.find(from, at + to.size()))
    s.replace(at, from.size(), to);
  return Object(s);
}

// The part between `start` and `end` that searches look at.
std::string part_of(const Objects& a, int64_t& start) {
  const std::string& s = text(a, 0);
  const auto n = static_cast<int64_t>(s.size());
  start = std::clamp<int64_t>(integer(a, 2, 0), 0, n);
  const int64_t end = integer(a, 3, -1);
  return s.substr(static_cast<size_t>(start),
                  static_cast<size_t>(std::clamp(end < 0 ? n : end, start, n) - start));
}

Object starts_with(const Objects& a) {
  int64_t start = 0;
  return Object(part_of(a, start).rfind(text(a, 1), 0) == 0);
}
Object ends_with(const Objects& a) {
  int64_t start = 0;
  const std::string s = part_of(a, start), &end = text(a, 1);
  return Object(s.size() >= end.size() && s.compare(s.size() - end.size(), end.size(), end) == 0);
}
Object find_text(const Objects& a, bool last, bool required) {
  int64_t start = 0;
  const std::string s = part_of(a, start);
  const size_t at = last ? s.rfind(text(a, 1)) : s.find(text(a, 1));
  FL_CHECK_KIND(at != std::string::npos || !required, Value, "substring not found");
  return Object(at == std::string::npos ? int64_t(-1) : start + static_cast<int64_t>(at));
}
Object partition(const Objects& a, bool last) {
  const std::string &s = text(a, 0), &mark = text(a, 1);
  const size_t at = last ? s.rfind(mark) : s.find(mark);
  if (at == std::string::npos)
    return last ? Object::tuple({Object(""), Object(""), a[0]})
                : Object::tuple({a[0], Object(""), Object("")});
  return Object::tuple({Object(s.substr(0, at)), a[1], Object(s.substr(at + mark.size()))});
}

template <int (*f)(int)>
Object each_letter(const Objects& a) {
  std::string s = text(a, 0);
  for (char& c : s) c = static_cast<char>(f(static_cast<unsigned char>(c)));
  return Object(s);
}
template <int (*f)(int)>
Object all_letters(const Objects& a) {
  const std::string& s = text(a, 0);
  return Object(!s.empty() && std::all_of(s.begin(), s.end(), [](unsigned char c) { return f(c) != 0; }));
}
Object capitalize(const Objects& a) {
  std::string s = each_letter<std::tolower>(a).text();
  if (!s.empty()) s[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(s[0])));
  return Object(s);
}
Object pad_text(const Objects& a, int side) {
  const std::string &s = text(a, 0), fill = text(a, 2, " ");
  const int64_t width = integer(a, 1), missing = width - static_cast<int64_t>(s.size());
  FL_CHECK(width < (1 << 24) && !fill.empty(), "[jit] expected a width that fits into memory, got ", width);
  if (missing <= 0) return Object(s);
  const auto left = static_cast<size_t>(side < 0 ? 0 : side > 0 ? missing : missing / 2);
  return Object(std::string(left, fill[0]) + s + std::string(static_cast<size_t>(missing) - left, fill[0]));
}

// ---------------------------------------------------------------- lists and dicts

Object length(const Objects& a) {
  const Object& o = any(a, 0);
  if (o.is(Type::Tensor)) {
    FL_CHECK_KIND(o.tensor.dim() > 0, Type, "len() of a 0-d tensor");
    return Object(o.tensor.size(0));
  }
  if (o.is(Type::String)) return Object(o.text().size());
  if (!o.is_sequence() && !o.is(Type::Dict)) refuse("a list, dict, string or tensor", a, 0);
  return Object(o.items().size());
}

size_t key_position(const Object& d, const Object& key) {
  for (size_t i = 0; i < d.items().size(); ++i)
    if (equal(d.items()[i], key)) return i;
  return d.items().size();
}
[[noreturn]] void no_key(const Object& key) {
  fail("KeyError: ", shown(key, true));
}

Object get_item(const Objects& a) {
  const Object& o = any(a, 0);
  if (o.is(Type::Dict)) {
    const size_t at = key_position(o, any(a, 1));
    if (at == o.items().size()) no_key(a[1]);
    return o.heap->values[at];
  }
  if (o.is(Type::String)) return Object(std::string(1, o.text()[position(integer(a, 1), o.text().size())]));
  if (!o.is_sequence()) refuse("a list, dict or string", a, 0);
  return o.items()[position(integer(a, 1), o.items().size())];
}

Object set_item(const Objects& a) {
  Object container = any(a, 0);
  if (container.is(Type::Dict)) {
    definitions::set_item(container, any(a, 1), any(a, 2));
    return container;
  }
  list(a, 0)[position(integer(a, 1), list(a, 0).size())] = any(a, 2);
  return container;
}

void erase(const Object& d, size_t at) {
  d.heap->items.erase(d.heap->items.begin() + static_cast<ptrdiff_t>(at));
  d.heap->values.erase(d.heap->values.begin() + static_cast<ptrdiff_t>(at));
}

Object delete_item(const Objects& a) {
  if (any(a, 0).is(Type::Dict)) {
    const size_t at = key_position(a[0], any(a, 1));
    if (at == a[0].items().size()) no_key(a[1]);
    erase(a[0], at);
    return {};
  }
  Objects& items = list(a, 0);
  items.erase(items.begin() + static_cast<ptrdiff_t>(position(integer(a, 1), items.size())));
  return {};
}

Object slice(const Objects& a) {
  const Object& o = any(a, 0);
  const int64_t step = integer(a, 3, 1);
  FL_CHECK(step != 0, "slice step cannot be zero");
  const auto n = static_cast<int64_t>(o.is(Type::String) ? o.text().size() : length(a).integer);
  const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
  const auto end = [&](size_t i, int64_t fallback) {
    int64_t at = integer(a, i, fallback);
    if (i < a.size() && !a[i].is_none() && at < 0) at += n;
    return std::clamp(at, low, high);
  };
  const int64_t first = end(1, step > 0 ? 0 : n - 1),
                last = (a.size() < 3 || a[2].is_none()) ? (step > 0 ? n : -1) : end(2, 0);
  Objects items;
  std::string letters;
  for (int64_t i = first; step > 0 ? i < last : i > last; i += step) {
    if (o.is(Type::String))
      letters += o.text()[static_cast<size_t>(i)];
    else
      items.push_back(o.items()[static_cast<size_t>(i)]);
  }
  return o.is(Type::String) ? Object(letters) : Object::of(o.type, std::move(items));
}

Object append(const Objects& a) {
  list(a, 0).push_back(any(a, 1));
  return a[0];
}
Object extend(const Objects& a) {
  const Objects more = list(a, 1);
  Objects& items = list(a, 0);
  items.insert(items.end(), more.begin(), more.end());
  return {};
}
Object insert(const Objects& a) {
  Objects& items = list(a, 0);
  const auto n = static_cast<int64_t>(items.size());
  int64_t at = integer(a, 1);
  at = std::clamp<int64_t>(at < 0 ? at + n : at, 0, n);
  items.insert(items.begin() + at, any(a, 2));
  return {};
}
Object pop(const Objects& a) {
  if (any(a, 0).is(Type::Dict)) {
    const size_t at = key_position(a[0], any(a, 1));
    if (at == a[0].items().size()) {
      if (a.size() > 2) return a[2];
      no_key(a[1]);
    }
    Object taken = a[0].heap->values[at];
    erase(a[0], at);
    return taken;
  }
  Objects& items = list(a, 0);
  FL_CHECK_KIND(!items.empty(), Index, "pop from empty list");
  const size_t at = position(integer(a, 1, -1), items.size());
  Object taken = items[at];
  items.erase(items.begin() + static_cast<ptrdiff_t>(at));
  return taken;
}
Object remove(const Objects& a) {
  Objects& items = list(a, 0);
  for (size_t i = 0; i < items.size(); ++i)
    if (equal(items[i], any(a, 1))) {
      items.erase(items.begin() + static_cast<ptrdiff_t>(i));
      return {};
    }
  fail("list.remove(x): x not in list");
}
Object count(const Objects& a) {
  if (any(a, 0).is(Type::String)) {
    int64_t n = 0;
    const std::string &s = text(a, 0), &part = text(a, 1);
    if (part.empty()) return Object(s.size() + 1);
    for (size_t at = s.find(part); at != std::string::npos; at = s.find(part, at + part.size())) ++n;
    return Object(n);
  }
  int64_t n = 0;
  for (const Object& o : list(a, 0)) n += equal(o, any(a, 1));
  return Object(n);
}
Object index(const Objects& a) {
  if (any(a, 0).is(Type::String)) return find_text(a, false, true);
  const Objects& items = list(a, 0);
  for (size_t i = 0; i < items.size(); ++i)
    if (equal(items[i], any(a, 1))) return Object(i);
  fail("'", shown(any(a, 1), false), "' is not in list");
}
Object contains(const Objects& a) {
  const Object& o = any(a, 0);
  if (o.is(Type::String)) return Object(o.text().find(text(a, 1)) != std::string::npos);
  if (!o.is_sequence() && !o.is(Type::Dict)) refuse("a list, dict or string", a, 0);
  const Objects& items = o.items();
  return Object(
      std::any_of(items.begin(), items.end(), [&](const Object& x) { return equal(x, any(a, 1)); }));
}
Object sort(const Objects& a) {
  Objects& items = list(a, 0);
  for (const Object& o : items)
    if (!o.is_number() && !o.is(Type::String) && !as<Instance>(o)) refuse("values with an order", a, 0);
  const auto less = [](const Object& x, const Object& y) {
    if (as<Instance>(x)) return definitions::truth(call_method(x, "__lt__", {y}));
    return definitions::truth(comparison<kLt>({x, y}));
  };
  std::stable_sort(items.begin(), items.end(), less);
  if (a.size() > 1 && a[1].is(Type::Bool) && a[1].integer) std::reverse(items.begin(), items.end());
  return {};
}
Object sorted(const Objects& a) {
  const Object copy = Object::list(list(a, 0));
  sort({copy});
  return copy;
}
Object to_list(const Objects& a) {
  const Object& o = any(a, 0);
  if (!o.is_sequence() && !o.is(Type::String) && !o.is(Type::Dict)) refuse("a list or string", a, 0);
  return Object::list(definitions::iterate(o));
}
Object sum(const Objects& a) {
  Object total(0);
  for (const Object& o : list(a, 0)) total = arithmetic<kAdd>({total, o});
  return total;
}
Object any_true(const Objects& a) {
  const Objects& items = list(a, 0);
  return Object(
      std::any_of(items.begin(), items.end(), [](const Object& o) { return definitions::truth(o); }));
}
Object all_true(const Objects& a) {
  const Objects& items = list(a, 0);
  return Object(
      std::all_of(items.begin(), items.end(), [](const Object& o) { return definitions::truth(o); }));
}

Object copy(const Objects& a) {
  const Object& o = any(a, 0);
  if (!o.is(Type::List) && !o.is(Type::Dict)) refuse("a list or dict", a, 0);
  Object made = Object::of(o.type, o.items());
  made.heap->values = o.heap->values;
  return made;
}
Object items(const Objects& a) {
  const Object& d = dict(a, 0);
  Objects rows;
  for (size_t i = 0; i < d.items().size(); ++i)
    rows.push_back(Object::tuple({d.items()[i], d.heap->values[i]}));
  return Object::list(std::move(rows));
}
Object get(const Objects& a) {
  const size_t at = key_position(dict(a, 0), any(a, 1));
  if (at < a[0].items().size()) return a[0].heap->values[at];
  return a.size() > 2 ? a[2] : Object();
}
Object set_default(const Objects& a) {
  Object d = dict(a, 0);
  if (key_position(d, any(a, 1)) == d.items().size()) definitions::set_item(d, a[1], any(a, 2));
  return get(a);
}
Object update(const Objects& a) {
  Object d = dict(a, 0);
  const Object more = copy({dict(a, 1)});
  for (size_t i = 0; i < more.items().size(); ++i)
    definitions::set_item(d, more.items()[i], more.heap->values[i]);
  return {};
}
Object pop_item(const Objects& a) {
  const Object& d = dict(a, 0);
  FL_CHECK(!d.items().empty(), "popitem(): dictionary is empty");
  const Object pair = Object::tuple({d.items().back(), d.heap->values.back()});
  erase(d, d.items().size() - 1);
  return pair;
}
Object make_dict(const Objects& a) {
  Object made = Object::of(Type::Dict, {});
  if (a.empty()) return made;
  if (a[0].is(Type::Dict)) return copy(a);
  for (const Object& pair : list(a, 0)) {
    FL_CHECK(pair.is_sequence() && pair.items().size() == 2, "[dict] expected pairs, got ", type_name(pair));
    definitions::set_item(made, pair.items()[0], pair.items()[1]);
  }
  return made;
}
Object clear(const Objects& a) {
  const Object& o = any(a, 0);
  if (!o.is(Type::List) && !o.is(Type::Dict)) refuse("a list or dict", a, 0);
  o.heap->items.clear();
  o.heap->values.clear();
  return {};
}

// ---------------------------------------------------------------- identity, exceptions, tensors

bool is_same(const Object& a, const Object& b) {
  if (a.type != b.type) return false;
  if (a.is_none()) return true;
  if (a.is(Type::Tensor)) return a.tensor.impl() == b.tensor.impl();
  if (a.is(Type::Foreign)) return a.foreign.get() == b.foreign.get() || equal(a, b);
  return a.heap ? a.heap == b.heap : same(a, b);
}

Object raise(const Objects& a) {
  const std::string name = text(a, 1, "builtins.RuntimeError"), content = shown(any(a, 0), false);
  const ErrorKind kind = name == "builtins.ValueError"            ? ErrorKind::Value
                         : name == "builtins.TypeError"           ? ErrorKind::Type
                         : name == "builtins.IndexError"          ? ErrorKind::Index
                         : name == "builtins.NotImplementedError" ? ErrorKind::NotImplemented
                                                                  : ErrorKind::Runtime;
  throw Error(kind, content);
}

Object unwrap(const Objects& a) {
  FL_CHECK(!any(a, 0).is_none(), "AssertionError: Unwrapping null optional");
  return a[0];
}

Object sizes(const Objects& a, bool strides) {
  const Tensor& t = tensor(a, 0);
  const IntSpan all = strides ? IntSpan(t->strides) : t.sizes();
  if (a.size() > 1 && !a[1].is_none()) {
    const int64_t n = t.dim(), d = integer(a, 1), at = d < 0 ? d + n : d;
    FL_CHECK_KIND(at >= 0 && at < n, Index, "[size] expected a dimension of a tensor with ", n,
                  " of them, got ", d);
    return Object(all[static_cast<size_t>(at)]);
  }
  return Object::list(Objects(all.begin(), all.end()));
}

Object requires_grad_(const Objects& a) {
  autograd::set_requires_grad(tensor(a, 0), a.size() < 2 || definitions::truth(a[1]));
  return a[0];
}

Object set_grad(const Objects& a) {
  thread_state().grad_mode = integer(a, 0) != 0;
  return {};
}

Object device(const Objects& a) {
  const std::string index = a.size() > 1 ? ":" + std::to_string(integer(a, 1)) : "";
  return any(a, 0).is(Type::Device) ? a[0] : Object(parse_device(text(a, 0) + index));
}

}  // namespace

std::string to_text(const Object& o) {
  return shown(o, false);
}

namespace {

struct Row {
  Plain run;
  bool always = false;  // takes tensors as well
};

const std::map<std::string, Row>& number_rows() {
  static const std::map<std::string, Row> table = {
      {"add", {arithmetic<kAdd>}},
      {"sub", {arithmetic<kSub>}},
      {"mul", {multiply}},
      {"div", {arithmetic<kDiv>}},
      {"floordiv", {arithmetic<kFloorDiv>}},
      {"remainder", {arithmetic<kMod>}},
      {"pow", {power}},
      {"neg", {negative}},
      {"eq", {[](const Objects& a) { return Object(equal(any(a, 0), any(a, 1))); }}},
      {"ne", {[](const Objects& a) { return Object(!equal(any(a, 0), any(a, 1))); }}},
      {"lt", {comparison<kLt>}},
      {"le", {comparison<kLe>}},
      {"gt", {comparison<kGt>}},
      {"ge", {comparison<kGe>}},
      {"__not__", {[](const Objects& a) { return Object(!definitions::truth(any(a, 0))); }, true}},
      {"__and__", {arithmetic<kAnd>}},
      {"__or__", {arithmetic<kOr>}},
      {"__xor__", {arithmetic<kXor>}},
      {"__lshift__", {[](const Objects& a) { return shift(a, true); }}},
      {"__rshift__", {[](const Objects& a) { return shift(a, false); }}},
      {"bitwise_not", {bitwise_not}},
      {"__is__", {[](const Objects& a) { return Object(is_same(any(a, 0), any(a, 1))); }, true}},
      {"__isnot__", {[](const Objects& a) { return Object(!is_same(any(a, 0), any(a, 1))); }, true}},
      {"abs", {absolute}},
      {"max", {[](const Objects& a) { return extreme(a, true); }}},
      {"min", {[](const Objects& a) { return extreme(a, false); }}},
      {"ceil", {rounded<std::ceil>}},
      {"floor", {rounded<std::floor>}},
      {"trunc", {rounded<std::trunc>}},
      {"round", {of_float<std::nearbyint>}},
      {"sqrt", {of_float<std::sqrt>}},
      {"exp", {of_float<std::exp>}},
      {"log", {[](const Objects& a) {
         return Object(std::log(real(a, 0)) / (a.size() > 1 ? std::log(real(a, 1)) : 1));
       }}},
      {"log2", {of_float<std::log2>}},
      {"log10", {of_float<std::log10>}},
      {"log1p", {of_float<std::log1p>}},
      {"expm1", {of_float<std::expm1>}},
      {"sin", {of_float<std::sin>}},
      {"cos", {of_float<std::cos>}},
      {"tan", {of_float<std::tan>}},
      {"asin", {of_float<std::asin>}},
      {"acos", {of_float<std::acos>}},
      {"atan", {of_float<std::atan>}},
      {"sinh", {of_float<std::sinh>}},
      {"cosh", {of_float<std::cosh>}},
      {"tanh", {of_float<std::tanh>}},
      {"erf", {of_float<std::erf>}},
      {"gamma", {of_float<std::tgamma>}},
      {"lgamma", {of_float<std::lgamma>}},
      {"fabs", {of_float<std::fabs>}},
      {"atan2", {of_floats<std::atan2>}},
      {"fmod", {of_floats<std::fmod>}},
      {"copysign", {of_floats<std::copysign>}},
      {"isnan", {[](const Objects& a) { return Object(std::isnan(real(a, 0))); }}},
      {"isinf", {[](const Objects& a) { return Object(std::isinf(real(a, 0))); }}},
      {"isfinite", {[](const Objects& a) { return Object(std::isfinite(real(a, 0))); }}},
      {"gcd", {[](const Objects& a) { return Object(std::__gcd(integer(a, 0), integer(a, 1))); }}},
      {"__range_length", {range_length}},
      {"__derive_index",
       {[](const Objects& a) { return Object(integer(a, 1) + integer(a, 0) * integer(a, 2)); }}},
      {"rangelist", {range_list}},
      {"range", {range_list}},
      {"divmod",
       {[](const Objects& a) { return Object::tuple({arithmetic<kFloorDiv>(a), arithmetic<kMod>(a)}); }}},
  };
  return table;
}

const std::map<std::string, Row>& text_rows() {
  static const std::map<std::string, Row> table = {
      {"str", {[](const Objects& a) { return Object(shown(any(a, 0), false)); }, true}},
      {"format", {format, true}},
      {"percentFormat", {percent_format, true}},
      {"join", {join}},
      {"split", {split}},
      {"splitlines", {split_lines}},
      {"replace", {replace}},
      {"strip", {[](const Objects& a) { return strip(a, true, true); }}},
      {"lstrip", {[](const Objects& a) { return strip(a, true, false); }}},
      {"rstrip", {[](const Objects& a) { return strip(a, false, true); }}},
      {"startswith", {starts_with}},
      {"endswith", {ends_with}},
      {"find", {[](const Objects& a) { return find_text(a, false, false); }}},
      {"rfind", {[](const Objects& a) { return find_text(a, true, false); }}},
      {"rindex", {[](const Objects& a) { return find_text(a, true, true); }}},
      {"partition", {[](const Objects& a) { return partition(a, false); }}},
      {"rpartition", {[](const Objects& a) { return partition(a, true); }}},
      {"upper", {each_letter<std::toupper>}},
      {"lower", {each_letter<std::tolower>}},
      {"casefold", {each_letter<std::tolower>}},
      {"capitalize", {capitalize}},
      {"isalpha", {all_letters<std::isalpha>}},
      {"isdigit", {all_letters<std::isdigit>}},
      {"isdecimal", {all_letters<std::isdigit>}},
      {"isnumeric", {all_letters<std::isdigit>}},
      {"isalnum", {all_letters<std::isalnum>}},
      {"isspace", {all_letters<std::isspace>}},
      {"ljust", {[](const Objects& a) { return pad_text(a, -1); }}},
      {"rjust", {[](const Objects& a) { return pad_text(a, 1); }}},
      {"center", {[](const Objects& a) { return pad_text(a, 0); }}},
      {"zfill", {[](const Objects& a) { return pad_text({any(a, 0), any(a, 1), Object("0")}, 1); }}},
      {"ord", {[](const Objects& a) {
         FL_CHECK(text(a, 0).size() == 1, "[ord] expected one character");
         return Object(int64_t(static_cast<unsigned char>(a[0].text()[0])));
       }}},
      {"chr", {[](const Objects& a) { return Object(std::string(1, static_cast<char>(integer(a, 0)))); }}},
      {"warn", {[](const Objects&) { return Object(); }, true}},
      {"StringIndex", {get_item}},
  };
  return table;
}

const std::map<std::string, Row>& container_rows() {
  static const std::map<std::string, Row> table = {
      {"len", {length, true}},
      {"__getitem__", {get_item}},
      {"_set_item", {set_item}},
      {"Delete", {delete_item}},
      {"slice", {slice}},
      {"append", {append}},
      {"extend", {extend}},
      {"insert", {insert}},
      {"pop", {pop}},
      {"remove", {remove}},
      {"reverse", {[](const Objects& a) {
         std::reverse(list(a, 0).begin(), list(a, 0).end());
         return Object();
       }}},
      {"count", {count}},
      {"index", {index}},
      {"__contains__", {contains}},
      {"sort", {sort}},
      {"sorted", {sorted}},
      {"list", {to_list}},
      {"sum", {sum}},
      {"any", {any_true}},
      {"all", {all_true}},
      {"copy", {copy}},
      {"clear", {clear}},
      {"keys", {[](const Objects& a) { return Object::list(dict(a, 0).items()); }}},
      {"values", {[](const Objects& a) { return Object::list(dict(a, 0).heap->values); }}},
      {"items", {items}},
      {"get", {get}},
      {"setdefault", {set_default}},
      {"update", {update}},
      {"popitem", {pop_item}},
      {"dict", {make_dict}},
      {"add_", {[](const Objects& a) {
         extend(a);
         return a[0];
       }}},
      {"TupleIndex", {get_item}},
  };
  return table;
}

const std::map<std::string, Row>& tensor_rows() {
  static const std::map<std::string, Row> table = {
      {"Int", {to_int, true}},
      {"Float", {to_float, true}},
      {"Bool", {to_bool, true}},
      {"Complex", {to_complex, true}},
      {"IntImplicit", {to_int, true}},
      {"FloatImplicit", {to_float, true}},
      {"ComplexImplicit", {to_complex, true}},
      {"ScalarImplicit", {element, true}},
      {"item", {element, true}},
      {"tensor", {make_tensor, true}},
      {"as_tensor", {make_tensor, true}},
      {"NumToTensor", {make_tensor, true}},
      {"to", {convert, true}},
      {"size", {[](const Objects& a) { return sizes(a, false); }, true}},
      {"sym_size", {[](const Objects& a) { return sizes(a, false); }, true}},
      {"shape", {[](const Objects& a) { return sizes(a, false); }, true}},
      {"stride", {[](const Objects& a) { return sizes(a, true); }, true}},
      {"dim", {[](const Objects& a) { return Object(tensor(a, 0).dim()); }, true}},
      {"ndim", {[](const Objects& a) { return Object(tensor(a, 0).dim()); }, true}},
      {"numel", {[](const Objects& a) { return Object(tensor(a, 0).numel()); }, true}},
      {"dtype",
       {[](const Objects& a) { return Object(int64_t(runtime::number_of(tensor(a, 0).dtype()))); }, true}},
      {"device",
       {[](const Objects& a) {
          return any(a, 0).is(Type::Tensor) ? Object(a[0].tensor.device()) : device(a);
        },
        true}},
      {"layout", {[](const Objects& a) { return tensor(a, 0), Object(0); }, true}},
      {"requires_grad", {[](const Objects& a) { return Object(autograd::wants_grad(tensor(a, 0))); }, true}},
      {"requires_grad_", {requires_grad_, true}},
      {"data", {[](const Objects& a) { return Object(autograd::detach(tensor(a, 0))); }, true}},
      {"grad",
       {[](const Objects& a) {
          const auto* meta = autograd::meta_of(tensor(a, 0));
          return meta ? Object(meta->grad) : Object();
        },
        true}},
      {"is_leaf", {[](const Objects& a) { return Object(autograd::is_leaf(tensor(a, 0))); }, true}},
      {"is_cpu", {[](const Objects& a) { return Object(tensor(a, 0).is_cpu()); }, true}},
      {"is_cuda",
       {[](const Objects& a) { return Object(tensor(a, 0).device().type == DeviceType::CUDA); }, true}},
      {"is_meta", {[](const Objects& a) { return Object(tensor(a, 0).is_meta()); }, true}},
      {"is_sparse", {[](const Objects& a) { return Object(bool(tensor(a, 0)->sparse)); }, true}},
      {"is_quantized", {[](const Objects& a) { return tensor(a, 0), Object(false); }, true}},
      {"is_mkldnn", {[](const Objects& a) { return tensor(a, 0), Object(false); }, true}},
      {"is_nested", {[](const Objects& a) { return tensor(a, 0), Object(false); }, true}},
      {"is_floating_point",
       {[](const Objects& a) { return Object(is_floating(tensor(a, 0).dtype())); }, true}},
      {"is_complex", {[](const Objects& a) { return Object(is_complex(tensor(a, 0).dtype())); }, true}},
      {"is_contiguous", {[](const Objects& a) { return Object(tensor(a, 0).is_contiguous()); }, true}},
      {"storage_offset", {[](const Objects& a) { return Object(tensor(a, 0).offset()); }, true}},
      {"element_size", {[](const Objects& a) { return Object(tensor(a, 0).itemsize()); }, true}},
      {"itemsize", {[](const Objects& a) { return Object(tensor(a, 0).itemsize()); }, true}},
      {"nbytes",
       {[](const Objects& a) { return Object(tensor(a, 0).itemsize() * tensor(a, 0).numel()); }, true}},
      {"tolist",
       {[](const Objects& a) {
          return definitions::invoke(definitions::tensor_attribute(tensor(a, 0), "tolist"), {});
        },
        true}},
      {"type", {[](const Objects& a) {
         FL_CHECK(any(a, 0).is(Type::Device), "[jit] expected a device");
         return Object(device_type_name(a[0].device().type));
       }}},
      {"RaiseException", {raise, true}},
      {"_unwrap_optional", {unwrap, true}},
      {"unchecked_unwrap_optional", {unwrap, true}},
      {"wait", {[](const Objects& a) { return wait(any(a, 0)); }, true}},
      {"IfThenElse", {[](const Objects& a) { return integer(a, 0) ? any(a, 1) : any(a, 2); }, true}},
      {"is_grad_enabled", {[](const Objects&) { return Object(thread_state().grad_mode); }, true}},
      {"set_grad_enabled", {set_grad, true}},
      {"is_scripting", {[](const Objects&) { return Object(true); }, true}},
      {"is_autocast_enabled", {[](const Objects&) { return Object(false); }, true}},
      {"is_autocast_cpu_enabled", {[](const Objects&) { return Object(false); }, true}},
  };
  return table;
}

}  // namespace

Plain find_plain(const std::string& name, bool& always) {
  for (const auto* table : {&number_rows(), &text_rows(), &container_rows(), &tensor_rows()}) {
    const auto found = table->find(name);
    if (found == table->end()) continue;
    always = found->second.always;
    return found->second.run;
  }
  return nullptr;
}

}  // namespace fl::script

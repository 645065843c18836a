#include "definitions/operations.h"

#include <algorithm>
#include <cmath>

namespace fl::definitions {
namespace {

// Operators on tensors: the name of the syntax, and the operator that it stands for.
const std::pair<std::string_view, const char*> kTensorOperators[] = {
    {"Add", "add"},
    {"Sub", "sub"},
    {"Mult", "mul"},
    {"Div", "div"},
    {"FloorDiv", "floor_divide"},
    {"Mod", "remainder"},
    {"Pow", "pow"},
    {"MatMult", "matmul"},
    {"BitAnd", "bitwise_and"},
    {"BitOr", "bitwise_or"},
    {"BitXor", "bitwise_xor"},
    {"Eq", "eq"},
    {"NotEq", "ne"},
    {"Lt", "lt"},
    {"LtE", "le"},
    {"Gt", "gt"},
    {"GtE", "ge"},
    {"LShift", "bitwise_left_shift"},
    {"RShift", "bitwise_right_shift"},
};

Object on_tensors(std::string_view name, const Object& left, const Object& right) {
  for (const auto& [syntax, op] : kTensorOperators) {
    if (syntax != name) continue;
    // A number on the left takes part as a number does.
    const Object first = left.is(Type::Tensor) ? left : Object(wrapped_number(left.scalar()));
    return call(op, {first, right});
  }
  fail(ErrorKind::Type, "[definition] expected an operator of tensors, got ", name);
}

int64_t floor_divide(int64_t a, int64_t b) {
  FL_CHECK(b != 0, "[definition] expected a divisor, got zero");
  const int64_t quotient = a / b;
  return quotient - (a % b != 0 && (a < 0) != (b < 0));
}

Object on_integers(std::string_view name, int64_t a, int64_t b) {
  const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);  // which wrap around
  if (name == "Add") return Object(static_cast<int64_t>(x + y));
  if (name == "Sub") return Object(static_cast<int64_t>(x - y));
  if (name == "Mult") return Object(static_cast<int64_t>(x * y));
  if (name == "FloorDiv") return Object(floor_divide(a, b));
  if (name == "Mod") return Object(a - floor_divide(a, b) * b);
  if (name == "BitAnd") return Object(a & b);
  if (name == "BitOr") return Object(a | b);
  if (name == "BitXor") return Object(a ^ b);
  if (name == "LShift") return Object(a << b);
  if (name == "RShift") return Object(a >> b);
  if (name == "Div") {
    FL_CHECK(b != 0, "[definition] expected a divisor, got zero");
    return Object(static_cast<double>(a) / static_cast<double>(b));
  }
  FL_CHECK(name == "Pow", "[definition] expected an operator of integers, got ", name);
  if (b < 0) return Object(std::pow(static_cast<double>(a), static_cast<double>(b)));
  int64_t power = 1;
  for (int64_t i = 0; i < b; ++i) power *= a;
  return Object(power);
}

Object on_floats(std::string_view name, double a, double b) {
  if (name == "Add") return Object(a + b);
  if (name == "Sub") return Object(a - b);
  if (name == "Mult") return Object(a * b);
  if (name == "Pow") return Object(std::pow(a, b));
  FL_CHECK(b != 0, "[definition] expected a divisor, got zero");
  if (name == "Div") return Object(a / b);
  if (name == "FloorDiv") return Object(std::floor(a / b));
  FL_CHECK(name == "Mod", "[definition] expected an operator of floats, got ", name);
  return Object(a - std::floor(a / b) * b);
}

Object on_complex(std::string_view name, const Object& left, const Object& right) {
  const complex128 a(left.to_double(), left.imaginary), b(right.to_double(), right.imaginary);
  if (name == "Add") return from_scalar(Scalar(a + b));
  if (name == "Sub") return from_scalar(Scalar(a - b));
  if (name == "Mult") return from_scalar(Scalar(a * b));
  if (name == "Div") return from_scalar(Scalar(a / b));
  if (name == "Pow") return from_scalar(Scalar(std::pow(a, b)));
  fail("[definition] expected an operator of complex numbers, got ", name);
}

Object repeated(const Object& sequence, int64_t times) {
  if (sequence.is(Type::String)) {
    std::string text;
    for (int64_t i = 0; i < times; ++i) text += sequence.text();
    return Object(text);
  }
  Objects items;
  for (int64_t i = 0; i < times; ++i)
    items.insert(items.end(), sequence.items().begin(), sequence.items().end());
  return Object::of(sequence.type, std::move(items));
}

bool is_container(const Object& o) {
  return o.is_sequence() || o.is(Type::String);
}

bool contains(const Object& container, const Object& item) {
  if (container.is(Type::String)) return container.text().find(item.text()) != std::string::npos;
  const Objects& items = container.items();
  return std::any_of(items.begin(), items.end(), [&](const Object& o) { return same(o, item); });
}

// Whether a set is part of another one.
bool within(const Object& part, const Object& whole) {
  const Objects& items = part.items();
  return std::all_of(items.begin(), items.end(), [&](const Object& o) { return contains(whole, o); });
}

bool less(const Object& a, const Object& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integer() && b.is_integer()) return a.integer < b.integer;
    return a.to_double() < b.to_double();
  }
  if (a.is(Type::String) && b.is(Type::String)) return a.text() < b.text();
  if (a.is(Type::Set) && b.is(Type::Set)) return a.items().size() < b.items().size() && within(a, b);
  if (a.is_sequence() && b.is_sequence())
    return std::lexicographical_compare(a.items().begin(), a.items().end(), b.items().begin(),
                                        b.items().end(), less);
  fail(ErrorKind::Type, "[definition] expected values with an order, got ", type_name(a), " and ",
       type_name(b));
}

// The positions that a slice takes of a sequence.
std::vector<size_t> positions(const Object& slice, size_t size) {
  const Objects& ends = slice.items();
  const auto n = static_cast<int64_t>(size);
  const int64_t step = ends[2].is_none() ? 1 : ends[2].integer;
  const auto clamp = [&](const Object& end, int64_t absent) {
    if (end.is_none()) return absent;
    const int64_t at = end.integer < 0 ? end.integer + n : end.integer;
    return std::clamp<int64_t>(at, step > 0 ? 0 : -1, step > 0 ? n : n - 1);
  };
  const int64_t first = clamp(ends[0], step > 0 ? 0 : n - 1), last = clamp(ends[1], step > 0 ? n : -1);
  std::vector<size_t> places;
  for (int64_t at = first; step > 0 ? at < last : at > last; at += step)
    places.push_back(static_cast<size_t>(at));
  return places;
}

size_t position(const Object& key, size_t size) {
  const int64_t at = key.integer < 0 ? key.integer + static_cast<int64_t>(size) : key.integer;
  FL_CHECK_KIND(key.is_integer() && at >= 0 && at < static_cast<int64_t>(size), Index,
                "[definition] expected an index below ", size, ", got ", show(key, true));
  return static_cast<size_t>(at);
}

}  // namespace

Object binary(std::string_view name, const Object& left, const Object& right) {
  if (left.is(Type::Tensor) || right.is(Type::Tensor)) return on_tensors(name, left, right);
  if (left.is_number() && right.is_number()) {
    if (left.is(Type::Complex) || right.is(Type::Complex)) return on_complex(name, left, right);
    if (left.is(Type::Float) || right.is(Type::Float))
      return on_floats(name, left.to_double(), right.to_double());
    const Object result = on_integers(name, left.integer, right.integer);
    const bool logical = left.is(Type::Bool) && right.is(Type::Bool) && name.substr(0, 3) == "Bit";
    return logical ? Object(result.integer != 0) : result;
  }
  if (name == "Mult" && is_container(left) && right.is_integer()) return repeated(left, right.integer);
  if (name == "Mult" && is_container(right) && left.is_integer()) return repeated(right, left.integer);
  if (name == "Add" && left.is(Type::String) && right.is(Type::String))
    return Object(left.text() + right.text());
  if (left.heap && right.heap && left.type == right.type) {
    Objects items = left.items();
    const auto in = [](const Objects& all, const Object& o) {
      return std::any_of(all.begin(), all.end(), [&](const Object& x) { return same(x, o); });
    };
    if (name == "Add") {
      items.insert(items.end(), right.items().begin(), right.items().end());
      return Object::of(left.type, std::move(items));
    }
    if (left.is(Type::Set)) {
      Objects remaining;
      if (name == "BitOr") remaining = items;
      for (const Object& o : name == "BitOr" ? right.items() : left.items())
        if (name == "BitOr" ? !in(items, o) : in(right.items(), o) == (name == "BitAnd"))
          remaining.push_back(o);
      return Object::of(Type::Set, std::move(remaining));
    }
  }
  fail(ErrorKind::Type, "[definition] expected operands of ", name, ", got ", type_name(left), " and ",
       type_name(right));
}

Object augmented(std::string_view name, const Object& left, const Object& right) {
  if (left.is(Type::List) && name == "Add") {
    const Objects more = iterate(right);
    left.heap->items.insert(left.heap->items.end(), more.begin(), more.end());
    return left;
  }
  if (left.is(Type::Tensor)) {
    for (const auto& [syntax, op] : kTensorOperators)
      if (syntax == name) {
        const Packet* in_place = find_method(std::string(op) + "_");
        if (in_place) return call(*in_place, {left, right});
      }
  }
  return binary(name, left, right);
}

Object unary(std::string_view name, const Object& operand) {
  if (name == "Not") return Object(!truth(operand));
  if (operand.is(Type::Tensor)) {
    if (name == "UAdd") return operand;
    return call(name == "USub" ? "neg" : "bitwise_not", {operand});
  }
  FL_CHECK_KIND(operand.is_number(), Type, "[definition] expected a number, got ", type_name(operand));
  if (name == "UAdd") return operand;
  if (name == "Invert") return Object(~operand.integer);
  if (operand.is(Type::Complex)) return from_scalar(Scalar(-complex128(operand.number, operand.imaginary)));
  return operand.is(Type::Float) ? Object(-operand.number) : Object(-operand.integer);
}

Object compare(std::string_view name, const Object& left, const Object& right) {
  if (name == "Is" || name == "IsNot") {
    const bool identical = left.type == right.type &&
                           (left.heap && !left.is(Type::Class) ? left.heap == right.heap : same(left, right));
    return Object(identical == (name == "Is"));
  }
  if (name == "In" || name == "NotIn") return Object(contains(right, left) == (name == "In"));
  const bool numbers =
      (left.is(Type::Tensor) || left.is_number()) && (right.is(Type::Tensor) || right.is_number());
  if (numbers && (left.is(Type::Tensor) || right.is(Type::Tensor))) return on_tensors(name, left, right);
  if (left.is(Type::Set) && right.is(Type::Set)) {
    const bool below = within(left, right), above = within(right, left);
    if (name == "Eq" || name == "NotEq") return Object((below && above) == (name == "Eq"));
    if (name == "LtE" || name == "GtE") return Object(name == "LtE" ? below : above);
  }
  if (name == "Eq") return Object(same(left, right));
  if (name == "NotEq") return Object(!same(left, right));
  if (left.is_number() && right.is_number() &&
      (std::isnan(left.to_double()) || std::isnan(right.to_double())))
    return Object(false);
  if (name == "Lt") return Object(less(left, right));
  if (name == "Gt") return Object(less(right, left));
  if (name == "LtE") return Object(!less(right, left));
  return Object(!less(left, right));
}

Object item_of(const Object& container, const Object& key) {
  switch (container.type) {
    case Type::Tensor:
      return index(container.tensor, key);
    case Type::List:
    case Type::Tuple: {
      if (!key.is(Type::Slice)) return container.items()[position(key, container.items().size())];
      Objects items;
      for (size_t at : positions(key, container.items().size())) items.push_back(container.items()[at]);
      return Object::of(container.type, std::move(items));
    }
    case Type::String: {
      if (!key.is(Type::Slice))
        return Object(std::string(1, container.text()[position(key, container.text().size())]));
      std::string text;
      for (size_t at : positions(key, container.text().size())) text += container.text()[at];
      return Object(text);
    }
    case Type::Dict:
      for (size_t i = 0; i < container.items().size(); ++i)
        if (same(container.items()[i], key)) return container.heap->values[i];
      fail(ErrorKind::Index, "[definition] expected a key of the dictionary, got ", show(key, true));
    case Type::Class:
      return container;  // list[int]
    default:
      fail(ErrorKind::Type, "[definition] expected something with items, got ", type_name(container));
  }
}

void set_item(Object& container, const Object& key, const Object& value) {
  if (container.is(Type::Tensor)) return assign_index(container.tensor, key, value);
  if (container.is(Type::List)) {
    if (!key.is(Type::Slice)) {
      container.heap->items[position(key, container.items().size())] = value;
      return;
    }
    const std::vector<size_t> places = positions(key, container.items().size());
    const Objects values = iterate(value);
    FL_CHECK_KIND(places.size() == values.size(), Value, "[definition] expected ", places.size(),
                  " values, got ", values.size());
    for (size_t i = 0; i < places.size(); ++i) container.heap->items[places[i]] = values[i];
    return;
  }
  FL_CHECK_KIND(container.is(Type::Dict), Type, "[definition] expected a list or dictionary, got ",
                type_name(container));
  for (size_t i = 0; i < container.items().size(); ++i)
    if (same(container.items()[i], key)) {
      container.heap->values[i] = value;
      return;
    }
  container.heap->items.push_back(key);
  container.heap->values.push_back(value);
}

}  // namespace fl::definitions

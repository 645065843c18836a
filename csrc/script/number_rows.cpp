// Operators of TorchScript on numbers.
#include <cmath>

#include "script/rows.h"

namespace fl::script {
namespace {

// Whether two things are one: `is`.
bool is_same(const Object& a, const Object& b) {
  if (a.type != b.type) return false;
  if (a.is_none()) return true;
  if (a.is(Type::Tensor)) return a.tensor.impl() == b.tensor.impl();
  if (a.is(Type::Foreign)) return a.foreign.get() == b.foreign.get() || equal(a, b);
  return a.heap ? a.heap == b.heap : same(a, b);
}

bool computes(const Object& x, const Object& y) {
  if (x.is_number() && y.is_number()) return true;
  return (x.is(Type::String) || x.is(Type::List)) && (y.type == x.type);
}

// Division of floats gives infinity and NaN where it has no value.
Object divided(std::string_view name, double a, double b) {
  if (name == "Div") return Object(a / b);
  if (name == "FloorDiv") return Object(std::floor(a / b));
  return Object(b == 0 ? std::nan("") : a - std::floor(a / b) * b);
}

bool divides_floats(std::string_view name, const Object& x, const Object& y) {
  if (!x.is_number() || !y.is_number() || x.is(Type::Complex) || y.is(Type::Complex)) return false;
  return name == "Div" || ((name == "FloorDiv" || name == "Mod") && (x.is(Type::Float) || y.is(Type::Float)));
}

template <const char* name>
Object arithmetic(const Objects& a) {
  const Object &x = any(a, 0), &y = any(a, 1);
  if (!computes(x, y)) refuse("numbers, strings or lists of one kind", a, 1);
  if (divides_floats(name, x, y)) return divided(name, x.to_double(), y.to_double());
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

}  // namespace

bool less(const Objects& pair) {
  return definitions::truth(comparison<kLt>(pair));
}

Object sum_of(const Objects& pair) {
  return arithmetic<kAdd>(pair);
}

const Rows& number_rows() {
  static const Rows table = {
      {"add", {arithmetic<kAdd>}},
      {"sub", {arithmetic<kSub>}},
      {"mul", {multiply}},
      {"div", {arithmetic<kDiv>}},
      {"div_0_3", {arithmetic<kDiv>}},
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

}  // namespace fl::script

#include "script/rows.h"

namespace fl::script {

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

Plain find_plain(const std::string& name, bool& always) {
  for (const Rows* table : {&number_rows(), &text_rows(), &container_rows(), &tensor_rows()}) {
    const auto row = table->find(name);
    if (row == table->end()) continue;
    always = row->second.always;
    return row->second.run;
  }
  return nullptr;
}

}  // namespace fl::script

// Operators of TorchScript on strings.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>

#include "script/rows.h"

namespace fl::script {
namespace {

// Whole numbers end in a point; others have all the digits that a float may need.
std::string float_text(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
  if (std::abs(x) < 9223372036854775808.0 && std::floor(x) == x)
    return std::to_string(static_cast<int64_t>(x)) + ".";
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", x);
  return text;
}

}  // namespace

std::string shown(const Object& o, bool quoted) {
  const auto join = [quoted](const Objects& items, const char* open, const char* close) {
    std::string all = open;
    for (size_t i = 0; i < items.size(); ++i) all += (i ? ", " : "") + shown(items[i], quoted);
    return all + close;
  };
  if (o.is(Type::List)) return join(o.items(), "[", "]");
  if (o.is(Type::Tuple)) return join(o.items(), "(", o.items().size() == 1 ? ",)" : ")");
  if (o.is(Type::Dict)) {
    std::string all = "{";
    for (size_t i = 0; i < o.items().size(); ++i)
      all += (i ? ", " : "") + shown(o.items()[i], quoted) + ": " + shown(o.heap->values[i], quoted);
    return all + "}";
  }
  if (const auto* member = as<Member>(o))
    return member->type.name.substr(member->type.name.rfind('.') + 1) + "." + member->name;
  if (o.is(Type::Float)) return float_text(o.number);
  if (o.is(Type::Complex)) {
    const std::string imaginary = float_text(o.imaginary);
    return float_text(o.number) + (imaginary[0] == '-' ? "" : "+") + imaginary + "j";
  }
  return definitions::show(o, quoted);
}

std::string to_text(const Object& o) {
  return shown(o, false);
}

namespace {

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
}  // namespace

Object find_text(const Objects& a, bool last, bool required) {
  int64_t start = 0;
  const std::string s = part_of(a, start);
  const size_t at = last ? s.rfind(text(a, 1)) : s.find(text(a, 1));
  FL_CHECK_KIND(at != std::string::npos || !required, Value, "substring not found");
  return Object(at == std::string::npos ? int64_t(-1) : start + static_cast<int64_t>(at));
}
namespace {

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

}  // namespace

const Rows& text_rows() {
  static const Rows table = {
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
  };
  return table;
}

}  // namespace fl::script

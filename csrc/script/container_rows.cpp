// Operators of TorchScript on lists, tuples and dicts.
#include <algorithm>

#include "script/rows.h"

namespace fl::script {
namespace {

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
  const auto before = [](const Object& x, const Object& y) {
    if (as<Instance>(x)) return definitions::truth(call_method(x, "__lt__", {y}));
    return less({x, y});
  };
  std::stable_sort(items.begin(), items.end(), before);
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
  for (const Object& o : list(a, 0)) total = sum_of({total, o});
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
  Object copy = Object::of(o.type, o.items());
  copy.heap->values = o.heap->values;
  return copy;
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
  const Object pair = Object::tuple({d.items().front(), d.heap->values.front()});
  erase(d, 0);
  return pair;
}
Object make_dict(const Objects& a) {
  Object dict = Object::of(Type::Dict, {});
  if (a.empty()) return dict;
  if (a[0].is(Type::Dict)) return copy(a);
  for (const Object& pair : list(a, 0)) {
    FL_CHECK(pair.is_sequence() && pair.items().size() == 2, "[dict] expected pairs, got ", type_name(pair));
    definitions::set_item(dict, pair.items()[0], pair.items()[1]);
  }
  return dict;
}
Object clear(const Objects& a) {
  const Object& o = any(a, 0);
  if (!o.is(Type::List) && !o.is(Type::Dict)) refuse("a list or dict", a, 0);
  o.heap->items.clear();
  o.heap->values.clear();
  return {};
}

}  // namespace

const Rows& container_rows() {
  static const Rows table = {
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
      {"StringIndex", {get_item}},
  };
  return table;
}

}  // namespace fl::script

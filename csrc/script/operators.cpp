// What the name of an operator stands for: a function on plain values, a form of ATen's, or the overloads of
// this library.
#include <map>
#include <mutex>

#include "definitions/node.h"
#include "runtime/dlpack.h"
#include "script/program.h"

namespace fl::script {
namespace {

const std::string kForms = "flambeau.jit._aten_forms:aten_";

// Numbers stand for dtypes, layouts and memory formats in archives.
bool enumerated(std::string_view name, const Object& code, Object& value) {
  if (!code.is(Type::Int)) return false;
  if (name == "dtype") return value = Object(runtime::dtype_of(static_cast<fl_dtype>(code.integer))), true;
  const bool layout = name == "layout";
  if (!layout && name != "memory_format") return false;
  // Strided, sparse, compressed rows; contiguous, preserve, channels last, channels last in three dimensions.
  FL_CHECK(code.integer >= 0 && code.integer <= (layout ? 2 : 3), "[jit] expected the number of a ", name,
           ", got ", code.integer);
  value = Object::enumerator(layout ? Type::Layout : Type::MemoryFormat, code.integer);
  return true;
}

Object call_form(const Callee& callee, Objects positional, Keywords keywords) {
  const std::string name = kForms + callee.name;
  const definitions::Node& function = *definitions::find_definition(name);
  for (size_t i = 0; i < positional.size() && i < function.children.size(); ++i)
    if (function.children[i].kind == definitions::Kind::Parameter)
      enumerated(function.children[i].text, positional[i], positional[i]);
  for (auto& [keyword, value] : keywords) enumerated(keyword, value, value);
  return definitions::evaluate(name, positional, keywords);
}

// The plain function takes arguments without names.
Object call_plain(const Callee& callee, const Objects& positional, const Keywords& keywords) {
  if (keywords.empty()) return callee.plain(positional);
  static const std::map<std::string, size_t> places = {
      {"dtype", 1}, {"device", 2}, {"requires_grad", 3}, {"dim", 1}, {"reverse", 1}};
  Objects all = positional;
  for (const auto& [name, value] : keywords) {
    const auto place = places.find(name);
    FL_CHECK_KIND(place != places.end(), Type, "[", callee.name, "] expected arguments without names, got ",
                  name);
    if (all.size() <= place->second) all.resize(place->second + 1);
    all[place->second] = value;
  }
  return callee.plain(all);
}

// Integers where every overload takes a dtype, layout or memory format are the numbers of these.
Objects with_enumerations(const definitions::Packet& packet, const Objects& positional) {
  Objects all = positional;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!all[i].is(Type::Int)) continue;
    bool every = true, some = false;
    ArgType type = ArgType::Any;
    for (const Operator* op : packet.overloads) {
      if (i >= op->schema.args.size()) continue;
      some = true;
      type = op->schema.args[i].type;
      every &= type == ArgType::DType || type == ArgType::Layout || type == ArgType::MemoryFormat;
    }
    if (!every || !some) continue;
    const char* name = type == ArgType::DType    ? "dtype"
                       : type == ArgType::Layout ? "layout"
                                                 : "memory_format";
    enumerated(name, all[i], all[i]);
  }
  return all;
}

Object call_packet(const Callee& callee, const Objects& positional, const Keywords& keywords) {
  const definitions::Packet& packet = *callee.packet;
  Keywords named = keywords;
  for (auto& [name, value] : named) enumerated(name, value, value);
  return definitions::call(packet, with_enumerations(packet, positional), named);
}

}  // namespace

const Callee* find_callee(const std::string& space, const std::string& name) {
  static std::mutex mutex;
  static auto* const known = new std::map<std::string, std::unique_ptr<Callee>>;
  const std::lock_guard<std::mutex> lock(mutex);
  const std::string key = space + "::" + name;
  const auto entry = known->find(key);
  if (entry != known->end()) return entry->second.get();
  definitions::install();
  auto callee = std::make_unique<Callee>();
  callee->name = name;
  const bool builtin = space == "aten" || space == "prim";
  if (builtin) {
    callee->plain = find_plain(name, callee->always);
    callee->form = definitions::find_definition(kForms + name) != nullptr;
    callee->packet = definitions::find_operator(name);
    if (!callee->packet) callee->packet = definitions::find_method(name);
    if (!callee->packet) callee->packet = definitions::find_function(name);
  } else {
    callee->packet = definitions::find_operator(key);
  }
  if (!callee->plain && !callee->form && !callee->packet) callee = nullptr;
  return known->emplace(key, std::move(callee)).first->second.get();
}

Object call_operator(const Callee& callee, const Objects& positional, const Keywords& keywords) {
  if (callee.plain) {
    const bool first = !positional.empty() && positional[0].is(Type::Tensor);
    const bool second = positional.size() > 1 && positional[1].is(Type::Tensor) && positional[0].is_number();
    if (callee.always || (!first && !second)) return call_plain(callee, positional, keywords);
  }
  if (callee.form) return call_form(callee, positional, keywords);
  FL_CHECK_KIND(callee.packet != nullptr, Type, "[", callee.name, "] expected plain values, got tensors");
  return call_packet(callee, positional, keywords);
}

}  // namespace fl::script

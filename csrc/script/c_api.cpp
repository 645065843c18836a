// The C interface over scripts: see flambeau/include/flambeau/flambeau.h.
#include <cstring>
#include <set>

#include "autograd/node.h"
#include "runtime/c_values.h"
#include "script/program.h"

using fl::runtime::guarded;
using fl::runtime::needed;
using fl::script::as;
using fl::script::Class;
using fl::script::Instance;
using fl::script::Member;
using fl::script::Object;
using fl::script::Objects;
using fl::script::Type;

struct fl_object {
  Object value;
  std::atomic<int> count{1};
};

namespace {

void give(fl_object** room, Object value) {
  needed(room, "room for an object") = new fl_object{std::move(value)};
}

fl::runtime::Sink sink_of(fl_write_function write, void* context) {
  needed(write, "a function that writes");
  return [write, context](const void* data, size_t size) {
    FL_CHECK(write(context, data, size) == 0,
             "[save] expected a file that takes the bytes, got one that does not");
  };
}

const Object& value_of(const fl_object* object) {
  return needed(object, "an object").value;
}

const Instance& instance_of(const fl_object* object) {
  const auto* instance = as<Instance>(value_of(object));
  FL_CHECK_KIND(instance != nullptr, Type, "[jit] expected a module or an object of a class, got ",
                type_name(object->value));
  return *instance;
}

// Names of submodules are those of attributes that hold modules.
std::vector<size_t> module_positions(const Instance& instance) {
  std::vector<size_t> places;
  for (size_t i = 0; i < instance.values.size(); ++i) {
    const auto* value = as<Instance>(instance.values[i]);
    if (value && value->type.kind == Class::Kind::Module) places.push_back(i);
  }
  return places;
}

const char* at(const std::vector<std::string>& names, size_t index) {
  return index < names.size() ? names[index].c_str() : nullptr;
}

const char* name_of(const Object& value, fl_names which, size_t index) {
  if (which == FL_NAMES_FIELDS) return value.is(Type::Tuple) ? at(value.heap->names, index) : nullptr;
  const auto* instance = as<Instance>(value);
  if (!instance) return nullptr;
  const Class& type = instance->type;
  switch (which) {
    case FL_NAMES_ATTRIBUTES:
      return at(type.attributes, index);
    case FL_NAMES_PARAMETERS:
      return at(type.parameters, index);
    case FL_NAMES_BUFFERS:
      return at(type.buffers, index);
    case FL_NAMES_MODULES: {
      const std::vector<size_t> places = module_positions(*instance);
      return index < places.size() ? type.attributes[places[index]].c_str() : nullptr;
    }
    case FL_NAMES_METHODS:
      if (index >= type.methods.size()) return nullptr;
      return type.methods[index]->name.c_str() + type.methods[index]->name.rfind('.') + 1;
    default:
      return nullptr;
  }
}

// Converts tensors of a module and of the modules inside of it; those that share storage stay shared by
// place.
void convert(const Object& module, int dtype, const char* device, std::set<const Instance*>& seen) {
  auto* instance = as<Instance>(module);
  if (!instance || !seen.insert(instance).second) return;
  for (Object& value : instance->values) {
    convert(value, dtype, device, seen);
    if (!value.is(Type::Tensor)) continue;
    fl::definitions::Keywords options;
    if (dtype >= 0 && fl::is_floating(value.tensor.dtype()))
      options.emplace_back("dtype", Object(fl::runtime::dtype_of(static_cast<fl_dtype>(dtype))));
    if (device) options.emplace_back("device", Object(fl::parse_device(device)));
    if (options.empty()) continue;
    const bool wanted = value.tensor.requires_grad();
    const fl::Tensor source = fl::autograd::detach(value.tensor);
    const Object moved =
        fl::definitions::call(*fl::definitions::find_method("to"), {Object(source)}, options);
    if (wanted) fl::autograd::set_requires_grad(moved.tensor, true);
    value = moved;
  }
}

}  // namespace

extern "C" {

fl_status fl_script_load(const char* path, fl_object** module) {
  return guarded([&] { give(module, fl::script::load(fl::runtime::Bytes::map(path ? path : ""))); });
}
fl_status fl_script_load_memory(const void* data, size_t size, fl_object** module) {
  return guarded([&] { give(module, fl::script::load(fl::runtime::Bytes::copy(data, size))); });
}
fl_status fl_script_extra_file(const char* path, const char* name, fl_object** content) {
  return guarded([&] {
    std::string text;
    const bool there =
        fl::script::extra_file(fl::runtime::Bytes::map(path ? path : ""), &needed(name, "a name"), text);
    give(content, there ? Object(std::move(text)) : Object());
  });
}

fl_status fl_script_save(const fl_object* module, const fl_object* extra_files, fl_write_function write,
                         void* context) {
  return guarded([&] {
    std::vector<std::pair<std::string, std::string>> files;
    const Objects none, &names = extra_files ? extra_files->value.items() : none;
    for (size_t i = 0; i < names.size(); ++i)
      files.emplace_back(names[i].text(), extra_files->value.heap->values.at(i).text());
    fl::script::save(value_of(module), files, sink_of(write, context));
  });
}
fl_status fl_pickle_save(const fl_object* value, fl_write_function write, void* context) {
  return guarded([&] { fl::script::save_value(value_of(value), sink_of(write, context)); });
}
fl_status fl_pickle_load(const void* data, size_t size, fl_object** value) {
  return guarded([&] { give(value, fl::script::load_value(fl::runtime::Bytes::copy(data, size))); });
}

fl_object* fl_object_retain(fl_object* object) {
  if (object) object->count.fetch_add(1);
  return object;
}
void fl_object_release(fl_object* object) {
  if (object && object->count.fetch_sub(1) == 1) delete object;
}

fl_status fl_object_from_value(const fl_value* value, fl_object** object) {
  return guarded([&] { give(object, fl::runtime::to_object(needed(value, "a value"))); });
}
fl_status fl_object_from_items(fl_object_kind kind, fl_object* const* items, size_t count,
                               fl_object** object) {
  return guarded([&] {
    FL_CHECK_KIND(
        kind == FL_OBJECT_LIST || kind == FL_OBJECT_TUPLE || (kind == FL_OBJECT_DICT && count % 2 == 0), Type,
        "[jit] expected a list, a tuple, or pairs of a dict, got kind ", static_cast<int>(kind));
    Objects values;
    for (size_t i = 0; i < count; ++i) values.push_back(value_of(items ? items[i] : nullptr));
    if (kind != FL_OBJECT_DICT) {
      give(object, Object::of(kind == FL_OBJECT_LIST ? Type::List : Type::Tuple, std::move(values)));
      return;
    }
    Object dict = Object::of(Type::Dict, {});
    const auto* set = fl::script::find_callee("aten", "_set_item");
    for (size_t i = 0; i < count; i += 2)
      fl::script::call_operator(*set, {dict, values[i], values[i + 1]}, {});
    give(object, std::move(dict));
  });
}

fl_status fl_object_from_attributes(const char* const* names, fl_object* const* values, const fl_names* kinds,
                                    size_t count, fl_object** module) {
  return guarded([&] {
    using Role = fl::script::Attribute::Role;
    std::vector<fl::script::Attribute> attributes;
    for (size_t i = 0; i < count; ++i) {
      FL_CHECK_KIND(names && names[i] && values && values[i] && kinds, Type,
                    "[jit] expected names and values of attributes, got null");
      const Role role = kinds[i] == FL_NAMES_PARAMETERS ? Role::Parameter
                        : kinds[i] == FL_NAMES_BUFFERS  ? Role::Buffer
                                                        : Role::Plain;
      attributes.push_back({names[i], values[i]->value, role});
    }
    give(module, fl::script::module_of(std::move(attributes)));
  });
}

fl_object_kind fl_object_kind_of(const fl_object* object) {
  if (!object) return FL_OBJECT_PLAIN;
  const Object& value = object->value;
  if (value.is(Type::List)) return FL_OBJECT_LIST;
  if (value.is(Type::Tuple)) return FL_OBJECT_TUPLE;
  if (value.is(Type::Dict)) return FL_OBJECT_DICT;
  if (const auto* instance = as<Instance>(value))
    return instance->type.kind == Class::Kind::Module ? FL_OBJECT_MODULE : FL_OBJECT_CLASS;
  if (as<Member>(value)) return FL_OBJECT_ENUM;
  return value.is(Type::Foreign) ? FL_OBJECT_OTHER : FL_OBJECT_PLAIN;
}

fl_status fl_object_value(const fl_object* object, fl_value* value) {
  return guarded([&] {
    needed(value, "room for a value") = fl_value{};
    value_of(object);
    if (object->value.is(Type::String)) {
      value->kind = FL_VALUE_STRING;
      value->as.string = object->value.text().c_str();
      value->length = object->value.text().size();
      return;
    }
    FL_CHECK_KIND(fl_object_kind_of(object) == FL_OBJECT_PLAIN, Type, "[jit] expected a plain value, got ",
                  type_name(object->value));
    *value = fl::runtime::from_object(object->value);
  });
}

size_t fl_object_length(const fl_object* object) {
  if (!object) return 0;
  return object->value.items().size() * (object->value.is(Type::Dict) ? 2 : 1);
}
fl_status fl_object_item(const fl_object* object, size_t index, fl_object** item) {
  return guarded([&] {
    FL_CHECK_KIND(index < fl_object_length(object), Index, "[jit] expected an index below ",
                  fl_object_length(object), ", got ", index);
    const Object& value = object->value;
    if (!value.is(Type::Dict))
      give(item, value.items()[index]);
    else
      give(item, index % 2 ? value.heap->values[index / 2] : value.items()[index / 2]);
  });
}

fl_status fl_object_attribute(const fl_object* object, const char* name, fl_object** value) {
  return guarded([&] { give(value, fl::script::get_attribute(value_of(object), &needed(name, "a name"))); });
}
fl_status fl_object_set_attribute(fl_object* object, const char* name, const fl_object* value) {
  return guarded(
      [&] { fl::script::set_attribute(value_of(object), &needed(name, "a name"), value_of(value)); });
}
const char* fl_object_name(const fl_object* object, fl_names which, size_t index) {
  return object ? name_of(object->value, which, index) : nullptr;
}

fl_status fl_object_call(const fl_object* object, const char* method, fl_object* const* arguments,
                         const char* const* names, size_t count, fl_object** result) {
  return guarded([&] {
    instance_of(object);
    Objects positional;
    fl::script::Keywords keywords;
    for (size_t i = 0; i < count; ++i) {
      if (names && names[i])
        keywords.emplace_back(names[i], value_of(arguments ? arguments[i] : nullptr));
      else
        positional.push_back(value_of(arguments ? arguments[i] : nullptr));
    }
    give(result, fl::script::call_method(object->value, &needed(method, "the name of a method"),
                                         std::move(positional), keywords));
  });
}

fl_status fl_object_convert(fl_object* module, int dtype, const char* device) {
  return guarded([&] {
    instance_of(module);
    std::set<const Instance*> seen;
    convert(module->value, dtype, device, seen);
  });
}

}  // extern "C"

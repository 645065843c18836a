#include "script/pickler.h"

#include <cstring>

#include "autograd/node.h"
#include "core/keys.h"

namespace fl::script {
namespace {

constexpr size_t kDeepest = 500;  // values within each other

std::string joined(const std::vector<std::string>& parts) {
  std::string all;
  for (const std::string& part : parts) all += (all.empty() ? "" : ", ") + part;
  return all;
}

// What a declared container holds: X of List[X], Optional[List[X]]; null where it is not known.
const Tree* parameter_of(const Tree* type, std::string_view head) {
  if (!type || type->op != Op::Subscript || type->children[0].op != Op::Path) return nullptr;
  const std::string& name = type->children[0].text;
  if (name == "Optional") return parameter_of(&type->children[1], head);
  return name == head ? &type->children[1] : nullptr;
}

const Tree* part_of(const Tree* parameters, size_t index) {
  const bool there = parameters && parameters->op == Op::Tuple && index < parameters->children.size();
  return there ? &parameters->children[index] : nullptr;
}

std::string common_type(const Objects& items, const NameOf& name_of, const char* of_none) {
  if (items.empty()) return of_none;
  const std::string first = type_text(items[0], name_of);
  for (const Object& item : items)
    if (type_text(item, name_of) != first) return "Any";
  return first;
}

}  // namespace

std::string type_text(const Tree& type) {
  std::vector<std::string> parts;
  switch (type.op) {
    case Op::Path:
      return type.text;
    case Op::Subscript:
      return type_text(type.children[0]) + "[" + type_text(type.children[1]) + "]";
    case Op::Tuple:
      for (const Tree& part : type.children) parts.push_back(type_text(part));
      return parts.empty() ? "()" : joined(parts);
    default:
      FL_CHECK(type.op == Op::Constant && type.constant.is_none(),
               "[jit.save] expected a declaration of a type, got another expression");
      return "NoneType";
  }
}

std::string type_text(const Object& o, const NameOf& name_of) {
  if (const auto* instance = as<Instance>(o)) return name_of(*instance);
  if (const auto* member = as<Member>(o)) return member->type.name;
  std::vector<std::string> parts;
  switch (o.type) {
    case Type::List:
      return "List[" + common_type(o.items(), name_of, "Tensor") + "]";
    case Type::Dict:
      return "Dict[" + common_type(o.items(), name_of, "str") + ", " +
             common_type(o.heap->values, name_of, "Tensor") + "]";
    case Type::Tuple:
      if (!o.heap->names.empty()) return o.heap->text;
      for (const Object& item : o.items()) parts.push_back(type_text(item, name_of));
      return "Tuple[" + (parts.empty() ? "()" : joined(parts)) + "]";
    case Type::None:
      return "NoneType";
    case Type::Device:
      return "Device";
    default:
      FL_CHECK_KIND(o.is_number() || o.is(Type::String) || o.is(Type::Tensor), Type,
                    "[jit.save] expected a value that archives can hold, got ", type_name(o));
      return type_name(o);
  }
}

// Refuses values that contain themselves, and those that are nested too deeply to be read.
class Pickler::Inside {
 public:
  Inside(Pickler& owner, const void* identity) : owner_(owner), identity_(identity) {
    FL_CHECK(owner.unfinished_.size() < kDeepest && owner.unfinished_.insert(identity).second,
             "[jit.save] expected values without cycles, up to ", kDeepest, " within each other, got others");
  }
  Inside(const Inside&) = delete;
  ~Inside() { owner_.unfinished_.erase(identity_); }

 private:
  Pickler& owner_;
  const void* identity_;
};

// ---------------------------------------------------------------- plain values

void Pickler::text(std::string_view value) {
  const auto size = static_cast<uint32_t>(value.size());
  FL_CHECK(size == value.size(), "[jit.save] expected a string below 4 GB, got ", value.size(), " bytes");
  out_ += 'X';
  out_.append(reinterpret_cast<const char*>(&size), sizeof size).append(value);
}

void Pickler::integer(int64_t value) {
  const bool tiny = value >= 0 && value < 256, small = value == static_cast<int32_t>(value);
  out_ += tiny ? "K" : small ? "J" : "\x8a\x08";
  out_.append(reinterpret_cast<const char*>(&value), tiny ? 1 : small ? 4 : 8);
}

void Pickler::integers(IntSpan values) {
  out_ += '(';
  for (const int64_t value : values) integer(value);
  out_ += 't';
}

void Pickler::class_name(const std::string& qualified) {
  const size_t dot = qualified.rfind('.');
  out_ += 'c' + qualified.substr(0, dot) + '\n' + qualified.substr(dot + 1) + '\n';
}

void Pickler::number(const Object& o) {
  const auto real = [&](double value) {
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    bits = __builtin_bswap64(bits);
    out_ += 'G';
    out_.append(reinterpret_cast<const char*>(&bits), sizeof bits);
  };
  if (o.is(Type::Bool)) {
    out_ += o.integer ? '\x88' : '\x89';
  } else if (o.is(Type::Int)) {
    integer(o.integer);
  } else if (o.is(Type::Float)) {
    real(o.number);
  } else {
    class_name("builtins.complex");
    out_ += '(';
    real(o.number);
    real(o.imaginary);
    out_ += "tR";
  }
}

bool Pickler::recall(const void* identity) {
  const auto entry = memo_.find(identity);
  if (entry == memo_.end()) return false;
  out_ += 'j';
  out_.append(reinterpret_cast<const char*>(&entry->second), sizeof entry->second);
  return true;
}

// Readers have a value when it is complete.
void Pickler::remember(const void* identity) {
  const auto index = static_cast<uint32_t>(memo_.size());
  memo_[identity] = index;
  out_ += 'r';
  out_.append(reinterpret_cast<const char*>(&index), sizeof index);
}

void Pickler::value(const Object& o, const Tree* type) {
  if (const auto* object = as<Instance>(o)) return instance(*object);
  if (const auto* member = as<Member>(o)) {
    class_name(member->type.name);
    value(member->value);
    out_ += "\x85R";
  } else if (o.is_none()) {
    out_ += 'N';
  } else if (o.is_number()) {
    number(o);
  } else if (o.is(Type::String)) {
    text(o.text());
  } else if (o.is(Type::Tensor)) {
    tensor(o.tensor);
  } else if (o.is(Type::Device)) {
    class_name("torch.device");
    text(definitions::show(o, false));
    out_ += "\x85R";
  } else {
    container(o, type);
  }
}

// ---------------------------------------------------------------- containers and objects

void Pickler::container(const Object& o, const Tree* type) {
  FL_CHECK_KIND(o.is_sequence() || o.is(Type::Dict), Type,
                "[jit.save] expected a value that archives can hold, got ", type_name(o));
  const void* identity = o.heap.get();
  if (recall(identity)) return;
  const Inside inside(*this, identity);
  if (o.is(Type::List))
    list(o, type);
  else if (o.is(Type::Dict))
    dict(o, type);
  else
    tuple(o, type);
  remember(identity);
}

void Pickler::list(const Object& o, const Tree* type) {
  const Tree* element = parameter_of(type, "List");
  const std::string of = element ? type_text(*element) : common_type(o.items(), name_of_, "Tensor");
  const char* tag = of == "int"      ? "build_intlist"
                    : of == "float"  ? "build_doublelist"
                    : of == "bool"   ? "build_boollist"
                    : of == "Tensor" ? "build_tensorlist"
                                     : nullptr;
  class_name(std::string("torch.jit._pickle.") + (tag ? tag : "restore_type_tag"));
  out_ += tag ? "(](" : "](";
  for (const Object& item : o.items()) value(item, element);
  out_ += 'e';
  if (tag) {
    out_ += "tR";
  } else {
    text("List[" + of + "]");
    out_ += "\x86R";
  }
}

void Pickler::dict(const Object& o, const Tree* type) {
  const Tree* parts = parameter_of(type, "Dict");
  const Tree *key = part_of(parts, 0), *item = part_of(parts, 1);
  class_name("torch.jit._pickle.restore_type_tag");
  out_ += "}(";
  for (size_t i = 0; i < o.items().size(); ++i) {
    value(o.items()[i], key);
    value(o.heap->values[i], item);
  }
  out_ += 'u';
  text(parts ? "Dict[" + type_text(*parts) + "]" : type_text(o, name_of_));
  out_ += "\x86R";
}

void Pickler::tuple(const Object& o, const Tree* type) {
  const Tree* parts = parameter_of(type, "Tuple");
  const bool named = !o.heap->names.empty();
  if (named) class_name(o.heap->text);
  out_ += '(';
  for (size_t i = 0; i < o.items().size(); ++i)
    value(o.items()[i], o.items().size() == 1 ? parts : part_of(parts, i));
  out_ += named ? "tR" : "t";
}

void Pickler::instance(const Instance& o) {
  if (recall(&o)) return;
  const Inside inside(*this, &o);
  class_name(name_of_(o));
  out_ += ")\x81";
  if (o.type.method("__getstate__") && o.type.method("__setstate__")) {
    value(call_method(foreign(const_cast<Instance*>(&o)), "__getstate__", {}));
  } else {
    out_ += "}(";
    for (size_t i = 0; i < o.values.size(); ++i) {
      text(o.type.attributes[i]);
      value(o.values[i], i < o.type.types.size() ? &o.type.types[i] : nullptr);
    }
    out_ += 'u';
  }
  out_ += 'b';
  remember(&o);
}

// ---------------------------------------------------------------- tensors

void Pickler::tensor(const Tensor& original) {
  if (recall(original.impl())) return;
  alive_.push_back(original);
  const char* name = storage_name(original.dtype());
  FL_CHECK_KIND(!original->sparse && name != nullptr, Type,
                "[jit.save] expected dense tensors of a dtype that archives have, got ",
                name_of(original.dtype()));
  FL_CHECK(original->storage && original.device().type != DeviceType::Meta,
           "[jit.save] expected a tensor with elements, got one without");
  Tensor t = autograd::detach(original);
  if (!(t->keys & kDeferred).empty()) t = definitions::call("clone", {Object(t)}).tensor;
  const auto count = static_cast<int64_t>(t->storage->bytes / static_cast<size_t>(size_of(t.dtype())));
  const auto [entry, fresh] = keys_.try_emplace({t->storage.get(), t.dtype()}, storages_.size());
  if (fresh) {
    const int64_t stride = 1;
    Tensor whole = alias(t, IntSpan(&count, 1), IntSpan(&stride, 1), 0);
    if (t.device().type != DeviceType::CPU)
      whole = definitions::call(*definitions::find_method("cpu"), {Object(whole)}).tensor;
    storages_.push_back(whole);
    alive_.push_back(t);
  }
  class_name("torch._utils._rebuild_tensor_v2");
  out_ += "((";
  text("storage");
  class_name(name);
  text(std::to_string(entry->second));
  text(definitions::show(Object(t.device()), false));
  integer(count);
  out_ += "tQ";
  integer(t->offset);
  integers(t.sizes());
  integers(t.strides());
  out_ += original.requires_grad() ? '\x88' : '\x89';
  class_name("collections.OrderedDict");
  out_ += ")RtR";
  remember(original.impl());
}

void Pickler::add_to(runtime::ArchiveWriter& archive, const std::string& name,
                     const std::string& folder) const {
  for (size_t i = 0; i < storages_.size(); ++i) {
    const Tensor& whole = storages_[i];
    archive.add(folder + "/" + std::to_string(i), whole->data(),
                static_cast<size_t>(whole.numel()) * static_cast<size_t>(size_of(whole.dtype())));
  }
  archive.add(name, out_ + '.');
}

}  // namespace fl::script

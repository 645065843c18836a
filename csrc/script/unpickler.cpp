// Pickles of archives. Only what archives need can be made: plain values, tensors on storages of the archive,
// and objects of the classes of its code. Nothing of the file is called but `__setstate__` of such classes.
#include <cstring>

#include "autograd/node.h"
#include "definitions/operations.h"
#include "runtime/dlpack.h"
#include "script/pickler.h"

namespace fl::script {
namespace {

struct StorageName {
  const char* name;
  DType dtype;
};
constexpr StorageName kStorages[] = {
    {"torch.FloatStorage", DType::Float},
    {"torch.DoubleStorage", DType::Double},
    {"torch.HalfStorage", DType::Half},
    {"torch.BFloat16Storage", DType::BFloat16},
    {"torch.LongStorage", DType::Int64},
    {"torch.IntStorage", DType::Int32},
    {"torch.ShortStorage", DType::Int16},
    {"torch.CharStorage", DType::Int8},
    {"torch.ByteStorage", DType::UInt8},
    {"torch.BoolStorage", DType::Bool},
    {"torch.ComplexFloatStorage", DType::ComplexFloat},
    {"torch.ComplexDoubleStorage", DType::ComplexDouble},
};

class Unpickler {
 public:
  Unpickler(const runtime::Archive& archive, const std::string& member, std::string folder,
            const std::shared_ptr<Program>& program)
      : archive_(archive), folder_(std::move(folder)), program_(program) {
    const runtime::Archive::Member& bytes = archive.checked(member);
    data_ = bytes.data;
    size_ = bytes.size;
  }

  Object run() {
    for (;;) {
      const auto code = static_cast<unsigned char>(*bytes(1));
      if (code == '.') return pop();
      if (!simple(code) && !container(code)) structural(code);
    }
  }

 private:
  // ---------------------------------------------------------------- bytes and stack

  const char* bytes(size_t count) {
    FL_CHECK(count <= size_ - at_, "[jit.load] expected a whole pickle, got one that ends early");
    const char* here = data_ + at_;
    at_ += count;
    return here;
  }
  template <class T>
  T little() {
    T value;
    std::memcpy(&value, bytes(sizeof(T)), sizeof(T));
    return value;
  }
  std::string line() {
    const void* end = std::memchr(data_ + at_, '\n', size_ - at_);
    FL_CHECK(end != nullptr, "[jit.load] expected the end of a name in a pickle");
    const size_t length = static_cast<size_t>(static_cast<const char*>(end) - (data_ + at_));
    std::string text(bytes(length), length);
    bytes(1);
    return text;
  }
  void push(Object value) {
    FL_CHECK(stack_.size() < (size_t(1) << 24), "[jit.load] expected a pickle with fewer values");
    stack_.push_back(std::move(value));
  }
  Object pop() {
    FL_CHECK(!stack_.empty() && (marks_.empty() || stack_.size() > marks_.back()),
             "[jit.load] expected a value on the stack of a pickle, got none");
    Object top = std::move(stack_.back());
    stack_.pop_back();
    return top;
  }
  Object& top() {
    FL_CHECK(!stack_.empty(), "[jit.load] expected a value on the stack of a pickle, got none");
    return stack_.back();
  }
  Objects pop_to_mark() {
    FL_CHECK(!marks_.empty() && marks_.back() <= stack_.size(), "[jit.load] expected a mark in a pickle");
    const auto first = stack_.begin() + static_cast<ptrdiff_t>(marks_.back());
    Objects items(std::make_move_iterator(first), std::make_move_iterator(stack_.end()));
    stack_.erase(first, stack_.end());
    marks_.pop_back();
    return items;
  }
  Objects pop_several(size_t count) {
    Objects items(count);
    for (size_t i = count; i-- > 0;) items[i] = pop();
    return items;
  }

  // ---------------------------------------------------------------- operations

  bool simple(unsigned char code) {
    switch (code) {
      case 0x80:  // PROTO
        bytes(1);
        return true;
      case 'N':
        return push(Object()), true;
      case 0x88:
        return push(Object(true)), true;
      case 0x89:
        return push(Object(false)), true;
      case 'J':
        return push(Object(int64_t(little<int32_t>()))), true;
      case 'K':
        return push(Object(int64_t(little<uint8_t>()))), true;
      case 'M':
        return push(Object(int64_t(little<uint16_t>()))), true;
      case 0x8a:
        return push(long_integer()), true;
      case 'G': {
        uint64_t bits = __builtin_bswap64(little<uint64_t>());
        double value = 0;
        std::memcpy(&value, &bits, sizeof value);
        return push(Object(value)), true;
      }
      case 'X':
      case 'T': {
        const auto length = little<uint32_t>();
        return push(Object(std::string(bytes(length), length))), true;
      }
      case 'U': {
        const auto length = little<uint8_t>();
        return push(Object(std::string(bytes(length), length))), true;
      }
      default:
        return false;
    }
  }

  Object long_integer() {
    const auto length = little<uint8_t>();
    FL_CHECK(length <= 8, "[jit.load] expected an integer of 64 bits in a pickle, got ", int(length),
             " bytes");
    uint64_t value = 0;
    const char* digits = bytes(length);
    std::memcpy(&value, digits, length);
    if (length > 0 && length < 8 && (digits[length - 1] & 0x80)) value |= ~uint64_t(0) << (8 * length);
    return Object(static_cast<int64_t>(value));
  }

  bool container(unsigned char code) {
    switch (code) {
      case '(':
        marks_.push_back(stack_.size());
        return true;
      case ')':
        return push(Object::tuple({})), true;
      case ']':
        return push(Object::list({})), true;
      case '}':
        return push(Object::of(Type::Dict, {})), true;
      case 't':
        return push(Object::tuple(pop_to_mark())), true;
      case 0x85:
      case 0x86:
      case 0x87:
        return push(Object::tuple(pop_several(code - 0x84U))), true;
      case 'a':
        return append(pop_several(1)), true;
      case 'e':
        return append(pop_to_mark()), true;
      case 's':
        return set_items(pop_several(2)), true;
      case 'u':
        return set_items(pop_to_mark()), true;
      default:
        return false;
    }
  }

  void append(Objects items) {
    FL_CHECK(top().is(Type::List), "[jit.load] expected a list in a pickle, got ", type_name(top()));
    Objects& list = top().heap->items;
    list.insert(list.end(), std::make_move_iterator(items.begin()), std::make_move_iterator(items.end()));
  }

  void set_items(const Objects& items) {
    FL_CHECK(top().is(Type::Dict) && items.size() % 2 == 0, "[jit.load] expected a dict in a pickle, got ",
             type_name(top()));
    for (size_t i = 0; i < items.size(); i += 2) definitions::set_item(top(), items[i], items[i + 1]);
  }

  void structural(unsigned char code) {
    switch (code) {
      case 'q':
        memo_[little<uint8_t>()] = top();
        return;
      case 'r':
        memo_[little<uint32_t>()] = top();
        return;
      case 'h':
        return recall(little<uint8_t>());
      case 'j':
        return recall(little<uint32_t>());
      case 'c': {
        const std::string module = line();
        return push(Object::class_named(module + "." + line()));
      }
      case 'Q':
        return push(storage(pop()));
      case 'R': {
        const Object arguments = pop(), function = pop();
        return push(reduce(function, arguments));
      }
      case 0x81: {
        pop();
        return push(new_object(pop()));
      }
      case 'b': {
        const Object state = pop();
        return build(state);
      }
      default:
        fail("[jit.load] expected an operation of pickles of archives, got ", int(code));
    }
  }

  void recall(uint32_t index) {
    const auto entry = memo_.find(index);
    FL_CHECK(entry != memo_.end(), "[jit.load] expected a value that the pickle made, got number ", index);
    push(entry->second);
  }

  // ---------------------------------------------------------------- tensors

  Object storage(const Object& id) {
    FL_CHECK(id.is(Type::Tuple) && id.items().size() == 5 && id.items()[1].is(Type::Class) &&
                 id.items()[2].is(Type::String) && id.items()[4].is(Type::Int),
             "[jit.load] expected the description of a storage, got ", type_name(id));
    const std::string& key = id.items()[2].text();
    const std::string& kind = id.items()[1].text();
    const StorageName* row = nullptr;
    for (const StorageName& one : kStorages)
      if (kind == one.name) row = &one;
    FL_CHECK(row != nullptr, "[jit.load] expected a storage of a known dtype, got ", kind);
    const auto known = storages_.find(key);
    if (known != storages_.end()) return known->second;
    const runtime::Archive::Member* member = archive_.find(folder_ + "/" + key);
    FL_CHECK(member != nullptr, "[jit.load] expected the data ", key, ", got an archive without it");
    const int64_t count = id.items()[4].integer;
    FL_CHECK(
        count >= 0 && static_cast<uint64_t>(count) <= member->size / static_cast<size_t>(size_of(row->dtype)),
        "[jit.load] expected ", count, " elements, got ", member->size, " bytes");
    Tensor tensor;
    if (reinterpret_cast<uintptr_t>(member->data) % 16 == 0) {
      tensor = runtime::tensor_on(member->data, row->dtype, &count, nullptr, 1,
                                  [bytes = archive_.bytes()](void*) mutable { bytes.reset(); });
    } else {
      tensor = empty(IntSpan(&count, 1), {row->dtype, Device{}});
      std::memcpy(tensor.raw(), member->data,
                  static_cast<size_t>(count) * static_cast<size_t>(size_of(row->dtype)));
    }
    return storages_[key] = Object(tensor);
  }

  static std::vector<int64_t> integers(const Object& o) {
    FL_CHECK(o.is_sequence() && o.items().size() <= 64, "[jit.load] expected sizes, got ", type_name(o));
    std::vector<int64_t> all;
    for (const Object& one : o.items()) {
      FL_CHECK(one.is(Type::Int) && one.integer >= 0, "[jit.load] expected sizes, got ", type_name(one));
      all.push_back(one.integer);
    }
    return all;
  }

  static Object tensor(const Objects& a) {
    FL_CHECK(a.size() >= 5 && a[0].is(Type::Tensor) && a[1].is(Type::Int) && a[1].integer >= 0,
             "[jit.load] expected a storage and an offset, got others");
    const std::vector<int64_t> sizes = integers(a[2]), strides = integers(a[3]);
    FL_CHECK(sizes.size() == strides.size(), "[jit.load] expected a stride for each size");
    // The last element must lie inside of the storage.
    int64_t last = a[1].integer;
    bool empty = false;
    for (size_t d = 0; d < sizes.size(); ++d) {
      empty |= sizes[d] == 0;
      int64_t reach = 0;
      FL_CHECK(sizes[d] == 0 || (!__builtin_mul_overflow(sizes[d] - 1, strides[d], &reach) &&
                                 !__builtin_add_overflow(last, reach, &last)),
               "[jit.load] expected a tensor inside of its storage, got strides beyond it");
    }
    FL_CHECK(empty || last < a[0].tensor.numel(), "[jit.load] expected a tensor inside of its storage of ",
             a[0].tensor.numel(), " elements, got one that needs ", last);
    Tensor tensor = alias(a[0].tensor, IntSpan(sizes), IntSpan(strides), a[1].integer);
    if (a[4].is(Type::Bool) && a[4].integer && (is_floating(tensor.dtype()) || is_complex(tensor.dtype())))
      autograd::set_requires_grad(tensor, true);
    return Object(tensor);
  }

  // ---------------------------------------------------------------- objects

  Object reduce(const Object& function, const Object& argument) {
    FL_CHECK(function.is(Type::Class), "[jit.load] expected a function in a pickle, got ",
             type_name(function));
    const std::string& name = function.text();
    const Objects a = argument.is(Type::Tuple) ? argument.items() : Objects{argument};
    if (name == "torch._utils._rebuild_tensor_v2") return tensor(a);
    if (name == "torch._utils._rebuild_parameter") {
      FL_CHECK(!a.empty() && a[0].is(Type::Tensor), "[jit.load] expected a tensor for a parameter");
      return a[0];
    }
    if (name == "collections.OrderedDict") return Object::of(Type::Dict, {});
    if (name == "torch.device" || name == "builtins.complex")
      return call_operator(*find_callee("aten", name == "torch.device" ? "device" : "Complex"), a, {});
    if (name.rfind("torch.jit._pickle.", 0) == 0) {
      FL_CHECK(!a.empty(), "[jit.load] expected an argument of ", name);
      return a[0];
    }
    const Class* type = program_->find_class(name);
    FL_CHECK(type != nullptr, "[jit.load] expected a function that pickles of archives may call, got ", name);
    if (type->kind == Class::Kind::Enum) {
      FL_CHECK(!a.empty(), "[jit.load] expected a value of ", name);
      return enum_member(*type, a[0]);
    }
    const bool nested = a.size() == 1 && a[0].is(Type::Tuple) && type->attributes.size() != 1;
    return named_tuple(*type, nested ? Objects(a[0].items()) : a);
  }

  Object new_object(const Object& of) {
    FL_CHECK(of.is(Type::Class), "[jit.load] expected a class in a pickle, got ", type_name(of));
    const Class* type = program_->find_class(of.text());
    FL_CHECK(type != nullptr, "[jit.load] expected a class of the archive, got ", of.text());
    return new_instance(program_, *type);
  }

  void build(const Object& state) {
    const Object& object = top();
    if (object.is(Type::Dict)) return;  // what Python keeps beside the items of a state_dict
    const auto* instance = as<Instance>(object);
    FL_CHECK(instance != nullptr, "[jit.load] expected an object with a state, got ", type_name(object));
    if (instance->type.method("__setstate__") && instance->type.method("__getstate__")) {
      call_method(object, "__setstate__", {state});
      return;
    }
    FL_CHECK(state.is(Type::Dict), "[jit.load] expected the attributes of ", instance->type.name, ", got ",
             type_name(state));
    for (size_t i = 0; i < state.items().size(); ++i) {
      FL_CHECK(state.items()[i].is(Type::String), "[jit.load] expected names of attributes");
      set_attribute(object, state.items()[i].text(), state.heap->values[i]);
    }
  }

  const runtime::Archive& archive_;
  std::string folder_;
  const std::shared_ptr<Program>& program_;
  const char* data_ = nullptr;
  size_t size_ = 0, at_ = 0;
  Objects stack_;
  std::vector<size_t> marks_;
  std::map<uint32_t, Object> memo_;
  std::map<std::string, Object> storages_;
};

}  // namespace

const char* storage_name(DType dtype) {
  for (const StorageName& row : kStorages)
    if (row.dtype == dtype) return row.name;
  return nullptr;
}

Object unpickle(const runtime::Archive& archive, const std::string& member, const std::string& folder,
                const std::shared_ptr<Program>& program) {
  return Unpickler(archive, member, folder, program).run();
}

}  // namespace fl::script

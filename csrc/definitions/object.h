// Values of definitions while they are evaluated: those of Python that definitions use.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"
#include "definitions/node.h"
#include "dispatch/operator.h"

namespace fl::definitions {

using fl::Operator;
struct Object;
using Objects = std::vector<Object>;
using Keywords = std::vector<std::pair<std::string, Object>>;
struct Environment;
using Native = std::function<Object(const Objects& positional, const Keywords& keywords)>;

enum class Type : uint8_t {
  None,
  Bool,
  Int,
  Float,
  Complex,
  String,
  Tensor,
  List,
  Tuple,
  Dict,
  Set,
  DType,
  Device,
  Layout,
  MemoryFormat,
  Slice,
  Ellipsis,
  Function,   // of the definitions, with the variables around it
  Native,     // of this library
  Class,      // int, Tensor, ...: a name
  Blueprint,  // a class of the definitions
  Instance,   // of such a class
  Foreign,    // an object of another language
};

// What containers and functions refer to; assignment shares it, as in Python.
struct Heap {
  std::string text;
  Objects items;                   // of lists and tuples; keys of dicts and sets
  Objects values;                  // of dicts
  std::vector<std::string> names;  // of the items of a tuple with names
  const Node* function = nullptr;  // of functions
  std::shared_ptr<Environment> scope;
  Native native;
};

struct Object {
  Type type = Type::None;
  union {
    int64_t integer = 0;
    double number;
  };
  double imaginary = 0;
  fl::Tensor tensor;
  std::shared_ptr<Heap> heap;
  Ref<Opaque> foreign;

  Object() = default;
  Object(bool v) : type(Type::Bool), integer(v) {}
  Object(int64_t v) : type(Type::Int), integer(v) {}
  Object(int v) : type(Type::Int), integer(v) {}
  Object(size_t v) : type(Type::Int), integer(static_cast<int64_t>(v)) {}
  Object(double v) : type(Type::Float), number(v) {}
  Object(fl::Tensor t) : type(t.defined() ? Type::Tensor : Type::None), tensor(std::move(t)) {}
  Object(DType t) : type(Type::DType), integer(static_cast<int64_t>(t)) {}
  Object(Device d) : type(Type::Device), integer(static_cast<int64_t>(d.type) * 256 + (d.index & 255)) {}
  Object(const char* s) : Object(std::string(s)) {}
  Object(std::string s) : type(Type::String), heap(std::make_shared<Heap>()) { heap->text = std::move(s); }
  Object(std::string_view s) : Object(std::string(s)) {}
  static Object of(Type type, Objects items) {
    Object object;
    object.type = type;
    object.heap = std::make_shared<Heap>();
    object.heap->items = std::move(items);
    return object;
  }
  static Object list(Objects items) { return of(Type::List, std::move(items)); }
  static Object tuple(Objects items) { return of(Type::Tuple, std::move(items)); }
  static Object ints(IntSpan values) {
    Objects items(values.begin(), values.end());
    return tuple(std::move(items));
  }
  static Object native(Native f) {
    Object native = of(Type::Native, {});
    native.heap->native = std::move(f);
    return native;
  }
  static Object enumerator(Type type, int64_t value) {
    Object object;
    object.type = type;
    object.integer = value;
    return object;
  }
  static Object class_named(std::string name) {
    Object made(std::move(name));
    made.type = Type::Class;
    return made;
  }

  bool is(Type t) const { return type == t; }
  bool is_none() const { return type == Type::None; }
  bool is_integer() const { return type == Type::Int || type == Type::Bool; }
  bool is_number() const { return type >= Type::Bool && type <= Type::Complex; }
  bool is_sequence() const { return type == Type::List || type == Type::Tuple; }
  // Empty where there is none.
  const std::string& text() const { return heap ? heap->text : nothing().text; }
  const Objects& items() const { return heap ? heap->items : nothing().items; }
  double to_double() const {
    return type == Type::Float || type == Type::Complex ? number : static_cast<double>(integer);
  }
  DType dtype() const { return static_cast<DType>(integer); }
  Device device() const {
    return Device{static_cast<DeviceType>(integer / 256), static_cast<int8_t>(integer & 255)};
  }
  Scalar scalar() const;

 private:
  static const Heap& nothing();
};

// Any value on its way through the dispatcher.
struct Carried final : Opaque {
  explicit Carried(Object o) : object(std::move(o)) {}
  Object object;
};

Object from_value(const Value& value);
Object from_scalar(const Scalar& scalar);
// As Python's bool(), ==, str() and repr().
bool truth(const Object& o);
bool same(const Object& a, const Object& b);
std::string show(const Object& o, bool quoted);
const char* type_name(const Object& o);
// What a for loop over the object sees.
Objects iterate(const Object& o);

// ---------------------------------------------------------------- calls of operators (calls.cpp)

struct Packet {
  std::vector<Operator*> overloads;
};
// Functions as modules have them ("linalg.det", "nn.functional.pad", "relu"), methods of tensors, and
// operators by the name of their schema; null where there is none.
const Packet* find_function(const std::string& name);
const Packet* find_method(const std::string& name);
const Packet* find_operator(const std::string& name);
// Calls the first overload that takes the arguments.
Object call(const Packet& packet, const Objects& positional, const Keywords& keywords = {});
Object call(const Operator& op, Value* arguments);
// Calls by name: a function, else an operator.
Object call(const std::string& name, const Objects& positional, const Keywords& keywords = {});

// ---------------------------------------------------------------- tensors (tensors.cpp)

Object tensor_attribute(const fl::Tensor& t, const std::string& name);
Object index(const fl::Tensor& t, const Object& key);
void assign_index(const fl::Tensor& t, const Object& key, const Object& value);
fl::Tensor as_tensor(const Object& data, const Object& dtype, const Object& device);

// ---------------------------------------------------------------- evaluation (interpreter.cpp)

// Evaluates a function of the definitions by "module:name".
Object evaluate(const std::string& name, const Objects& positional, const Keywords& keywords = {});
Object invoke(const Object& callable, const Objects& positional, const Keywords& keywords = {});
Object attribute(const Object& o, const std::string& name);
Object instance_attribute(const Object& instance, const std::string& name);
// A function or constant that is not written in the definitions: of the library, of math, of Python
// (globals.cpp).
Object find_global(const std::string& module, const std::string& name);

// Runs the definition of a built-in operator.
void run_definition(const Operator& op, const BuiltinOperator& row, Value* args, Value* results);

// Makes the definitions the kernels and derivatives of operators that have no others. Idempotent.
void install();

}  // namespace fl::definitions

// A program: the functions and classes of an archive, and the objects that are made of them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/archive.h"
#include "runtime/archive_writer.h"
#include "script/tree.h"

namespace fl::script {

struct Program {
  std::map<std::string, std::unique_ptr<Class>, std::less<>> classes;
  std::map<std::string, std::unique_ptr<Function>, std::less<>> functions;
  Objects constants;     // CONSTANTS.c0, ...
  int64_t version = 10;  // of the format: operators have the meaning they had then
  // Of a program that was loaded: its files by their paths, which an archive is written with.
  std::vector<std::pair<std::string, std::string>> sources;

  const Class* find_class(std::string_view name) const;
  const Function* find_function(std::string_view name) const;
  // Gives calls and paths their meaning; raises where a name has none.
  void link();
};

// An object of a class of the program: a module, or an instance of a scripted class.
struct Instance final : Opaque {
  Instance(std::shared_ptr<Program> program, const Class& type)
      : program(std::move(program)), type(type), values(type.attributes.size()) {}

  std::shared_ptr<Program> program;
  const Class& type;
  Objects values;  // of type.attributes
};

// A member of an enumeration.
struct Member final : Opaque {
  Member(const Class& type, std::string name, Object value)
      : type(type), name(std::move(name)), value(std::move(value)) {}

  const Class& type;
  std::string name;
  Object value;
};

// A function as a value: of the program, or a closure over the variables of another one.
struct FunctionValue final : Opaque {
  const Function* function = nullptr;
  const Tree* body = nullptr;  // of a closure
  Objects variables;
};

Object foreign(Opaque* object);
template <class T>
T* as(const Object& o) {
  return o.is(Type::Foreign) ? dynamic_cast<T*>(o.foreign.get()) : nullptr;
}

// Objects of the program that `type` belongs to.
Object new_instance(const std::shared_ptr<Program>& program, const Class& type);
Object enum_member(const Class& type, std::string_view name);
Object enum_member(const Class& type, const Object& value);
Object named_tuple(const Class& type, Objects items);

// Attributes of instances, members of enumerations, fields of named tuples, and constants of classes.
Object get_attribute(const Object& o, std::string_view name);
void set_attribute(const Object& o, std::string_view name, Object value);

// Whether a value is of a type, written as a tree.
bool is_instance(const Object& value, const Tree& type);

// ---------------------------------------------------------------- running (machine.cpp)

// Calls a function with arguments by position and by name; missing ones take their defaults.
Object call(const std::shared_ptr<Program>& program, const Function& function, Objects positional,
            const Keywords& keywords = {});
Object call_method(const Object& instance, std::string_view name, Objects positional,
                   const Keywords& keywords = {});
// Waits for what a fork computes.
Object wait(const Object& future);

// ---------------------------------------------------------------- operators (operators.cpp, rows.cpp)

using Plain = Object (*)(const Objects& arguments);

// What the name of an operator stands for, on plain values and on tensors.
struct Callee {
  std::string name;                             // as aten::add
  Plain plain = nullptr;                        // on numbers, strings, lists and dicts
  bool always = false;                          // plain takes tensors as well
  bool form = false;                            // a function of flambeau/jit/_aten_forms.py
  const definitions::Packet* packet = nullptr;  // overloads of this library
};

// Lives as long as the process; null where there is no such operator.
const Callee* find_callee(const std::string& space, const std::string& name);
Object call_operator(const Callee& callee, const Objects& positional, const Keywords& keywords);
// The row of `name` on plain values; `always` says whether it takes tensors too.
Plain find_plain(const std::string& name, bool& always);
std::string to_text(const Object& o);

// ---------------------------------------------------------------- archives (unpickler.cpp, load.cpp,
// save.cpp)

// Reads a pickle of an archive: plain values, tensors, and objects of the program's classes.
Object unpickle(const runtime::Archive& archive, const std::string& member, const std::string& folder,
                const std::shared_ptr<Program>& program);
// The module of an archive.
Object load(std::shared_ptr<const runtime::Bytes> bytes);
// A file beside the program that the writer asked to hold; false where there is none.
bool extra_file(const std::shared_ptr<const runtime::Bytes>& bytes, const std::string& name,
                std::string& content);

struct Attribute {
  enum class Role { Plain, Parameter, Buffer };
  std::string name;
  Object value;
  Role role;
};
// A module without code.
Object module_of(std::vector<Attribute> attributes);
// Writes the archive of a module, and files beside it.
void save(const Object& module, const std::vector<std::pair<std::string, std::string>>& extra_files,
          const runtime::Sink& sink);
// The same for plain values, tensors and containers of them, as torch.save writes them in Python.
void save_value(const Object& value, const runtime::Sink& sink);
Object load_value(std::shared_ptr<const runtime::Bytes> bytes);

}  // namespace fl::script

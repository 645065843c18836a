// Trees of TorchScript source: what archives hold in code/, parsed. Variables are numbered inside of each
// function.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "definitions/object.h"

namespace fl::script {

using definitions::Keywords;
using definitions::Object;
using definitions::Objects;
using definitions::Type;

enum class Op : uint8_t {
  Constant,   // constant
  Local,      // slot
  Path,       // text: a dotted name that is no variable, until it is linked
  Attribute,  // text of children[0]
  Call,       // children[0] with the others; names has the keywords
  Subscript,  // children[0][children[1]]
  Slice,      // children: start, end, step
  List,       // children
  Tuple,      // children
  Dict,       // children: key, value, key, value ...
  Binary,     // text: the name of Python's syntax node
  Unary,      // text: Not, USub, Invert
  Compare,    // text: Eq, Lt, Is ...
  And,        // children
  Or,         // children
  Condition,  // children: test, then, else
  Block,      // children
  Assign,     // children: value, then targets
  If,         // children: test, then, else
  While,      // children: test, body
  For,        // children: target, what is iterated, body
  With,       // children: managers, body
  Return,     // children[0], if any
  Pass,       //
  Define,     // slot: a function inside of a function, body in children[0]
  // What linking makes of calls and paths:
  Operator,    // children: arguments; callee
  Method,      // text of children[0]; the others are arguments
  Function,    // function; children: arguments
  Construct,   // type; children: arguments of a named tuple
  New,         // type: an object without attributes
  Annotate,    // children: type, value
  Cast,        // children[1]
  IsInstance,  // children: value, type
  Fork,        // children: function, arguments
  Awaitable,   // children: function, arguments
  Print,       // children
};

struct Tree;
struct Function;
struct Class;
struct Callee;

struct Tree {
  Op op = Op::Pass;
  int32_t slot = -1;
  int32_t line = 0;
  std::string text;
  Object constant;
  std::vector<Tree> children;
  std::vector<std::string> names;  // of arguments; "" by position
  const Callee* callee = nullptr;
  const Function* function = nullptr;
  const Class* type = nullptr;
};

struct Parameter {
  std::string name;
  Tree type;
  bool has_default = false;
  Tree default_value;
};

struct Function {
  std::string name;  // qualified
  std::string file;
  std::vector<Parameter> parameters;
  Tree body;
  int32_t slots = 0;
};

struct Program;

struct Class {
  enum class Kind { Module, Object, NamedTuple, Enum, Interface };

  std::string name;  // qualified
  Kind kind = Kind::Object;
  Program* program = nullptr;
  std::vector<std::string> attributes;  // in the order of their declaration
  std::vector<Tree> types;              // of the attributes
  std::vector<std::string> parameters, buffers, hooks, pre_hooks;
  std::vector<std::pair<std::string, Tree>> constants;  // Final attributes; members of enumerations
  std::vector<std::unique_ptr<Function>> methods;

  // The position of an attribute, or -1.
  int32_t position(std::string_view attribute) const;
  const Function* method(std::string_view name) const;
};

// Parses one file of code/; `module` is its dotted path. Functions and classes are added to the program.
void parse_file(std::string_view text, const std::string& module, Program& program);

}  // namespace fl::script

// Trees of definitions that tools/generate_definitions.py writes from Python.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace fl::definitions {

// tools/generate_definitions.py has the same order.
enum class Kind : uint8_t {
  Absent,
  Int,
  Float,
  Imaginary,
  String,
  None,
  True,
  False,
  Ellipsis,
  Local,
  Global,
  Attribute,
  Call,
  Keyword,
  Binary,
  Unary,
  And,
  Or,
  Compare,
  Condition,
  Subscript,
  Slice,
  Tuple,
  List,
  Dict,
  Set,
  Comprehension,
  Generator,
  Join,
  Format,
  Starred,
  Lambda,
  Walrus,
  Function,
  Parameter,
  Return,
  Assign,
  Augment,
  If,
  For,
  While,
  Break,
  Continue,
  Pass,
  Raise,
  With,
  Try,
  Block,
  Each,
  Class,
  Delete,
};

struct Node {
  Kind kind = Kind::Absent;
  std::string_view text;
  int64_t integer = 0;  // of Int
  double number = 0;    // of Float and Imaginary
  std::vector<Node> children;
};

struct DefinitionEntry {
  const char* name;  // module:function
  size_t offset;
};

extern const char definition_strings[];
extern const size_t definition_strings_size;
extern const char definition_bytes[];
extern const size_t definition_bytes_size;
extern const DefinitionEntry definition_entries[];  // sorted by name
extern const size_t definition_count;

// The tree of a function or constant, read at its first use; null where there is none.
const Node* find_definition(std::string_view name);

}  // namespace fl::definitions

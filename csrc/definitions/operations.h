// What operators of Python do with values: arithmetic, comparison, items.
#pragma once

#include "definitions/object.h"

namespace fl::definitions {

// By the name of the syntax node: Add, FloorDiv, BitAnd, ...
Object binary(std::string_view name, const Object& left, const Object& right);
Object augmented(std::string_view name, const Object& left, const Object& right);
Object unary(std::string_view name, const Object& operand);
Object compare(std::string_view name, const Object& left, const Object& right);
Object item_of(const Object& container, const Object& key);
void set_item(Object& container, const Object& key, const Object& value);

}  // namespace fl::definitions

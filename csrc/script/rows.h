// Rows of operators on plain values, and the arguments that they check: calls come from files.
#pragma once

#include <map>
#include <string>

#include "definitions/operations.h"
#include "script/program.h"

namespace fl::script {

struct Row {
  Plain run;
  bool always = false;  // takes tensors as well
};
using Rows = std::map<std::string, Row>;

const Rows& number_rows();
const Rows& text_rows();
const Rows& container_rows();
const Rows& tensor_rows();

// ---------------------------------------------------------------- arguments

[[noreturn]] void refuse(const char* expected, const Objects& a, size_t i);
const Object& any(const Objects& a, size_t i);
const Object& number(const Objects& a, size_t i);
int64_t integer(const Objects& a, size_t i);
int64_t integer(const Objects& a, size_t i, int64_t fallback);
double real(const Objects& a, size_t i);
const std::string& text(const Objects& a, size_t i);
std::string text(const Objects& a, size_t i, const char* fallback);
Objects& list(const Objects& a, size_t i);
const Object& dict(const Objects& a, size_t i);
const Tensor& tensor(const Objects& a, size_t i);

size_t position(int64_t index, size_t count);
// Equal as values: tensors by their elements.
bool equal(const Object& a, const Object& b);
// Python's `<` on numbers, strings, lists and tuples of one kind.
bool less(const Objects& pair);
Object sum_of(const Objects& pair);
Object to_int(const Objects& a);
// Where a string has another one, from the left or from the right; -1 or an error where it has not.
Object find_text(const Objects& a, bool last, bool required);
// As str() shows it, strings inside of containers in quotes.
std::string shown(const Object& o, bool quoted);

}  // namespace fl::script

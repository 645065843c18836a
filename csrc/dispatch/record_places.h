// Where the op records lie in Python, so that one can be read without importing all of them. Written by
// tools/generate.py.
#pragma once

namespace fl {

struct RecordPlace {
  const char* name;    // of the operator, with its overload
  const char* module;  // Python module that holds the record
  const char* base;    // of the gradient of a pointwise record: the name of that record; else ""
};

extern const RecordPlace record_places[];  // sorted by name
extern const int record_place_count;

}  // namespace fl

// Decompositions written in C++: an operator that is defined by calls of other operators, on every device and
// above autograd, as composite records are in Python.
#pragma once

#include "dispatch/kernel.h"

#define FL_COMPOSITE(name, function)                                   \
  static ::fl::detail::Register FL_CONCAT(fl_register_, __COUNTER__) { \
    name, {::fl::Key::Composite}, ::fl::kernel_of<&function>()         \
  }

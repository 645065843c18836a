// The loops of resizing, built for each instruction set (kernels/resize.cpp).
#pragma once

#include "ops/resize.h"

namespace fl {

struct ResizeTable {
  void (*forward)(const ResizeArgs& args);
  void (*backward)(const ResizeArgs& args);
};

}  // namespace fl

// The loops of resizing, built for each instruction set (kernels/resize.cpp).
#pragma once

#include "cpu/engine/arch.h"
#include "ops/resize.h"

namespace fl {

struct ResizeTable {
  void (*forward)(const ResizeArgs& args);
  void (*backward)(const ResizeArgs& args);
};

FL_DECLARE_ARCH(const ResizeTable, resize_table)

}  // namespace fl

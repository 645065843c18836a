// The loops of attention, built for each instruction set (kernels/attention.cpp).
#pragma once

#include "ops/attention_kernel.h"

namespace fl {

struct AttentionTable {
  void (*forward)(const AttentionArgs& args);
  void (*backward)(const AttentionArgs& args);
};

}  // namespace fl

// The loops of attention, built for each instruction set (kernels/attention.cpp).
#pragma once

#include "cpu/engine/arch.h"
#include "ops/attention_kernel.h"

namespace fl {

struct AttentionTable {
  void (*forward)(const AttentionArgs& args);
  void (*backward)(const AttentionArgs& args);
};

FL_DECLARE_ARCH(const AttentionTable, attention_table)

}  // namespace fl

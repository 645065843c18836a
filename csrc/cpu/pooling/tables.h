// The loops of pooling, built for each instruction set (kernels/max_pool.cpp, kernels/average_pool.cpp).
#pragma once

#include "cpu/engine/arch.h"
#include "ops/pooling.h"

namespace fl {

struct MaxPoolTable {
  void (*run)(const PoolArgs& args);
};
struct AveragePoolTable {
  void (*run)(const PoolArgs& args);
  void (*backward)(const PoolArgs& args);
};

FL_DECLARE_ARCH(const MaxPoolTable, max_pool_table)
FL_DECLARE_ARCH(const AveragePoolTable, average_pool_table)

}  // namespace fl

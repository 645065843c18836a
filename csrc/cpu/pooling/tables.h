// The loops of pooling, built for each instruction set (kernels/max_pool.cpp, kernels/average_pool.cpp).
#pragma once

#include "ops/pooling.h"

namespace fl {

struct MaxPoolTable {
  void (*run)(const PoolArgs& args);
};
struct AveragePoolTable {
  void (*run)(const PoolArgs& args);
  void (*backward)(const PoolArgs& args);
};

}  // namespace fl

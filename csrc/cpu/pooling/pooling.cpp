// Attaches the best loops of pooling to its operators.
#include "cpu/engine/arch.h"
#include "cpu/pooling/tables.h"

namespace fl {

FL_DECLARE_ARCH(const MaxPoolTable, max_pool_table);
FL_DECLARE_ARCH(const AveragePoolTable, average_pool_table);

FL_ATTACH(max_pool, CPU, [](const PoolArgs& args, int) { picked_max_pool_table().run(args); });
FL_ATTACH(average_pool, CPU, [](const PoolArgs& args, int) { picked_average_pool_table().run(args); });
FL_ATTACH(average_pool_backward, CPU,
          [](const PoolArgs& args, int) { picked_average_pool_table().backward(args); });

}  // namespace fl

// Attaches the best loops of resizing to interpolation.
#include "cpu/engine/arch.h"
#include "cpu/pooling/resize_table.h"

namespace fl {

FL_DECLARE_ARCH(const ResizeTable, resize_table);

FL_ATTACH(resize, CPU, [](const ResizeArgs& args, bool backward) {
  const ResizeTable& table = picked_resize_table();
  (backward ? table.backward : table.forward)(args);
});

}  // namespace fl

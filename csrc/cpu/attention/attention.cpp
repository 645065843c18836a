// Attaches the best loops of attention to its operators.
#include "cpu/attention/table.h"
#include "cpu/engine/arch.h"

namespace fl {

FL_DECLARE_ARCH(const AttentionTable, attention_table);

FL_ATTACH(attention_forward, CPU, [](const AttentionArgs& args) { picked_attention_table().forward(args); });
FL_ATTACH(attention_backward, CPU,
          [](const AttentionArgs& args) { picked_attention_table().backward(args); });

}  // namespace fl

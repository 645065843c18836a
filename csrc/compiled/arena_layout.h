// Where the blocks of an arena lie: blocks that live at the same time lie apart, others may share bytes.
#pragma once

#include <cstdint>
#include <vector>

namespace fl::compiled {

constexpr int64_t kArenaAlignment = 64;

// Memory from the step that makes it to the last one that touches it.
struct BlockSpan {
  std::vector<int64_t> extents;  // bytes of all that lie there, one after the other
  int first, last;

  int64_t bytes() const;
};

// The offset of each block; returns the bytes that hold them all. The largest come first, each into the
// smallest gap that the blocks around it leave while it lives.
int64_t lay_out_arena(const std::vector<BlockSpan>& blocks, std::vector<int64_t>& offsets);

}  // namespace fl::compiled

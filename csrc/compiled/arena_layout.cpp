#include "compiled/arena_layout.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace fl::compiled {

int64_t BlockSpan::bytes() const {
  return extents.empty() ? 0 : *std::max_element(extents.begin(), extents.end());
}

int64_t lay_out_arena(const std::vector<BlockSpan>& blocks, std::vector<int64_t>& offsets) {
  struct Placed {
    int64_t offset, end;
    int first, last;
  };
  std::vector<int64_t> sizes(blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i)
    sizes[i] = (blocks[i].bytes() + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), size_t(0));
  // By exact bytes, then by time: the order must not depend on rounding.
  std::vector<int64_t> bytes(blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) bytes[i] = blocks[i].bytes();
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return bytes[a] != bytes[b] ? bytes[a] > bytes[b] : blocks[a].first < blocks[b].first;
  });
  offsets.assign(blocks.size(), 0);
  int64_t total = 0;
  std::vector<Placed> placed;  // by offset
  placed.reserve(blocks.size());
  for (size_t i : order) {
    const BlockSpan& block = blocks[i];
    int64_t free = 0, best = -1, room = 0;
    for (const Placed& p : placed) {
      if (p.first > block.last || p.last < block.first) continue;
      const int64_t gap = p.offset - free;
      if (gap >= sizes[i] && (best < 0 || gap < room)) {
        best = free;
        room = gap;
      }
      free = std::max(free, p.end);
    }
    const int64_t at = best < 0 ? free : best;
    offsets[i] = at;
    total = std::max(total, at + sizes[i]);
    const Placed mine{at, at + sizes[i], block.first, block.last};
    const auto before = [](const Placed& a, const Placed& b) {
      return std::tie(a.offset, a.end, a.first, a.last) < std::tie(b.offset, b.end, b.first, b.last);
    };
    placed.insert(std::upper_bound(placed.begin(), placed.end(), mine, before), mine);
  }
  return total;
}

}  // namespace fl::compiled

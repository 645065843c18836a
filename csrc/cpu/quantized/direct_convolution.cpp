// Convolutions of eight bits without gathered windows: see convolution.h.
//
// Kernels read the activations themselves: rows of a tile are neighbouring positions of an output line, and
// the lines of a convolution's kernel are segments of a row. Activations are copied only where they are
// padded, signed, or would share lines of the cache; a copy serves all taps. Runs of a line that are no whole
// units reach into the next pixel, where the packed weights are zeros.
#include <cstring>
#include <vector>

#include "cpu/gemm/byte_finish.h"
#include "cpu/gemm/unit_walk.h"
#include "cpu/quantized/convolution.h"

namespace fl::cpu::quantized {
namespace {

using namespace products;

constexpr int64_t kBlockPositions = 336;  // of the output, whose sums are finished together
constexpr int64_t kLeastWidth = 5;        // shorter lines leave tiles of products half empty
constexpr int64_t kConflict = 1024;       // bytes: rows that far apart share lines of the first cache
constexpr int64_t kPixelGap = 64;         // bytes between pixels that would
constexpr int64_t kSlack = 64;            // bytes behind a copy that kernels may read
constexpr double kByteRate = 3;           // multiplications for one of floats

int64_t element_bytes() {
  return 4 / byte_units().elements;
}

// Lines of the output and a range of their columns.
struct Block {
  int64_t image, z, y, lines, x, width;
};

// The input as kernels read it; strides count bytes.
struct Layout {
  bool copies;
  int64_t pixel, line, plane;
  int64_t copied_width, copied_lines;  // pixels of a line and lines of a plane of the copy of a block
  std::vector<int64_t> segments;
  int64_t units;  // of a segment
};

class DirectConvolution {
 public:
  DirectConvolution(const Geometry& g, const void* data, bool is_signed, RowGrid grid, int64_t group,
                    const PackedBytes& weights, const ByteFinish& finish)
      : g_(g),
        set_(byte_units()),
        data_(static_cast<const uint8_t*>(data) + group * g.group_channels()),
        flip_(is_signed ? 0x80 : 0),
        grid_{grid.scale, grid.zero + (is_signed ? 128 : 0)},
        weights_(weights),
        finish_(finish) {
    strips_ = divide_up(g.out[2], kBlockPositions);
    strip_ = divide_up(g.out[2], strips_);
    lines_ = strips_ == 1 ? std::clamp<int64_t>(kBlockPositions / g.out[2], 1, g.out[1]) : 1;
    set_layout(is_signed);
  }

  void run() const {
    const int64_t items = g_.batch * g_.out[0] * g_.out[1] * strips_, k = weights_.k;
    const double work = double(items) * double(strip_) * double(weights_.n) * double(k) / kByteRate;
    over_rectangles(team_for(work), items, weights_.n, std::max<int64_t>(1, k * strip_ / int64_t(kByteRate)),
                    set_.width, [&](Range is, Range js) { run_part(is, js); });
  }

 private:
  void set_layout(bool is_signed) {
    const int64_t each = g_.group_channels(), bytes = element_bytes(), step = g_.stride[2] * each * bytes;
    const bool whole_pixels = each % kRunMultiple == 0, conflicts = step % kConflict == 0 && whole_pixels;
    const bool whole_runs = whole_pixels || (g_.groups == 1 && g_.kernel[2] * each % kRunMultiple == 0);
    layout_.copies = g_.is_padded() || is_signed || bytes > 1 || conflicts || !whole_runs;
    // Lines of a kernel are single runs, unless pixels lie apart.
    const bool gap = layout_.copies && conflicts;
    const bool apart = gap || g_.dilation[2] != 1 || (!layout_.copies && g_.groups != 1);
    const int64_t runs = apart ? g_.kernel[2] : 1;
    layout_.units = (apart ? each : packed_run(g_.kernel[2], each)) / set_.elements;
    if (layout_.copies) {
      layout_.pixel = each * bytes + (gap ? kPixelGap : 0);
      layout_.copied_width = reach(2, strip_), layout_.copied_lines = reach(1, lines_);
      layout_.line = layout_.copied_width * layout_.pixel;
      layout_.plane = layout_.copied_lines * layout_.line;
    } else {
      layout_.pixel = g_.channels, layout_.line = g_.in[2] * g_.channels;
      layout_.plane = g_.in[1] * layout_.line * g_.dilation[0];
    }
    for (int64_t i = 0; i < g_.kernel[0]; ++i)
      for (int64_t j = 0; j < g_.kernel[1]; ++j)
        for (int64_t k = 0; k < runs; ++k)
          layout_.segments.push_back(i * layout_.plane + j * g_.dilation[1] * layout_.line +
                                     k * g_.dilation[2] * layout_.pixel);
  }

  // Places of the input under so many indices of the output.
  int64_t reach(int d, int64_t count) const {
    return (count - 1) * g_.stride[d] + (g_.kernel[d] - 1) * g_.dilation[d] + 1;
  }

  // The parts of lines with numbers from `begin` on, as many as belong to one block.
  Block block_at(int64_t begin, int64_t end) const {
    const int64_t line = begin / strips_, strip = begin % strips_, plane = line / g_.out[1];
    Block b{plane / g_.out[0], plane % g_.out[0], line % g_.out[1], 1, strip * strip_, 0};
    b.width = std::min(strip_, g_.out[2] - b.x);
    if (strips_ == 1) b.lines = std::min({lines_, end - begin, g_.out[1] - b.y});
    return b;
  }

  void run_part(Range items, Range columns) const {
    const UnitScope scope(set_);
    auto* sums = static_cast<int32_t*>(
        scratch(2).get(size_t(std::max(lines_ * strip_, strip_)) * set_.width * sizeof(int32_t)));
    const std::vector<RowGrid> grids(size_t(lines_ * strip_), grid_);
    const int64_t panel_units = layout_.units * int64_t(layout_.segments.size());
    for (int64_t item = items.begin; item < items.end;) {
      const Block block = block_at(item, items.end);
      item += block.lines;
      if (block.width <= 0) continue;
      const char* a = input_of(block);
      const int64_t plane = block.image * g_.out[0] + block.z;
      const int64_t first = (plane * g_.out[1] + block.y) * g_.out[2] + block.x;
      for (int64_t j = columns.begin; j < columns.end; j += set_.width) {
        const int64_t used = std::min<int64_t>(set_.width, columns.end - j);
        multiply(block, a, weights_.panels + j * panel_units, used > set_.lanes() ? 2 : 1, sums);
        finish_bytes(finish_, ByteWindow{sums, set_.width, first, block.lines * block.width, j, used,
                                         grids.data(), nullptr, weights_.column_sums, weights_.k});
      }
    }
  }

  void multiply(const Block& block, const char* a, const uint32_t* panel, int vectors, int32_t* sums) const {
    const int64_t height = tile_height(set_, block.width), a_row = g_.stride[2] * layout_.pixel;
    const UnitSegments segments{layout_.segments.data(), int64_t(layout_.segments.size())};
    for (int64_t y = 0; y < block.lines; ++y)
      for (int64_t x = 0; x < block.width; x += height) {
        const int64_t high = std::min(height, block.width - x);
        set_.kernel[0][vectors - 1][high - 1](layout_.units, a + y * g_.stride[1] * layout_.line + x * a_row,
                                              a_row, 4, panel, sums + (y * block.width + x) * set_.width,
                                              set_.width, false, segments);
      }
  }

  // The first pixel under a block.
  const char* input_of(const Block& block) const {
    if (!layout_.copies) {
      const int64_t z = block.image * g_.in[0] + block.z * g_.stride[0];
      const int64_t y = z * g_.in[1] + block.y * g_.stride[1];
      return reinterpret_cast<const char*>(data_) + y * layout_.line + block.x * g_.stride[2] * layout_.pixel;
    }
    const int64_t lines = reach(1, block.lines);
    auto* to = static_cast<uint8_t*>(scratch(0).get(size_t(g_.kernel[0] * layout_.plane + kSlack)));
    for (int64_t i = 0; i < g_.kernel[0]; ++i)
      for (int64_t j = 0; j < lines; ++j) {
        const int64_t z = g_.under(0, block.z, i), y = block.y * g_.stride[1] - g_.padding[1] + j;
        const uint8_t* line = nullptr;
        if (g_.inside(0, z) && g_.inside(1, y))
          line = data_ + ((block.image * g_.in[0] + z) * g_.in[1] + y) * g_.in[2] * g_.channels;
        copy_line(line, block.x * g_.stride[2] - g_.padding[2], reach(2, block.width),
                  to + i * layout_.plane + j * layout_.line);
      }
    return reinterpret_cast<const char*>(to);
  }

  // Pixels of a line from `first` on, with the value zero outside of it; all of them without a line.
  void copy_line(const uint8_t* line, int64_t first, int64_t count, uint8_t* to) const {
    const int64_t begin = line ? std::clamp<int64_t>(-first, 0, count) : count;
    const int64_t end = line ? std::clamp<int64_t>(g_.in[2] - first, begin, count) : count;
    const int64_t each = g_.group_channels();
    fill_zeros(to, begin);
    fill_zeros(to + end * layout_.pixel, count - end);
    if (begin == end) return;
    const uint8_t* from = line + (first + begin) * g_.channels;
    to += begin * layout_.pixel;
    if (g_.groups == 1 && layout_.pixel == each * element_bytes())
      return copy(from, to, (end - begin) * each);
    for (int64_t x = begin; x < end; ++x, from += g_.channels, to += layout_.pixel) copy(from, to, each);
  }

  void fill_zeros(uint8_t* to, int64_t pixels) const {
    if (element_bytes() == 1)
      std::memset(to, grid_.zero, size_t(pixels * layout_.pixel));
    else
      std::fill_n(reinterpret_cast<uint16_t*>(to), pixels * layout_.pixel / 2, uint16_t(grid_.zero));
  }

  void copy(const uint8_t* from, uint8_t* to, int64_t n) const {
    if (element_bytes() == 2) {
      auto* wide = reinterpret_cast<uint16_t*>(to);
      for (int64_t i = 0; i < n; ++i) wide[i] = uint16_t(from[i] ^ flip_);
    } else if (flip_) {
      flip_signs(from, to, n);
    } else {
      std::memcpy(to, from, size_t(n));
    }
  }

  const Geometry& g_;
  const UnitSet& set_;
  const uint8_t* data_;
  const uint8_t flip_;
  const RowGrid grid_;
  const PackedBytes& weights_;
  const ByteFinish& finish_;
  int64_t strips_, strip_;  // of a line, and the longest
  int64_t lines_;           // of a block
  Layout layout_;
};

}  // namespace

bool is_direct(const Geometry& g, bool has_weight_zeros) {
  const UnitSet& set = byte_units();
  const bool whole_pixels = g.group_channels() % kRunMultiple == 0;
  return !set.rows_only && set.unit_multiple == 1 && !has_weight_zeros && !g.is_pointwise() &&
         g.out[2] >= kLeastWidth && (whole_pixels || g.dilation[2] == 1);
}

void multiply_direct(const Geometry& g, const void* data, bool is_signed, RowGrid grid, int64_t group,
                     const PackedBytes& weights, const ByteFinish& finish) {
  DirectConvolution(g, data, is_signed, grid, group, weights, finish).run();
}

}  // namespace fl::cpu::quantized

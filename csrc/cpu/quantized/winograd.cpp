// 3 x 3 convolutions of eight bits with 2.25 times fewer multiplications, and exactly: Winograd's F(2 x 2, 3
// x 3) in integers, for processors that multiply bytes as 16-bit integers, which have room for it.
//
// Of a tile of 4 x 4 activations, less their zero, sums of four become 16 numbers of at most 1,020; of a
// kernel, four times Winograd's numbers, at most 1,143. The products of both, added up over the channels,
// give four times the sums of 2 x 2 positions. Sums may wrap around at 32 bits on the way: the results fit.
#include <cstring>
#include <vector>

#include "cpu/gemm/byte_finish.h"
#include "cpu/gemm/unit_walk.h"
#include "cpu/quantized/convolution.h"

namespace fl::cpu::quantized {
namespace {

using namespace products;

#ifdef FL_X86
#define FL_WORDS __attribute__((target("avx2")))
#else
#define FL_WORDS
#endif

constexpr int64_t kSide = 4, kPlaces = kSide * kSide, kOutputs = 2;  // of a tile
constexpr int64_t kChannels = 16;                                    // that are transformed together
constexpr int64_t kMostChannels = 1824;                              // four times their sums fit in 32 bits
constexpr int64_t kTileBytes = 300'000;  // of transformed activations, which stay in the second cache
constexpr int64_t kRowGap = 64;          // bytes between rows, so that they do not all use the same lines
constexpr int64_t kLeastTiles = 32;      // fewer do not pay for kernels of 16 numbers
constexpr double kByteRate = 3;          // multiplications for one of floats

int64_t tiles_along(int64_t outputs) {
  return divide_up(outputs, kOutputs);
}

// Four times Winograd's numbers of a kernel: 2 G g (2 G)'.
void transform_kernel(const int8_t* taps, int64_t tap_stride, int16_t to[kSide][kSide]) {
  int32_t half[kSide][3];
  for (int j = 0; j < 3; ++j) {
    const int32_t a = taps[j * tap_stride], b = taps[(3 + j) * tap_stride], c = taps[(6 + j) * tap_stride];
    half[0][j] = 2 * a, half[1][j] = a + b + c, half[2][j] = a - b + c, half[3][j] = 2 * c;
  }
  for (int i = 0; i < kSide; ++i) {
    const int32_t a = half[i][0], b = half[i][1], c = half[i][2];
    to[i][0] = int16_t(2 * a), to[i][1] = int16_t(a + b + c), to[i][2] = int16_t(a - b + c),
    to[i][3] = int16_t(2 * c);
  }
}

using Lanes = int16_t[kChannels];

// d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3], a step apart.
FL_WORDS inline void transform_line(const Lanes* d, int64_t step, int16_t* const to[kSide]) {
#pragma omp simd
  for (int64_t c = 0; c < kChannels; ++c) {
    const int16_t a = d[0][c], b = d[step][c], e = d[2 * step][c], f = d[3 * step][c];
    to[0][c] = int16_t(a - e), to[1][c] = int16_t(b + e), to[2][c] = int16_t(e - b),
    to[3][c] = int16_t(b - f);
  }
}

// Some channels of the pixels of a tile (null outside of the image) to the 16 places of a row, `place`
// elements apart.
FL_WORDS void transform_tile(const uint8_t* const pixels[kPlaces], uint8_t flip, int32_t zero, int16_t* to,
                             int64_t place) {
  Lanes values[kPlaces], half[kPlaces];
  for (int64_t p = 0; p < kPlaces; ++p) {
    if (!pixels[p]) {
      std::memset(values[p], 0, sizeof values[p]);
      continue;
    }
#pragma omp simd
    for (int64_t c = 0; c < kChannels; ++c)
      values[p][c] = int16_t(int16_t(uint8_t(pixels[p][c] ^ flip)) - int16_t(zero));
  }
  for (int64_t i = 0; i < kSide; ++i) {
    int16_t* const line[kSide] = {half[i * kSide], half[i * kSide + 1], half[i * kSide + 2],
                                  half[i * kSide + 3]};
    transform_line(values + i * kSide, 1, line);
  }
  for (int64_t j = 0; j < kSide; ++j) {
    int16_t* const column[kSide] = {to + j * place, to + (kSide + j) * place, to + (2 * kSide + j) * place,
                                    to + (3 * kSide + j) * place};
    transform_line(half + j, kSide, column);
  }
}

// The sums of 2 x 2 positions for the columns of a panel, of 16 numbers `place` elements apart.
FL_WORDS void sums_of_tile(const int32_t* products, int64_t place, int64_t width,
                           int32_t* const to[kOutputs][kOutputs]) {
#pragma omp simd
  for (int64_t c = 0; c < width; ++c) {
    uint32_t half[kOutputs][kSide];
    for (int j = 0; j < kSide; ++j) {
      const auto at = [&](int i) { return uint32_t(products[(i * kSide + j) * place + c]); };
      half[0][j] = at(0) + at(1) + at(2), half[1][j] = at(1) - at(2) - at(3);
    }
    for (int i = 0; i < kOutputs; ++i) {
      const int32_t left = int32_t(half[i][0] + half[i][1] + half[i][2]);
      const int32_t right = int32_t(half[i][1] - half[i][2] - half[i][3]);
      to[i][0][c] = left >> 2, to[i][1][c] = right >> 2;
    }
  }
}

class WinogradConvolution {
 public:
  WinogradConvolution(const Geometry& g, const void* data, bool is_signed, RowGrid grid,
                      const uint32_t* panels, const ByteFinish& finish)
      : g_(g),
        set_(byte_units()),
        data_(static_cast<const uint8_t*>(data)),
        flip_(is_signed ? 0x80 : 0),
        zero_(grid.zero + (is_signed ? 128 : 0)),
        panels_(panels),
        finish_(finish),
        units_(g.channels / 2),
        row_(g.channels * 2 + kRowGap),
        strip_(
            std::min(tiles_along(g.out[2]), std::max<int64_t>(set_.max_rows, kTileBytes / (kPlaces * row_)))),
        strips_(divide_up(tiles_along(g.out[2]), strip_)),
        grids_(size_t(kOutputs * strip_), RowGrid{grid.scale, 0}) {}

  void run() const {
    const int64_t items = g_.batch * tiles_along(g_.out[1]) * strips_;
    const double per_item = double(strip_) * double(kPlaces) * double(g_.channels) / kByteRate;
    over_rectangles(team_for(double(items) * per_item * double(g_.outputs)), items, g_.outputs,
                    std::max<int64_t>(1, int64_t(per_item)), set_.width,
                    [&](Range is, Range js) { run_part(is, js); });
  }

 private:
  // Neighbouring tiles of one line of tiles.
  struct Strip {
    int64_t image, y, x, tiles;  // the first tile
  };

  Strip strip_at(int64_t item) const {
    const int64_t lines = tiles_along(g_.out[1]), line = item / strips_, x = item % strips_ * strip_;
    return {line / lines, line % lines, x, std::min(strip_, tiles_along(g_.out[2]) - x)};
  }

  void run_part(Range items, Range columns) const {
    const UnitScope scope(set_);
    // Lines of tiles share a block as long as they fit.
    const int64_t most = std::max<int64_t>(strip_, kTileBytes / (kPlaces * row_));
    auto* rows = static_cast<char*>(scratch(0).get(size_t(kPlaces * most * row_)));
    auto* products = static_cast<int32_t*>(
        scratch(2).get(size_t((kPlaces * most + 2 * kOutputs * strip_) * set_.width) * 4));
    for (int64_t item = items.begin; item < items.end;) {
      std::vector<Strip> block;
      int64_t tiles = 0;
      for (; item < items.end && tiles + strip_at(item).tiles <= most; ++item) {
        block.push_back(strip_at(item));
        read(block.back(), rows + tiles * row_, most);
        tiles += block.back().tiles;
      }
      for (int64_t j = columns.begin; j < columns.end; j += set_.width) {
        const int64_t used = std::min<int64_t>(set_.width, columns.end - j);
        multiply(rows, tiles, most, j, used > set_.lanes() ? 2 : 1, products);
        int64_t first = 0;
        for (const Strip& strip : block) {
          finish(strip, products + first * set_.width, most, j, used, products + kPlaces * most * set_.width);
          first += strip.tiles;
        }
      }
    }
  }

  void read(const Strip& strip, char* to, int64_t most) const {
    for (int64_t t = 0; t < strip.tiles; ++t) {
      const uint8_t* pixels[kPlaces];
      for (int64_t p = 0; p < kPlaces; ++p) {
        const int64_t y = strip.y * kOutputs - g_.padding[1] + p / kSide;
        const int64_t x = (strip.x + t) * kOutputs - g_.padding[2] + p % kSide;
        const bool inside = g_.inside(1, y) && g_.inside(2, x);
        pixels[p] = inside ? data_ + ((strip.image * g_.in[1] + y) * g_.in[2] + x) * g_.channels : nullptr;
      }
      auto* row = reinterpret_cast<int16_t*>(to + t * row_);
      for (int64_t c = 0; c < g_.channels; c += kChannels) {
        transform_tile(pixels, flip_, zero_, row + c, most * row_ / 2);
        for (const uint8_t*& pixel : pixels)
          if (pixel) pixel += kChannels;
      }
    }
  }

  // Place after place, the products of all rows with a panel.
  void multiply(const char* rows, int64_t tiles, int64_t most, int64_t column, int vectors,
                int32_t* products) const {
    const int64_t height = tile_height(set_, tiles), width = set_.width;
    const uint32_t* panel = panels_ + column * units_ * kPlaces;
    for (int64_t p = 0; p < kPlaces; ++p, panel += units_ * width)
      for (int64_t t = 0; t < tiles; t += height)
        set_.kernel[0][vectors - 1][std::min(height, tiles - t) - 1](
            units_, rows + (p * most + t) * row_, row_, 4, panel, products + (p * most + t) * width, width,
            false, {});
  }

  // `lines` has room for two lines of positions.
  void finish(const Strip& strip, const int32_t* products, int64_t most, int64_t column, int64_t used,
              int32_t* lines) const {
    const int64_t width = set_.width, line = kOutputs * strip_ * width;
    for (int64_t t = 0; t < strip.tiles; ++t) {
      int32_t* const first = lines + kOutputs * t * width;
      int32_t* const to[kOutputs][kOutputs] = {{first, first + width}, {first + line, first + line + width}};
      sums_of_tile(products + t * width, most * width, width, to);
    }
    const int64_t x = strip.x * kOutputs, count = std::min(strip.tiles * kOutputs, g_.out[2] - x);
    for (int64_t i = 0; i < kOutputs && strip.y * kOutputs + i < g_.out[1]; ++i) {
      const int64_t row = (strip.image * g_.out[1] + strip.y * kOutputs + i) * g_.out[2] + x;
      finish_bytes(finish_, ByteWindow{lines + i * line, width, row, count, column, used, grids_.data(),
                                       nullptr, nullptr, 0});
    }
  }

  const Geometry& g_;
  const UnitSet& set_;
  const uint8_t* data_;
  const uint8_t flip_;
  const int32_t zero_;
  const uint32_t* panels_;
  const ByteFinish& finish_;
  const int64_t units_, row_;     // units of a row and bytes between rows
  const int64_t strip_, strips_;  // tiles of a part of a line, and such parts
  const std::vector<RowGrid> grids_;
};

}  // namespace

int64_t winograd_units(int64_t outputs, int64_t channels) {
  const UnitSet& set = byte_units();
  const bool fits = channels % kChannels == 0 && channels <= kMostChannels && outputs >= kChannels;
  return fits && set.elements == 2 && !set.rows_only && set.unit_multiple == 1
             ? kPlaces * (channels / 2) * round_up(outputs, set.width)
             : 0;
}

void pack_winograd(const int8_t* rows, int64_t outputs, int64_t channels, uint32_t* panels) {
  const int64_t width = byte_units().width, units = channels / 2;
  parallel_for(divide_up(outputs, width), 1, [&](int64_t begin, int64_t end) {
    for (int64_t q = begin; q < end; ++q) {
      auto* to = reinterpret_cast<int16_t*>(panels + q * kPlaces * units * width);
      std::fill_n(to, kPlaces * units * width * 2, int16_t(0));
      for (int64_t j = 0; j < std::min(width, outputs - q * width); ++j)
        for (int64_t c = 0; c < channels; ++c) {
          int16_t places[kSide][kSide];
          transform_kernel(rows + (q * width + j) * 9 * channels + c, channels, places);
          for (int64_t p = 0; p < kPlaces; ++p)
            to[((p * units + c / 2) * width + j) * 2 + c % 2] = places[p / kSide][p % kSide];
        }
    }
  });
}

bool is_winograd(const Geometry& g, bool has_weight_zeros) {
  const int64_t tiles = g.batch * tiles_along(g.out[1]) * tiles_along(g.out[2]);
  for (int d = 0; d < 3; ++d)
    if (g.stride[d] != 1 || g.dilation[d] != 1 || g.kernel[d] != (d == 0 ? 1 : 3)) return false;
  return g.groups == 1 && g.in[0] == 1 && g.padding[0] == 0 && !has_weight_zeros && tiles >= kLeastTiles &&
         winograd_units(g.outputs, g.channels) > 0;
}

void multiply_winograd(const Geometry& g, const void* data, bool is_signed, RowGrid grid,
                       const uint32_t* panels, const ByteFinish& finish) {
  WinogradConvolution(g, data, is_signed, grid, panels, finish).run();
}

}  // namespace fl::cpu::quantized

// The walk of Winograd's F(2 x 2, 3 x 3) in 16-bit integers over channels-last images, on panels of units
// (cpu/gemm/units.h). What the integers and their sums stand for is left to a source and a finish:
//
//   float Source::read(strip, to, row, place)   writes 16 numbers for each channel of each tile, tiles `row`
//   and
//                                               numbers `place` elements apart; returns what finish is told
//   void Finish::write(strip, products, place, column, used)   the 2 x 2 results of the tiles of a strip for
//                                               some columns, of 16 products `place` elements apart
//
// Tiles of 4 x 4 activations become 16 integers, B' d B, by sums and differences, which have to fit in 16
// bits. Packed kernels have 16 numbers as well: panel after panel of columns, in it place after place.
#pragma once

#include <vector>

#include "cpu/gemm/unit_walk.h"

namespace fl::cpu::winograd {

using namespace products;

constexpr int64_t kSide = 4, kPlaces = kSide * kSide, kOutputs = 2;  // of a tile
constexpr int64_t kRowGap = 64;  // bytes between rows, so that they do not all use the same lines

// Images and the results over them, rows and columns.
struct Planes {
  int64_t batch, channels, outputs;
  int64_t in[2], out[2], padding[2];

  bool inside(int d, int64_t at) const { return at >= 0 && at < in[d]; }
};

inline int64_t tiles_along(int64_t outputs) {
  return divide_up(outputs, kOutputs);
}

// Neighbouring tiles of one line of tiles.
struct Strip {
  int64_t image, y, x, tiles;  // the first tile
  float told = 1;              // what the source said of it
};

// d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3], `step` rows of LANES apart.
template <int64_t LANES>
inline __attribute__((always_inline)) void transform_line(const int16_t (*d)[LANES], int64_t step,
                                                          int16_t* const to[kSide]) {
#pragma omp simd
  for (int64_t c = 0; c < LANES; ++c) {
    const int16_t a = d[0][c], b = d[step][c], e = d[2 * step][c], f = d[3 * step][c];
    to[0][c] = int16_t(a - e), to[1][c] = int16_t(b + e), to[2][c] = int16_t(e - b),
    to[3][c] = int16_t(b - f);
  }
}

struct Limits {
  int64_t depth;       // channels whose products are added up as integers
  int64_t tile_bytes;  // of transformed activations, which stay in the second cache
  double rate;         // multiplications for one of floats
  int64_t strip;       // tiles of a strip at most
};

template <class Source, class Finish>
class Walk {
 public:
  Walk(const UnitSet& set, const Planes& planes, const Limits& limits, const uint32_t* panels,
       const Source& source, const Finish& finish)
      : set_(set),
        p_(planes),
        limits_(limits),
        depth_(set, planes.channels, limits.depth),
        panels_(panels),
        source_(source),
        finish_(finish),
        row_(planes.channels * 2 + kRowGap),
        strip_(std::min({limits.strip, tiles_along(planes.out[1]),
                         std::max<int64_t>(set.max_rows, limits.tile_bytes / (kPlaces * row_))})),
        strips_(divide_up(tiles_along(planes.out[1]), strip_)) {}

  void run() const {
    const int64_t items = p_.batch * tiles_along(p_.out[0]) * strips_;
    const double per_item = double(strip_) * double(kPlaces) * double(p_.channels) / limits_.rate;
    over_rectangles(team_for(double(items) * per_item * double(p_.outputs)), items, p_.outputs,
                    std::max<int64_t>(1, int64_t(per_item)), set_.width,
                    [&](Range is, Range js) { run_part(is, js); });
  }

 private:
  Strip strip_at(int64_t item) const {
    const int64_t lines = tiles_along(p_.out[0]), line = item / strips_, x = item % strips_ * strip_;
    return {line / lines, line % lines, x, std::min(strip_, tiles_along(p_.out[1]) - x)};
  }

  void run_part(Range items, Range columns) const {
    const UnitScope scope(set_);
    // Lines of tiles share a block as long as they fit.
    const int64_t most = std::max<int64_t>(strip_, limits_.tile_bytes / (kPlaces * row_));
    auto* rows = static_cast<char*>(scratch(0).get(size_t(kPlaces * most * row_)));
    auto* products = static_cast<char*>(scratch(2).get(size_t(kPlaces * most * set_.width) * 4));
    for (int64_t item = items.begin; item < items.end;) {
      std::vector<Strip> block;
      int64_t tiles = 0;
      for (; item < items.end && tiles + strip_at(item).tiles <= most; ++item) {
        block.push_back(strip_at(item));
        auto* to = reinterpret_cast<int16_t*>(rows + tiles * row_);
        block.back().told = source_.read(block.back(), to, row_ / 2, most * row_ / 2);
        tiles += block.back().tiles;
      }
      for (int64_t j = columns.begin; j < columns.end; j += set_.width) {
        const int64_t used = std::min<int64_t>(set_.width, columns.end - j);
        multiply(rows, tiles, most, j, used > set_.lanes() ? 2 : 1, products);
        const char* of_strip = products;
        for (const Strip& strip : block) {
          finish_.write(strip, of_strip, most * set_.width, j, used);
          of_strip += strip.tiles * set_.width * 4;
        }
      }
    }
  }

  // Place after place, the products of all rows with a panel.
  void multiply(const char* rows, int64_t tiles, int64_t most, int64_t column, int vectors,
                char* products) const {
    const int64_t height = tile_height(set_, tiles), width = set_.width;
    const uint32_t* panel = panels_ + column * depth_.units * kPlaces;
    for (int64_t p = 0; p < kPlaces; ++p)
      for (int64_t b = 0; b < depth_.blocks; ++b, panel += depth_.units_in(b - 1) * width)
        for (int64_t t = 0; t < tiles; t += height)
          set_.kernel[0][vectors - 1][std::min(height, tiles - t) - 1](
              depth_.units_in(b), rows + (p * most + t) * row_ + b * depth_.block * 2, row_, 4, panel,
              products + (p * most + t) * width * 4, width, b > 0, {});
  }

  const UnitSet& set_;
  const Planes& p_;
  const Limits limits_;
  const UnitDepth depth_;
  const uint32_t* panels_;
  const Source& source_;
  const Finish& finish_;
  const int64_t row_;             // bytes between rows
  const int64_t strip_, strips_;  // tiles of a part of a line, and such parts
};

// Panels of `outputs` kernels of 16 numbers: numbers(output, channel, values) writes those of one.
template <class Numbers>
void pack_panels_of_kernels(const UnitSet& set, int64_t outputs, int64_t channels, uint32_t* panels,
                            const Numbers& numbers) {
  const int64_t width = set.width, units = divide_up(channels, 2);
  parallel_for(divide_up(outputs, width), 1, [&](int64_t begin, int64_t end) {
    for (int64_t q = begin; q < end; ++q) {
      auto* to = reinterpret_cast<int16_t*>(panels + q * kPlaces * units * width);
      std::fill_n(to, kPlaces * units * width * 2, int16_t(0));
      for (int64_t j = 0; j < std::min(width, outputs - q * width); ++j)
        for (int64_t c = 0; c < channels; ++c) {
          int16_t values[kPlaces];
          numbers(q * width + j, c, values);
          for (int64_t p = 0; p < kPlaces; ++p) to[((p * units + c / 2) * width + j) * 2 + c % 2] = values[p];
        }
    }
  });
}

}  // namespace fl::cpu::winograd

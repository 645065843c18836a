// 3 x 3 convolutions of eight bits with 2.25 times fewer multiplications, and exactly: Winograd's F(2 x 2, 3
// x 3) in integers, for processors that multiply bytes as 16-bit integers, which have room for it.
//
// Of a tile of 4 x 4 activations, less their zero, sums of four become 16 numbers of at most 1,020; of a
// kernel, four times Winograd's numbers, at most 1,143. The products of both, added up over the channels,
// give four times the sums of 2 x 2 positions. Sums may wrap around at 32 bits on the way: the results fit.
#include <cstring>
#include <vector>

#include "cpu/convolution/winograd_walk.h"
#include "cpu/gemm/byte_finish.h"
#include "cpu/quantized/convolution.h"

namespace fl::cpu::quantized {
namespace {

using namespace products;
using namespace winograd;

#ifdef FL_X86
#define FL_WORDS __attribute__((target("avx2")))
#else
#define FL_WORDS
#endif

constexpr int64_t kChannels = 16;        // that are transformed together
constexpr int64_t kMostChannels = 1824;  // four times their sums fit in 32 bits
constexpr int64_t kLeastTiles = 32;      // fewer do not pay for kernels of 16 numbers
constexpr Limits kLimits{kMostChannels, 300'000, 3, INT64_MAX};

// Four times Winograd's numbers of a kernel: 2 G g (2 G)'.
void transform_kernel(const int8_t* taps, int64_t tap_stride, int16_t (&to)[kPlaces]) {
  int32_t half[kSide][3];
  for (int j = 0; j < 3; ++j) {
    const int32_t a = taps[j * tap_stride], b = taps[(3 + j) * tap_stride], c = taps[(6 + j) * tap_stride];
    half[0][j] = 2 * a, half[1][j] = a + b + c, half[2][j] = a - b + c, half[3][j] = 2 * c;
  }
  for (int i = 0; i < kSide; ++i) {
    const int32_t a = half[i][0], b = half[i][1], c = half[i][2];
    int16_t* const line = to + i * kSide;
    line[0] = int16_t(2 * a), line[1] = int16_t(a + b + c), line[2] = int16_t(a - b + c),
    line[3] = int16_t(2 * c);
  }
}

using Lanes = int16_t[kChannels];

using Lanes = int16_t[kChannels];

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

Planes planes_of(const Geometry& g) {
  return {
      g.batch, g.channels, g.outputs, {g.in[1], g.in[2]}, {g.out[1], g.out[2]}, {g.padding[1], g.padding[2]}};
}

// Activations, less their zero.
struct Pixels {
  const Planes& planes;
  const uint8_t* data;
  const uint8_t flip;
  const int32_t zero;

  float read(const Strip& strip, int16_t* to, int64_t row, int64_t place) const {
    for (int64_t t = 0; t < strip.tiles; ++t) {
      const uint8_t* pixels[kPlaces];
      for (int64_t p = 0; p < kPlaces; ++p) {
        const int64_t y = strip.y * kOutputs - planes.padding[0] + p / kSide;
        const int64_t x = (strip.x + t) * kOutputs - planes.padding[1] + p % kSide;
        const bool inside = planes.inside(0, y) && planes.inside(1, x);
        const int64_t pixel = (strip.image * planes.in[0] + y) * planes.in[1] + x;
        pixels[p] = inside ? data + pixel * planes.channels : nullptr;
      }
      for (int64_t c = 0; c < planes.channels; c += kChannels) {
        transform_tile(pixels, flip, zero, to + t * row + c, place);
        for (const uint8_t*& pixel : pixels)
          if (pixel) pixel += kChannels;
      }
    }
    return 1;
  }
};

struct Results {
  const Planes& planes;
  const ByteFinish& finish;
  const RowGrid grid;
  const int64_t width;

  void write(const Strip& strip, const void* products, int64_t place, int64_t column, int64_t used) const {
    const int64_t line = kOutputs * strip.tiles * width;
    auto* lines = static_cast<int32_t*>(scratch(1).get(size_t(kOutputs * line) * 4));
    for (int64_t t = 0; t < strip.tiles; ++t) {
      int32_t* const first = lines + kOutputs * t * width;
      int32_t* const to[kOutputs][kOutputs] = {{first, first + width}, {first + line, first + line + width}};
      sums_of_tile(static_cast<const int32_t*>(products) + t * width, place, width, to);
    }
    const std::vector<RowGrid> grids(size_t(kOutputs * strip.tiles), grid);
    const int64_t x = strip.x * kOutputs, count = std::min(strip.tiles * kOutputs, planes.out[1] - x);
    for (int64_t i = 0; i < kOutputs && strip.y * kOutputs + i < planes.out[0]; ++i) {
      const int64_t row = (strip.image * planes.out[0] + strip.y * kOutputs + i) * planes.out[1] + x;
      finish_bytes(finish, ByteWindow{lines + i * line, width, row, count, column, used, grids.data(),
                                      nullptr, nullptr, 0});
    }
  }
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
  pack_panels_of_kernels(byte_units(), outputs, channels, panels,
                         [&](int64_t output, int64_t channel, int16_t (&values)[kPlaces]) {
                           transform_kernel(rows + output * 9 * channels + channel, channels, values);
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
  const UnitSet& set = byte_units();
  const Planes planes = planes_of(g);
  const Pixels pixels{planes, static_cast<const uint8_t*>(data), uint8_t(is_signed ? 0x80 : 0),
                      grid.zero + (is_signed ? 128 : 0)};
  const Results results{planes, finish, RowGrid{grid.scale, 0}, set.width};
  Walk(set, planes, kLimits, panels, pixels, results).run();
}

}  // namespace fl::cpu::quantized

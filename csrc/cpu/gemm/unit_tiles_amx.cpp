// Kernels over units in the tile registers of AMX: see units.h.
//
// A tile register has 16 rows of 16 units. Two of A and two of B make four tiles of sums. Rows of A that a
// tile does not use are read and multiplied all the same, so that one configuration serves everything:
// callers provide them.
#include <cstring>

#include "cpu/engine/x86.h"
#include "cpu/gemm/units.h"

#ifdef FL_X86

#define FL_AMX __attribute__((target("amx-tile,amx-bf16,amx-int8,avx512f")))

namespace fl::cpu::products {
namespace {

constexpr int kRows = 16, kUnits = 16;
constexpr int64_t kPanelRow = kUnitWidth * 4;  // bytes of a unit of all columns of a panel

// Eight tile registers of 16 rows of 64 bytes. A constant, because GCC 12 takes the instruction to read no
// more than the first bytes and drops stores to the others.
struct alignas(64) Configuration {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {kRows, kRows, kRows, kRows, kRows, kRows, kRows, kRows};
};
static_assert(sizeof(Configuration) == 64);
constexpr Configuration kConfiguration;

FL_AMX void configure() {
  _tile_loadconfig(&kConfiguration);
}

FL_AMX void release() {
  _tile_release();
}

FL_AMX void add_bfloat16(float* to, const float* sums) {
  _mm512_storeu_ps(to, _mm512_add_ps(_mm512_loadu_ps(to), _mm512_loadu_ps(sums)));
}
FL_AMX void add_int(int32_t* to, const int32_t* sums) {
  _mm512_storeu_si512(to, _mm512_add_epi32(_mm512_loadu_si512(to), _mm512_loadu_si512(sums)));
}

// The numbers of tiles are part of the instructions: 0 to 3 sums, 4 and 5 A, 6 and 7 B.
#define FL_DEFINE_AMX_TILE(NAME, TYPE, DOT, ADD)                                                             \
  template <int BANDS, int VECS>                                                                             \
  FL_AMX void NAME(int64_t units, const char* a, int64_t a_row, int64_t, const uint32_t* b, void* out,       \
                   int64_t out_row, bool accumulate, UnitSegments) {                                         \
    const char* panel = reinterpret_cast<const char*>(b);                                                    \
    _tile_zero(0);                                                                                           \
    if (VECS > 1) _tile_zero(1);                                                                             \
    if (BANDS > 1) _tile_zero(2);                                                                            \
    if (BANDS > 1 && VECS > 1) _tile_zero(3);                                                                \
    for (int64_t u = 0; u < units; u += kUnits) {                                                            \
      _tile_loadd(6, panel + u * kPanelRow, kPanelRow);                                                      \
      if (VECS > 1) _tile_loadd(7, panel + u * kPanelRow + 64, kPanelRow);                                   \
      _tile_loadd(4, a + u * 4, a_row);                                                                      \
      DOT(0, 4, 6);                                                                                          \
      if (VECS > 1) DOT(1, 4, 7);                                                                            \
      if (BANDS > 1) {                                                                                       \
        _tile_loadd(5, a + kRows * a_row + u * 4, a_row);                                                    \
        DOT(2, 5, 6);                                                                                        \
        if (VECS > 1) DOT(3, 5, 7);                                                                          \
      }                                                                                                      \
    }                                                                                                        \
    TYPE* to = static_cast<TYPE*>(out);                                                                      \
    alignas(64) TYPE sums[2 * kRows * kUnitWidth];                                                           \
    TYPE* at = accumulate ? sums : to;                                                                       \
    const int64_t at_row = accumulate ? kUnitWidth : out_row;                                                \
    _tile_stored(0, at, at_row * 4);                                                                         \
    if (VECS > 1) _tile_stored(1, at + kUnits, at_row * 4);                                                  \
    if (BANDS > 1) _tile_stored(2, at + kRows * at_row, at_row * 4);                                         \
    if (BANDS > 1 && VECS > 1) _tile_stored(3, at + kRows * at_row + kUnits, at_row * 4);                    \
    if (!accumulate) return;                                                                                 \
    for (int i = 0; i < BANDS * kRows; ++i)                                                                  \
      for (int v = 0; v < VECS; ++v) ADD(to + i * out_row + v * kUnits, sums + i * kUnitWidth + v * kUnits); \
  }

FL_DEFINE_AMX_TILE(tile_bfloat16, float, _tile_dpbf16ps, add_bfloat16)
FL_DEFINE_AMX_TILE(tile_bytes, int32_t, _tile_dpbusd, add_int)

UnitSet set_of(int elements, UnitKernel one_one, UnitKernel one_two, UnitKernel two_one, UnitKernel two_two) {
  UnitSet set;
  set.elements = elements;
  set.width = kUnitWidth;
  set.max_rows = 2 * kRows;
  set.unit_multiple = kUnits;
  set.rows_only = true;
  set.begin = configure, set.end = release;
  for (int rows = 0; rows < set.max_rows; ++rows) {
    set.kernel[0][0][rows] = rows < kRows ? one_one : two_one;
    set.kernel[0][1][rows] = rows < kRows ? one_two : two_two;
  }
  return set;
}

}  // namespace

UnitSet amx_bfloat16_units() {
  return set_of(2, tile_bfloat16<1, 1>, tile_bfloat16<1, 2>, tile_bfloat16<2, 1>, tile_bfloat16<2, 2>);
}

UnitSet amx_byte_units() {
  return set_of(4, tile_bytes<1, 1>, tile_bytes<1, 2>, tile_bytes<2, 1>, tile_bytes<2, 2>);
}

}  // namespace fl::cpu::products

#endif  // FL_X86

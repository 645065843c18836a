// Products of small numbers: kernels over units of 32 bits.
//
// A unit holds consecutive elements along k of one row of A or one column of B: two bfloat16, four bytes or
// two 16-bit integers. One instruction multiplies the elements of units and adds the products to a 32-bit sum
// (float or int32), for a vector of columns at a time. B is packed in panels: all units of `width` columns,
// unit after unit. Depth is divided into blocks that are added up from zero each (see depth_of_pairs).
//
//   unit_tile.h, unit_tiles*.cpp   the kernels       unit_pack.h   into units        unit_walk.h   the walk
//   over blocks
#pragma once

#include <cstdint>

namespace fl::cpu::products {

constexpr int kMaxUnitRows = 32;   // of a tile, all instruction sets
constexpr int kUnitTileRows = 14;  // of tiles in vector registers
constexpr int kUnitWidth = 32;     // the widest panel

// Where the units of a row of A lie when they are in several runs of memory, as under the lines of a
// convolution's kernel: `offsets` count bytes from the row's address. B has the units of all runs.
struct UnitSegments {
  const int64_t* offsets = nullptr;  // null: one run at the address itself
  int64_t count = 1;
};

// Sums of a tile: out[i][j] (+)= the sum over u < units of a[i * a_row + u * a_unit] . b[u * width + j], for
// each of the segments; strides of A count bytes, those of out elements of 4 bytes.
using UnitKernel = void (*)(int64_t units, const char* a, int64_t a_row, int64_t a_unit, const uint32_t* b,
                            void* out, int64_t out_row, bool accumulate, UnitSegments segments);

// The kernels of one instruction set for one kind of unit.
struct UnitSet {
  int elements = 2;  // in a unit
  int width = 0;     // columns of a panel: two vectors
  int max_rows = 0;
  int unit_multiple = 1;  // units of a block are a multiple of this, with zeros for what is missing
  // Whether A has to lie row by row, in whole tiles of 16 rows and one segment; otherwise `dense` panels
  // (a_row is one unit) are quicker than rows.
  bool rows_only = false;
  UnitKernel kernel[2][2][kMaxUnitRows] = {};  // [A dense][vectors - 1][rows - 1]
  void (*begin)() = nullptr;                   // around the use of kernels on a thread, if any
  void (*end)() = nullptr;

  int lanes() const { return width / 2; }
};

// The best set for pairs of bfloat16; null where the processor has no instruction for them.
const UnitSet* bfloat16_units();
// The best set for integers: A unsigned bytes, B signed ones; elements is 4, or 2 where bytes are widened to
// 16 bits.
const UnitSet& byte_units();

// The set for pairs of signed 16-bit integers where it is as quick as that of bfloat16: 32-bit sums of a
// block of depth become floats, which are added up. Null elsewhere.
const UnitSet* word_units();

// The sets of AMX, which unit_tiles_amx.cpp has.
UnitSet amx_bfloat16_units();
UnitSet amx_byte_units();

// Uses the kernels of a set within a scope.
class UnitScope {
 public:
  explicit UnitScope(const UnitSet& set) : set_(set) {
    if (set_.begin) set_.begin();
  }
  ~UnitScope() {
    if (set_.end) set_.end();
  }
  UnitScope(const UnitScope&) = delete;
  UnitScope& operator=(const UnitScope&) = delete;

 private:
  const UnitSet& set_;
};

}  // namespace fl::cpu::products

// Products of bfloat16 or half rows with weights of eight or four bits, on tensor cores.
//
// A warp multiplies 16 rows of weights by up to 16 rows of the input. Weights go from memory to registers,
// become numbers of 16 bits there, and are the left operand; sums are in single precision. The warps of a
// block divide the columns among them, and blocks have as many warps as let all of them run at the same time.
// So weights are read once, at the speed of memory, when few rows are multiplied.
//
// In what order a product takes the columns does not matter, as long as both operands agree: a lane reads
// neighbours. How a warp holds tiles is written in cuda/attention/matrix.cuh, with g = lane / 4 and t = lane
// % 4.
#include "cuda/attention/matrix.cuh"
#include "cuda/engine/device.cuh"
#include "cuda/engine/kernels.h"
#include "cuda/runtime/launch.h"
#include "dispatch/kernel.h"

namespace fl::cuda {

namespace {

constexpr int kMostWarps = 16, kRows = 16, kTile = 16;
constexpr int kMostColumns = 16;  // rows of the input for one block, which are columns of its products

struct WeightArgs {
  const void* x;       // (m, k)
  const void* weight;  // (n, k) of int8, or (n / 16, k / 4, 16, 2) bytes of four bits
  const void* scales;  // (n), or (k / group, n, 2): scales and zeros
  void* out;           // (m, n)
  int64_t m, n, k, group;
};

// Numbers of 16 bits that are an integer and a power of two: the integer is in the lowest bits.
template <bool kBrain>
constexpr uint32_t kBase = kBrain ? 0x43004300u : 0x64006400u;  // 128 or 1024, twice
template <bool kBrain>
constexpr uint32_t kOnes = kBrain ? 0x3f803f80u : 0x3c003c00u;

// Bytes 0 and 1, or 2 and 3, of a word as the lower bytes of two halves.
__device__ __forceinline__ uint32_t first_bytes(uint32_t v) {
  return __byte_perm(v, 0, 0x4140);
}
__device__ __forceinline__ uint32_t last_bytes(uint32_t v) {
  return __byte_perm(v, 0, 0x4342);
}

// Two signed bytes, exactly.
template <bool kBrain>
__device__ __forceinline__ uint32_t widen_bytes(uint32_t pair) {
  if constexpr (kBrain) {
    // The lowest seven bits above 128, less 128, or less 256 where the sign is set.
    const uint32_t low = (pair & 0x007f007fu) | kBase<true>, sign = (pair & 0x00800080u) | kBase<true>;
    const __nv_bfloat162 value = __hsub2(*reinterpret_cast<const __nv_bfloat162*>(&low),
                                         *reinterpret_cast<const __nv_bfloat162*>(&sign));
    return *reinterpret_cast<const uint32_t*>(&value);
  } else {
    const uint32_t raised = (pair ^ 0x00800080u) | kBase<false>;
    const __half2 value = __hsub2(*reinterpret_cast<const __half2*>(&raised), __float2half2_rn(1152.0f));
    return *reinterpret_cast<const uint32_t*>(&value);
  }
}

template <bool kBrain>
__device__ __forceinline__ float widen(const void* numbers, int64_t at) {
  if constexpr (kBrain)
    return __bfloat162float(static_cast<const __nv_bfloat16*>(numbers)[at]);
  else
    return __half2float(static_cast<const __half*>(numbers)[at]);
}

// Adds up what the warps of a block have and stores it. Registers c of a warp are rows row_of(0) and
// row_of(1) of the weights.
template <bool kBrain, int kTiles, class RowOf>
__device__ __forceinline__ void finish(const WeightArgs& args, const float (&c)[kTiles][4], int64_t first_row,
                                       int64_t first_column, const RowOf& row_of) {
  __shared__ float parts[kMostWarps][kTiles * 8][kRows + 1];
  const int warp = threadIdx.x / 32, warps = blockDim.x / 32, t = threadIdx.x % 4;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
    for (int i = 0; i < 4; ++i) parts[warp][tile * 8 + 2 * t + i % 2][row_of(i / 2)] = c[tile][i];
  __syncthreads();
  for (int i = threadIdx.x; i < kTiles * 8 * kRows; i += blockDim.x) {
    const int column = i / kRows, row = i % kRows;
    if (first_column + column >= args.m || first_row + row >= args.n) continue;
    float sum = 0;
    for (int w = 0; w < warps; ++w) sum += parts[w][column][row];
    const int64_t at = (first_column + column) * args.n + first_row + row;
    if constexpr (kBrain)
      static_cast<__nv_bfloat16*>(args.out)[at] = __float2bfloat16(sum);
    else
      static_cast<__half*>(args.out)[at] = __float2half(sum);
  }
}

// ---- eight bits ----------------------------------------------------------------------------------

constexpr int kByteUnit = 64;  // columns that a warp takes at a time: 16 bytes of a row for each lane

template <bool kBrain, int kTiles>
__global__ void __launch_bounds__(kMostWarps * 32, kTiles == 1 ? 2 : 1)
    multiply_bytes(const __grid_constant__ WeightArgs args) {
  constexpr int kAhead = kTiles == 1 ? 3 : 4;  // units that are on their way
  wait_for_kernel_before();
  const int warp = threadIdx.x / 32, warps = blockDim.x / 32, lane = threadIdx.x % 32, g = lane / 4,
            t = lane % 4;
  const int64_t first_row = int64_t(blockIdx.x) * kRows, first_column = int64_t(blockIdx.y) * kMostColumns;
  const int8_t* weight = static_cast<const int8_t*>(args.weight) + 16 * t;
  const int8_t* rows[2];
  for (int i = 0; i < 2; ++i) rows[i] = weight + min(first_row + g + 8 * i, args.n - 1) * args.k;
  const uint4 nothing = make_uint4(0, 0, 0, 0);
  const int units = int(args.k / kByteUnit);
  float c[kTiles][4] = {};
  uint4 coming[kAhead][2];
  const auto load = [&](int slot, int unit) {
    if (unit >= units) return;
#pragma unroll
    for (int i = 0; i < 2; ++i)
      coming[slot][i] = __ldcs(reinterpret_cast<const uint4*>(rows[i] + int64_t(unit) * kByteUnit));
  };
#pragma unroll
  for (int slot = 0; slot < kAhead; ++slot) load(slot, warp + slot * warps);
  for (int first = warp; first < units; first += kAhead * warps) {
#pragma unroll
    for (int slot = 0; slot < kAhead; ++slot) {
      const int unit = first + slot * warps;
      if (unit >= units) break;
      const int64_t place = int64_t(unit) * kByteUnit + 16 * t;
      const uint32_t one[4] = {coming[slot][0].x, coming[slot][0].y, coming[slot][0].z, coming[slot][0].w};
      const uint32_t other[4] = {coming[slot][1].x, coming[slot][1].y, coming[slot][1].z, coming[slot][1].w};
      load(slot, unit + kAhead * warps);
      uint4 x[kTiles][2];
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const int64_t row = first_column + tile * 8 + g;
        const auto* from =
            reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(args.x) + row * args.k + place);
        x[tile][0] = row < args.m ? __ldg(from) : nothing;
        x[tile][1] = row < args.m ? __ldg(from + 1) : nothing;
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const uint32_t a[4] = {
            widen_bytes<kBrain>(first_bytes(one[j])), widen_bytes<kBrain>(first_bytes(other[j])),
            widen_bytes<kBrain>(last_bytes(one[j])), widen_bytes<kBrain>(last_bytes(other[j]))};
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          const uint4& pair = x[tile][j / 2];
          matrix::multiply<kBrain>(c[tile], a, j % 2 ? pair.z : pair.x, j % 2 ? pair.w : pair.y);
        }
      }
    }
  }
  float scales[2];
  for (int i = 0; i < 2; ++i) scales[i] = widen<kBrain>(args.scales, min(first_row + g + 8 * i, args.n - 1));
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
    for (int i = 0; i < 4; ++i) c[tile][i] *= scales[i / 2];
  finish<kBrain>(args, c, first_row, first_column, [&](int which) { return g + 8 * which; });
}

// ---- four bits -----------------------------------------------------------------------------------

// Of a group q * scale + zero is to be multiplied. What is, is 128 + q (or 1024 + q) + 8 for q between -8 and
// 7; the rest are multiples of the sum of the input, which its product with ones gives. A warp takes kUnit
// tiles at a time, and each kShare of them are of one group.
template <bool kBrain, int kTiles, int kUnit, int kShare>
__global__ void __launch_bounds__(kMostWarps * 32, kTiles == 1 ? 2 : 1)
    multiply_nibbles(const __grid_constant__ WeightArgs args) {
  constexpr float kOffset = (kBrain ? 128.0f : 1024.0f) + 8;
  constexpr int kColumns = kUnit * kTile, kShares = kUnit / kShare, kAhead = kShares > 2 ? 1 : 2;
  wait_for_kernel_before();
  const int warp = threadIdx.x / 32, warps = blockDim.x / 32, lane = threadIdx.x % 32, g = lane / 4,
            t = lane % 4;
  const int64_t first_row = int64_t(blockIdx.x) * kRows, first_column = int64_t(blockIdx.y) * kMostColumns;
  // Words of two rows: 2g is row g of a tile, 2g + 1 row g + 8.
  const uint32_t* words =
      static_cast<const uint32_t*>(args.weight) + int64_t(blockIdx.x) * args.k * 2 + t * 8 + g;
  const uint16_t* grids = static_cast<const uint16_t*>(args.scales) + (first_row + 2 * g) * 2;
  const int units = int(args.k / kColumns), group = int(args.group);
  float c[kTiles][4] = {};
  uint32_t coming[kAhead][kUnit];
  uint2 coming_grids[kAhead][kShares];
  const auto load = [&](int slot, int unit) {
    if (unit >= units) return;
#pragma unroll
    for (int i = 0; i < kUnit; ++i) coming[slot][i] = __ldcs(words + (int64_t(unit) * kUnit + i) * 32);
#pragma unroll
    for (int i = 0; i < kShares; ++i) {
      const int64_t of = (unit * kColumns + i * kShare * kTile) / group;
      coming_grids[slot][i] = __ldg(reinterpret_cast<const uint2*>(grids + of * args.n * 2));
    }
  };
#pragma unroll
  for (int slot = 0; slot < kAhead; ++slot) load(slot, warp + slot * warps);
  for (int first = warp; first < units; first += kAhead * warps) {
#pragma unroll
    for (int slot = 0; slot < kAhead; ++slot) {
      const int unit = first + slot * warps;
      if (unit >= units) break;
#pragma unroll
      for (int share = 0; share < kShares; ++share) {
        float products[kTiles][4] = {}, sums[4] = {};
#pragma unroll
        for (int i = share * kShare; i < (share + 1) * kShare; ++i) {
          const uint32_t low = first_bytes(coming[slot][i]), high = last_bytes(coming[slot][i]);
          const uint32_t a[4] = {(low & 0x000f000fu) | kBase<kBrain>, (high & 0x000f000fu) | kBase<kBrain>,
                                 ((low >> 4) & 0x000f000fu) | kBase<kBrain>,
                                 ((high >> 4) & 0x000f000fu) | kBase<kBrain>};
          uint2 x[2] = {};
#pragma unroll
          for (int tile = 0; tile < kTiles; ++tile) {
            const int64_t row = first_column + tile * 8 + g,
                          place = int64_t(unit) * kColumns + i * kTile + 4 * t;
            const auto* from =
                reinterpret_cast<const uint2*>(static_cast<const uint16_t*>(args.x) + row * args.k + place);
            if (row < args.m) x[tile] = __ldg(from);
            matrix::multiply<kBrain>(products[tile], a, x[tile].x, x[tile].y);
          }
          const uint32_t input[4] = {x[0].x, x[1].x, x[0].y, x[1].y};
          matrix::multiply<kBrain>(sums, input, kOnes<kBrain>, kOnes<kBrain>);
        }
        const float2 own[2] = {matrix::widen_pair<kBrain>(coming_grids[slot][share].x),
                               matrix::widen_pair<kBrain>(coming_grids[slot][share].y)};  // scales and zeros
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            // The sum of row 2t or 2t + 1 of the input: lanes of that group have it.
            const float sum = __shfl_sync(0xffffffffu, sums[2 * tile], (2 * t + i % 2) * 4);
            c[tile][i] += own[i / 2].x * (products[tile][i] - kOffset * sum) + own[i / 2].y * sum;
          }
      }
      load(slot, unit + kAhead * warps);
    }
  }
  finish<kBrain>(args, c, first_row, first_column, [&](int which) { return 2 * g + which; });
}

// ---- the operators -------------------------------------------------------------------------------

// As many warps for a block as let all blocks run at once, with some 32 warps on each processor, or half as
// many where they need twice the registers.
int warps_for(const WeightArgs& args, int device) {
  const int64_t blocks = (args.n + kRows - 1) / kRows * ((args.m + kMostColumns - 1) / kMostColumns);
  const int64_t each =
      (blocks + properties(device).multiProcessorCount - 1) / properties(device).multiProcessorCount;
  const int64_t room = (args.m <= 8 ? 32 : 16) / each;
  return room >= 16 ? 16 : room >= 8 ? 8 : 4;
}

template <class Kernel>
void start(Kernel kernel, const WeightArgs& args, const char* what) {
  const dim3 grid(unsigned((args.n + kRows - 1) / kRows),
                  unsigned((args.m + kMostColumns - 1) / kMostColumns));
  const int device = current_device();
  launch_early(kernel, grid, dim3(unsigned(warps_for(args, device) * 32)), current_stream(device), what,
               args);
}

template <bool kBrain, int kTiles>
void launch_nibbles(const WeightArgs& args) {
  constexpr const char* name = "_weight_int4pack_mm_for_cpu";
  if (args.k % 128 != 0 || args.group % 32 != 0)
    start(multiply_nibbles<kBrain, kTiles, 1, 1>, args, name);
  else if (args.group % 128 == 0)
    start(multiply_nibbles<kBrain, kTiles, 8, 8>, args, name);
  else if (args.group % 64 == 0)
    start(multiply_nibbles<kBrain, kTiles, 8, 4>, args, name);
  else
    start(multiply_nibbles<kBrain, kTiles, 8, 2>, args, name);
}

template <bool kBrain>
void launch_product(const WeightArgs& args, bool nibbles) {
  const bool few = args.m <= 8;
  if (nibbles)
    few ? launch_nibbles<kBrain, 1>(args) : launch_nibbles<kBrain, 2>(args);
  else if (few)
    start(multiply_bytes<kBrain, 1>, args, "_weight_int8pack_mm");
  else
    start(multiply_bytes<kBrain, 2>, args, "_weight_int8pack_mm");
}

// The product, where the kernels take it; undefined where they do not.
Tensor multiply(const Tensor& self, const Tensor& weight, const Tensor& scales, int64_t group, bool nibbles) {
  const DType dtype = self.dtype();
  const int64_t m = self.size(0), k = self.size(1), n = weight.size(0);
  const int64_t step = nibbles ? kTile : kByteUnit;
  if ((dtype != DType::BFloat16 && dtype != DType::Half) || k == 0 || k % step != 0 || k > 1 << 30 ||
      m > 65535 * kMostColumns)
    return Tensor();
  if (nibbles && group % kTile != 0) return Tensor();
  const Tensor out = empty({m, n}, self.options());
  if (m == 0 || n == 0) return out;
  const Tensor x = contiguous(self), w = contiguous(weight), grids = contiguous(to_dtype(scales, dtype));
  if (!is_aligned(x.raw()) || !is_aligned(w.raw()) || !is_aligned(grids.raw())) return Tensor();
  const WeightArgs args{x.raw(), w.raw(), grids.raw(), out.raw(), m, n, k, group};
  OnDevice on(self.device().index);
  dtype == DType::BFloat16 ? launch_product<true>(args, nibbles) : launch_product<false>(args, nibbles);
  return out;
}

template <bool kNibbles>
void weight_product(const Operator& op, void*, KeySet keys, Value* args, Value* results) {
  check_on_device(op, args);
  const Described described(op, args);  // raises for bad arguments
  Tensor result = kNibbles
                      ? multiply(args[0].tensor(), args[1].tensor(), args[3].tensor(), args[2].to_int(), true)
                      : multiply(args[0].tensor(), args[1].tensor(), args[2].tensor(), 0, false);
  if (result.defined())
    results[0] = Value(std::move(result));
  else
    by_definition(op, keys, args, results);
}

const detail::Register eight{"_weight_int8pack_mm", {Key::CUDA}, Kernel{weight_product<false>, nullptr}};
const detail::Register four{
    "_weight_int4pack_mm_for_cpu", {Key::CUDA}, Kernel{weight_product<true>, nullptr}};

}  // namespace
}  // namespace fl::cuda

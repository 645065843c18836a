// Joins tensors whose rows lie side by side, by all threads at once.
#include <cstring>
#include <limits>

#include "core/parallel.h"
#include "cpu/engine/cast.h"
#include "ops/lists.h"

namespace fl {
namespace {

// Interleaves the rows of the parts: out = row 0 of each part, then row 1 of each, ...
void join_rows(const std::vector<JoinPart>& parts, int64_t rows, int64_t item, DType dtype, char* out) {
  int64_t width = 0, smallest = std::numeric_limits<int64_t>::max();
  for (const JoinPart& p : parts) {
    width += p.bytes;
    smallest = std::min(smallest, p.bytes);
  }
  if (rows > 1 && smallest <= 64) {
    // Short pieces: a block of rows at a time, part by part, so that each copy is one strided loop.
    const int64_t block = std::max<int64_t>(1, 16384 / width);
    const CastFn copy = cast_fn(dtype, dtype);
    parallel_for((rows + block - 1) / block, std::max<int64_t>(1, kGrain / (block * width / item + 1)),
                 [&](int64_t b, int64_t e) {
                   for (int64_t r0 = b * block; r0 < std::min(rows, e * block); r0 += block) {
                     const int64_t n = std::min(block, rows - r0);
                     char* to = out + r0 * width;
                     for (const JoinPart& p : parts) {
                       const char* from = p.data + r0 * p.bytes;
                       if (p.bytes <= 4 * item) {
                         for (int64_t k = 0; k < p.bytes; k += item)
                           copy(from + k, p.bytes, to + k, width, n);
                       } else {
                         for (int64_t i = 0; i < n; ++i)
                           std::memcpy(to + i * width, from + i * p.bytes, p.bytes);
                       }
                       to += p.bytes;
                     }
                   }
                 });
    return;
  }
  // Long pieces: threads share the bytes of the output wherever the cuts fall.
  parallel_for(rows * width, kGrain * 8, [&](int64_t begin, int64_t end) {
    int64_t row = begin / width, skip = begin % width, at = begin;
    for (; at < end; ++row) {
      for (const JoinPart& p : parts) {
        if (skip >= p.bytes) {
          skip -= p.bytes;
          continue;
        }
        const int64_t n = std::min(p.bytes - skip, end - at);
        if (n <= 0) break;
        std::memcpy(out + at, p.data + row * p.bytes + skip, n);
        at += n;
        skip = 0;
      }
    }
  });
}

FL_ATTACH(join, CPU, [](const std::vector<JoinPart>& parts, int64_t rows, const Tensor& out) {
  join_rows(parts, rows, out.itemsize(), out.dtype(), out.raw());
  return true;
});

}  // namespace
}  // namespace fl

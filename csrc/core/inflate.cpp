#include "core/inflate.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <vector>

#include "core/error.h"

namespace fl {
namespace {

constexpr int kLongestCode = 15;
constexpr int kLiterals = 288, kDistances = 30, kEnd = 256;

// Lengths and distances: the smallest of a symbol, and how many bits follow it.
constexpr uint16_t kLengthBase[] = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                    31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
constexpr uint8_t kLengthBits[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                   2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
constexpr uint16_t kDistanceBase[] = {1,    2,    3,    4,    5,    7,    9,    13,    17,    25,
                                      33,   49,   65,   97,   129,  193,  257,  385,   513,   769,
                                      1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
constexpr uint8_t kDistanceBits[] = {0, 0, 0, 0, 1, 1, 2, 2,  3,  3,  4,  4,  5,  5,  6,
                                     6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13};
// The order in which the lengths of the codes for lengths are stored.
constexpr uint8_t kOrder[] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};

[[noreturn]] void damaged() {
  fail("[archive] expected compressed data, got other bytes");
}

class Bits {
 public:
  Bits(const char* data, size_t size) : data_(data), size_(size) {}

  uint32_t take(int count) {
    while (held_ < count) {
      if (at_ == size_) damaged();
      buffer_ |= static_cast<uint32_t>(static_cast<unsigned char>(data_[at_++])) << held_;
      held_ += 8;
    }
    const uint32_t value = buffer_ & ((1U << count) - 1);
    buffer_ >>= count;
    held_ -= count;
    return value;
  }
  // Drops the rest of a byte.
  void align() { buffer_ = 0, held_ = 0; }

 private:
  const char* data_;
  size_t size_, at_ = 0;
  uint32_t buffer_ = 0;
  int held_ = 0;
};

// A prefix code in its canonical form: how many codes there are of each length, and symbols in the order of
// codes.
class Code {
 public:
  Code(const uint8_t* lengths, int count) {
    for (int i = 0; i < count; ++i) ++counts_[lengths[i]];
    counts_[0] = 0;
    std::array<uint16_t, kLongestCode + 2> offsets{};
    int left = 1;
    for (size_t length = 1; length <= kLongestCode; ++length) {
      left = left * 2 - counts_[length];
      if (left < 0) damaged();  // more codes than fit
      offsets[length + 1] = static_cast<uint16_t>(offsets[length] + counts_[length]);
    }
    symbols_.resize(offsets[kLongestCode + 1]);
    for (int i = 0; i < count; ++i)
      if (lengths[i]) symbols_[offsets[lengths[i]]++] = static_cast<uint16_t>(i);
  }

  int symbol(Bits& bits) const {
    int code = 0, first = 0, index = 0;
    for (size_t length = 1; length <= kLongestCode; ++length) {
      code |= static_cast<int>(bits.take(1));
      const int count = counts_[length];
      if (code - count < first) return symbols_[static_cast<size_t>(index + code - first)];
      index += count;
      first = (first + count) << 1;
      code <<= 1;
    }
    damaged();
  }

 private:
  std::array<uint16_t, kLongestCode + 1> counts_{};
  std::vector<uint16_t> symbols_;
};

void stored_block(Bits& bits, std::string& out, size_t most) {
  bits.align();
  const uint32_t length = bits.take(16), inverse = bits.take(16);
  if ((length ^ inverse) != 0xffff || length > most - out.size()) damaged();
  for (uint32_t i = 0; i < length; ++i) out += static_cast<char>(bits.take(8));
}

void coded_block(Bits& bits, const Code& literals, const Code& distances, std::string& out, size_t most) {
  for (;;) {
    const int symbol = literals.symbol(bits);
    if (symbol == kEnd) return;
    if (symbol < kEnd) {
      if (out.size() == most) damaged();
      out += static_cast<char>(symbol);
      continue;
    }
    const auto length_row = static_cast<size_t>(symbol - kEnd - 1);
    if (length_row >= std::size(kLengthBase)) damaged();
    const size_t length = kLengthBase[length_row] + bits.take(kLengthBits[length_row]);
    const auto row = static_cast<size_t>(distances.symbol(bits));
    if (row >= kDistances) damaged();
    const size_t distance = kDistanceBase[row] + bits.take(kDistanceBits[row]);
    if (distance > out.size() || length > most - out.size()) damaged();
    for (size_t i = 0; i < length; ++i) out += out[out.size() - distance];
  }
}

void fixed_block(Bits& bits, std::string& out, size_t most) {
  uint8_t lengths[kLiterals];
  for (int i = 0; i < kLiterals; ++i) lengths[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
  uint8_t distances[kDistances];
  for (uint8_t& length : distances) length = 5;
  coded_block(bits, Code(lengths, kLiterals), Code(distances, kDistances), out, most);
}

void described_block(Bits& bits, std::string& out, size_t most) {
  const int literals = static_cast<int>(bits.take(5)) + 257, distances = static_cast<int>(bits.take(5)) + 1;
  const int described = static_cast<int>(bits.take(4)) + 4;
  uint8_t lengths[kLiterals + 64] = {};
  for (int i = 0; i < described; ++i) lengths[kOrder[i]] = static_cast<uint8_t>(bits.take(3));
  const Code code(lengths, 19);
  std::fill(std::begin(lengths), std::end(lengths), uint8_t(0));
  for (int at = 0; at < literals + distances;) {
    const int symbol = code.symbol(bits);
    if (symbol < 16) {
      lengths[at++] = static_cast<uint8_t>(symbol);
      continue;
    }
    if (symbol == 16 && at == 0) damaged();
    const uint8_t repeated = symbol == 16 ? lengths[at - 1] : uint8_t(0);
    int times = symbol == 16   ? 3 + static_cast<int>(bits.take(2))
                : symbol == 17 ? 3 + static_cast<int>(bits.take(3))
                               : 11 + static_cast<int>(bits.take(7));
    if (at + times > literals + distances) damaged();
    while (times-- > 0) lengths[at++] = repeated;
  }
  if (literals > kLiterals) damaged();
  coded_block(bits, Code(lengths, literals), Code(lengths + literals, distances), out, most);
}

}  // namespace

std::string inflate(const char* data, size_t size, size_t expected) {
  // A byte of compressed data stands for at most 1032 bytes.
  FL_CHECK(expected / 1032 <= size, "[archive] expected ", expected, " bytes, got ", size,
           " compressed ones");
  Bits bits(data, size);
  std::string out;
  out.reserve(expected);
  bool last = false;
  while (!last) {
    last = bits.take(1) != 0;
    switch (bits.take(2)) {
      case 0:
        stored_block(bits, out, expected);
        break;
      case 1:
        fixed_block(bits, out, expected);
        break;
      case 2:
        described_block(bits, out, expected);
        break;
      default:
        damaged();
    }
  }
  if (out.size() != expected) damaged();
  return out;
}

}  // namespace fl

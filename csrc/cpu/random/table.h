// Loops of the random operators, built for each instruction set (kernels/random.cpp): words of a Philox
// stream, and words turned into numbers of a distribution.
#pragma once

#include "ops/random.h"

namespace fl {

// Turns n words (or 2 n, for loops that use 64 bits an element) into n numbers. n need not be whole groups;
// the words are there for the whole group.
using RandomLoop = void (*)(const uint32_t* words, int64_t n, const RandomParams& params, void* out);

struct RandomTable {
  // Groups [group, group + groups) of the stream (seed, offset), 64 words each.
  void (*words)(uint64_t seed, uint64_t offset, int64_t group, int64_t groups, uint32_t* out);
  // Out is float for the first, double for the second.
  RandomLoop uniform[2], normal[2], exponential[2], cauchy[2], log_normal[2];
  RandomLoop geometric;  // double from 64 bits
  RandomLoop range32;    // int64: low + [0, range) from one word
  RandomLoop range64;    // int64 from two
  RandomLoop bernoulli;  // bool, true with probability range / 2**32
};

}  // namespace fl

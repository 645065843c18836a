// Integers of a program as polynomials of a few sizes: exact fits through samples, and the sizes they hold
// for.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace fl::compiled {

constexpr int kMaxSymbols = 4;
using Point = std::array<int64_t, kMaxSymbols>;  // the value of each symbol; 0 for those that are not used

// Sizes that polynomials are evaluated at; keeps products within 128 bits.
constexpr int64_t kMaxSize = int64_t(1) << 20;

// The sum of the terms, divided.
struct Polynomial {
  struct Term {
    std::array<uint8_t, kMaxSymbols> powers;
    int64_t numerator;
  };
  std::vector<Term> terms;
  int64_t denominator = 1;

  // Nothing where the value is no integer, or too large.
  std::optional<int64_t> at(const Point& point) const;
};

// The simplest polynomial of the first `symbols` symbols through all samples, of which there must be some
// more than it has unknowns.
std::optional<Polynomial> fit_polynomial(const std::vector<int64_t>& values, const std::vector<Point>& points,
                                         int symbols);

// Integer combinations of differences between points, as rows of a triangular matrix.
struct Lattice {
  std::array<Point, kMaxSymbols> rows{};

  void add(Point difference);
  bool contains(Point difference) const;
};

}  // namespace fl::compiled

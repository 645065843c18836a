#include "compiled/size_polynomial.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

namespace fl::compiled {
namespace {

__extension__ typedef __int128 int128;

constexpr int64_t kMaxValue = int64_t(1) << 44;  // keeps products within 128 bits
constexpr size_t kMostUnknowns = 4;

// Powers of up to three symbols.
struct Monomial {
  int a, b, c;
};
using Basis = std::vector<Monomial>;
constexpr Monomial kOne{0, 0, 0}, kA{1, 0, 0}, kB{0, 1, 0}, kC{0, 0, 1}, kAB{1, 1, 0}, kAC{1, 0, 1},
    kBC{0, 1, 1}, kAA{2, 0, 0}, kBB{0, 2, 0}, kAAB{2, 1, 0}, kABB{1, 2, 0}, kABC{1, 1, 1};

// What integers are tried to be sums of, the simplest first: of one symbol, of two, of three.
const std::array<std::vector<Basis>, 3>& bases() {
  static const std::array<std::vector<Basis>, 3> all = {{
      {{kOne, kA}, {kOne, kAA}, {kOne, kA, kAA}},
      {{kOne, kAB},
       {kOne, kAAB},
       {kOne, kABB},
       {kOne, kA, kB},
       {kOne, kA, kAB},
       {kOne, kB, kAB},
       {kOne, kA, kB, kAB}},
      {{kOne, kABC},
       {kOne, kA, kB, kC},
       {kOne, kAB, kABC},
       {kOne, kAC, kABC},
       {kOne, kBC, kABC},
       {kOne, kA, kAB, kABC},
       {kOne, kA, kAC, kABC}},
  }};
  return all;
}

// Samples beyond the unknowns that a fit needs. With one to spare, integers that are rounded (n / 6 * 6) met
// some basis by chance; more bases need more.
constexpr size_t kSpare = 2, kSpareOfSeveral = 3;
constexpr int64_t kMaxDenominator = 64;  // of sizes that are divided; larger ones are chance

int64_t power(int64_t base, int exponent) {
  int64_t result = 1;
  for (int i = 0; i < exponent; ++i) result *= base;
  return result;
}

int128 magnitude(int128 x) {
  return x < 0 ? -x : x;
}

int128 greatest_divisor(int128 a, int128 b) {
  a = magnitude(a);
  b = magnitude(b);
  while (b != 0) a = std::exchange(b, a % b);
  return a;
}

// Coefficients of n unknowns, then the right-hand side.
using Row = std::array<int128, kMostUnknowns + 1>;

// Solves equations in integers, as numerators over one denominator; false if they have no solution, or many.
bool solve(std::vector<Row>& rows, size_t n, std::array<int64_t, kMostUnknowns>& numerators,
           int64_t& denominator) {
  // Elimination without fractions: in the end all pivots are equal, and the rows that are left must be zero.
  int128 pivot = 1;
  for (size_t k = 0; k < n; ++k) {
    const auto usable = std::find_if(rows.begin() + static_cast<ptrdiff_t>(k), rows.end(),
                                     [&](const Row& row) { return row[k] != 0; });
    if (usable == rows.end()) return false;
    std::swap(*usable, rows[k]);
    for (size_t r = 0; r < rows.size(); ++r) {
      if (r == k) continue;
      const int128 factor = rows[r][k];
      for (size_t j = 0; j <= n; ++j) rows[r][j] = (rows[k][k] * rows[r][j] - factor * rows[k][j]) / pivot;
    }
    pivot = rows[k][k];
  }
  for (size_t r = n; r < rows.size(); ++r)
    if (rows[r][n] != 0) return false;
  int128 divisor = pivot;
  for (size_t k = 0; k < n; ++k) divisor = greatest_divisor(divisor, rows[k][n]);
  if (pivot < 0) divisor = -divisor;
  const auto fits = [](int128 x) { return magnitude(x) < (int128(1) << 62); };
  if (!fits(pivot / divisor)) return false;
  denominator = static_cast<int64_t>(pivot / divisor);
  for (size_t k = 0; k < n; ++k) {
    if (!fits(rows[k][n] / divisor)) return false;
    numerators[k] = static_cast<int64_t>(rows[k][n] / divisor);
  }
  return true;
}

// Which symbols stand for a, b and c of a basis.
using Names = std::array<int, 3>;

Polynomial::Term term_of(const Monomial& m, const Names& names) {
  Polynomial::Term term{{}, 0};
  const int powers[3] = {m.a, m.b, m.c};
  for (int i = 0; i < 3; ++i)
    if (powers[i]) term.powers[names[i]] = static_cast<uint8_t>(powers[i]);
  return term;
}

int64_t value_of(const Polynomial::Term& term, const Point& at) {
  int64_t product = 1;
  for (int i = 0; i < kMaxSymbols; ++i) product *= power(at[i], term.powers[i]);
  return product;
}

std::optional<Polynomial> fit_in(const Basis& basis, const Names& names, const std::vector<int64_t>& values,
                                 const std::vector<Point>& points, size_t spare) {
  const size_t n = basis.size();
  Polynomial polynomial;
  for (const Monomial& m : basis) polynomial.terms.push_back(term_of(m, names));
  std::vector<Row> rows;
  std::set<std::array<int64_t, kMostUnknowns>> distinct;
  for (size_t s = 0; s < points.size(); ++s) {
    std::array<int64_t, kMostUnknowns> monomials{};
    for (size_t k = 0; k < n; ++k) monomials[k] = value_of(polynomial.terms[k], points[s]);
    distinct.insert(monomials);
    Row row{};
    std::copy_n(monomials.begin(), n, row.begin());
    row[n] = values[s];
    rows.push_back(row);
  }
  if (distinct.size() < n + spare) return std::nullopt;
  std::array<int64_t, kMostUnknowns> numerators{};
  if (!solve(rows, n, numerators, polynomial.denominator)) return std::nullopt;
  if (polynomial.denominator > kMaxDenominator) return std::nullopt;
  for (size_t k = 0; k < n; ++k) polynomial.terms[k].numerator = numerators[k];
  for (size_t s = 0; s < points.size(); ++s)
    if (polynomial.at(points[s]) != values[s]) return std::nullopt;
  return polynomial;
}

// Calls f with every choice of `count` symbols, in order; stops where it returns true.
template <class F>
bool any_choice(int symbols, int count, const F& f) {
  for (int i = 0; i < symbols; ++i) {
    if (count == 1) {
      if (f(Names{i, 0, 0})) return true;
      continue;
    }
    for (int j = i + 1; j < symbols; ++j) {
      if (count == 2) {
        if (f(Names{i, j, 0})) return true;
        continue;
      }
      for (int k = j + 1; k < symbols; ++k)
        if (f(Names{i, j, k})) return true;
    }
  }
  return false;
}

}  // namespace

std::optional<int64_t> Polynomial::at(const Point& point) const {
  const auto is_constant = [](const Term& term) { return term.powers == decltype(term.powers){}; };
  if (terms.size() == 1 && is_constant(terms[0]) && denominator == 1) return terms[0].numerator;
  int128 sum = 0;
  for (const Term& term : terms) sum += static_cast<int128>(term.numerator) * value_of(term, point);
  if (sum % denominator != 0) return std::nullopt;
  sum /= denominator;
  if (magnitude(sum) > kMaxValue) return std::nullopt;
  return static_cast<int64_t>(sum);
}

std::optional<Polynomial> fit_polynomial(const std::vector<int64_t>& values, const std::vector<Point>& points,
                                         int symbols) {
  if (std::all_of(values.begin(), values.end(), [&](int64_t v) { return v == values[0]; })) {
    Polynomial constant;
    constant.terms.push_back({{}, values[0]});
    return constant;
  }
  for (int64_t v : values)
    if (v > kMaxValue || v < -kMaxValue) return std::nullopt;
  std::optional<Polynomial> polynomial;
  for (int count = 1; count <= std::min(symbols, 3); ++count) {
    for (const Basis& basis : bases()[count - 1]) {
      const bool fitted = any_choice(symbols, count, [&](const Names& names) {
        polynomial = fit_in(basis, names, values, points, symbols == 1 ? kSpare : kSpareOfSeveral);
        return polynomial.has_value();
      });
      if (fitted) return polynomial;
    }
  }
  return std::nullopt;
}

void Lattice::add(Point difference) {
  for (int k = 0; k < kMaxSymbols; ++k) {
    while (difference[k] != 0) {
      if (rows[k][k] != 0) {
        const int64_t times = rows[k][k] / difference[k];
        for (int i = 0; i < kMaxSymbols; ++i) rows[k][i] -= times * difference[i];
      }
      std::swap(rows[k], difference);
    }
  }
}

bool Lattice::contains(Point difference) const {
  for (int k = 0; k < kMaxSymbols; ++k) {
    if (rows[k][k] == 0) {
      if (difference[k] != 0) return false;
      continue;
    }
    if (difference[k] % rows[k][k] != 0) return false;
    const int64_t times = difference[k] / rows[k][k];
    for (int i = 0; i < kMaxSymbols; ++i) difference[i] -= times * rows[k][i];
  }
  return true;
}

}  // namespace fl::compiled

#include "compiled/plan_family.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "autograd/autocast.h"
#include "compiled/plan_integers.h"

namespace fl::compiled {
namespace {

__extension__ typedef __int128 int128;

constexpr int64_t kMaxSize = int64_t(1) << 20, kMaxValue = int64_t(1)
                                                           << 44;  // keeps products within 128 bits

// Powers of the two symbols.
struct Monomial {
  int first, second;
};
constexpr Monomial kOne{0, 0}, kA{1, 0}, kB{0, 1}, kAB{1, 1}, kAA{2, 0}, kBB{0, 2}, kAAB{2, 1}, kABB{1, 2};

// What integers are tried to be sums of, the simplest first. The first four need one symbol only.
const std::vector<std::vector<Monomial>>& bases() {
  static const std::vector<std::vector<Monomial>> all = {
      {kOne},          {kOne, kA},      {kOne, kAA},     {kOne, kA, kAA},     {kOne, kB},
      {kOne, kAB},     {kOne, kBB},     {kOne, kAAB},    {kOne, kABB},        {kOne, kA, kB},
      {kOne, kA, kAB}, {kOne, kB, kAB}, {kOne, kB, kBB}, {kOne, kA, kB, kAB},
  };
  return all;
}
constexpr size_t kBasesOfOneSymbol = 4;

// Samples beyond the unknowns that a fit needs. With one to spare, integers that are rounded (n / 6 * 6) met
// some basis by chance; more bases need more.
constexpr size_t kSpare = 2, kSpareOfTwo = 3;
constexpr int64_t kMaxDenominator = 64;  // of sizes that are divided; larger ones are chance

int64_t power(int64_t base, int exponent) {
  int64_t result = 1;
  for (int i = 0; i < exponent; ++i) result *= base;
  return result;
}

int64_t value_of(Monomial m, const std::array<int64_t, 2>& at) {
  return power(at[0], m.first) * power(at[1], m.second);
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
using Row = std::array<int128, 5>;

// Solves equations in integers, as numerators over one denominator; false if they have no solution, or many.
bool solve(std::vector<Row>& rows, size_t n, std::array<int64_t, 4>& numerators, int64_t& denominator) {
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

}  // namespace

bool PlanFamily::accepts(const CompiledGraph& graph) {
  const auto on_host = [](const Program& program) {
    if (program.device.type != DeviceType::CPU || program.replay) return false;
    return std::none_of(program.steps.begin(), program.steps.end(),
                        [](const Step& step) { return std::holds_alternative<KernelStep>(step); });
  };
  return !graph.refused && on_host(graph.forward) && (!graph.backward || on_host(*graph.backward));
}

PlanFamily::PlanFamily(const Ref<CompiledGraph>& graph) : model_(graph) {
  for (const InputSpec& input : graph->inputs) {
    is_size_.insert(is_size_.end(), input.sizes.size(), true);
    is_size_.insert(is_size_.end(), input.strides.size(), false);
  }
  input_integers_ = is_size_.size();
  std::map<int64_t, int32_t> classes;
  visit_integers(*graph, [&](int64_t value) {
    const auto [entry, is_new] = classes.try_emplace(value, static_cast<int32_t>(values_.size()));
    if (is_new) values_.push_back({value});
    class_of_.push_back(entry->second);
    return value;
  });
  samples_ = 1;
}

bool PlanFamily::add(const CompiledGraph& graph) {
  if (samples_ >= kMaxSamples || !same_structure(*model_, graph)) return false;
  std::vector<int64_t> integers;
  integers.reserve(class_of_.size());
  visit_integers(graph, [&](int64_t value) {
    integers.push_back(value);
    return value;
  });
  if (integers.size() != class_of_.size()) return false;
  for (size_t i = 0; i < input_integers_; ++i) {
    const int64_t known = values_[class_of_[i]][0];
    if (is_size_[i] && integers[i] != known && std::min(integers[i], known) < 2) return false;
  }
  // Classes are divided where the new sample tells integers apart.
  PlanFamily longer(*this);
  std::map<std::pair<int32_t, int64_t>, int32_t> classes;
  longer.values_.clear();
  for (size_t i = 0; i < integers.size(); ++i) {
    const auto [entry, is_new] =
        classes.try_emplace({class_of_[i], integers[i]}, static_cast<int32_t>(longer.values_.size()));
    if (is_new) {
      longer.values_.push_back(values_[class_of_[i]]);
      longer.values_.back().push_back(integers[i]);
    }
    longer.class_of_[i] = entry->second;
  }
  ++longer.samples_;
  longer.ready_ = longer.fit();
  if (ready_ && !longer.ready_) return false;
  *this = std::move(longer);
  return true;
}

// Chooses the symbols, and fits every class.
bool PlanFamily::fit() {
  symbols_.clear();
  points_.assign(samples_, Point{});
  std::vector<std::optional<Polynomial>> known(values_.size());
  const auto fit_class = [&](int32_t c) {
    if (!known[c]) known[c] = fit(values_[c], static_cast<int>(symbols_.size()));
    return known[c].has_value();
  };
  for (size_t i = 0; i < input_integers_; ++i) {
    if (fit_class(class_of_[i])) continue;
    if (!is_size_[i]) continue;  // it may depend on a size that comes later
    if (symbols_.size() == kMaxSymbols) return false;
    for (size_t s = 0; s < samples_; ++s) {
      const int64_t size = values_[class_of_[i]][s];
      if (size > kMaxSize) return false;
      points_[s][symbols_.size()] = size;
    }
    symbols_.push_back(i);
    if (!fit_class(class_of_[i])) return false;
  }
  if (symbols_.empty()) return false;
  polynomials_.resize(values_.size());
  for (size_t c = 0; c < values_.size(); ++c) {
    if (!fit_class(static_cast<int32_t>(c))) return false;
    polynomials_[c] = *known[c];
  }
  lattice_ = {};
  for (const Point& p : points_) lattice_.add({p[0] - points_[0][0], p[1] - points_[0][1]});
  return true;
}

// The simplest polynomial through all samples, of which there must be some more than it has unknowns.
std::optional<PlanFamily::Polynomial> PlanFamily::fit(const std::vector<int64_t>& values, int symbols) const {
  if (std::all_of(values.begin(), values.end(), [&](int64_t v) { return v == values[0]; }))
    return Polynomial{0, {values[0]}, 1};
  if (symbols == 0) return std::nullopt;
  for (int64_t v : values)
    if (v > kMaxValue || v < -kMaxValue) return std::nullopt;
  const size_t tried = symbols == 1 ? kBasesOfOneSymbol : bases().size();
  for (size_t b = 1; b < tried; ++b) {
    const std::vector<Monomial>& basis = bases()[b];
    const size_t n = basis.size();
    std::vector<Row> rows;
    std::set<std::array<int64_t, 4>> distinct;
    for (size_t s = 0; s < samples_; ++s) {
      std::array<int64_t, 4> monomials{};
      for (size_t k = 0; k < n; ++k) monomials[k] = value_of(basis[k], points_[s]);
      distinct.insert(monomials);
      Row row{};
      std::copy_n(monomials.begin(), n, row.begin());
      row[n] = values[s];
      rows.push_back(row);
    }
    if (distinct.size() < n + (symbols == 1 ? kSpare : kSpareOfTwo)) continue;
    Polynomial polynomial{static_cast<int>(b), {}, 1};
    if (!solve(rows, n, polynomial.numerators, polynomial.denominator)) continue;
    if (polynomial.denominator > kMaxDenominator) continue;
    bool right = true;
    for (size_t s = 0; s < samples_ && right; ++s) right = evaluate(polynomial, points_[s]) == values[s];
    if (right) return polynomial;
  }
  return std::nullopt;
}

std::optional<int64_t> PlanFamily::evaluate(const Polynomial& polynomial, Point at) {
  const std::vector<Monomial>& basis = bases()[polynomial.basis];
  int128 sum = 0;
  for (size_t k = 0; k < basis.size(); ++k)
    sum += static_cast<int128>(polynomial.numerators[k]) * value_of(basis[k], at);
  if (sum % polynomial.denominator != 0) return std::nullopt;
  sum /= polynomial.denominator;
  if (magnitude(sum) > kMaxValue) return std::nullopt;
  return static_cast<int64_t>(sum);
}

void PlanFamily::Lattice::add(Point difference) {
  while (difference[0] != 0) {
    if (first[0] != 0) {
      const int64_t times = first[0] / difference[0];
      first = {first[0] - times * difference[0], first[1] - times * difference[1]};
    }
    std::swap(first, difference);
  }
  second[1] = std::gcd(second[1], difference[1]);
}

bool PlanFamily::Lattice::contains(Point difference) const {
  if (first[0] == 0) {
    if (difference[0] != 0) return false;
  } else {
    if (difference[0] % first[0] != 0) return false;
    difference[1] -= difference[0] / first[0] * first[1];
  }
  return second[1] == 0 ? difference[1] == 0 : difference[1] % second[1] == 0;
}

// Whether sizes lie between those of samples: in a triangle, or on a line, with samples at its corners.
bool PlanFamily::covers(Point at) const {
  for (int i = 0; i < static_cast<int>(symbols_.size()); ++i)
    if (at[i] < 2 || at[i] > kMaxSize) return false;
  if (!lattice_.contains({at[0] - points_[0][0], at[1] - points_[0][1]})) return false;
  const auto side = [&](const Point& p, const Point& q) {
    return (q[0] - p[0]) * (at[1] - p[1]) - (q[1] - p[1]) * (at[0] - p[0]);
  };
  const auto between = [](int64_t x, int64_t a, int64_t b) {
    return std::min(a, b) <= x && x <= std::max(a, b);
  };
  for (size_t i = 0; i < points_.size(); ++i) {
    for (size_t j = 0; j <= i; ++j) {
      const Point &p = points_[i], &q = points_[j];
      if (side(p, q) == 0 && between(at[0], p[0], q[0]) && between(at[1], p[1], q[1])) return true;
      for (size_t k = 0; k < j; ++k) {
        const Point& r = points_[k];
        const int64_t a = side(p, q), b = side(q, r), c = side(r, p);
        if ((a > 0 && b > 0 && c > 0) || (a < 0 && b < 0 && c < 0)) return true;
      }
    }
  }
  return false;
}

bool PlanFamily::looks_alike(const Tensor* tensors) const {
  if (thread_state().grad_mode != model_->grad_mode || autocast::signature() != model_->autocast)
    return false;
  for (size_t i = 0; i < model_->inputs.size(); ++i) {
    const InputSpec& spec = model_->inputs[i];
    const TensorImpl& t = *tensors[i].impl();
    if (t.dtype != spec.dtype || tensors[i].requires_grad() != spec.requires_grad ||
        t.device != spec.device || t.sizes.size() != spec.sizes.size() ||
        is_aligned(tensors[i]) != spec.aligned)
      return false;
  }
  return true;
}

Ref<CompiledGraph> PlanFamily::instantiate(const Tensor* tensors) const {
  if (!ready_ || !looks_alike(tensors)) return {};
  std::vector<int64_t> inputs;
  inputs.reserve(input_integers_);
  for (size_t i = 0; i < model_->inputs.size(); ++i) {
    const TensorImpl& t = *tensors[i].impl();
    inputs.insert(inputs.end(), t.sizes.begin(), t.sizes.end());
    inputs.insert(inputs.end(), t.strides.begin(), t.strides.end());
  }
  Point at{};
  for (size_t i = 0; i < symbols_.size(); ++i) at[i] = inputs[symbols_[i]];
  if (!covers(at)) return {};
  std::vector<int64_t> values(polynomials_.size());
  for (size_t c = 0; c < polynomials_.size(); ++c) {
    const std::optional<int64_t> value = evaluate(polynomials_[c], at);
    if (!value) return {};
    values[c] = *value;
  }
  for (size_t i = 0; i < input_integers_; ++i)
    if (values[class_of_[i]] != inputs[i]) return {};
  Ref<CompiledGraph> graph = model_->copy();
  size_t next = 0;
  visit_integers(*graph, [&](int64_t) { return values[class_of_[next++]]; });
  const auto finish = [](Program& program) {
    program.lay_out();
    return std::all_of(program.room.begin(), program.room.end(),
                       [](const Room& room) { return room.wanted <= room.available; });
  };
  if (!finish(graph->forward) || (graph->backward && !finish(*graph->backward))) return {};
  return graph;
}

}  // namespace fl::compiled

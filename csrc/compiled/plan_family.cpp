#include "compiled/plan_family.h"

#include <algorithm>
#include <map>
#include <utility>

#include "autograd/autocast.h"
#include "compiled/plan_integers.h"

namespace fl::compiled {

std::optional<std::vector<int64_t>> SizePlan::values_at(const Point& at) const {
  Point difference{};
  for (size_t i = 0; i < symbols.size(); ++i) {
    if (at[i] < 2 || at[i] > kMaxSize) return std::nullopt;
    difference[i] = at[i] - origin[i];
  }
  if (!lattice.contains(difference)) return std::nullopt;
  std::vector<int64_t> values(polynomials.size());
  for (size_t c = 0; c < polynomials.size(); ++c) {
    const std::optional<int64_t> value = polynomials[c].at(at);
    if (!value) return std::nullopt;
    values[c] = *value;
  }
  return values;
}

Ref<CompiledGraph> SizePlan::instantiate(const std::vector<int64_t>& values) const {
  Ref<CompiledGraph> graph = model->copy();
  size_t next = 0;
  visit_integers(*graph, [&](int64_t) { return values[class_of[next++]]; });
  const auto finish = [](Program& program) {
    program.lay_out();
    return std::all_of(program.room.begin(), program.room.end(),
                       [](const Room& room) { return room.wanted <= room.available; });
  };
  if (!finish(graph->forward) || (graph->backward && !finish(*graph->backward))) return {};
  return graph;
}

bool PlanFamily::accepts(const CompiledGraph& graph) {
  const auto on_host = [](const Program& program) {
    if (program.device.type != DeviceType::CPU || program.replay) return false;
    return std::none_of(program.steps.begin(), program.steps.end(),
                        [](const Step& step) { return std::holds_alternative<KernelStep>(step); });
  };
  return !graph.refused && on_host(graph.forward) && (!graph.backward || on_host(*graph.backward));
}

bool PlanFamily::accepts_recorded(const CompiledGraph& graph) {
  return !graph.refused && !graph.forward.replay && !graph.backward;
}

PlanFamily::PlanFamily(const Ref<CompiledGraph>& graph, int most_symbols, size_t most_samples)
    : most_symbols_(most_symbols), most_samples_(most_samples) {
  plan_.model = graph;
  for (const InputSpec& input : graph->inputs) {
    is_size_.insert(is_size_.end(), input.sizes.size(), true);
    is_size_.insert(is_size_.end(), input.strides.size(), false);
  }
  input_integers_ = is_size_.size();
  std::map<int64_t, int32_t> classes;
  visit_integers(*graph, [&](int64_t value) {
    const auto [entry, is_new] = classes.try_emplace(value, static_cast<int32_t>(values_.size()));
    if (is_new) values_.push_back({value});
    plan_.class_of.push_back(entry->second);
    return value;
  });
  samples_ = 1;
}

bool PlanFamily::add(const CompiledGraph& graph) {
  if (samples_ >= most_samples_ || !same_structure(*plan_.model, graph)) return false;
  const std::vector<int32_t>& class_of = plan_.class_of;
  std::vector<int64_t> integers;
  integers.reserve(class_of.size());
  visit_integers(graph, [&](int64_t value) {
    integers.push_back(value);
    return value;
  });
  if (integers.size() != class_of.size()) return false;
  for (size_t i = 0; i < input_integers_; ++i) {
    const int64_t known = values_[class_of[i]][0];
    if (is_size_[i] && integers[i] != known && std::min(integers[i], known) < 2) return false;
  }
  // Classes are divided where the new sample tells integers apart.
  PlanFamily longer(*this);
  std::map<std::pair<int32_t, int64_t>, int32_t> classes;
  longer.values_.clear();
  for (size_t i = 0; i < integers.size(); ++i) {
    const auto [entry, is_new] =
        classes.try_emplace({class_of[i], integers[i]}, static_cast<int32_t>(longer.values_.size()));
    if (is_new) {
      longer.values_.push_back(values_[class_of[i]]);
      longer.values_.back().push_back(integers[i]);
    }
    longer.plan_.class_of[i] = entry->second;
  }
  ++longer.samples_;
  longer.ready_ = longer.fit();
  if (ready_ && !longer.ready_) return false;
  *this = std::move(longer);
  return true;
}

const SizePlan& PlanFamily::plan() {
  FL_CHECK(ready_ || samples_ == 1, "[plan] expected samples that determine every integer, got ", samples_);
  if (!ready_) {
    for (const std::vector<int64_t>& values : values_)
      plan_.polynomials.push_back(*fit_polynomial(values, {Point{}}, 0));
    ready_ = true;
  }
  return plan_;
}

// Chooses the symbols, and fits every class.
bool PlanFamily::fit() {
  std::vector<int32_t>& symbols = plan_.symbols;
  symbols.clear();
  points_.assign(samples_, Point{});
  std::vector<std::optional<Polynomial>> known(values_.size());
  const auto fit_class = [&](int32_t c) {
    if (!known[c]) known[c] = fit_polynomial(values_[c], points_, static_cast<int>(symbols.size()));
    return known[c].has_value();
  };
  for (size_t i = 0; i < input_integers_; ++i) {
    const int32_t c = plan_.class_of[i];
    if (fit_class(c)) continue;
    if (!is_size_[i]) continue;  // it may depend on a size that comes later
    if (static_cast<int>(symbols.size()) == most_symbols_) return false;
    for (size_t s = 0; s < samples_; ++s) {
      if (values_[c][s] > kMaxSize) return false;
      points_[s][symbols.size()] = values_[c][s];
    }
    symbols.push_back(static_cast<int32_t>(i));
    if (!fit_class(c)) return false;
  }
  if (symbols.empty()) return false;
  plan_.polynomials.resize(values_.size());
  for (size_t c = 0; c < values_.size(); ++c) {
    if (!fit_class(static_cast<int32_t>(c))) return false;
    plan_.polynomials[c] = *known[c];
  }
  plan_.origin = points_[0];
  plan_.lattice = {};
  for (const Point& p : points_) {
    Point difference{};
    for (int i = 0; i < kMaxSymbols; ++i) difference[i] = p[i] - points_[0][i];
    plan_.lattice.add(difference);
  }
  return true;
}

// Whether sizes lie between those of samples: in a triangle, or on a line, with samples at its corners.
bool PlanFamily::covers(const Point& at) const {
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
  if (thread_state().grad_mode != plan_.model->grad_mode || autocast::signature() != plan_.model->autocast)
    return false;
  for (size_t i = 0; i < plan_.model->inputs.size(); ++i) {
    const InputSpec& spec = plan_.model->inputs[i];
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
  for (size_t i = 0; i < plan_.model->inputs.size(); ++i) {
    const TensorImpl& t = *tensors[i].impl();
    inputs.insert(inputs.end(), t.sizes.begin(), t.sizes.end());
    inputs.insert(inputs.end(), t.strides.begin(), t.strides.end());
  }
  Point at{};
  for (size_t i = 0; i < plan_.symbols.size(); ++i) at[i] = inputs[plan_.symbols[i]];
  if (!covers(at)) return {};
  const std::optional<std::vector<int64_t>> values = plan_.values_at(at);
  if (!values) return {};
  for (size_t i = 0; i < input_integers_; ++i)
    if ((*values)[plan_.class_of[i]] != inputs[i]) return {};
  return plan_.instantiate(*values);
}

}  // namespace fl::compiled

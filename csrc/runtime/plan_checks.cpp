// Whether a plan that was read holds together: what running it relies on.
#include <algorithm>

#include "compiled/kept_value.h"
#include "compiled/plan_integers.h"
#include "runtime/package_plan.h"

namespace fl::runtime {
namespace {

using namespace compiled;

constexpr size_t kMostPointers = 256, kMostNumbers = 1024, kMostValues = 32, kMostDims = 64;
constexpr int kMostPower = 3;

void require(bool holds, const char* what) {
  FL_CHECK(holds, "[package] expected a plan that holds together, got one with ", what);
}

// Whether an operator takes a value for an argument; tensors are filled in later.
bool takes(const Argument& argument, const Value& value) {
  using Tag = Value::Tag;
  const Tag tag = value.tag();
  if (tag == Tag::None) return argument.optional || argument.has_default || argument.type == ArgType::Any;
  const bool is_list = tag == Tag::IntList || tag == Tag::FloatList || tag == Tag::BoolList;
  if (argument.list != is_list && argument.type != ArgType::Any) return false;
  switch (argument.type) {
    case ArgType::Tensor:
      return false;
    case ArgType::TensorOrScalar:
      return tag == Tag::Tensor || value.is_number();
    case ArgType::Scalar:
      return value.is_number() || is_list;
    case ArgType::Int:
      return tag == Tag::Int || tag == Tag::Bool || tag == Tag::IntList;
    case ArgType::Float:
      return (value.is_number() && tag != Tag::Complex) || tag == Tag::FloatList;
    case ArgType::Bool:
      return tag == Tag::Bool || tag == Tag::BoolList;
    case ArgType::String:
      return tag == Tag::String;
    case ArgType::DType:
      return tag == Tag::DType;
    case ArgType::Device:
      return tag == Tag::Device;
    case ArgType::Layout:
      return tag == Tag::Layout;
    case ArgType::MemoryFormat:
      return tag == Tag::MemoryFormat;
    case ArgType::Generator:
      return false;
    case ArgType::Any:
      return true;
  }
  return false;
}

class ProgramCheck {
 public:
  explicit ProgramCheck(const Program& program) : program_(program) {
    given_ = program.inputs + static_cast<int>(program.constants.size() + program.kept.size());
    require(program.inputs >= 0 && program.slots >= given_ && program.slots < (1 << 24), "too few slots");
    filled_.assign(static_cast<size_t>(program.slots), false);
    std::fill_n(filled_.begin(), given_, true);
  }

  void run() {
    for (const auto& kept_value : program_.kept) {
      require(kept_value->program.outputs.size() == 1 &&
                  kept_value->program.inputs == static_cast<int>(kept_value->inputs.size()),
              "a kept value of another form");
      for (int i : kept_value->inputs)
        require(i >= 0 && i < program_.inputs, "a kept value of absent inputs");
      ProgramCheck(kept_value->program).run();
    }
    for (const BlockSpan& block : program_.blocks)
      require(block.first <= block.last, "a block that ends first");
    for (const Step& step : program_.steps) std::visit([&](const auto& s) { (*this)(s); }, step);
    for (int slot : program_.outputs)
      if (slot != -1) used(slot);
    for (int i : program_.written) require(i >= 0 && i < program_.inputs, "writes to absent inputs");
  }

  void operator()(const AllocateStep& s) { geometry(s), fill(s.slot); }
  void operator()(const ViewStep& s) { geometry(s), used(s.base), fill(s.slot); }
  void operator()(const ArenaTensorStep& s) {
    geometry(s), fill(s.slot);
    require(s.location.slot < 0, "a tensor of the arena outside of it");
    location(s.location);
  }
  void operator()(const UnshareStep& s) {
    used(s.slot);
    require(s.slot >= given_, "an input that is not to be shared");
  }
  void operator()(const LoopStep& s) {
    require(s.entry != nullptr && s.pointers.size() <= kMostPointers && !s.numbers.empty() &&
                s.numbers.size() <= kMostNumbers,
            "a loop of another form");
    for (const Location& l : s.pointers) location(l);
  }
  void operator()(const ConcurrentLoopsStep& s) {
    for (const LoopStep& loop : s.loops) (*this)(loop);
  }
  void operator()(const KernelStep& s) {
    require(program_.device.type != DeviceType::CPU && s.function != nullptr && !s.outside &&
                s.pointers.size() <= kMostPointers && s.numbers.size() <= kMostNumbers,
            "a kernel of an accelerator of another form");
    for (const Location& l : s.pointers) location(l);
  }
  void operator()(const RandomStateStep& s) { fill(s.slot); }
  // Inputs are let go of only by runs that own them, and packages do not.
  void operator()(const ReleaseStep& s) {
    for (int slot : s.slots) {
      const bool is_constant = slot >= program_.inputs && slot < given_;
      require(slot >= 0 && slot < program_.slots && !is_constant, "a release of an absent slot");
      if (slot >= given_) filled_[static_cast<size_t>(slot)] = false;
    }
  }
  void operator()(const CallStep& s) {
    const Schema& schema = s.op->schema;
    const size_t n = schema.args.size();
    require(s.arguments.size() == n && n <= kMostValues && s.results.size() <= kMostValues &&
                s.offers.size() <= kMostOffers &&
                (schema.returns_list || s.results.size() <= schema.returns.size()) &&
                schema.returns.size() <= kMostValues,
            "a call of another form");
    std::vector<bool> set(n, false);
    const auto argument = [&](int i) -> const Argument& {
      require(i >= 0 && static_cast<size_t>(i) < n && !set[static_cast<size_t>(i)],
              "an absent argument of a call");
      set[static_cast<size_t>(i)] = true;
      return schema.args[static_cast<size_t>(i)];
    };
    for (const auto& [i, slot] : s.tensors) {
      const Argument& a = argument(i);
      require(!a.list && (a.type <= ArgType::TensorOrScalar || a.type == ArgType::Any),
              "a tensor for another argument");
      used(slot);
    }
    for (const CallStep::List& list : s.lists) {
      const Argument& a = argument(list.argument);
      require(a.list && a.type == ArgType::Tensor, "tensors for another argument");
      for (int slot : list.slots)
        if (slot != -1) used(slot);
    }
    for (const auto& [i, slot] : s.scalars) {
      argument(i);
      used(slot);
    }
    for (size_t i = 0; i < n; ++i)
      require(set[i] || takes(schema.args[i], s.arguments[i]), "an argument that the operator does not take");
    for (int slot : s.results)
      if (slot != -1) fill(slot);
    for (const CallStep::Offered& offer : s.offers) {
      used(offer.slot);
      location(offer.location);
      require(offer.location.slot < 0, "an offer outside of the arena");
    }
    for (const Dims& strides : s.strides) require(strides.size() <= kMostDims, "too many dimensions");
  }

 private:
  void used(int slot) const {
    require(slot >= 0 && slot < program_.slots && filled_[static_cast<size_t>(slot)],
            "a slot that is read too early");
  }
  void fill(int slot) {
    require(slot >= given_ && slot < program_.slots, "a slot that is written and absent");
    filled_[static_cast<size_t>(slot)] = true;
  }
  void location(const Location& l) const {
    if (l.slot >= 0) return used(l.slot);
    require(static_cast<size_t>(~l.slot) < program_.blocks.size(), "an absent block");
  }
  template <class S>
  static void geometry(const S& s) {
    require(s.sizes.size() == s.strides.size() && s.sizes.size() <= kMostDims, "sizes without strides");
  }

  const Program& program_;
  int given_ = 0;
  std::vector<bool> filled_;
};

void check_sizes(const SizePlan& plan, const PackagePlan& package) {
  size_t integers = 0;
  visit_integers(static_cast<const CompiledGraph&>(*plan.model), [&](int64_t value) {
    ++integers;
    return value;
  });
  require(integers == plan.class_of.size(), "integers without a polynomial");
  for (int32_t c : plan.class_of)
    require(c >= 0 && static_cast<size_t>(c) < plan.polynomials.size(), "an absent polynomial");
  for (const Polynomial& polynomial : plan.polynomials) {
    require(polynomial.denominator > 0 && !polynomial.terms.empty(), "a polynomial without terms");
    for (const Polynomial::Term& term : polynomial.terms) {
      int power = 0;
      for (uint8_t p : term.powers) power += p;
      require(power <= kMostPower, "a power that is too high");
    }
  }
  size_t input_integers = 0;
  for (const InputSpec& input : plan.model->inputs) {
    require(input.sizes.size() == input.strides.size() && input.sizes.size() <= kMostDims,
            "sizes without strides");
    input_integers += 2 * input.sizes.size();
  }
  require(plan.symbols.size() <= static_cast<size_t>(kMaxSymbols), "too many sizes that change");
  for (int32_t place : plan.symbols)
    require(place >= 0 && static_cast<size_t>(place) < input_integers, "a size of an absent input");
  require(plan.model->inputs.size() == package.inputs.size() + static_cast<size_t>(package.input_constants),
          "another number of inputs");
}

}  // namespace

void check_plan(const PackagePlan& plan) {
  require(plan.input_constants >= 0 && static_cast<size_t>(plan.input_constants) <= plan.constants.size(),
          "too few constants");
  for (const SizeRange& range : plan.ranges)
    require(range.input >= 0 && static_cast<size_t>(range.input) < plan.inputs.size() && range.dim >= 0 &&
                static_cast<size_t>(range.dim) < plan.inputs[static_cast<size_t>(range.input)].sizes.size(),
            "a range of an absent size");
  for (const PlanVariant& variant : plan.variants) {
    check_sizes(variant.plan, plan);
    for (const auto& sample : variant.samples)
      require(sample.size() == plan.ranges.size(), "a sample of other sizes");
    const Program& program = variant.plan.model->forward;
    require(program.inputs == static_cast<int>(variant.plan.model->inputs.size()),
            "another number of inputs");
    require(program.outputs.size() == plan.outputs.size(), "another number of outputs");
    for (size_t i = 0; i < variant.plan.model->inputs.size(); ++i) {
      const InputSpec& spec = variant.plan.model->inputs[i];
      const size_t user = i - static_cast<size_t>(plan.input_constants);
      if (i < static_cast<size_t>(plan.input_constants))
        require(spec.dtype == plan.constants[i].dtype && spec.sizes.size() == plan.constants[i].sizes.size(),
                "a constant of another kind");
      else
        require(spec.dtype == plan.inputs[user].dtype && spec.sizes.size() == plan.inputs[user].sizes.size(),
                "an input of another kind");
    }
    ProgramCheck(program).run();
    for (const auto& kept_value : program.kept)
      for (int i : kept_value->inputs) require(i < plan.input_constants, "a kept value of inputs");
  }
}

}  // namespace fl::runtime

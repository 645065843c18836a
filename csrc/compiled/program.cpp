#include "compiled/program.h"

#include "cpu/parallel.h"

namespace fl::compiled {
namespace {

// The same value without a copy of the list it refers to.
Value borrowed(const Value& v) {
  switch (v.tag()) {
    case Value::Tag::Tensor:
      return Value::borrow(v.tensor_impl());
    case Value::Tag::IntList:
      return Value::borrow(v.ints());
    case Value::Tag::FloatList:
      return Value::borrow(v.floats(), v.length());
    case Value::Tag::BoolList:
      return Value::borrow(v.bools(), v.length());
    case Value::Tag::TensorList:
      return Value::borrow(v.tensors(), v.length());
    case Value::Tag::String:
      return Value::borrow(v.string());
    case Value::Tag::Opaque:
      return Value::borrow(v.opaque());
    default:
      return v;
  }
}

class Runner {
 public:
  explicit Runner(std::vector<Tensor>& slots) : slots_(slots) {}

  void operator()(const Allocate& s) {
    slots_[s.slot] = empty_strided(s.sizes, s.strides, {s.dtype, Device()});
  }
  void operator()(const View& s) {
    slots_[s.slot] = alias(slots_[s.base], s.sizes, s.strides, slots_[s.base].offset() + s.offset);
  }
  void operator()(const Release& s) {
    for (int slot : s.slots) slots_[slot] = Tensor();
  }

  void operator()(const Launch& s) {
    void* pointers[kMaxPointers];
    int64_t numbers[kMaxNumbers];
    for (size_t i = 0; i < s.pointers.size(); ++i)
      pointers[i] = slots_[s.pointers[i].slot].raw() + s.pointers[i].bytes;
    std::copy(s.numbers.begin(), s.numbers.end(), numbers);
    numbers[0] = omp_in_parallel() ? 1 : std::min<int64_t>(num_threads(), 1 + s.work / kGrain);
    s.entry(pointers, numbers);
  }

  void operator()(const Call& s) {
    constexpr int kMost = 32;
    Value arguments[kMost], results[kMost];
    std::vector<std::vector<Tensor>> lists(s.lists.size());
    for (size_t i = 0; i < s.arguments.size(); ++i) arguments[i] = borrowed(s.arguments[i]);
    for (auto [argument, slot] : s.tensors) arguments[argument] = Value::borrow(slots_[slot].impl());
    for (size_t i = 0; i < s.lists.size(); ++i) {
      for (int slot : s.lists[i].slots) lists[i].push_back(slot < 0 ? Tensor() : slots_[slot]);
      arguments[s.lists[i].argument] = Value::borrow(lists[i].data(), lists[i].size());
    }
    for (auto [argument, slot] : s.numbers)
      arguments[argument] = Value(*reinterpret_cast<const double*>(slots_[slot].raw()));
    s.op->call(arguments, results);
    if (s.op->schema.returns_list) {
      for (size_t i = 0; i < s.results.size(); ++i)
        if (s.results[i] >= 0) slots_[s.results[i]] = results[0].tensors()[i];
    } else {
      for (size_t i = 0; i < s.results.size(); ++i)
        if (s.results[i] >= 0) slots_[s.results[i]] = results[i].take_tensor();
    }
  }

  static constexpr size_t kMaxPointers = 256, kMaxNumbers = 1024;

 private:
  std::vector<Tensor>& slots_;
};

}  // namespace

std::vector<Tensor> Program::run(const Tensor* given) const {
  const ExcludeKeys below(KeySet(Key::Autograd) | KeySet(Key::Autocast) | KeySet(Key::Python));
  std::vector<Tensor> slots(this->slots);
  std::copy(given, given + inputs, slots.begin());
  std::copy(constants.begin(), constants.end(), slots.begin() + inputs);
  Runner runner(slots);
  for (const Step& step : steps) std::visit(runner, step);
  for (int i : written) given[i].bump_version();
  std::vector<Tensor> results;
  results.reserve(outputs.size());
  for (int slot : outputs) results.push_back(slot < 0 ? Tensor() : slots[slot]);
  return results;
}

}  // namespace fl::compiled

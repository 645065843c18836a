#include "runtime/constant_set.h"

#include <algorithm>

namespace fl::runtime {

ConstantSet::ConstantSet(std::vector<Tensor> tensors, size_t kept)
    : tensors_(std::move(tensors)), unwatched_(tensors_.size(), false), slots_(kept) {
  for (auto& slot : slots_) slot = std::make_shared<Slot>();
}

ConstantSet::ConstantSet(const ConstantSet& before, std::vector<Tensor> tensors, const KeptValues& kept)
    : tensors_(std::move(tensors)), unwatched_(before.unwatched_), slots_(before.slots_) {
  std::vector<bool> replaced(tensors_.size(), false);
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const Tensor& t = tensors_[i];
    replaced[i] = t.impl() != before.tensors_[i].impl();
    if (replaced[i]) unwatched_[i] = t->inference || t->own_version || t->storage->foreign_delete;
  }
  for (size_t k = 0; k < kept.size(); ++k) {
    const bool depends = std::any_of(kept[k]->inputs.begin(), kept[k]->inputs.end(),
                                     [&](int i) { return replaced[static_cast<size_t>(i)]; });
    const bool is_stale = slots_[k]->ready.load(std::memory_order_acquire) &&
                          !kept[k]->holds(slots_[k]->computed, before.tensors_.data());
    if (depends || is_stale) slots_[k] = std::make_shared<Slot>();
  }
}

Tensor ConstantSet::value(const compiled::KeptValue& kept) const {
  const Tensor* const tensors = tensors_.data();
  if (std::any_of(kept.inputs.begin(), kept.inputs.end(),
                  [&](int i) { return unwatched_[static_cast<size_t>(i)]; }))
    return kept.compute(tensors).value;
  Slot& slot = *slots_[kept.place];
  if (!slot.ready.load(std::memory_order_acquire)) {
    const std::lock_guard<std::mutex> lock(slot.mutex);
    if (!slot.ready.load(std::memory_order_relaxed)) {
      slot.computed = kept.compute(tensors);
      slot.ready.store(true, std::memory_order_release);
    }
  }
  return kept.holds(slot.computed, tensors) ? slot.computed.value : Tensor();
}

}  // namespace fl::runtime

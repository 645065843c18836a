#include "compiled/kept_value.h"

#include <unordered_map>

namespace fl::compiled {
namespace {

using Counter = std::atomic<uint32_t>;

// Counters of writes through `.data`, by storage. Whoever has one holds the storage too, or it has expired.
struct Counters {
  std::mutex mutex;
  std::unordered_map<const Storage*, std::weak_ptr<Counter>> of;
  std::atomic<size_t> count{0};
};

Counters& counters() {
  static Counters* const all = new Counters;
  return *all;
}

std::shared_ptr<Counter> counter_of(const Storage* storage) {
  Counters& all = counters();
  const std::lock_guard<std::mutex> lock(all.mutex);
  std::weak_ptr<Counter>& known = all.of[storage];
  std::shared_ptr<Counter> counter = known.lock();
  if (!counter) known = counter = std::make_shared<Counter>(0);
  if (all.of.size() > 2 * all.count + 64) {  // of storages that are gone
    for (auto it = all.of.begin(); it != all.of.end();)
      it = it->second.expired() ? all.of.erase(it) : std::next(it);
  }
  all.count = all.of.size();
  return counter;
}

}  // namespace

bool KeptValue::Seen::holds(const TensorImpl& t) const {
  return t.storage.get() == storage.get() && t.offset == offset && !t.inference && !t.own_version &&
         storage->version.load(std::memory_order_relaxed) == version &&
         data_counter->load(std::memory_order_relaxed) == data_version;
}

KeptValue::Computed KeptValue::compute(const Tensor* tensors) const {
  // Counters are read first: what is written meanwhile is seen the next time.
  Computed computed;
  std::vector<Tensor> own;
  for (int i : inputs) {
    const Ref<Storage>& storage = tensors[i]->storage;
    std::shared_ptr<Counter> data_counter = counter_of(storage.get());
    computed.seen.push_back(
        {storage, tensors[i].offset(), storage->version.load(), data_counter->load(), data_counter});
    own.push_back(tensors[i]);
  }
  computed.value = program.run(own.data())[0];
  return computed;
}

bool KeptValue::holds(const Computed& computed, const Tensor* tensors) const {
  if (!computed.value.defined()) return false;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!computed.seen[i].holds(*tensors[inputs[i]].impl())) return false;
  return true;
}

Tensor KeptValue::get(const Tensor* tensors) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!holds(computed_, tensors)) {
    computed_ = {};  // its memory may serve for the new value
    computed_ = compute(tensors);
  }
  return computed_.value;
}

std::shared_ptr<std::atomic<uint32_t>> version_beside(const Tensor& t) {
  Counters& all = counters();
  if (all.count.load(std::memory_order_relaxed) > 0) {
    const std::lock_guard<std::mutex> lock(all.mutex);
    const auto entry = all.of.find(t->storage.get());
    if (entry != all.of.end())
      if (std::shared_ptr<Counter> shared = entry->second.lock()) return shared;
  }
  return std::make_shared<Counter>(0);
}

}  // namespace fl::compiled

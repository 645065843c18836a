// The constants of a package at one time, and what programs compute from them alone: packed weights.
//
// A set is never changed. Where constants are replaced there is another set, which shares the values that do
// not depend on those; runs that began before finish with the old one. A value is computed at its first use,
// by one thread; reading it later takes no lock.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "compiled/kept_value.h"

namespace fl::runtime {

class ConstantSet {
 public:
  using KeptValues = std::vector<std::shared_ptr<compiled::KeptValue>>;

  // The constants of a package that was loaded, of which `kept` values are computed.
  ConstantSet(std::vector<Tensor> tensors, size_t kept);
  // The same, or others. Values that hold still are shared. Tensors that may be written unseen, such as
  // memory of somebody else, are no ground for keeping: what depends on them is computed in every run.
  ConstantSet(const ConstantSet& before, std::vector<Tensor> tensors, const KeptValues& kept);

  const std::vector<Tensor>& tensors() const { return tensors_; }
  // What is computed from the constants; undefined where one of them was written after that.
  Tensor value(const compiled::KeptValue& kept) const;

 private:
  struct Slot {
    std::mutex mutex;  // of those who compute
    std::atomic<bool> ready{false};
    compiled::KeptValue::Computed computed;
  };

  std::vector<Tensor> tensors_;
  std::vector<bool> unwatched_;  // constants that may be written unseen
  std::vector<std::shared_ptr<Slot>> slots_;
};

}  // namespace fl::runtime

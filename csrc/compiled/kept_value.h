// What a program computes from inputs that rarely change, such as packed weights, and keeps between runs.
//
// Whether the inputs are still those, and unwritten, is asked in every run: by the identity of their storages
// and by version counters, the one of the storage and the one that all `.data` of it share from then on.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "compiled/program.h"

namespace fl::compiled {

struct KeptValue {
  std::vector<int> inputs;  // of the program that it is for, which are those of its own
  Program program;          // with one output
  size_t place = 0;         // among the values of a package

  // A tensor that a value was computed from, as it was then.
  struct Seen {
    Ref<Storage> storage;  // held, so that no other one can take its address
    int64_t offset;
    uint32_t version, data_version;
    std::shared_ptr<std::atomic<uint32_t>> data_counter;  // counts writes through `.data`

    bool holds(const TensorImpl& t) const;
  };
  struct Computed {
    Tensor value;
    std::vector<Seen> seen;
  };

  // The value for inputs of the program that it is for, computed now.
  Computed compute(const Tensor* tensors) const;
  // Whether a value is still that of these inputs.
  bool holds(const Computed& computed, const Tensor* tensors) const;
  // The value for these inputs; computed again where one of them changed.
  Tensor get(const Tensor* tensors);

 private:
  std::mutex mutex_;
  Computed computed_;
};

// The version counter for a new `.data` of a tensor: one of its own, or that of all `.data` of a storage that
// something kept depends on.
std::shared_ptr<std::atomic<uint32_t>> version_beside(const Tensor& t);

}  // namespace fl::compiled

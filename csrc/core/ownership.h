// Whether a tensor is the only one on its memory.
#pragma once

#include "core/tensor.h"

namespace fl {

// References to a storage that a recording device holds for itself; set by csrc/lazy.
extern int64_t (*recorded_references)(const Storage& storage);

inline bool owns_storage(const Tensor& t) {
  const Storage& storage = *t->storage;
  const int64_t recorded = __builtin_expect(bool(storage.recorded), 0) ? recorded_references(storage) : 0;
  return storage.use_count() == 1 + recorded;
}

}  // namespace fl

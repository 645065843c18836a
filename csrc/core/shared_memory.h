// Storages in memory that several processes map: anonymous files without a name, so that nothing is left
// behind when a process is killed.
#pragma once

#include "core/storage.h"

namespace fl {

// A new storage of shared memory, filled with zeros.
Ref<Storage> allocate_shared(size_t bytes);
// Moves the bytes of a CPU storage to shared memory; views keep seeing them. Does nothing when they are
// there.
void share(Storage& storage);
// Maps shared memory behind a descriptor that the caller keeps; refuses descriptors with fewer bytes. With
// `keep_descriptor` the storage holds a copy of the descriptor, by which it can be handed on without copying.
Ref<Storage> map_shared(int descriptor, size_t bytes, bool keep_descriptor);

// The first bytes of mapped memory as a storage of their own; `release` is called when it goes.
Ref<Storage> shared_window(Ref<Storage> mapped, size_t bytes, std::function<void()> release);

bool is_shared(const Storage& storage);
// The descriptor of a shared storage, which keeps owning it; -1 when it has none.
int shared_descriptor(const Storage& storage);

}  // namespace fl

// Memory for whole programs: blocks that are used for one run and then kept for the next, and places in them
// that operators make their results in.
#pragma once

#include <cstddef>

#include "core/storage.h"

namespace fl {

// A block of CPU memory, as large as asked for or larger, given back at the end.
class ArenaBlock {
 public:
  explicit ArenaBlock(size_t bytes);
  ~ArenaBlock();
  ArenaBlock(const ArenaBlock&) = delete;
  ArenaBlock& operator=(const ArenaBlock&) = delete;

  char* data() const { return static_cast<char*>(data_); }

 private:
  void* data_;
  size_t asked_, bytes_;
};

// A place for the next storage of exactly these bytes that the thread allocates.
struct Offer {
  void* data;
  size_t bytes;
  Ref<Storage> taken;  // by this storage
};

// Makes offers, instead of those that were made before, until it ends.
class OfferScope {
 public:
  OfferScope(Offer* offers, size_t count);
  ~OfferScope();
  OfferScope(const OfferScope&) = delete;
  OfferScope& operator=(const OfferScope&) = delete;

 private:
  Offer* before_;
  size_t count_before_;
};

// Gives a storage that lies in a place of somebody else memory of its own, with the same content.
void move_out(Storage& storage);

}  // namespace fl

// torch::data::samplers: in which order the examples of a dataset are asked for.
#pragma once

#include <flambeau/torch/functions.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace torch::data::samplers {

// Gives requests for batches until an epoch ends.
template <class BatchRequest = std::vector<size_t>>
class Sampler {
 public:
  using BatchRequestType = BatchRequest;

  virtual ~Sampler() = default;
  // Begins an epoch, of a dataset that may have another size now.
  virtual void reset(std::optional<size_t> new_size) = 0;
  // Nothing where the epoch has ended.
  virtual std::optional<BatchRequest> next(size_t batch_size) = 0;
};

// A sampler of indices that are known when an epoch begins.
class IndexSampler : public Sampler<> {
 public:
  std::optional<std::vector<size_t>> next(size_t batch_size) override {
    const size_t count = std::min(batch_size, indices_.size() - index_);
    if (count == 0) return std::nullopt;
    const auto from = indices_.begin() + static_cast<std::ptrdiff_t>(index_);
    index_ += count;
    return std::vector<size_t>(from, from + static_cast<std::ptrdiff_t>(count));
  }
  // How many indices the epoch has given so far.
  size_t index() const noexcept { return index_; }

 protected:
  void begin(std::vector<size_t> indices) {
    indices_ = std::move(indices);
    index_ = 0;
  }
  size_t count() const { return indices_.size(); }

  static std::vector<size_t> counted(size_t size) {
    std::vector<size_t> indices(size);
    std::iota(indices.begin(), indices.end(), size_t(0));
    return indices;
  }
  // By the library's generator, so that torch::manual_seed decides.
  static std::vector<size_t> shuffled(size_t size) {
    const Tensor order = torch::randperm(static_cast<int64_t>(size), TensorOptions().dtype(kLong));
    const auto* first = static_cast<const int64_t*>(order.data_ptr());
    return std::vector<size_t>(first, first + size);
  }

 private:
  std::vector<size_t> indices_;
  size_t index_ = 0;
};

class SequentialSampler : public IndexSampler {
 public:
  explicit SequentialSampler(size_t size) { begin(counted(size)); }
  void reset(std::optional<size_t> new_size = std::nullopt) override {
    begin(counted(new_size.value_or(count())));
  }
};

class RandomSampler : public IndexSampler {
 public:
  explicit RandomSampler(int64_t size, Dtype = kLong) { begin(shuffled(static_cast<size_t>(size))); }
  void reset(std::optional<size_t> new_size = std::nullopt) override {
    begin(shuffled(new_size.value_or(count())));
  }
};

// One of several processes with a part of the indices each. Without duplicates the parts of some processes
// are shorter.
class DistributedSampler : public IndexSampler {
 public:
  DistributedSampler(size_t size, size_t num_replicas = 1, size_t rank = 0, bool allow_duplicates = true)
      : size_(size), num_replicas_(num_replicas), rank_(rank), allow_duplicates_(allow_duplicates) {
    if (rank >= num_replicas)
      throw c10::ValueError(
          c10::str("[DistributedSampler] expected a rank below ", num_replicas, ", got ", rank));
  }
  void set_epoch(size_t epoch) { epoch_ = epoch; }
  size_t epoch() const { return epoch_; }

 protected:
  // Those of this process among indices in the order of all.
  std::vector<size_t> own(std::vector<size_t> all) const {
    const size_t each = (all.size() + num_replicas_ - 1) / num_replicas_;
    if (allow_duplicates_ && !all.empty())
      for (size_t i = 0; all.size() < each * num_replicas_; ++i) all.push_back(all[i]);
    std::vector<size_t> mine;
    for (size_t i = rank_; i < all.size(); i += num_replicas_) mine.push_back(all[i]);
    return mine;
  }

  size_t size_, num_replicas_, rank_, epoch_ = 0;
  bool allow_duplicates_;
};

// The order of an epoch is the same in all processes: the epoch decides on it.
class DistributedRandomSampler : public DistributedSampler {
 public:
  DistributedRandomSampler(size_t size, size_t num_replicas = 1, size_t rank = 0,
                           bool allow_duplicates = true)
      : DistributedSampler(size, num_replicas, rank, allow_duplicates) {
    reset(size);
  }
  void reset(std::optional<size_t> new_size = std::nullopt) override {
    size_ = new_size.value_or(size_);
    std::vector<size_t> indices = counted(size_);
    uint64_t state = epoch_ * 0x9E3779B97F4A7C15u + 1;
    for (size_t i = indices.size(); i > 1; --i) std::swap(indices[i - 1], indices[next_number(state) % i]);
    begin(own(std::move(indices)));
  }

 private:
  // SplitMix64: the same on all machines.
  static uint64_t next_number(uint64_t& state) {
    uint64_t z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
};

class DistributedSequentialSampler : public DistributedSampler {
 public:
  DistributedSequentialSampler(size_t size, size_t num_replicas = 1, size_t rank = 0,
                               bool allow_duplicates = true)
      : DistributedSampler(size, num_replicas, rank, allow_duplicates) {
    reset(size);
  }
  void reset(std::optional<size_t> new_size = std::nullopt) override {
    size_ = new_size.value_or(size_);
    begin(own(counted(size_)));
  }
};

// A request of a number of examples, for datasets without indices.
class BatchSize {
 public:
  explicit BatchSize(size_t size) : size_(size) {}
  size_t size() const noexcept { return size_; }
  operator size_t() const noexcept { return size_; }

 private:
  size_t size_;
};

class StreamSampler : public Sampler<BatchSize> {
 public:
  explicit StreamSampler(size_t epoch_size) : epoch_size_(epoch_size) {}
  void reset(std::optional<size_t> new_size = std::nullopt) override {
    given_ = 0;
    epoch_size_ = new_size.value_or(epoch_size_);
  }
  std::optional<BatchSize> next(size_t batch_size) override {
    const size_t count = std::min(batch_size, epoch_size_ - given_);
    if (count == 0) return std::nullopt;
    given_ += count;
    return BatchSize(count);
  }

 private:
  size_t epoch_size_, given_ = 0;
};

}  // namespace torch::data::samplers

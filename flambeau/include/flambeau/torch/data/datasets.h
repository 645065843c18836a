// torch::data::datasets: where examples come from.
#pragma once

#include <flambeau/torch/data/transforms.h>

#include <fstream>
#include <memory>
#include <string>
#include <type_traits>

namespace torch::data::datasets {

template <class Source, class Transform>
class MapDataset;
template <class Source, class Transform>
MapDataset<Source, Transform> map(Source source, Transform transform);

// Gives batches for requests, which are indices of examples or the size of a batch.
template <class Self, class Batch, class BatchRequest = ArrayRef<size_t>>
class BatchDataset {
 public:
  using SelfType = Self;
  using BatchType = Batch;
  using BatchRequestType = BatchRequest;
  static constexpr bool is_stateful = false;

  virtual ~BatchDataset() = default;
  virtual Batch get_batch(BatchRequest request) = 0;
  // The number of examples, where it is known.
  virtual std::optional<size_t> size() const = 0;

  // The same with a transformation of its batches.
  template <class Transform>
  MapDataset<Self, Transform> map(Transform transform) & {
    return datasets::map(static_cast<Self&>(*this), std::move(transform));
  }
  template <class Transform>
  MapDataset<Self, Transform> map(Transform transform) && {
    return datasets::map(std::move(static_cast<Self&>(*this)), std::move(transform));
  }
};

// A dataset whose examples have indices.
template <class Self, class SingleExample = Example<>>
class Dataset : public BatchDataset<Self, std::vector<SingleExample>> {
 public:
  using ExampleType = SingleExample;

  virtual ExampleType get(size_t index) = 0;

  std::vector<ExampleType> get_batch(ArrayRef<size_t> indices) override {
    std::vector<ExampleType> batch;
    batch.reserve(indices.size());
    for (const size_t index : indices) batch.push_back(get(index));
    return batch;
  }
};

// A dataset without indices, which is asked for so many examples.
template <class Self, class Batch>
using StreamDataset = BatchDataset<Self, Batch, size_t>;

// A dataset that keeps where it is, and has nothing more to give at some point.
template <class Self, class Batch = std::vector<Example<>>, class BatchRequest = size_t>
class StatefulDataset : public BatchDataset<Self, std::optional<Batch>, BatchRequest> {
 public:
  static constexpr bool is_stateful = true;

  // Begins an epoch.
  virtual void reset() = 0;
};

template <class Source, class AppliedTransform>
class MapDataset
    : public BatchDataset<
          MapDataset<Source, AppliedTransform>,
          std::conditional_t<Source::is_stateful, std::optional<typename AppliedTransform::OutputBatchType>,
                             typename AppliedTransform::OutputBatchType>,
          typename Source::BatchRequestType> {
 public:
  using DatasetType = Source;
  using TransformType = AppliedTransform;
  using BatchRequestType = typename Source::BatchRequestType;
  using OutputBatchType = typename AppliedTransform::OutputBatchType;
  using ResultType = std::conditional_t<Source::is_stateful, std::optional<OutputBatchType>, OutputBatchType>;
  static constexpr bool is_stateful = Source::is_stateful;

  MapDataset(Source source, AppliedTransform transform)
      : source_(std::move(source)), transform_(std::move(transform)) {}

  ResultType get_batch(BatchRequestType request) override {
    if constexpr (is_stateful) {
      auto batch = source_.get_batch(std::move(request));
      if (!batch) return std::nullopt;
      return transform_.apply_batch(std::move(*batch));
    } else {
      return transform_.apply_batch(source_.get_batch(std::move(request)));
    }
  }
  std::optional<size_t> size() const noexcept override { return source_.size(); }
  void reset() {
    if constexpr (is_stateful) source_.reset();
  }
  const Source& dataset() const noexcept { return source_; }
  const AppliedTransform& transform() const noexcept { return transform_; }

 private:
  Source source_;
  AppliedTransform transform_;
};

template <class Source, class Transform>
MapDataset<Source, Transform> map(Source source, Transform transform) {
  static_assert(std::is_same_v<
                    std::conditional_t<Source::is_stateful, std::optional<typename Transform::InputBatchType>,
                                       typename Transform::InputBatchType>,
                    typename Source::BatchType>,
                "expected a transform whose input is a batch of the dataset");
  return {std::move(source), std::move(transform)};
}

// One dataset for all workers of a loader, which would have a copy each otherwise.
template <class Underlying>
class SharedBatchDataset : public BatchDataset<SharedBatchDataset<Underlying>, typename Underlying::BatchType,
                                               typename Underlying::BatchRequestType> {
 public:
  using BatchType = typename Underlying::BatchType;
  using BatchRequestType = typename Underlying::BatchRequestType;
  static constexpr bool is_stateful = Underlying::is_stateful;

  SharedBatchDataset(std::shared_ptr<Underlying> shared) : shared_(std::move(shared)) {}

  BatchType get_batch(BatchRequestType request) override { return shared_->get_batch(std::move(request)); }
  std::optional<size_t> size() const override { return shared_->size(); }
  Underlying& operator*() { return *shared_; }
  const Underlying& operator*() const { return *shared_; }
  Underlying* operator->() { return shared_.get(); }
  const Underlying* operator->() const { return shared_.get(); }
  void reset() {
    if constexpr (is_stateful) shared_->reset();
  }

 private:
  std::shared_ptr<Underlying> shared_;
};

template <class Underlying, class... Args>
SharedBatchDataset<Underlying> make_shared_dataset(Args&&... args) {
  return std::make_shared<Underlying>(std::forward<Args>(args)...);
}

// The slices of a tensor along its first dimension.
struct TensorDataset : public Dataset<TensorDataset, TensorExample> {
  explicit TensorDataset(const std::vector<Tensor>& tensors) : TensorDataset(torch::stack(tensors)) {}
  explicit TensorDataset(Tensor tensor) : tensor(std::move(tensor)) {}

  TensorExample get(size_t index) override { return tensor[static_cast<int64_t>(index)]; }
  std::optional<size_t> size() const override { return static_cast<size_t>(tensor.size(0)); }

  Tensor tensor;
};

// The digits of MNIST, from the four files of its archive without compression. Images are floats between 0
// and 1.
class MNIST : public Dataset<MNIST> {
 public:
  enum class Mode { kTrain, kTest };

  explicit MNIST(const std::string& root, Mode mode = Mode::kTrain) : mode_(mode) {
    const std::string prefix = root + (mode == Mode::kTrain ? "/train-" : "/t10k-");
    images_ = read(prefix + "images-idx3-ubyte", 3).unsqueeze(1).to(kFloat32).div(255);
    targets_ = read(prefix + "labels-idx1-ubyte", 1).to(kInt64);
    if (images_.size(0) != targets_.size(0))
      throw c10::Error(c10::str("[MNIST] expected one label for each of ", images_.size(0), " images, got ",
                                targets_.size(0)));
  }

  Example<> get(size_t index) override {
    return {images_[static_cast<int64_t>(index)], targets_[static_cast<int64_t>(index)]};
  }
  std::optional<size_t> size() const override { return static_cast<size_t>(images_.size(0)); }
  bool is_train() const noexcept { return mode_ == Mode::kTrain; }
  const Tensor& images() const { return images_; }
  const Tensor& targets() const { return targets_; }

 private:
  // An IDX file of bytes: a number that says so, the sizes with the highest byte first, the bytes.
  static Tensor read(const std::string& path, int dims) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw c10::Error(c10::str("[MNIST] expected a file ", path, ", got none"));
    const auto number = [&] {
      unsigned char bytes[4] = {};
      file.read(reinterpret_cast<char*>(bytes), 4);
      return int64_t(bytes[0]) << 24 | int64_t(bytes[1]) << 16 | int64_t(bytes[2]) << 8 | int64_t(bytes[3]);
    };
    const int64_t kind = number();
    std::vector<int64_t> sizes;
    int64_t count = 1;
    for (int d = 0; d < dims; ++d) {
      sizes.push_back(number());
      count *= sizes.back();
    }
    if (!file || kind != 0x800 + dims || count < 0 || count > (int64_t(1) << 32))
      throw c10::Error(
          c10::str("[MNIST] expected bytes in ", dims, " dimensions in ", path, ", got another file"));
    Tensor bytes = torch::empty(sizes, kByte);
    file.read(static_cast<char*>(bytes.data_ptr()), static_cast<std::streamsize>(count));
    if (!file) throw c10::Error(c10::str("[MNIST] expected ", count, " bytes in ", path, ", got fewer"));
    return bytes;
  }

  Tensor images_, targets_;
  Mode mode_;
};

}  // namespace torch::data::datasets

namespace torch::data {
using datasets::BatchDataset;
using datasets::Dataset;
}  // namespace torch::data

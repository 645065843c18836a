// torch::data loaders: batches of a dataset in the order of a sampler, made here or by worker threads.
#pragma once

#include <flambeau/torch/arg.h>
#include <flambeau/torch/data/datasets.h>
#include <flambeau/torch/data/samplers.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

namespace torch::data {

struct DataLoaderOptions {
  DataLoaderOptions() = default;
  DataLoaderOptions(size_t batch_size) : batch_size_(batch_size) {}

  TORCH_ARG(size_t, batch_size) = 1;
  TORCH_ARG(size_t, workers) = 0;
  TORCH_ARG(std::optional<size_t>, max_jobs);  // batches that are asked for ahead
  TORCH_ARG(std::optional<std::chrono::milliseconds>, timeout);
  TORCH_ARG(bool, enforce_ordering) = true;
  TORCH_ARG(bool, drop_last) = false;
};

// The options of a loader, all of them known.
struct FullDataLoaderOptions {
  explicit FullDataLoaderOptions(const DataLoaderOptions& o)
      : batch_size(o.batch_size()),
        workers(o.workers()),
        max_jobs(o.max_jobs().value_or(2 * o.workers())),
        timeout(o.timeout()),
        enforce_ordering(o.enforce_ordering()),
        drop_last(o.drop_last()) {}

  size_t batch_size, workers, max_jobs;
  std::optional<std::chrono::milliseconds> timeout;
  bool enforce_ordering, drop_last;
};

// What a worker failed with.
struct WorkerException : public std::exception {
  explicit WorkerException(std::exception_ptr original) : original_exception(std::move(original)) {
    try {
      std::rethrow_exception(original_exception);
    } catch (const std::exception& e) {
      message = c10::str("[DataLoader] a worker failed: ", e.what());
    } catch (...) {
      message = "[DataLoader] a worker failed";
    }
  }
  const char* what() const noexcept override { return message.c_str(); }

  std::string message;
  std::exception_ptr original_exception;
};

// The batches of an epoch, one after the other.
template <class Batch>
class Iterator {
 public:
  using difference_type = std::ptrdiff_t;
  using value_type = Batch;
  using pointer = Batch*;
  using reference = Batch&;
  using iterator_category = std::input_iterator_tag;

  explicit Iterator(std::function<std::optional<Batch>()> next) : next_(std::move(next)) {
    if (next_) ++*this;
  }
  Iterator& operator++() {
    batch_ = next_();
    return *this;
  }
  Batch& operator*() {
    if (!batch_) throw c10::Error("[DataLoader] expected an iterator before the end, got one at it");
    return *batch_;
  }
  Batch* operator->() { return &**this; }
  // Iterators are equal at the end alone.
  bool operator==(const Iterator& other) const { return this == &other || (!batch_ && !other.batch_); }
  bool operator!=(const Iterator& other) const { return !(*this == other); }

 private:
  std::function<std::optional<Batch>()> next_;
  std::optional<Batch> batch_;
};

template <class Dataset, class Batch, class BatchRequest>
class DataLoaderBase {
 public:
  using BatchType = Batch;
  using BatchRequestType = BatchRequest;

  DataLoaderBase(DataLoaderOptions options, std::unique_ptr<Dataset> main_thread_dataset = nullptr)
      : options_(options), dataset_(std::move(main_thread_dataset)) {}
  DataLoaderBase(const DataLoaderBase&) = delete;
  DataLoaderBase& operator=(const DataLoaderBase&) = delete;
  virtual ~DataLoaderBase() { join(); }

  // Begins an epoch.
  Iterator<Batch> begin() {
    if (!jobs_in_order_.empty())
      throw c10::Error(
          "[DataLoader] expected the iterator of before to be at its end, got a new one meanwhile");
    reset();
    return Iterator<Batch>([this] { return next(); });
  }
  Iterator<Batch> end() { return Iterator<Batch>(nullptr); }

  // Ends the workers. The loader cannot be used any more.
  void join() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    job_is_there_.notify_all();
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
  }
  const FullDataLoaderOptions& options() const noexcept { return options_; }

 protected:
  virtual void reset() {}
  // Nothing where the epoch has ended.
  virtual std::optional<BatchRequest> get_batch_request() = 0;
  virtual std::optional<Batch> make_batch(Dataset& dataset, BatchRequest request) = 0;

  void start_worker(std::shared_ptr<Dataset> dataset) {
    workers_.emplace_back([this, dataset = std::move(dataset)] { work(*dataset); });
  }

  const FullDataLoaderOptions options_;
  std::unique_ptr<Dataset> dataset_;  // of this thread, where there are no workers

 private:
  struct Result {
    std::optional<Batch> batch;
    std::exception_ptr error;
  };
  struct Job {
    size_t number;
    BatchRequest request;
  };

  std::optional<Batch> next() {
    if (options_.workers == 0) {
      std::optional<BatchRequest> request = get_batch_request();
      return request ? make_batch(*dataset_, std::move(*request)) : std::nullopt;
    }
    while (true) {
      ask_ahead();
      if (jobs_in_order_.empty()) return std::nullopt;
      Result result = wait_for_result();
      if (result.error) {
        forget_jobs();
        throw WorkerException(result.error);
      }
      if (result.batch) return std::move(result.batch);
    }
  }

  void ask_ahead() {
    while (jobs_in_order_.size() < std::max<size_t>(options_.max_jobs, 1)) {
      std::optional<BatchRequest> request = get_batch_request();
      if (!request) return;
      {
        const std::lock_guard lock(mutex_);
        jobs_.push_back({job_count_, std::move(*request)});
        jobs_in_order_.push_back(job_count_++);
      }
      job_is_there_.notify_one();
    }
  }

  Result wait_for_result() {
    std::unique_lock lock(mutex_);
    const auto is_there = [&] {
      return options_.enforce_ordering ? results_.count(jobs_in_order_.front()) > 0 : !results_.empty();
    };
    if (!options_.timeout) {
      result_is_there_.wait(lock, is_there);
    } else if (!result_is_there_.wait_for(lock, *options_.timeout, is_there)) {
      throw c10::Error(
          c10::str("[DataLoader] expected a batch within ", options_.timeout->count(), " ms, got none"));
    }
    const auto at = options_.enforce_ordering ? results_.find(jobs_in_order_.front()) : results_.begin();
    jobs_in_order_.erase(std::find(jobs_in_order_.begin(), jobs_in_order_.end(), at->first));
    Result result = std::move(at->second);
    results_.erase(at);
    return result;
  }

  // After a failure: the next epoch begins without what was asked for.
  void forget_jobs() {
    std::unique_lock lock(mutex_);
    jobs_.clear();
    result_is_there_.wait(lock, [&] { return running_ == 0; });
    results_.clear();
    jobs_in_order_.clear();
  }

  void work(Dataset& dataset) {
    std::unique_lock lock(mutex_);
    while (true) {
      job_is_there_.wait(lock, [&] { return ends_ || !jobs_.empty(); });
      if (ends_) return;
      Job job = std::move(jobs_.front());
      jobs_.pop_front();
      ++running_;
      lock.unlock();
      Result result;
      try {
        result.batch = make_batch(dataset, std::move(job.request));
      } catch (...) {
        result.error = std::current_exception();
      }
      lock.lock();
      --running_;
      results_.emplace(job.number, std::move(result));
      result_is_there_.notify_all();
    }
  }

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable job_is_there_, result_is_there_;
  std::deque<Job> jobs_;
  std::deque<size_t> jobs_in_order_;  // whose results the caller has not had
  std::map<size_t, Result> results_;
  size_t job_count_ = 0, running_ = 0;
  bool ends_ = false;
};

// A loader of a dataset that a sampler asks; each worker has a copy of the dataset.
template <class Dataset, class Sampler>
class StatelessDataLoader
    : public DataLoaderBase<Dataset, typename Dataset::BatchType, typename Sampler::BatchRequestType> {
  using Base = DataLoaderBase<Dataset, typename Dataset::BatchType, typename Sampler::BatchRequestType>;

 public:
  StatelessDataLoader(Dataset dataset, Sampler sampler, DataLoaderOptions options)
      : Base(options), sampler_(std::move(sampler)) {
    for (size_t w = 0; w < this->options_.workers; ++w)
      this->start_worker(std::make_shared<Dataset>(dataset));
    if (this->options_.workers == 0) this->dataset_ = std::make_unique<Dataset>(std::move(dataset));
  }
  ~StatelessDataLoader() override { this->join(); }

 protected:
  void reset() override { sampler_.reset(std::nullopt); }
  std::optional<typename Base::BatchRequestType> get_batch_request() override {
    auto indices = sampler_.next(this->options_.batch_size);
    if (indices && this->options_.drop_last && indices->size() < this->options_.batch_size)
      return std::nullopt;
    return indices;
  }
  std::optional<typename Base::BatchType> make_batch(Dataset& dataset,
                                                     typename Base::BatchRequestType request) override {
    return dataset.get_batch(std::move(request));
  }

 private:
  Sampler sampler_;
};

// A loader of a dataset that knows by itself what comes next; all workers use the same one, which has to
// allow that.
template <class Dataset>
class StatefulDataLoader : public DataLoaderBase<Dataset, typename Dataset::BatchType::value_type, size_t> {
  using Base = DataLoaderBase<Dataset, typename Dataset::BatchType::value_type, size_t>;

 public:
  StatefulDataLoader(Dataset dataset, DataLoaderOptions options)
      : Base(options), shared_(std::make_shared<Dataset>(std::move(dataset))) {
    for (size_t w = 0; w < this->options_.workers; ++w) this->start_worker(shared_);
    if (this->options_.workers == 0) this->dataset_ = std::make_unique<Dataset>(*shared_);
  }
  ~StatefulDataLoader() override { this->join(); }

 protected:
  void reset() override {
    ended_ = false;
    (this->dataset_ ? *this->dataset_ : *shared_).reset();
  }
  std::optional<size_t> get_batch_request() override {
    return ended_ ? std::nullopt : std::optional<size_t>(this->options_.batch_size);
  }
  std::optional<typename Base::BatchType> make_batch(Dataset& dataset, size_t size) override {
    auto batch = dataset.get_batch(size);
    if (!batch) ended_ = true;
    return batch;
  }

 private:
  std::shared_ptr<Dataset> shared_;
  std::atomic<bool> ended_{false};
};

template <class Dataset, class Sampler>
std::enable_if_t<!Dataset::is_stateful, std::unique_ptr<StatelessDataLoader<Dataset, Sampler>>>
make_data_loader(Dataset dataset, Sampler sampler, DataLoaderOptions options) {
  return std::make_unique<StatelessDataLoader<Dataset, Sampler>>(std::move(dataset), std::move(sampler),
                                                                 options);
}

template <class Sampler = samplers::RandomSampler, class Dataset>
std::enable_if_t<!Dataset::is_stateful, std::unique_ptr<StatelessDataLoader<Dataset, Sampler>>>
make_data_loader(Dataset dataset, DataLoaderOptions options = DataLoaderOptions()) {
  const std::optional<size_t> size = dataset.size();
  if (!size)
    throw c10::Error("[make_data_loader] expected a dataset of a known size where no sampler is given");
  return make_data_loader(std::move(dataset), Sampler(*size), options);
}

template <class Dataset>
std::enable_if_t<Dataset::is_stateful, std::unique_ptr<StatefulDataLoader<Dataset>>> make_data_loader(
    Dataset dataset, DataLoaderOptions options = DataLoaderOptions()) {
  return std::make_unique<StatefulDataLoader<Dataset>>(std::move(dataset), options);
}

}  // namespace torch::data

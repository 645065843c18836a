// torch::data in a program without Python: data FOLDER, which has the files of MNIST.
#include <torch/torch.h>

#include <cstdio>
#include <iostream>
#include <set>

namespace data = torch::data;
using data::Example;
using data::datasets::MNIST;
using data::samplers::DistributedRandomSampler;
using data::samplers::RandomSampler;
using data::samplers::SequentialSampler;
using data::transforms::Stack;

#define EXPECT(condition)                                                       \
  do {                                                                          \
    if (!(condition)) {                                                         \
      std::cerr << __FILE__ << ":" << __LINE__ << ": " #condition << std::endl; \
      std::exit(1);                                                             \
    }                                                                           \
  } while (false)

// The square of a number, for each number below a limit.
class Squares : public data::datasets::Dataset<Squares> {
 public:
  explicit Squares(size_t count, size_t bad = SIZE_MAX) : count_(count), bad_(bad) {}
  Example<> get(size_t index) override {
    if (index == bad_) throw std::runtime_error("a bad example");
    const auto number = static_cast<float>(index);
    return {torch::full({1}, number), torch::full({1}, number * number)};
  }
  torch::optional<size_t> size() const override { return count_; }

 private:
  size_t count_, bad_;
};

// Numbers from zero on until a limit, which are not indexed.
class Counter : public data::datasets::StatefulDataset<Counter, std::vector<int64_t>> {
 public:
  explicit Counter(int64_t limit) : limit_(limit) {}
  void reset() override { next_ = 0; }
  torch::optional<std::vector<int64_t>> get_batch(size_t size) override {
    std::vector<int64_t> batch;
    while (batch.size() < size && next_ < limit_) batch.push_back(next_++);
    if (batch.empty()) return torch::nullopt;
    return batch;
  }
  torch::optional<size_t> size() const override { return torch::nullopt; }

 private:
  int64_t limit_, next_ = 0;
};

template <class Loader>
std::vector<float> numbers_of(Loader& loader) {
  std::vector<float> numbers;
  for (Example<>& batch : loader) {
    EXPECT(batch.target.equal(batch.data * batch.data));
    for (int64_t i = 0; i < batch.data.size(0); ++i) numbers.push_back(batch.data[i].template item<float>());
  }
  return numbers;
}

std::vector<float> counted(size_t count) {
  std::vector<float> numbers;
  for (size_t i = 0; i < count; ++i) numbers.push_back(static_cast<float>(i));
  return numbers;
}

void test_order_and_batches() {
  auto squares = Squares(10).map(Stack<>());
  EXPECT(squares.size().value() == 10);
  auto loader = data::make_data_loader<SequentialSampler>(squares, 4);
  EXPECT(loader->options().batch_size == 4 && loader->options().workers == 0);
  std::vector<int64_t> sizes;
  for (const auto& batch : *loader) sizes.push_back(batch.data.size(0));
  EXPECT((sizes == std::vector<int64_t>{4, 4, 2}));
  EXPECT(numbers_of(*loader) == counted(10));  // another epoch
  auto whole = data::make_data_loader<SequentialSampler>(squares, data::DataLoaderOptions(4).drop_last(true));
  EXPECT(numbers_of(*whole) == counted(8));

  torch::manual_seed(3);
  auto random = data::make_data_loader(squares, data::DataLoaderOptions().batch_size(3));
  const auto first = numbers_of(*random), second = numbers_of(*random);
  EXPECT(first != second && std::set<float>(first.begin(), first.end()).size() == 10);
  auto own = data::make_data_loader(squares, SequentialSampler(5), 2);
  EXPECT(numbers_of(*own) == counted(5));
}

void test_workers() {
  auto squares = Squares(101).map(Stack<>());
  auto loader =
      data::make_data_loader<SequentialSampler>(squares, data::DataLoaderOptions(5).workers(3).max_jobs(4));
  for (int epoch = 0; epoch < 3; ++epoch) EXPECT(numbers_of(*loader) == counted(101));
  auto any_order = data::make_data_loader<RandomSampler>(
      squares, data::DataLoaderOptions(5).workers(2).enforce_ordering(false));
  const auto numbers = numbers_of(*any_order);
  EXPECT(std::set<float>(numbers.begin(), numbers.end()).size() == 101);

  auto failing = data::make_data_loader<SequentialSampler>(Squares(20, 11).map(Stack<>()),
                                                           data::DataLoaderOptions(4).workers(2));
  bool failed = false;
  try {
    numbers_of(*failing);
  } catch (const data::WorkerException& error) {
    failed = std::string(error.what()).find("a bad example") != std::string::npos;
  }
  EXPECT(failed);
  auto iterator = loader->begin();
  failed = false;
  try {
    loader->begin();
  } catch (const c10::Error&) {
    failed = true;
  }
  EXPECT(failed);
  loader->join();
}

void test_transforms() {
  auto doubled = Squares(4)
                     .map(data::transforms::Lambda<Example<>>(
                         [](Example<> one) { return Example<>(one.data * 2, one.target * 4); }))
                     .map(Stack<>());
  auto loader = data::make_data_loader<SequentialSampler>(doubled, 4);
  EXPECT(loader->begin()->data.sum().item<float>() == 12);

  const auto images = torch::ones({6, 2, 3, 3});
  auto normal = data::datasets::TensorDataset(images)
                    .map(data::transforms::Normalize<data::example::NoTarget>({0.5, 1.0}, {0.5, 2.0}))
                    .map(Stack<data::TensorExample>());
  auto tensors = data::make_data_loader<SequentialSampler>(std::move(normal), 6);
  const torch::Tensor batch = tensors->begin()->data;
  EXPECT(batch.size(0) == 6 && batch.index({0, 0, 0, 0}).item<float>() == 1 &&
         batch.index({0, 1}).abs().max().item<float>() == 0);

  auto sums =
      Squares(6).map(data::transforms::Collate<float, std::vector<Example<>>>([](std::vector<Example<>> all) {
        float sum = 0;
        for (const auto& one : all) sum += one.target.item<float>();
        return sum;
      }));
  auto each = data::make_data_loader<SequentialSampler>(std::move(sums), 3);
  std::vector<float> found;
  for (float sum : *each) found.push_back(sum);
  EXPECT((found == std::vector<float>{5, 50}));
}

void test_other_datasets() {
  auto shared = data::datasets::make_shared_dataset<Squares>(size_t(7)).map(Stack<>());
  auto loader = data::make_data_loader<SequentialSampler>(shared, data::DataLoaderOptions(2).workers(2));
  EXPECT(numbers_of(*loader) == counted(7));

  auto counter = data::make_data_loader(Counter(7), data::DataLoaderOptions(3));
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::vector<int64_t> numbers;
    for (const auto& batch : *counter) numbers.insert(numbers.end(), batch.begin(), batch.end());
    EXPECT((numbers == std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6}));
  }

  std::multiset<size_t> all;
  for (size_t rank = 0; rank < 3; ++rank) {
    DistributedRandomSampler sampler(10, 3, rank, /*allow_duplicates=*/false);
    sampler.set_epoch(2);
    sampler.reset();
    while (const auto batch = sampler.next(2)) all.insert(batch->begin(), batch->end());
  }
  EXPECT(all.size() == 10 && std::set<size_t>(all.begin(), all.end()).size() == 10);
}

struct Net : torch::nn::Module {
  Net() : conv(torch::nn::Conv2dOptions(1, 4, 3)), linear(4 * 3 * 3, 2) {
    register_module("conv", conv);
    register_module("linear", linear);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const auto hidden = torch::max_pool2d(torch::relu(conv->forward(x)), 2).view({-1, 4 * 3 * 3});
    return torch::log_softmax(linear->forward(hidden), 1);
  }
  torch::nn::Conv2d conv;
  torch::nn::Linear linear;
};

// A classifier is trained with what the folder has: images that are bright above or below.
void test_training(const std::string& folder) {
  torch::manual_seed(1);
  auto train = MNIST(folder).map(data::transforms::Normalize<>(0.1307, 0.3081)).map(Stack<>());
  const size_t train_size = train.size().value();
  auto loader = data::make_data_loader<RandomSampler>(std::move(train), 16);
  Net model;
  torch::optim::SGD optimizer(model.parameters(), torch::optim::SGDOptions(0.1).momentum(0.5));
  for (int epoch = 0; epoch < 3; ++epoch)
    for (auto& batch : *loader) {
      optimizer.zero_grad();
      auto loss = torch::nll_loss(model.forward(batch.data), batch.target);
      loss.backward();
      optimizer.step();
    }
  auto test = MNIST(folder, MNIST::Mode::kTest);
  EXPECT(!test.is_train() && test.images().dim() == 4 && test.targets().dtype() == torch::kInt64);
  torch::NoGradGuard no_grad;
  int64_t right = 0, count = 0;
  auto test_loader =
      data::make_data_loader(test.map(data::transforms::Normalize<>(0.1307, 0.3081)).map(Stack<>()), 8);
  for (const auto& batch : *test_loader) {
    right += model.forward(batch.data).argmax(1).eq(batch.target).sum().item<int64_t>();
    count += batch.target.size(0);
  }
  EXPECT(train_size == 64 && count == 32 && right == count);
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  test_order_and_batches();
  test_workers();
  test_transforms();
  test_other_datasets();
  test_training(argv[1]);
  bool failed = false;
  try {
    MNIST("/nonexistent");
  } catch (const c10::Error&) {
    failed = true;
  }
  EXPECT(failed);
  const auto activation = torch::nn::Functional(torch::relu);
  EXPECT(torch::nn::Sequential(activation, torch::nn::Functional(torch::max_pool2d, 2, 2, 0, 1, false))
             ->forward(torch::ones({1, 1, 4, 4}))
             .sum()
             .item<float>() == 4);
  return 0;
}

#include "expect.h"
class Numbers : public torch::data::datasets::Dataset<Numbers> {
 public:
  explicit Numbers(size_t n) : n_(n) {}
  torch::data::Example<> get(size_t i) override {
    return {torch::full({2}, (float)i), torch::tensor((int64_t)i % 3)};
  }
  torch::optional<size_t> size() const override { return n_; }

 private:
  size_t n_;
};
int main() {
  auto dataset =
      Numbers(20).map(torch::data::transforms::Normalize<>(0.5, 0.5)).map(torch::data::transforms::Stack<>());
  auto loader = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
      std::move(dataset), torch::data::DataLoaderOptions().batch_size(6).workers(2).drop_last(false));
  size_t total = 0, batches = 0;
  for (auto& batch : *loader) {
    EXPECT(batch.data.size(-1) == 2 && batch.data.size(0) == batch.target.size(0));
    total += batch.data.size(0);
    ++batches;
  }
  EXPECT(total == 20 && batches == 4);
  auto random = torch::data::make_data_loader(Numbers(10).map(torch::data::transforms::Stack<>()), 3);
  total = 0;
  for (torch::data::Example<>& batch : *random) total += batch.target.numel();
  EXPECT(total == 10);
  auto plain = torch::data::make_data_loader(Numbers(5), torch::data::samplers::RandomSampler(5), 2);
  for (auto& examples : *plain)
    for (auto& e : examples) EXPECT(e.data.numel() == 2);
  auto tensors = torch::data::datasets::TensorDataset(torch::randn({7, 2}))
                     .map(torch::data::transforms::Stack<torch::data::TensorExample>());
  auto tl = torch::data::make_data_loader(std::move(tensors), 3);
  for (auto& b : *tl) EXPECT(b.data.dim() == 2);
  auto lam = Numbers(4)
                 .map(torch::data::transforms::Lambda<torch::data::Example<>>([](torch::data::Example<> e) {
                   e.data = e.data * 2;
                   return e;
                 }))
                 .map(torch::data::transforms::Stack<>());
  auto it = torch::data::make_data_loader(std::move(lam), torch::data::DataLoaderOptions(4));
  auto first = it->begin();
  EXPECT(first->data.max().item<float>() == 6);
}

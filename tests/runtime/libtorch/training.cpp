// Groups of parameters, schedulers, containers, recurrent layers and archives.
#include <torch/torch.h>
#include <iostream>
int main() {
  torch::nn::Sequential net(torch::nn::Linear(2, 8), torch::nn::Functional(torch::relu),
                            torch::nn::Dropout(0.1), torch::nn::Linear(8, 1));
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(net->parameters());
  torch::optim::AdamW adamw(groups, torch::optim::AdamWOptions(1e-3).weight_decay(0.01));
  torch::optim::StepLR scheduler(adamw, 2, 0.5);
  for (int i = 0; i < 4; ++i) {
    adamw.zero_grad();
    auto loss = torch::mse_loss(net->forward(torch::rand({4, 2})), torch::zeros({4, 1}));
    loss.backward();
    torch::nn::utils::clip_grad_norm_(net->parameters(), 1.0);
    adamw.step();
    scheduler.step();
  }
  for (auto& group : adamw.param_groups()) {
    if (group.has_options()) static_cast<torch::optim::AdamWOptions&>(group.options()).lr(0.5);
    std::cout << static_cast<torch::optim::AdamWOptions&>(group.options()).lr() << "\n";
  }
  std::cout << c10::str(net) << "\n";
  for (const auto& pair : net->named_parameters())
    std::cout << pair.key() << ": " << pair.value().sizes() << std::endl;
  torch::nn::MultiheadAttention attention(torch::nn::MultiheadAttentionOptions(8, 2).dropout(0.0));
  auto [out, weights] = attention(torch::rand({3, 2, 8}), torch::rand({3, 2, 8}), torch::rand({3, 2, 8}));
  torch::nn::GRU gru(torch::nn::GRUOptions(4, 5).num_layers(2).batch_first(true).bidirectional(true));
  auto [y, h] = gru->forward(torch::rand({2, 3, 4}));
  torch::nn::Embedding e(torch::nn::EmbeddingOptions(10, 3).padding_idx(0));
  auto ce = torch::nn::CrossEntropyLoss(
      torch::nn::CrossEntropyLossOptions().reduction(torch::kSum).label_smoothing(0.1));
  std::cout << out.sizes() << weights.sizes() << y.sizes() << h.sizes()
            << e(torch::zeros({2}, torch::kLong)).sizes() << ce(torch::rand({2, 3}), torch::tensor({0, 1}))
            << "\n";
  torch::nn::init::xavier_uniform_(net->parameters()[0]);
  torch::nn::init::kaiming_normal_(net->parameters()[0], 0.0, torch::kFanOut, torch::kReLU);
  torch::serialize::OutputArchive archive;
  net->save(archive);
  archive.save_to("net.pt");
  torch::serialize::InputArchive in;
  in.load_from("net.pt");
  net->load(in);
  auto copy = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(net->clone());
  torch::optim::RMSprop rms(net->parameters(), torch::optim::RMSpropOptions(0.01));
  torch::optim::Adagrad ada(net->parameters(), torch::optim::AdagradOptions(0.01));
  std::vector<torch::Tensor> saved{torch::ones({2}), torch::zeros({3})};
  torch::save(saved, "list.pt");
  torch::load(saved, "list.pt");
  std::cout << saved.size() << copy->size() << '\n';
}

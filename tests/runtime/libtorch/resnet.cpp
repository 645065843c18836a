#include "expect.h"
struct BasicBlockImpl : torch::nn::Module {
  torch::nn::Conv2d conv1, conv2;
  torch::nn::BatchNorm2d bn1, bn2;
  torch::nn::Sequential downsample;
  BasicBlockImpl(int64_t in, int64_t out, int64_t stride = 1)
      : conv1(torch::nn::Conv2dOptions(in, out, 3).stride(stride).padding(1).bias(false)),
        conv2(torch::nn::Conv2dOptions(out, out, {3, 3}).padding(1).bias(false)),
        bn1(out),
        bn2(torch::nn::BatchNorm2dOptions(out).momentum(0.05)) {
    register_module("conv1", conv1);
    register_module("bn1", bn1);
    register_module("conv2", conv2);
    register_module("bn2", bn2);
    if (stride != 1 || in != out) {
      downsample = torch::nn::Sequential(
          torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 1).stride(stride).bias(false)),
          torch::nn::BatchNorm2d(out));
      register_module("downsample", downsample);
    }
  }
  torch::Tensor forward(torch::Tensor x) {
    auto residual = x;
    x = torch::relu(bn1(conv1(x)));
    x = bn2(conv2(x));
    if (!downsample->is_empty()) residual = downsample->forward(residual);
    x += residual;
    return torch::relu_(x);
  }
};
TORCH_MODULE(BasicBlock);
struct ResNetImpl : torch::nn::Module {
  torch::nn::Sequential layers{nullptr};
  torch::nn::AdaptiveAvgPool2d pool{torch::nn::AdaptiveAvgPool2dOptions({1, 1})};
  torch::nn::Linear fc{nullptr};
  ResNetImpl() {
    layers = torch::nn::Sequential();
    layers->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).padding(1)));
    layers->push_back(torch::nn::Functional(torch::relu));
    layers->push_back(torch::nn::MaxPool2d(torch::nn::MaxPool2dOptions(2).stride(2)));
    layers->push_back("block1", BasicBlock(8, 8));
    layers->push_back("block2", BasicBlock(8, 16, 2));
    fc = torch::nn::Linear(torch::nn::LinearOptions(16, 4).bias(true));
    register_module("layers", layers);
    register_module("pool", pool);
    register_module("fc", fc);
    for (auto& m : modules(/*include_self=*/false)) {
      if (auto* conv = m->as<torch::nn::Conv2d>())
        torch::nn::init::kaiming_normal_(conv->weight, 0, torch::kFanOut, torch::kReLU);
      else if (auto bn = dynamic_cast<torch::nn::BatchNorm2dImpl*>(m.get())) {
        torch::nn::init::constant_(bn->weight, 1);
        torch::nn::init::constant_(bn->bias, 0);
      }
    }
  }
  torch::Tensor forward(torch::Tensor x) { return fc(pool(layers->forward(x)).view({x.size(0), -1})); }
};
TORCH_MODULE(ResNet);
int main() {
  torch::manual_seed(3);
  torch::Device device(torch::kCPU);
  if (torch::cuda::is_available()) device = torch::Device(torch::kCUDA);
  ResNet net;
  net->to(device);
  EXPECT(net->is_training());
  torch::optim::SGD optimizer({net->parameters()},
                              torch::optim::SGDOptions(0.05).momentum(0.9).nesterov(true).weight_decay(5e-4));
  auto x = torch::randn({8, 3, 12, 12}, device),
       y = torch::randint(0, 4, {8}, torch::TensorOptions().dtype(torch::kInt64).device(device));
  float first = 0, last = 0;
  for (size_t epoch = 1; epoch <= 30; ++epoch) {
    optimizer.zero_grad();
    auto out = torch::log_softmax(net->forward(x), 1);
    auto loss = torch::nll_loss(out, y);
    AT_ASSERT(!std::isnan(loss.template item<float>()));
    loss.backward();
    optimizer.step();
    last = loss.item<float>();
    if (epoch == 1) first = last;
    for (auto& group : optimizer.param_groups())
      if (group.has_options())
        static_cast<torch::optim::SGDOptions&>(group.options()).lr(0.05 * std::pow(0.95, epoch));
  }
  EXPECT(last < first / 2);
  net->eval();
  {
    torch::NoGradGuard no_grad;
    auto pred = net(x).argmax(1);
    int64_t correct = pred.eq(y).sum().item<int64_t>();
    EXPECT(correct >= 5);
    EXPECT(!net(x).requires_grad());
  }
  {
    c10::InferenceMode guard;
    EXPECT(!net(x).requires_grad());
  }
  size_t n = 0;
  for (const auto& p : net->named_parameters(/*recurse=*/true)) n += p.value().numel();
  EXPECT(n > 1000);
  for (const auto& b : net->named_buffers()) EXPECT(!b.key().empty());
  EXPECT(net->named_children().size() == 3);
  EXPECT(net->named_modules()["layers.block1.conv1"]->name() == "torch::nn::Conv2dImpl");
  auto copy = std::dynamic_pointer_cast<torch::nn::Conv2dImpl>(net->layers[0]->clone());
  EXPECT(copy != nullptr);
  std::ostringstream text;
  text << net;
  EXPECT(text.str().find("Conv2d(3, 8") != std::string::npos);
  net->to(torch::kDouble);
  EXPECT(net->fc->weight.dtype() == torch::kFloat64);
  net->zero_grad();
}

// Archives of tensors, modules, values and optimizers: `interchange DIR save` writes them, `interchange DIR
// load` reads what either library wrote.
#include <fstream>
#include "expect.h"
struct NetImpl : torch::nn::Module {
  NetImpl() {
    first = register_module("first", torch::nn::Linear(3, 4));
    norm = register_module("norm", torch::nn::BatchNorm1d(4));
    layers = register_module(
        "layers", torch::nn::Sequential(torch::nn::Linear(4, 4), torch::nn::ReLU(), torch::nn::Linear(4, 1)));
    scale = register_parameter("scale", torch::ones({1}));
    fixed = register_parameter("fixed", torch::ones({1}), false);
    count = register_buffer("count", torch::zeros({1}, torch::kInt64));
  }
  torch::Tensor forward(torch::Tensor x) { return layers->forward(torch::tanh(first(x))) * scale; }
  torch::nn::Linear first{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Sequential layers{nullptr};
  torch::Tensor scale, fixed, count;
};
TORCH_MODULE(Net);
torch::Tensor values(const torch::Tensor& like, double start) {
  return (torch::arange(like.numel()) * 0.01 + start).to(like.dtype()).view_as(like);
}
Net numbered() {
  Net net;
  torch::NoGradGuard guard;
  double start = 0;
  for (auto& p : net->parameters()) p.copy_(values(p, start += 0.1));
  net->count.fill_(5);
  return net;
}
void steps(torch::optim::Optimizer& optimizer, Net& net, int count) {
  for (int i = 0; i < count; ++i) {
    optimizer.zero_grad();
    net->forward(torch::arange(15).view({5, 3}).to(torch::kFloat32) / 15).pow(2).sum().backward();
    optimizer.step();
  }
}
// Two steps, a file, and a third step, which depends on what the file holds.
template <class O, class Options>
void optimizer(const std::string& path, bool save, const Options& options, const Options& others) {
  Net net = numbered(), copy = numbered();
  O first(net->parameters(), options);
  steps(first, net, 2);
  if (save) return torch::save(first, path);
  O second(copy->parameters(), options), loaded(copy->parameters(), others);
  steps(second, copy, 2);
  torch::load(loaded, path);
  steps(first, net, 1);
  steps(loaded, copy, 1);
  const auto wanted = net->parameters(), found = copy->parameters();
  for (size_t i = 0; i < wanted.size(); ++i)
    if (!torch::allclose(wanted[i], found[i], 1e-3, 1e-4)) {
      std::cerr << path << ": expected " << wanted[i] << ", got " << found[i] << std::endl;
      std::exit(1);
    }
}
void optimizers(const std::string& dir, bool save) {
  using namespace torch::optim;
  optimizer<SGD>(dir + "/sgd.pt", save, SGDOptions(0.01).momentum(0.9).nesterov(true), SGDOptions(1));
  optimizer<Adam>(dir + "/adam.pt", save, AdamOptions(0.01).betas({0.8, 0.9}).amsgrad(true), AdamOptions(1));
  optimizer<AdamW>(dir + "/adamw.pt", save, AdamWOptions(0.01).weight_decay(0.1), AdamWOptions(1));
  optimizer<RMSprop>(dir + "/rmsprop.pt", save, RMSpropOptions(0.01).centered(true).momentum(0.5),
                     RMSpropOptions(1));
  optimizer<Adagrad>(dir + "/adagrad.pt", save, AdagradOptions(0.01).lr_decay(0.1), AdagradOptions(1));
}
void save(const std::string& dir) {
  torch::save(torch::arange(6).reshape({2, 3}).t(), dir + "/tensor.pt");
  torch::save(std::vector<torch::Tensor>{torch::ones(2), torch::zeros({3}, torch::kInt64)}, dir + "/many.pt");
  Net net = numbered();
  torch::save(net, dir + "/net.pt");
  torch::serialize::OutputArchive out, nested;
  nested.write("x", torch::ones(2));
  nested.write("flag", c10::IValue(true));
  out.write("epoch", torch::tensor(7));
  out.write("name", c10::IValue("best"));
  out.write("rate", c10::IValue(0.5));
  out.write("list", c10::IValue(std::vector<int64_t>{1, 2, 3}));
  out.write("a/name", c10::IValue(-(int64_t(1) << 40)));
  out.write("nested", nested);
  out.save_to(dir + "/archive.pt");
  const std::vector<char> bytes = torch::pickle_save(torch::ones({3}));
  std::ofstream(dir + "/pickle.pt", std::ios::binary).write(bytes.data(), std::streamsize(bytes.size()));
}
void load(const std::string& dir) {
  torch::Tensor t;
  torch::load(t, dir + "/tensor.pt");
  EXPECT(torch::equal(t, torch::arange(6).reshape({2, 3}).t()) && t.stride(0) == 1);
  std::vector<torch::Tensor> many;
  torch::load(many, dir + "/many.pt");
  EXPECT(many.size() == 2 && many[1].scalar_type() == torch::kInt64 && many[1].numel() == 3);
  Net net, wanted = numbered();
  torch::load(net, dir + "/net.pt");
  const auto mine = net->named_parameters(), theirs = wanted->named_parameters();
  for (const auto& item : theirs) {
    EXPECT(torch::equal(mine[item.key()], item.value()));
    EXPECT(mine[item.key()].requires_grad() == item.value().requires_grad());
  }
  EXPECT(net->count.item<int64_t>() == 5 && torch::equal(net->norm->running_var, torch::ones(4)));
  torch::serialize::InputArchive in, nested;
  in.load_from(dir + "/archive.pt");
  torch::Tensor epoch, x;
  in.read("epoch", epoch);
  c10::IValue name, rate, list, negative, flag;
  in.read("name", name), in.read("rate", rate), in.read("list", list), in.read("nested", nested);
  in.read("a/name", negative);
  nested.read("x", x), nested.read("flag", flag);
  EXPECT(epoch.item<int64_t>() == 7 && name.toStringRef() == "best" && rate.toDouble() == 0.5);
  EXPECT(list.toIntVector() == (std::vector<int64_t>{1, 2, 3}) && negative.toInt() == -(int64_t(1) << 40));
  EXPECT(torch::equal(x, torch::ones(2)) && flag.toBool() && in.keys().size() == 6);
  std::ifstream file(dir + "/pickle.pt", std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT(torch::equal(torch::pickle_load(bytes).toTensor(), torch::ones(3)));
}
int main(int argc, char** argv) {
  const std::string dir = argc > 1 ? argv[1] : "/tmp", what = argc > 2 ? argv[2] : "both";
  if (what != "load") save(dir), optimizers(dir, true);
  if (what != "save") load(dir), optimizers(dir, false);
}

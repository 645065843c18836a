#include <fstream>
#include <sstream>
#include "expect.h"
struct NetImpl : torch::nn::Cloneable<NetImpl> {
  explicit NetImpl(int64_t n) : width(n) { reset(); }
  void reset() override {
    first = register_module("first", torch::nn::Linear(width, 4));
    second = register_module("second", torch::nn::Linear(4, 1));
    scale = register_parameter("scale", torch::ones({1}));
    count = register_buffer("count", torch::zeros({1}, torch::kInt64));
  }
  torch::Tensor forward(torch::Tensor x) { return second(torch::tanh(first(x))) * scale; }
  int64_t width;
  torch::nn::Linear first{nullptr}, second{nullptr};
  torch::Tensor scale, count;
};
TORCH_MODULE(Net);
int main(int argc, char** argv) {
  std::string dir = argc > 1 ? argv[1] : "/tmp";
  auto t = torch::randn({3, 2});
  torch::save(t, dir + "/t.pt");
  torch::Tensor u;
  torch::load(u, dir + "/t.pt");
  EXPECT(torch::equal(t, u));
  std::vector<torch::Tensor> many = {t, t * 2}, back;
  torch::save(many, dir + "/many.pt");
  torch::load(back, dir + "/many.pt");
  EXPECT(back.size() == 2 && torch::allclose(back[1], t * 2));
  Net net(3), other(3);
  net->count += 5;
  torch::save(net, dir + "/net.pt");
  torch::load(other, dir + "/net.pt");
  EXPECT(torch::equal(net->first->weight, other->first->weight) && other->count.item<int>() == 5);
  torch::serialize::OutputArchive out;
  net->save(out);
  out.write("epoch", torch::tensor(7));
  out.write("name", c10::IValue(std::string("best")));
  out.save_to(dir + "/archive.pt");
  torch::serialize::InputArchive in;
  in.load_from(dir + "/archive.pt");
  Net third(3);
  third->load(in);
  torch::Tensor epoch;
  in.read("epoch", epoch);
  c10::IValue name;
  in.read("name", name);
  EXPECT(epoch.item<int>() == 7 && name.toStringRef() == "best");
  EXPECT(torch::equal(third->second->bias, net->second->bias));
  torch::Tensor absent;
  EXPECT(!in.try_read("absent", absent));
  auto cloned = std::dynamic_pointer_cast<NetImpl>(net->clone());
  {
    torch::NoGradGuard guard;
    cloned->scale.add_(1);
  }
  EXPECT(net->scale.item<float>() == 1 && cloned->scale.item<float>() == 2);
  torch::optim::RMSprop opt(net->parameters(), torch::optim::RMSpropOptions(0.01).alpha(0.9).centered(true)),
      opt2(net->parameters(), 0.5);
  net(torch::randn({2, 3})).sum().backward();
  opt.step();
  torch::save(opt, dir + "/opt.pt");
  torch::load(opt2, dir + "/opt.pt");
  std::ostringstream stream;
  torch::save(net, stream);
  std::istringstream istream(stream.str());
  torch::load(other, istream);
  EXPECT(torch::equal(net->scale, other->scale));
  try {
    torch::load(other, dir + "/nothere.pt");
    EXPECT(false);
  } catch (const c10::Error& e) {
    EXPECT(std::string(e.what()).size() > 5);
  }
}

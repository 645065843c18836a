// Creation, indexing, accessors, linear algebra and functions with options.
#include <ATen/ATen.h>
#include <torch/torch.h>
#include <cassert>
#include <iostream>
using namespace torch::indexing;
int main() {
  at::Tensor a = at::ones({2, 2}, at::kInt);
  at::Tensor b = at::randn({2, 2});
  auto c = a + b.to(at::kInt);
  torch::Tensor foo = torch::rand({12, 12});
  auto foo_a = foo.accessor<float, 2>();
  float trace = 0;
  for (int i = 0; i < foo_a.size(0); i++) trace += foo_a[i][i];
  auto options = torch::TensorOptions()
                     .dtype(torch::kFloat32)
                     .layout(torch::kStrided)
                     .device(torch::kCPU, 0)
                     .requires_grad(true);
  torch::Tensor tensor = torch::full({3, 4}, /*value=*/123, options);
  assert(tensor.dtype() == torch::kFloat32 && tensor.layout() == torch::kStrided &&
         tensor.device().type() == torch::kCPU && tensor.requires_grad());
  torch::Tensor source =
      torch::randn({2, 3}, torch::kInt32 == torch::kInt32 ? torch::kFloat64 : torch::kFloat64);
  torch::Tensor two = torch::rand({10, 20})[0][3];
  int data[] = {1, 2, 3, 4, 5, 6};
  torch::Tensor f = torch::from_blob(data, {2, 3}, torch::kInt32);
  float x = torch::ones({}).item<float>() + torch::arange(3).sum().item().toFloat();
  auto idx = f.index({"...", 0}), g = f.index({Slice(None, None, 2), None});
  f.index_put_({Slice(), 1}, 7);
  std::vector<torch::Tensor> parts = torch::chunk(f, 3, 1);
  auto stacked = torch::stack({f, f}, 0), e = torch::einsum("ij,kj->ik", {b, b});
  auto w = torch::where(b > 0, b, torch::zeros_like(b));
  torch::Tensor u, s, v;
  std::tie(u, s, v) = torch::svd(b);
  auto q = torch::linalg::inv(b), n = torch::linalg::norm(b, 2, {}, false, torch::nullopt);
  auto ff = torch::fft::rfft(torch::rand({8}));
  torch::nn::functional::InterpolateFuncOptions io = torch::nn::functional::InterpolateFuncOptions()
                                                         .size(std::vector<int64_t>({4, 4}))
                                                         .mode(torch::kBilinear)
                                                         .align_corners(false);
  auto up = torch::nn::functional::interpolate(torch::rand({1, 1, 2, 2}), io);
  auto pd = torch::nn::functional::pad(
      up, torch::nn::functional::PadFuncOptions({1, 1, 1, 1}).mode(torch::kReflect));
  auto gs = torch::nn::functional::grid_sample(up, torch::zeros({1, 2, 2, 2}),
                                               torch::nn::functional::GridSampleFuncOptions()
                                                   .mode(torch::kBilinear)
                                                   .padding_mode(torch::kZeros)
                                                   .align_corners(true));
  c10::IntArrayRef sizes = up.sizes();
  at::ArrayRef<int64_t> strides = up.strides();
  std::cout << sizes << strides << trace << x << pd.sum().item<float>() << gs.sizes() << two << idx << g
            << stacked.sizes() << e.sizes() << w.dtype() << q.sizes() << n << ff.sizes() << parts[0] << c
            << std::endl;
  torch::set_num_threads(1);
  std::cout << torch::get_num_threads() << torch::cuda::device_count() << c10::toString(foo.scalar_type())
            << foo.toString() << std::endl;
  foo.print();
  AT_DISPATCH_FLOATING_TYPES(foo.scalar_type(), "sum", [&] { std::cout << foo.data_ptr<scalar_t>()[0]; });
}

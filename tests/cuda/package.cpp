// Runs a package for CUDA in C++ and in C, and prints the results of both, each value on a line.
//
//     package model.pt2 ROWS COLUMNS
#include <torch/torch.h>

#include <cstdlib>
#include <iostream>

int main(int, char** argv) {
  const int64_t rows = std::atoi(argv[2]), columns = std::atoi(argv[3]);
  if (!torch::cuda::is_available()) return 2;
  torch::Tensor x =
      torch::arange(rows * columns).remainder(7).to(torch::kFloat).div(7).reshape({rows, columns});
  torch::inductor::AOTIModelPackageLoader loader(argv[1], "model", false, 1, 0);
  const torch::Tensor here = x.to(torch::kCUDA);
  if (!here.is_cuda() || here.device() != torch::Device("cuda:0") || x.is_cuda()) return 3;
  const torch::Tensor y = loader.run({here})[0];
  if (!y.is_cuda()) return 4;
  const torch::Tensor values = y.cpu().contiguous();
  for (int64_t i = 0; i < values.numel(); ++i) std::cout << values.data_ptr<float>()[i] << "\n";
  try {
    loader.run({x});
    return 5;
  } catch (const c10::Error& error) {
    std::cerr << error.what() << "\n";
  }

  DLManagedTensor *input = nullptr, *output = nullptr;
  fl_tensor* returned = nullptr;
  if (fl_tensor_to_dlpack(here.handle(), &input) || fl_run(loader.handle(), &input, 1, &output, 1) ||
      output->dl_tensor.device.device_type != kDLCUDA || fl_tensor_from_dlpack(output, &returned)) {
    std::cerr << fl_error() << "\n";
    return 6;
  }
  input->deleter(input);
  const torch::Tensor again = torch::Tensor::adopt(returned).cpu().contiguous();
  for (int64_t i = 0; i < again.numel(); ++i) std::cout << again.data_ptr<float>()[i] << "\n";
  torch::nn::Linear layer(3, 2);
  layer->to(torch::kCUDA);
  const torch::Tensor loss = layer(torch::ones({4, 3}, torch::kCUDA)).sum();
  loss.backward();
  torch::cuda::synchronize();
  return layer->weight.grad().is_cuda() && layer->bias.grad().cpu().equal(torch::full({2}, 4.0)) ? 0 : 7;
}

// A generator and a discriminator that learn from each other, with checkpoints.
#include <torch/torch.h>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <string>
#include <tuple>
const int64_t kNoiseSize = 10, kBatchSize = 4, kNumberOfEpochs = 1, kCheckpointEvery = 2,
              kNumberOfSamplesPerCheckpoint = 3, kLogInterval = 1;
const bool kRestoreFromCheckpoint = false;
using namespace torch;
struct DCGANGeneratorImpl : nn::Module {
  DCGANGeneratorImpl(int kNoiseSize)
      : conv1(nn::ConvTranspose2dOptions(kNoiseSize, 16, 4).bias(false)),
        batch_norm1(16),
        conv2(nn::ConvTranspose2dOptions(16, 8, 3).stride(2).padding(1).bias(false)),
        batch_norm2(8),
        conv3(nn::ConvTranspose2dOptions(8, 4, 4).stride(2).padding(1).bias(false)),
        batch_norm3(4),
        conv4(nn::ConvTranspose2dOptions(4, 1, 4).stride(2).padding(1).bias(false)) {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("conv3", conv3);
    register_module("conv4", conv4);
    register_module("batch_norm1", batch_norm1);
    register_module("batch_norm2", batch_norm2);
    register_module("batch_norm3", batch_norm3);
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(batch_norm1(conv1(x)));
    x = torch::relu(batch_norm2(conv2(x)));
    x = torch::relu(batch_norm3(conv3(x)));
    x = torch::tanh(conv4(x));
    return x;
  }
  nn::ConvTranspose2d conv1;
  nn::BatchNorm2d batch_norm1;
  nn::ConvTranspose2d conv2;
  nn::BatchNorm2d batch_norm2;
  nn::ConvTranspose2d conv3;
  nn::BatchNorm2d batch_norm3;
  nn::ConvTranspose2d conv4;
};
TORCH_MODULE(DCGANGenerator);
nn::Sequential create_discriminator() {
  return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(1, 8, 4).stride(2).padding(1).bias(false)),
                        nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.2)),
                        nn::Conv2d(nn::Conv2dOptions(8, 16, 4).stride(2).padding(1).bias(false)),
                        nn::BatchNorm2d(16), nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.2)),
                        nn::Conv2d(nn::Conv2dOptions(16, 16, 4).stride(2).padding(1).bias(false)),
                        nn::BatchNorm2d(16), nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.2)),
                        nn::Conv2d(nn::Conv2dOptions(16, 1, 3).stride(1).padding(0).bias(false)),
                        nn::Sigmoid());
}
int main(int argc, const char* argv[]) {
  torch::manual_seed(1);
  torch::Device device(torch::kCPU);
  if (torch::cuda::is_available()) {
    std::cout << "CUDA is available! Training on GPU." << std::endl;
    device = torch::Device(torch::kCUDA);
  }
  DCGANGenerator generator(kNoiseSize);
  generator->to(device);
  nn::Sequential discriminator = create_discriminator();
  discriminator->to(device);
  torch::optim::Adam generator_optimizer(generator->parameters(),
                                         torch::optim::AdamOptions(2e-4).betas(std::make_tuple(0.5, 0.5)));
  torch::optim::Adam discriminator_optimizer(
      discriminator->parameters(), torch::optim::AdamOptions(2e-4).betas(std::make_tuple(0.5, 0.5)));
  int64_t checkpoint_counter = 1;
  for (int64_t epoch = 1; epoch <= kNumberOfEpochs; ++epoch) {
    discriminator->zero_grad();
    torch::Tensor real_images = torch::rand({kBatchSize, 1, 28, 28}).to(device);
    torch::Tensor real_labels = torch::empty(real_images.size(0), device).uniform_(0.8, 1.0);
    torch::Tensor real_output = discriminator->forward(real_images).reshape(real_labels.sizes());
    torch::Tensor d_loss_real = torch::binary_cross_entropy(real_output, real_labels);
    d_loss_real.backward();
    torch::Tensor noise = torch::randn({real_images.size(0), kNoiseSize, 1, 1}, device);
    torch::Tensor fake_images = generator->forward(noise);
    torch::Tensor fake_labels = torch::zeros(real_images.size(0), device);
    torch::Tensor fake_output = discriminator->forward(fake_images.detach()).reshape(fake_labels.sizes());
    torch::Tensor d_loss_fake = torch::binary_cross_entropy(fake_output, fake_labels);
    d_loss_fake.backward();
    torch::Tensor d_loss = d_loss_real + d_loss_fake;
    discriminator_optimizer.step();
    generator->zero_grad();
    fake_labels.fill_(1);
    fake_output = discriminator->forward(fake_images).reshape(fake_labels.sizes());
    torch::Tensor g_loss = torch::binary_cross_entropy(fake_output, fake_labels);
    g_loss.backward();
    generator_optimizer.step();
    std::printf("\r[%2ld/%2ld] D_loss: %.4f | G_loss: %.4f\n", (long)epoch, (long)kNumberOfEpochs,
                d_loss.item<float>(), g_loss.item<float>());
    torch::save(generator, "generator-checkpoint.pt");
    torch::save(generator_optimizer, "generator-optimizer-checkpoint.pt");
    torch::save(discriminator, "discriminator-checkpoint.pt");
    torch::save(discriminator_optimizer, "discriminator-optimizer-checkpoint.pt");
    torch::Tensor samples =
        generator->forward(torch::randn({kNumberOfSamplesPerCheckpoint, kNoiseSize, 1, 1}, device));
    torch::save((samples + 1.0) / 2.0, torch::str("dcgan-sample-", checkpoint_counter, ".pt"));
    std::cout << "\n-> checkpoint " << ++checkpoint_counter << '\n';
  }
  torch::load(generator, "generator-checkpoint.pt");
  torch::load(generator_optimizer, "generator-optimizer-checkpoint.pt");
  return 0;
}

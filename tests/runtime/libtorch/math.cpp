#include "expect.h"
int main() {
  torch::manual_seed(0);
  auto a = torch::randn({4, 4});
  auto spd = a.mm(a.t()) + torch::eye(4) * 4;
  auto L = torch::linalg_cholesky(spd);
  EXPECT(torch::allclose(L.mm(L.t()), spd, 1e-4, 1e-4));
  auto [U, S, V] = torch::svd(a);
  EXPECT(torch::allclose(U.mm(torch::diag(S)).mm(V.t()), a, 1e-4, 1e-4));
  auto [u2, s2, vh] = torch::linalg_svd(a, false);
  EXPECT(torch::allclose(s2, S, 1e-4, 1e-4));
  auto [Q, R] = torch::linalg_qr(a);
  EXPECT(torch::allclose(Q.mm(R), a, 1e-4, 1e-4));
  auto x = torch::linalg_solve(spd, torch::ones({4}));
  EXPECT(torch::allclose(spd.mv(x), torch::ones({4}), 1e-3, 1e-3));
  EXPECT(torch::allclose(torch::linalg_inv(spd).mm(spd), torch::eye(4), 1e-3, 1e-3));
  EXPECT(torch::inverse(spd).defined() && torch::det(spd).item<float>() > 0 &&
         torch::linalg_det(spd).dim() == 0);
  auto [w, v] = torch::linalg_eigh(spd);
  EXPECT(w.min().item<float>() > 0);
  EXPECT(torch::linalg_matrix_norm(a).dim() == 0 && torch::norm(a).item<float>() > 0);
  auto signal = torch::randn({8});
  EXPECT(torch::allclose(torch::fft::irfft(torch::fft::rfft(signal), 8), signal, 1e-4, 1e-4));
  EXPECT(torch::allclose(torch::real(torch::fft_ifft(torch::fft_fft(signal))), signal, 1e-4, 1e-4));
  EXPECT(torch::einsum("ij,jk->ik", {a, a}).sizes() == a.sizes());
  EXPECT(torch::bmm(torch::randn({2, 3, 4}), torch::randn({2, 4, 5})).size(2) == 5 &&
         torch::matmul(a, a).dim() == 2 && a.matmul(a).dim() == 2);
  EXPECT(torch::cumsum(torch::ones({3}), 0)[2].item<float>() == 3 &&
         torch::clamp(a, -0.5, 0.5).max().item<float>() <= 0.5 &&
         torch::clamp_min(a, 0).min().item<float>() >= 0);
  EXPECT(torch::softmax(a, -1).sum().item<float>() > 3.99 &&
         torch::log_softmax(a, 1).max().item<float>() <= 0 && torch::logsumexp(a, 1).dim() == 1);
  EXPECT(torch::isnan(a / 0 * 0).any().item<bool>() && torch::isfinite(a).all().item<bool>());
  EXPECT(std::get<0>(torch::unique_consecutive(torch::tensor({1, 1, 2}))).numel() == 2);
  auto [uniq, inv, cnt] = torch::_unique2(torch::tensor({3, 1, 3}), true, true, true);
  EXPECT(uniq.numel() == 2 && inv.numel() == 3 && cnt.numel() == 2);
  auto [sorted, order] = torch::sort(a, 1, true);
  EXPECT(torch::equal(a.gather(1, order), sorted));
  EXPECT(torch::argsort(a).sizes() == a.sizes() && torch::bincount(torch::tensor({0, 1, 1})).numel() == 2 &&
         torch::histc(a, 4).numel() == 4);
  EXPECT(torch::std(a).item<float>() > 0 && torch::var(a, 0).dim() == 1 &&
         torch::mean(a, {0, 1}).dim() == 0 && std::get<1>(torch::std_mean(a)).dim() == 0 &&
         torch::prod(a).dim() == 0);
  EXPECT(torch::cdist(a, a).sizes() == a.sizes() &&
         torch::cosine_similarity(a, a).min().item<float>() > 0.99 &&
         torch::pairwise_distance(a, a).max().item<float>() < 1e-4);
  EXPECT(torch::nn::functional::normalize(a, torch::nn::functional::NormalizeFuncOptions().p(2).dim(1))
             .norm(2, 1)
             .max()
             .item<float>() < 1.001);
  EXPECT(torch::nn::functional::one_hot(torch::tensor({0, 2}), 3).sum().item<int64_t>() == 2 &&
         torch::one_hot(torch::tensor({1}), 4).size(1) == 4);
  EXPECT(torch::tril(a).defined() && torch::triu(a, 1).defined() && torch::flip(a, {0}).defined() &&
         torch::roll(a, 1, 0).defined() && torch::rot90(a).defined());
  EXPECT(torch::outer(torch::ones({2}), torch::ones({3})).size(1) == 3 &&
         torch::dot(torch::ones({2}), torch::ones({2})).item<int>() == 2 &&
         torch::kron(torch::eye(2), torch::eye(2)).size(0) == 4);
  EXPECT((a == a).all().item<bool>() && (a != a).any().item<bool>() == false && (-a).defined() &&
         (a > 0).logical_not().defined() && (~(a > 0)).dtype() == torch::kBool &&
         (((a > 0) & (a < 1)) | (a > 5)).defined());
  auto b = a.clone();
  b += 1;
  b -= a;
  b *= 2;
  b /= 2;
  EXPECT(torch::allclose(b, torch::ones_like(b), 1e-4, 1e-4));
  EXPECT((1 - a + 2.0 * a).defined() && (1.0 / (a + 10)).defined() && torch::pow(a, 2).defined() &&
         torch::pow(2, a).defined() && a.pow(2).defined());
  EXPECT(
      torch::nn::functional::grid_sample(torch::randn({1, 1, 4, 4}), torch::zeros({1, 2, 2, 2}),
                                         torch::nn::functional::GridSampleFuncOptions().align_corners(true))
          .size(2) == 2);
  EXPECT(torch::nn::functional::affine_grid(torch::eye(2, 3).unsqueeze(0), {1, 1, 4, 4}, false).size(3) == 2);
  EXPECT(torch::searchsorted(torch::tensor({1., 3., 5.}), torch::tensor({2., 4.})).numel() == 2 &&
         torch::trapz(torch::ones({3})).item<float>() == 2 && torch::diff(torch::arange(4)).numel() == 3);
}

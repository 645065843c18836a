#include "expect.h"
template <typename T>
void twice(T* p, int64_t n) {
  for (int64_t i = 0; i < n; ++i) p[i] *= 2;
}
int main() {
  auto options = torch::TensorOptions()
                     .dtype(torch::kFloat64)
                     .layout(torch::kStrided)
                     .device(torch::kCPU, -1)
                     .requires_grad(true);
  auto a = torch::zeros({2, 3}, options);
  EXPECT(a.requires_grad() && a.dtype() == torch::kDouble && a.device().is_cpu() &&
         a.layout() == torch::kStrided);
  EXPECT(torch::dtype(torch::kInt32).device(torch::Device("cpu")).dtype() == torch::kInt32);
  auto b = torch::full({2, 2}, 3.5, torch::kFloat32), e = torch::eye(3), l = torch::linspace(0, 1, 5),
       r = torch::logspace(0, 2, 3);
  EXPECT(torch::arange(1, 10, 2).numel() == 5 && torch::arange(0.0, 1.0, 0.25).dtype() == torch::kFloat);
  EXPECT(torch::ones_like(a, torch::kInt).scalar_type() == torch::kInt && torch::empty({0}).numel() == 0);
  EXPECT(torch::tensor({1.0, 2.0}).dtype() == torch::kFloat && torch::tensor({1, 2}).dtype() == torch::kLong);
  EXPECT(torch::tensor({{1, 2}, {3, 4}}, torch::kFloat16).dtype() == torch::kHalf &&
         torch::tensor(true).dtype() == torch::kBool);
  EXPECT(torch::tensor(std::vector<float>{1, 2, 3}).numel() == 3 && torch::scalar_tensor(2.0).dim() == 0);
  std::vector<float> data = {1, 2, 3, 4, 5, 6};
  auto blob = torch::from_blob(data.data(), {2, 3}, torch::kFloat);
  blob.mul_(2);
  EXPECT(data[5] == 12);
  auto strided = torch::from_blob(data.data(), {3, 2}, {1, 3});
  EXPECT(strided[1][0].item<float>() == 4);
  bool freed = false;
  {
    auto owned = torch::from_blob(data.data(), {6}, [&](void*) { freed = true; }, torch::kFloat);
  }
  EXPECT(freed);
  auto c = b.to(torch::kLong), d = b.to(a.options().requires_grad(false)),
       f = b.to(torch::kCPU, torch::kDouble), g = b.type_as(c);
  EXPECT(c.dtype() == torch::kInt64 && d.dtype() == torch::kDouble && f.dtype() == torch::kFloat64 &&
         g.dtype() == torch::kLong);
  EXPECT(b.toType(torch::kInt).dtype() == torch::kInt && b.to(c).dtype() == torch::kLong);
  AT_DISPATCH_FLOATING_TYPES(b.scalar_type(), "twice",
                             [&] { twice<scalar_t>(b.data_ptr<scalar_t>(), b.numel()); });
  EXPECT(b[0][0].item<float>() == 7);
  AT_DISPATCH_ALL_TYPES(c.scalar_type(), "any", ([&] { EXPECT(sizeof(scalar_t) == 8); }));
  std::ostringstream s;
  s << b << "\n"
    << a.dtype() << " " << a.device() << " " << a.sizes() << " " << torch::kFloat << " " << options;
  EXPECT(s.str().find("7  7") != std::string::npos && s.str().find("CPUFloatType{2,2}") != std::string::npos);
  EXPECT(torch::promote_types(torch::kInt, torch::kFloat) == torch::kFloat &&
         torch::isFloatingType(torch::kHalf) && torch::elementSize(torch::kDouble) == 8);
  EXPECT(b.is_same(b) && !b.is_sparse() && b.is_floating_point() && b.element_size() == 4 &&
         b.nbytes() == 16 && b.storage().nbytes() == 16);
  EXPECT(torch::typeMetaToScalarType(b.dtype()) == torch::kFloat);
  torch::set_default_dtype(caffe2::TypeMeta::Make<double>());
  EXPECT(torch::ones({1}).dtype() == torch::kDouble);
  torch::set_default_dtype(torch::scalarTypeToTypeMeta(torch::kFloat));
  auto complex = torch::complex(torch::ones({2}), torch::zeros({2}));
  EXPECT(complex.is_complex() && torch::real(complex)[0].item<float>() == 1);
  c10::complex<float> z = complex[0].item<c10::complex<float>>();
  EXPECT(z.real() == 1);
  torch::Scalar sc = 3;
  EXPECT(sc.isIntegral(false) && sc.to<double>() == 3 && (b + sc).defined());
  EXPECT(torch::randperm(5).dtype() == torch::kLong &&
         torch::rand({2}, torch::kDouble).dtype() == torch::kDouble &&
         torch::normal(0.0, 1.0, {3}).numel() == 3);
  EXPECT(torch::bernoulli(torch::full({3}, 1.0)).sum().item<float>() == 3 &&
         torch::multinomial(torch::ones({4}), 2).numel() == 2);
  EXPECT(torch::hasCUDA() == torch::cuda::is_available() && torch::cuda::device_count() >= 0);
  torch::set_num_threads(2);
  EXPECT(torch::get_num_threads() == 2);
  std::atomic<int64_t> total{0};
  at::parallel_for(0, 1000, 100, [&](int64_t b, int64_t e) {
    for (auto i = b; i < e; ++i) total += i;
  });
  EXPECT(total == 499500);
}

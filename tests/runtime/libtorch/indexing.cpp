#include "expect.h"
using namespace torch::indexing;
int main() {
  auto x = torch::arange(24).view({2, 3, 4}).to(torch::kFloat);
  EXPECT(x.index({Slice(), 0}).sizes() == torch::IntArrayRef({2, 4}));
  EXPECT(x.index({"...", 0}).sizes() == torch::IntArrayRef({2, 3}));
  EXPECT(x.index({Ellipsis, Slice(None, None, 2)}).size(-1) == 2);
  EXPECT(x.index({0, 1, 2}).item<float>() == 6);
  EXPECT(x.index({None, 0}).dim() == 3);
  EXPECT(x.index({Slice(1, None), Slice(None, -1)}).sizes() == torch::IntArrayRef({1, 2, 4}));
  auto idx = torch::tensor({0, 2});
  EXPECT(x.index({Slice(), idx}).size(1) == 2);
  EXPECT(x.index({x > 10}).numel() == 13);
  x.index_put_({Slice(), 0}, 1.0);
  EXPECT(x.index({1, 0, 3}).item<float>() == 1);
  x.index_put_({torch::tensor({1}), Slice(), 0}, torch::zeros({3}));
  EXPECT(x[1][2][0].item<float>() == 0);
  x.index({0, 0}).fill_(7);
  EXPECT(x[0][0].sum().item().toFloat() == 28);
  x[0][1] = torch::ones(4) * 3;
  x[0][2][1] = 5;
  EXPECT(x[0][1].sum().item<double>() == 12 && x[0][2][1].item<int>() == 5);
  auto a = x.accessor<float, 3>();
  float total = 0;
  for (int i = 0; i < a.size(0); i++)
    for (int j = 0; j < a.size(1); j++)
      for (int k = 0; k < a.size(2); k++) total += a[i][j][k];
  EXPECT(std::abs(total - x.sum().item<float>()) < 1e-3);
  auto parts = torch::chunk(x, 2, 2);
  EXPECT(parts.size() == 2 && torch::equal(torch::cat({parts[0], parts[1]}, 2), x));
  EXPECT(torch::stack({x, x}, 0).dim() == 4);
  auto sp = x.split(2, 1);
  EXPECT(sp.size() == 2 && sp[1].size(1) == 1);
  auto sp2 = x.split_with_sizes({1, 2}, 1);
  EXPECT(sp2[1].size(1) == 2);
  EXPECT(x.unbind(0).size() == 2);
  auto [values, indices] = torch::max(x, 1);
  EXPECT(values.sizes() == indices.sizes());
  auto top = x.flatten().topk(3);
  EXPECT(std::get<0>(top).numel() == 3);
  auto nz = torch::nonzero(x > 20);
  EXPECT(nz.size(1) == 3);
  EXPECT(x.narrow(2, 1, 2).size(2) == 2 && x.select(0, 1).dim() == 2 && x.slice(2, 0, 4, 2).size(2) == 2);
  auto g = torch::gather(x[0], 1, torch::tensor({{0}, {1}, {2}}));
  EXPECT(g.size(0) == 3);
  auto m = x.masked_fill(x > 4, -1);
  EXPECT(m.max().item<float>() <= 4);
  auto w = torch::where(x > 4, x, torch::zeros_like(x));
  EXPECT(w.min().item<float>() == 0);
  auto grid = torch::meshgrid({torch::arange(2), torch::arange(3)}, "ij");
  EXPECT(grid[0].sizes() == torch::IntArrayRef({2, 3}));
  EXPECT(x.permute({2, 0, 1}).is_contiguous() == false && x.permute({2, 0, 1}).contiguous().is_contiguous());
  EXPECT(x.transpose(0, 1).size(0) == 3);
}

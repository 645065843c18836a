#include <torch/script.h>
#include "expect.h"
void checked(int64_t n) {
  TORCH_CHECK(n > 0, "expected a positive number, got ", n);
}
template <class F>
bool raises(F f, const char* part) {
  try {
    f();
  } catch (const c10::Error& e) {
    EXPECT(std::string(e.what_without_backtrace()).find(part) != std::string::npos ||
           (std::cerr << e.what() << "\n", false));
    EXPECT(!e.msg().empty());
    return true;
  }
  return false;
}
int main() {
  EXPECT(raises([] { checked(-3); }, "positive number, got -3"));
  EXPECT(raises([] { torch::ones({2, 3}).mm(torch::ones({2, 3})); }, "mm"));
  EXPECT(raises([] { torch::ones({2}).view({3}); }, "view"));
  EXPECT(raises([] { torch::ones({2}).item<float>(); }, "item"));
  EXPECT(raises([] { TORCH_CHECK_EQ(1 + 1, 3); }, ""));
  EXPECT(raises([] { TORCH_INTERNAL_ASSERT(false, "inner"); }, "inner"));
  EXPECT(raises([] { AT_ASSERTM(false, "old"); }, "old"));
  EXPECT(raises([] { AT_ERROR("older ", 3); }, "older 3"));
  EXPECT(raises([] { TORCH_CHECK_INDEX(false, "idx"); }, "idx"));
  EXPECT(raises([] { TORCH_CHECK_VALUE(false, "val"); }, "val"));
  EXPECT(raises([] { TORCH_CHECK_TYPE(false, "typ"); }, "typ"));
  EXPECT(raises([] { TORCH_CHECK_NOT_IMPLEMENTED(false, "nope"); }, "nope"));
  try {
    TORCH_CHECK_INDEX(false, "idx");
  } catch (const c10::IndexError& e) {
    std::cout << e.what();
  }
  try {
    TORCH_CHECK_VALUE(false, "v");
  } catch (const c10::ValueError& e) {
    std::cout << e.what();
  }
  try {
    torch::ones({2})[5];
    EXPECT(false);
  } catch (const c10::IndexError& e) {
    EXPECT(std::string(e.what()).size());
  }
  try {
    torch::zeros({2, 2}).to(torch::kInt).requires_grad_(true);
    EXPECT(false);
  } catch (const std::exception& e) {
    EXPECT(e.what()[0]);
  }
  TORCH_WARN("only a warning ", 1);
  TORCH_WARN_ONCE("once");
  try {
    torch::Tensor t;
    t.size(0);
    EXPECT(false);
  } catch (const c10::Error&) {
  }
  try {
    torch::jit::load("/nonexistent.pt");
    EXPECT(false);
  } catch (const c10::Error&) {
  }
  try {
    torch::ones({2}, torch::kFloat).data_ptr<int>();
    EXPECT(false);
  } catch (const c10::Error&) {
  }
}

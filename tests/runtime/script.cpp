// Archives of TorchScript in a program without Python: each module holds its inputs (`example`) and what it
// must return for them (`expected`).
#include <torch/script.h>

#include <fstream>
#include <iostream>
#include <sstream>
#include <thread>

#define CHECK(condition)                                                          \
  do {                                                                            \
    if (!(condition)) {                                                           \
      std::cerr << path << ": line " << __LINE__ << ": " #condition << std::endl; \
      return 1;                                                                   \
    }                                                                             \
  } while (0)

static bool agrees(const torch::Tensor& result, const torch::Tensor& expected) {
  return result.sizes() == expected.sizes() && torch::allclose(result, expected, 1e-4, 1e-5);
}

static int check(const std::string& path) {
  torch::jit::script::Module module = torch::jit::load(path);
  module.eval();
  CHECK(!module.is_training());
  const std::vector<torch::jit::IValue> inputs = module.attr("example").toTuple()->elements();
  const torch::Tensor expected = module.attr("expected").toTensor();
  CHECK(agrees(module.forward(inputs).toTensor(), expected));
  CHECK(agrees(module.get_method("forward")(inputs).toTensor(), expected));

  // Many threads share a module.
  std::vector<int> right(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < right.size(); ++i)
    threads.emplace_back([&, i] { right[i] = agrees(module.forward(inputs).toTensor(), expected); });
  for (std::thread& thread : threads) thread.join();
  CHECK(right == std::vector<int>(4, 1));

  // Gradients flow to the parameters.
  size_t parameters = 0;
  module.forward(inputs).toTensor().sum().backward();
  for (const auto& parameter : module.named_parameters()) {
    CHECK(!parameter.name.empty() && parameter.value.requires_grad());
    parameters += parameter.value.grad().defined();
  }
  CHECK(parameters > 0);

  // From a stream, and in another dtype.
  std::ifstream file(path, std::ios::binary);
  torch::jit::Module again = torch::jit::load(file);
  again.to(torch::kDouble);
  for (const torch::Tensor& parameter : again.parameters()) CHECK(parameter.dtype() == torch::kDouble);

  // Written again, with a file beside it; a file may replace the one that its tensors are mapped from.
  const std::string saved = path + ".saved";
  torch::jit::ExtraFilesMap files = {{"note", ""}};
  for (int i = 0; i < 2; ++i) {
    (i == 0 ? module : torch::jit::load(saved)).save(saved, {{"note", "text"}});
    const torch::jit::Module same = torch::jit::load(saved, std::nullopt, files);
    CHECK(agrees(same.forward(inputs).toTensor(), expected) && files["note"] == "text");
  }

  CHECK(!module.find_method("absent"));
  for (const char* name : {"absent", "forward"}) {
    bool raised = false;
    try {
      torch::jit::Method(module._ivalue(), name)({});
    } catch (const c10::Error&) {
      raised = true;
    }
    CHECK(raised);
  }
  return 0;
}

static int check_values() {
  const std::string path = "values";
  const torch::IValue tuple = std::make_tuple(1, 2.5, std::string("text"), torch::ones({2}));
  CHECK(tuple.isTuple() && tuple.toTuple()->elements().size() == 4);
  CHECK(tuple.toTuple()->elements()[1].toDouble() == 2.5);
  CHECK(tuple.toTuple()->elements()[2].toStringRef() == "text");
  const torch::IValue list = std::vector<int64_t>{3, 4};
  CHECK(list.isIntList() && list.toIntVector()[1] == 4 && list.toList().size() == 2);
  const torch::IValue dict = std::map<std::string, torch::Tensor>{{"a", torch::zeros({1})}};
  CHECK(dict.isGenericDict() && dict.toGenericDict().at("a").toTensor().item<float>() == 0);
  CHECK(torch::IValue().isNone() && torch::IValue(true).toBool());
  bool raised = false;
  try {
    list.toTensor();
  } catch (const c10::Error&) {
    raised = true;
  }
  CHECK(raised);
  return 0;
}

int main(int argc, char** argv) {
  int failures = check_values();
  for (int i = 1; i < argc; ++i) {
    try {
      failures += check(argv[i]);
    } catch (const std::exception& error) {
      std::cerr << argv[i] << ": " << error.what() << std::endl;
      ++failures;
    }
  }
  return failures;
}

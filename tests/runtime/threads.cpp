// Many threads run one model, while another replaces its constants: threads PACKAGE RUNS. Under
// ThreadSanitizer this shows that runs share nothing that they write. Each result must be that of the
// constants before or after the replacement, never of a mixture.
#include <flambeau/flambeau.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int kThreads = 6, kFeatures = 6, kMostRows = 20;

std::vector<float> run(const fl_model* model, int64_t rows) {
  std::vector<float> data(static_cast<size_t>(rows * kFeatures));
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i % 11) / 11 - 0.5f;
  int64_t shape[] = {rows, kFeatures};
  DLManagedTensor input{};
  input.dl_tensor = {data.data(), {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, nullptr, 0};
  DLManagedTensor *inputs[] = {&input}, *output = nullptr;
  if (fl_run(model, inputs, 1, &output, 1) != FL_OK) {
    std::fprintf(stderr, "%s\n", fl_error());
    std::exit(1);
  }
  const auto* values = static_cast<const float*>(output->dl_tensor.data);
  std::vector<float> result(values, values + output->dl_tensor.shape[0] * output->dl_tensor.shape[1]);
  output->deleter(output);
  return result;
}

bool close(const std::vector<float>& a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (std::fabs(a[i] - b[i]) > 1e-4f) return false;
  return a.size() == b.size();
}

// Replaces the first constant by one that holds this value everywhere.
void replace(fl_model* model, float value) {
  static const int64_t sizes[] = {16, kFeatures};
  std::vector<float> data(16 * kFeatures, value);
  fl_tensor* tensor = nullptr;
  const char* name = fl_model_constant_name(model, 0);
  if (fl_tensor_from_blob(data.data(), FL_FLOAT32, sizes, nullptr, 2, nullptr, nullptr, &tensor) != FL_OK ||
      fl_model_update(model, &name, &tensor, 1, 0) != FL_OK) {
    std::fprintf(stderr, "%s\n", fl_error());
    std::exit(1);
  }
  fl_tensor_release(tensor);
}

}  // namespace

int main(int argc, char** argv) {
  fl_model* model = nullptr;
  if (argc != 3 || fl_load(argv[1], &model) != FL_OK) {
    std::fprintf(stderr, "%s\n", fl_error());
    return 2;
  }
  const int runs = std::atoi(argv[2]);
  std::vector<std::vector<float>> expected[2];
  for (int state = 0; state < 2; ++state) {
    replace(model, state == 0 ? 0.25f : -0.5f);
    for (int64_t rows = 0; rows <= kMostRows; ++rows)
      expected[state].push_back(rows == 0 ? std::vector<float>() : run(model, rows));
  }
  // Threads meet sizes first in a model of their own loading: what runs remember is made by several at once.
  fl_model* fresh = nullptr;
  if (fl_load(argv[1], &fresh) != FL_OK) return 2;
  replace(fresh, -0.5f);
  std::atomic<int> wrong{0};
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < runs; ++i) {
        const int64_t rows = 1 + (i * 7 + t * 3) % kMostRows;
        const std::vector<float> result = run(fresh, rows);
        if (!close(result, expected[0][static_cast<size_t>(rows)]) &&
            !close(result, expected[1][static_cast<size_t>(rows)]))
          ++wrong;
      }
    });
  std::thread writer([&] {
    for (int i = 0; !done; ++i) {
      replace(fresh, i % 2 == 0 ? 0.25f : -0.5f);
      std::this_thread::yield();
    }
  });
  for (std::thread& thread : threads) thread.join();
  done = true;
  writer.join();
  fl_model_free(fresh);
  fl_model_free(model);
  std::printf("%d runs, %d wrong\n", kThreads * runs, wrong.load());
  return wrong == 0 ? 0 : 1;
}

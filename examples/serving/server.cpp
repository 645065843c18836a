// Serves a package over HTTP, with dynamic batching: requests that wait at the same time are run as one
// batch.
//
//   server model.pt2 [--row 64] [--port 8000] [--batch 32] [--delay 2000] [--connections 64] [--threads 1]
//
// POST /predict takes rows of the model's one input as raw float32 and returns those of its one output. A
// request waits until `batch` rows are there, or `delay` microseconds have passed since it came. GET /health
// is for probes, GET /metrics counts requests and batches.
//
// Built with cpp-httplib (one header; Debian's libcpp-httplib-dev has it as a library):
//   g++ -std=c++17 -O2 server.cpp -o server $(pkg-config --cflags --libs flambeau cpp-httplib) -pthread
#include <flambeau/flambeau.h>
#include <httplib.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <future>
#include <iterator>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using Clock = std::chrono::steady_clock;

// Floats of one or several rows; the shape of a row is the model's.
struct Request {
  std::vector<float> rows;
  int64_t count;
  Clock::time_point arrived;
  std::promise<std::vector<float>> answer;
};

void check(fl_status status) {
  if (status != FL_OK) throw std::runtime_error(fl_error());
}

// A model whose input and output are float32 and have the batch first.
class Model {
 public:
  Model(const char* path, std::vector<int64_t> row) : row_(std::move(row)) {
    check(fl_load(path, &model_));
    for (int64_t size : row_) width_ *= static_cast<size_t>(size);
  }
  ~Model() { fl_model_free(model_); }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  size_t width() const { return width_; }

  std::vector<float> run(std::vector<float>& rows, int64_t count) const {
    std::vector<int64_t> shape{count};
    shape.insert(shape.end(), row_.begin(), row_.end());
    DLManagedTensor input{};
    input.dl_tensor.data = rows.data();
    input.dl_tensor.device = {kDLCPU, 0};
    input.dl_tensor.ndim = static_cast<int32_t>(shape.size());
    input.dl_tensor.dtype = {kDLFloat, 32, 1};
    input.dl_tensor.shape = shape.data();
    DLManagedTensor *inputs[] = {&input}, *output = nullptr;
    check(fl_run(model_, inputs, 1, &output, 1));
    size_t size = 1;
    for (int d = 0; d < output->dl_tensor.ndim; ++d) size *= static_cast<size_t>(output->dl_tensor.shape[d]);
    const auto* data = static_cast<const float*>(output->dl_tensor.data) + output->dl_tensor.byte_offset / 4;
    std::vector<float> result(data, data + size);
    output->deleter(output);
    return result;
  }

 private:
  fl_model* model_ = nullptr;
  std::vector<int64_t> row_;
  size_t width_ = 1;
};

class Batcher {
 public:
  Batcher(const Model& model, int64_t most_rows, std::chrono::microseconds delay)
      : model_(model), most_rows_(most_rows), delay_(delay), worker_([this] { work(); }) {}
  ~Batcher() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
    worker_.join();
  }

  std::future<std::vector<float>> add(std::vector<float> rows) {
    Request request{std::move(rows), 0, Clock::now(), {}};
    request.count = static_cast<int64_t>(request.rows.size() / model_.width());
    std::future<std::vector<float>> answer = request.answer.get_future();
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      waiting_rows_ += request.count;
      waiting_.push_back(std::move(request));
    }
    changed_.notify_one();
    return answer;
  }

  std::atomic<int64_t> requests{0}, batches{0};

 private:
  // The requests of the next batch; none when the server stops.
  std::vector<Request> next() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return stopped_ || !waiting_.empty(); });
    if (!waiting_.empty())
      changed_.wait_until(lock, waiting_.front().arrived + delay_,
                          [&] { return stopped_ || waiting_rows_ >= most_rows_; });
    std::vector<Request> batch;
    for (int64_t rows = 0;
         !waiting_.empty() && (batch.empty() || rows + waiting_.front().count <= most_rows_);) {
      rows += waiting_.front().count;
      waiting_rows_ -= waiting_.front().count;
      batch.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
    }
    return batch;
  }

  void work() {
    for (std::vector<Request> batch; !(batch = next()).empty();) {
      ++batches;
      requests += static_cast<int64_t>(batch.size());
      std::vector<float> rows;
      int64_t count = 0;
      for (const Request& request : batch) {
        rows.insert(rows.end(), request.rows.begin(), request.rows.end());
        count += request.count;
      }
      try {
        const std::vector<float> results = model_.run(rows, count);
        const size_t width = results.size() / static_cast<size_t>(count);
        auto from = results.begin();
        for (Request& request : batch) {
          const auto to = from + static_cast<std::ptrdiff_t>(width * static_cast<size_t>(request.count));
          request.answer.set_value({from, to});
          from = to;
        }
      } catch (...) {
        for (Request& request : batch) request.answer.set_exception(std::current_exception());
      }
    }
  }

  const Model& model_;
  const int64_t most_rows_;
  const std::chrono::microseconds delay_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Request> waiting_;
  int64_t waiting_rows_ = 0;
  bool stopped_ = false;
  std::thread worker_;  // last: it uses the others
};

std::vector<int64_t> sizes(const char* text) {
  std::vector<int64_t> result;
  for (char* end; *text; text = *end ? end + 1 : end) result.push_back(std::strtoll(text, &end, 10));
  return result;
}

struct Options {
  const char *path = nullptr, *row = "64";
  int port = 8000, connections = 64, batch = 32, delay = 2000, threads = 1;

  Options(int argc, char** argv) {
    const std::pair<const char*, int*> numbers[] = {{"--port", &port},
                                                    {"--connections", &connections},
                                                    {"--batch", &batch},
                                                    {"--delay", &delay},
                                                    {"--threads", &threads}};
    for (int i = 1; i < argc; ++i) {
      const bool has_value = argv[i][0] == '-' && i + 1 < argc;
      if (!has_value) {
        path = argv[i];
      } else if (std::strcmp(argv[i], "--row") == 0) {
        row = argv[++i];
      } else {
        const auto named = [&](const auto& option) { return std::strcmp(argv[i], option.first) == 0; };
        const auto number = std::find_if(std::begin(numbers), std::end(numbers), named);
        if (number == std::end(numbers)) throw std::runtime_error(std::string("unknown option ") + argv[i]);
        *number->second = std::atoi(argv[++i]);
      }
    }
    if (path == nullptr)
      throw std::runtime_error(
          "usage: server model.pt2 [--row 3,224,224] [--port P] [--batch N] [--delay US] [--threads N]");
  }
};

// Rows of a request's body; nothing where it is no whole number of them, or more than a batch.
std::vector<float> rows_in(const std::string& body, const Model& model, int most_rows) {
  const size_t row_bytes = model.width() * sizeof(float);
  if (body.size() % row_bytes != 0 || body.size() / row_bytes > static_cast<size_t>(most_rows)) return {};
  std::vector<float> rows(body.size() / sizeof(float));
  std::memcpy(rows.data(), body.data(), body.size());
  return rows;
}

void predict(const httplib::Request& in, httplib::Response& out, const Model& model, Batcher& batcher,
             int most_rows) {
  std::vector<float> rows = rows_in(in.body, model, most_rows);
  if (rows.empty()) {
    out.status = 400;
    out.set_content("expected 1 to " + std::to_string(most_rows) + " rows of " +
                        std::to_string(model.width() * sizeof(float)) + " bytes, got " +
                        std::to_string(in.body.size()) + " bytes\n",
                    "text/plain");
    return;
  }
  try {
    const std::vector<float> result = batcher.add(std::move(rows)).get();
    out.set_content(reinterpret_cast<const char*>(result.data()), result.size() * sizeof(float),
                    "application/octet-stream");
  } catch (const std::exception& error) {
    out.status = 500;
    out.set_content(std::string(error.what()) + "\n", "text/plain");
  }
}

int serve(const Options& options) {
  fl_set_num_threads(options.threads);
  const Model model(options.path, sizes(options.row));
  Batcher batcher(model, options.batch, std::chrono::microseconds(options.delay));
  httplib::Server server;
  server.new_task_queue = [&] { return new httplib::ThreadPool(static_cast<size_t>(options.connections)); };
  server.set_keep_alive_max_count(1u << 30);
  server.set_tcp_nodelay(true);
  server.Get("/health",
             [](const httplib::Request&, httplib::Response& out) { out.set_content("ok\n", "text/plain"); });
  server.Get("/metrics", [&](const httplib::Request&, httplib::Response& out) {
    out.set_content("requests " + std::to_string(batcher.requests) + "\nbatches " +
                        std::to_string(batcher.batches) + "\n",
                    "text/plain");
  });
  server.Post("/predict", [&](const httplib::Request& in, httplib::Response& out) {
    predict(in, out, model, batcher, options.batch);
  });
  std::fprintf(stderr, "serving %s on port %d\n", options.path, options.port);
  if (!server.listen("127.0.0.1", options.port)) {
    std::fprintf(stderr, "expected a free port, got %d\n", options.port);
    return 1;
  }
  return 0;
}

int main(int argc, char** argv) {
  try {
    return serve(Options(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}

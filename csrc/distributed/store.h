// Stores of keys and values at which processes meet.
//
// One table of commands serves every kind of store. A store differs only in where the table lies: in this
// process (HashStore), behind a socket (TcpStore) or in a file that logs the commands (FileStore). A command
// on a key that is not there yet is "not ready" and is tried again when the table changes.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"

namespace fl::dist {

using Milliseconds = std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// The errors of PyTorch's hierarchy; the binding gives each its Python class.
enum class Failure : uint8_t { Backend, Store, Network, Timeout, QueueEmpty };

class DistributedError final : public Error {
 public:
  DistributedError(Failure failure, const std::string& text)
      : Error(ErrorKind::Runtime, text), failure(failure) {}
  Failure failure;
};

template <class... A>
[[noreturn]] void fail_as(Failure failure, const A&... parts) {
  throw DistributedError(failure, message(parts...));
}

enum class Command : uint8_t {
  Set,         // key, value, key, value …
  Get,         // keys; ready when all are there
  Wait,        // the same without values
  Check,       // keys; "1" when all are there
  Add,         // key, decimal amount
  CompareSet,  // key, expected, desired
  Append,      // key, value
  Delete,      // key
  Count,
  Keys,
  Push,    // key, value
  Pop,     // key; ready when the queue has an entry
  Length,  // key
  Cancel,  // of a pending request, between client and server only
};

struct Request {
  Command command = Command::Get;
  std::vector<std::string> fields;
};
using Values = std::vector<std::string>;

// Whether a command can change the table.
bool changes(Command command);

class Table {
 public:
  // Empty when the request has to wait for a key.
  std::optional<Values> apply(const Request& request);

 private:
  bool holds(const Values& keys) const;
  std::optional<Values> get(const Values& keys) const;
  std::string add(const std::string& key, const std::string& amount);
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired);
  Values keys() const;
  std::optional<Values> pop(const std::string& key);

  std::map<std::string, std::string> entries_;
  std::map<std::string, std::deque<std::string>> queues_;
};

class Store {
 public:
  virtual ~Store() = default;
  // Answers a request, waiting for missing keys; raises Failure::Store when the time is up.
  virtual Values call(const Request& request, Milliseconds timeout) = 0;
};

class HashStore final : public Store {
 public:
  Values call(const Request& request, Milliseconds timeout) override;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Table table_;
};

// The file logs the commands that changed the table; a process reads what others appended before it acts.
class FileStore final : public Store {
 public:
  explicit FileStore(std::string path);
  ~FileStore() override;
  Values call(const Request& request, Milliseconds timeout) override;

 private:
  void replay();
  std::optional<Values> attempt(const Request& request);

  std::string path_;
  int descriptor_ = -1;
  int64_t position_ = 0;
  std::mutex mutex_;
  Table table_;
};

class TcpServer;

class TcpStore final : public Store {
 public:
  // With `serve` this process also holds the table; port 0 lets the system choose. `listening` is a socket
  // that listens already, or -1. With `share` a server of this process at the same port is used again.
  TcpStore(const std::string& host, uint16_t port, bool serve, bool share, int listening,
           Milliseconds timeout);
  ~TcpStore() override;
  Values call(const Request& request, Milliseconds timeout) override;
  uint16_t port() const { return port_; }

 private:
  void connect(const std::string& host, Milliseconds timeout);
  void write_all(const std::string& bytes);
  bool read_exactly(char* to, size_t bytes, Clock::time_point until);

  std::shared_ptr<TcpServer> server_;
  uint16_t port_ = 0;
  int socket_ = -1;
  uint64_t next_id_ = 1;
  std::mutex mutex_;
};

// Requests and replies as bytes, for sockets and files.
std::string encode(uint64_t id, uint8_t kind, const std::vector<std::string>& fields);
struct Frame {
  uint64_t id = 0;
  uint8_t kind = 0;
  std::vector<std::string> fields;
};
// The first complete frame at `begin`, with its length; empty when bytes are missing.
std::optional<std::pair<Frame, size_t>> decode(const char* begin, size_t available);

[[noreturn]] void fail_waiting(const Request& request, Milliseconds timeout);

}  // namespace fl::dist

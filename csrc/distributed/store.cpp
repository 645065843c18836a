#include "distributed/store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

namespace fl::dist {

bool changes(Command command) {
  switch (command) {
    case Command::Set:
    case Command::Add:
    case Command::CompareSet:
    case Command::Append:
    case Command::Delete:
    case Command::Push:
    case Command::Pop:
      return true;
    default:
      return false;
  }
}

bool Table::holds(const Values& keys) const {
  return std::all_of(keys.begin(), keys.end(), [&](const std::string& key) {
    // A queue with entries counts as a key, so that a reader can wait for it.
    const auto queue = queues_.find(key);
    return entries_.count(key) || (queue != queues_.end() && !queue->second.empty());
  });
}

std::optional<Values> Table::get(const Values& keys) const {
  Values values;
  for (const auto& key : keys) {
    const auto entry = entries_.find(key);
    if (entry == entries_.end()) return std::nullopt;
    values.push_back(entry->second);
  }
  return values;
}

std::string Table::add(const std::string& key, const std::string& amount) {
  std::string& entry = entries_[key];
  const int64_t before = entry.empty() ? 0 : std::strtoll(entry.c_str(), nullptr, 10);
  return entry = std::to_string(before + std::strtoll(amount.c_str(), nullptr, 10));
}

std::string Table::compare_set(const std::string& key, const std::string& expected,
                               const std::string& desired) {
  const auto entry = entries_.find(key);
  if (entry == entries_.end()) return expected.empty() ? entries_[key] = desired : expected;
  if (entry->second == expected) entry->second = desired;
  return entry->second;
}

Values Table::keys() const {
  Values keys;
  for (const auto& entry : entries_) keys.push_back(entry.first);
  for (const auto& queue : queues_) keys.push_back(queue.first);
  return keys;
}

std::optional<Values> Table::pop(const std::string& key) {
  const auto queue = queues_.find(key);
  if (queue == queues_.end() || queue->second.empty()) return std::nullopt;
  Values values{std::move(queue->second.front())};
  queue->second.pop_front();
  if (queue->second.empty()) queues_.erase(queue);
  return values;
}

std::optional<Values> Table::apply(const Request& request) {
  const auto& fields = request.fields;
  const auto need = [&](size_t count) {
    FL_CHECK(fields.size() >= count, "[Store] expected ", count, " fields in a request, got ", fields.size());
  };
  switch (request.command) {
    case Command::Set:
      for (size_t i = 0; i + 1 < fields.size(); i += 2) entries_[fields[i]] = fields[i + 1];
      return Values{};
    case Command::Get:
      return get(fields);
    case Command::Wait:
      return holds(fields) ? std::optional(Values{}) : std::nullopt;
    case Command::Check:
      return Values{holds(fields) ? "1" : "0"};
    case Command::Add:
      need(2);
      return Values{add(fields[0], fields[1])};
    case Command::CompareSet:
      need(3);
      return Values{compare_set(fields[0], fields[1], fields[2])};
    case Command::Append:
      need(2);
      entries_[fields[0]] += fields[1];
      return Values{};
    case Command::Delete:
      need(1);
      return Values{entries_.erase(fields[0]) > 0 || queues_.erase(fields[0]) > 0 ? "1" : "0"};
    case Command::Count:
      return Values{std::to_string(entries_.size() + queues_.size())};
    case Command::Keys:
      return keys();
    case Command::Push:
      need(2);
      queues_[fields[0]].push_back(fields[1]);
      return Values{};
    case Command::Pop:
      need(1);
      return pop(fields[0]);
    case Command::Length: {
      need(1);
      const auto queue = queues_.find(fields[0]);
      return Values{std::to_string(queue == queues_.end() ? 0 : queue->second.size())};
    }
    case Command::Cancel:
      break;
  }
  fail("[Store] expected a known command, got ", static_cast<int>(request.command));
}

void fail_waiting(const Request& request, Milliseconds timeout) {
  if (request.command == Command::Pop)
    fail_as(Failure::QueueEmpty, "[Store.queue_pop] expected an entry in queue '", request.fields[0],
            "' within ", timeout.count(), "ms, got none: queue is empty");
  std::string keys;
  for (const auto& key : request.fields) keys += (keys.empty() ? "" : ", ") + key;
  fail_as(Failure::Store, "[Store] wait timeout after ", timeout.count(), "ms, keys: /", keys);
}

std::string encode(uint64_t id, uint8_t kind, const std::vector<std::string>& fields) {
  uint32_t size = 8 + 1 + 4;
  for (const auto& field : fields) size += 4 + static_cast<uint32_t>(field.size());
  std::string bytes;
  bytes.reserve(size + 4);
  const auto put = [&](const auto& value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  put(size);
  put(id);
  put(kind);
  put(static_cast<uint32_t>(fields.size()));
  for (const auto& field : fields) {
    put(static_cast<uint32_t>(field.size()));
    bytes += field;
  }
  return bytes;
}

std::optional<std::pair<Frame, size_t>> decode(const char* begin, size_t available) {
  uint32_t size;
  if (available < 4) return std::nullopt;
  std::memcpy(&size, begin, 4);
  if (available < size_t{4} + size) return std::nullopt;
  const char* at = begin + 4;
  const char* end = at + size;
  const auto take = [&](void* to, size_t bytes) {
    FL_CHECK(static_cast<size_t>(end - at) >= bytes,
             "[Store] expected a complete message, got a truncated one");
    std::memcpy(to, at, bytes);
    at += bytes;
  };
  Frame frame;
  uint32_t count;
  take(&frame.id, 8);
  take(&frame.kind, 1);
  take(&count, 4);
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t length;
    take(&length, 4);
    FL_CHECK(static_cast<size_t>(end - at) >= length,
             "[Store] expected a complete message, got a truncated one");
    frame.fields.emplace_back(at, length);
    at += length;
  }
  return std::make_pair(std::move(frame), size_t{4} + size);
}

Values HashStore::call(const Request& request, Milliseconds timeout) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto until = Clock::now() + timeout;
  for (;;) {
    if (auto values = table_.apply(request)) {
      if (changes(request.command)) changed_.notify_all();
      return *values;
    }
    if (Clock::now() >= until) fail_waiting(request, timeout);
    changed_.wait_until(lock, until);
  }
}

FileStore::FileStore(std::string path) : path_(std::move(path)) {
  descriptor_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor_ < 0)
    fail_as(Failure::Store, "[FileStore] expected a file that can be written, got ", path_, ": ",
            strerror(errno));
}

FileStore::~FileStore() {
  close(descriptor_);
}

void FileStore::replay() {
  struct stat status;
  fstat(descriptor_, &status);
  if (status.st_size <= position_) return;
  std::string bytes(static_cast<size_t>(status.st_size - position_), '\0');
  const ssize_t got = pread(descriptor_, bytes.data(), bytes.size(), position_);
  size_t used = 0;
  while (got > 0) {
    auto frame = decode(bytes.data() + used, static_cast<size_t>(got) - used);
    if (!frame) break;
    table_.apply({static_cast<Command>(frame->first.kind), std::move(frame->first.fields)});
    used += frame->second;
  }
  position_ += static_cast<int64_t>(used);
}

std::optional<Values> FileStore::attempt(const Request& request) {
  if (flock(descriptor_, LOCK_EX) != 0) fail_as(Failure::Store, "[FileStore] cannot lock ", path_);
  struct Unlock {
    int descriptor;
    ~Unlock() { flock(descriptor, LOCK_UN); }
  } unlock{descriptor_};
  replay();
  auto values = table_.apply(request);
  if (values && changes(request.command)) {
    const std::string bytes = encode(0, static_cast<uint8_t>(request.command), request.fields);
    if (pwrite(descriptor_, bytes.data(), bytes.size(), position_) != static_cast<ssize_t>(bytes.size()))
      fail_as(Failure::Store, "[FileStore] cannot write ", path_, ": ", strerror(errno));
    position_ += static_cast<int64_t>(bytes.size());
  }
  return values;
}

Values FileStore::call(const Request& request, Milliseconds timeout) {
  const auto until = Clock::now() + timeout;
  for (auto pause = Milliseconds(1);; pause = std::min(pause * 2, Milliseconds(20))) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (auto values = attempt(request)) return *values;
    }
    if (Clock::now() >= until) fail_waiting(request, timeout);
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace fl::dist

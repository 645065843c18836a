// A zip archive, read where it lies: mapped from a file, or copied from memory. Members that are compressed
// (the code in archives of PyTorch) are decompressed when the directory is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace fl::runtime {

// Bytes that live as long as somebody holds them.
class Bytes {
 public:
  // Maps a file, privately: pages that nobody writes are shared by all processes that map it.
  static std::shared_ptr<const Bytes> map(const std::string& path);
  // A copy that begins at a multiple of 64.
  static std::shared_ptr<const Bytes> copy(const void* data, size_t size);

  // Bytes that are there for good.
  static std::shared_ptr<const Bytes> lent(const void* data, size_t size);

  ~Bytes();
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;

  char* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  enum class Owner { Mapping, Heap, Nobody };
  Bytes(char* data, size_t size, Owner owner) : data_(data), size_(size), owner_(owner) {}

  char* data_;
  size_t size_;
  Owner owner_;
};

class Archive {
 public:
  // Reads the directory; raises where it is damaged.
  explicit Archive(std::shared_ptr<const Bytes> bytes);

  struct Member {
    char* data;
    size_t size;
    uint32_t crc;
  };

  // The member whose path ends in this, below the folder that archives have in common; null if there is none.
  const Member* find(std::string_view path) const;
  // Like find, but raises where the member is absent or its checksum does not hold.
  const Member& checked(std::string_view path) const;
  const std::shared_ptr<const Bytes>& bytes() const { return bytes_; }
  // By the path without its first folder.
  const std::map<std::string, Member, std::less<>>& members() const { return members_; }

 private:
  void read_directory(uint64_t offset, uint64_t size, uint64_t count);

  std::shared_ptr<const Bytes> bytes_;
  std::deque<std::string> inflated_;
  std::map<std::string, Member, std::less<>> members_;
};

}  // namespace fl::runtime

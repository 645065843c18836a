#include "runtime/archive.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "core/crc32.h"
#include "core/error.h"
#include "core/inflate.h"

namespace fl::runtime {
namespace {

constexpr size_t kAlignment = 64;
constexpr uint32_t kEndSignature = 0x06054b50, kEnd64Signature = 0x06064b50, kLocator64Signature = 0x07064b50,
                   kEntrySignature = 0x02014b50, kLocalSignature = 0x04034b50;
constexpr size_t kEndSize = 22, kEnd64Size = 56, kLocator64Size = 20, kEntrySize = 46, kLocalSize = 30;
constexpr uint16_t kStored = 0, kDeflated = 8;
constexpr uint32_t kIn64 = 0xffffffffu;  // the value is in the extra field

// Reads little-endian integers inside of some bytes.
class Fields {
 public:
  explicit Fields(const Bytes& bytes) : bytes_(bytes) {}

  template <class T>
  T at(uint64_t offset) const {
    require(offset, sizeof(T));
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof(T));
    return value;
  }
  void require(uint64_t offset, uint64_t size) const {
    FL_CHECK(offset <= bytes_.size() && size <= bytes_.size() - offset,
             "[package] expected a whole archive, got one that ends early");
  }

 private:
  const Bytes& bytes_;
};

struct Entry {
  uint64_t size, stored, offset;
};

// Sizes and offsets that do not fit into 32 bits are in an extra field.
Entry read_large(const Fields& fields, uint64_t extra, uint64_t length, uint32_t stored, uint32_t plain,
                 uint32_t offset) {
  Entry entry{plain, stored, offset};
  const uint64_t end = extra + length;
  while (extra + 4 <= end) {
    const auto kind = fields.at<uint16_t>(extra), bytes = fields.at<uint16_t>(extra + 2);
    uint64_t next = extra + 4;
    if (kind == 1) {
      if (plain == kIn64) entry.size = fields.at<uint64_t>(next), next += 8;
      if (stored == kIn64) entry.stored = fields.at<uint64_t>(next), next += 8;
      if (offset == kIn64) entry.offset = fields.at<uint64_t>(next);
    }
    extra += 4 + bytes;
  }
  return entry;
}

}  // namespace

std::shared_ptr<const Bytes> Bytes::map(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  FL_CHECK(file >= 0, "[package] expected a file that can be read, got ", path, ": ", std::strerror(errno));
  struct stat state{};
  const bool regular = fstat(file, &state) == 0 && S_ISREG(state.st_mode) && state.st_size > 0;
  void* data = regular ? mmap(nullptr, static_cast<size_t>(state.st_size), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE, file, 0)
                       : MAP_FAILED;
  close(file);
  FL_CHECK(data != MAP_FAILED, "[package] expected a file that can be mapped, got ", path);
  return std::shared_ptr<const Bytes>(
      new Bytes(static_cast<char*>(data), static_cast<size_t>(state.st_size), Owner::Mapping));
}

std::shared_ptr<const Bytes> Bytes::copy(const void* data, size_t size) {
  FL_CHECK(data != nullptr && size > 0, "[package] expected the bytes of an archive, got none");
  auto* own =
      static_cast<char*>(std::aligned_alloc(kAlignment, (size + kAlignment - 1) / kAlignment * kAlignment));
  FL_CHECK_KIND(own != nullptr, OutOfMemory, "[package] expected memory for ", size, " bytes, got none");
  std::memcpy(own, data, size);
  return std::shared_ptr<const Bytes>(new Bytes(own, size, Owner::Heap));
}

std::shared_ptr<const Bytes> Bytes::lent(const void* data, size_t size) {
  FL_CHECK(data != nullptr && size > 0 && reinterpret_cast<uintptr_t>(data) % kAlignment == 0,
           "[package] expected the bytes of an archive at a multiple of ", kAlignment, ", got others");
  return std::shared_ptr<const Bytes>(
      new Bytes(const_cast<char*>(static_cast<const char*>(data)), size, Owner::Nobody));
}

Bytes::~Bytes() {
  if (owner_ == Owner::Mapping)
    munmap(data_, size_);
  else if (owner_ == Owner::Heap)
    std::free(data_);
}

Archive::Archive(std::shared_ptr<const Bytes> bytes) : bytes_(std::move(bytes)) {
  const Fields fields(*bytes_);
  const uint64_t size = bytes_->size();
  FL_CHECK(size >= kEndSize, "[package] expected a zip archive, got ", size, " bytes");
  const uint64_t lowest = size > kEndSize + 0xffff ? size - kEndSize - 0xffff : 0;
  for (uint64_t end = size - kEndSize + 1; end-- > lowest;) {
    if (fields.at<uint32_t>(end) != kEndSignature) continue;
    uint64_t count = fields.at<uint16_t>(end + 10), directory = fields.at<uint32_t>(end + 16),
             directory_size = fields.at<uint32_t>(end + 12);
    if (end >= kLocator64Size && fields.at<uint32_t>(end - kLocator64Size) == kLocator64Signature) {
      const auto large = fields.at<uint64_t>(end - kLocator64Size + 8);
      fields.require(large, kEnd64Size);
      if (fields.at<uint32_t>(large) == kEnd64Signature) {
        count = fields.at<uint64_t>(large + 32);
        directory_size = fields.at<uint64_t>(large + 40);
        directory = fields.at<uint64_t>(large + 48);
      }
    }
    read_directory(directory, directory_size, count);
    return;
  }
  fail("[package] expected a zip archive, got bytes without a directory");
}

void Archive::read_directory(uint64_t offset, uint64_t size, uint64_t count) {
  const Fields fields(*bytes_);
  fields.require(offset, size);
  FL_CHECK(count <= size / kEntrySize, "[package] expected a directory with room for ", count,
           " entries, got one of ", size, " bytes");
  uint64_t at = offset;
  for (uint64_t i = 0; i < count; ++i) {
    FL_CHECK(fields.at<uint32_t>(at) == kEntrySignature,
             "[package] expected an entry of the directory, got other bytes");
    const auto method = fields.at<uint16_t>(at + 10);
    const auto name_length = fields.at<uint16_t>(at + 28), extra_length = fields.at<uint16_t>(at + 30),
               comment_length = fields.at<uint16_t>(at + 32);
    fields.require(at + kEntrySize, uint64_t(name_length) + extra_length + comment_length);
    std::string name(bytes_->data() + at + kEntrySize, name_length);
    const Entry entry =
        read_large(fields, at + kEntrySize + name_length, extra_length, fields.at<uint32_t>(at + 20),
                   fields.at<uint32_t>(at + 24), fields.at<uint32_t>(at + 42));
    FL_CHECK(method == kStored || method == kDeflated,
             "[package] expected a member that is stored or deflated, got ", name, " with method ", method);
    fields.require(entry.offset, kLocalSize);
    FL_CHECK(fields.at<uint32_t>(entry.offset) == kLocalSignature, "[package] expected the header of ", name,
             ", got other bytes");
    const uint64_t data = entry.offset + kLocalSize + fields.at<uint16_t>(entry.offset + 26) +
                          fields.at<uint16_t>(entry.offset + 28);
    fields.require(data, entry.stored);
    Member member{bytes_->data() + data, static_cast<size_t>(entry.size), fields.at<uint32_t>(at + 16)};
    if (method == kDeflated) {
      inflated_.push_back(inflate(member.data, static_cast<size_t>(entry.stored), member.size));
      member.data = inflated_.back().data();
    } else {
      FL_CHECK(entry.stored == entry.size, "[package] expected ", entry.size, " bytes of ", name, ", got ",
               entry.stored);
    }
    const size_t folder = name.find('/');
    if (folder != std::string::npos) name.erase(0, folder + 1);
    members_[name] = member;
    at += kEntrySize + name_length + extra_length + comment_length;
  }
}

const Archive::Member* Archive::find(std::string_view path) const {
  const auto member = members_.find(path);
  return member == members_.end() ? nullptr : &member->second;
}

const Archive::Member& Archive::checked(std::string_view path) const {
  const Member* member = find(path);
  FL_CHECK(member != nullptr, "[package] expected a member ", path, " in the archive, got none");
  FL_CHECK(crc32(0, member->data, member->size) == member->crc, "[package] expected the checksum of ", path,
           " to hold, got other bytes");
  return *member;
}

}  // namespace fl::runtime

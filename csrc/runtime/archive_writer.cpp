#include "runtime/archive_writer.h"

#include <algorithm>

#include "core/crc32.h"

namespace fl::runtime {
namespace {

constexpr uint64_t kAlignment = 64, kLocalSize = 30;
constexpr uint32_t kIn64 = 0xffffffffu;  // the value is in a field of 64 bits
constexpr uint16_t kUtf8 = 0x800, kPadding = 0x4246;

// Little-endian integers, one behind the other.
template <class... T>
void append(std::string& bytes, T... values) {
  (bytes.append(reinterpret_cast<const char*>(&values), sizeof values), ...);
}

uint32_t shortened(uint64_t value) {
  return static_cast<uint32_t>(std::min<uint64_t>(value, kIn64));
}

// Version, flags, method, time and date, checksum, both sizes and the length of the name: what the header of
// a member has in common with its entry in the directory.
void append_description(std::string& bytes, bool large, uint32_t crc, uint64_t size,
                        const std::string& path) {
  append(bytes, uint16_t(large ? 45 : 20), kUtf8, uint16_t(0), uint32_t(0), crc, shortened(size),
         shortened(size), static_cast<uint16_t>(path.size()));
}

}  // namespace

void ArchiveWriter::write(std::string_view bytes) {
  offset_ += bytes.size();
  if (!bytes.empty()) sink_(bytes.data(), bytes.size());
}

void ArchiveWriter::add(const std::string& name, const void* data, size_t size) {
  const std::string path = "archive/" + name;
  const uint32_t crc = crc32(0, data, size);
  const bool large = size >= kIn64, far = offset_ >= kIn64;
  std::string header, extra;
  if (large) append(extra, uint16_t(1), uint16_t(16), uint64_t(size), uint64_t(size));
  const uint64_t end = offset_ + kLocalSize + path.size() + extra.size() + 4;
  const uint64_t padding = (kAlignment - end % kAlignment) % kAlignment;
  append(extra, kPadding, static_cast<uint16_t>(padding));
  extra.append(padding, 'Z');
  append(header, uint32_t(0x04034b50));
  append_description(header, large, crc, size, path);
  append(header, static_cast<uint16_t>(extra.size()));

  std::string wide;
  if (large || far) {
    append(wide, uint16_t(1), static_cast<uint16_t>((large ? 16 : 0) + (far ? 8 : 0)));
    if (large) append(wide, uint64_t(size), uint64_t(size));
    if (far) append(wide, offset_);
  }
  append(directory_, uint32_t(0x02014b50), uint16_t(45));
  append_description(directory_, large || far, crc, size, path);
  append(directory_, static_cast<uint16_t>(wide.size()), uint16_t(0), uint32_t(0), uint32_t(0),
         shortened(offset_));
  directory_ += path + wide;
  ++count_;
  write(header + path + extra);
  write({static_cast<const char*>(data), size});
}

void ArchiveWriter::finish() {
  const uint64_t start = offset_, size = directory_.size();
  write(directory_);
  std::string end;
  if (start >= kIn64 || size >= kIn64 || count_ >= 0xffff) {
    append(end, uint32_t(0x06064b50), uint64_t(44), uint16_t(45), uint16_t(45), uint32_t(0), uint32_t(0));
    append(end, count_, count_, size, start);
    append(end, uint32_t(0x07064b50), uint32_t(0), offset_, uint32_t(1));
  }
  const auto shown = static_cast<uint16_t>(std::min<uint64_t>(count_, 0xffff));
  append(end, uint32_t(0x06054b50), uint32_t(0), shown, shown, shortened(size), shortened(start),
         uint16_t(0));
  write(end);
}

}  // namespace fl::runtime

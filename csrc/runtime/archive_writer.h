// Writes a zip archive whose members lie uncompressed, each at a multiple of 64 bytes, in one folder.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace fl::runtime {

// Takes the next bytes of a file; raises where they cannot be kept.
using Sink = std::function<void(const void* data, size_t size)>;

class ArchiveWriter {
 public:
  explicit ArchiveWriter(Sink sink) : sink_(std::move(sink)) {}

  void add(const std::string& name, const void* data, size_t size);
  void add(const std::string& name, std::string_view text) { add(name, text.data(), text.size()); }
  // Writes the directory.
  void finish();

 private:
  void write(std::string_view bytes);

  Sink sink_;
  std::string directory_;
  uint64_t offset_ = 0, count_ = 0;
};

}  // namespace fl::runtime

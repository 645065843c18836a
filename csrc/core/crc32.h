// Checksums of files: of zip archives, and of records of events.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fl {

// Continues a checksum over more bytes; starts from 0.
uint32_t crc32(uint32_t crc, const void* data, size_t bytes);
// The same with Castagnoli's polynomial.
uint32_t crc32c(uint32_t crc, const void* data, size_t bytes);

}  // namespace fl

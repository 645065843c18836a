// Decompression of DEFLATE (RFC 1951), which PyTorch uses for the code in its archives.
#pragma once

#include <cstddef>
#include <string>

namespace fl {

// The content of `size` compressed bytes; raises unless there are exactly `expected` bytes in them.
std::string inflate(const char* data, size_t size, size_t expected);

}  // namespace fl

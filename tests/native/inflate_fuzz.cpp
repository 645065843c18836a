// Damaged DEFLATE streams: inflate_fuzz COUNT SEED FILES... Each is changed in some bytes, cut off or given
// another length; every one must inflate or be an error. See test_inflate.py. A stream begins with its length
// inflated, in 8 digits.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "core/inflate.h"

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  std::mt19937_64 random(std::strtoull(argv[2], nullptr, 10));
  std::vector<std::string> streams;
  for (int i = 3; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    streams.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  const long count = std::atol(argv[1]);
  long good = 0, refused = 0;
  for (long k = 0; k < count; ++k) {
    std::string data = streams[random() % streams.size()];
    const size_t expected = random() % 4 ? std::stoul(data.substr(0, 8)) : random() % (1 << 20);
    data.erase(0, 8);
    for (int changes = random() % 4; changes > 0 && !data.empty(); --changes)
      data[random() % data.size()] = static_cast<char>(random());
    if (random() % 4 == 0) data.resize(random() % (data.size() + 1));
    if (random() % 16 == 0)
      for (char& byte : data) byte = static_cast<char>(random());
    // A copy of exactly this size: what is read behind it is seen.
    const std::vector<char> exact(data.begin(), data.end());
    try {
      good += fl::inflate(exact.data(), exact.size(), expected).size() == expected;
    } catch (const std::exception&) {
      ++refused;
    }
  }
  std::printf("%ld streams: %ld inflated, %ld refused\n", count, good, refused);
  return good + refused == count ? 0 : 1;
}

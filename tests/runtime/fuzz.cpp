// Loads damaged packages: fuzz PACKAGE COUNT SEED. Every one must load or be an error; a crash is a failure.
// Bytes are changed, cut off, repeated; half of the changes are in the plan, whose checksum is then made to
// hold, so that its reader sees them.
#include <flambeau/flambeau.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

namespace {

using Bytes = std::vector<char>;

uint32_t crc32(const char* data, size_t size) {
  uint32_t crc = ~0u;
  for (size_t i = 0; i < size; ++i) {
    crc ^= static_cast<unsigned char>(data[i]);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
  }
  return ~crc;
}

// The plan: where it is, and where the directory has its checksum.
struct Plan {
  size_t begin = 0, size = 0, entry_crc = 0, local_crc = 0;
};

uint32_t word(const Bytes& bytes, size_t at) {
  uint32_t value = 0;
  std::memcpy(&value, bytes.data() + at, 4);
  return value;
}

Plan find_plan(const Bytes& bytes) {
  const std::string name = "/data/aotinductor/model/plan";
  Plan plan;
  for (size_t at = 0; at + 46 < bytes.size(); ++at) {
    if (word(bytes, at) != 0x02014b50) continue;
    const size_t length = word(bytes, at + 28) & 0xffff;
    const std::string path(bytes.data() + at + 46, length);
    if (path.size() < name.size() || path.compare(path.size() - name.size(), name.size(), name) != 0)
      continue;
    const size_t local = word(bytes, at + 42);
    plan.entry_crc = at + 16;
    plan.local_crc = local + 14;
    plan.size = word(bytes, at + 24);
    plan.begin = local + 30 + (word(bytes, local + 26) & 0xffff) + (word(bytes, local + 28) & 0xffff);
  }
  return plan;
}

Bytes damaged(const Bytes& whole, const Plan& plan, std::mt19937_64& random) {
  Bytes bytes = whole;
  const bool in_plan = random() % 2;
  const size_t first = in_plan ? plan.begin : 0, size = in_plan ? plan.size : bytes.size();
  const int changes = 1 + static_cast<int>(random() % 8);
  for (int i = 0; i < changes; ++i) {
    const size_t at = first + random() % size;
    switch (random() % 4) {
      case 0:
        bytes[at] = static_cast<char>(random());
        break;
      case 1:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
        break;
      case 2:
        bytes[at] = static_cast<char>(random() % 2 ? 0xff : 0x00);
        break;
      default:
        std::memmove(bytes.data() + at, bytes.data() + first + random() % size,
                     std::min<size_t>(random() % 16, std::min(first + size - at, size_t(16))) / 2);
    }
  }
  if (in_plan) {
    const uint32_t crc = crc32(bytes.data() + plan.begin, plan.size);
    std::memcpy(bytes.data() + plan.entry_crc, &crc, 4);
    std::memcpy(bytes.data() + plan.local_crc, &crc, 4);
  } else if (random() % 8 == 0) {
    bytes.resize(random() % bytes.size());
  }
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  std::ifstream file(argv[1], std::ios::binary);
  const Bytes whole((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const Plan plan = find_plan(whole);
  if (plan.size == 0) return 2;
  std::mt19937_64 random(static_cast<uint64_t>(std::atoll(argv[3])));
  int loaded = 0;
  for (int i = 0; i < std::atoi(argv[2]); ++i) {
    const Bytes bytes = damaged(whole, plan, random);
    fl_model* model = nullptr;
    if (fl_load_memory(bytes.data(), bytes.size(), &model) != FL_OK) {
      if (fl_error()[0] == 0) return 3;
      continue;
    }
    ++loaded;
    fl_model_free(model);
  }
  std::printf("%d of %s loaded\n", loaded, argv[2]);
  return 0;
}

// Reads the processor's features, and asks the operating system for the tile registers: see capability.h.
#include "cpu/engine/capability.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "core/error.h"

namespace fl::cpu {
namespace {

constexpr int kLevels = 6;
constexpr const char* kNames[kLevels] = {"avx2", "avx_vnni", "avx512", "avx512_vnni", "avx512_bf16", "amx"};

// Linux gives a process the state of the tile registers when it asks for it.
bool may_use_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

struct Levels {
  bool has[kLevels] = {true};
  int highest = 0;

  Levels() {
    int most = kLevels - 1;
    if (const char* name = std::getenv("FLAMBEAU_CPU_CAPABILITY"); name && *name) {
      for (most = 0; most < kLevels && std::strcmp(name, kNames[most]) != 0;) ++most;
      FL_CHECK(
          most < kLevels,
          "[FLAMBEAU_CPU_CAPABILITY] expected avx2, avx_vnni, avx512, avx512_vnni, avx512_bf16 or amx, got ",
          name);
    }
    unsigned a, b, c, d, a1 = 0, b1, c1, d1;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return;
    if (a >= 1) __get_cpuid_count(7, 1, &a1, &b1, &c1, &d1);
    __builtin_cpu_init();
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    const bool vnni = avx512 && (c >> 11 & 1), bf16 = vnni && (a1 >> 5 & 1);
    const bool tiles = bf16 && (d >> 24 & 1) && (d >> 25 & 1) && (d >> 22 & 1);
    const bool supported[kLevels] = {true, (a1 >> 4 & 1) != 0, avx512, vnni, bf16, tiles};
    for (int level = 1; level <= most; ++level) has[level] = supported[level];
    has[kLevels - 1] = has[kLevels - 1] && may_use_tiles();
    for (int level = 0; level < kLevels; ++level)
      if (has[level]) highest = level;
  }
};

const Levels& levels() {
  static const Levels all;
  return all;
}

}  // namespace

bool has_capability(Capability level) {
  return levels().has[static_cast<int>(level)];
}

const char* capability_name() {
  return kNames[levels().highest];
}

}  // namespace fl::cpu

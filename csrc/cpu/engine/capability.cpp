// Reads the processor's features, and asks the operating system for the tile registers: see capability.h.
#include "cpu/engine/capability.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "core/error.h"

namespace fl::cpu {
namespace {

constexpr int kLevels = int(Capability::NeonBf16) + 1;

#if defined(__x86_64__)
constexpr int kFirst = int(Capability::Avx2), kLast = int(Capability::Amx);
constexpr const char* kNames[] = {"avx2", "avx_vnni", "avx512", "avx512_vnni", "avx512_bf16", "amx"};

// Linux gives a process the state of the tile registers when it asks for it.
bool may_use(Capability level) {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return level != Capability::Amx || syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

void read_features(bool* supported) {
  unsigned a, b, c, d, a1 = 0, b1, c1, d1;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return;
  if (a >= 1) __get_cpuid_count(7, 1, &a1, &b1, &c1, &d1);
  __builtin_cpu_init();
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  const bool vnni = avx512 && (c >> 11 & 1), bf16 = vnni && (a1 >> 5 & 1);
  const bool tiles = bf16 && (d >> 24 & 1) && (d >> 25 & 1) && (d >> 22 & 1);
  const bool present[] = {true, (a1 >> 4 & 1) != 0, avx512, vnni, bf16, tiles};
  for (int i = kFirst; i <= kLast; ++i) supported[i] = present[i - kFirst];
}
#elif defined(__aarch64__)
constexpr int kFirst = int(Capability::Neon), kLast = int(Capability::NeonBf16);
constexpr const char* kNames[] = {"neon", "neon_dot", "neon_i8mm", "neon_bf16"};

bool may_use(Capability) {
  return true;
}

void read_features(bool* supported) {
  const unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
  const bool present[] = {true, (first & HWCAP_ASIMDDP) != 0, (second & HWCAP2_I8MM) != 0,
                          (second & HWCAP2_BF16) != 0};
  for (int i = kFirst; i <= kLast; ++i) supported[i] = present[i - kFirst];
}
#else
#error "expected x86-64 or aarch64"
#endif

struct Levels {
  bool has[kLevels] = {};
  int highest = kFirst;

  Levels() {
    int most = kLast;
    if (const char* name = std::getenv("FLAMBEAU_CPU_CAPABILITY"); name && *name) {
      for (most = kFirst; most <= kLast && std::string_view(name) != kNames[most - kFirst];) ++most;
      FL_CHECK(most <= kLast, "[FLAMBEAU_CPU_CAPABILITY] expected ", every_name(), ", got ", name);
    }
    bool supported[kLevels] = {};
    read_features(supported);
    has[kFirst] = true;
    for (int level = kFirst + 1; level <= most; ++level)
      has[level] = supported[level] && may_use(Capability(level));
    for (int level = kFirst; level <= kLast; ++level)
      if (has[level]) highest = level;
  }

  static std::string every_name() {
    std::string names = kNames[0];
    for (int i = kFirst + 1; i <= kLast; ++i)
      names.append(i < kLast ? ", " : " or ").append(kNames[i - kFirst]);
    return names;
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
  return kNames[levels().highest - kFirst];
}

}  // namespace fl::cpu

// Which instruction sets the products of the CPU may use, decided at run time.
#pragma once

namespace fl::cpu {

// Those of x86 in rising order: a processor with one of them may use kernels of all that it supports before
// it; then those of aarch64 likewise. No processor has any of the other architecture.
enum class Capability {
  Avx2,
  AvxVnni,
  Avx512,
  Avx512Vnni,
  Avx512Bf16,
  Amx,
  Neon,
  NeonDot,
  NeonI8mm,
  NeonBf16
};

// Whether the processor and the operating system support it, and FLAMBEAU_CPU_CAPABILITY does not exclude it.
// The variable names the highest level that may be used: avx2, avx_vnni, avx512, avx512_vnni, avx512_bf16,
// amx; neon, neon_dot, neon_i8mm, neon_bf16.
bool has_capability(Capability level);

// The highest level there is, by the name that the variable has for it.
const char* capability_name();

}  // namespace fl::cpu

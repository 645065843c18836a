#include "core/determinism.h"

#include <string>

#include "core/error.h"
#include "core/warning.h"

namespace fl {

std::atomic<Determinism> determinism{Determinism::NotAsked};

void tell_not_deterministic(const char* op) {
  // The op stands first, as in every message, and in the words that PyTorch's programs look for.
  const std::string name = std::string(op) +
                           " does not have a deterministic implementation, but you set "
                           "'torch.use_deterministic_algorithms(True";
  if (determinism.load() == Determinism::Warn)
    return warn(name + ", warn_only=True)'; with duplicate indices, which value stays is not promised.");
  fail(ErrorKind::Runtime, name,
       ")'. Turn determinism off around this operation, or pass warn_only=True to be warned alone.");
}

}  // namespace fl

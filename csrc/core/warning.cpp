#include "core/warning.h"

#include <atomic>
#include <cstdio>

namespace fl {
namespace {

void print(const std::string& message) {
  std::fprintf(stderr, "warning: %s\n", message.c_str());
}

std::atomic<WarningHandler> current{print};

}  // namespace

void warn(const std::string& message) {
  current.load()(message);
}

void set_warning_handler(WarningHandler handler) {
  current.store(handler);
}

}  // namespace fl

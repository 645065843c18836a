// Warnings of native code. The Python module turns them into Python's own; a program without Python prints
// them.
#pragma once

#include <string>

namespace fl {

using WarningHandler = void (*)(const std::string& message);

void warn(const std::string& message);
void set_warning_handler(WarningHandler handler);

}  // namespace fl

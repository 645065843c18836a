// The generated kernels of a package as a shared object that is loaded from memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compiled/program.h"
#include "runtime/archive.h"

namespace fl::runtime {

class KernelLibrary {
 public:
  // Loads the object for the best instruction set that both the package and the processor have.
  static std::shared_ptr<const KernelLibrary> load(const Archive& archive);

  ~KernelLibrary();
  KernelLibrary(const KernelLibrary&) = delete;
  KernelLibrary& operator=(const KernelLibrary&) = delete;

  compiled::Entry find(const std::string& name) const;
  const std::string& instruction_set() const { return instruction_set_; }

 private:
  KernelLibrary(void* handle, int file, std::string instruction_set)
      : handle_(handle), file_(file), instruction_set_(std::move(instruction_set)) {}

  void* handle_;
  int file_;
  std::string instruction_set_;
};

// Instruction sets of this processor that packages may have kernels for, the best first.
std::vector<std::string> instruction_sets();

}  // namespace fl::runtime

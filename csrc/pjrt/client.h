// A client of PJRT plugins: shared libraries that compile and run StableHLO, behind a table of C functions.
//
// Functions of the table take one structure each. Its first field is its size, its second one is for
// extensions, and every other field takes eight bytes, so that structures are arrays of words here. The order
// of functions and fields is PJRT's ABI of major version 0, which only grows at its ends: fields that a
// plugin knows and that are not named here are zero, which stands for their defaults.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "core/tensor.h"

namespace fl::pjrt {

// Positions in the table of functions.
enum class Function {
  ErrorDestroy = 0,
  ErrorMessage = 1,
  PluginInitialize = 3,
  PluginAttributes = 4,
  EventDestroy = 5,
  EventAwait = 8,
  ClientCreate = 10,
  ClientDestroy = 11,
  ClientPlatformName = 12,
  ClientPlatformVersion = 14,
  ClientAddressableDevices = 16,
  ClientCompile = 20,
  ClientBufferFromHostBuffer = 22,
  DeviceDescriptionToString = 28,
  DeviceGetDescription = 29,
  ExecutableDestroy = 40,
  ExecutableNumOutputs = 44,
  LoadedExecutableDestroy = 50,
  LoadedExecutableGetExecutable = 51,
  LoadedExecutableExecute = 55,
  BufferDestroy = 58,
  BufferElementType = 59,
  BufferDimensions = 60,
  BufferToHostBuffer = 70,
};

using Option = std::variant<std::string, int64_t, double, bool>;
using Options = std::vector<std::pair<std::string, Option>>;

// The argument of one call. Fields are counted from 0, after size and extension.
class Arguments {
 public:
  Arguments() { words_[0] = sizeof words_; }
  Arguments& set(size_t field, uint64_t value) {
    words_[field + 2] = value;
    return *this;
  }
  Arguments& set(size_t field, const void* value) { return set(field, reinterpret_cast<uint64_t>(value)); }
  uint64_t number(size_t field) const { return words_[field + 2]; }
  void* pointer(size_t field) const { return reinterpret_cast<void*>(words_[field + 2]); }
  std::string text(size_t field) const {  // a pointer and a length
    return {static_cast<const char*>(pointer(field)), number(field + 1)};
  }
  void* data() { return words_.data(); }

 private:
  std::array<uint64_t, 24> words_{};  // more than any function takes
};

// An opened plugin.
class Plugin {
 public:
  explicit Plugin(const std::string& path);
  std::pair<int, int> version() const { return version_; }
  std::vector<std::string> attributes() const;  // as "name=value"

  // Calls a function of the table; what it reports as an error is raised under the name of what was tried.
  void call(Function function, Arguments& arguments, const char* what) const;
  // The same where nothing can be done about an error.
  void release(Function function, void* object) const noexcept;

 private:
  void* entry(Function function) const;
  const uint64_t* table_;
  size_t functions_;
  std::pair<int, int> version_;
};

class Executable;

// The devices of a plugin.
class Client : public std::enable_shared_from_this<Client> {
 public:
  Client(std::shared_ptr<const Plugin> plugin, const Options& options);
  ~Client();
  Client(const Client&) = delete;

  std::string platform() const;
  std::string platform_version() const;
  std::vector<std::string> devices() const;
  // A program of StableHLO, as text or bytecode, for one device.
  std::shared_ptr<Executable> compile(const std::string& code);

 private:
  friend class Executable;
  std::vector<void*> device_handles() const;
  void* to_device(const Tensor& tensor) const;
  Tensor to_host(void* buffer) const;

  std::shared_ptr<const Plugin> plugin_;
  void* client_ = nullptr;
  void* device_ = nullptr;  // the first
};

class Executable {
 public:
  Executable(std::shared_ptr<Client> client, void* executable);
  ~Executable();
  Executable(const Executable&) = delete;
  // Copies contiguous tensors of the host to the device, runs, and copies the results back.
  std::vector<Tensor> run(const std::vector<Tensor>& inputs) const;

 private:
  std::shared_ptr<Client> client_;
  void* executable_;
  size_t outputs_ = 0;
};

}  // namespace fl::pjrt

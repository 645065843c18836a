#include "pjrt/client.h"

#include <dlfcn.h>

#include <cstring>
#include <mutex>

namespace fl::pjrt {
namespace {

// Element types by PJRT's numbers.
constexpr std::pair<DType, uint64_t> kTypes[] = {
    {DType::Bool, 1},      {DType::Int8, 2},          {DType::Int16, 3},         {DType::Int32, 4},
    {DType::Int64, 5},     {DType::UInt8, 6},         {DType::UInt16, 7},        {DType::UInt32, 8},
    {DType::UInt64, 9},    {DType::Half, 10},         {DType::Float, 11},        {DType::Double, 12},
    {DType::BFloat16, 13}, {DType::ComplexFloat, 14}, {DType::ComplexDouble, 15}};

uint64_t type_number(DType dtype) {
  for (const auto& [known, number] : kTypes)
    if (known == dtype) return number;
  fail("[pjrt] expected a dtype that PJRT has, got ", name_of(dtype));
}

DType dtype_of(uint64_t number) {
  for (const auto& [dtype, known] : kTypes)
    if (known == number) return dtype;
  fail("[pjrt] expected an element type with a dtype, got type ", number);
}

// CompileOptionsProto with its third field, the build options: device -1, one replica, one partition.
constexpr char kCompileOptions[] = "\x1a\x0f\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x20\x01\x28\x01";

// A name and a value in an array that the plugin indexes, so that it has exactly the size of its structure.
struct NamedValue {
  uint64_t size = sizeof(NamedValue), extension = 0;
  const char* name = nullptr;
  uint64_t name_size = 0, type = 0, value = 0, value_size = 1;

  std::string value_text() const {
    enum { kString, kInt64, kInt64List, kFloat, kBool };
    const auto* list = reinterpret_cast<const int64_t*>(value);
    std::string text;
    float real;
    switch (static_cast<uint32_t>(type)) {
      case kString:
        return {reinterpret_cast<const char*>(value), value_size};
      case kInt64:
        return std::to_string(static_cast<int64_t>(value));
      case kInt64List:
        for (size_t i = 0; i < value_size; ++i) text += (i ? "." : "") + std::to_string(list[i]);
        return text;
      case kFloat:
        std::memcpy(&real, &value, sizeof real);
        return std::to_string(real);
      case kBool:
        return (value & 1) ? "true" : "false";
      default:
        return "?";
    }
  }
};

NamedValue named(const std::string& name, const Option& option) {
  NamedValue v;
  v.name = name.data();
  v.name_size = name.size();
  v.type = std::array<uint64_t, 4>{0, 1, 3, 4}[option.index()];
  if (const auto* text = std::get_if<std::string>(&option)) {
    v.value = reinterpret_cast<uint64_t>(text->data());
    v.value_size = text->size();
  } else if (const auto* integer = std::get_if<int64_t>(&option)) {
    v.value = static_cast<uint64_t>(*integer);
  } else if (const auto* real = std::get_if<double>(&option)) {
    const float narrow = static_cast<float>(*real);
    std::memcpy(&v.value, &narrow, sizeof narrow);
  } else {
    v.value = std::get<bool>(option);
  }
  return v;
}

// An event that is waited for and destroyed.
void await(const Plugin& plugin, void* event, const char* what) {
  if (!event) return;
  Arguments arguments;
  arguments.set(0, event);
  try {
    plugin.call(Function::EventAwait, arguments, what);
  } catch (...) {
    plugin.release(Function::EventDestroy, event);
    throw;
  }
  plugin.release(Function::EventDestroy, event);
}

// Buffers of the device, destroyed with the list.
struct Buffers {
  const Plugin& plugin;
  std::vector<void*> handles;
  ~Buffers() {
    for (void* handle : handles)
      if (handle) plugin.release(Function::BufferDestroy, handle);
  }
};

}  // namespace

// ---------------------------------------------------------------- plugins

Plugin::Plugin(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);  // stays open: plugins start threads
  FL_CHECK_KIND(library != nullptr, Value, "[xla.load] expected a shared library, got ", path, ": ",
                dlerror());
  auto* get = reinterpret_cast<const uint64_t* (*)()>(dlsym(library, "GetPjrtApi"));
  FL_CHECK_KIND(get != nullptr, Value, "[xla.load] expected a library that exports GetPjrtApi, got ", path);
  table_ = get();
  FL_CHECK_KIND(table_ != nullptr, Value, "[xla.load] expected a table of functions, got none from ", path);
  constexpr size_t kHeader = 5;  // words: size, extension, and the version with its size, extension, numbers
  functions_ = table_[0] / sizeof(uint64_t) - kHeader;
  const auto* numbers = reinterpret_cast<const int32_t*>(table_ + 4);
  version_ = {numbers[0], numbers[1]};
  table_ += kHeader;
  FL_CHECK_KIND(version_.first == 0, Value, "[xla.load] expected PJRT's major version 0, got ",
                version_.first, ".", version_.second);
  if (entry(Function::PluginInitialize)) {
    Arguments arguments;
    call(Function::PluginInitialize, arguments, "xla.load");
  }
}

void* Plugin::entry(Function function) const {
  const auto at = static_cast<size_t>(function);
  return at < functions_ ? reinterpret_cast<void*>(table_[at]) : nullptr;
}

void Plugin::call(Function function, Arguments& arguments, const char* what) const {
  auto* called = reinterpret_cast<void* (*)(void*)>(entry(function));
  FL_CHECK_KIND(called != nullptr, NotImplemented, "[", what, "] expected a plugin with function ",
                static_cast<int>(function), ", got none");
  void* error = called(arguments.data());
  if (!error) return;
  Arguments message;
  message.set(0, error);
  reinterpret_cast<void (*)(void*)>(entry(Function::ErrorMessage))(message.data());
  const std::string text = message.text(1);
  Arguments destroyed;
  destroyed.set(0, error);
  reinterpret_cast<void (*)(void*)>(entry(Function::ErrorDestroy))(destroyed.data());
  fail("[", what, "] expected the plugin to succeed, got: ", text);
}

void Plugin::release(Function function, void* object) const noexcept {
  Arguments arguments;
  arguments.set(0, object);
  if (void* called = entry(function)) reinterpret_cast<void* (*)(void*)>(called)(arguments.data());
}

std::vector<std::string> Plugin::attributes() const {
  std::vector<std::string> all;
  if (!entry(Function::PluginAttributes)) return all;
  Arguments arguments;
  call(Function::PluginAttributes, arguments, "xla.load");
  const auto* values = static_cast<const NamedValue*>(arguments.pointer(0));
  for (size_t i = 0; i < arguments.number(1); ++i)
    all.push_back(std::string(values[i].name, values[i].name_size) + "=" + values[i].value_text());
  return all;
}

// ---------------------------------------------------------------- clients

Client::Client(std::shared_ptr<const Plugin> plugin, const Options& options) : plugin_(std::move(plugin)) {
  std::vector<NamedValue> values;
  for (const auto& [name, option] : options) values.push_back(named(name, option));
  Arguments arguments;
  arguments.set(0, values.data()).set(1, values.size());
  plugin_->call(Function::ClientCreate, arguments, "xla.load");
  client_ = arguments.pointer(6);
  const std::vector<void*> handles = device_handles();
  FL_CHECK(!handles.empty(), "[xla.load] expected a plugin with a device, got none");
  device_ = handles[0];
}

Client::~Client() {
  if (client_) plugin_->release(Function::ClientDestroy, client_);
}

std::string Client::platform() const {
  Arguments arguments;
  plugin_->call(Function::ClientPlatformName, arguments.set(0, client_), "xla.platform");
  return arguments.text(1);
}

std::string Client::platform_version() const {
  Arguments arguments;
  plugin_->call(Function::ClientPlatformVersion, arguments.set(0, client_), "xla.platform_version");
  return arguments.text(1);
}

std::vector<void*> Client::device_handles() const {
  Arguments arguments;
  plugin_->call(Function::ClientAddressableDevices, arguments.set(0, client_), "xla.devices");
  auto* const first = static_cast<void**>(arguments.pointer(1));
  return std::vector<void*>(first, first + arguments.number(2));
}

std::vector<std::string> Client::devices() const {
  std::vector<std::string> names;
  for (void* device : device_handles()) {
    Arguments description, text;
    plugin_->call(Function::DeviceGetDescription, description.set(0, device), "xla.devices");
    plugin_->call(Function::DeviceDescriptionToString, text.set(0, description.pointer(1)), "xla.devices");
    names.push_back(text.text(1));
  }
  return names;
}

std::shared_ptr<Executable> Client::compile(const std::string& code) {
  static const std::string format = "mlir";
  Arguments program, arguments;
  program.set(0, code.data()).set(1, code.size()).set(2, format.data()).set(3, format.size());
  arguments.set(0, client_).set(1, program.data());
  arguments.set(2, kCompileOptions).set(3, sizeof kCompileOptions - 1);
  plugin_->call(Function::ClientCompile, arguments, "xla.compile");
  return std::make_shared<Executable>(shared_from_this(), arguments.pointer(4));
}

void* Client::to_device(const Tensor& tensor) const {
  const Dims sizes(tensor.sizes());
  Arguments arguments;
  arguments.set(0, client_).set(1, tensor.raw()).set(2, type_number(tensor.dtype()));
  arguments.set(3, sizes.data()).set(4, sizes.size());
  arguments.set(7, uint64_t(0)).set(8, device_);  // the data is ours again when the call returns
  plugin_->call(Function::ClientBufferFromHostBuffer, arguments, "xla.run");
  void* const buffer = arguments.pointer(12);
  try {
    await(*plugin_, arguments.pointer(11), "xla.run");
  } catch (...) {
    plugin_->release(Function::BufferDestroy, buffer);
    throw;
  }
  return buffer;
}

Tensor Client::to_host(void* buffer) const {
  Arguments type, shape;
  plugin_->call(Function::BufferElementType, type.set(0, buffer), "xla.run");
  plugin_->call(Function::BufferDimensions, shape.set(0, buffer), "xla.run");
  const auto* const first = static_cast<const int64_t*>(shape.pointer(1));
  Tensor tensor = empty(IntSpan(first, shape.number(2)), {dtype_of(type.number(1) & 0xffffffff), Device{}});
  const size_t bytes = static_cast<size_t>(tensor.numel() * tensor.itemsize());
  if (bytes == 0) return tensor;
  Arguments arguments;
  arguments.set(0, buffer).set(2, tensor.raw()).set(3, bytes);
  plugin_->call(Function::BufferToHostBuffer, arguments, "xla.run");
  await(*plugin_, arguments.pointer(4), "xla.run");
  return tensor;
}

// ---------------------------------------------------------------- programs

Executable::Executable(std::shared_ptr<Client> client, void* executable)
    : client_(std::move(client)), executable_(executable) {
  const Plugin& plugin = *client_->plugin_;
  Arguments unloaded, count;
  plugin.call(Function::LoadedExecutableGetExecutable, unloaded.set(0, executable_), "xla.compile");
  plugin.call(Function::ExecutableNumOutputs, count.set(0, unloaded.pointer(1)), "xla.compile");
  outputs_ = count.number(1);
  plugin.release(Function::ExecutableDestroy, unloaded.pointer(1));
}

Executable::~Executable() {
  client_->plugin_->release(Function::LoadedExecutableDestroy, executable_);
}

std::vector<Tensor> Executable::run(const std::vector<Tensor>& inputs) const {
  const Plugin& plugin = *client_->plugin_;
  Buffers argument_buffers{plugin, {}}, results{plugin, std::vector<void*>(outputs_, nullptr)};
  for (const Tensor& t : inputs) argument_buffers.handles.push_back(client_->to_device(t));
  void** const argument_list = argument_buffers.handles.data();
  void** const result_list = results.handles.data();
  void* done = nullptr;
  Arguments options, arguments;
  arguments.set(0, executable_).set(1, options.data());
  arguments.set(2, &argument_list).set(3, uint64_t(1)).set(4, argument_buffers.handles.size());
  arguments.set(5, &result_list).set(6, &done);
  plugin.call(Function::LoadedExecutableExecute, arguments, "xla.run");
  await(plugin, done, "xla.run");
  std::vector<Tensor> tensors;
  for (void* buffer : results.handles) tensors.push_back(client_->to_host(buffer));
  return tensors;
}

}  // namespace fl::pjrt

// Names of devices and the table of those registered from outside.
#include "core/device.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "core/accelerator.h"
#include "core/error.h"
#include "core/private_use.h"

namespace fl {

bool (*load_device)(const std::string& name) = nullptr;

namespace {
struct Registry {
  std::mutex mutex;
  std::vector<std::string> names{"cpu", "meta", "cuda"};
  std::vector<std::pair<std::string, std::string>> aliases;

  int find(const std::string& name) const {
    const auto at = std::find(names.begin(), names.end(), name);
    if (at != names.end()) return static_cast<int>(at - names.begin());
    for (const auto& [alias, meant] : aliases)
      if (alias == name && meant != name) return find(meant);
    return -1;
  }
};
Registry& registry() {
  static Registry* r = new Registry;
  return *r;
}
}  // namespace

std::string device_type_name(DeviceType t) {
  auto& r = registry();
  std::lock_guard<std::mutex> lock(r.mutex);
  return r.names.at(static_cast<size_t>(t));
}

DeviceType register_device(const std::string& name) {
  auto& r = registry();
  std::lock_guard<std::mutex> lock(r.mutex);
  for (size_t i = 0; i < r.names.size(); ++i)
    if (r.names[i] == name) return static_cast<DeviceType>(i);
  FL_CHECK(r.names.size() < kMaxDeviceTypes, "[register_device] expected at most ", kMaxDeviceTypes,
           " kinds of devices, got one more: ", name);
  r.names.push_back(name);
  return static_cast<DeviceType>(r.names.size() - 1);
}

void alias_device(const std::string& alias, const std::string& name) {
  auto& r = registry();
  std::lock_guard<std::mutex> lock(r.mutex);
  r.aliases.emplace_back(alias, name);
}

DeviceType private_use_type() {
  auto& r = registry();
  std::lock_guard<std::mutex> lock(r.mutex);
  return static_cast<DeviceType>(std::max(r.find("privateuseone"), 0));
}

std::string to_string(Device d) {
  std::string s = device_type_name(d.type);
  if (d.index >= 0) s += ":" + std::to_string(d.index);
  return s;
}

namespace {
// What the writer of an unknown device may have meant.
const char* device_hint(const std::string& name) {
  if (name == "gpu" || name == "GPU" || name == "CUDA") return "; write 'cuda'";
  if (name == "CPU") return "; write 'cpu'";
  for (const char* dtype : {"float", "int", "bool", "half", "double", "long", "uint", "complex", "bfloat"})
    if (name.rfind(dtype, 0) == 0) return "; a dtype is written without quotes, as in torch.float32";
  return "";
}
}  // namespace

Device parse_device(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string name = text.substr(0, colon);
  int index = -1;
  if (colon != std::string::npos) {
    const std::string digits = text.substr(colon + 1);
    FL_CHECK(
        !digits.empty() && digits.size() < 4 && digits.find_first_not_of("0123456789") == std::string::npos,
        "[device] expected a device like 'cpu' or 'cuda:0', got '", text, "'");
    index = std::stoi(digits);
    FL_CHECK(index < 128, "[device] expected a device index below 128, got '", text, "'");
  }
  if (name == "cuda") accelerator();  // opens it, so that operators find its kernels
  const auto find = [&]() -> int {
    auto& r = registry();
    std::lock_guard<std::mutex> lock(r.mutex);
    return r.find(name);
  };
  int type = find();
  if (type < 0 && load_device && load_device(name)) type = find();
  if (type >= 0) return Device{static_cast<DeviceType>(type), static_cast<int8_t>(index)};
  fail("[device] expected a known device type (cpu, meta, cuda or a registered one), got '", text, "'",
       device_hint(name));
}

}  // namespace fl

// Devices: a type and an index. Types beyond the built-in ones are registered by name at run time.
#pragma once

#include <cstdint>
#include <string>

namespace fl {

enum class DeviceType : int8_t { CPU, Meta, CUDA, Custom0 };  // Custom0 + n: the n-th registered device
constexpr int kMaxDeviceTypes = 127;

// Tables by device type have a slot for each of the first types; all others share the last one.
constexpr int kDeviceSlots = 16;
constexpr int device_slot(DeviceType t) {
  return static_cast<int>(t) < kDeviceSlots - 1 ? static_cast<int>(t) : kDeviceSlots - 1;
}

struct Device {
  DeviceType type = DeviceType::CPU;
  int8_t index = -1;
  bool operator==(const Device& o) const { return type == o.type && index == o.index; }
  bool operator!=(const Device& o) const { return !(*this == o); }
};

std::string to_string(Device d);
Device parse_device(const std::string& text);
// Registers a device type by name and returns it; the same name gives the same type.
DeviceType register_device(const std::string& name);
std::string device_type_name(DeviceType t);
// Called with a name that no device has: may register one, and says whether it did. Set by the binding.
extern bool (*load_device)(const std::string& name);

}  // namespace fl

#include "dispatch/shared_key.h"

#include <map>
#include <shared_mutex>

#include "core/error.h"

namespace fl {
namespace {

struct Shared {
  std::shared_mutex mutex;
  std::map<std::pair<const Operator*, DeviceType>, Kernel> kernels;
  std::map<DeviceType, Kernel> fallbacks;
};
Shared& shared() {
  static auto* s = new Shared;
  return *s;
}

// Behind the shared key: the kernel of the device that the call is on, or what that device has for operators
// without one.
void run_shared(const Operator& op, void*, KeySet keys, Value* args, Value* results) {
  const DeviceType type = outside_device_of(op, args);
  Kernel kernel;
  {
    Shared& s = shared();
    std::shared_lock<std::shared_mutex> lock(s.mutex);
    const auto own = s.kernels.find({&op, type});
    if (own != s.kernels.end()) {
      kernel = own->second;
    } else if (op.has_own_kernel(Key::Composite)) {
      kernel = op.kernel(Key::Composite);
    } else if (const auto all = s.fallbacks.find(type); all != s.fallbacks.end()) {
      kernel = all->second;
    }
  }
  FL_CHECK_KIND(bool(kernel), NotImplemented, "[", op.schema.name,
                "] expected a device with a kernel or decomposition for it, got ", device_type_name(type));
  kernel.fn(op, kernel.context, keys, args, results);
}

}  // namespace

DeviceType outside_device_of(const Operator& op, const Value* args) {
  const auto is_outside = [](Device d) { return d.type >= DeviceType::Custom0; };
  for (size_t i = 0; i < op.schema.args.size(); ++i) {
    const Value& v = args[i];
    if (v.is_tensor() && is_outside(v.tensor_impl()->device)) return v.tensor_impl()->device.type;
    if (v.tag() == Value::Tag::Device && is_outside(v.to_device())) return v.to_device().type;
    for (size_t k = 0; v.is_tensor_list() && k < v.length(); ++k)
      if (v.tensors()[k].defined() && is_outside(v.tensors()[k].device()))
        return v.tensors()[k].device().type;
  }
  return DeviceType::CPU;
}

void set_device_kernel(Operator& op, DeviceType type, Kernel kernel) {
  if (backend_key(type) != Key::Shared) return op.set_kernel(backend_key(type), kernel);
  {
    Shared& s = shared();
    std::unique_lock<std::shared_mutex> lock(s.mutex);
    if (kernel)
      s.kernels[{&op, type}] = kernel;
    else
      s.kernels.erase({&op, type});
  }
  if (!op.has_own_kernel(Key::Shared)) op.set_kernel(Key::Shared, Kernel{run_shared, nullptr});
}

Kernel device_kernel(const Operator& op, DeviceType type) {
  if (backend_key(type) != Key::Shared) return op.kernel(backend_key(type));
  Shared& s = shared();
  std::shared_lock<std::shared_mutex> lock(s.mutex);
  const auto own = s.kernels.find({&op, type});
  return own == s.kernels.end() ? Kernel{} : own->second;
}

void set_device_fallback(DeviceType type, Kernel kernel) {
  if (backend_key(type) != Key::Shared) return OperatorTable::get().set_fallback(backend_key(type), kernel);
  Shared& s = shared();
  std::unique_lock<std::shared_mutex> lock(s.mutex);
  s.fallbacks[type] = kernel;
  OperatorTable::get().set_fallback(Key::Shared, Kernel{run_shared, nullptr});
}

}  // namespace fl

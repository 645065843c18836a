#include "ops/outside.h"

#include <cstring>
#include <unordered_map>

#include "dispatch/builtin.h"
#include "dispatch/shared_key.h"

namespace fl {
namespace {

std::shared_ptr<OutsideDevice>& device_at(DeviceType type) {
  static auto* table = new std::shared_ptr<OutsideDevice>[kMaxDeviceTypes];
  return table[static_cast<int>(type)];
}

OutsideDevice& device_of(const Tensor& t) {
  OutsideDevice* device = device_at(t.device().type).get();
  FL_CHECK_KIND(device != nullptr, NotImplemented, "[device] expected a device that evaluates records, got ",
                to_string(t.device()));
  return *device;
}

// Operators by the definition that the generator wrote for their record.
const std::string& record_of(const void* definition) {
  static const auto* names = [] {
    auto* table = new std::unordered_map<const void*, std::string>;
    for (const Operator* op : OperatorTable::get().all())
      if (!(op->flags & (kInplace | kOut)) && op->kernel(Key::CPU).context)
        table->emplace(op->kernel(Key::CPU).context, op->schema.full_name());
    return table;
  }();
  return names->at(definition);
}

void pointwise(const PointwiseCall& call) {
  device_of(call.out).pointwise(record_of(&call.def), call);
}
void reduce(const ReduceCall& call) {
  device_of(call.out).reduce(record_of(&call.def), call);
}
void update(const UpdateCall& call) {
  if (call.length) device_of(call.lists[0][0]).update(record_of(&call.def), call);
}
void random(const Tensor& out, const RandomCall& call) {
  device_of(out).random(out, call);
}

bool has_tag(const Operator& op, const char* tag) {
  return op.record && !(op.flags & (kInplace | kOut)) && std::strstr(op.record->tags, tag) != nullptr;
}

void give_front(Operator& op, DeviceType type) {
  if (!device_kernel(op, type)) set_device_kernel(op, type, op.kernel(Key::CPU));
}

}  // namespace

void serve_outside(DeviceType type, std::shared_ptr<OutsideDevice> device, unsigned fronts) {
  device_at(type) = std::move(device);
  device::pointwise.attach(type, pointwise);
  device::reduce.attach(type, reduce);
  device::update.attach(type, update);
  device::random.attach(type, random);
  for (Operator* op : OperatorTable::get().all()) {
    const KernelFn front = op->kernel(Key::CPU).fn;
    if ((front == pointwise_kernel && fronts & kPointwiseFront) ||
        (front == reduce_kernel && fronts & kReduceFront) ||
        (front == update_kernel && fronts & kUpdateFront) || has_tag(*op, "only_copies") ||
        (fronts & kRandomFront && has_tag(*op, "only_draws")))
      give_front(*op, type);
  }
}

}  // namespace fl

#include "runtime/package.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "compiled/kept_value.h"
#include "core/accelerator.h"
#include "core/error.h"
#include "dispatch/operator.h"
#include "runtime/package_paths.h"

namespace fl::runtime {
namespace {

constexpr size_t kMostInstances = 256;  // sizes that are held; when there are more, all are forgotten
constexpr int64_t kAlignment = 64;

// A tensor whose writes are counted, also where it is made in inference mode.
Tensor watched(Tensor tensor) {
  tensor->inference = false;
  tensor->refresh();
  return tensor;
}

// A constant where it lies in the archive.
Tensor constant_in(const std::shared_ptr<const Bytes>& bytes, const Archive::Member& weights,
                   const ConstantEntry& entry) {
  FL_CHECK(entry.sizes.size() == entry.strides.size(), "[package] expected a stride for each size of ",
           entry.name);
  int64_t last = 0, count = 1;
  for (size_t d = 0; d < entry.sizes.size(); ++d) {
    const int64_t size = entry.sizes[d], stride = entry.strides[d];
    int64_t step = 0;
    FL_CHECK(size >= 0 && stride >= 0 && !__builtin_mul_overflow(size - 1, stride, &step) &&
                 !__builtin_add_overflow(last, size ? step : 0, &last) &&
                 !__builtin_mul_overflow(count, size, &count),
             "[package] expected sizes and strides of ", entry.name, " to make sense, got others");
  }
  int64_t extent = 0;
  const bool fits = count == 0 || (!__builtin_add_overflow(last, 1, &extent) &&
                                   !__builtin_mul_overflow(extent, size_of(entry.dtype), &extent));
  FL_CHECK(fits && entry.offset >= 0 && entry.offset % kAlignment == 0 && entry.bytes >= 0 &&
               extent <= entry.bytes && static_cast<uint64_t>(entry.offset) <= weights.size &&
               static_cast<uint64_t>(entry.bytes) <= weights.size - static_cast<uint64_t>(entry.offset),
           "[package] expected the constant ", entry.name, " inside of the weights, got a place outside");
  Tensor tensor = empty_strided(IntSpan(), IntSpan(), {entry.dtype, Device{}});
  tensor->storage = Storage::adopt(weights.data + entry.offset, static_cast<size_t>(entry.bytes), Device{},
                                   [keep = bytes](void*) {});
  tensor->storage->resizable = false;
  tensor->sizes = entry.sizes;
  tensor->strides = entry.strides;
  return watched(tensor);
}

// Weights on an accelerator: what is one place in the archive is one there.
class DeviceCopies {
 public:
  Tensor at(const ConstantEntry& entry, const Tensor& host) {
    Ref<Storage>& storage = copies_[{entry.offset, entry.bytes}];
    if (!storage) {
      const Tensor bytes = alias(host, {entry.bytes}, {1}, 0);
      bytes->dtype = DType::UInt8;
      const Tensor copy = empty({entry.bytes}, {DType::UInt8, entry.device});
      copy_into(copy, bytes);
      storage = copy->storage;
    }
    Tensor tensor = empty_strided(IntSpan(), IntSpan(), {entry.dtype, entry.device});
    tensor->storage = storage;
    tensor->sizes = entry.sizes;
    tensor->strides = entry.strides;
    return watched(tensor);
  }

 private:
  std::map<std::pair<int64_t, int64_t>, Ref<Storage>> copies_;
};

Device accelerator_at(int index) {
  const int current = the_accelerator().current_device();
  FL_CHECK(index < 0 || index == current, "[package] expected the index of the current device, which is ",
           current, ", got ", index, "; kernels are loaded for the current device");
  return {DeviceType::CUDA, static_cast<int8_t>(current)};
}

// The function of an image.
void* loaded(const Archive::Member& image, const ImageEntry& entry) {
  FL_CHECK(entry.shared >= 0 && entry.shared <= INT32_MAX, "[package] expected bytes of shared memory, got ",
           entry.shared);
  // The driver reads past the end of what is no image.
  FL_CHECK(image.size > 64 && std::memcmp(image.data, "\177ELF", 4) == 0,
           "[package] expected an image of a kernel, got other bytes");
  return the_accelerator().load(image.data, entry.name.c_str(), static_cast<int>(entry.shared));
}

std::string text_of(const Archive& archive, const char* path) {
  if (archive.find(path) == nullptr) return "{}";
  const Archive::Member& member = archive.checked(path);
  return {member.data, member.size};
}

}  // namespace

size_t Package::SizesHash::operator()(const std::vector<int64_t>& sizes) const {
  size_t hash = sizes.size();
  for (int64_t size : sizes) hash = hash * 1000003 ^ static_cast<size_t>(size);
  return hash;
}

std::shared_ptr<Package> Package::load(const std::string& path, int device) {
  return std::shared_ptr<Package>(new Package(Bytes::map(path), device));
}

std::shared_ptr<Package> Package::load_memory(const void* data, size_t size, int device) {
  return std::shared_ptr<Package>(new Package(Bytes::copy(data, size), device));
}

std::shared_ptr<Package> Package::load_static(const void* data, size_t size) {
  return std::shared_ptr<Package>(new Package(Bytes::lent(data, size)));
}

Package::Package(const std::shared_ptr<const Bytes>& bytes, int device) : bytes_(bytes) {
  const Archive archive(bytes);
  const Archive::Member& plan = archive.checked(kPlanPath);
  const Archive::Member* weights = archive.find(kWeightsPath);
  const Archive::Member none{nullptr, 0, 0};
  FL_CHECK(weights == nullptr || reinterpret_cast<uintptr_t>(weights->data) % kAlignment == 0,
           "[package] expected weights that begin at a multiple of ", kAlignment, " bytes, got others");
  DeviceCopies copies;
  PlanContext context;
  context.accelerator = [device] { return accelerator_at(device); };
  context.entry = [&](const std::string& name) {
    if (!kernels_) kernels_ = KernelLibrary::load(archive);
    return kernels_->find(name);
  };
  context.constant = [&](const ConstantEntry& entry) {
    const Tensor constant = constant_in(bytes, weights ? *weights : none, entry);
    return entry.device.type == DeviceType::CPU ? constant : copies.at(entry, constant);
  };
  context.function = [&](const ImageEntry& image) {
    return loaded(archive.checked(image_path(image.name)), image);
  };
  plan_ = read_plan({plan.data, plan.size}, context);
  FL_CHECK(!plan_.variants.empty(), "[package] expected a plan for some sizes, got none");
  signature_ = text_of(archive, kSignaturePath);
  metadata_ = text_of(archive, kMetadataPath);
  number_kept_values();
  constants_ = std::make_shared<const ConstantSet>(plan_.tensors, kept_.size());
  instances_ = std::make_shared<const Instances>();
}

namespace {
void add_operators(const compiled::Program& program, std::set<std::string>& names) {
  for (const compiled::Step& step : program.steps)
    if (const auto* call = std::get_if<compiled::CallStep>(&step)) names.insert(call->op->schema.full_name());
  for (const auto& kept_value : program.kept) add_operators(kept_value->program, names);
}
}  // namespace

std::vector<std::string> Package::operators() const {
  std::set<std::string> names;
  for (const PlanVariant& variant : plan_.variants) add_operators(variant.plan.model->forward, names);
  return {names.begin(), names.end()};
}

std::vector<std::vector<compiled::InputSpec>> Package::samples() const {
  std::vector<std::vector<compiled::InputSpec>> lists;
  for (const PlanVariant& variant : plan_.variants) {
    const std::vector<compiled::InputSpec>& inputs = variant.plan.model->inputs;
    lists.emplace_back(inputs.begin() + plan_.input_constants, inputs.end());
  }
  return lists;
}

std::vector<Tensor> Package::constant_tensors() const {
  return std::atomic_load(&constants_)->tensors();
}

void Package::number_kept_values() {
  std::set<const compiled::KeptValue*> known;
  for (const PlanVariant& variant : plan_.variants)
    for (const auto& kept_value : variant.plan.model->forward.kept)
      if (known.insert(kept_value.get()).second) {
        kept_value->place = kept_.size();
        kept_.push_back(kept_value);
      }
}

void Package::check_inputs(const std::vector<Tensor>& inputs) const {
  FL_CHECK_KIND(inputs.size() == plan_.inputs.size(), Type, "[package] expected ", plan_.inputs.size(),
                " tensors, got ", inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const InputEntry& entry = plan_.inputs[i];
    const Tensor& input = inputs[i];
    FL_CHECK_KIND(input.defined(), Type, "[package] expected a tensor for ", entry.name, ", got none");
    FL_CHECK(input.is_cpu() ? entry.device.type == DeviceType::CPU : input.device() == entry.device,
             "[package] expected ", entry.name, " on ",
             entry.device.type == DeviceType::CPU ? "the CPU" : to_string(entry.device), ", got ",
             to_string(input.device()));
    FL_CHECK(input.dtype() == entry.dtype, "[package] expected ", entry.name, " of dtype ",
             name_of(entry.dtype), ", got ", name_of(input.dtype()));
    FL_CHECK(input.sizes().size() == entry.sizes.size(), "[package] expected ", entry.name, " with ",
             entry.sizes.size(), " dimensions, got the shape ", input.sizes());
    for (size_t d = 0; d < entry.sizes.size(); ++d)
      FL_CHECK(entry.sizes[d] < 0 || entry.sizes[d] == input.sizes()[d], "[package] expected ", entry.name,
               ".size(", d, ") == ", entry.sizes[d], ", got the shape ", input.sizes());
  }
  for (const SizeRange& range : plan_.ranges) {
    const Tensor& input = inputs[static_cast<size_t>(range.input)];
    const int64_t size = input.size(range.dim);
    FL_CHECK(size >= range.low && size <= range.high, "[package] expected ",
             plan_.inputs[static_cast<size_t>(range.input)].name, ".size(", range.dim, ") between ",
             range.low, " and ", range.high, ", got ", size);
  }
}

Ref<compiled::CompiledGraph> instantiate(const compiled::SizePlan& plan, size_t constants,
                                         const std::vector<Tensor>& inputs) {
  // Where the sizes of each input begin among the integers of a plan.
  std::vector<std::pair<int32_t, const Tensor*>> places;
  int32_t place = 0;
  for (size_t i = 0; i < plan.model->inputs.size(); ++i) {
    if (i >= constants) places.emplace_back(place, &inputs[i - constants]);
    place += static_cast<int32_t>(2 * plan.model->inputs[i].sizes.size());
  }
  compiled::Point at{};
  for (size_t s = 0; s < plan.symbols.size(); ++s) {
    const auto owner = std::find_if(places.rbegin(), places.rend(),
                                    [&](const auto& p) { return p.first <= plan.symbols[s]; });
    if (owner == places.rend()) return {};
    const int64_t dim = plan.symbols[s] - owner->first;
    if (dim >= owner->second->dim()) return {};
    at[s] = owner->second->size(dim);
  }
  const std::optional<std::vector<int64_t>> values = plan.values_at(at);
  if (!values) return {};
  for (const auto& [first, tensor] : places)
    for (int64_t d = 0; d < tensor->dim(); ++d)
      if ((*values)[static_cast<size_t>(plan.class_of[static_cast<size_t>(first + d)])] != tensor->size(d))
        return {};
  return plan.instantiate(*values);
}

namespace {
// Puts the address of the flag that kernels report indices with in its place among their numbers.
void place_flag(compiled::Program& program, const int* flag) {
  const auto address = static_cast<int64_t>(reinterpret_cast<intptr_t>(flag));
  for (compiled::Step& step : program.steps) {
    auto* kernel = std::get_if<compiled::KernelStep>(&step);
    if (kernel == nullptr) continue;
    std::vector<int64_t>& numbers = kernel->numbers;
    for (size_t i = 0; i + 1 < numbers.size(); ++i)
      if (numbers[i] == kFlagWord && numbers[i + 1] == kFlagWord) {
        numbers[i] = address >> 32;
        numbers[++i] = static_cast<int32_t>(address);
      }
  }
}
}  // namespace

// Of the plans that hold for the sizes, the one that was recorded nearest to them.
Package::Instance Package::instantiate(const std::vector<Tensor>& inputs) const {
  std::vector<std::pair<double, const PlanVariant*>> order;
  for (const PlanVariant& variant : plan_.variants) {
    double nearest = std::numeric_limits<double>::infinity();
    for (const std::vector<int64_t>& sample : variant.samples) {
      double distance = 0;
      for (size_t s = 0; s < sample.size(); ++s) {
        const SizeRange& range = plan_.ranges[s];
        const auto size = static_cast<double>(inputs[static_cast<size_t>(range.input)].size(range.dim));
        distance += std::abs(std::log((size + 1) / (static_cast<double>(sample[s]) + 1)));
      }
      nearest = std::min(nearest, distance);
    }
    order.emplace_back(nearest, &variant);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [distance, variant] : order)
    if (Instance instance = runtime::instantiate(variant->plan, replaceable_constants(), inputs)) {
      if (plan_.device.type != DeviceType::CPU)
        place_flag(instance->forward, the_accelerator().failure_flag());
      return instance;
    }
  std::string shapes;
  for (const Tensor& input : inputs) shapes += message(shapes.empty() ? "" : ", ", input.sizes());
  fail("[package] expected sizes that the package was compiled for, got the shapes ", shapes);
}

Package::Instance Package::instance_for(const std::vector<Tensor>& inputs) const {
  std::vector<int64_t> sizes;
  for (const Tensor& input : inputs) sizes.insert(sizes.end(), input.sizes().begin(), input.sizes().end());
  const std::shared_ptr<const Instances> known = std::atomic_load(&instances_);
  const auto entry = known->find(sizes);
  if (entry != known->end()) return entry->second;
  Instance instance = instantiate(inputs);
  const std::lock_guard<std::mutex> lock(mutex_);
  auto next = std::make_shared<Instances>();
  if (instances_->size() < kMostInstances) *next = *instances_;
  next->emplace(std::move(sizes), instance);
  std::atomic_store(&instances_, std::shared_ptr<const Instances>(std::move(next)));
  return instance;
}

// The constants, and what a program keeps of them.
std::shared_ptr<const ConstantSet> Package::constants_for(const compiled::Program& program,
                                                          std::vector<Tensor>& kept_values) const {
  std::shared_ptr<const ConstantSet> constants = std::atomic_load(&constants_);
  kept_values.reserve(program.kept.size());
  while (kept_values.size() < program.kept.size()) {
    Tensor value = constants->value(*program.kept[kept_values.size()]);
    if (value.defined()) {
      kept_values.push_back(std::move(value));
      continue;
    }
    // A constant was written where it lies: begin again with a set that knows it.
    kept_values.clear();
    const std::lock_guard<std::mutex> lock(mutex_);
    if (constants_ == constants)
      std::atomic_store(&constants_,
                        std::make_shared<const ConstantSet>(*constants, constants->tensors(), kept_));
    constants = constants_;
  }
  return constants;
}

std::vector<Tensor> Package::run(const std::vector<Tensor>& inputs) const {
  check_inputs(inputs);
  const Instance instance = instance_for(inputs);
  std::vector<Tensor> kept_values;
  const std::shared_ptr<const ConstantSet> constants = constants_for(instance->forward, kept_values);
  const auto count = static_cast<size_t>(plan_.input_constants);
  std::vector<Tensor> tensors;
  tensors.reserve(count + inputs.size());
  tensors.assign(constants->tensors().begin(), constants->tensors().begin() + plan_.input_constants);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Dims& strides = instance->inputs[count + i].strides;
    const bool aligned = inputs[i].is_cpu() || reinterpret_cast<uintptr_t>(inputs[i].raw()) % 16 == 0;
    if (aligned && inputs[i].strides() == IntSpan(strides)) {
      tensors.push_back(inputs[i]);
      continue;
    }
    Tensor laid = empty_strided(inputs[i].sizes(), strides, inputs[i].options());
    copy_into(laid, inputs[i]);
    tensors.push_back(laid);
  }
  return instance->forward.execute(tensors.data(), nullptr, nullptr, kept_values.data());
}

void Package::update(const std::vector<std::pair<std::string, Tensor>>& constants, bool in_place) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Tensor> next = constants_->tensors();
  for (const auto& [name, tensor] : constants) {
    const auto entry = std::find_if(plan_.constants.begin(), plan_.constants.end(),
                                    [&, &wanted = name](const ConstantEntry& c) { return c.name == wanted; });
    FL_CHECK(entry != plan_.constants.end(), "[package] expected the name of a constant, got ", name);
    const auto index = static_cast<size_t>(entry - plan_.constants.begin());
    FL_CHECK(index < static_cast<size_t>(plan_.input_constants),
             "[package] expected a constant that can be replaced, got ", name);
    FL_CHECK(
        tensor.defined() && tensor.dtype() == entry->dtype && tensor.sizes() == IntSpan(entry->sizes),
        "[package] expected ", name_of(entry->dtype), " of the shape ", IntSpan(entry->sizes), " for ", name,
        ", got ",
        tensor.defined() ? message(name_of(tensor.dtype()), " ", tensor.sizes()) : std::string("nothing"));
    if (in_place && tensor.device() == entry->device && tensor.strides() == IntSpan(entry->strides)) {
      next[index] = tensor;
      continue;
    }
    const Tensor copy = watched(empty_strided(entry->sizes, entry->strides, {entry->dtype, entry->device}));
    copy_into(copy, tensor);
    next[index] = copy;
  }
  std::atomic_store(&constants_, std::make_shared<const ConstantSet>(*constants_, std::move(next), kept_));
}

}  // namespace fl::runtime

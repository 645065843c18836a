// torch::jit::load: archives of TorchScript, run by the library's machine.
#pragma once

#include <flambeau/torch/archive.h>

#include <istream>
#include <unordered_map>

namespace torch::jit {

using c10::IValue;
using Stack = std::vector<IValue>;
using Kwargs = std::unordered_map<std::string, IValue>;
using ExtraFilesMap = std::unordered_map<std::string, std::string>;

template <class T>
struct Named {
  std::string name;
  T value;
};

class Method {
 public:
  Method(IValue owner, std::string name) : owner_(std::move(owner)), name_(std::move(name)) {}

  IValue operator()(const std::vector<IValue>& inputs, const Kwargs& kwargs = {}) const {
    std::vector<fl_object*> arguments;
    std::vector<const char*> names;
    for (const IValue& input : inputs) {
      arguments.push_back(input.handle());
      names.push_back(nullptr);
    }
    for (const auto& [name, value] : kwargs) {
      arguments.push_back(value.handle());
      names.push_back(name.c_str());
    }
    fl_object* result = nullptr;
    c10::check(fl_object_call(owner_.handle(), name_.c_str(), arguments.data(), names.data(),
                              arguments.size(), &result));
    return IValue::adopt(result);
  }
  const std::string& name() const { return name_; }

 private:
  IValue owner_;
  std::string name_;
};

// A module of an archive. Copies share it.
class Module {
 public:
  Module() = default;
  explicit Module(IValue value) : value_(std::move(value)) {}

  IValue forward(const std::vector<IValue>& inputs, const Kwargs& kwargs = {}) const {
    return Method(value_, "forward")(inputs, kwargs);
  }
  IValue operator()(const std::vector<IValue>& inputs) const { return forward(inputs); }
  template <class... A>
  IValue run_method(const std::string& name, A&&... arguments) const {
    return Method(value_, name)({IValue(std::forward<A>(arguments))...});
  }

  std::optional<Method> find_method(const std::string& name) const {
    for (const std::string& known : names(FL_NAMES_METHODS))
      if (known == name) return Method(value_, name);
    return std::nullopt;
  }
  Method get_method(const std::string& name) const {
    if (auto method = find_method(name)) return *method;
    throw c10::Error("[jit] expected a method of the module, got " + name);
  }
  std::vector<Method> get_methods() const {
    std::vector<Method> all;
    for (const std::string& name : names(FL_NAMES_METHODS)) all.emplace_back(value_, name);
    return all;
  }

  IValue attr(const std::string& name) const { return value_.attr(name); }
  IValue attr(const std::string& name, IValue otherwise) const {
    return hasattr(name) ? attr(name) : otherwise;
  }
  bool hasattr(const std::string& name) const {
    for (const std::string& known : names(FL_NAMES_ATTRIBUTES))
      if (known == name) return true;
    return false;
  }
  void setattr(const std::string& name, const IValue& value) {
    c10::check(fl_object_set_attribute(value_.handle(), name.c_str(), value.handle()));
  }

  // ---------------------------------------------------------------- members

  std::vector<Named<Tensor>> named_parameters(bool recurse = true) const {
    return tensors(FL_NAMES_PARAMETERS, recurse);
  }
  std::vector<Named<Tensor>> named_buffers(bool recurse = true) const {
    return tensors(FL_NAMES_BUFFERS, recurse);
  }
  std::vector<Named<IValue>> named_attributes(bool recurse = true) const {
    std::vector<Named<IValue>> all;
    for (const Named<Module>& module : recurse ? named_modules() : std::vector<Named<Module>>{{"", *this}})
      for (const std::string& name : module.value.names(FL_NAMES_ATTRIBUTES))
        all.push_back({joined(module.name, name), module.value.attr(name)});
    return all;
  }
  std::vector<Tensor> parameters(bool recurse = true) const { return values(named_parameters(recurse)); }
  std::vector<Tensor> buffers(bool recurse = true) const { return values(named_buffers(recurse)); }
  std::vector<Named<Module>> named_children() const {
    std::vector<Named<Module>> all;
    for (const std::string& name : names(FL_NAMES_MODULES)) all.push_back({name, Module(attr(name))});
    return all;
  }
  std::vector<Module> children() const { return values(named_children()); }
  std::vector<Named<Module>> named_modules() const {
    std::vector<Named<Module>> all;
    add_modules("", all);
    return all;
  }
  std::vector<Module> modules() const { return values(named_modules()); }

  // ---------------------------------------------------------------- state

  void train(bool on = true) {
    for (Module module : modules())
      if (module.hasattr("training")) module.setattr("training", on);
  }
  void eval() { train(false); }
  bool is_training() const { return attr("training", true).toBool(); }
  void to(const Device& device, bool = false) {
    c10::check(fl_object_convert(value_.handle(), -1, device.str().c_str()));
  }
  void to(ScalarType dtype, bool = false) {
    c10::check(fl_object_convert(value_.handle(), static_cast<int>(dtype), nullptr));
  }
  void to(const Device& device, ScalarType dtype, bool = false) {
    c10::check(fl_object_convert(value_.handle(), static_cast<int>(dtype), device.str().c_str()));
  }
  void save(std::ostream& out, const ExtraFilesMap& extra_files = {}) const {
    const IValue files(std::map<std::string, std::string>(extra_files.begin(), extra_files.end()));
    c10::check(fl_script_save(value_.handle(), files.handle(), serialize::write_to_stream, &out));
  }
  void save(const std::string& path, const ExtraFilesMap& extra_files = {}) const {
    serialize::replace_file(path, [&](std::ostream& out) { save(out, extra_files); });
  }
  const IValue& _ivalue() const { return value_; }

 private:
  std::vector<std::string> names(fl_names which) const {
    std::vector<std::string> all;
    for (size_t i = 0; const char* name = fl_object_name(value_.handle(), which, i); ++i)
      all.emplace_back(name);
    return all;
  }
  static std::string joined(const std::string& prefix, const std::string& name) {
    return prefix.empty() ? name : prefix + "." + name;
  }
  template <class T>
  static std::vector<T> values(const std::vector<Named<T>>& named) {
    std::vector<T> all;
    for (const Named<T>& one : named) all.push_back(one.value);
    return all;
  }
  void add_modules(const std::string& prefix, std::vector<Named<Module>>& all) const {
    all.push_back({prefix, *this});
    for (const Named<Module>& child : named_children())
      child.value.add_modules(joined(prefix, child.name), all);
  }
  std::vector<Named<Tensor>> tensors(fl_names which, bool recurse) const {
    std::vector<Named<Tensor>> all;
    for (const Named<Module>& module : recurse ? named_modules() : std::vector<Named<Module>>{{"", *this}})
      for (const std::string& name : module.value.names(which)) {
        const IValue value = module.value.attr(name);
        if (value.isTensor()) all.push_back({joined(module.name, name), value.toTensor()});
      }
    return all;
  }

  IValue value_;
};

namespace script {
using Module = torch::jit::Module;
using Method = torch::jit::Method;
}  // namespace script

inline Module load(const std::string& path, std::optional<Device> device = std::nullopt) {
  fl_object* module = nullptr;
  c10::check(fl_script_load(path.c_str(), &module));
  Module made(IValue::adopt(module));
  if (device) made.to(*device);
  return made;
}

// Fills in the files that are named in `extra_files`.
inline Module load(const std::string& path, std::optional<Device> device, ExtraFilesMap& extra_files) {
  for (auto& [name, content] : extra_files) {
    fl_object* found = nullptr;
    c10::check(fl_script_extra_file(path.c_str(), name.c_str(), &found));
    const IValue value = IValue::adopt(found);
    if (value.isString()) content = value.toStringRef();
  }
  return load(path, device);
}

inline Module load(std::istream& in, std::optional<Device> device = std::nullopt) {
  const std::string bytes = serialize::read_all(in);
  fl_object* module = nullptr;
  c10::check(fl_script_load_memory(bytes.data(), bytes.size(), &module));
  Module made(IValue::adopt(module));
  if (device) made.to(*device);
  return made;
}

}  // namespace torch::jit

// torch::nn::Module and its holders: parameters, buffers and submodules by name.
#pragma once

#include <flambeau/torch/functions.h>

#include <memory>
#include <string>
#include <vector>

namespace torch {

// Names with values, in the order in which they were added.
template <class Key, class T>
class OrderedDict {
 public:
  class Item {
   public:
    Item(Key key, T value) : key_(std::move(key)), value_(std::move(value)) {}
    const Key& key() const { return key_; }
    T& value() { return value_; }
    const T& value() const { return value_; }
    T& operator*() { return value_; }
    const T& operator*() const { return value_; }
    T* operator->() { return &value_; }
    const T* operator->() const { return &value_; }

   private:
    Key key_;
    T value_;
  };
  T& insert(Key key, T value) {
    items_.emplace_back(std::move(key), std::move(value));
    return items_.back().value();
  }
  const T* find(const Key& key) const {
    for (const Item& item : items_)
      if (item.key() == key) return &item.value();
    return nullptr;
  }
  T* find(const Key& key) { return const_cast<T*>(static_cast<const OrderedDict*>(this)->find(key)); }
  bool contains(const Key& key) const { return find(key) != nullptr; }
  const T& operator[](const Key& key) const {
    const T* found = find(key);
    if (!found) throw c10::IndexError(c10::str("[OrderedDict] expected a known key, got ", key));
    return *found;
  }
  T& operator[](const Key& key) { return const_cast<T&>(static_cast<const OrderedDict&>(*this)[key]); }
  std::vector<Key> keys() const {
    std::vector<Key> all;
    for (const Item& item : items_) all.push_back(item.key());
    return all;
  }
  std::vector<T> values() const {
    std::vector<T> all;
    for (const Item& item : items_) all.push_back(item.value());
    return all;
  }
  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  size_t size() const { return items_.size(); }
  bool is_empty() const { return items_.empty(); }

 private:
  std::vector<Item> items_;
};

namespace nn {

template <class Contained>
class ModuleHolder;

class Module : public std::enable_shared_from_this<Module> {
 public:
  Module() = default;
  explicit Module(std::string name) : name_(std::move(name)) {}
  virtual ~Module() = default;

  const std::string& name() const { return name_; }
  std::vector<Tensor> parameters(bool recurse = true) const { return named_parameters(recurse).values(); }
  OrderedDict<std::string, Tensor> named_parameters(bool recurse = true) const {
    OrderedDict<std::string, Tensor> all;
    collect(all, "", recurse, &Module::parameters_);
    return all;
  }
  std::vector<Tensor> buffers(bool recurse = true) const { return named_buffers(recurse).values(); }
  OrderedDict<std::string, Tensor> named_buffers(bool recurse = true) const {
    OrderedDict<std::string, Tensor> all;
    collect(all, "", recurse, &Module::buffers_);
    return all;
  }
  std::vector<std::shared_ptr<Module>> children() const { return children_.values(); }
  const OrderedDict<std::string, std::shared_ptr<Module>>& named_children() const { return children_; }
  std::vector<std::shared_ptr<Module>> modules() const {
    std::vector<std::shared_ptr<Module>> all;
    for (const auto& child : children_) {
      all.push_back(child.value());
      for (const auto& below : child.value()->modules()) all.push_back(below);
    }
    return all;
  }

  virtual void train(bool on = true) {
    for (auto& child : children_) child.value()->train(on);
    training_ = on;
  }
  void eval() { train(false); }
  bool is_training() const { return training_; }
  virtual void zero_grad(bool set_to_none = true) {
    for (const Tensor& p : parameters()) {
      if (!p.grad().defined()) continue;
      if (set_to_none)
        p.set_grad(Tensor());
      else
        p.grad().zero_();
    }
  }
  void to(const TensorOptions& options, bool = false) {
    if (!options.has_dtype()) return;
    torch::NoGradGuard guard;
    convert(options.dtype());
  }
  void to(Device, bool = false) {}
  void to(DeviceType, bool = false) {}
  void to(ScalarType dtype, bool = false) { to(TensorOptions(dtype)); }
  void apply(const std::function<void(Module&)>& function) {
    for (auto& child : children_) child.value()->apply(function);
    function(*this);
  }

  Tensor& register_parameter(std::string name, Tensor tensor, bool requires_grad = true) {
    if (tensor.defined() && requires_grad) tensor.requires_grad_();
    return parameters_.insert(std::move(name), std::move(tensor));
  }
  Tensor& register_buffer(std::string name, Tensor tensor) {
    return buffers_.insert(std::move(name), std::move(tensor));
  }
  template <class M>
  std::shared_ptr<M> register_module(std::string name, std::shared_ptr<M> module) {
    children_.insert(std::move(name), module);
    return module;
  }
  template <class M>
  std::shared_ptr<M> register_module(std::string name, ModuleHolder<M> holder) {
    return register_module(std::move(name), holder.ptr());
  }
  virtual void pretty_print(std::ostream& out) const { out << (name_.empty() ? "Module" : name_); }

 private:
  using Dict = OrderedDict<std::string, Tensor>;
  void collect(Dict& all, const std::string& prefix, bool recurse, Dict Module::* which) const {
    for (const auto& item : this->*which)
      if (item.value().defined()) all.insert(prefix + item.key(), item.value());
    if (!recurse) return;
    for (const auto& child : children_)
      child.value()->collect(all, prefix + child.key() + ".", recurse, which);
  }
  void convert(ScalarType dtype) {
    for (Dict Module::* which : {&Module::parameters_, &Module::buffers_})
      for (auto& item : this->*which) {
        Tensor& t = item.value();
        if (!t.defined() || !t.is_floating_point()) continue;
        const bool wants = t.requires_grad();
        t = t.detach().to(dtype);
        if (wants) t.requires_grad_();
      }
    for (auto& child : children_) child.value()->convert(dtype);
  }

  OrderedDict<std::string, Tensor> parameters_, buffers_;
  OrderedDict<std::string, std::shared_ptr<Module>> children_;
  std::string name_;
  bool training_ = true;
};

inline std::ostream& operator<<(std::ostream& out, const Module& module) {
  module.pretty_print(out);
  for (const auto& child : module.named_children()) {
    std::ostringstream text;
    text << *child.value();
    out << "\n  (" << child.key() << "): " << text.str();
  }
  return out;
}

// A shared pointer to a module that constructs what it holds.
template <class Contained>
class ModuleHolder {
 public:
  using ContainedType = Contained;
  ModuleHolder() : module_(make_default()) {}
  ModuleHolder(std::nullptr_t) {}
  ModuleHolder(std::shared_ptr<Contained> module) : module_(std::move(module)) {}
  template <class First, class... Rest,
            std::enable_if_t<!std::is_base_of_v<ModuleHolder, std::decay_t<First>> &&
                                 !std::is_same_v<std::decay_t<First>, std::nullptr_t> &&
                                 !std::is_convertible_v<First, std::shared_ptr<Contained>>,
                             int> = 0>
  explicit ModuleHolder(First&& first, Rest&&... rest)
      : module_(std::make_shared<Contained>(std::forward<First>(first), std::forward<Rest>(rest)...)) {}

  Contained* operator->() const { return get(); }
  Contained& operator*() const { return *get(); }
  Contained* get() const {
    if (!module_) throw c10::Error("[module] expected a module, got an empty holder");
    return module_.get();
  }
  const std::shared_ptr<Contained>& ptr() const { return module_; }
  bool is_empty() const { return module_ == nullptr; }
  explicit operator bool() const { return !is_empty(); }
  template <class... A>
  auto operator()(A&&... a) const {
    return get()->forward(std::forward<A>(a)...);
  }

 private:
  static std::shared_ptr<Contained> make_default() {
    if constexpr (std::is_default_constructible_v<Contained>)
      return std::make_shared<Contained>();
    else
      return nullptr;
  }
  std::shared_ptr<Contained> module_;
};
template <class Contained>
std::ostream& operator<<(std::ostream& out, const ModuleHolder<Contained>& holder) {
  return out << static_cast<const Module&>(*holder);
}

// A module that can be copied is one that derives from this.
template <class Derived>
class Cloneable : public Module {
 public:
  using Module::Module;
};

}  // namespace nn
}  // namespace torch

#define TORCH_MODULE_IMPL(Name, ImplType)                  \
  class Name : public torch::nn::ModuleHolder<ImplType> {  \
   public:                                                 \
    using torch::nn::ModuleHolder<ImplType>::ModuleHolder; \
    Name(const Name&) = default;                           \
    Name(Name&&) = default;                                \
    Name& operator=(const Name&) = default;                \
    Name& operator=(Name&&) = default;                     \
    using Impl [[maybe_unused]] = ImplType;                \
  }
#define TORCH_MODULE(Name) TORCH_MODULE_IMPL(Name, Name##Impl)

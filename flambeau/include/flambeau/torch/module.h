// torch::nn::Module and its holders: parameters, buffers and submodules by name.
#pragma once

#include <flambeau/torch/functions.h>

#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <typeinfo>
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
  const std::vector<Item>& items() const { return items_; }
  Item& front() { return items_.front(); }
  Item& back() { return items_.back(); }
  void clear() { items_.clear(); }
  void erase(const Key& key) {
    for (auto at = items_.begin(); at != items_.end(); ++at)
      if (at->key() == key) return void(items_.erase(at));
  }
  template <class Other>
  void update(const Other& other) {
    for (const auto& item : other) insert(item.key(), item.value());
  }

 private:
  std::vector<Item> items_;
};
namespace serialize {
class InputArchive;
class OutputArchive;
}  // namespace serialize

namespace nn {

template <class Contained>
class ModuleHolder;

// What a module behind a holder is, and what a module is itself.
template <class M, class = void>
struct ImplOf {
  using type = M;
};
template <class M>
struct ImplOf<M, std::void_t<typename M::ContainedType>> {
  using type = typename M::ContainedType;
};

class Module : public std::enable_shared_from_this<Module> {
 public:
  Module() = default;
  Module(const Module&) = default;
  Module& operator=(const Module&) = default;
  explicit Module(std::string name) : name_(std::move(name)) {}
  virtual ~Module() = default;

  // The class, where it was given no other name.
  const std::string& name() const {
    if (name_.empty()) {
      char* text = abi::__cxa_demangle(typeid(*this).name(), nullptr, nullptr, nullptr);
      name_ = text ? text : "Module";
      std::free(text);
    }
    return name_;
  }
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
  std::vector<std::shared_ptr<Module>> modules(bool include_self = true) const {
    return named_modules("", include_self).values();
  }
  OrderedDict<std::string, std::shared_ptr<Module>> named_modules(const std::string& prefix = "",
                                                                  bool include_self = true) const {
    OrderedDict<std::string, std::shared_ptr<Module>> all;
    if (include_self) {
      std::shared_ptr<const Module> self = weak_from_this().lock();
      if (!self)
        throw c10::Error(
            "[modules] expected a module in a shared_ptr, got one on the stack; include_self=false leaves it "
            "out");
      all.insert(prefix, std::const_pointer_cast<Module>(self));
    }
    collect_modules(all, prefix);
    return all;
  }
  // The module as one of its class, or of the class behind a holder; null where it is another.
  template <class M>
  typename ImplOf<M>::type* as() noexcept {
    return dynamic_cast<typename ImplOf<M>::type*>(this);
  }
  template <class M>
  const typename ImplOf<M>::type* as() const noexcept {
    return dynamic_cast<const typename ImplOf<M>::type*>(this);
  }
  // Another module with the same values. Classes that derive from Cloneable have one.
  virtual std::shared_ptr<Module> clone(const std::optional<Device>& = std::nullopt) const {
    throw c10::NotImplementedError(
        c10::str("[clone] expected a class that derives from torch::nn::Cloneable, got ", name()));
  }
  virtual void save(serialize::OutputArchive& archive) const;
  virtual void load(serialize::InputArchive& archive);
  virtual bool is_serializable() const { return true; }

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
  virtual void to(Device device, ScalarType dtype, bool = false) {
    move(device);
    convert(dtype);
  }
  virtual void to(ScalarType dtype, bool = false) { convert(dtype); }
  virtual void to(Device device, bool = false) { move(device); }
  void to(DeviceType device, bool = false) { to(Device(device)); }
  void to(const TensorOptions& options, bool = false) {
    if (options.has_device()) move(options.device());
    if (options.has_dtype()) convert(options.dtype());
  }
  void apply(const std::function<void(Module&)>& function) {
    function(*this);
    for (auto& child : children_) child.value()->apply(function);
  }
  void apply(const std::function<void(const Module&)>& function) const {
    function(*this);
    for (const auto& child : children_) std::as_const(*child.value()).apply(function);
  }
  void apply(const std::function<void(const std::string&, Module&)>& function,
             const std::string& prefix = "") {
    function(prefix, *this);
    for (auto& child : children_)
      child.value()->apply(function, prefix.empty() ? child.key() : prefix + "." + child.key());
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
  template <class M>
  std::shared_ptr<M> replace_module(const std::string& name, std::shared_ptr<M> module) {
    children_[name] = module;
    return module;
  }
  template <class M>
  std::shared_ptr<M> replace_module(const std::string& name, ModuleHolder<M> holder) {
    return replace_module(name, holder.ptr());
  }
  void unregister_module(const std::string& name) { children_.erase(name); }
  virtual void pretty_print(std::ostream& out) const { out << name(); }
  void print_into(std::ostream& out, const std::string& indentation) const {
    pretty_print(out);
    if (children_.is_empty()) return;
    out << "(\n";
    for (const auto& child : children_) {
      out << indentation << "  (" << child.key() << "): ";
      child.value()->print_into(out, indentation + "  ");
      out << '\n';
    }
    out << indentation << ")";
  }

 protected:
  // Of a copy: what it shares with the module that it was copied from.
  void forget_members() {
    parameters_.clear();
    buffers_.clear();
    children_.clear();
  }
  // Takes over values, and what training and gradients are set to, from a module of the same structure.
  void take_state(const Module& from) {
    torch::NoGradGuard guard;
    training_ = from.training_;
    const auto take = [&](Dict& mine, const Dict& theirs) {
      if (mine.size() != theirs.size())
        throw c10::Error(c10::str("[clone] expected reset() of ", name(), " to register ", theirs.size(),
                                  " parameters or buffers, got ", mine.size()));
      for (const auto& item : theirs) {
        Tensor& t = mine[item.key()];
        if (!item.value().defined()) continue;
        const bool wants = item.value().requires_grad();
        if (t.requires_grad()) t.requires_grad_(false);
        t.set_data(item.value().detach().clone());
        t.requires_grad_(wants);
      }
    };
    take(parameters_, from.parameters_);
    take(buffers_, from.buffers_);
    if (children_.size() != from.children_.size())
      throw c10::Error(c10::str("[clone] expected reset() of ", name(), " to register ",
                                from.children_.size(), " modules, got ", children_.size()));
    for (const auto& child : from.children_) children_[child.key()]->take_state(*child.value());
  }

 private:
  void collect_modules(OrderedDict<std::string, std::shared_ptr<Module>>& all,
                       const std::string& prefix) const {
    for (const auto& child : children_) {
      const std::string path = prefix.empty() ? child.key() : prefix + "." + child.key();
      all.insert(path, child.value());
      child.value()->collect_modules(all, path);
    }
  }
  using Dict = OrderedDict<std::string, Tensor>;
  void collect(Dict& all, const std::string& prefix, bool recurse, Dict Module::* which) const {
    for (const auto& item : this->*which)
      if (item.value().defined()) all.insert(prefix + item.key(), item.value());
    if (!recurse) return;
    for (const auto& child : children_)
      child.value()->collect(all, prefix + child.key() + ".", recurse, which);
  }
  // Gives parameters and buffers other data, and gradients as well.
  template <class F>
  void replace_data(const F& changed) {
    for (Dict Module::* which : {&Module::parameters_, &Module::buffers_})
      for (auto& item : this->*which) {
        const Tensor& t = item.value();
        if (!t.defined()) continue;
        const Tensor gradient = t.grad();
        t.set_data(changed(t.detach()));
        if (gradient.defined()) t.set_grad(changed(gradient.detach()));
      }
    for (auto& child : children_) child.value()->replace_data(changed);
  }
  void convert(ScalarType dtype) {
    replace_data([&](const Tensor& t) { return t.is_floating_point() ? t.to(dtype) : t; });
  }
  void move(const Device& device) {
    replace_data([&](const Tensor& t) { return t.to(device); });
  }

  OrderedDict<std::string, Tensor> parameters_, buffers_;
  OrderedDict<std::string, std::shared_ptr<Module>> children_;
  mutable std::string name_;
  bool training_ = true;
};

inline std::ostream& operator<<(std::ostream& out, const Module& module) {
  module.print_into(out, "");
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
  template <class I>
  decltype(auto) operator[](I&& index) const {
    return (*get())[std::forward<I>(index)];
  }
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

// A module that can be copied: `reset` registers everything anew.
template <class Derived>
class Cloneable : public Module {
 public:
  using Module::Module;
  virtual void reset() = 0;
  std::shared_ptr<Module> clone(const std::optional<Device>& = std::nullopt) const override {
    torch::NoGradGuard guard;
    const auto copy = std::make_shared<Derived>(static_cast<const Derived&>(*this));
    auto& fresh = static_cast<Cloneable&>(*copy);
    fresh.forget_members();
    copy->reset();
    fresh.take_state(*this);
    return copy;
  }
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

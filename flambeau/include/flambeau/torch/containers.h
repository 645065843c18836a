// Modules of modules: Sequential, ModuleList, ModuleDict, and lists of parameters.
#pragma once

#include <flambeau/torch/module.h>

#include <any>
#include <type_traits>

namespace torch::nn {

// A value of any type, as it goes from one step of a Sequential to the next.
class AnyValue {
 public:
  template <class T, std::enable_if_t<!std::is_same_v<std::decay_t<T>, AnyValue>, int> = 0>
  explicit AnyValue(T&& value) : value_(std::forward<T>(value)) {}
  template <class T>
  T* try_get() {
    return std::any_cast<T>(&value_);
  }
  template <class T>
  T get() {
    if (T* held = try_get<T>()) return *held;
    throw c10::TypeError(c10::str("[AnyValue] expected a value of the type ", typeid(T).name(),
                                  ", got one of ", value_.type().name()));
  }

 private:
  std::any value_;
};

namespace detail {

// The parameters of a forward that is neither overloaded nor a template.
template <class F>
struct Signature;
template <class M, class R, class... A>
struct Signature<R (M::*)(A...)> {
  using Result = R;
  using Arguments = std::tuple<std::decay_t<A>...>;
};
template <class M, class R, class... A>
struct Signature<R (M::*)(A...) const> : Signature<R (M::*)(A...)> {};
template <class M, class = void>
struct ForwardOf {  // of one tensor
  using Result = Tensor;
  using Arguments = std::tuple<Tensor>;
};
template <class M>
struct ForwardOf<M, std::void_t<decltype(&M::forward)>> : Signature<decltype(&M::forward)> {};

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

// Defaults that a module declares by FORWARD_HAS_DEFAULT_ARGS.
template <class M, class = void>
struct DefaultsOf {
  static std::vector<std::pair<unsigned, AnyValue>> of(const M&) { return {}; }
};
template <class M>
struct DefaultsOf<M, std::void_t<decltype(std::declval<const M&>().forward_defaults())>> {
  static std::vector<std::pair<unsigned, AnyValue>> of(const M& module) { return module.forward_defaults(); }
};

template <class T, class M>
T argument(const M& module, std::vector<AnyValue>& given, size_t i) {
  if (i < given.size()) {
    if constexpr (IsOptional<T>::value)
      if (auto* held = given[i].try_get<typename T::value_type>()) return *held;
    return given[i].get<T>();
  }
  for (auto& [place, value] : DefaultsOf<M>::of(module))
    if (place == i) return value.template get<T>();
  if constexpr (std::is_same_v<T, Tensor> || IsOptional<T>::value) {
    if (i > 0) return T();
  }
  throw c10::Error(c10::str("[AnyModule] expected argument ", i, " of forward of ", module.name(), ", got ",
                            given.size(), " arguments"));
}

template <class M, size_t... I>
AnyValue call_forward(M& module, std::vector<AnyValue>& given, std::index_sequence<I...>) {
  using Arguments = typename ForwardOf<M>::Arguments;
  if (given.size() > sizeof...(I))
    throw c10::Error(c10::str("[AnyModule] expected at most ", sizeof...(I), " arguments of forward of ",
                              module.name(), ", got ", given.size()));
  return AnyValue(module.forward(argument<std::tuple_element_t<I, Arguments>>(module, given, I)...));
}

template <class M>
std::true_type holds(const ModuleHolder<M>*);
std::false_type holds(...);

}  // namespace detail

// Whether a class is a holder of a module.
template <class F>
constexpr bool is_holder = decltype(detail::holds(static_cast<std::decay_t<F>*>(nullptr)))::value;

// Any module with a forward.
class AnyModule {
 public:
  AnyModule() = default;
  template <class M, std::enable_if_t<std::is_base_of_v<Module, M>, int> = 0>
  AnyModule(std::shared_ptr<M> module)
      : module_(module), run_([](Module& m, std::vector<AnyValue>& given) {
          using Arguments = typename detail::ForwardOf<M>::Arguments;
          return detail::call_forward(dynamic_cast<M&>(m), given,
                                      std::make_index_sequence<std::tuple_size_v<Arguments>>());
        }) {}
  template <class M>
  AnyModule(const ModuleHolder<M>& holder) : AnyModule(holder.ptr()) {}
  template <class M, std::enable_if_t<std::is_base_of_v<Module, std::decay_t<M>>, int> = 0>
  AnyModule(M&& module) : AnyModule(std::make_shared<std::decay_t<M>>(std::forward<M>(module))) {}

  AnyValue any_forward(std::vector<AnyValue> given) const {
    if (!module_) throw c10::Error("[AnyModule] expected a module, got none");
    return run_(*module_, given);
  }
  template <class R = Tensor, class... A>
  R forward(A&&... a) const {
    std::vector<AnyValue> given;
    (given.emplace_back(std::decay_t<A>(std::forward<A>(a))), ...);
    return any_forward(std::move(given)).template get<R>();
  }
  template <class M>
  typename ImplOf<M>::type& get() const {
    auto* held = module_ ? module_->as<M>() : nullptr;
    if (!held)
      throw c10::TypeError("[AnyModule] expected a module of the class that is asked for, got another");
    return *held;
  }
  const std::shared_ptr<Module>& ptr() const { return module_; }
  bool is_empty() const { return module_ == nullptr; }
  AnyModule clone() const {
    AnyModule copy(*this);
    copy.module_ = module_->clone();
    return copy;
  }

 private:
  std::shared_ptr<Module> module_;
  AnyValue (*run_)(Module&, std::vector<AnyValue>&) = nullptr;
};

class NamedAnyModule {
 public:
  template <class M>
  NamedAnyModule(std::string name, M&& module) : name_(std::move(name)), module_(std::forward<M>(module)) {}
  const std::string& name() const { return name_; }
  const AnyModule& module() const { return module_; }

 private:
  std::string name_;
  AnyModule module_;
};

// A function as a module.
class FunctionalImpl : public Cloneable<FunctionalImpl> {
 public:
  using Function = std::function<Tensor(Tensor)>;
  explicit FunctionalImpl(Function function)
      : Cloneable("torch::nn::Functional"), function_(std::move(function)) {}
  template <class F, class First, class... A>
  FunctionalImpl(F function, First first, A... a)
      : FunctionalImpl(Function([=](Tensor x) { return function(x, first, a...); })) {}
  void reset() override {}
  Tensor forward(const Tensor& input) { return function_(input); }

 private:
  Function function_;
};
TORCH_MODULE(Functional);

class SequentialImpl : public Cloneable<SequentialImpl> {
 public:
  SequentialImpl() : Cloneable("torch::nn::Sequential") {}
  SequentialImpl(std::initializer_list<NamedAnyModule> modules) : SequentialImpl() {
    for (const NamedAnyModule& m : modules) push_back(m.name(), m.module());
  }
  template <class First, class... M,
            std::enable_if_t<!std::is_same_v<std::decay_t<First>, SequentialImpl>, int> = 0>
  explicit SequentialImpl(First&& first, M&&... modules) : SequentialImpl() {
    push_back(std::forward<First>(first));
    (push_back(std::forward<M>(modules)), ...);
  }
  void reset() override {}
  std::shared_ptr<Module> clone(const std::optional<Device>& = std::nullopt) const override {
    auto copy = std::make_shared<SequentialImpl>();
    const auto names = named_children().keys();
    for (size_t i = 0; i < steps_.size(); ++i) copy->push_back(names[i], steps_[i].clone());
    copy->train(is_training());
    return copy;
  }
  void push_back(std::string name, AnyModule module) {
    register_module(std::move(name), module.ptr());
    steps_.push_back(std::move(module));
  }
  void push_back(AnyModule module) { push_back(std::to_string(steps_.size()), std::move(module)); }
  void push_back(const NamedAnyModule& m) { push_back(m.name(), m.module()); }
  // A module, a holder, or a function without parameters of its own, such as torch::relu.
  template <class M, std::enable_if_t<!std::is_same_v<std::decay_t<M>, AnyModule> &&
                                          !std::is_same_v<std::decay_t<M>, NamedAnyModule>,
                                      int> = 0>
  void push_back(M&& module) {
    push_back(std::to_string(steps_.size()), std::forward<M>(module));
  }
  template <class M, std::enable_if_t<!std::is_same_v<std::decay_t<M>, AnyModule>, int> = 0>
  void push_back(std::string name, M&& module) {
    if constexpr (std::is_convertible_v<M&&, AnyModule>)
      push_back(std::move(name), AnyModule(std::forward<M>(module)));
    else
      push_back(std::move(name), AnyModule(std::make_shared<FunctionalImpl>(std::forward<M>(module))));
  }
  template <class R = Tensor, class... A>
  R forward(A&&... a) {
    if (steps_.empty()) throw c10::Error("[Sequential] expected modules, got none");
    std::vector<AnyValue> given;
    (given.emplace_back(std::decay_t<A>(std::forward<A>(a))), ...);
    AnyValue value = steps_[0].any_forward(std::move(given));
    for (size_t i = 1; i < steps_.size(); ++i) value = steps_[i].any_forward({std::move(value)});
    return value.template get<R>();
  }
  void extend(const SequentialImpl& other) {
    for (const AnyModule& step : other.steps_) push_back(step);
  }
  size_t size() const { return steps_.size(); }
  bool is_empty() const { return steps_.empty(); }
  std::shared_ptr<Module> ptr(size_t i) const { return at_place(i).ptr(); }
  std::shared_ptr<Module> operator[](size_t i) const { return ptr(i); }
  template <class M>
  typename ImplOf<M>::type& at(size_t i) const {
    return at_place(i).template get<M>();
  }
  auto begin() { return steps_.begin(); }
  auto end() { return steps_.end(); }
  auto begin() const { return steps_.begin(); }
  auto end() const { return steps_.end(); }

 private:
  const AnyModule& at_place(size_t i) const {
    if (i >= steps_.size())
      throw c10::IndexError(c10::str("[Sequential] expected an index below ", steps_.size(), ", got ", i));
    return steps_[i];
  }
  std::vector<AnyModule> steps_;
};

class Sequential : public ModuleHolder<SequentialImpl> {
 public:
  using ModuleHolder<SequentialImpl>::ModuleHolder;
  using Impl [[maybe_unused]] = SequentialImpl;
  Sequential() = default;
  Sequential(std::initializer_list<NamedAnyModule> modules)
      : ModuleHolder(std::make_shared<SequentialImpl>(modules)) {}
};

// ---------------------------------------------------------------- lists and dictionaries

template <class M>
std::shared_ptr<Module> as_module(M&& module) {
  using Plain = std::decay_t<M>;
  if constexpr (is_holder<Plain>)
    return module.ptr();
  else if constexpr (std::is_convertible_v<M&&, std::shared_ptr<Module>>)
    return std::forward<M>(module);
  else
    return std::make_shared<Plain>(std::forward<M>(module));
}

class ModuleListImpl : public Cloneable<ModuleListImpl> {
 public:
  ModuleListImpl() : Cloneable("torch::nn::ModuleList") {}
  template <class First, class... M,
            std::enable_if_t<!std::is_same_v<std::decay_t<First>, ModuleListImpl>, int> = 0>
  explicit ModuleListImpl(First&& first, M&&... modules) : ModuleListImpl() {
    push_back(std::forward<First>(first));
    (push_back(std::forward<M>(modules)), ...);
  }
  void reset() override {}
  std::shared_ptr<Module> clone(const std::optional<Device>& = std::nullopt) const override {
    auto copy = std::make_shared<ModuleListImpl>();
    for (const auto& module : modules_) copy->push_back(module->clone());
    copy->train(is_training());
    return copy;
  }
  template <class M>
  void push_back(M&& module) {
    modules_.push_back(as_module(std::forward<M>(module)));
    register_module(std::to_string(modules_.size() - 1), modules_.back());
  }
  void extend(const ModuleListImpl& other) {
    for (const auto& module : other.modules_) push_back(module);
  }
  size_t size() const { return modules_.size(); }
  bool is_empty() const { return modules_.empty(); }
  std::shared_ptr<Module> ptr(size_t i) const { return modules_.at(i); }
  std::shared_ptr<Module> operator[](size_t i) const { return ptr(i); }
  template <class M>
  typename ImplOf<M>::type& at(size_t i) const {
    auto* module = ptr(i)->as<M>();
    if (!module)
      throw c10::TypeError("[ModuleList] expected a module of the class that is asked for, got another");
    return *module;
  }
  auto begin() { return modules_.begin(); }
  auto end() { return modules_.end(); }
  auto begin() const { return modules_.begin(); }
  auto end() const { return modules_.end(); }

 private:
  std::vector<std::shared_ptr<Module>> modules_;
};
TORCH_MODULE(ModuleList);

class ModuleDictImpl : public Cloneable<ModuleDictImpl> {
 public:
  using Items = std::vector<std::pair<std::string, std::shared_ptr<Module>>>;
  ModuleDictImpl() : Cloneable("torch::nn::ModuleDict") {}
  explicit ModuleDictImpl(const Items& items) : ModuleDictImpl() { update(items); }
  void reset() override {}
  std::shared_ptr<Module> clone(const std::optional<Device>& = std::nullopt) const override {
    auto copy = std::make_shared<ModuleDictImpl>();
    for (const auto& item : named_children()) copy->insert(item.key(), item.value()->clone());
    copy->train(is_training());
    return copy;
  }
  template <class M>
  void insert(const std::string& key, M&& module) {
    if (contains(key))
      replace_module(key, as_module(std::forward<M>(module)));
    else
      register_module(key, as_module(std::forward<M>(module)));
  }
  void update(const Items& items) {
    for (const auto& [key, module] : items) insert(key, module);
  }
  std::shared_ptr<Module> pop(const std::string& key) {
    std::shared_ptr<Module> module = (*this)[key];
    unregister_module(key);
    return module;
  }
  bool contains(const std::string& key) const { return named_children().contains(key); }
  std::shared_ptr<Module> operator[](const std::string& key) const { return named_children()[key]; }
  size_t size() const { return named_children().size(); }
  bool empty() const { return size() == 0; }
  std::vector<std::string> keys() const { return named_children().keys(); }
  std::vector<std::shared_ptr<Module>> values() const { return children(); }
  const OrderedDict<std::string, std::shared_ptr<Module>>& items() const { return named_children(); }
  auto begin() const { return named_children().begin(); }
  auto end() const { return named_children().end(); }
};
TORCH_MODULE(ModuleDict);

class ParameterListImpl : public Module {
 public:
  template <class... T>
  explicit ParameterListImpl(const T&... tensors) : Module("torch::nn::ParameterList") {
    (append(tensors), ...);
  }
  void append(const Tensor& t) { register_parameter(std::to_string(size()), t, t.requires_grad()); }
  size_t size() const { return parameters(false).size(); }
  Tensor at(size_t i) const { return parameters(false).at(i); }
  Tensor operator[](size_t i) const { return at(i); }
};
TORCH_MODULE(ParameterList);

class ParameterDictImpl : public Module {
 public:
  ParameterDictImpl() : Module("torch::nn::ParameterDict") {}
  Tensor& insert(const std::string& key, const Tensor& t) {
    return register_parameter(key, t, t.requires_grad());
  }
  bool contains(const std::string& key) const { return named_parameters(false).contains(key); }
  size_t size() const { return parameters(false).size(); }
  std::vector<std::string> keys() const { return named_parameters(false).keys(); }
  Tensor operator[](const std::string& key) const { return named_parameters(false)[key]; }
  Tensor get(const std::string& key) const { return (*this)[key]; }
};
TORCH_MODULE(ParameterDict);

}  // namespace torch::nn

// Beside forward, of a module in an AnyModule: FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(2)}).
#define FORWARD_HAS_DEFAULT_ARGS(...)                                              \
  std::vector<std::pair<unsigned, torch::nn::AnyValue>> forward_defaults() const { \
    return std::vector<std::pair<unsigned, torch::nn::AnyValue>>{__VA_ARGS__};     \
  }

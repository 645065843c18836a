// torch::save and torch::load of tensors and of the state of modules, in a format of this library: names,
// dtypes, sizes, bytes.
#pragma once

#include <flambeau/torch/ivalue.h>
#include <flambeau/torch/module.h>
#include <flambeau/torch/optim.h>

#include <algorithm>
#include <cstring>
#include <fstream>

namespace torch {
namespace serialize {

constexpr char kMagic[8] = {'F', 'L', 'S', 'T', 'A', 'T', 'E', '1'};
constexpr int64_t kMostDims = 64, kMostName = 1 << 16;

inline void write_number(std::ostream& out, int64_t value) {
  out.write(reinterpret_cast<const char*>(&value), sizeof value);
}
inline int64_t read_number(std::istream& in, int64_t least, int64_t most) {
  int64_t value = 0;
  in.read(reinterpret_cast<char*>(&value), sizeof value);
  if (!in || value < least || value > most)
    throw c10::Error("[load] expected a file that torch::save wrote, got another one");
  return value;
}

using State = OrderedDict<std::string, Tensor>;

inline void write(const State& state, std::ostream& out) {
  out.write(kMagic, sizeof kMagic);
  write_number(out, static_cast<int64_t>(state.size()));
  for (const auto& item : state) {
    const Tensor t = item.value().detach().contiguous();
    write_number(out, static_cast<int64_t>(item.key().size()));
    out.write(item.key().data(), static_cast<std::streamsize>(item.key().size()));
    write_number(out, static_cast<int64_t>(t.scalar_type()));
    write_number(out, t.dim());
    for (int64_t size : t.sizes()) write_number(out, size);
    out.write(static_cast<const char*>(t.data_ptr()), static_cast<std::streamsize>(t.nbytes()));
  }
  if (!out) throw c10::Error("[save] expected a stream that takes the bytes, got one that does not");
}

inline State read(std::istream& in) {
  char magic[sizeof kMagic] = {};
  in.read(magic, sizeof magic);
  if (!in || std::memcmp(magic, kMagic, sizeof magic) != 0)
    throw c10::Error("[load] expected a file that torch::save of this library wrote, got another one");
  State state;
  const int64_t count = read_number(in, 0, int64_t(1) << 32);
  for (int64_t i = 0; i < count; ++i) {
    std::string name(static_cast<size_t>(read_number(in, 0, kMostName)), 0);
    in.read(name.data(), static_cast<std::streamsize>(name.size()));
    const auto dtype = static_cast<ScalarType>(read_number(in, 0, FL_BFLOAT16));
    std::vector<int64_t> sizes(static_cast<size_t>(read_number(in, 0, kMostDims)));
    for (int64_t& size : sizes) size = read_number(in, 0, int64_t(1) << 40);
    Tensor t = torch::empty(sizes, dtype);
    in.read(static_cast<char*>(t.data_ptr()), static_cast<std::streamsize>(t.nbytes()));
    if (!in) throw c10::Error("[load] expected a whole file, got one that ends early");
    state.insert(std::move(name), std::move(t));
  }
  return state;
}

inline State state_of(const nn::Module& module) {
  State state = module.named_parameters();
  for (const auto& buffer : module.named_buffers()) state.insert(buffer.key(), buffer.value());
  return state;
}

inline void restore(const nn::Module& module, const State& state) {
  torch::NoGradGuard guard;
  for (const auto& item : state_of(module)) item.value().copy_(state[item.key()]);
}

inline std::ofstream output(const std::string& path) {
  std::ofstream file(path, std::ios::binary);
  if (!file) throw c10::Error(c10::str("[save] expected a file that can be written, got ", path));
  return file;
}
inline std::ifstream input(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw c10::Error(c10::str("[load] expected a file that can be read, got ", path));
  return file;
}

// Named tensors, numbers, strings and archives, for torch::save of programs' own kinds.
class OutputArchive {
 public:
  void write(const std::string& key, const Tensor& t, bool = false) { state_.insert(key, t.detach()); }
  void write(const std::string& key, const c10::IValue& value) {
    if (value.isTensor()) return write(key, value.toTensor());
    if (value.isString()) {
      const std::string text = value.toStringRef();
      std::vector<uint8_t> bytes(text.begin(), text.end());
      return write("str:" + key, torch::tensor(bytes, torch::kUInt8));
    }
    if (value.isBool()) return write(key, torch::full({}, Scalar(value.toBool()), torch::kBool));
    if (value.isInt()) return write(key, torch::full({}, Scalar(value.toInt()), torch::kInt64));
    if (value.isDouble()) return write(key, torch::full({}, Scalar(value.toDouble()), torch::kFloat64));
    throw c10::TypeError(
        c10::str("[save] expected a tensor, a number or a string for ", key, ", got another value"));
  }
  void write(const std::string& key, const OutputArchive& nested) {
    for (const auto& item : nested.state_) {
      const bool text = item.key().rfind("str:", 0) == 0;
      state_.insert((text ? "str:" : "") + key + "." + item.key().substr(text ? 4 : 0), item.value());
    }
  }
  void save_to(std::ostream& out) const { serialize::write(state_, out); }
  void save_to(const std::string& path) const {
    std::ofstream file = serialize::output(path);
    save_to(file);
  }

 private:
  State state_;
};

class InputArchive {
 public:
  bool try_read(const std::string& key, Tensor& t, bool = false) const {
    const Tensor* stored = state_.find(prefix_ + key);
    if (!stored) return false;
    if (t.defined()) {
      torch::NoGradGuard guard;
      t.copy_(*stored);
    } else {
      t = stored->clone();
    }
    return true;
  }
  void read(const std::string& key, Tensor& t, bool = false) const {
    if (!try_read(key, t)) throw missing(key);
  }
  bool try_read(const std::string& key, c10::IValue& value) const {
    if (const Tensor* text = state_.find("str:" + prefix_ + key)) {
      const auto* bytes = static_cast<const char*>(text->data_ptr());
      value = c10::IValue(std::string(bytes, static_cast<size_t>(text->numel())));
      return true;
    }
    const Tensor* stored = state_.find(prefix_ + key);
    if (!stored) return false;
    if (stored->dim() != 0)
      value = c10::IValue(*stored);
    else if (stored->scalar_type() == kBool)
      value = c10::IValue(stored->item<bool>());
    else if (stored->scalar_type() == kLong)
      value = c10::IValue(stored->item<int64_t>());
    else if (stored->scalar_type() == kDouble)
      value = c10::IValue(stored->item<double>());
    else
      value = c10::IValue(*stored);
    return true;
  }
  void read(const std::string& key, c10::IValue& value) const {
    if (!try_read(key, value)) throw missing(key);
  }
  bool try_read(const std::string& key, InputArchive& nested) const {
    nested.state_ = state_;
    nested.prefix_ = prefix_ + key + ".";
    return !nested.keys().empty();
  }
  void read(const std::string& key, InputArchive& nested) const {
    if (!try_read(key, nested)) throw missing(key);
  }
  std::vector<std::string> keys() const {
    std::vector<std::string> all;
    for (std::string key : state_.keys()) {
      if (key.rfind("str:", 0) == 0) key = key.substr(4);
      if (key.rfind(prefix_, 0) == 0) all.push_back(key.substr(prefix_.size()));
    }
    return all;
  }
  void load_from(std::istream& in) { state_ = serialize::read(in); }
  void load_from(const std::string& path) {
    std::ifstream file = serialize::input(path);
    load_from(file);
  }

 private:
  c10::Error missing(const std::string& key) const {
    return c10::Error(c10::str("[load] expected ", prefix_, key, " in the archive, got none"));
  }
  State state_;
  std::string prefix_;
};

}  // namespace serialize

inline void nn::Module::save(serialize::OutputArchive& archive) const {
  for (const auto& item : serialize::state_of(*this)) archive.write(item.key(), item.value());
}
inline void nn::Module::load(serialize::InputArchive& archive) {
  for (const auto& item : serialize::state_of(*this)) {
    Tensor t = item.value();
    archive.read(item.key(), t);
  }
}

inline void save(const Tensor& t, std::ostream& out) {
  serialize::State state;
  state.insert("tensor", t);
  serialize::write(state, out);
}
inline void load(Tensor& t, std::istream& in) {
  t = serialize::read(in)["tensor"];
}
inline void save(const std::vector<Tensor>& list, std::ostream& out) {
  serialize::State state;
  for (size_t i = 0; i < list.size(); ++i) state.insert(std::to_string(i), list[i]);
  serialize::write(state, out);
}
inline void load(std::vector<Tensor>& list, std::istream& in) {
  list = serialize::read(in).values();
}
template <class M, std::enable_if_t<std::is_base_of_v<nn::Module, M>, int> = 0>
void save(const std::shared_ptr<M>& module, std::ostream& out) {
  serialize::write(serialize::state_of(*module), out);
}
template <class M, std::enable_if_t<std::is_base_of_v<nn::Module, M>, int> = 0>
void load(std::shared_ptr<M>& module, std::istream& in) {
  serialize::restore(*module, serialize::read(in));
}
template <class M>
void save(const nn::ModuleHolder<M>& holder, std::ostream& out) {
  save(holder.ptr(), out);
}
template <class M>
void load(nn::ModuleHolder<M>& holder, std::istream& in) {
  serialize::restore(*holder, serialize::read(in));
}
template <class O, std::enable_if_t<std::is_base_of_v<optim::Optimizer, O>, int> = 0>
void save(const O& optimizer, std::ostream& out) {
  serialize::State state;
  auto& own = const_cast<O&>(optimizer);
  for (const auto& [name, list] : own.state_lists())
    for (size_t i = 0; i < list->size(); ++i)
      if ((*list)[i].defined()) state.insert(name + "." + std::to_string(i), (*list)[i]);
  if (const auto* steps = own.state_steps())
    for (size_t i = 0; i < steps->size(); ++i)
      state.insert("step." + std::to_string(i), torch::full({}, Scalar((*steps)[i]), torch::kInt64));
  serialize::write(state, out);
}
template <class O, std::enable_if_t<std::is_base_of_v<optim::Optimizer, O>, int> = 0>
void load(O& optimizer, std::istream& in) {
  const serialize::State state = serialize::read(in);
  for (const auto& item : state) {
    const size_t dot = item.key().rfind('.');
    const size_t index = dot == std::string::npos ? optimizer.size() : std::stoul(item.key().substr(dot + 1));
    if (index >= optimizer.size())
      throw c10::Error(
          c10::str("[load] expected the state of ", optimizer.size(), " parameters, got ", item.key()));
    const std::string name = item.key().substr(0, dot);
    if (name == "step" && optimizer.state_steps()) {
      optimizer.state_steps()->resize(std::max(optimizer.state_steps()->size(), index + 1));
      (*optimizer.state_steps())[index] = item.value().template item<int64_t>();
    }
    for (const auto& [known, list] : optimizer.state_lists()) {
      if (known != name) continue;
      list->resize(std::max(list->size(), index + 1));
      (*list)[index] = item.value();
    }
  }
}
template <class T>
void save(const T& value, const std::string& path) {
  std::ofstream file = serialize::output(path);
  save(value, file);
}
template <class T>
void load(T& value, const std::string& path) {
  std::ifstream file = serialize::input(path);
  load(value, file);
}

}  // namespace torch

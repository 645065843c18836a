// Archives of named tensors, values and archives, in LibTorch's format: what OutputArchive writes, LibTorch's
// InputArchive and Python's torch.jit.load read, and the other way round.
#pragma once

#include <flambeau/torch/ivalue.h>

#include <cstdio>
#include <fstream>
#include <istream>
#include <iterator>
#include <ostream>

namespace torch::serialize {

inline int write_to_stream(void* stream, const void* data, size_t size) {
  auto& out = *static_cast<std::ostream*>(stream);
  out.write(static_cast<const char*>(data), static_cast<std::streamsize>(size));
  return out ? 0 : 1;
}
inline std::string read_all(std::istream& in) {
  return std::string((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
}
// Writes a file as a whole: one of the same name, from which tensors may have been mapped, is replaced at the
// end.
template <class F>
void replace_file(const std::string& path, const F& write) {
  const std::string part = path + ".part";
  try {
    std::ofstream file(part, std::ios::binary);
    if (!file) throw c10::Error(c10::str("[save] expected a file that can be written, got ", path));
    write(file);
    file.close();
    if (!file || std::rename(part.c_str(), path.c_str()) != 0)
      throw c10::Error(c10::str("[save] expected a file that can be written, got ", path));
  } catch (...) {
    std::remove(part.c_str());
    throw;
  }
}

class OutputArchive {
 public:
  void write(const std::string& key, const c10::IValue& value) { add(key, value, FL_NAMES_ATTRIBUTES); }
  void write(const std::string& key, const Tensor& t, bool is_buffer = false) {
    if (t.defined()) add(key, t, is_buffer ? FL_NAMES_BUFFERS : FL_NAMES_PARAMETERS);
  }
  void write(const std::string& key, const OutputArchive& nested) { write(key, nested.module()); }

  void save_to(std::ostream& out) const {
    c10::check(fl_script_save(module().handle(), nullptr, write_to_stream, &out));
  }
  void save_to(const std::string& path) const {
    replace_file(path, [&](std::ostream& out) { save_to(out); });
  }

 private:
  void add(const std::string& key, c10::IValue value, fl_names kind) {
    names_.push_back(key);
    values_.push_back(std::move(value));
    kinds_.push_back(kind);
  }
  c10::IValue module() const {
    std::vector<const char*> names;
    std::vector<fl_object*> values;
    for (const std::string& name : names_) names.push_back(name.c_str());
    for (const c10::IValue& value : values_) values.push_back(value.handle());
    fl_object* module = nullptr;
    c10::check(fl_object_from_attributes(names.data(), values.data(), kinds_.data(), values.size(), &module));
    return c10::IValue::adopt(module);
  }

  std::vector<std::string> names_;
  std::vector<c10::IValue> values_;
  std::vector<fl_names> kinds_;
};

class InputArchive {
 public:
  bool try_read(const std::string& key, c10::IValue& value) const {
    for (const std::string& known : keys())
      if (known == key) {
        value = module_.attr(key);
        return true;
      }
    return false;
  }
  // A tensor that is defined gets the memory, sizes and dtype of the one in the archive, on its own device.
  bool try_read(const std::string& key, Tensor& t, bool = false) const {
    c10::IValue value;
    if (!try_read(key, value) || !value.isTensor()) return false;
    const Tensor stored = value.toTensor().detach().clone();
    if (t.defined())
      t.set_data(stored.to(t.device()));
    else
      t = stored.requires_grad_(value.toTensor().requires_grad());
    return true;
  }
  bool try_read(const std::string& key, InputArchive& nested) const {
    c10::IValue value;
    if (!try_read(key, value) || !value.isModule()) return false;
    nested.module_ = value;
    return true;
  }
  void read(const std::string& key, c10::IValue& value) const { require(key, try_read(key, value)); }
  void read(const std::string& key, Tensor& t, bool = false) const { require(key, try_read(key, t)); }
  void read(const std::string& key, InputArchive& nested) const { require(key, try_read(key, nested)); }

  std::vector<std::string> keys() const {
    std::vector<std::string> all;
    for (size_t i = 0; module_.isModule(); ++i) {
      const char* name = fl_object_name(module_.handle(), FL_NAMES_ATTRIBUTES, i);
      if (!name) break;
      all.emplace_back(name);
    }
    return all;
  }
  void load_from(const std::string& path, std::optional<Device> = std::nullopt) {
    fl_object* module = nullptr;
    c10::check(fl_script_load(path.c_str(), &module));
    module_ = c10::IValue::adopt(module);
  }
  void load_from(const char* data, size_t size, std::optional<Device> = std::nullopt) {
    fl_object* module = nullptr;
    c10::check(fl_script_load_memory(data, size, &module));
    module_ = c10::IValue::adopt(module);
  }
  void load_from(std::istream& in, std::optional<Device> = std::nullopt) {
    const std::string bytes = read_all(in);
    load_from(bytes.data(), bytes.size());
  }

 private:
  static void require(const std::string& key, bool found) {
    if (!found)
      throw c10::Error(
          c10::str("[load] expected ", key, " in the archive, got none, or a value of another kind"));
  }
  c10::IValue module_;
};

}  // namespace torch::serialize

namespace torch {

// Values without objects, as torch.save and torch.load of Python write and read them.
inline std::vector<char> pickle_save(const c10::IValue& value) {
  std::vector<char> bytes;
  c10::check(fl_pickle_save(
      value.handle(),
      [](void* all, const void* data, size_t size) {
        const char* first = static_cast<const char*>(data);
        static_cast<std::vector<char>*>(all)->insert(static_cast<std::vector<char>*>(all)->end(), first,
                                                     first + size);
        return 0;
      },
      &bytes));
  return bytes;
}
inline c10::IValue pickle_load(const std::vector<char>& bytes) {
  fl_object* value = nullptr;
  c10::check(fl_pickle_load(bytes.data(), bytes.size(), &value));
  return c10::IValue::adopt(value);
}

}  // namespace torch

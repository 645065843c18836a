// torch::save and torch::load: tensors, lists of them, modules and optimizers in archives.
#pragma once

#include <flambeau/torch/archive.h>
#include <flambeau/torch/module.h>
#include <flambeau/torch/optim.h>

namespace torch {

inline void nn::Module::save(serialize::OutputArchive& archive) const {
  for (const auto& item : named_parameters(false)) archive.write(item.key(), item.value());
  for (const auto& item : named_buffers(false)) archive.write(item.key(), item.value(), true);
  for (const auto& child : named_children()) {
    if (!child.value()->is_serializable()) continue;
    serialize::OutputArchive nested;
    child.value()->save(nested);
    archive.write(child.key(), nested);
  }
}
inline void nn::Module::load(serialize::InputArchive& archive) {
  const auto read = [&](const OrderedDict<std::string, Tensor>& tensors) {
    for (const auto& item : tensors) {
      Tensor t = item.value();
      archive.read(item.key(), t);
    }
  };
  read(named_parameters(false));
  read(named_buffers(false));
  for (const auto& child : named_children()) {
    if (!child.value()->is_serializable()) continue;
    serialize::InputArchive nested;
    archive.read(child.key(), nested);
    child.value()->load(nested);
  }
}

namespace serialize {

inline OutputArchive& operator<<(OutputArchive& archive, const Tensor& t) {
  archive.write("0", t);
  return archive;
}
inline InputArchive& operator>>(InputArchive& archive, Tensor& t) {
  archive.read("0", t);
  return archive;
}
inline OutputArchive& operator<<(OutputArchive& archive, const std::vector<Tensor>& list) {
  for (size_t i = 0; i < list.size(); ++i) archive.write(std::to_string(i), list[i]);
  return archive;
}
inline InputArchive& operator>>(InputArchive& archive, std::vector<Tensor>& list) {
  for (Tensor t; archive.try_read(std::to_string(list.size()), t); t = Tensor()) list.push_back(t);
  return archive;
}
// Modules behind a shared pointer or a holder, and optimizers.
template <class M>
auto operator<<(OutputArchive& archive, const M& module) -> decltype(module->save(archive), archive) {
  module->save(archive);
  return archive;
}
template <class M>
auto operator>>(InputArchive& archive, M& module) -> decltype(module->load(archive), archive) {
  module->load(archive);
  return archive;
}
inline OutputArchive& operator<<(OutputArchive& archive, const optim::Optimizer& optimizer) {
  optimizer.save(archive);
  return archive;
}
inline InputArchive& operator>>(InputArchive& archive, optim::Optimizer& optimizer) {
  optimizer.load(archive);
  return archive;
}

}  // namespace serialize

// Into a file, by its path, or into a stream.
template <class T, class Target>
void save(const T& value, Target&& target) {
  serialize::OutputArchive archive;
  archive << value;
  archive.save_to(std::forward<Target>(target));
}
template <class T, class... Source>
void load(T& value, Source&&... source) {
  serialize::InputArchive archive;
  archive.load_from(std::forward<Source>(source)...);
  archive >> value;
}

}  // namespace torch

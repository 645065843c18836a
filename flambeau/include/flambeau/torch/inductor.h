// Packages that were compiled ahead of time: torch::inductor::AOTIModelPackageLoader.
#pragma once

#include <flambeau/torch/functions.h>

#include <unordered_map>

namespace torch::inductor {

class AOTIModelPackageLoader {
 public:
  explicit AOTIModelPackageLoader(const std::string& path, const std::string& model_name = "model",
                                  bool run_single_threaded = false, size_t num_runners = 1,
                                  int device_index = -1) {
    (void)model_name, (void)run_single_threaded, (void)num_runners;
    c10::check(fl_load_on(path.c_str(), device_index, &model_));
  }
  AOTIModelPackageLoader(const void* data, size_t size) { c10::check(fl_load_memory(data, size, &model_)); }
  ~AOTIModelPackageLoader() { fl_model_free(model_); }
  AOTIModelPackageLoader(const AOTIModelPackageLoader&) = delete;
  AOTIModelPackageLoader& operator=(const AOTIModelPackageLoader&) = delete;

  // May be called by several threads at the same time.
  std::vector<Tensor> run(const std::vector<Tensor>& inputs, void* = nullptr) const {
    std::vector<fl_tensor*> given, made(fl_model_outputs(model_));
    for (const Tensor& t : inputs) given.push_back(t.handle());
    c10::check(fl_run_tensors(model_, given.data(), given.size(), made.data(), made.size()));
    std::vector<Tensor> outputs;
    for (fl_tensor* handle : made) outputs.push_back(Tensor::adopt(handle));
    return outputs;
  }
  std::vector<Tensor> boxed_run(std::vector<Tensor>&& inputs, void* stream = nullptr) const {
    return run(inputs, stream);
  }

  std::vector<std::string> get_constant_fqns() const {
    std::vector<std::string> names;
    for (size_t i = 0; i < fl_model_constants(model_); ++i)
      names.emplace_back(fl_model_constant_name(model_, i));
    return names;
  }
  std::vector<std::string> get_call_spec() const {
    std::vector<std::string> names;
    for (size_t i = 0; i < fl_model_inputs(model_); ++i) names.emplace_back(fl_model_input_name(model_, i));
    return names;
  }
  void load_constants(const std::unordered_map<std::string, Tensor>& constants, bool use_inactive,
                      bool check_full_update, bool user_managed = false) {
    (void)use_inactive;
    if (check_full_update && constants.size() < fl_model_constants(model_))
      throw c10::Error("[package] expected all constants, got some of them");
    update_constant_buffer(constants, user_managed);
  }
  void update_constant_buffer(const std::unordered_map<std::string, Tensor>& constants,
                              bool user_managed = false) {
    std::vector<const char*> names;
    std::vector<fl_tensor*> tensors;
    for (const auto& [name, tensor] : constants) {
      names.push_back(name.c_str());
      tensors.push_back(tensor.handle());
    }
    c10::check(fl_model_update(model_, names.data(), tensors.data(), names.size(), user_managed));
  }
  fl_model* handle() const { return model_; }

 private:
  fl_model* model_ = nullptr;
};

}  // namespace torch::inductor

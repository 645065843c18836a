// The C interface over packages and tensors, which is all that a deployed model needs: see
// flambeau/include/flambeau/flambeau.h.
#include "core/accelerator.h"
#include "core/parallel.h"
#include "runtime/c_handles.h"
#include "runtime/package.h"

using fl::Tensor;
using namespace fl::runtime;

struct fl_model {
  std::shared_ptr<Package> package;
  std::string instruction_set;
};

namespace {

template <class F>
fl_status load(fl_model** model, const F& package) {
  return guarded([&] {
    needed(model, "room for a model") = nullptr;
    std::shared_ptr<Package> loaded = package();
    std::string set = loaded->instruction_set();
    *model = new fl_model{std::move(loaded), std::move(set)};
  });
}

// Runs a model on what `tensor_of` makes of each input.
template <class Input, class Output, class F>
std::vector<Tensor> run(const fl_model* model, Input* const* inputs, size_t input_count, Output* outputs,
                        size_t output_count, std::vector<Tensor>& tensors, const F& tensor_of) {
  const Package& package = *needed(model, "a model").package;
  FL_CHECK_KIND(output_count == package.outputs().size(), Type, "[package] expected room for ",
                package.outputs().size(), " outputs, got ", output_count);
  if (output_count) needed(outputs, "room for outputs");
  tensors.reserve(input_count);
  for (size_t i = 0; i < input_count; ++i)
    tensors.push_back(tensor_of(needed(inputs ? inputs[i] : nullptr, "an input")));
  return package.run(tensors);
}

}  // namespace

namespace fl::runtime {

std::string& last_error() {
  static thread_local std::string text;
  return text;
}

fl_status status_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::Type:
      return FL_TYPE_ERROR;
    case ErrorKind::Value:
      return FL_VALUE_ERROR;
    case ErrorKind::Index:
      return FL_INDEX_ERROR;
    case ErrorKind::NotImplemented:
      return FL_NOT_IMPLEMENTED;
    case ErrorKind::OutOfMemory:
      return FL_OUT_OF_MEMORY;
    default:
      return FL_RUNTIME_ERROR;
  }
}

}  // namespace fl::runtime

extern "C" {

int fl_abi_version(void) {
  return FL_ABI_VERSION;
}
const char* fl_version(void) {
  return FLAMBEAU_VERSION;
}
const char* fl_error(void) {
  return last_error().c_str();
}
int fl_num_threads(void) {
  return static_cast<int>(fl::num_threads());
}
void fl_set_num_threads(int threads) {
  if (threads > 0) fl::set_num_threads(threads);
}

// ---------------------------------------------------------------- models

fl_status fl_load(const char* path, fl_model** model) {
  return load(model, [&] { return Package::load(path ? path : ""); });
}
fl_status fl_load_on(const char* path, int device_index, fl_model** model) {
  return load(model, [&] { return Package::load(path ? path : "", device_index); });
}
fl_status fl_load_memory(const void* data, size_t size, fl_model** model) {
  return load(model, [&] { return Package::load_memory(data, size); });
}
fl_status fl_load_static(const void* data, size_t size, fl_model** model) {
  return load(model, [&] { return Package::load_static(data, size); });
}
void fl_model_free(fl_model* model) {
  delete model;
}
size_t fl_model_inputs(const fl_model* model) {
  return model ? model->package->inputs().size() : 0;
}
size_t fl_model_outputs(const fl_model* model) {
  return model ? model->package->outputs().size() : 0;
}
const char* fl_model_input_name(const fl_model* model, size_t index) {
  return index < fl_model_inputs(model) ? model->package->inputs()[index].name.c_str() : nullptr;
}
const char* fl_model_output_name(const fl_model* model, size_t index) {
  return index < fl_model_outputs(model) ? model->package->outputs()[index].c_str() : nullptr;
}
const char* fl_model_metadata(const fl_model* model) {
  return model ? model->package->metadata().c_str() : nullptr;
}
const char* fl_model_instruction_set(const fl_model* model) {
  return model ? model->instruction_set.c_str() : nullptr;
}
size_t fl_model_constants(const fl_model* model) {
  return model ? model->package->replaceable_constants() : 0;
}
const char* fl_model_constant_name(const fl_model* model, size_t index) {
  return index < fl_model_constants(model) ? model->package->constants()[index].name.c_str() : nullptr;
}

fl_status fl_model_update(fl_model* model, const char* const* names, fl_tensor* const* tensors, size_t count,
                          int share) {
  return guarded([&] {
    std::vector<std::pair<std::string, Tensor>> constants;
    for (size_t i = 0; i < count; ++i)
      constants.emplace_back(&needed(names ? names[i] : nullptr, "a name"),
                             needed_tensor(tensors ? tensors[i] : nullptr));
    needed(model, "a model").package->update(constants, share != 0);
  });
}

fl_status fl_run_tensors(const fl_model* model, fl_tensor* const* inputs, size_t input_count,
                         fl_tensor** outputs, size_t output_count) {
  return guarded([&] {
    std::vector<Tensor> tensors;
    const std::vector<Tensor> results = run(model, inputs, input_count, outputs, output_count, tensors,
                                            [](fl_tensor& input) { return borrow(&input); });
    for (size_t i = 0; i < output_count; ++i) outputs[i] = give(results[i]);
  });
}

fl_status fl_run(const fl_model* model, DLManagedTensor* const* inputs, size_t input_count,
                 DLManagedTensor** outputs, size_t output_count) {
  return guarded([&] {
    std::vector<Tensor> tensors;
    const std::vector<Tensor> results =
        run(model, inputs, input_count, outputs, output_count, tensors,
            [](const DLManagedTensor& input) { return view_of(input.dl_tensor); });
    for (size_t i = 0; i < output_count; ++i) {
      // An output that is an input itself would point to memory of the caller.
      Tensor result = results[i];
      for (const Tensor& input : tensors)
        if (result.defined() && result->storage.get() == input->storage.get()) {
          Tensor copy = fl::empty(result.sizes(), result.options());
          copy_into(copy, result);
          result = copy;
        }
      outputs[i] = result.defined() ? export_dlpack(result) : nullptr;
    }
  });
}

// ---------------------------------------------------------------- tensors

fl_tensor* fl_tensor_retain(fl_tensor* tensor) {
  if (tensor) impl(tensor)->retain();
  return tensor;
}
void fl_tensor_release(fl_tensor* tensor) {
  if (tensor) impl(tensor)->release();
}

fl_status fl_tensor_from_blob(void* data, fl_dtype dtype, const int64_t* sizes, const int64_t* strides,
                              size_t dim, void (*deleter)(void*, void*), void* context, fl_tensor** tensor) {
  return guarded([&] {
    fl_tensor*& room = needed(tensor, "room for a tensor");
    room = give(tensor_on(data, dtype_of(dtype), sizes, strides, dim, [deleter, context](void* p) {
      if (deleter) deleter(p, context);
    }));
  });
}
fl_status fl_tensor_from_dlpack(DLManagedTensor* managed, fl_tensor** tensor) {
  return guarded([&] {
    fl_tensor*& room = needed(tensor, "room for a tensor");
    room = give(import_dlpack(managed));
  });
}
fl_status fl_tensor_to_dlpack(fl_tensor* tensor, DLManagedTensor** managed) {
  return guarded([&] {
    DLManagedTensor*& room = needed(managed, "room for a tensor");
    room = export_dlpack(needed_tensor(tensor));
  });
}

int64_t fl_tensor_dim(const fl_tensor* t) {
  return static_cast<int64_t>(impl(t)->sizes.size());
}
int64_t fl_tensor_numel(const fl_tensor* t) {
  return impl(t)->numel;
}
const int64_t* fl_tensor_sizes(const fl_tensor* t) {
  return impl(t)->sizes.data();
}
const int64_t* fl_tensor_strides(const fl_tensor* t) {
  return impl(t)->strides.data();
}
int64_t fl_tensor_offset(const fl_tensor* t) {
  return impl(t)->offset;
}
fl_dtype fl_tensor_dtype(const fl_tensor* t) {
  return number_if_any(impl(t)->dtype);
}
int fl_tensor_is_contiguous(const fl_tensor* t) {
  return impl(t)->contiguous;
}
void* fl_tensor_data(const fl_tensor* t) {
  return impl(t)->data();
}
int fl_tensor_device(const fl_tensor* t, int* index) {
  const fl::Device device = impl(t)->device;
  *index = device.index;
  return device.type == fl::DeviceType::CPU ? kDLCPU : device.type == fl::DeviceType::CUDA ? kDLCUDA : 0;
}
int fl_cuda_devices(void) {
  return fl::accelerator() ? fl::accelerator()->device_count() : 0;
}
fl_status fl_tensor_item(const fl_tensor* t, double value[2], int64_t* integer) {
  return guarded([&] {
    needed(t, "a tensor");
    FL_CHECK(impl(t)->numel == 1, "[item] expected a tensor with one element, got the shape ",
             borrow(t).sizes());
    const fl::Scalar scalar = item(borrow(t));
    value[0] = scalar.is_complex() ? scalar.re : scalar.to<double>();
    value[1] = scalar.is_complex() ? scalar.im : 0;
    *integer = scalar.is_integral() ? scalar.i : static_cast<int64_t>(value[0]);
  });
}

}  // extern "C"

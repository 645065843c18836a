#include "runtime/dlpack.h"

#include <limits>

#include "core/accelerator.h"
#include "core/error.h"

namespace fl::runtime {
namespace {

struct Row {
  DType dtype;
  fl_dtype number;
  uint8_t code, bits;
};
constexpr Row kRows[] = {
    {DType::UInt8, FL_UINT8, kDLUInt, 8},
    {DType::Int8, FL_INT8, kDLInt, 8},
    {DType::Int16, FL_INT16, kDLInt, 16},
    {DType::Int32, FL_INT32, kDLInt, 32},
    {DType::Int64, FL_INT64, kDLInt, 64},
    {DType::Half, FL_FLOAT16, kDLFloat, 16},
    {DType::Float, FL_FLOAT32, kDLFloat, 32},
    {DType::Double, FL_FLOAT64, kDLFloat, 64},
    {DType::ComplexFloat, FL_COMPLEX64, kDLComplex, 64},
    {DType::ComplexDouble, FL_COMPLEX128, kDLComplex, 128},
    {DType::Bool, FL_BOOL, kDLBool, 8},
    {DType::BFloat16, FL_BFLOAT16, kDLBfloat, 16},
};

struct Exported {
  DLManagedTensor managed{};
  Tensor tensor;
};

}  // namespace

DType dtype_of(fl_dtype number) {
  for (const Row& row : kRows)
    if (row.number == number) return row.dtype;
  fail(ErrorKind::Type, "[dtype] expected the number of a dtype, got ", static_cast<int>(number));
}

fl_dtype number_if_any(DType dtype) {
  for (const Row& row : kRows)
    if (row.dtype == dtype) return row.number;
  return static_cast<fl_dtype>(-1);
}

fl_dtype number_of(DType dtype) {
  const fl_dtype number = number_if_any(dtype);
  if (static_cast<int>(number) >= 0) return number;
  fail(ErrorKind::Type, "[dtype] expected a dtype of the C interface, got ", name_of(dtype));
}

Tensor tensor_on(void* data, DType dtype, const int64_t* sizes, const int64_t* strides, size_t dim,
                 std::function<void(void*)> deleter, Device device) {
  FL_CHECK_KIND(dim <= 64 && (dim == 0 || sizes != nullptr), Value,
                "[tensor] expected at most 64 sizes, got ", dim);
  const IntSpan shape(sizes, dim);
  const int64_t count = numel_of(shape);
  const Dims layout = strides ? Dims(IntSpan(strides, dim)) : contiguous_strides(shape);
  int64_t extent = count ? 1 : 0;
  for (size_t d = 0; d < dim && count; ++d) {
    FL_CHECK_KIND(layout[d] >= 0, Value, "[tensor] expected strides that are not negative, got ", layout[d]);
    int64_t reach = 0;
    FL_CHECK_KIND(!__builtin_mul_overflow(shape[d] - 1, layout[d], &reach) &&
                      !__builtin_add_overflow(extent, reach, &extent) &&
                      extent <= std::numeric_limits<int64_t>::max() / size_of(dtype),
                  Value, "[tensor] expected strides inside of memory, got ", layout);
  }
  FL_CHECK_KIND(data != nullptr || count == 0, Value, "[tensor] expected memory for ", count,
                " elements, got none");
  Tensor tensor = empty_strided(IntSpan(), IntSpan(), {dtype, device});
  tensor->storage =
      Storage::adopt(data, static_cast<size_t>(extent * size_of(dtype)), device, std::move(deleter));
  tensor->storage->resizable = false;
  tensor->sizes = Dims(shape);
  tensor->strides = layout;
  tensor->refresh();
  return tensor;
}

Tensor view_of(const DLTensor& t) {
  FL_CHECK(t.device.device_type == kDLCPU || t.device.device_type == kDLCUDA,
           "[dlpack] expected a tensor on the CPU or a CUDA device, got device ",
           static_cast<int>(t.device.device_type));
  Device device;
  if (t.device.device_type == kDLCUDA) {
    const int devices = the_accelerator().device_count();
    FL_CHECK(t.device.device_id >= 0 && t.device.device_id < devices, "[dlpack] expected one of ", devices,
             " CUDA devices, got ", t.device.device_id);
    device = {DeviceType::CUDA, static_cast<int8_t>(t.device.device_id)};
  }
  const Row* matching_row = nullptr;
  for (const Row& row : kRows)
    if (row.code == t.dtype.code && row.bits == t.dtype.bits) matching_row = &row;
  FL_CHECK_KIND(matching_row != nullptr && t.dtype.lanes == 1, Type,
                "[dlpack] expected a dtype of one lane, got code ", static_cast<int>(t.dtype.code), " with ",
                static_cast<int>(t.dtype.bits), " bits");
  FL_CHECK_KIND(t.ndim >= 0, Value, "[dlpack] expected a number of dimensions, got ", t.ndim);
  char* data = t.data ? static_cast<char*>(t.data) + t.byte_offset : nullptr;
  return tensor_on(
      data, matching_row->dtype, t.shape, t.strides, static_cast<size_t>(t.ndim), [](void*) {}, device);
}

Tensor import_dlpack(DLManagedTensor* managed) {
  FL_CHECK_KIND(managed != nullptr, Type, "[dlpack] expected a tensor, got none");
  Tensor tensor = view_of(managed->dl_tensor);
  tensor->storage->foreign_delete = [managed](void*) {
    if (managed->deleter) managed->deleter(managed);
  };
  return tensor;
}

DLManagedTensor* export_dlpack(const Tensor& tensor) {
  const bool on_cuda = tensor.device().type == DeviceType::CUDA;
  FL_CHECK(tensor.is_cpu() || on_cuda, "[dlpack] expected a tensor on the CPU or a CUDA device, got ",
           to_string(tensor.device()));
  const fl_dtype number = number_of(tensor.dtype());
  auto* exported = new Exported;
  exported->tensor = tensor;
  DLTensor& t = exported->managed.dl_tensor;
  t.data = tensor.raw();
  t.device = on_cuda ? DLDevice{kDLCUDA, tensor.device().index} : DLDevice{kDLCPU, 0};
  t.ndim = static_cast<int32_t>(tensor.dim());
  for (const Row& row : kRows)
    if (row.number == number) t.dtype = {row.code, row.bits, 1};
  t.shape = const_cast<int64_t*>(tensor->sizes.data());
  t.strides = const_cast<int64_t*>(tensor->strides.data());
  exported->managed.manager_ctx = exported;
  exported->managed.deleter = [](DLManagedTensor* self) { delete static_cast<Exported*>(self->manager_ctx); };
  return &exported->managed;
}

}  // namespace fl::runtime

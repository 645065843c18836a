// Tensors of the C interface: numbers of dtypes, DLPack, and memory of the caller.
#pragma once

#include <flambeau/flambeau.h>

#include <functional>

#include "core/tensor.h"

namespace fl::runtime {

DType dtype_of(fl_dtype number);
fl_dtype number_of(DType dtype);
// -1 for a dtype that the C interface does not have.
fl_dtype number_if_any(DType dtype);

// A tensor on memory of somebody else. Without strides, rows follow each other.
Tensor tensor_on(void* data, DType dtype, const int64_t* sizes, const int64_t* strides, size_t dim,
                 std::function<void(void*)> deleter, Device device = {});
// A tensor on the memory of a DLPack tensor, which must outlive it.
Tensor view_of(const DLTensor& tensor);
// Takes over what DLPack manages.
Tensor import_dlpack(DLManagedTensor* managed);
DLManagedTensor* export_dlpack(const Tensor& tensor);

}  // namespace fl::runtime

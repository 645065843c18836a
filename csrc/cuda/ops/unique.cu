// The values that are unique, where they first come and how often.
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>

#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>
#include <cub/device/device_select.cuh>

#include "cuda/ops/ordering.cuh"

namespace fl::cuda {

namespace {

// ---------------------------------------------------------------- unique values

// Whether an element is the first of a run of equal ones; a NaN equals none.
template <class K>
struct Begins {
  Keys from;
  __device__ __forceinline__ int operator()(int64_t i) const {
    if (i == 0) return 1;
    const K key = from.at<K>(i);
    return key != from.at<K>(i - 1) || (is_floating(from.dtype) && key == ~K(0));
  }
};
__global__ void __launch_bounds__(256) measure_runs(const __grid_constant__ Keys from, const int64_t* starts,
                                                    char* values, int64_t* lengths, int64_t runs, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
  if (i >= runs) return;
  from.move(values, i, starts[i]);
  lengths[i] = (i + 1 < runs ? starts[i + 1] : n) - starts[i];
}
// Which run each element belongs to, from how many runs begin up to it.
__global__ void __launch_bounds__(256)
    tell_runs(const int64_t* begun, const int64_t* places, int64_t* out, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
  if (i < n) out[places ? places[i] : i] = begun[i] - 1;
}

// Integers in order, without their places.
Tensor sorted_integers(const Tensor& flat) {
  const Tensor out = empty(flat.sizes(), flat.options());
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    const int n = static_cast<int>(flat.numel()), last = static_cast<int>(sizeof(T)) * 8;
    with_scratch("unique", flat.device().index, [&](void* scratch, size_t& bytes) {
      return cub::DeviceRadixSort::SortKeys(scratch, bytes, reinterpret_cast<const T*>(flat.raw()),
                                            reinterpret_cast<T*>(out.raw()), n, 0, last, current_stream());
    });
  };
  switch (flat.dtype()) {
    case DType::Int64:
      run(int64_t());
      break;
    case DType::Int32:
      run(int32_t());
      break;
    case DType::Int16:
      run(int16_t());
      break;
    case DType::Int8:
      run(int8_t());
      break;
    default:  // uint8 and bool
      run(uint8_t());
  }
  return out;
}

std::tuple<Tensor, Tensor, Tensor> unique(const Tensor& self, bool consecutive, bool with_inverse) {
  check_ordered("unique", self);
  const Options whole{DType::Int64, self.device()};
  const int64_t n = self.numel();
  FL_CHECK(n < int64_t(1) << 31, "[unique] expected fewer than 2**31 elements on CUDA, got ", n);
  const Tensor inverse = with_inverse ? empty(self.sizes(), whole) : empty({0}, whole);
  if (n == 0) return {empty({0}, self.options()), inverse, empty({0}, whole)};
  const int device = self.device().index;
  OnDevice on(device);
  const cudaStream_t stream = current_stream();
  Tensor flat = contiguous(self), places;
  flat = alias(flat, {n}, {1}, flat.offset());
  if (!consecutive && !with_inverse && is_integral(self.dtype(), true))
    flat = sorted_integers(flat);
  else if (!consecutive)
    std::tie(flat, places) = sort_plain(flat, 0, false);
  const Keys from(flat, false);
  const Tensor starts = empty({n}, whole), count = empty({}, whole);
  const unsigned blocks = static_cast<unsigned>((n + 255) / 256);
  by_key(flat, [&](auto key) {
    const Begins<decltype(key)> begins{from};
    const thrust::counting_iterator<int64_t> all(0);
    with_scratch("unique", device, [&](void* scratch, size_t& bytes) {
      return cub::DeviceSelect::If(scratch, bytes, all, starts.data<int64_t>(), count.data<int64_t>(), int(n),
                                   begins, stream);
    });
    if (!with_inverse) return;
    const Tensor begun = empty({n}, whole);
    const auto flags = thrust::make_transform_iterator(all, begins);
    with_scratch("unique", device, [&](void* scratch, size_t& bytes) {
      return cub::DeviceScan::InclusiveScan(scratch, bytes, flags, begun.data<int64_t>(), Sum(), int(n),
                                            stream);
    });
    launch(tell_runs, blocks, 256, stream, "unique", begun.data<int64_t>(),
           places.defined() ? places.data<int64_t>() : nullptr, inverse.data<int64_t>(), n);
  });
  const int64_t runs = item(count).to<int64_t>();
  const Tensor values = empty({runs}, self.options()), lengths = empty({runs}, whole);
  launch(measure_runs, blocks, 256, stream, "unique", from, starts.data<int64_t>(), values.raw(),
         lengths.data<int64_t>(), runs, n);
  return {values, inverse, lengths};
}
FL_CUDA_KERNEL_MIXED("_unique", unique);
}  // namespace
}  // namespace fl::cuda

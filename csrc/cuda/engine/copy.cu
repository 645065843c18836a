// Copies within a device, between devices and to and from the host, with conversion and broadcasting; fills.
#include <cuda_fp8.h>

#include <algorithm>

#include "core/float8.h"
#include "core/stored_dtypes.h"
#include "cuda/engine/complex.cuh"
#include "cuda/engine/device.cuh"
#include "cuda/engine/kernels.h"
#include "cuda/runtime/launch.h"
#include "ops/iterator.h"

namespace fl::cuda {

namespace {

struct CopyArgs {
  char* out;
  const char* in;
  int64_t n;
  DType out_dtype, in_dtype;
  int8_t out_size, in_size;
  Geometry<2> geometry;
};

// write(to, read(from)) for a thread's elements, which are all read before the first is written.
constexpr int kCopied = 4;
template <class R, class W>
__device__ __forceinline__ void copy_each(const CopyArgs& a, R read, W write) {
  const uint32_t first = blockIdx.x * (256 * kCopied) + threadIdx.x;
  char* to[kCopied];
  decltype(read(a.in)) value[kCopied];
#pragma unroll
  for (int k = 0; k < kCopied; ++k) {
    const uint32_t i = first + k * 256;
    if (i >= a.n) break;
    int64_t at[2];
    a.geometry.locate(i, at);
    to[k] = a.out + at[0];
    value[k] = read(a.in + at[1]);
  }
#pragma unroll
  for (int k = 0; k < kCopied; ++k) {
    if (first + k * 256 >= a.n) break;
    write(to[k], value[k]);
  }
}

// Elements of one size as they are.
template <class T>
__global__ void __launch_bounds__(256) copy_raw(const __grid_constant__ CopyArgs a) {
  copy_each(
      a, [](const char* from) { return *reinterpret_cast<const T*>(from); },
      [](char* to, T value) { *reinterpret_cast<T*>(to) = value; });
}

// Through a type that holds both.
template <class T>
__global__ void __launch_bounds__(256) copy_convert(const __grid_constant__ CopyArgs a) {
  copy_each(
      a, [&](const char* from) { return load<T>(from, a.in_dtype); },
      [&](char* to, T value) { store<T>(to, a.out_dtype, value); });
}

__global__ void __launch_bounds__(256) copy_complex(const __grid_constant__ CopyArgs a) {
  copy_each(
      a, [&](const char* from) { return load<Complex>(from, a.in_dtype); },
      [&](char* to, Complex z) {
        if (is_complex(a.out_dtype))
          store<Complex>(to, a.out_dtype, z);
        else
          store<double>(to, a.out_dtype,
                        a.out_dtype == DType::Bool ? double(z.real() != 0 || z.imag() != 0) : z.real());
      });
}

// From and to dtypes that are only stored, as core/stored_dtypes.h has it; complex numbers by their real
// part.
template <class T>
__device__ T load_any(const char* p, DType t) {
  if (is_float8(t)) return static_cast<T>(float8::decode(t, *reinterpret_cast<const uint8_t*>(p)));
  if (is_stored_only(t)) {
    const uint64_t value = t == DType::UInt16   ? *reinterpret_cast<const uint16_t*>(p)
                           : t == DType::UInt32 ? *reinterpret_cast<const uint32_t*>(p)
                                                : *reinterpret_cast<const uint64_t*>(p);
    return static_cast<T>(value);
  }
  if (is_complex(t)) t = t == DType::ComplexFloat ? DType::Float : DType::Double;
  return load<T>(p, t);
}
template <class T>
__device__ void store_any(char* p, DType t, T value) {
  if (is_float8(t)) {
    *reinterpret_cast<uint8_t*>(p) = float8::encode(t, static_cast<float>(value));
  } else if (is_stored_only(t)) {
    uint64_t bits;
    if constexpr (std::is_integral_v<T>)
      bits = static_cast<uint64_t>(value);
    else
      bits = value >= T(0x1p63) && value < T(0x1p64) ? static_cast<uint64_t>(value)
                                                     : static_cast<uint64_t>(static_cast<int64_t>(value));
    if (t == DType::UInt16)
      *reinterpret_cast<uint16_t*>(p) = static_cast<uint16_t>(bits);
    else if (t == DType::UInt32)
      *reinterpret_cast<uint32_t*>(p) = static_cast<uint32_t>(bits);
    else
      *reinterpret_cast<uint64_t*>(p) = bits;
  } else if (t == DType::ComplexFloat) {
    *reinterpret_cast<float2*>(p) = make_float2(static_cast<float>(value), 0);
  } else if (t == DType::ComplexDouble) {
    reinterpret_cast<double*>(p)[0] = static_cast<double>(value);
    reinterpret_cast<double*>(p)[1] = 0;
  } else {
    store<T>(p, t, value);
  }
}
template <class T>
__global__ void __launch_bounds__(256) copy_stored(const __grid_constant__ CopyArgs a) {
  copy_each(
      a, [&](const char* from) { return load_any<T>(from, a.in_dtype); },
      [&](char* to, T value) { store_any<T>(to, a.out_dtype, value); });
}

__global__ void __launch_bounds__(256) copy_vector(const __grid_constant__ CopyArgs a) {
  const int64_t first = (int64_t(blockIdx.x) * 256 + threadIdx.x) * kVector;
  if (first >= a.n) return;
  if (first + kVector <= a.n) {
    float v[kVector];
    load_vector(v, a.in + first * a.in_size, a.in_dtype);
    store_vector<float>(a.out + first * a.out_size, a.out_dtype, v);
    return;
  }
  for (int64_t i = first; i < a.n; ++i)
    store<float>(a.out + i * a.out_size, a.out_dtype, load<float>(a.in + i * a.in_size, a.in_dtype));
}

// Between the two 8-bit floats that products take and wider ones, eight at a time, by the device's own
// conversions: e4m3 stops at its largest number as they do, e5m2 goes on to infinity from half a step above.
__device__ __forceinline__ uint8_t to_float8(float x, DType t) {
  if (t == DType::Float8E4M3) return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
  const uint8_t code = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E5M2);
  return fabsf(x) >= 61440.0f ? static_cast<uint8_t>(0x7c | (x < 0 ? 0x80 : 0)) : code;
}
__device__ __forceinline__ float from_float8(uint8_t code, DType t) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(code, t == DType::Float8E4M3 ? __NV_E4M3 : __NV_E5M2)));
}
__global__ void __launch_bounds__(256) copy_float8(const __grid_constant__ CopyArgs a) {
  const int64_t first = (int64_t(blockIdx.x) * 256 + threadIdx.x) * kVector;
  if (first >= a.n) return;
  const bool from = is_float8(a.in_dtype), to = is_float8(a.out_dtype);
  const int count = static_cast<int>(a.n - first < kVector ? a.n - first : kVector);
  float v[kVector];
  if (from) {
    const char* in = a.in + first;
    uint2 w = make_uint2(0, 0);
    if (count == kVector)
      w = *reinterpret_cast<const uint2*>(in);
    else
      for (int i = 0; i < count; ++i)
        (i < 4 ? w.x : w.y) |= uint32_t(static_cast<uint8_t>(in[i])) << (i % 4 * 8);
#pragma unroll
    for (int i = 0; i < kVector; ++i)
      v[i] = from_float8((i < 4 ? w.x : w.y) >> (i % 4 * 8) & 0xff, a.in_dtype);
  } else if (count == kVector) {
    load_vector(v, a.in + first * a.in_size, a.in_dtype);
  } else {
#pragma unroll
    for (int i = 0; i < kVector; ++i)
      v[i] = i < count ? load<float>(a.in + (first + i) * a.in_size, a.in_dtype) : 0.0f;
  }
  char* out = a.out + first * a.out_size;
  if (to) {
    uint32_t w[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < kVector; ++i) w[i / 4] |= uint32_t(to_float8(v[i], a.out_dtype)) << (i % 4 * 8);
    if (count == kVector)
      *reinterpret_cast<uint2*>(out) = make_uint2(w[0], w[1]);
    else
      for (int i = 0; i < count; ++i) out[i] = static_cast<char>((i < 4 ? w[0] : w[1]) >> (i % 4 * 8));
  } else if (count == kVector) {
    store_vector<float>(out, a.out_dtype, v);
  } else {
#pragma unroll
    for (int i = 0; i < kVector; ++i)
      if (i < count) store<float>(out + i * a.out_size, a.out_dtype, v[i]);
  }
}

// Rows of bytes that lie on different places of their 16-byte words in source and destination: whole words
// are written, each made of the two that its bytes are in. A block takes kRowChunk words of a row.
constexpr int kRowChunk = 1024;
constexpr int64_t kLongRow = 256;  // bytes; shorter rows go by elements
struct RowArgs {
  char* out;
  const char* in;
  int64_t bytes;  // of a row
  Divider chunks;
  Geometry<2> outer;
};
// The 16 bytes that begin `by` bytes after the first of two words.
__device__ __forceinline__ uint4 shifted(const uint4& low, const uint4& high, uint32_t by) {
  uint32_t w[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  if (by & 8) {
#pragma unroll
    for (int i = 0; i < 6; ++i) w[i] = w[i + 2];
  }
  if (by & 4) {
#pragma unroll
    for (int i = 0; i < 5; ++i) w[i] = w[i + 1];
  }
  const uint32_t bits = (by & 3) * 8;
  return make_uint4(__funnelshift_r(w[0], w[1], bits), __funnelshift_r(w[1], w[2], bits),
                    __funnelshift_r(w[2], w[3], bits), __funnelshift_r(w[3], w[4], bits));
}
__global__ void __launch_bounds__(256) copy_rows(const __grid_constant__ RowArgs a) {
  const uint32_t row = a.chunks.divide(blockIdx.x), chunk = blockIdx.x - row * a.chunks.divisor;
  int64_t at[2];
  a.outer.locate(row, at);
  char* out = a.out + at[0];
  const char* in = a.in + at[1];
  const int64_t head = min(a.bytes, int64_t(-reinterpret_cast<uintptr_t>(out) & 15)),
                words = (a.bytes - head) / 16;
  if (chunk == 0) {  // what lies before and after the words
    const int64_t rest = a.bytes - head - words * 16, i = threadIdx.x;
    if (i < head) out[i] = in[i];
    if (i >= 32 && i - 32 < rest) out[head + words * 16 + i - 32] = in[head + words * 16 + i - 32];
  }
  const uint32_t by = reinterpret_cast<uintptr_t>(in + head) & 15;
  uint4* to = reinterpret_cast<uint4*>(out + head);
  const uint4* from = reinterpret_cast<const uint4*>(in + head - by);
  const int64_t first = int64_t(chunk) * kRowChunk + threadIdx.x;
  uint4 low[kRowChunk / 256], high[kRowChunk / 256];
#pragma unroll
  for (int k = 0; k < kRowChunk / 256; ++k) {
    const int64_t i = first + k * 256;
    if (i >= words) break;
    low[k] = from[i];
    if (by) high[k] = from[i + 1];  // without a shift it may lie beyond the row
  }
#pragma unroll
  for (int k = 0; k < kRowChunk / 256; ++k) {
    const int64_t i = first + k * 256;
    if (i >= words) break;
    to[i] = by ? shifted(low[k], high[k], by) : low[k];
  }
}

// Two dimensions whose order in memory differs: by tiles through shared memory, so that reads and writes are
// both of whole lines. The third dimension is the grid's.
struct TransposeArgs {
  char* out;
  const char* in;
  uint32_t rows, columns;      // of the source; its columns lie side by side, the result's rows do
  int64_t in_row, out_column;  // bytes
  Geometry<2> outer;
};
template <class T>
__global__ void __launch_bounds__(256) transpose(const __grid_constant__ TransposeArgs a) {
  __shared__ T tile[32][33];
  int64_t at[2];
  a.outer.locate(blockIdx.z, at);
  const uint32_t c = blockIdx.x * 32 + threadIdx.x, r0 = blockIdx.y * 32;
  for (uint32_t r = threadIdx.y; r < 32; r += 8)
    if (r0 + r < a.rows && c < a.columns)
      tile[r][threadIdx.x] = *(reinterpret_cast<const T*>(a.in + at[1] + (r0 + r) * a.in_row) + c);
  __syncthreads();
  const uint32_t row = r0 + threadIdx.x, c0 = blockIdx.x * 32;
  for (uint32_t k = threadIdx.y; k < 32; k += 8)
    if (row < a.rows && c0 + k < a.columns)
      *(reinterpret_cast<T*>(a.out + at[0] + (c0 + k) * a.out_column) + row) = tile[threadIdx.x][k];
}

template <class T>
__global__ void __launch_bounds__(256) fill_line(T* out, int64_t n, T value) {
  for (int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x; i < n; i += int64_t(gridDim.x) * 256)
    out[i] = value;
}

using CopyKernel = void (*)(const CopyArgs);

void launch_each(CopyKernel kernel, const CopyArgs& a, cudaStream_t stream) {
  constexpr int64_t kBlock = 256 * kCopied;
  launch(kernel, static_cast<unsigned>((a.n + kBlock - 1) / kBlock), 256, stream, "copy_", a);
}

CopyKernel kernel_for(DType from, DType to) {
  if (from == to) {
    CopyKernel kernel = nullptr;
    by_size(size_of(to), [&](auto word) { kernel = copy_raw<decltype(word)>; });
    return kernel;
  }
  if (is_stored_only(from) || is_stored_only(to)) {
    const DType other = is_stored_only(from) ? to : from;
    FL_CHECK_KIND(from != DType::ComplexHalf && to != DType::ComplexHalf, NotImplemented,
                  "[copy_] expected a dtype that the device converts, got complex32; convert on the CPU");
    if (is_float8(from) || is_float8(to)) return copy_stored<float>;
    return is_floating(other) || is_complex(other) ? copy_stored<double> : copy_stored<int64_t>;
  }
  if (is_complex(from) || is_complex(to)) return copy_complex;
  if (from == DType::Double || to == DType::Double) return copy_convert<double>;
  if (is_floating(from)) return copy_convert<float>;
  return is_floating(to) && from != DType::Int64 && from != DType::Int32 ? copy_convert<float>
         : is_floating(to)                                               ? copy_convert<double>
                                                                         : copy_convert<int64_t>;
}

bool vectorises(DType t) {
  return t == DType::Float || t == DType::BFloat16 || t == DType::Half;
}
bool multiplies(DType t) {
  return t == DType::Float8E4M3 || t == DType::Float8E5M2;
}
// The kernel for operands that lie alike, in whole vectors; null when there is none.
CopyKernel vector_kernel(DType from, DType to) {
  if (vectorises(from) && vectorises(to)) return copy_vector;
  const bool float8 =
      (multiplies(from) && (vectorises(to) || multiplies(to))) || (vectorises(from) && multiplies(to));
  return float8 ? copy_float8 : nullptr;
}

template <class T>
bool transposed(const StridedIterator& it) {
  const auto& out = it.operand(0);
  const auto& in = it.operand(1);
  const Dims& sizes = it.sizes();
  const int n = it.ndim();
  if (n < 2 || n - 2 > kMaxDims || out.strides[0] != int64_t(sizeof(T)) ||
      in.strides[0] == int64_t(sizeof(T)))
    return false;
  int fast = 1;
  while (fast < n && in.strides[fast] != int64_t(sizeof(T))) ++fast;
  if (fast == n || sizes[0] < 16 || sizes[fast] < 16) return false;
  TransposeArgs a;
  a.out = out.data;
  a.in = in.data;
  a.rows = static_cast<uint32_t>(sizes[0]);
  a.columns = static_cast<uint32_t>(sizes[fast]);
  a.in_row = in.strides[0];
  a.out_column = out.strides[fast];
  a.outer.ndim = 0;
  int64_t outer = 1;
  for (int d = 1; d < n; ++d) {
    if (d == fast) continue;
    a.outer.size[a.outer.ndim] = Divider(static_cast<uint32_t>(sizes[d]));
    a.outer.stride[0][a.outer.ndim] = out.strides[d];
    a.outer.stride[1][a.outer.ndim++] = in.strides[d];
    outer *= sizes[d];
  }
  const int64_t down = (a.rows + 31) / 32, across = (a.columns + 31) / 32;
  if (outer > 65535 || down > 65535) return false;
  const dim3 grid(static_cast<unsigned>(across), static_cast<unsigned>(down), static_cast<unsigned>(outer));
  launch(transpose<T>, grid, dim3(32, 8), current_stream(), "copy_", a);
  return true;
}

bool long_rows(const StridedIterator& it, int64_t item) {
  const auto& out = it.operand(0);
  const auto& in = it.operand(1);
  if (it.ndim() == 0 || out.strides[0] != item || in.strides[0] != item || it.sizes()[0] * item < kLongRow)
    return false;
  RowArgs a;
  a.out = out.data;
  a.in = in.data;
  a.bytes = it.sizes()[0] * item;
  const int64_t chunks = (a.bytes / 16 + kRowChunk - 1) / kRowChunk;
  a.chunks = Divider(static_cast<uint32_t>(chunks));
  a.outer.ndim = it.ndim() - 1;
  int64_t rows = 1;
  for (int d = 1; d < it.ndim(); ++d) {
    a.outer.size[d - 1] = Divider(static_cast<uint32_t>(it.sizes()[d]));
    a.outer.stride[0][d - 1] = out.strides[d];
    a.outer.stride[1][d - 1] = in.strides[d];
    rows *= it.sizes()[d];
  }
  launch(copy_rows, static_cast<unsigned>(rows * chunks), 256, current_stream(), "copy_", a);
  return true;
}

void copy_strided(const Tensor& dst, const Tensor& src) {
  const int64_t n = dst.numel();
  const bool alike = dst.sizes() == src.sizes() && ((dst.is_contiguous() && src.is_contiguous()) ||
                                                    (dst.strides() == src.strides() && is_dense(dst)));
  const cudaStream_t stream = current_stream();
  if (alike && dst.dtype() == src.dtype()) {
    if (dst.raw() != src.raw())
      check(cudaMemcpyAsync(dst.raw(), src.raw(), n * dst.itemsize(), cudaMemcpyDeviceToDevice, stream),
            "copy_");
    return;
  }
  CopyArgs a;
  a.out = dst.raw();
  a.in = src.raw();
  a.n = n;
  a.out_dtype = dst.dtype();
  a.in_dtype = src.dtype();
  a.out_size = static_cast<int8_t>(dst.itemsize());
  a.in_size = static_cast<int8_t>(src.itemsize());
  const CopyKernel by_vectors = alike ? vector_kernel(src.dtype(), dst.dtype()) : nullptr;
  if (by_vectors && is_aligned(a.out) && is_aligned(a.in)) {
    launch(by_vectors, static_cast<unsigned>((n + 256 * kVector - 1) / (256 * kVector)), 256, stream, "copy_",
           a);
    return;
  }
  if (n >= int64_t(1) << 31 || dst.dim() > kMaxDims) {
    // By pieces along the outermost dimension.
    const Tensor from = alias(src, src.sizes(), src.strides(), src.offset());
    const int64_t lead = dst.dim() - src.dim();
    for (int64_t i = 0; i < dst.size(0); ++i) {
      const auto row = [&](const Tensor& t) {
        return alias(t, IntSpan(t.sizes().data() + 1, t.dim() - 1),
                     IntSpan(t.strides().data() + 1, t.dim() - 1),
                     t.offset() + (t.size(0) == 1 ? 0 : i) * t.stride(0));
      };
      copy_strided(row(dst), lead > 0 ? from : row(from));
    }
    return;
  }
  StridedIterator it(dst.sizes());
  it.add(dst, dst.dtype());
  it.add(src, src.dtype());
  it.finish();
  if (dst.dtype() == src.dtype()) {
    bool done = false;
    by_size(dst.itemsize(), [&](auto word) {
      if constexpr (sizeof word > 1 && sizeof word < 16) done = transposed<decltype(word)>(it);
    });
    if (done) return;
  }
  // Rows of whole 16-byte words are moved as such.
  const int64_t item = dst.itemsize();
  if (dst.dtype() == src.dtype() && it.ndim() > 0 && item < 16 && it.operand(0).strides[0] == item &&
      it.operand(1).strides[0] == item && it.sizes()[0] * item % 16 == 0) {
    bool whole = is_aligned(a.out) && is_aligned(a.in);
    for (int d = 1; d < it.ndim(); ++d)
      whole &= it.operand(0).strides[d] % 16 == 0 && it.operand(1).strides[d] % 16 == 0;
    if (whole) {
      a.n = n * item / 16;
      a.geometry.ndim = it.ndim();
      for (int d = 0; d < it.ndim(); ++d) {
        a.geometry.size[d] = Divider(static_cast<uint32_t>(d ? it.sizes()[d] : it.sizes()[0] * item / 16));
        for (int k = 0; k < 2; ++k) a.geometry.stride[k][d] = d ? it.operand(k).strides[d] : 16;
      }
      return launch_each(copy_raw<uint4>, a, stream);
    }
  }
  if (dst.dtype() == src.dtype() && long_rows(it, item)) return;
  a.geometry.ndim = it.ndim();
  for (int d = 0; d < it.ndim(); ++d) {
    a.geometry.size[d] = Divider(static_cast<uint32_t>(it.sizes()[d]));
    for (int k = 0; k < 2; ++k) a.geometry.stride[k][d] = it.operand(k).strides[d];
  }
  launch_each(kernel_for(src.dtype(), dst.dtype()), a, stream);
}

bool pinned(const Tensor& t) {
  return the_accelerator().is_pinned(t->storage->data);
}

}  // namespace

void copy(const Tensor& dst, const Tensor& src, bool non_blocking) {
  const bool to_device = dst.device().type == DeviceType::CUDA,
             from_device = src.device().type == DeviceType::CUDA;
  FL_CHECK((to_device || dst.is_cpu()) && (from_device || src.is_cpu()),
           "[copy_] expected tensors on the CPU or a CUDA device, got ", to_string(dst.device()), " and ",
           to_string(src.device()));
  if (to_device && from_device && dst.device() == src.device()) {
    OnDevice on(dst.device().index);
    return copy_strided(dst, src);
  }
  const bool direct =
      dst.dtype() == src.dtype() && dst.sizes() == src.sizes() && dst.is_contiguous() && src.is_contiguous();
  if (to_device && from_device) {  // between devices
    Tensor near = direct ? src : empty(src.sizes(), {src.dtype(), src.device()});
    if (!direct) copy(near, src, false);
    {
      OnDevice on(src.device().index);
      check(cudaStreamSynchronize(current_stream()), "copy_");
    }
    OnDevice on(dst.device().index);
    const Tensor there = direct ? dst : empty(src.sizes(), {src.dtype(), dst.device()});
    check(cudaMemcpyPeerAsync(there.raw(), dst.device().index, near.raw(), src.device().index,
                              near.numel() * near.itemsize(), current_stream()),
          "copy_");
    if (!direct) copy_strided(dst, there);
    return;
  }
  if (to_device) {
    OnDevice on(dst.device().index);
    const Tensor host = contiguous(src);
    const Tensor there = direct ? dst : empty(host.sizes(), {host.dtype(), dst.device()});
    check(cudaMemcpyAsync(there.raw(), host.raw(), host.numel() * host.itemsize(), cudaMemcpyHostToDevice,
                          current_stream()),
          "copy_");
    if (!direct) copy_strided(dst, there);
    // Pageable memory has been read when the call returns; pinned memory is read later.
    if (pinned(host) && (!non_blocking || !host.same(src)))
      check(cudaStreamSynchronize(current_stream()), "copy_");
    return;
  }
  OnDevice on(src.device().index);
  // Convert and gather on the device, then move whole blocks.
  Tensor near = src;
  if (!src.is_contiguous() || src.dtype() != dst.dtype()) {
    const bool stored = is_stored_only(src.dtype()) || is_stored_only(dst.dtype());
    near = empty(src.sizes(), {stored ? src.dtype() : dst.dtype(), src.device()});
    copy_strided(near, src);
  }
  const bool lands = dst.is_contiguous() && dst.sizes() == src.sizes() && dst.dtype() == near.dtype();
  const Tensor host = lands ? dst : empty(near.sizes(), {near.dtype(), Device{}});
  check(cudaMemcpyAsync(host.raw(), near.raw(), near.numel() * near.itemsize(), cudaMemcpyDeviceToHost,
                        current_stream()),
        "copy_");
  if (!(non_blocking && lands && pinned(dst))) {
    check(cudaStreamSynchronize(current_stream()), "copy_");
    check_indices();
  }
  if (!lands) copy_into(dst, host);
}

void fill(const Tensor& t, const void* pattern) {
  if (t.numel() == 0) return;
  OnDevice on(t.device().index);
  const int64_t n = t.numel(), item = t.itemsize();
  const cudaStream_t stream = current_stream();
  if (!is_dense(t)) {
    Tensor one = empty({}, t.options());
    fill(one, pattern);
    return copy_strided(t, one);
  }
  bool zero = true;
  for (int64_t i = 0; i < item; ++i) zero &= static_cast<const char*>(pattern)[i] == 0;
  if (zero || item == 1) {
    check(cudaMemsetAsync(t.raw(), *static_cast<const unsigned char*>(pattern), n * item, stream), "fill_");
    return;
  }
  const unsigned blocks = static_cast<unsigned>(std::min<int64_t>((n + 255) / 256, 132 * 32));
  by_size(item, [&](auto value) {
    std::memcpy(&value, pattern, sizeof value);
    launch(fill_line<decltype(value)>, blocks, 256, stream, "fill_",
           reinterpret_cast<decltype(value)*>(t.raw()), n, value);
  });
}

}  // namespace fl::cuda

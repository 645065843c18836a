// Random numbers: each thread makes one block of Philox words and the two or four elements that it stands
// for, which are the numbers that the CPU draws (core/philox.h, math/random_math.h).
#include <map>
#include <mutex>

#include "core/philox.h"
#include "core/random.h"
#include "cuda/engine/device.cuh"
#include "cuda/engine/kernels.h"
#include "cuda/runtime/launch.h"
#include "math/random_math.h"

namespace fl::cuda {

namespace {

using namespace random_math;

struct RandomArgs {
  char* out;
  int64_t n;
  DType dtype;
  int8_t size;
  RandomCall call;
  const uint64_t* base;  // seed and offset to count from, in captured work; else null

  __device__ __forceinline__ philox::Block words(int64_t block) const {
    return base ? philox::block(base[0], base[1] + call.offset, block)
                : philox::block(call.seed, call.offset, block);
  }
};

// Numbers of float size: four to a block, sixteen apart.
template <RandomKind kKind>
__global__ void __launch_bounds__(256) random_words(const RandomArgs a) {
  const int64_t block = int64_t(blockIdx.x) * 256 + threadIdx.x;
  const int64_t first = block / philox::kLanes * philox::kGroup + block % philox::kLanes;
  if (first >= a.n) return;
  const RandomParams& p = a.call.params;
  const philox::Block b = a.words(block);
  float numbers[4];
  int64_t whole[4];
  constexpr bool integral = kKind == RandomKind::Range32 || kKind == RandomKind::Bernoulli;
  switch (kKind) {
    case RandomKind::Uniform: {
      const float low = float(p.a), high = float(p.b), range = high - low;
      const float scale = 1.0f / float(int64_t(1) << p.bits);
      for (int j = 0; j < 4; ++j) {
        const float x = unit(b.w[j], 32 - p.bits, scale) * range + low;
        numbers[j] = x < high ? x : low;
      }
      break;
    }
    case RandomKind::Normal:
    case RandomKind::LogNormal: {
      const float mean = float(p.a), deviation = float(p.b);
      for (int half = 0; half < 2; ++half) {
        const float radius =
            math::detail::sqrt_of(-2.0f * math::log(positive_unit(b.w[2 * half]))) * deviation;
        float s, c;
        sin_cos_turns(unit(b.w[2 * half + 1], 8, 0x1p-24f), s, c);
        numbers[2 * half] = radius * c + mean;
        numbers[2 * half + 1] = radius * s + mean;
      }
      if (kKind == RandomKind::LogNormal)
        for (int j = 0; j < 4; ++j) numbers[j] = math::exp(numbers[j]);
      break;
    }
    case RandomKind::Exponential: {
      const float scale = float(-1.0 / p.a);
      for (int j = 0; j < 4; ++j)
        numbers[j] = math::log((float(int32_t(b.w[j] >> 9)) + 0.5f) * 0x1p-23f) * scale;
      break;
    }
    case RandomKind::Cauchy:
      for (int j = 0; j < 4; ++j) {
        float s, c;
        sin_cos_turns((float(int32_t(b.w[j] >> 9)) + 0.5f) * 0x1p-24f, s, c);
        numbers[j] = float(p.a) + float(p.b) * (-c / s);
      }
      break;
    case RandomKind::Range32:
      for (int j = 0; j < 4; ++j) whole[j] = p.low + int64_t(b.w[j] * p.range >> 32);
      break;
    default:  // Bernoulli
      for (int j = 0; j < 4; ++j) whole[j] = p.range > 0xffffffffull || b.w[j] < uint32_t(p.range);
  }
  if (!integral && a.dtype == DType::Float && first + 3 * philox::kLanes < a.n) {
    float* out = reinterpret_cast<float*>(a.out) + first;
#pragma unroll
    for (int j = 0; j < 4; ++j) out[j * philox::kLanes] = numbers[j];
    return;
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int64_t i = first + j * philox::kLanes;
    if (i >= a.n) break;
    if (integral)
      store<int64_t>(a.out + i * a.size, a.dtype, whole[j]);
    else
      store<float>(a.out + i * a.size, a.dtype, numbers[j]);
  }
}

// Numbers of 64 bits: two to a block.
__global__ void __launch_bounds__(256) random_pairs(const RandomArgs a) {
  const int64_t block = int64_t(blockIdx.x) * 256 + threadIdx.x;
  const int64_t first = block / philox::kLanes * (philox::kGroup / 2) + block % philox::kLanes;
  if (first >= a.n) return;
  const RandomParams& p = a.call.params;
  const philox::Block b = a.words(block);
  double numbers[2];
  int64_t whole[2];
  bool integral = false;
  switch (a.call.kind) {
    case RandomKind::Uniform:
      for (int j = 0; j < 2; ++j) {
        const double x = unit(b.w[2 * j], b.w[2 * j + 1]) * (p.b - p.a) + p.a;
        numbers[j] = x < p.b ? x : p.a;
      }
      break;
    case RandomKind::Normal:
    case RandomKind::LogNormal: {
      const double radius = math::detail::sqrt_of(-2.0 * math::log(positive_unit(b.w[0], b.w[1]))) * p.b;
      double s, c;
      sin_cos_turns(unit(b.w[2], b.w[3]), s, c);
      numbers[0] = radius * c + p.a;
      numbers[1] = radius * s + p.a;
      if (a.call.kind == RandomKind::LogNormal)
        for (int j = 0; j < 2; ++j) numbers[j] = math::exp(numbers[j]);
      break;
    }
    case RandomKind::Exponential:
      for (int j = 0; j < 2; ++j)
        numbers[j] = math::log(unit(b.w[2 * j], b.w[2 * j + 1]) + 0x1p-54) * (-1.0 / p.a);
      break;
    case RandomKind::Cauchy:
      for (int j = 0; j < 2; ++j) {
        double s, c;
        sin_cos_turns((unit(b.w[2 * j], b.w[2 * j + 1]) + 0x1p-53) * 0.5, s, c);
        numbers[j] = p.a + p.b * (-c / s);
      }
      break;
    case RandomKind::Geometric: {
      const double scale = 1.0 / math::log1p(-p.a);
      for (int j = 0; j < 2; ++j) {
        const double x = ::ceil(math::log(positive_unit(b.w[2 * j], b.w[2 * j + 1])) * scale);
        numbers[j] = x < 1 ? 1 : x;
      }
      break;
    }
    default:  // Range64
      integral = true;
      for (int j = 0; j < 2; ++j) {
        const uint64_t x = uint64_t(b.w[2 * j]) << 32 | b.w[2 * j + 1];
        whole[j] = int64_t(uint64_t(p.low) + (p.range ? __umul64hi(x, p.range) : x));
      }
  }
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const int64_t i = first + j * philox::kLanes;
    if (i >= a.n) break;
    if (integral)
      store<int64_t>(a.out + i * a.size, a.dtype, whole[j]);
    else
      store<double>(a.out + i * a.size, a.dtype, numbers[j]);
  }
}

__global__ void set_state(uint64_t* to, uint64_t seed, uint64_t offset, const uint64_t* base) {
  to[0] = base ? base[0] : seed;
  to[1] = base ? base[1] + offset : offset;
}

// What a capture draws, by device while it lasts and then by graph.
struct Drawing {
  uint64_t* slot = nullptr;
  int device = 0;
  Generator::State start{};
  uint64_t count = 0;
  bool used = false;
};
std::mutex drawing_mutex;
Drawing begun[kMaxDevices];
std::map<cudaGraphExec_t, Drawing>& drawings() {
  static auto* all = new std::map<cudaGraphExec_t, Drawing>;
  return *all;
}

using RandomKernel = void (*)(const RandomArgs);
RandomKernel words_kernel(RandomKind kind) {
  switch (kind) {
    case RandomKind::Uniform:
      return random_words<RandomKind::Uniform>;
    case RandomKind::Normal:
      return random_words<RandomKind::Normal>;
    case RandomKind::LogNormal:
      return random_words<RandomKind::LogNormal>;
    case RandomKind::Exponential:
      return random_words<RandomKind::Exponential>;
    case RandomKind::Cauchy:
      return random_words<RandomKind::Cauchy>;
    case RandomKind::Range32:
      return random_words<RandomKind::Range32>;
    default:
      return random_words<RandomKind::Bernoulli>;
  }
}

// The slot for what is drawn now, with the offset made relative to it; null outside of a capture.
const uint64_t* slot_for(int device, uint64_t seed, uint64_t& offset) {
  if (!capturing(device)) return nullptr;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(current_stream(device), &status), "random");
  if (status != cudaStreamCaptureStatusActive) return nullptr;
  std::lock_guard<std::mutex> lock(drawing_mutex);
  Drawing& d = begun[device];
  if (!d.slot || seed != d.start.seed || offset < d.start.offset) return nullptr;
  offset -= d.start.offset;
  d.used = true;
  return d.slot;
}

}  // namespace

void begin_drawing(int device) {
  Drawing d;
  d.slot = static_cast<uint64_t*>(allocate(2 * sizeof(uint64_t), device, current_stream(device)));
  d.device = device;
  d.start = default_generator(DeviceType::CUDA).state();
  std::lock_guard<std::mutex> lock(drawing_mutex);
  begun[device] = d;
}

void end_drawing(int device, cudaGraphExec_t graph) {
  std::lock_guard<std::mutex> lock(drawing_mutex);
  Drawing d = begun[device];
  begun[device] = Drawing{};
  if (!d.slot) return;
  Generator& generator = default_generator(DeviceType::CUDA);
  const Generator::State now = generator.state();
  // Nothing has been drawn yet: the first launch takes the numbers that the capture counted.
  if (d.used && now.seed == d.start.seed && now.offset >= d.start.offset) {
    d.count = now.offset - d.start.offset;
    generator.set_state(d.start);
  }
  if (graph && d.count)
    drawings()[graph] = d;
  else
    cuda::free(d.slot, device);
}

void draw_again(cudaGraphExec_t graph, cudaStream_t stream) {
  Drawing d;
  {
    std::lock_guard<std::mutex> lock(drawing_mutex);
    const auto it = drawings().find(graph);
    if (it == drawings().end()) return;
    d = it->second;
  }
  OnDevice on(d.device);
  const Generator::State state = default_generator(DeviceType::CUDA).take(d.count);
  set_state<<<1, 1, 0, stream>>>(d.slot, state.seed, state.offset, nullptr);
  check_launch("CUDAGraph.replay");
}

void forget_drawing(cudaGraphExec_t graph) {
  std::lock_guard<std::mutex> lock(drawing_mutex);
  const auto it = drawings().find(graph);
  if (it == drawings().end()) return;
  cuda::free(it->second.slot, it->second.device);
  drawings().erase(it);
}

void random_state(const Tensor& to, uint64_t seed, uint64_t offset) {
  OnDevice on(to.device().index);
  const uint64_t* base = slot_for(to.device().index, seed, offset);
  set_state<<<1, 1, 0, current_stream()>>>(to.data<uint64_t>(), seed, offset, base);
  check_launch("random");
}

void random(const Tensor& t, const RandomCall& call) {
  const int64_t n = t.numel();
  if (n == 0) return;
  OnDevice on(t.device().index);
  RandomArgs args{t.raw(), n, t.dtype(), int8_t(t.itemsize()), call, nullptr};
  args.base = slot_for(t.device().index, call.seed, args.call.offset);
  const bool pairs = call.wide || call.kind == RandomKind::Geometric || call.kind == RandomKind::Range64;
  const int64_t group = pairs ? philox::kGroup / 2 : philox::kGroup;
  const int64_t threads = (n + group - 1) / group * philox::kLanes;
  const unsigned blocks = static_cast<unsigned>((threads + 255) / 256);
  launch(pairs ? random_pairs : words_kernel(call.kind), blocks, 256, current_stream(), "random", args);
}

FL_ATTACH(random, CUDA, random);

}  // namespace fl::cuda

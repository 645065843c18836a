// Random elements on the CPU: threads share the groups of a Philox stream, words become numbers block by
// block.
#include <cstring>
#include <utility>

#include "core/parallel.h"
#include "core/philox.h"
#include "cpu/engine/arch.h"
#include "cpu/engine/cast.h"
#include "cpu/random/table.h"
#include "ops/sequences.h"

namespace fl {

FL_DECLARE_ARCH(const RandomTable, random_table);

namespace {

constexpr int64_t kWords = 1024;  // made at a time: 4 KiB, 16 groups

// The loop of a distribution, what it writes, and how many words it takes for an element.
struct Draw {
  RandomLoop loop;
  DType dtype;
  int words;
};
Draw draw_of(const RandomCall& call) {
  const RandomTable& table = picked_random_table();
  const auto floating = [&](const RandomLoop(&loops)[2]) -> Draw {
    return {loops[call.wide], call.wide ? DType::Double : DType::Float, call.wide ? 2 : 1};
  };
  switch (call.kind) {
    case RandomKind::Uniform:
      return floating(table.uniform);
    case RandomKind::Normal:
      return floating(table.normal);
    case RandomKind::Exponential:
      return floating(table.exponential);
    case RandomKind::Cauchy:
      return floating(table.cauchy);
    case RandomKind::LogNormal:
      return floating(table.log_normal);
    case RandomKind::Geometric:
      return {table.geometric, DType::Double, 2};
    case RandomKind::Range32:
      return {table.range32, DType::Int64, 1};
    case RandomKind::Range64:
      return {table.range64, DType::Int64, 2};
    default:
      return {table.bernoulli, DType::Bool, 1};
  }
}

void fill_random(const Tensor& out, const RandomCall& call) {
  const RandomTable& table = picked_random_table();
  const Draw draw = draw_of(call);
  const int64_t n = out.numel(), step = kWords / draw.words;
  const bool direct = out.dtype() == draw.dtype;
  const CastFn cast = cast_fn(draw.dtype, out.dtype());
  const int64_t drawn_size = size_of(draw.dtype), out_size = out.itemsize();
  char* data = out.raw();
  parallel_for((n + step - 1) / step, 8, [&](int64_t begin, int64_t end) {
    alignas(64) uint32_t words[kWords];
    alignas(64) char staged[kWords * 8];
    for (int64_t c = begin; c < end; ++c) {
      const int64_t first = c * step, count = std::min(step, n - first);
      const int64_t groups = (count * draw.words + philox::kGroup - 1) / philox::kGroup;
      table.words(call.seed, call.offset, c * (kWords / philox::kGroup), groups, words);
      char* to = data + first * out_size;
      draw.loop(words, count, call.params, direct ? to : staged);
      if (!direct) cast(staged, drawn_size, to, out_size, count);
    }
  });
}

// 0 to n - 1 in random order.
void shuffle_integers(const Tensor& order, Generator::State state) {
  const int64_t n = order.numel();
  int64_t* p = order.data<int64_t>();
  for (int64_t i = 0; i < n; ++i) p[i] = i;
  alignas(64) uint32_t words[kWords];
  for (int64_t i = 0; i + 1 < n; ++i) {
    const int64_t in = i % (kWords / 2);
    if (in == 0)
      picked_random_table().words(state.seed, state.offset, i / (philox::kGroup / 2), kWords / philox::kGroup,
                                  words);
    const uint64_t w = uint64_t(words[2 * in]) << 32 | words[2 * in + 1];
    const uint64_t left = static_cast<uint64_t>(n - i);
    std::swap(p[i], p[i + static_cast<int64_t>(static_cast<unsigned __int128>(w) * left >> 64)]);
  }
}

void shuffle(const Tensor& out, Generator::State state) {
  const bool direct = out.dtype() == DType::Int64;
  const Tensor order = direct ? out : empty(out.sizes(), {DType::Int64, Device{}});
  shuffle_integers(order, state);
  if (!direct) copy_into(out, order);
}

void dropout(const Tensor& input, const RandomCall& call, double scale, const Tensor& output,
             const Tensor& mask) {
  const RandomTable& table = picked_random_table();
  const int64_t n = input.numel();
  bool* m = mask.data<bool>();
  dispatch(input.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    if constexpr (std::is_floating_point_v<T> || is_reduced_type<T> || is_complex_type<T>) {
      using C = std::conditional_t<is_reduced_type<T>, float, T>;
      const T* x = input.template data<T>();
      T* o = output.template data<T>();
      const C factor = C(scale);
      parallel_for((n + kWords - 1) / kWords, 8, [&](int64_t begin, int64_t end) {
        alignas(64) uint32_t words[kWords];
        for (int64_t c = begin; c < end; ++c) {
          const int64_t first = c * kWords, count = std::min(kWords, n - first);
          table.words(call.seed, call.offset, c * (kWords / philox::kGroup),
                      (count + philox::kGroup - 1) / philox::kGroup, words);
          bool* keep = m + first;
          table.bernoulli(words, count, call.params, keep);
#pragma GCC ivdep
          for (int64_t i = 0; i < count; ++i)
            o[first + i] = static_cast<T>(static_cast<C>(x[first + i]) * (keep[i] ? factor : C(0)));
        }
      });
    }
  });
}

FL_ATTACH(random, CPU, fill_random);
FL_ATTACH(shuffle, CPU, shuffle);
FL_ATTACH(dropout, CPU, dropout);

}  // namespace
}  // namespace fl

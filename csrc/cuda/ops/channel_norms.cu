// Batch and group normalisation and their derivatives, in eager mode; compiled code is made of the
// definitions.
//
// Of planes a batch takes two kernels each way: the sums of pieces, which the blocks that write the result
// fold anew for their channel. Where channels lie side by side a small kernel reduces them in between.
#include "cuda/engine/kernels.h"
#include "cuda/ops/channels.cuh"
#include "cuda/runtime/launch.h"
#include "dispatch/kernel.h"
#include "ops/layout.h"

namespace fl::cuda {

namespace {

constexpr int64_t kBlocksWanted = 132 * 16;

template <class T, int V>
struct Of {
  using type = T;
  static constexpr int width = V;
};

// Calls f with the element type and the number of them that are read at once.
template <class F>
void by_type(DType dtype, bool vectorized, const F& f) {
  switch (dtype) {
    case DType::Float:
      return vectorized ? f(Of<float, 4>()) : f(Of<float, 1>());
    case DType::Double:
      return vectorized ? f(Of<double, 2>()) : f(Of<double, 1>());
    case DType::BFloat16:
      return vectorized ? f(Of<__nv_bfloat16, 8>()) : f(Of<__nv_bfloat16, 1>());
    default:
      return vectorized ? f(Of<__half, 8>()) : f(Of<__half, 1>());
  }
}

Pieces divided(int64_t items, int64_t count, int width) {
  Pieces p;
  p.items = static_cast<uint32_t>(items);
  p.length = static_cast<uint32_t>((items + count - 1) / count);
  p.count = static_cast<uint32_t>((items + p.length - 1) / p.length);
  p.width = width;
  return p;
}

// How the planes of `channels` are divided among blocks, `runs` of them to a channel.
struct PlanePlan {
  PlanePlan(ChannelArgs& a, int64_t channels, int64_t runs, int64_t spatial, int width)
      : channels(static_cast<unsigned>(channels)) {
    const int64_t items = runs * spatial / width;
    const int64_t wanted = std::min<int64_t>(32, (kBlocksWanted + channels - 1) / channels);
    a.pieces = divided(items, std::max<int64_t>(1, std::min(wanted, items / 512)), width);
    a.per_plane = Divider(static_cast<uint32_t>(spatial / width));
    a.channels = channels;
    a.spatial = spatial;
    const unsigned busy = (a.pieces.length + kUnrolled - 1) / kUnrolled;
    threads = std::min(kBlock, std::max(32u, (busy + 31) / 32 * 32));
    pieces = a.pieces.count;
  }
  dim3 grid() const { return dim3(channels, pieces); }
  unsigned channels, pieces, threads;
};

struct RowPlan {
  RowPlan(ChannelArgs& a, int64_t channels, int64_t rows, int width) {
    const int64_t columns = (channels + width - 1) / width;
    unsigned across = 1;
    while (across < 32 && across < columns) across *= 2;
    block = dim3(across, kBlock / across);
    const int64_t tiles = (columns + across - 1) / across;
    const int64_t most = std::max<int64_t>(1, rows / (block.y * kUnrolled));
    a.pieces = divided(rows, std::min(most, std::max<int64_t>(1, kBlocksWanted / 2 / tiles)), 1);
    a.channels = channels;
    a.spatial = 1;
    grid = dim3(static_cast<unsigned>(tiles), a.pieces.count);
  }
  dim3 grid, block;
};

unsigned warps_for(int64_t n) {
  return static_cast<unsigned>((n + kBlock / 32 - 1) / (kBlock / 32));
}

Numbers numbers(const Tensor& t) {
  return t.defined() && t.numel() > 0 ? Numbers{t.raw(), t.dtype()} : Numbers{};
}

Tensor laid_out(const Tensor& t, const Tensor& like) {
  if (t.dtype() == like.dtype() && t.strides() == like.strides()) return t;
  const Tensor out = empty_like(like, like.dtype());
  copy_into(out, t);
  return out;
}

DType statistics_of(DType dtype) {
  return dtype == DType::Double ? DType::Double : DType::Float;
}

int64_t width_of(const Tensor& x) {
  return 16 / x.itemsize();
}

bool is_narrow(DType dtype) {
  return dtype == DType::BFloat16 || dtype == DType::Half;
}

// Of the right number and dtype, and without gaps.
Tensor parameter(const char* op, const char* name, const Tensor& t, const Tensor& input, int64_t channels) {
  if (!t.defined()) return t;
  FL_CHECK(t.numel() == channels, "[", op, "] expected an input of ", t.numel(), " channels for a ", name,
           " of as many elements, got shape ", input.sizes());
  FL_CHECK(t.dtype() == input.dtype() || (is_narrow(input.dtype()) && t.dtype() == DType::Float), "[", op,
           "] expected parameters of dtype ", name_of(input.dtype()), ", got ", name_of(t.dtype()));
  return contiguous(t);
}

void check_floating(const char* op, const Tensor& t) {
  FL_CHECK_KIND(is_floating(t.dtype()), NotImplemented, "[", op, "] expected a floating point tensor, got ",
                name_of(t.dtype()));
}

// Channels with more elements than the kernels count.
bool countable(int64_t elements) {
  return elements < int64_t(1) << 31;
}

// ---------------------------------------------------------------- batches

void batch_norm(const Operator& op, void*, KeySet keys, Value* args, Value* results) {
  check_on_device(op, args);
  const Tensor input = args[0].tensor(), running_mean = args[3].tensor(), running_var = args[4].tensor();
  const bool training = args[5].to_bool();
  FL_CHECK(training || (running_mean.defined() && running_var.defined()),
           "[batch_norm] expected running_mean and running_var in evaluation mode, got None");
  FL_CHECK_KIND(input.dim() >= 2, Index, "[batch_norm] expected at least 2 dimensions, got ", input.dim());
  check_floating("batch_norm", input);
  const int64_t channels = input.size(1);
  const Tensor weight = parameter("batch_norm", "weight", args[1].tensor(), input, channels),
               bias = parameter("batch_norm", "bias", args[2].tensor(), input, channels),
               means = parameter("batch_norm", "running_mean", running_mean, input, channels),
               variances = parameter("batch_norm", "running_var", running_var, input, channels);
  FL_CHECK(!training || input.numel() > 0 || channels == 0,
           "[batch_norm] expected at least one value for each channel, got ", input.sizes());
  const int64_t count = channels ? input.numel() / channels : 0;
  if (!countable(count)) return by_definition(op, keys, args, results);
  OnDevice on(input.device().index);
  const bool last = prefers_channels_last(input);
  const Tensor x = laid(input, last);
  const Tensor out = empty_laid(input.sizes(), last, input.options());
  const DType statistics = statistics_of(input.dtype());
  const int64_t saved = training ? channels : 0;
  const Tensor mean = empty({saved}, {statistics, input.device()}),
               rstd = empty({saved}, {statistics, input.device()});
  results[0] = Value(out);
  results[1] = Value(mean);
  results[2] = Value(rstd);
  if (input.numel() == 0) return;

  const int64_t spatial = count / input.size(0);
  const bool rows = last || spatial == 1;
  const int64_t width = width_of(x);
  const bool vectorized =
      (rows ? channels : spatial) % width == 0 && is_aligned(x.raw()) && is_aligned(out.raw());
  const cudaStream_t stream = current_stream();
  ChannelArgs a;
  a.in = x.raw();
  a.out = out.raw();
  a.count = static_cast<double>(count);
  a.parameters = static_cast<uint32_t>(channels);
  a.weight = numbers(weight);
  a.bias = numbers(bias);
  a.mean = numbers(mean);
  a.rstd = numbers(rstd);
  a.running_mean = numbers(means);
  a.running_var = numbers(variances);
  a.momentum = args[6].to_float();
  a.eps = args[7].to_float();
  by_type(x.dtype(), vectorized, [&](auto of) {
    using T = typename decltype(of)::type;
    constexpr int V = decltype(of)::width;
    using A = typename AccumulateIn<T>::type;
    if (rows) {
      const RowPlan plan(a, channels, count, V);
      if (!training)
        return launch(row_normalise<T, V, false>, plan.grid, plan.block, stream, "batch_norm", a);
      const Scratch parts(sizeof(Pair<A>) * channels * a.pieces.count, input.device().index, stream);
      a.parts = parts.get();
      a.folded = a.pieces;
      launch(row_moments<T, V>, plan.grid, plan.block, stream, "batch_norm", a);
      launch(finish_moments<A>, warps_for(channels), kBlock, stream, "batch_norm", a);
      return launch(row_normalise<T, V, true>, plan.grid, plan.block, stream, "batch_norm", a);
    }
    const PlanePlan plan(a, channels, input.size(0), spatial, V);
    if (!training) return launch(plane_normalise<T, V>, plan.grid(), plan.threads, stream, "batch_norm", a);
    const Scratch parts(sizeof(Pair<A>) * channels * a.pieces.count, input.device().index, stream);
    a.parts = parts.get();
    a.folded = a.pieces;
    launch(plane_moments<T, V>, plan.grid(), plan.threads, stream, "batch_norm", a);
    launch(plane_normalise<T, V>, plan.grid(), plan.threads, stream, "batch_norm", a);
  });
  if (training) {
    if (running_mean.defined() && !means.same(running_mean)) copy_into(running_mean, means);
    if (running_var.defined() && !variances.same(running_var)) copy_into(running_var, variances);
  }
}

struct Asked {
  Tensor by_input, by_weight, by_bias;
  void give(Value* results) const {
    results[0] = Value(by_input);
    results[1] = Value(by_weight);
    results[2] = Value(by_bias);
  }
};
// What the mask asks for, not filled yet; an empty tensor where it does not.
Asked asked(const char* op, const Tensor& grad, const Tensor& input, const Tensor& weight, const Value& mask,
            int64_t channels, bool last) {
  check_floating(op, input);
  FL_CHECK(grad.sizes() == input.sizes(), "[", op, "] expected a gradient of shape ", input.sizes(), ", got ",
           grad.sizes());
  FL_CHECK(mask.length() == 3, "[", op, "] expected a mask of three, got ", mask.length());
  const bool* wanted = mask.bools();
  const Options parameters{weight.defined() ? weight.dtype() : input.dtype(), input.device()};
  return {!wanted[0] ? empty({0}, input.options()) : empty_laid(input.sizes(), last, input.options()),
          empty({wanted[1] ? channels : 0}, parameters), empty({wanted[2] ? channels : 0}, parameters)};
}

void batch_norm_backward(const Operator& op, void*, KeySet keys, Value* args, Value* results) {
  check_on_device(op, args);
  const Tensor grad = args[0].tensor(), input = args[1].tensor();
  const Tensor mean = contiguous(args[2].tensor()), rstd = contiguous(args[3].tensor());
  const bool training = args[5].to_bool();
  FL_CHECK(input.dim() >= 2, "[batch_norm] expected at least 2 dimensions, got ", input.dim());
  const int64_t channels = input.size(1);
  FL_CHECK(mean.numel() == channels && rstd.numel() == channels, "[batch_norm] expected statistics of ",
           channels, " channels, got ", mean.numel(), " and ", rstd.numel());
  const Tensor weight = parameter("batch_norm", "weight", args[4].tensor(), input, channels);
  const int64_t count = channels ? input.numel() / channels : 0;
  if (!countable(count)) return by_definition(op, keys, args, results);
  OnDevice on(input.device().index);
  const bool last = prefers_channels_last(input);
  const Tensor x = laid(input, last);
  const Asked gradients = asked("batch_norm", grad, input, weight, args[6], channels, last);
  gradients.give(results);
  if (input.numel() == 0) {
    const double zero = 0;
    fill(gradients.by_weight, &zero);
    fill(gradients.by_bias, &zero);
    return;
  }
  const Tensor g = laid_out(grad, x);
  const int64_t spatial = count / input.size(0);
  const bool rows = last || spatial == 1, wanted = gradients.by_input.numel() > 0;
  const bool sums = training || gradients.by_weight.numel() > 0 || gradients.by_bias.numel() > 0;
  const bool vectorized = (rows ? channels : spatial) % width_of(x) == 0 && is_aligned(x.raw()) &&
                          is_aligned(g.raw()) && (!wanted || is_aligned(gradients.by_input.raw()));
  const cudaStream_t stream = current_stream();
  ChannelArgs a;
  a.in = x.raw();
  a.grad = g.raw();
  a.out = wanted ? gradients.by_input.raw() : nullptr;
  a.count = static_cast<double>(count);
  a.parameters = static_cast<uint32_t>(channels);
  a.weight = numbers(weight);
  a.mean = numbers(mean);
  a.rstd = numbers(rstd);
  a.grad_weight = numbers(gradients.by_weight);
  a.grad_bias = numbers(gradients.by_bias);
  if (!wanted && !sums) return;
  by_type(x.dtype(), vectorized, [&](auto of) {
    using T = typename decltype(of)::type;
    constexpr int V = decltype(of)::width;
    using A = typename AccumulateIn<T>::type;
    const auto scratch = [&](int64_t pairs) {
      return Scratch(sizeof(Pair<A>) * pairs, input.device().index, stream);
    };
    if (rows) {
      const RowPlan plan(a, channels, count, V);
      const Scratch parts = scratch(channels * a.pieces.count), totals = scratch(channels);
      a.parts = parts.get();
      a.folded = a.pieces;
      launch(row_sums<T, V>, plan.grid, plan.block, stream, "batch_norm", a);
      launch(finish_sums<A>, warps_for(channels), kBlock, stream, "batch_norm", a,
             totals.template as<Pair<A>>());
      a.parts = totals.get();
      if (wanted)
        launch(training ? row_gradient<T, V, true> : row_gradient<T, V, false>, plan.grid, plan.block, stream,
               "batch_norm", a);
      return;
    }
    const PlanePlan plan(a, channels, input.size(0), spatial, V);
    const Scratch parts = scratch(channels * a.pieces.count);
    a.parts = parts.get();
    a.folded = a.pieces;
    launch(plane_sums<T, V>, plan.grid(), plan.threads, stream, "batch_norm", a);
    launch(training ? plane_gradient<T, V, true> : plane_gradient<T, V, false>,
           wanted ? plan.grid() : dim3(plan.channels), plan.threads, stream, "batch_norm", a);
  });
}

// ---------------------------------------------------------------- groups

struct GroupSizes {
  int64_t batch, channels, spatial, groups, members;
};
GroupSizes group_sizes(const Tensor& input, const Value* sizes) {
  const GroupSizes s{sizes[0].to_int(), sizes[1].to_int(), sizes[2].to_int(), sizes[3].to_int(),
                     sizes[1].to_int() / std::max<int64_t>(1, sizes[3].to_int())};
  FL_CHECK(s.groups > 0 && s.channels % s.groups == 0 && input.numel() == s.batch * s.channels * s.spatial,
           "[group_norm] expected N * C * HxW elements and groups that divide C, got ", input.sizes(),
           " and ", s.groups, " groups");
  return s;
}

void group_norm(const Operator& op, void*, KeySet keys, Value* args, Value* results) {
  check_on_device(op, args);
  const Tensor input = args[0].tensor();
  check_floating("group_norm", input);
  const GroupSizes s = group_sizes(input, args + 3);
  const Tensor weight = parameter("group_norm", "weight", args[1].tensor(), input, s.channels),
               bias = parameter("group_norm", "bias", args[2].tensor(), input, s.channels);
  const int64_t count = s.members * s.spatial;
  if (!countable(count) || input.numel() == 0) return by_definition(op, keys, args, results);
  OnDevice on(input.device().index);
  const Tensor x = contiguous(input), out = empty(input.sizes(), input.options());
  const Options statistics{statistics_of(input.dtype()), input.device()};
  const Tensor mean = empty({s.batch, s.groups}, statistics), rstd = empty({s.batch, s.groups}, statistics);
  const cudaStream_t stream = current_stream();
  ChannelArgs a;
  a.in = x.raw();
  a.out = out.raw();
  a.count = static_cast<double>(count);
  a.weight = numbers(weight);
  a.bias = numbers(bias);
  a.mean = numbers(mean);
  a.rstd = numbers(rstd);
  a.eps = args[7].to_float();
  const bool vectorized = s.spatial % width_of(x) == 0 && is_aligned(x.raw()) && is_aligned(out.raw());
  by_type(x.dtype(), vectorized, [&](auto of) {
    using T = typename decltype(of)::type;
    constexpr int V = decltype(of)::width;
    using A = typename AccumulateIn<T>::type;
    const PlanePlan whole(a, s.batch * s.groups, 1, count, V);
    const Scratch parts(sizeof(Pair<A>) * s.batch * s.groups * a.pieces.count, input.device().index, stream);
    a.parts = parts.get();
    a.folded = a.pieces;
    launch(plane_moments<T, V>, whole.grid(), whole.threads, stream, "group_norm", a);
    a.members = static_cast<uint32_t>(s.members);
    a.parameters = static_cast<uint32_t>(s.channels);
    const PlanePlan plan(a, s.batch * s.channels, 1, s.spatial, V);
    launch(plane_normalise<T, V>, plan.grid(), plan.threads, stream, "group_norm", a);
  });
  results[0] = Value(laid(out, prefers_channels_last(input)));
  results[1] = Value(mean);
  results[2] = Value(rstd);
}

void group_norm_backward(const Operator& op, void*, KeySet keys, Value* args, Value* results) {
  check_on_device(op, args);
  const Tensor grad = args[0].tensor(), input = args[1].tensor();
  const Tensor mean = contiguous(args[2].tensor()), rstd = contiguous(args[3].tensor());
  const GroupSizes s = group_sizes(input, args + 5);
  const Tensor weight = parameter("group_norm", "weight", args[4].tensor(), input, s.channels);
  const int64_t count = s.members * s.spatial;
  if (!countable(count) || input.numel() == 0) return by_definition(op, keys, args, results);
  FL_CHECK(mean.numel() == s.batch * s.groups && rstd.numel() == s.batch * s.groups,
           "[group_norm] expected statistics of ", s.batch * s.groups, " groups, got ", mean.numel());
  OnDevice on(input.device().index);
  const Asked gradients = asked("group_norm", grad, input, weight, args[9], s.channels, false);
  gradients.give(results);
  const Tensor x = contiguous(input), g = laid_out(grad, x);
  const bool wanted = gradients.by_input.numel() > 0;
  const cudaStream_t stream = current_stream();
  ChannelArgs a;
  a.in = x.raw();
  a.grad = g.raw();
  a.out = wanted ? gradients.by_input.raw() : nullptr;
  a.count = static_cast<double>(count);
  a.members = static_cast<uint32_t>(s.members);
  a.parameters = static_cast<uint32_t>(s.channels);
  a.weight = numbers(weight);
  a.mean = numbers(mean);
  a.rstd = numbers(rstd);
  a.grad_weight = numbers(gradients.by_weight);
  a.grad_bias = numbers(gradients.by_bias);
  const bool vectorized = s.spatial % width_of(x) == 0 && is_aligned(x.raw()) && is_aligned(g.raw()) &&
                          (!wanted || is_aligned(gradients.by_input.raw()));
  by_type(x.dtype(), vectorized, [&](auto of) {
    using T = typename decltype(of)::type;
    constexpr int V = decltype(of)::width;
    using A = typename AccumulateIn<T>::type;
    const int64_t planes = s.batch * s.channels, groups = s.batch * s.groups;
    const PlanePlan plan(a, planes, 1, s.spatial, V);
    const Scratch parts(sizeof(Pair<A>) * (planes * (a.pieces.count + 1) + groups), input.device().index,
                        stream);
    Pair<A>*totals = parts.template as<Pair<A>>() + planes * a.pieces.count, *factors = totals + planes;
    a.parts = parts.get();
    a.folded = a.pieces;
    launch(plane_sums<T, V>, plan.grid(), plan.threads, stream, "group_norm", a);
    launch(finish_groups<A>, warps_for(groups), kBlock, stream, "group_norm", a, totals, factors, groups);
    if (a.grad_weight.data || a.grad_bias.data)
      launch(group_parameters<A>, warps_for(s.channels), kBlock, stream, "group_norm", a, totals, s.batch);
    if (!wanted) return;
    a.parts = factors;
    a.folded = Pieces{};
    launch(plane_gradient<T, V, true>, plan.grid(), plan.threads, stream, "group_norm", a);
  });
}

const detail::Register batch_norm_kernel{"native_batch_norm", {Key::CUDA}, Kernel{batch_norm, nullptr}};
const detail::Register batch_norm_backward_kernel{
    "_batch_norm_backward", {Key::CUDA}, Kernel{batch_norm_backward, nullptr}};
const detail::Register group_norm_kernel{"native_group_norm", {Key::CUDA}, Kernel{group_norm, nullptr}};
const detail::Register group_norm_backward_kernel{
    "_group_norm_backward", {Key::CUDA}, Kernel{group_norm_backward, nullptr}};

}  // namespace
}  // namespace fl::cuda

// Convolutions of float and bfloat16 by oneDNN, with channels-last activations.  Primitives are kept by
// geometry.
#include <cstring>
#include <memory>
#include <stdexcept>

#include "cpu/convolution/passes.h"
#include "cpu/engine/capability.h"

namespace fl::cpu::convolutions {
namespace {

// A oneDNN convolution with channels-last activations, and the reorder of its weights.
struct ConvPlan {
  dnnl_primitive_desc_t desc = nullptr;
  dnnl_primitive_t conv = nullptr;
  dnnl_primitive_t reorder = nullptr;  // weights: plain -> internal, or back for their gradient
  dnnl_memory_desc_t src = nullptr, dst = nullptr, plain_weights = nullptr, bias = nullptr;
  dnnl_memory_desc_t channels = nullptr;  // a number for each channel of the output
  const_dnnl_memory_desc_t weights = nullptr, scratchpad = nullptr;  // owned by desc
  size_t weights_bytes = 0, scratchpad_bytes = 0;

  ConvPlan() = default;
  ConvPlan(const ConvPlan&) = delete;
  ConvPlan& operator=(const ConvPlan&) = delete;
  ~ConvPlan() {
    const OneDnn& d = *onednn();
    if (reorder) d.primitive_destroy(reorder);
    if (conv) d.primitive_destroy(conv);
    if (desc) d.primitive_desc_destroy(desc);
    for (auto md : {src, dst, plain_weights, bias, channels})
      if (md) d.memory_desc_destroy(md);
  }
  bool usable() const { return conv && (reorder || weights_bytes == 0); }
};

// Weights as [groups,] out, in, kernel..., contiguous; returns the number of dimensions.
int describe_weights(const ConvArgs& g, dnnl_dims_t& dims, dnnl_dims_t& strides) {
  int n = 0;
  if (g.groups > 1) dims[n++] = g.groups;
  dims[n++] = g.out_channels / g.groups;
  dims[n++] = g.in_channels / g.groups;
  for (int i = 0; i < g.ndim; ++i) dims[n++] = g.kernel[i];
  int64_t stride = 1;
  for (int i = n - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= dims[i];
  }
  return n;
}

// What the primitive of a plan says about its memory, and how weights get there.
void query_plan(ConvPlan& p, Pass pass) {
  const OneDnn& d = *onednn();
  const bool gradient = pass == Pass::BackwardWeights;
  p.weights =
      d.primitive_desc_query_md(p.desc, gradient ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0);
  p.scratchpad = d.primitive_desc_query_md(p.desc, dnnl_query_scratchpad_md, 0);
  p.scratchpad_bytes = d.memory_desc_get_size(p.scratchpad);
  if (d.memory_desc_equal(p.weights, p.plain_weights)) return;
  p.weights_bytes = d.memory_desc_get_size(p.weights);
  dnnl_primitive_desc_t reorder = nullptr;
  const_dnnl_memory_desc_t from = p.plain_weights, to = p.weights;
  if (gradient) std::swap(from, to);
  if (d.reorder_primitive_desc_create(&reorder, from, d.engine, to, d.engine, nullptr) == dnnl_success) {
    d.primitive_create(&p.reorder, reorder);
    d.primitive_desc_destroy(reorder);
  }
}

// What a forward pass does to its sums, in this order; each bit is a part of a key.
enum Step { kScale = 1, kShift = 2, kResidual = 4, kRelu = 8 };

int steps_of(const ConvFinish& finish) {
  return (finish.scale ? kScale : 0) | (finish.shift ? kShift : 0) | (finish.residual ? kResidual : 0) |
         (finish.relu ? kRelu : 0);
}

// Puts the steps into the attributes of a primitive.
bool append_steps(ConvPlan& p, const ConvArgs& g, int steps, dnnl_primitive_attr_t attr) {
  if (!steps) return true;
  const OneDnn& d = *onednn();
  dnnl_dims_t sizes = {1, g.out_channels, 1, 1, 1}, strides = {g.out_channels, 1, 1, 1, 1};
  dnnl_post_ops_t list = nullptr;
  bool ok =
      d.memory_desc_create_with_strides(&p.channels, g.ndim + 2, sizes, dnnl_f32, strides) == dnnl_success &&
      d.post_ops_create(&list) == dnnl_success;
  const auto binary = [&](int step, dnnl_alg_kind_t kind, const_dnnl_memory_desc_t operand) {
    if (steps & step) ok = ok && d.post_ops_append_binary(list, kind, operand) == dnnl_success;
  };
  binary(kScale, dnnl_binary_mul, p.channels);
  binary(kShift, dnnl_binary_add, p.channels);
  binary(kResidual, dnnl_binary_add, p.dst);
  if (steps & kRelu)
    ok = ok && d.post_ops_append_eltwise(list, dnnl_eltwise_relu, 0.0f, 0.0f) == dnnl_success;
  ok = ok && d.primitive_attr_set_post_ops(attr, list) == dnnl_success;
  if (list) d.post_ops_destroy(list);
  return ok;
}

void fill_plan(ConvPlan& p, const ConvArgs& g, Pass pass, bool with_bias, int steps) {
  const OneDnn& d = *onednn();
  const int nd = g.ndim;
  const dnnl_data_type_t type = g.dtype == DType::BFloat16 ? dnnl_bf16 : dnnl_f32;
  auto activation = [&](dnnl_memory_desc_t* md, bool output) {
    const View v = channels_last(view_of(g, output));
    return d.memory_desc_create_with_strides(md, v.dims, v.size, type, v.stride) == dnnl_success;
  };
  dnnl_dims_t wdims, wstrides;
  const int wn = describe_weights(g, wdims, wstrides);
  dnnl_dims_t strides, dilates, before, after;
  for (int i = 0; i < nd; ++i) {
    strides[i] = g.stride[i];
    dilates[i] = g.dilation[i] - 1;
    before[i] = g.padding[i];
    after[i] = (g.out_size[i] - 1) * g.stride[i] + (g.kernel[i] - 1) * g.dilation[i] + 1 - g.in_size[i] -
               g.padding[i];
    // Input left over at the end is simply not read: say so without a negative padding if we can.
    if (after[i] < 0 && after[i] > -g.stride[i]) after[i] = 0;
  }
  dnnl_memory_desc_t any = nullptr;
  dnnl_primitive_attr_t attr = nullptr;
  const dnnl_dims_t bias_dims = {g.out_channels}, bias_strides = {1};
  const bool ok =
      activation(&p.src, false) && activation(&p.dst, true) &&
      d.memory_desc_create_with_strides(&p.plain_weights, wn, wdims, type, wstrides) == dnnl_success &&
      d.memory_desc_create_with_tag(&any, wn, wdims, type, dnnl_format_tag_any) == dnnl_success &&
      (!with_bias ||
       d.memory_desc_create_with_strides(&p.bias, 1, bias_dims, type, bias_strides) == dnnl_success) &&
      d.primitive_attr_create(&attr) == dnnl_success &&
      d.primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user) == dnnl_success &&
      append_steps(p, g, steps, attr);
  if (ok) {
    const auto direct = dnnl_convolution_direct;
    dnnl_status_t status;
    if (pass == Pass::Forward) {
      status = d.convolution_forward_primitive_desc_create(&p.desc, d.engine, dnnl_forward_training, direct,
                                                           p.src, any, p.bias, p.dst, strides, dilates,
                                                           before, after, attr);
    } else {
      // The backward passes want the forward convolution as a hint.
      dnnl_primitive_desc_t hint = nullptr;
      d.convolution_forward_primitive_desc_create(&hint, d.engine, dnnl_forward_training, direct, p.src, any,
                                                  nullptr, p.dst, strides, dilates, before, after, attr);
      if (pass == Pass::BackwardData)
        status = d.convolution_backward_data_primitive_desc_create(
            &p.desc, d.engine, direct, p.src, any, p.dst, strides, dilates, before, after, hint, attr);
      else
        status = d.convolution_backward_weights_primitive_desc_create(&p.desc, d.engine, direct, p.src, any,
                                                                      p.bias, p.dst, strides, dilates, before,
                                                                      after, hint, attr);
      if (hint) d.primitive_desc_destroy(hint);
    }
    if (status == dnnl_success && d.primitive_create(&p.conv, p.desc) == dnnl_success) query_plan(p, pass);
  }
  if (attr) d.primitive_attr_destroy(attr);
  if (any) d.memory_desc_destroy(any);
}

const ConvPlan& plan_for(const ConvArgs& g, Pass pass, bool with_bias, int threads, int steps = 0) {
  static auto* cache = new PrimitiveCache<ConvPlan>;  // outlives every thread
  static thread_local PrimitiveCache<ConvPlan>::Front front;
  PrimitiveKey key;
  for (int64_t v : {int64_t(g.dtype), int64_t(pass), int64_t(with_bias), int64_t(threads), int64_t(steps),
                    int64_t(g.ndim), g.batch, g.in_channels, g.out_channels, g.groups})
    key.add(v);
  for (int i = 0; i < g.ndim; ++i)
    for (int64_t v : {g.in_size[i], g.out_size[i], g.kernel[i], g.stride[i], g.dilation[i], g.padding[i]})
      key.add(v);
  return cache->get(front, key, [&] {
    auto plan = std::make_shared<ConvPlan>();
    fill_plan(*plan, g, pass, with_bias, steps);
    return plan;
  });
}

// The memory objects of one execution; destroyed with it.
class Arguments {
 public:
  ~Arguments() {
    for (int i = 0; i < count_; ++i) onednn()->memory_destroy(args_[i].memory);
  }
  dnnl_memory_t add(int role, const_dnnl_memory_desc_t md, const void* data) {
    dnnl_memory_t m = nullptr;
    if (onednn()->memory_create(&m, md, onednn()->engine, const_cast<void*>(data)) != dnnl_success)
      throw std::runtime_error("[convolution] oneDNN could not describe an operand");
    args_[count_++] = {role, m};
    return m;
  }
  void run(dnnl_primitive_t primitive) const {
    if (onednn()->primitive_execute(primitive, onednn_stream(), count_, args_) != dnnl_success)
      throw std::runtime_error("[convolution] oneDNN failed to execute");
  }

 private:
  int count_ = 0;
  dnnl_exec_arg_t args_[9];
};

void reorder(dnnl_primitive_t primitive, const_dnnl_memory_desc_t from, const void* src,
             const_dnnl_memory_desc_t to, void* dst) {
  Arguments a;
  a.add(DNNL_ARG_FROM, from, src);
  a.add(DNNL_ARG_TO, to, dst);
  a.run(primitive);
}

// Sequences as images of one row: oneDNN has no kernel for their channels apart. Strides are not used here.
ConvArgs with_one_row(ConvArgs g) {
  g.ndim = 2;
  for (int64_t* at : {g.in_size, g.out_size, g.kernel, g.stride, g.dilation}) {
    at[1] = at[0];
    at[0] = 1;
  }
  g.padding[1] = g.padding[0];
  g.padding[0] = 0;
  return g;
}

}  // namespace

namespace {

// The threads that a primitive is built for and run by.
int threads_for(const ConvArgs& g) {
  const double work = double(g.batch) * g.out_channels * volume(g.out_size, g.ndim) *
                      double(g.in_channels / g.groups) * volume(g.kernel, g.ndim);
  const bool alone = work < 1.0e6 || in_parallel() || (is_forked() && !onednn()->on_pool);
  return alone ? 1 : num_threads();
}

bool has_bias(const ConvArgs& g, Pass pass) {
  return pass == Pass::Forward ? g.bias != nullptr : pass == Pass::BackwardWeights && g.grad_bias;
}

}  // namespace

bool onednn_can_run(const ConvArgs& g, Pass pass) {
  if (!onednn()) return false;
  if (g.ndim == 1 && g.groups > 1) return onednn_can_run(with_one_row(g), pass);
  const int threads = threads_for(g);
  const ThreadLimit limit(threads);
  return plan_for(g, pass, has_bias(g, pass), threads).usable();
}

bool run_onednn(const ConvArgs& g, Pass pass) {
  if (!onednn()) return false;
  if (g.ndim == 1 && g.groups > 1) return run_onednn(with_one_row(g), pass);
  const int threads = threads_for(g);
  const ThreadLimit limit(threads);
  const bool with_bias = has_bias(g, pass);
  const ConvPlan& p = plan_for(g, pass, with_bias, threads);
  if (!p.usable()) return false;

  const size_t weights_room = (p.weights_bytes + 63) & ~size_t(63);
  const Scratch scratch(2, weights_room + p.scratchpad_bytes);
  char* memory = scratch.as<char>();
  const bool moved = p.reorder != nullptr;
  if (moved && pass != Pass::BackwardWeights)
    reorder(p.reorder, p.plain_weights, g.weight, p.weights, memory);

  Arguments a;
  switch (pass) {
    case Pass::Forward:
      a.add(DNNL_ARG_SRC, p.src, g.input);
      a.add(DNNL_ARG_WEIGHTS, p.weights, moved ? memory : g.weight);
      if (with_bias) a.add(DNNL_ARG_BIAS, p.bias, g.bias);
      a.add(DNNL_ARG_DST, p.dst, g.output);
      break;
    case Pass::BackwardData:
      a.add(DNNL_ARG_DIFF_DST, p.dst, g.grad_output);
      a.add(DNNL_ARG_WEIGHTS, p.weights, moved ? memory : g.weight);
      a.add(DNNL_ARG_DIFF_SRC, p.src, g.grad_input);
      break;
    case Pass::BackwardWeights:
      a.add(DNNL_ARG_SRC, p.src, g.input);
      a.add(DNNL_ARG_DIFF_DST, p.dst, g.grad_output);
      a.add(DNNL_ARG_DIFF_WEIGHTS, p.weights, moved ? memory : g.grad_weight);
      if (with_bias) a.add(DNNL_ARG_DIFF_BIAS, p.bias, g.grad_bias);
      break;
  }
  if (p.scratchpad_bytes) a.add(DNNL_ARG_SCRATCHPAD, p.scratchpad, memory + weights_room);
  a.run(p.conv);
  if (moved && pass == Pass::BackwardWeights)
    reorder(p.reorder, p.weights, memory, p.plain_weights, g.grad_weight);
  return true;
}

// ---- weights that were packed before ------------------------------------------------------------

namespace {

// What stands before packed weights: for how many threads and which instructions they were laid out.
struct PackedHeader {
  int64_t threads, instructions, bytes;
};
constexpr size_t kHeaderBytes = 64;
static_assert(sizeof(PackedHeader) <= kHeaderBytes);

// The instruction sets in use, a bit each.
int64_t instruction_sets() {
  int64_t bits = 0;
  for (int level = 0; level <= int(Capability::Amx); ++level)
    bits |= int64_t(has_capability(Capability(level))) << level;
  return bits;
}

size_t bytes_of_weights(const ConvPlan& p) {
  return p.reorder ? p.weights_bytes : onednn()->memory_desc_get_size(p.plain_weights);
}

const_dnnl_memory_desc_t layout_of(const ConvPlan& p) {
  return p.reorder ? p.weights : p.plain_weights;
}

// Weights from the layout for one number of threads to that for another: rare, and as slow as packing.
void relay(const_dnnl_memory_desc_t from, const void* weights, const_dnnl_memory_desc_t to, void* moved) {
  const OneDnn& d = *onednn();
  dnnl_primitive_desc_t desc = nullptr;
  dnnl_primitive_t primitive = nullptr;
  const bool ok =
      d.reorder_primitive_desc_create(&desc, from, d.engine, to, d.engine, nullptr) == dnnl_success &&
      d.primitive_create(&primitive, desc) == dnnl_success;
  if (desc) d.primitive_desc_destroy(desc);
  if (!ok) throw std::runtime_error("[_convolution_prepacked] oneDNN could not lay the weights out again");
  reorder(primitive, from, weights, to, moved);
  d.primitive_destroy(primitive);
}

}  // namespace

size_t packed_weight_bytes(const ConvArgs& g) {
  if (!onednn_can_run(g, Pass::Forward)) return 0;
  const int threads = threads_for(g);
  const ThreadLimit limit(threads);
  return kHeaderBytes + bytes_of_weights(plan_for(g, Pass::Forward, false, threads));
}

void pack_weights(const ConvArgs& g, void* to) {
  const int threads = threads_for(g);
  const ThreadLimit limit(threads);
  const ConvPlan& p = plan_for(g, Pass::Forward, false, threads);
  const PackedHeader header{threads, instruction_sets(), int64_t(bytes_of_weights(p))};
  std::memcpy(to, &header, sizeof header);
  char* weights = static_cast<char*>(to) + kHeaderBytes;
  if (p.reorder)
    reorder(p.reorder, p.plain_weights, g.weight, p.weights, weights);
  else
    std::memcpy(weights, g.weight, size_t(header.bytes));
}

void run_packed(const ConvArgs& g, const ConvFinish& finish, const void* packed, size_t bytes) {
  PackedHeader header{};
  if (bytes >= kHeaderBytes) std::memcpy(&header, packed, sizeof header);
  const int threads = threads_for(g);
  const ThreadLimit limit(threads);
  const int steps = steps_of(finish);
  const int packed_threads = static_cast<int>(std::clamp<int64_t>(header.threads, 1, 4096));
  // Both stay in the cache's front table, which has room for four of a kind.
  const ConvPlan& packed_plan = plan_for(g, Pass::Forward, false, packed_threads);
  const ConvPlan& p = plan_for(g, Pass::Forward, false, threads, steps);
  if (!p.usable() || !packed_plan.usable())
    throw std::runtime_error(
        "[_convolution_prepacked] expected a geometry that oneDNN computes, got another");
  const int64_t weight_bytes = int64_t(bytes_of_weights(packed_plan));
  if (header.instructions != instruction_sets() || header.bytes != weight_bytes ||
      weight_bytes + int64_t(kHeaderBytes) != int64_t(bytes))
    throw std::runtime_error(
        "[_convolution_prepacked] expected weights that were packed for this processor and geometry, got "
        "others");
  const void* weights = static_cast<const char*>(packed) + kHeaderBytes;
  const size_t scratch_room = (p.scratchpad_bytes + 63) & ~size_t(63);
  const bool same = onednn()->memory_desc_equal(layout_of(p), layout_of(packed_plan));
  const Scratch scratch(2, scratch_room + (same ? 0 : bytes_of_weights(p)));
  if (!same) {
    void* moved = scratch.as<char>() + scratch_room;
    relay(layout_of(packed_plan), weights, layout_of(p), moved);
    weights = moved;
  }
  Arguments a;
  a.add(DNNL_ARG_SRC, p.src, g.input);
  a.add(DNNL_ARG_WEIGHTS, layout_of(p), weights);
  a.add(DNNL_ARG_DST, p.dst, g.output);
  int place = 0;
  const auto operand = [&](const_dnnl_memory_desc_t md, const void* data) {
    if (data) a.add(DNNL_ARG_ATTR_MULTIPLE_POST_OP(place++) | DNNL_ARG_SRC_1, md, data);
  };
  operand(p.channels, finish.scale);
  operand(p.channels, finish.shift);
  operand(p.dst, finish.residual);
  if (p.scratchpad_bytes) a.add(DNNL_ARG_SCRATCHPAD, p.scratchpad, scratch.as<char>());
  a.run(p.conv);
}

}  // namespace fl::cpu::convolutions

// What the files of convolution share: views of activations, scratch memory, and the two float paths.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/parallel.h"
#include "cpu/engine/onednn.h"
#include "ops/convolution.h"

namespace fl::cpu::convolutions {

enum class Pass { Forward, BackwardData, BackwardWeights };

constexpr int kMaxDims = 5;

inline int64_t volume(const int64_t* size, int ndim) {
  int64_t v = 1;
  for (int d = 0; d < ndim; ++d) v *= size[d];
  return v;
}

// Calls f(i) for i < n, divided among threads; all of them are so many elementary steps.
template <class F>
void for_each_divided(int64_t n, double work, const F& f) {
  const double time = work * thread_model::kGrainTime / kGrain;
  const int pieces =
      work < 2.0e5 ? 1 : static_cast<int>(std::min<int64_t>(n, thread_model::pieces_for(time)));
  parallel_pieces(pieces, time, [&](int piece, int count) {
    for (int64_t i = n * piece / count; i < n * (piece + 1) / count; ++i) f(i);
  });
}

// Memory for one call, 64-byte aligned: a kept buffer of this thread while small, else one
// of its own that is freed afterwards.  Up to four may be in use at a time (slot).
class Scratch {
 public:
  Scratch(int slot, size_t bytes) {
    static thread_local Workspace workspaces[4];
    data_ = bytes <= kKeep ? workspaces[slot].get(std::max<size_t>(bytes, 64)) : own_.get(bytes);
  }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  static constexpr size_t kKeep = size_t(32) << 20;
  Workspace own_;
  void* data_;
};

// An activation: sizes batch, channel, spatial... with a stride each.
struct View {
  int dims;
  int64_t size[kMaxDims], stride[kMaxDims];
  int64_t elements() const { return volume(size, dims); }
};

inline View view_of(const ConvArgs& g, bool output) {
  View v;
  v.dims = g.ndim + 2;
  v.size[0] = g.batch;
  v.size[1] = output ? g.out_channels : g.in_channels;
  std::copy_n(output ? g.out_size : g.in_size, g.ndim, v.size + 2);
  std::copy_n(output ? g.out_strides : g.in_strides, v.dims, v.stride);
  return v;
}

inline View channels_last(View v) {
  int64_t s = v.size[1];
  v.stride[1] = 1;
  for (int d = v.dims - 1; d >= 2; --d) {
    v.stride[d] = s;
    s *= v.size[d];
  }
  v.stride[0] = s;
  return v;
}

inline View channels_first(View v) {
  int64_t s = 1;
  for (int d = v.dims - 1; d >= 0; --d) {
    v.stride[d] = s;
    s *= v.size[d];
  }
  return v;
}

inline bool same_layout(const View& a, const View& b) {
  for (int d = 0; d < a.dims; ++d)
    if (a.size[d] > 1 && a.stride[d] != b.stride[d]) return false;
  return true;
}

// All take dense channels-last activations: of float, and of bfloat16 for oneDNN.

// One pass by a oneDNN primitive; false: it is not available for this case.
bool run_onednn(const ConvArgs& g, Pass pass);
bool onednn_can_run(const ConvArgs& g, Pass pass);

// What a forward pass does to its sums: sums * scale + shift + residual, then relu; what is null is left out.
struct ConvFinish {
  const float* scale = nullptr;  // a number for each channel of the output
  const float* shift = nullptr;
  const void* residual = nullptr;  // laid out as the output
  bool relu = false;
};

// Weights in the layout of the primitive for a forward pass: their bytes (none if there is no primitive), and
// the pass with them. The layout is that of one geometry, instruction set and number of threads.
size_t packed_weight_bytes(const ConvArgs& g);
void pack_weights(const ConvArgs& g, void* to);
void run_packed(const ConvArgs& g, const ConvFinish& finish, const void* packed, size_t bytes);

// One pass as a matrix product over an unfolded copy of the input, of all positions of the batch at once.
void run_product(const ConvArgs& g, Pass pass);

// A kernel of one element without steps, padding or groups: per image a product of matrices, on dense
// channels-first activations of float where they lie.
bool is_pointwise(const ConvArgs& g);
void run_pointwise(const ConvArgs& g, Pass pass);

// Whether the product is expected to take less time than the primitive.
bool prefers_product(const ConvArgs& g, Pass pass);

}  // namespace fl::cpu::convolutions

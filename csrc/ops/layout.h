// Images in memory: a plane for each channel, or the channels side by side ("channels last").
#pragma once

#include "core/error.h"
#include "core/tensor.h"

namespace fl {

// Whether channels lie side by side and nothing else can be said of the layout.
inline bool is_channels_last(const Tensor& t) {
  return !t.is_contiguous() &&
         (t.is_contiguous(MemoryFormat::ChannelsLast) || t.is_contiguous(MemoryFormat::ChannelsLast3d));
}

// Whether the strides are in the order of channels last, with or without gaps: results are then laid out so.
inline bool prefers_channels_last(const Tensor& t) {
  const int64_t n = t.dim();
  if (t.is_contiguous() || (n != 4 && n != 5) || t.numel() == 0 || t.stride(1) == 0) return false;
  int64_t least = 0;
  for (int64_t k = 0; k < n; ++k) {
    const int64_t d = k == 0 ? 1 : k == n - 1 ? 0 : n - k;  // channels, width, height, depth, batch
    if (t.stride(d) < least || (d == 0 && least == t.stride(1))) return false;
    least = t.stride(d) * t.size(d);
  }
  return true;
}

inline Tensor empty_laid(IntSpan sizes, bool channels_last, Options options) {
  if (!channels_last) return empty(sizes, options);
  numel_of(sizes);  // raises before strides overflow
  return empty_strided(sizes, channels_last_strides(sizes), options);
}

// The tensor in one of the two layouts; a copy where it has another.
inline Tensor laid(const Tensor& t, bool channels_last) {
  if (!channels_last) return contiguous(t);
  if (t.is_contiguous(t.dim() == 4 ? MemoryFormat::ChannelsLast : MemoryFormat::ChannelsLast3d)) return t;
  const Tensor copy = empty_laid(t.sizes(), true, t.options());
  copy_into(copy, t);
  return copy;
}

// In a memory format that sizes determine.
inline Tensor empty_in(const char* op, IntSpan sizes, MemoryFormat format, Options options) {
  const bool channels_last = format == MemoryFormat::ChannelsLast || format == MemoryFormat::ChannelsLast3d;
  const int64_t want = format == MemoryFormat::ChannelsLast ? 4 : 5;
  FL_CHECK(!channels_last || static_cast<int64_t>(sizes.size()) == want, "[", op, "] expected ", want,
           " dimensions for channels_last, got shape ", sizes);
  return empty_laid(sizes, channels_last, options);
}

}  // namespace fl

// Joining tensors: cat and stack, as one copy of all their rows where they lie as the result does.
#include "dispatch/kernel.h"
#include "ops/layout.h"
#include "ops/lists.h"
#include "ops/outputs.h"
#include "ops/promotion.h"

namespace fl {

DeviceFunction<bool(const std::vector<JoinPart>&, int64_t, const Tensor&)> device::join{"cat"};

namespace {

DType common_dtype(const std::vector<Tensor>& tensors) {
  bool same = true;
  for (const Tensor& t : tensors) same &= t.dtype() == tensors[0].dtype();
  if (same) return tensors[0].dtype();
  std::vector<Value> values;
  values.reserve(tensors.size());
  for (const Tensor& t : tensors) values.push_back(Value::borrow(t.impl()));
  std::vector<const Value*> pointers;
  for (const Value& v : values) pointers.push_back(&v);
  return result_type(pointers.data(), static_cast<int>(pointers.size()));
}

bool is_legacy_empty(const Tensor& t) {
  return t.dim() == 1 && t.size(0) == 0;
}

Tensor cat(const std::vector<Tensor>& tensors, int64_t dim) {
  FL_CHECK_KIND(!tensors.empty(), Value, "[cat] expected at least one tensor, got an empty list");
  int64_t first = -1;
  Device device = tensors[0].device();
  for (size_t i = 0; i < tensors.size(); ++i) {
    FL_CHECK(tensors[i].dim() > 0, "[cat] expected tensors with dimensions, got a 0-d tensor at position ",
             static_cast<int64_t>(i));
    FL_CHECK(tensors[i].device() == device, "[cat] expected all tensors on one device, got ",
             to_string(device), " and ", to_string(tensors[i].device()));
    if (first < 0 && !is_legacy_empty(tensors[i])) first = static_cast<int64_t>(i);
  }
  const Tensor& model = tensors[first < 0 ? 0 : first];
  const int64_t d = wrap_dim("cat", dim, model.dim());
  Dims sizes(model.sizes());
  sizes[d] = 0;
  const MemoryFormat format = model.dim() == 5 ? MemoryFormat::ChannelsLast3d : MemoryFormat::ChannelsLast;
  bool channels_last = is_channels_last(model);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& t = tensors[i];
    if (is_legacy_empty(t)) continue;
    FL_CHECK(t.dim() == model.dim(), "[cat] expected tensors of ", model.dim(), " dimensions, got ", t.dim(),
             " at position ", static_cast<int64_t>(i));
    for (int64_t k = 0; k < t.dim(); ++k)
      FL_CHECK(k == d || t.size(k) == sizes[k], "[cat] expected sizes that agree except in dimension ", d,
               ", got ", model.sizes(), " and ", t.sizes(), " at position ", static_cast<int64_t>(i),
               ": Sizes of tensors must match except in dimension ", d);
    FL_CHECK(!__builtin_add_overflow(sizes[d], t.size(d), &sizes[d]),
             "[cat] expected sizes with a sum below 2**63, got more in dimension ", d);
    channels_last &= t.is_contiguous(format);
  }
  const DType dtype = common_dtype(tensors);
  Tensor out = empty_laid(sizes, channels_last, {dtype, device});
  if (out.is_meta() || out.numel() == 0) return out;
  int64_t rows = 1, inner = size_of(dtype);
  for (int64_t k = 0; k < d; ++k) rows *= sizes[k];
  for (int64_t k = d + 1; k < model.dim(); ++k) inner *= sizes[k];
  bool plain = !channels_last;
  for (const Tensor& t : tensors) plain &= (t.is_contiguous() && t.dtype() == dtype) || t.numel() == 0;
  if (plain) {
    std::vector<JoinPart> parts;
    for (const Tensor& t : tensors)
      if (t.numel()) parts.push_back({t.raw(), t.size(d) * inner});
    if (device::join(device.type, parts, rows, out)) return out;
  }
  int64_t at = 0;
  for (const Tensor& t : tensors) {
    if (is_legacy_empty(t)) continue;
    copy_into(alias(out, t.sizes(), out.strides(), at * out.stride(d)), t);
    at += t.size(d);
  }
  return out;
}

Tensor cat_out(const std::vector<Tensor>& tensors, int64_t dim, const Tensor& out) {
  FL_CHECK(!has_internal_overlap(out),
           "[cat] expected an out whose elements are distinct in memory, got an expanded tensor: unsupported "
           "operation: more than one element of the "
           "written-to tensor refers to a single memory location");
  for (const Tensor& t : tensors) {
    const bool shares =
        !out.is_meta() && out->storage.get() == t->storage.get() && out.numel() != 0 && t.numel() != 0;
    FL_CHECK(!out.same(t) && !(shares && (overlaps_partially(out, t) || out.offset() == t.offset())),
             "[cat] expected an out that shares no memory with the tensors, got views of one memory");
  }
  const Tensor value = cat(tensors, dim);
  prepare_out("cat", out, value.sizes(), value.dtype(), true);
  out.bump_version();
  copy_into(out, value);
  return out;
}

Tensor stack(const std::vector<Tensor>& tensors, int64_t dim) {
  FL_CHECK(!tensors.empty(), "[stack] expected at least one tensor, got an empty list");
  const Tensor& model = tensors[0];
  const int64_t d = wrap_dim("stack", dim, model.dim() + 1);
  bool plain = true;
  const DType dtype = common_dtype(tensors);
  for (size_t i = 0; i < tensors.size(); ++i) {
    FL_CHECK(tensors[i].sizes() == model.sizes(), "[stack] expected tensors of one shape, got ",
             model.sizes(), " and ", tensors[i].sizes(), " at position ", static_cast<int64_t>(i));
    FL_CHECK(tensors[i].device() == model.device(), "[stack] expected all tensors on one device, got ",
             to_string(model.device()), " and ", to_string(tensors[i].device()));
    plain &= tensors[i].is_contiguous() && tensors[i].dtype() == dtype;
  }
  Dims sizes(model.sizes());
  sizes.insert(d, static_cast<int64_t>(tensors.size()));
  Tensor out = empty(sizes, {dtype, model.device()});
  if (out.is_meta() || out.numel() == 0) return out;
  if (plain) {
    int64_t rows = 1, inner = size_of(dtype);
    for (int64_t k = 0; k < d; ++k) rows *= model.size(k);
    for (int64_t k = d; k < model.dim(); ++k) inner *= model.size(k);
    std::vector<JoinPart> parts;
    for (const Tensor& t : tensors) parts.push_back({t.raw(), inner});
    if (device::join(out.device().type, parts, rows, out)) return out;
  }
  Dims strides(out.strides());
  const int64_t step = strides[d];
  strides.erase(d);
  for (size_t i = 0; i < tensors.size(); ++i)
    copy_into(alias(out, model.sizes(), strides, static_cast<int64_t>(i) * step), tensors[i]);
  return out;
}

FL_KERNEL("cat", cat, kDevices);
FL_KERNEL("cat.out", cat_out, kDevices);
FL_KERNEL("stack", stack, kDevices);

}  // namespace
}  // namespace fl

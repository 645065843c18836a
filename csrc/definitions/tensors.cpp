// Attributes and methods of tensors that are no operators, and indexing.
#include "autograd/node.h"
#include "definitions/object.h"

namespace fl::definitions {
namespace {

using Getter = Object (*)(const Tensor&);

int64_t wrapped(int64_t d, int64_t n) {
  return d < 0 ? d + n : d;
}

const Object* argument(const Objects& positional, const Keywords& keywords, size_t at, const char* name) {
  if (at < positional.size()) return &positional[at];
  for (const auto& [keyword, value] : keywords)
    if (keyword == name) return &value;
  return nullptr;
}

Object size_of_tensor(const Tensor& t, const Objects& a, const Keywords& k) {
  const Object* dim = argument(a, k, 0, "dim");
  return dim ? Object(t.size(wrapped(dim->integer, t.dim()))) : Object::ints(t.sizes());
}

Object strides_of_tensor(const Tensor& t, const Objects& a, const Keywords& k) {
  const Object* dim = argument(a, k, 0, "dim");
  return dim ? Object(t.stride(wrapped(dim->integer, t.dim()))) : Object::ints(t.strides());
}

Object to_list(const Tensor& t) {
  if (t.dim() == 0) return from_scalar(item(t));
  Objects items;
  for (const Object& part : iterate(Object(t))) items.push_back(to_list(part.tensor));
  return Object::list(std::move(items));
}

Object set_requires_grad(const Tensor& t, const Objects& a, const Keywords& k) {
  const Object* wanted = argument(a, k, 0, "requires_grad");
  autograd::set_requires_grad(t, wanted == nullptr || truth(*wanted));
  return Object(t);
}

using Method = Object (*)(const Tensor&, const Objects&, const Keywords&);

const std::pair<const char*, Method> kMethods[] = {
    {"size", size_of_tensor},
    {"stride", strides_of_tensor},
    {"requires_grad_", set_requires_grad},
    {"dim", [](const Tensor& t, const Objects&, const Keywords&) { return Object(t.dim()); }},
    {"ndimension", [](const Tensor& t, const Objects&, const Keywords&) { return Object(t.dim()); }},
    {"numel", [](const Tensor& t, const Objects&, const Keywords&) { return Object(t.numel()); }},
    {"nelement", [](const Tensor& t, const Objects&, const Keywords&) { return Object(t.numel()); }},
    {"is_complex",
     [](const Tensor& t, const Objects&, const Keywords&) { return Object(is_complex(t.dtype())); }},
    {"is_floating_point",
     [](const Tensor& t, const Objects&, const Keywords&) { return Object(is_floating(t.dtype())); }},
    {"is_contiguous",
     [](const Tensor& t, const Objects&, const Keywords&) { return Object(t.is_contiguous()); }},
    {"storage_offset", [](const Tensor& t, const Objects&, const Keywords&) { return Object(t.offset()); }},
    {"element_size", [](const Tensor& t, const Objects&, const Keywords&) { return Object(t.itemsize()); }},
    {"data_ptr", [](const Tensor& t, const Objects&,
                    const Keywords&) { return Object(reinterpret_cast<int64_t>(t.raw())); }},
    {"to_dense",
     [](const Tensor& t, const Objects&, const Keywords&) {
       return t->sparse ? call("_sparse_to_dense", {Object(t)}) : Object(t);
     }},
    {"tolist", [](const Tensor& t, const Objects&, const Keywords&) { return to_list(t); }},
    {"item",
     [](const Tensor& t, const Objects&, const Keywords&) {
       FL_CHECK(t.numel() == 1, "[item] expected a tensor with one element, got the shape ", t.sizes());
       return from_scalar(item(t));
     }},
};

const std::pair<const char*, Getter> kAttributes[] = {
    {"shape", [](const Tensor& t) { return Object::ints(t.sizes()); }},
    {"ndim", [](const Tensor& t) { return Object(t.dim()); }},
    {"dtype", [](const Tensor& t) { return Object(t.dtype()); }},
    {"device", [](const Tensor& t) { return Object(t.device()); }},
    {"layout", [](const Tensor&) { return Object::enumerator(Type::Layout, 0); }},
    {"requires_grad", [](const Tensor& t) { return Object(t.requires_grad()); }},
    {"is_meta", [](const Tensor& t) { return Object(t.is_meta()); }},
    {"is_cpu", [](const Tensor& t) { return Object(t.is_cpu()); }},
    {"is_cuda", [](const Tensor& t) { return Object(t.device().type == DeviceType::CUDA); }},
    {"is_sparse", [](const Tensor& t) { return Object(bool(t->sparse)); }},
    {"is_nested", [](const Tensor&) { return Object(false); }},
    {"is_leaf", [](const Tensor& t) { return Object(autograd::is_leaf(t)); }},
    {"itemsize", [](const Tensor& t) { return Object(t.itemsize()); }},
    {"T", [](const Tensor& t) { return call("t", {Object(t)}); }},
    {"mT", [](const Tensor& t) { return call("transpose", {Object(t), Object(-2), Object(-1)}); }},
    {"mH",
     [](const Tensor& t) {
       const Object turned = call("transpose", {Object(t), Object(-2), Object(-1)});
       return is_complex(t.dtype()) ? call("conj", {turned}) : turned;
     }},
    {"real", [](const Tensor& t) { return is_complex(t.dtype()) ? call("real", {Object(t)}) : Object(t); }},
    {"imag", [](const Tensor& t) { return call("imag", {Object(t)}); }},
    {"data", [](const Tensor& t) { return Object(autograd::detach(t)); }},
};

// One basic index at a dimension of the result so far; moves on to the next dimension.
Object apply_index(const Object& t, const Object& key, int64_t& dim) {
  if (key.is_none()) return call("unsqueeze", {t, Object(dim++)});
  if (key.is(Type::Slice)) {
    const Objects& ends = key.items();
    const Object at(dim++);
    if (ends[0].is_none() && ends[1].is_none() && ends[2].is_none()) return t;
    return call(*find_operator("slice"), {t, at, ends[0], ends[1], ends[2].is_none() ? Object(1) : ends[2]});
  }
  const int64_t size = t.tensor.size(dim), position = wrapped(key.integer, size);
  FL_CHECK_KIND(position >= 0 && position < size, Index, "[index] expected an index for a dimension of size ",
                size, ", got ", key.integer);
  return call("select", {t, Object(dim), Object(position)});
}

// Integers, slices, None and the ellipsis are applied one by one; tensors are left for one call of `index`.
Object basic(const Object& t, const Objects& keys, Objects& tensors) {
  int64_t used = 0;
  for (const Object& key : keys) used += !key.is_none() && !key.is(Type::Ellipsis);
  FL_CHECK_KIND(used <= t.tensor.dim(), Index, "[index] expected at most ", t.tensor.dim(), " indices, got ",
                used);
  Object result = t;
  int64_t dim = 0;
  for (const Object& key : keys) {
    if (key.is(Type::Ellipsis)) {
      dim += t.tensor.dim() - used;
      continue;
    }
    if (key.is(Type::Tensor) || key.is(Type::List)) {
      tensors.resize(static_cast<size_t>(dim));
      tensors.push_back(key.is(Type::Tensor) ? key : Object(as_tensor(key, Object(), Object())));
      ++dim;
      continue;
    }
    result = apply_index(result, key, dim);
  }
  return result;
}

Objects keys_of(const Object& key) {
  return key.is(Type::Tuple) ? key.items() : Objects{key};
}

void flatten(const Object& data, std::vector<int64_t>& shape, Objects& leaves, size_t depth) {
  if (!data.is_sequence()) {
    leaves.push_back(data);
    return;
  }
  if (depth == shape.size()) shape.push_back(static_cast<int64_t>(data.items().size()));
  FL_CHECK_KIND(shape[depth] == static_cast<int64_t>(data.items().size()), Value,
                "[tensor] expected lists of one length, got ", shape[depth], " and ", data.items().size());
  for (const Object& part : data.items()) flatten(part, shape, leaves, depth + 1);
}

}  // namespace

Object tensor_attribute(const Tensor& t, const std::string& name) {
  for (const auto& [known, getter] : kAttributes)
    if (name == known) return getter(t);
  for (const auto& [known, method] : kMethods)
    if (name == known)
      return Object::native(
          [t, method = method](const Objects& a, const Keywords& k) { return method(t, a, k); });
  const Packet* packet = find_method(name);
  FL_CHECK_KIND(packet != nullptr, NotImplemented, "[definition] expected an attribute of tensors, got ",
                name);
  return Object::native([t, packet](const Objects& a, const Keywords& k) {
    Objects all{Object(t)};
    all.insert(all.end(), a.begin(), a.end());
    return call(*packet, all, k);
  });
}

Object index(const Tensor& t, const Object& key) {
  Objects tensors;
  const Object result = basic(Object(t), keys_of(key), tensors);
  if (tensors.empty()) return result;
  return call(*find_operator("index"), {result, Object::list(tensors)});
}

void assign_index(const Tensor& t, const Object& key, const Object& value) {
  Objects tensors;
  const Object target = basic(Object(t), keys_of(key), tensors);
  const Object source =
      value.is(Type::Tensor) ? value : Object(as_tensor(value, Object(t.dtype()), Object(t.device())));
  if (tensors.empty())
    call(*find_method("copy_"), {target, source});
  else
    call(*find_operator("index_put_"), {target, Object::list(tensors), source});
}

Tensor as_tensor(const Object& data, const Object& dtype, const Object& device) {
  Keywords keywords;
  if (!device.is_none()) keywords.emplace_back("device", device);
  if (data.is(Type::Tensor)) {
    if (!dtype.is_none()) keywords.emplace_back("dtype", dtype);
    return keywords.empty() ? data.tensor : call(*find_method("to"), {data}, keywords).tensor;
  }
  std::vector<int64_t> shape;
  Objects leaves;
  flatten(data, shape, leaves, 0);
  DType chosen = default_dtype();
  if (!dtype.is_none())
    chosen = dtype.dtype();
  else if (!leaves.empty()) {
    bool any_float = false, any_complex = false, all_bool = true;
    for (const Object& leaf : leaves) {
      const Scalar scalar = leaf.scalar();
      any_float |= scalar.is_floating();
      any_complex |= scalar.is_complex();
      all_bool &= scalar.kind == Scalar::Kind::Bool;
    }
    if (any_complex)
      chosen = complex_of(default_dtype());
    else if (!any_float)
      chosen = all_bool ? DType::Bool : DType::Int64;
  }
  Tensor tensor = empty(IntSpan(shape), {chosen, Device{}});
  for (size_t i = 0; i < leaves.size(); ++i) {
    const Tensor element = alias(tensor, IntSpan(), IntSpan(), static_cast<int64_t>(i));
    copy_into(element, scalar_tensor(leaves[i].scalar(), {chosen, Device{}}));
  }
  return device.is_none() || device.device().type == DeviceType::CPU
             ? tensor
             : call(*find_method("to"), {Object(tensor)}, {{"device", device}}).tensor;
}

}  // namespace fl::definitions

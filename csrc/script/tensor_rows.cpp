// Operators of TorchScript that convert values, look at a tensor without computing, or end a program.
#include "autograd/autocast.h"
#include "autograd/node.h"
#include "runtime/dlpack.h"
#include "script/rows.h"

namespace fl::script {

Object to_int(const Objects& a) {
  const Object& x = any(a, 0);
  if (x.is(Type::Tensor)) return to_int({definitions::from_scalar(item(tensor(a, 0)))});
  if (x.is(Type::String)) return Object(static_cast<int64_t>(std::strtoll(x.text().c_str(), nullptr, 10)));
  return number(a, 0).is(Type::Float) ? Object(static_cast<int64_t>(x.number)) : Object(x.integer);
}

namespace {

Object to_float(const Objects& a) {
  const Object& x = any(a, 0);
  if (x.is(Type::Tensor)) return Object(item(x.tensor).to<double>());
  if (x.is(Type::String)) return Object(std::strtod(x.text().c_str(), nullptr));
  return Object(real(a, 0));
}
Object to_bool(const Objects& a) {
  const Object& x = any(a, 0);
  if (!x.is_number() && !x.is(Type::Tensor)) refuse("a number or tensor", a, 0);
  return Object(definitions::truth(x));
}
Object to_complex(const Objects& a) {
  const Object first =
      any(a, 0).is(Type::Tensor) ? definitions::from_scalar(item(a[0].tensor)) : number(a, 0);
  const double imaginary = a.size() > 1 ? real(a, 1) : first.imaginary;
  return definitions::from_scalar(Scalar(complex128(first.to_double(), imaginary)));
}
Object element(const Objects& a) {
  const Tensor& t = tensor(a, 0);
  FL_CHECK(t.numel() == 1, "[item] expected a tensor with one element, got the shape ", t.sizes());
  return definitions::from_scalar(item(t));
}

void check_numbers(const Object& data, int depth) {
  FL_CHECK(depth < 32, "[tensor] expected lists at most 32 deep");
  if (!data.is_sequence()) {
    FL_CHECK_KIND(data.is_number() || data.is(Type::Tensor), Type, "[tensor] expected numbers, got ",
                  type_name(data));
    return;
  }
  for (const Object& part : data.items()) check_numbers(part, depth + 1);
}

Object dtype_object(const Objects& a, size_t i) {
  if (i >= a.size() || a[i].is_none()) return {};
  if (a[i].is(Type::DType)) return a[i];
  return Object(runtime::dtype_of(static_cast<fl_dtype>(integer(a, i))));
}

Object make_tensor(const Objects& a) {
  check_numbers(any(a, 0), 0);
  const Object device = a.size() > 2 && a[2].is(Type::Device) ? a[2] : Object();
  const Object data = a[0].is(Type::Tensor) ? Object(autograd::detach(a[0].tensor)) : a[0];
  Object tensor(definitions::as_tensor(data, dtype_object(a, 1), device));
  if (a.size() > 3 && a[3].is(Type::Bool) && a[3].integer) autograd::set_requires_grad(tensor.tensor, true);
  return tensor;
}

// `to` in its forms: a dtype, a device, both, or another tensor; by position as archives write it.
Object convert(const Objects& a) {
  tensor(a, 0);
  Object dtype, device;
  bool copy = false;
  size_t flags = 0;
  for (size_t i = 1; i < a.size(); ++i) {
    if (a[i].is(Type::Tensor)) {
      dtype = Object(a[i].tensor.dtype());
      device = Object(a[i].tensor.device());
    } else if (a[i].is(Type::Device)) {
      device = a[i];
    } else if (a[i].is(Type::Bool)) {
      copy |= flags++ == 1 && a[i].integer != 0;
    } else if ((a[i].is(Type::Int) || a[i].is(Type::DType)) && dtype.is_none() && flags == 0) {
      dtype = dtype_object(a, i);
    }
  }
  Keywords options{{"copy", Object(copy)}};
  if (!dtype.is_none()) options.emplace_back("dtype", dtype);
  if (!device.is_none()) options.emplace_back("device", device);
  return definitions::call(*definitions::find_method("to"), {a[0]}, options);
}

Object raise(const Objects& a) {
  const std::string name = text(a, 1, "builtins.RuntimeError"), content = shown(any(a, 0), false);
  const ErrorKind kind = name == "builtins.ValueError"            ? ErrorKind::Value
                         : name == "builtins.TypeError"           ? ErrorKind::Type
                         : name == "builtins.IndexError"          ? ErrorKind::Index
                         : name == "builtins.NotImplementedError" ? ErrorKind::NotImplemented
                                                                  : ErrorKind::Runtime;
  throw Error(kind, content);
}

Object unwrap(const Objects& a) {
  FL_CHECK(!any(a, 0).is_none(), "AssertionError: Unwrapping null optional");
  return a[0];
}

Object sizes(const Objects& a, bool strides) {
  const Tensor& t = tensor(a, 0);
  const IntSpan all = strides ? IntSpan(t->strides) : t.sizes();
  if (a.size() > 1 && !a[1].is_none()) {
    const int64_t n = t.dim(), d = integer(a, 1), at = d < 0 ? d + n : d;
    FL_CHECK_KIND(at >= 0 && at < n, Index, "[size] expected a dimension of a tensor with ", n,
                  " of them, got ", d);
    return Object(all[static_cast<size_t>(at)]);
  }
  return Object::list(Objects(all.begin(), all.end()));
}

Object requires_grad_(const Objects& a) {
  autograd::set_requires_grad(tensor(a, 0), a.size() < 2 || definitions::truth(a[1]));
  return a[0];
}

Object set_grad(const Objects& a) {
  thread_state().grad_mode = integer(a, 0) != 0;
  return {};
}

Object to_list(const Objects& a) {
  return definitions::invoke(definitions::tensor_attribute(tensor(a, 0), "tolist"), {});
}

Object autocast_dtype(const Objects& a) {
  return Object(int64_t(runtime::number_of(autocast::lower_dtype(parse_device(text(a, 0)).type))));
}

Object type_of_device(const Objects& a) {
  FL_CHECK(any(a, 0).is(Type::Device), "[jit] expected a device");
  return Object(device_type_name(a[0].device().type));
}

Object device(const Objects& a) {
  const std::string index = a.size() > 1 ? ":" + std::to_string(integer(a, 1)) : "";
  return any(a, 0).is(Type::Device) ? a[0] : Object(parse_device(text(a, 0) + index));
}

}  // namespace

const Rows& tensor_rows() {
  static const Rows table = {
      {"Int", {to_int, true}},
      {"Float", {to_float, true}},
      {"Bool", {to_bool, true}},
      {"Complex", {to_complex, true}},
      {"IntImplicit", {to_int, true}},
      {"FloatImplicit", {to_float, true}},
      {"ComplexImplicit", {to_complex, true}},
      {"ScalarImplicit", {element, true}},
      {"item", {element, true}},
      {"tensor", {make_tensor, true}},
      {"as_tensor", {make_tensor, true}},
      {"NumToTensor", {make_tensor, true}},
      {"to", {convert, true}},
      {"size", {[](const Objects& a) { return sizes(a, false); }, true}},
      {"sym_size", {[](const Objects& a) { return sizes(a, false); }, true}},
      {"shape", {[](const Objects& a) { return sizes(a, false); }, true}},
      {"stride", {[](const Objects& a) { return sizes(a, true); }, true}},
      {"dim", {[](const Objects& a) { return Object(tensor(a, 0).dim()); }, true}},
      {"ndim", {[](const Objects& a) { return Object(tensor(a, 0).dim()); }, true}},
      {"numel", {[](const Objects& a) { return Object(tensor(a, 0).numel()); }, true}},
      {"dtype",
       {[](const Objects& a) { return Object(int64_t(runtime::number_of(tensor(a, 0).dtype()))); }, true}},
      {"device",
       {[](const Objects& a) {
          return any(a, 0).is(Type::Tensor) ? Object(a[0].tensor.device()) : device(a);
        },
        true}},
      {"layout", {[](const Objects& a) { return tensor(a, 0), Object(0); }, true}},
      {"requires_grad", {[](const Objects& a) { return Object(autograd::wants_grad(tensor(a, 0))); }, true}},
      {"requires_grad_", {requires_grad_, true}},
      {"data", {[](const Objects& a) { return Object(autograd::detach(tensor(a, 0))); }, true}},
      {"grad",
       {[](const Objects& a) {
          const auto* meta = autograd::meta_of(tensor(a, 0));
          return meta ? Object(meta->grad) : Object();
        },
        true}},
      {"is_leaf", {[](const Objects& a) { return Object(autograd::is_leaf(tensor(a, 0))); }, true}},
      {"is_cpu", {[](const Objects& a) { return Object(tensor(a, 0).is_cpu()); }, true}},
      {"is_cuda",
       {[](const Objects& a) { return Object(tensor(a, 0).device().type == DeviceType::CUDA); }, true}},
      {"is_meta", {[](const Objects& a) { return Object(tensor(a, 0).is_meta()); }, true}},
      {"is_sparse", {[](const Objects& a) { return Object(bool(tensor(a, 0)->sparse)); }, true}},
      {"is_quantized", {[](const Objects& a) { return tensor(a, 0), Object(false); }, true}},
      {"is_mkldnn", {[](const Objects& a) { return tensor(a, 0), Object(false); }, true}},
      {"is_nested", {[](const Objects& a) { return tensor(a, 0), Object(false); }, true}},
      {"is_floating_point",
       {[](const Objects& a) { return Object(is_floating(tensor(a, 0).dtype())); }, true}},
      {"is_complex", {[](const Objects& a) { return Object(is_complex(tensor(a, 0).dtype())); }, true}},
      {"is_contiguous", {[](const Objects& a) { return Object(tensor(a, 0).is_contiguous()); }, true}},
      {"storage_offset", {[](const Objects& a) { return Object(tensor(a, 0).offset()); }, true}},
      {"element_size", {[](const Objects& a) { return Object(tensor(a, 0).itemsize()); }, true}},
      {"itemsize", {[](const Objects& a) { return Object(tensor(a, 0).itemsize()); }, true}},
      {"nbytes",
       {[](const Objects& a) { return Object(tensor(a, 0).itemsize() * tensor(a, 0).numel()); }, true}},
      {"tolist", {to_list, true}},
      {"type", {type_of_device}},
      {"RaiseException", {raise, true}},
      {"_unwrap_optional", {unwrap, true}},
      {"unchecked_unwrap_optional", {unwrap, true}},
      {"wait", {[](const Objects& a) { return wait(any(a, 0)); }, true}},
      {"awaitable_wait", {[](const Objects& a) { return wait(any(a, 0)); }, true}},
      {"awaitable_nowait", {[](const Objects& a) { return any(a, 0); }, true}},
      {"IfThenElse", {[](const Objects& a) { return integer(a, 0) ? any(a, 1) : any(a, 2); }, true}},
      {"is_grad_enabled", {[](const Objects&) { return Object(thread_state().grad_mode); }, true}},
      {"set_grad_enabled", {set_grad, true}},
      {"is_scripting", {[](const Objects&) { return Object(true); }, true}},
      {"is_autocast_enabled",
       {[](const Objects&) { return Object(autocast::enabled(DeviceType::CUDA)); }, true}},
      {"is_autocast_cpu_enabled",
       {[](const Objects&) { return Object(autocast::enabled(DeviceType::CPU)); }, true}},
      {"get_autocast_dtype", {autocast_dtype, true}},
  };
  return table;
}

}  // namespace fl::script

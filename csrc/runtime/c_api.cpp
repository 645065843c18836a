// The C interface over gradients and operators: see flambeau/include/flambeau/flambeau.h.
#include <cstdlib>
#include <cstring>

#include "autograd/node.h"
#include "core/random.h"
#include "runtime/c_values.h"

using fl::Tensor;
using fl::definitions::Object;
using fl::definitions::Objects;
using fl::definitions::Type;
using namespace fl::runtime;

namespace {

// A method of tensors, or an operator that has no such form.
Object call_method(const Object& self, const char* name, const Objects& rest,
                   const fl::definitions::Keywords& keywords) {
  const bool attribute =
      fl::definitions::find_method(name) == nullptr && fl::definitions::find_operator(name) != nullptr;
  if (!attribute) {
    const Object member = fl::definitions::attribute(self, name);
    return member.is(Type::Native) ? invoke(member, rest, keywords) : member;
  }
  Objects all{self};
  all.insert(all.end(), rest.begin(), rest.end());
  return fl::definitions::call(*fl::definitions::find_operator(name), all, keywords);
}

fl_status call_packet(bool method, const char* name, const fl_value* arguments, size_t count,
                      fl_value* results, size_t capacity, size_t* result_count) {
  return guarded([&] {
    fl::definitions::install();
    needed(name, "a name");
    needed(result_count, "room for the number of results");
    if (count) needed(arguments, "arguments");
    Objects positional;
    fl::definitions::Keywords keywords;
    for (size_t i = 0; i < count; ++i) {
      if (arguments[i].name)
        keywords.emplace_back(arguments[i].name, to_object(arguments[i]));
      else
        positional.push_back(to_object(arguments[i]));
    }
    Object result;
    if (method) {
      FL_CHECK_KIND(!positional.empty() && positional[0].is(Type::Tensor), Type, "[", name,
                    "] expected a tensor as the first argument of a method, got none");
      const Objects rest(positional.begin() + 1, positional.end());
      if (std::strcmp(name, "__getitem__") == 0)
        result = fl::definitions::index(positional[0].tensor, Object::tuple(rest));
      else if (std::strcmp(name, "__setitem__") == 0 && keywords.size() == 1)
        fl::definitions::assign_index(positional[0].tensor, Object::tuple(rest), keywords[0].second);
      else
        result = call_method(positional[0], name, rest, keywords);
    } else {
      result = fl::definitions::call(name, positional, keywords);
    }
    const bool several = result.is(Type::Tuple);
    const size_t n = several ? result.items().size() : result.is_none() ? 0 : 1;
    FL_CHECK(n <= capacity && (results || n == 0), "[", name, "] expected room for ", n, " results, got ",
             results ? capacity : 0);
    for (size_t i = 0; i < n; ++i) results[i] = from_object(several ? result.items()[i] : result);
    *result_count = n;
  });
}

}  // namespace

extern "C" {

// ---------------------------------------------------------------- gradients

int fl_tensor_requires_grad(const fl_tensor* t) {
  fl::definitions::install();
  return fl::autograd::wants_grad(borrow(t));
}
fl_status fl_tensor_set_requires_grad(fl_tensor* t, int requires_grad) {
  return guarded([&] {
    fl::definitions::install();
    fl::autograd::set_requires_grad(needed_tensor(t), requires_grad != 0);
  });
}
int fl_tensor_is_leaf(const fl_tensor* t) {
  return fl::autograd::is_leaf(borrow(t));
}
fl_tensor* fl_tensor_grad(const fl_tensor* t) {
  const auto* meta = fl::autograd::meta_of(borrow(t));
  return meta ? give(meta->grad) : nullptr;
}
fl_status fl_tensor_set_grad(fl_tensor* t, fl_tensor* grad) {
  return guarded([&] { fl::autograd::ensure_meta(needed_tensor(t)).grad = borrow(grad); });
}
fl_status fl_tensor_retain_grad(fl_tensor* t) {
  return guarded([&] { fl::autograd::retain_grad(needed_tensor(t)); });
}
fl_tensor* fl_tensor_detach(const fl_tensor* t) {
  return give(fl::autograd::detach(borrow(t)));
}

fl_status fl_backward(fl_tensor* const* roots, fl_tensor* const* gradients, size_t root_count,
                      fl_tensor* const* inputs, size_t input_count, int retain_graph, int create_graph,
                      fl_tensor** input_gradients) {
  return guarded([&] {
    fl::definitions::install();
    std::vector<fl::autograd::Edge> edges, wanted;
    std::vector<Tensor> grads;
    for (size_t i = 0; i < root_count; ++i) {
      const Tensor root = needed_tensor(roots ? roots[i] : nullptr);
      edges.push_back(fl::autograd::gradient_edge(root));
      FL_CHECK(bool(edges.back()), "[backward] expected a tensor that requires grad, got one that does not");
      Tensor grad = gradients ? borrow(gradients[i]) : Tensor();
      if (!grad.defined()) {
        FL_CHECK(root.numel() == 1, "[backward] expected a gradient for a tensor of the shape ", root.sizes(),
                 ", got none");
        grad = fl::definitions::call("ones_like", {Object(fl::autograd::detach(root))}).tensor;
      }
      grads.push_back(grad);
    }
    for (size_t i = 0; i < input_count; ++i) {
      wanted.push_back(fl::autograd::gradient_edge(needed_tensor(inputs ? inputs[i] : nullptr)));
      FL_CHECK(bool(wanted.back()), "[backward] expected inputs that require grad, got one that does not");
    }
    fl::autograd::BackwardOptions options;
    options.retain_graph = retain_graph != 0;
    options.create_graph = create_graph != 0;
    options.accumulate = input_gradients == nullptr;
    const std::vector<Tensor> gradients_of_inputs =
        fl::autograd::run_backward(edges, std::move(grads), wanted, options);
    for (size_t i = 0; input_gradients && i < input_count; ++i)
      input_gradients[i] = give(gradients_of_inputs[i]);
  });
}

int fl_grad_enabled(void) {
  return fl::thread_state().grad_mode;
}
void fl_set_grad_enabled(int enabled) {
  fl::thread_state().grad_mode = enabled != 0;
}
void fl_manual_seed(uint64_t seed) {
  for (const auto type : {fl::DeviceType::CPU, fl::DeviceType::CUDA})
    fl::default_generator(type).manual_seed(seed);
}
fl_dtype fl_default_dtype(void) {
  return fl::runtime::number_of(fl::default_dtype());
}
fl_status fl_set_default_dtype(fl_dtype dtype) {
  return guarded([&] { fl::set_default_dtype(fl::runtime::dtype_of(dtype)); });
}

// ---------------------------------------------------------------- operators

fl_status fl_call(const char* name, const fl_value* arguments, size_t argument_count, fl_value* results,
                  size_t capacity, size_t* result_count) {
  return call_packet(false, name, arguments, argument_count, results, capacity, result_count);
}
fl_status fl_call_method(const char* name, const fl_value* arguments, size_t argument_count,
                         fl_value* results, size_t capacity, size_t* result_count) {
  return call_packet(true, name, arguments, argument_count, results, capacity, result_count);
}
void fl_values_clear(fl_value* values, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (values[i].kind == FL_VALUE_TENSOR) fl_tensor_release(values[i].as.tensor);
    if (values[i].kind == FL_VALUE_TENSORS) {
      for (size_t k = 0; k < values[i].length; ++k) fl_tensor_release(values[i].as.tensors[k]);
      std::free(values[i].as.tensors);
    }
    values[i].kind = FL_NONE;
  }
}

}  // extern "C"

// Functions of the C interface around gradients that call back: derivatives and hooks.
#include <algorithm>
#include <atomic>

#include "autograd/node.h"
#include "autograd/set_data.h"
#include "core/changes.h"
#include "definitions/object.h"
#include "runtime/c_handles.h"

using fl::Tensor;
using namespace fl::runtime;

namespace {

struct CallbackNode final : fl::autograd::Node {
  CallbackNode(std::string title, fl_backward_function backward, void (*release)(void*), void* context)
      : title_(std::move(title)), backward_(backward), release_(release), context_(context) {}
  ~CallbackNode() override {
    if (release_) release_(context_);
  }

  std::string name() const override { return title_; }

  std::vector<Tensor> apply(std::vector<Tensor>&& grads) override {
    std::vector<fl_tensor*> arguments, results(next.size());
    for (const Tensor& grad : grads)
      arguments.push_back(grad.defined() ? reinterpret_cast<fl_tensor*>(grad.impl()) : nullptr);
    const fl_status status =
        backward_(context_, arguments.data(), arguments.size(), results.data(), results.size());
    std::vector<Tensor> owned;
    for (fl_tensor* result : results) {
      owned.push_back(borrow(result));
      fl_tensor_release(result);
    }
    FL_CHECK(status == FL_OK, last_error());
    return owned;
  }

 private:
  std::string title_;
  fl_backward_function backward_;
  void (*release_)(void*);
  void* context_;
};

// A hook of the caller's on the gradient of one tensor.
struct CallbackHook final : fl::autograd::Hook {
  CallbackHook(fl_hook_function function, void (*release)(void*), void* context)
      : number(next_number++), function_(function), release_(release), context_(context) {}
  ~CallbackHook() override {
    if (release_) release_(context_);
  }

  void call(std::vector<Tensor>& grads, const std::vector<Tensor>*) override {
    fl_tensor* result = nullptr;
    const fl_status status = function_(context_, reinterpret_cast<fl_tensor*>(grads[0].impl()), &result);
    if (result) grads[0] = borrow(result);
    fl_tensor_release(result);
    FL_CHECK(status == FL_OK, last_error());
  }

  const size_t number;

 private:
  static inline std::atomic<size_t> next_number{1};
  fl_hook_function function_;
  void (*release_)(void*);
  void* context_;
};

bool is_numbered(const fl::Ref<fl::autograd::Hook>& hook, size_t number) {
  const auto* own = dynamic_cast<const CallbackHook*>(hook.get());
  return own && own->number == number;
}

}  // namespace

extern "C" {

fl_status fl_fail(const char* message) {
  last_error() = message ? message : "";
  return FL_RUNTIME_ERROR;
}

fl_status fl_set_backward(fl_tensor* const* inputs, size_t input_count, fl_tensor** outputs,
                          size_t output_count, const char* name, fl_backward_function backward,
                          void (*release)(void*), void* context) {
  return guarded([&] {
    fl::definitions::install();
    fl::Ref<CallbackNode> node(new CallbackNode(name ? name : "", backward, release, context));
    bool differentiable = false;
    for (size_t i = 0; i < input_count; ++i) {
      node->next.push_back(fl::thread_state().grad_mode
                               ? fl::autograd::gradient_edge(needed_tensor(inputs ? inputs[i] : nullptr))
                               : fl::autograd::Edge());
      differentiable = differentiable || bool(node->next[i]);
    }
    for (size_t i = 0; i < output_count; ++i) {
      Tensor output = fl::autograd::detach(needed_tensor(outputs ? outputs[i] : nullptr));
      if (differentiable)
        fl::autograd::set_history(output, fl::Ref<fl::autograd::Node>(node.get()), node->add_output(output));
      outputs[i] = give(std::move(output));
    }
  });
}

fl_status fl_tensor_set_data(fl_tensor* tensor, const fl_tensor* data) {
  return guarded([&] { fl::autograd::set_data(needed_tensor(tensor), needed_tensor(data)); });
}

fl_status fl_tensor_register_hook(fl_tensor* tensor, fl_hook_function hook, void (*release)(void*),
                                  void* context, size_t* number) {
  return guarded([&] {
    const fl::Ref<CallbackHook> callback(new CallbackHook(hook, release, context));
    const Tensor t = needed_tensor(tensor);
    needed(hook, "a hook");
    needed(number, "room for a number");
    FL_CHECK(fl::autograd::wants_grad(t),
             "[register_hook] expected a tensor that requires grad, got one that does not");
    fl::autograd::Meta& meta = fl::autograd::ensure_meta(t);
    const fl::Ref<fl::autograd::Hook> shared(callback.get());
    if (const fl::Ref<fl::autograd::Node> node = fl::autograd::grad_fn_of(t))
      node->more().tensor_hooks.push_back({meta.output, shared});
    else
      meta.more().hooks.push_back(shared);
    fl::count_tensor_change();
    *number = callback->number;
  });
}

fl_status fl_tensor_remove_hook(fl_tensor* tensor, size_t number) {
  return guarded([&] {
    const Tensor t = needed_tensor(tensor);
    if (const fl::Ref<fl::autograd::Node> node = fl::autograd::grad_fn_of(t); node && node->extras) {
      auto& hooks = node->extras->tensor_hooks;
      hooks.erase(std::remove_if(hooks.begin(), hooks.end(),
                                 [&](const auto& h) { return is_numbered(h.second, number); }),
                  hooks.end());
    }
    if (auto* meta = fl::autograd::meta_of(t); meta && meta->extras) {
      auto& hooks = meta->extras->hooks;
      hooks.erase(
          std::remove_if(hooks.begin(), hooks.end(), [&](const auto& h) { return is_numbered(h, number); }),
          hooks.end());
    }
    fl::count_tensor_change();
  });
}

const char* fl_tensor_grad_fn(const fl_tensor* tensor) {
  static thread_local std::string text;
  const fl::Ref<fl::autograd::Node> node = fl::autograd::grad_fn_of(borrow(tensor));
  if (!node) return nullptr;
  text = node->name();
  return text.c_str();
}

}  // extern "C"

// Functions of the C interface whose derivative is a callback of the caller's.
#include "autograd/node.h"
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
      node->next.push_back(fl::thread_state().grad_mode ? fl::autograd::gradient_edge(borrow(inputs[i]))
                                                        : fl::autograd::Edge());
      differentiable = differentiable || bool(node->next[i]);
    }
    for (size_t i = 0; i < output_count; ++i) {
      Tensor output = fl::autograd::detach(borrow(outputs[i]));
      if (differentiable)
        fl::autograd::set_history(output, fl::Ref<fl::autograd::Node>(node.get()), node->add_output(output));
      outputs[i] = give(std::move(output));
    }
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

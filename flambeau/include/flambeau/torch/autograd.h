// torch::autograd::Function: functions with a derivative of their own.
#pragma once

#include <flambeau/torch/ivalue.h>

#include <exception>
#include <map>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace torch::autograd {

using tensor_list = variable_list;

// What forward leaves for backward.
class AutogradContext {
 public:
  void save_for_backward(variable_list tensors) { saved_ = std::move(tensors); }
  variable_list get_saved_variables() const { return saved_; }
  void mark_non_differentiable(const variable_list& outputs) { non_differentiable_ = outputs; }
  void set_materialize_grads(bool value) { materialize_ = value; }
  std::map<std::string, c10::IValue> saved_data;

 private:
  template <class>
  friend class Function;
  variable_list saved_, non_differentiable_;
  bool materialize_ = true, saves_results_ = false;
};

// A class F with `static R forward(AutogradContext*, ...)` and `static variable_list
// backward(AutogradContext*, variable_list)`, R one tensor or several, is called by F::apply(...). Backward
// returns a gradient for each argument of forward, undefined for those that are no tensors.
template <class F>
class Function {
 public:
  template <class X = F, class... A>
  static auto apply(A&&... arguments) {
    auto* call = new Call();
    call->places.reserve(sizeof...(A));
    (call->enter(arguments), ...);
    using Result = std::decay_t<decltype(X::forward(&call->context, std::forward<A>(arguments)...))>;
    Result result;
    try {
      torch::NoGradGuard guard;
      result = X::forward(&call->context, std::forward<A>(arguments)...);
    } catch (...) {
      delete call;
      throw;
    }
    if constexpr (std::is_same_v<Result, Tensor>) {
      variable_list outputs{result};
      connect(call, outputs);
      return outputs[0];
    } else {
      connect(call, result);
      return result;
    }
  }

 private:
  // One call: it lives as long as its results have a history.
  struct Call {
    AutogradContext context;
    variable_list inputs;
    std::vector<int> places;  // of each argument among the inputs; -1 where it is no tensor
    std::vector<TensorOptions> kinds;
    std::vector<std::vector<int64_t>> shapes;  // of the results

    void enter(const Tensor& t) {
      places.push_back(t.defined() ? static_cast<int>(inputs.size()) : -1);
      if (t.defined()) inputs.push_back(t);
    }
    void enter(const std::optional<Tensor>& t) { enter(t.value_or(Tensor())); }
    template <class T>
    void enter(const T&) {
      places.push_back(-1);
    }
  };

  static void connect(Call* call, variable_list& outputs) {
    std::vector<fl_tensor*> from, to;
    std::vector<size_t> which;
    for (const Tensor& t : call->inputs) from.push_back(t.handle());
    for (size_t i = 0; i < outputs.size(); ++i) {
      bool differentiable = outputs[i].defined();
      for (const Tensor& t : call->context.non_differentiable_)
        differentiable = differentiable && t.handle() != outputs[i].handle();
      if (!differentiable) continue;
      which.push_back(i);
      to.push_back(outputs[i].handle());
      call->kinds.push_back(outputs[i].options());
      call->shapes.push_back(outputs[i].sizes().vec());
    }
    call->inputs.clear();
    for (const Tensor& t : call->context.saved_)
      for (fl_tensor* output : to)
        call->context.saves_results_ = call->context.saves_results_ || t.handle() == output;
    // Results become new handles: a saved result has no history, which would keep its own node alive.
    c10::check(
        fl_set_backward(from.data(), from.size(), to.data(), to.size(), "CppFunction", run, release, call));
    for (size_t i = 0; i < which.size(); ++i) outputs[which[i]] = Tensor::adopt(to[i]);
  }

  static fl_status run(void* context, fl_tensor* const* gradients, size_t output_count, fl_tensor** results,
                       size_t input_count) {
    auto* call = static_cast<Call*>(context);
    try {
      if (call->context.saves_results_ && fl_grad_enabled())
        throw c10::Error(
            "[Function] expected saved inputs in a function that is differentiated twice, got a saved "
            "result");
      variable_list given;
      for (size_t i = 0; i < output_count; ++i) {
        given.push_back(Tensor::adopt(fl_tensor_retain(gradients[i])));
        if (!given.back().defined() && call->context.materialize_)
          given.back() = torch::zeros(call->shapes[i], call->kinds[i]);
      }
      const variable_list computed = F::backward(&call->context, given);
      if (computed.size() < call->places.size())
        throw c10::Error(c10::str("[Function] expected a gradient for each of ", call->places.size(),
                                  " arguments, got ", computed.size()));
      for (size_t i = 0; i < call->places.size(); ++i) {
        const int place = call->places[i];
        if (place >= 0 && static_cast<size_t>(place) < input_count)
          results[place] = fl_tensor_retain(computed[i].handle());
      }
      return FL_OK;
    } catch (const std::exception& error) {
      return fl_fail(error.what());
    }
  }
  static void release(void* context) { delete static_cast<Call*>(context); }
};

}  // namespace torch::autograd

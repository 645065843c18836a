// Gradients of views that pick elements: the gradient written into a tensor of zeros at the place of the
// window.
#include "dispatch/kernel.h"

namespace fl {
namespace {

template <class Window>
Tensor write_window(const Tensor& grad, IntSpan sizes, const Window& window) {
  static const Operator& zero = OperatorTable::get().at("zero_");
  static const Operator& copy = OperatorTable::get().at("copy_");
  Tensor out = empty(sizes, grad.options());
  call_tensor(zero, out);
  call_tensor(copy, window(out), grad, false);
  return out;
}

Tensor select_backward(const Tensor& grad, IntSpan sizes, int64_t dim, int64_t index) {
  static const Operator& select = OperatorTable::get().at("select");
  return write_window(grad, sizes, [&](const Tensor& t) { return call_tensor(select, t, dim, index); });
}
Tensor slice_backward(const Tensor& grad, IntSpan sizes, int64_t dim, std::optional<int64_t> start,
                      std::optional<int64_t> end, int64_t step) {
  static const Operator& slice = OperatorTable::get().at("slice");
  return write_window(grad, sizes, [&](const Tensor& t) {
    return call_tensor(slice, t, dim, start ? Value(*start) : Value(), end ? Value(*end) : Value(), step);
  });
}
Tensor diagonal_backward(const Tensor& grad, IntSpan sizes, int64_t offset, int64_t dim1, int64_t dim2) {
  static const Operator& diagonal = OperatorTable::get().at("diagonal");
  return write_window(grad, sizes,
                      [&](const Tensor& t) { return call_tensor(diagonal, t, offset, dim1, dim2); });
}

FL_KERNEL("_select_backward", select_backward, kEverywhere);
FL_KERNEL("_slice_backward", slice_backward, kEverywhere);
FL_KERNEL("_diagonal_backward", diagonal_backward, kEverywhere);

}  // namespace
}  // namespace fl

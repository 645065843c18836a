// Derivatives written in ops, in Python: what they ask for by the names of their parameters, and the call at
// backward.
#include "autograd/written_derivative.h"
#include "dispatch/builtin.h"
#include "python/autograd.h"
#include "python/library.h"

namespace fl::py {
namespace {

struct PythonDerivative : autograd::WrittenDerivative {
  PyObject* function = nullptr;
};

PyObject* argument_of(autograd::OperatorNode& node, int i) {
  const auto& arg = node.op->schema.args[i];
  const size_t begin = node.arg_begin[i], end = node.arg_begin[i + 1];
  const bool is_tensor_arg = arg.type == ArgType::Tensor || arg.type == ArgType::TensorOrScalar;
  if (is_tensor_arg && arg.list) {
    Object list = own(PyList_New(end - begin));
    for (size_t k = begin; k < end; ++k)
      PyList_SET_ITEM(list.get(), k - begin, check(wrap(node.saved_arg(k))));
    return list.release();
  }
  if (end > begin) return wrap(node.saved_arg(begin));
  return to_python(node.args[i]);
}

PyObject* size_list(const Dims& sizes) {
  return make_size(sizes);
}

bool takes_tensors(const Argument& arg) {
  return arg.type == ArgType::Tensor || arg.type == ArgType::TensorOrScalar;
}

// The shape of an argument, or the list of those of a list of tensors.
PyObject* sizes_of(const autograd::OperatorNode& node, int index) {
  const size_t begin = node.arg_begin[index], end = node.arg_begin[index + 1];
  if (!node.op->schema.args[index].list)
    return end > begin ? size_list(node.inputs[begin].sizes) : Py_NewRef(Py_None);
  PyObject* list = check(PyList_New(end - begin));
  for (size_t k = begin; k < end; ++k) PyList_SET_ITEM(list, k - begin, size_list(node.inputs[k].sizes));
  return list;
}

// Which gradients are needed: one entry for each tensor argument of the schema, a tuple for a list.
PyObject* needs_of(const autograd::OperatorNode& node) {
  const auto& args = node.op->schema.args;
  Object list = own(PyList_New(0));
  for (size_t i = 0; i < args.size(); ++i) {
    if (!takes_tensors(args[i])) continue;
    Object entry;
    if (args[i].list) {
      const size_t begin = node.arg_begin[i], end = node.arg_begin[i + 1];
      entry = own(PyTuple_New(end - begin));
      for (size_t k = begin; k < end; ++k)
        PyTuple_SET_ITEM(entry.get(), k - begin, PyBool_FromLong(node.needs(k)));
    } else {
      entry = own(PyBool_FromLong(node.has(i) && node.needs(node.arg_begin[i])));
    }
    check(PyList_Append(list.get(), entry.get()));
  }
  return PyList_AsTuple(list.get());
}

// One argument of the derivative's function.
PyObject* source_value(const PythonDerivative::Source& source, autograd::OperatorNode& node,
                       const std::vector<Tensor>& grads) {
  const auto [kind, index] = source;
  switch (kind) {
    case PythonDerivative::Source::Grad:
      if (node.op->schema.returns_list) return tuple_of(grads).release();
      return wrap(index < static_cast<int>(grads.size()) ? grads[index] : Tensor());
    case PythonDerivative::Source::Arg:
      return argument_of(node, index);
    case PythonDerivative::Source::Sizes:
      return sizes_of(node, index);
    case PythonDerivative::Source::DTypeOf:
      return Py_NewRef(dtype_object(node.inputs[node.arg_begin[index]].dtype));
    case PythonDerivative::Source::Result:
      return wrap(node.saved_result(index));
    case PythonDerivative::Source::Window:
      return wrap(node.saved_args[node.arg_begin[index]].peek(&node, node.op_name()));
    case PythonDerivative::Source::DeviceOf:
      return make_device(node.inputs[node.arg_begin[index]].device);
    case PythonDerivative::Source::Needs:
      return needs_of(node);
  }
  return nullptr;
}

// One gradient for each tensor argument, from what the function returned; lists laid out.
std::vector<Tensor> gradients_from(const autograd::OperatorNode& node, const Object& result) {
  const auto& schema = node.op->schema;
  std::vector<Tensor> out(node.next.size());
  const auto put = [&](size_t at, PyObject* o) {
    if (o == Py_None) return;
    FL_CHECK_KIND(is_tensor(o), Type, "[", schema.name, "] expected its derivative to return tensors, got ",
                  std::string(Py_TYPE(o)->tp_name));
    out[at] = unwrap(o);
  };
  Object tuple = PyTuple_Check(result.get()) ? result : own(PyTuple_Pack(1, result.get()));
  Py_ssize_t k = 0;
  const Py_ssize_t n = PyTuple_GET_SIZE(tuple.get());
  for (size_t i = 0; i < schema.args.size(); ++i) {
    if (!takes_tensors(schema.args[i])) continue;
    if (k >= n) break;  // what is left has none
    PyObject* o = PyTuple_GET_ITEM(tuple.get(), k++);
    const size_t begin = node.arg_begin[i], end = node.arg_begin[i + 1];
    if (schema.args[i].list) {
      if (o == Py_None) continue;
      Object fast = own(PySequence_Fast(o, "[autograd] expected a list of gradients"));
      for (size_t j = begin; j < end && j - begin < static_cast<size_t>(PySequence_Fast_GET_SIZE(fast.get()));
           ++j)
        put(j, PySequence_Fast_GET_ITEM(fast.get(), j - begin));
    } else if (end > begin) {
      put(begin, o);
    }
  }
  return out;
}

std::vector<Tensor> apply_python(const autograd::Derivative& self, autograd::OperatorNode& node,
                                 std::vector<Tensor>&& grads) {
  WithGIL gil;
  auto& d = *static_cast<PythonDerivative*>(self.context);
  if (!d.function) {
    Object module = own(PyImport_ImportModule(d.row->vjp_module));
    d.function = check(PyObject_GetAttrString(module.get(), d.row->vjp_function));
  }
  TorchFunctionSwitch not_the_user(true);
  // Gradients of results that the derivative does not mention make no difference.
  if (!d.concerned(node, grads)) return std::vector<Tensor>(node.next.size());
  Object args = own(PyTuple_New(d.sources.size()));
  for (size_t s = 0; s < d.sources.size(); ++s)
    PyTuple_SET_ITEM(args.get(), s, check(source_value(d.sources[s], node, grads)));
  return gradients_from(node, own(PyObject_CallObject(d.function, args.get())));
}

void install_python_derivatives() {
  for (int i = 0; i < builtin_operator_count; ++i) {
    const BuiltinOperator& row = builtin_operators[i];
    if (row.vjp_function[0] == 0) continue;
    Operator& op = builtin_operator(i);
    auto* d = new PythonDerivative;
    auto* derivative = new autograd::Derivative;
    autograd::read_sources(op, row, *d, *derivative);
    derivative->apply = apply_python;
    derivative->context = d;
    autograd::set_derivative(op, derivative);
  }
}

// The derivative of a pointwise op evaluated op by op, for gradients of gradients.
Tensor python_expression_gradient(const Operator& op, int operand, const Tensor& g,
                                  autograd::OperatorNode& node) {
  WithGIL gil;
  static PyObject* evaluate = nullptr;
  if (!evaluate) {
    Object module = own(PyImport_ImportModule("flambeau.ops.evaluate"));
    evaluate = check(PyObject_GetAttrString(module.get(), "gradient"));
  }
  // Only what this gradient needs is unpacked: the operand's place among the arguments says what that is.
  uint64_t needed = ~uint64_t(0);
  const auto& needs = node.derivative->saves_args_for;
  for (size_t i = 0, seen = 0; i < needs.size(); ++i) {
    const ArgType type = op.schema.args[i].type;
    if (type != ArgType::Tensor && type != ArgType::TensorOrScalar) continue;
    if (static_cast<int>(seen++) == operand) needed = needs[i];
  }
  Object args = own(PyTuple_New(op.schema.args.size()));
  for (size_t i = 0; i < op.schema.args.size(); ++i) {
    const size_t begin = node.arg_begin[i];
    PyObject* value;
    if (node.arg_begin[i + 1] > begin)
      value = needed >> i & 1 && node.saved_args[begin].defined() ? wrap(node.saved_arg(begin))
                                                                  : Py_NewRef(Py_None);
    else
      value = to_python(node.args[i]);
    PyTuple_SET_ITEM(args.get(), i, check(value));
  }
  Object grad = own(wrap(g));
  Object out = !node.saved_results.empty() && node.saved_results[0].defined()
                   ? own(wrap(node.saved_result(0)))
                   : Object::borrow(Py_None);
  Object name = own(PyUnicode_FromString(op.schema.full_name().c_str()));
  Object k = own(PyLong_FromLong(operand));
  Object result = own(PyObject_CallFunctionObjArgs(evaluate, name.get(), k.get(), grad.get(), args.get(),
                                                   out.get(), nullptr));
  return result.get() == Py_None ? Tensor() : unwrap(result.get());
}

}  // namespace

void add_derivatives() {
  install_python_derivatives();
  autograd::expression_gradient = python_expression_gradient;
}

}  // namespace fl::py

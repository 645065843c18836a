// t[key] and t[key] = value. Integers, slices, None, Ellipsis and booleans become one view; tensors, arrays
// and lists of integers or booleans go on to the `index` and `index_put_` operators.
#include "core/view_tracking.h"
#include "core/views.h"
#include "dispatch/kernel.h"
#include "python/parse.h"

namespace fl::py {

namespace {

int64_t item_value(const Tensor& t) {
  return item(t).to<int64_t>();
}

struct Parsed {
  Tensor view;                  // after the basic part
  std::vector<Tensor> indices;  // as the index operator takes them: undefined where it is not indexed
  bool advanced = false;
};

bool is_index_sequence(PyObject* o) {
  return PyList_Check(o) || PyTuple_Check(o);
}

// A short list that holds sequences, tensors, slices, None or Ellipsis counts as a tuple of indices.
bool is_list_of_indices(PyObject* key) {
  if (!PyList_Check(key) || PyList_GET_SIZE(key) >= 32) return false;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(key); ++i) {
    PyObject* o = PyList_GET_ITEM(key, i);
    if (o == Py_None || o == Py_Ellipsis || PySlice_Check(o) || is_tensor(o) || PySequence_Check(o))
      return true;
  }
  return false;
}

// Makes a tensor of a list, tuple, range or NumPy array used as an index.
Tensor index_tensor(PyObject* o) {
  static PyObject* make = nullptr;
  if (!make) {
    Object module = own(PyImport_ImportModule("flambeau._tensor"));
    make = check(PyObject_GetAttrString(module.get(), "index_tensor"));
  }
  Object tensor = own(PyObject_CallOneArg(make, o));
  return unwrap(tensor.get());
}

// Ops through the dispatcher when anything but a plain backend is involved; the geometry directly otherwise.
class Viewer {
 public:
  explicit Viewer(const Tensor& base)
      : t_(base),
        base_(base.impl()),
        plain_(keys_of_tensor(base.impl()).bits() < (uint32_t(1) << kBackendKeys) &&
               thread_state().included.empty()) {
    if (plain_) {
      sizes_ = base->sizes;
      strides_ = base->strides;
      offset_ = base.offset();
    }
  }
  int64_t size(int64_t d) const { return plain_ ? sizes_[d] : t_.size(d); }
  int64_t dim() const { return plain_ ? static_cast<int64_t>(sizes_.size()) : t_.dim(); }

  void select(int64_t d, int64_t index, int64_t position) {
    check(d);
    const int64_t n = size(d);
    FL_CHECK_KIND(index >= -n && index < n, Index, "[index] expected an index in [", -n, ", ", n - 1,
                  "] for dimension ", position, " of size ", n, ", got ", index, ": index ", index,
                  " is out of bounds for dimension ", position, " with size ", n);
    if (!plain_) {
      static const Operator& op = OperatorTable::get().at("select");
      t_ = call(op, {Value(t_), Value(d), Value(index)});
      return;
    }
    offset_ += (index < 0 ? index + n : index) * strides_[d];
    sizes_.erase(d);
    strides_.erase(d);
  }
  void slice(int64_t d, int64_t start, int64_t stop, int64_t step) {
    const int64_t n = size(d);
    if (start == 0 && stop == n && step == 1) return;
    if (!plain_) {
      static const Operator& op = OperatorTable::get().at("slice");
      t_ = call(op, {Value(t_), Value(d), Value(start), Value(stop), Value(step)});
      return;
    }
    offset_ += start * strides_[d];
    sizes_[d] = stop > start ? (stop - start - 1) / step + 1 : 0;
    strides_[d] = stepped(strides_[d], step);
  }
  void unsqueeze(int64_t d) {
    if (!plain_) {
      static const Operator& op = OperatorTable::get().at("unsqueeze");
      t_ = call(op, {Value(t_), Value(d)});
      return;
    }
    const int64_t stride = d < dim() ? sizes_[d] * strides_[d] : 1;
    sizes_.insert(d, 1);
    strides_.insert(d, stride);
  }
  // A second Ellipsis can lead past the last dimension.
  void check(int64_t d) const {
    FL_CHECK_KIND(d < dim(), Index, "[index] expected an index for each dimension at most, got too many");
  }
  // The view; for `t[...]` without anything to do, one that is not t itself.
  Tensor finish(bool fresh) {
    if (plain_) {
      Tensor view = alias(t_, sizes_, strides_, offset_);
      track_view(view, t_, false);
      return view;
    }
    if (fresh && untouched()) {
      static const Operator& op = OperatorTable::get().at("alias");
      return call(op, {Value(t_)});
    }
    return t_;
  }

 private:
  bool untouched() const { return t_.impl() == base_; }
  Tensor call(const Operator& op, std::initializer_list<Value> values) {
    std::vector<Value> args(values);
    Value result[1];
    op.call(args.data(), result);
    return result[0].take_tensor();
  }
  Tensor t_;
  TensorImpl* base_;
  bool plain_;
  Dims sizes_, strides_;
  int64_t offset_ = 0;
};

// How many dimensions of the tensor a key item uses up.
int64_t consumes(PyObject* o) {
  if (o == Py_None || o == Py_Ellipsis || PyBool_Check(o)) return 0;
  if (is_tensor(o) && impl_of(o)->dtype == DType::UInt8)
    check(PyErr_WarnEx(
        PyExc_UserWarning,
        "indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead.", 1));
  if (is_tensor(o) && (impl_of(o)->dtype == DType::Bool || impl_of(o)->dtype == DType::UInt8))
    return static_cast<int64_t>(impl_of(o)->sizes.size());
  return 1;
}

bool is_mask(const Tensor& index) {
  return index.dtype() == DType::Bool || index.dtype() == DType::UInt8;
}

// An item that is neither a number, a slice nor a tensor, as a tensor where it is an array or a list.
void convert_item(Object& item) {
  PyObject* o = item.get();
  FL_CHECK_KIND(!PyFloat_Check(o), Index,
                "[index] expected integers, slices, None, Ellipsis, tensors, arrays or lists, got a float");
  if (!is_index_sequence(o) && PyIndex_Check(o) && !PySequence_Check(o)) return;
  FL_CHECK_KIND(is_index_sequence(o) || PySequence_Check(o) || PyObject_HasAttrString(o, "__array__"), Index,
                "[index] expected integers, slices, None, Ellipsis, tensors, arrays or lists, got ",
                std::string(Py_TYPE(o)->tp_name));
  item = own(wrap(index_tensor(o)));
}

// The items of a key, and how many dimensions they use; arrays and lists turn into tensors first because a
// mask uses up several dimensions.
std::vector<Object> items_of(PyObject* key, int64_t& used) {
  std::vector<Object> items;
  if (PyTuple_Check(key) || is_list_of_indices(key)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(key); ++i)
      items.push_back(Object::borrow(PySequence_Fast_GET_ITEM(key, i)));
  } else {
    items.push_back(Object::borrow(key));
  }
  used = 0;
  for (auto& item : items) {
    PyObject* o = item.get();
    const bool simple = o == Py_None || o == Py_Ellipsis || PySlice_Check(o) || PyBool_Check(o) ||
                        PyLong_Check(o) || is_tensor(o);
    if (!simple) convert_item(item);
    used += consumes(item.get());
  }
  return items;
}

// Goes through the items of a key: views are taken at once, index tensors collected by dimension.
class KeyReader {
 public:
  KeyReader(const Tensor& base, int64_t used) : base_(base), viewer_(base), used_(used) {}

  void read(PyObject* o) {
    if (o == Py_None) {
      viewer_.unsqueeze(std::min(dim_, viewer_.dim()));
      ++dim_;
    } else if (o == Py_Ellipsis) {
      dim_ += base_.dim() - used_;
      position_ += base_.dim() - used_;
    } else if (PySlice_Check(o)) {
      read_slice(o);
    } else if (PyBool_Check(o)) {
      Tensor one = scalar_tensor(Scalar(o == Py_True), {DType::Bool, base_.device()});
      one->sizes.push_back(1);
      one->strides.push_back(1);
      put_scalar_mask(one);
    } else if (is_tensor(o)) {
      read_tensor(o);
    } else {
      viewer_.select(dim_, int_value(o), position_++);
    }
  }
  Parsed finish() {
    parsed_.view = viewer_.finish(!parsed_.advanced);
    return std::move(parsed_);
  }

 private:
  void put(const Tensor& index) {
    const int64_t at = dim_ - extra_;
    if (static_cast<int64_t>(parsed_.indices.size()) <= at) parsed_.indices.resize(at + 1);
    parsed_.indices[at] = index;
    if (is_mask(index)) extra_ += index.dim() - 1;
    parsed_.advanced = true;
  }
  // A new dimension of size one or nothing.
  void put_scalar_mask(const Tensor& one) {
    dim_ = std::min(dim_, viewer_.dim());
    viewer_.unsqueeze(dim_);
    put(one);
    ++dim_;
  }
  void read_slice(PyObject* o) {
    Py_ssize_t start, stop, step;
    if (PySlice_Unpack(o, &start, &stop, &step) < 0) throw PythonError();
    FL_CHECK_KIND(step > 0, Value, "[index] expected a slice step greater than zero, got ",
                  static_cast<int64_t>(step));
    viewer_.check(dim_);
    PySlice_AdjustIndices(viewer_.size(dim_), &start, &stop, step);
    viewer_.slice(dim_, start, std::max(start, stop), step);
    ++dim_;
    ++position_;
  }
  void read_tensor(PyObject* o) {
    const Tensor index = unwrap(o);
    FL_CHECK_KIND(is_integral(index.dtype(), true), Index,
                  "[index] expected integer or bool tensors as indices, got ", name_of(index.dtype()));
    const bool mask = is_mask(index);
    // One number for each element of a batch cannot be read: it indexes as a tensor.
    const bool batched = Py_TYPE(o) != tensor_type && PyObject_HasAttrString(o, "_all_values");
    if (!mask && index.dim() == 0 && !batched && (index.is_cpu() || index.device().type == DeviceType::CUDA))
      return viewer_.select(dim_, item_value(index), position_++);
    if (mask && index.dim() == 0)
      return put_scalar_mask(alias(index, IntSpan({1}), IntSpan({1}), index.offset()));
    const int64_t n = mask ? index.dim() : 1;
    viewer_.check(dim_ + n - 1);
    put(index);
    for (int64_t k = 0; mask && k < n; ++k)
      FL_CHECK_KIND(index.size(k) == viewer_.size(dim_ + k), Index, "[index] expected a mask of size ",
                    viewer_.size(dim_ + k), " at dimension ", position_ + k, ", got a mask of shape ",
                    index.sizes());
    dim_ += n;
    position_ += n;
  }

  const Tensor& base_;
  Viewer viewer_;
  const int64_t used_;
  int64_t dim_ = 0;       // next dimension of the view
  int64_t position_ = 0;  // next dimension of the original tensor, for messages
  int64_t extra_ = 0;     // dimensions that masks use beyond their one place in the list
  Parsed parsed_;
};

Parsed parse_key(PyObject* self, PyObject* key) {
  int64_t used;
  const std::vector<Object> items = items_of(key, used);
  const Tensor base = unwrap(self);
  FL_CHECK_KIND(used <= base.dim(), Index, "[index] expected at most ", base.dim(), " indices for shape ",
                base.sizes(), ", got ", used, base.dim() == 0 ? ": invalid index of a 0-dim tensor" : "",
                ": too many indices for tensor of dimension ", base.dim());
  KeyReader reader(base, used);
  for (const Object& item : items) reader.read(item.get());
  return reader.finish();
}

}  // namespace

PyObject* tensor_getitem(PyObject* self, PyObject* key) {
  return guarded([&]() -> PyObject* {
    PyObject* pair[2] = {self, key};
    if (__builtin_expect(any_override(pair, 2), 0)) {
      static PyObject* method =
          PyObject_GetAttrString(reinterpret_cast<PyObject*>(tensor_type), "__getitem__");
      return call_override(method, pair, 2, nullptr);
    }
    Parsed parsed = parse_key(self, key);
    if (!parsed.advanced) return wrap(std::move(parsed.view));
    static const Operator& op = OperatorTable::get().at("index.Tensor");
    Value args[2] = {Value(parsed.view), Value::borrow(parsed.indices.data(), parsed.indices.size())};
    return call_operator(op, args);
  });
}

int tensor_setitem(PyObject* self, PyObject* key, PyObject* value) {
  return guarded_int([&]() -> int {
    FL_CHECK_KIND(value != nullptr, Type, "[index] expected a value to assign, got a deletion");
    PyObject* triple[3] = {self, key, value};
    if (__builtin_expect(any_override(triple, 3), 0)) {
      static PyObject* method =
          PyObject_GetAttrString(reinterpret_cast<PyObject*>(tensor_type), "__setitem__");
      own(call_override(method, triple, 3, nullptr));
      return 0;
    }
    FL_CHECK_KIND(
        !impl_of(self)->sparse, Type,
        "[index] expected a strided tensor to assign to, got a sparse one: Cannot assign to a sparse "
        "tensor; make another one, or use to_dense()");
    if (key == Py_False) return 0;
    // t[True] = v is an ordinary assignment, with conversion; t[False] = v assigns nothing.
    Parsed parsed = parse_key(self, key == Py_True ? Py_None : key);
    Value number;
    Value source;
    if (is_tensor(value)) {
      source = Value::borrow(impl_of(value));
    } else if (number_value(value, number)) {
      const Scalar s = number.to_scalar();
      FL_CHECK_KIND(!s.is_complex() || is_complex(parsed.view.dtype()) || parsed.view.dtype() == DType::Bool,
                    Runtime, "[index] expected a real value for a ", name_of(parsed.view.dtype()),
                    " tensor, got a complex number");
      source = Value(scalar_tensor(s, {parsed.view.dtype(), Device{}}));
    } else {
      fail(ErrorKind::Type, "[index] expected a tensor or a number to assign, got ",
           std::string(Py_TYPE(value)->tp_name));
    }
    if (!parsed.advanced) {
      static const Operator& copy = OperatorTable::get().at("copy_");
      // Leading ones of the value beyond the destination's dimensions are allowed.
      Tensor src = source.tensor();
      while (src.dim() > parsed.view.dim() && src.size(0) == 1) {
        static const Operator& squeeze = OperatorTable::get().at("squeeze.dim");
        src = call_tensor(squeeze, src, int64_t(0));
      }
      Value args[3] = {Value(parsed.view), Value(src), Value(false)};
      own(call_operator(copy, args));
    } else {
      static const Operator& put = OperatorTable::get().at("index_put_");
      Value args[4] = {Value(parsed.view), Value::borrow(parsed.indices.data(), parsed.indices.size()),
                       source, Value(false)};
      own(call_operator(put, args));
    }
    return 0;
  });
}

}  // namespace fl::py

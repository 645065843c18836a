// Tensors and the outside world: Python numbers and lists, the buffer protocol, NumPy and DLPack. Nothing
// here imports NumPy: arrays are read through __array_interface__ and made from it.
#include <cstring>
#include <memory>

#include "core/accelerator.h"
#include "core/allocator.h"
#include "core/parallel.h"
#include "core/private_use.h"
#include "core/scalar_range.h"
#include "cpu/engine/capability.h"
#include "cpu/engine/library.h"
#include "cpu/gemm/gemm.h"
#include "ops/deferred.h"
#include "ops/promotion.h"
#include "python/parse.h"

namespace fl::py {

namespace {

Tensor on_cpu(const Tensor& t, const char* op) {
  FL_CHECK(!t->sparse, "[", op, "] expected a strided tensor, got a sparse one; use to_dense() first");
  FL_CHECK_KIND(!t.is_meta(), NotImplemented, "[", op,
                "] expected a tensor with data, got one on the meta device");
  if (t.is_cpu()) return t;
  PyObject* self = wrap(t);
  Object moved = own(PyObject_CallMethod(self, "cpu", nullptr));
  Py_DECREF(self);
  return unwrap(moved.get());
}

template <class T>
PyObject* element(const char* p) {
  T x;
  std::memcpy(&x, p, sizeof x);
  if constexpr (std::is_same_v<T, bool>)
    return PyBool_FromLong(x);
  else if constexpr (is_complex_type<T>)
    return PyComplex_FromDoubles(x.real(), x.imag());
  else if constexpr (std::is_same_v<T, uint64_t>)
    return PyLong_FromUnsignedLongLong(x);
  else if constexpr (std::is_integral_v<T>)
    return PyLong_FromLongLong(x);
  else
    return PyFloat_FromDouble(static_cast<double>(static_cast<compute_t<T>>(x)));
}

template <class T>
PyObject* nested(const Tensor& t, int64_t d, const char* p) {
  if (d == t.dim()) return element<T>(p);
  const int64_t n = t.size(d), step = t.stride(d) * t.itemsize();
  Object list = own(PyList_New(n));
  for (int64_t i = 0; i < n; ++i) PyList_SET_ITEM(list.get(), i, check(nested<T>(t, d + 1, p + i * step)));
  return list.release();
}

}  // namespace

PyObject* tensor_item(PyObject* self, PyObject*) {
  if (__builtin_expect(any_override(&self, 1), 0))
    return guarded([&] {
      static PyObject* method = PyObject_GetAttrString(reinterpret_cast<PyObject*>(tensor_type), "item");
      return call_override(method, &self, 1, nullptr);
    });
  return guarded([&]() -> PyObject* {
    const Tensor t = elements_of(unwrap(self));
    check_stored("item", t);
    if (__builtin_expect(t.dtype() == DType::UInt64 && t.numel() == 1 && t.is_cpu(), 0))
      return PyLong_FromUnsignedLongLong(*t.data<uint64_t>());
    return from_scalar(item(t));
  });
}

PyObject* tensor_tolist(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    const Tensor t = on_cpu(elements_of(unwrap(self)), "tolist");
    check_stored("tolist", t);
    if (t.dtype() == DType::UInt64) return nested<uint64_t>(t, 0, t.raw());
    if (is_stored_only(t.dtype())) {
      if (is_complex(t.dtype())) {
        const Tensor known = to_dtype(t, compute_of(t.dtype()));
        return nested<complex64>(known, 0, known.raw());
      }
      const Tensor known = to_dtype(t, is_float8(t.dtype()) ? DType::Float : DType::Int64);
      return is_float8(t.dtype()) ? nested<float>(known, 0, known.raw())
                                  : nested<int64_t>(known, 0, known.raw());
    }
    return dispatch(t.dtype(),
                    [&](auto type) { return nested<typename decltype(type)::type>(t, 0, t.raw()); });
  });
}

namespace {

// ---------------------------------------------------------------- from Python data

// What a nested sequence holds: its shape and the widest kind of number.
struct Shape {
  Dims sizes;
  int kind = -1;  // 0 bool, 1 int, 2 float, 3 complex, -1 nothing
  bool has_tensors = false;
};

void measure(PyObject* o, size_t depth, Shape& shape, bool& first) {
  if (PyList_Check(o) || PyTuple_Check(o)) {
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
    if (first && depth == shape.sizes.size()) shape.sizes.push_back(n);
    FL_CHECK_KIND(depth < shape.sizes.size(), Type, "[tensor] expected a number at depth ",
                  static_cast<int64_t>(depth), ", got a sequence");
    FL_CHECK_KIND(shape.sizes[depth] == n, Value, "[tensor] expected sequences of equal length ",
                  depth < shape.sizes.size() ? shape.sizes[depth] : 0, " at depth ",
                  static_cast<int64_t>(depth), ", got ", static_cast<int64_t>(n));
    FL_CHECK_KIND(depth < 64, Value, "[tensor] expected at most 64 dimensions, got more");
    for (Py_ssize_t i = 0; i < n; ++i) {
      measure(PySequence_Fast_GET_ITEM(o, i), depth + 1, shape, first);
      first = false;
    }
    if (n == 0) first = false;
    return;
  }
  Value v;
  if (is_tensor(o)) {
    FL_CHECK_KIND(impl_of(o)->numel == 1, Value,
                  "[tensor] expected tensors of one element inside sequences, got shape ", unwrap(o).sizes(),
                  "; join tensors with stack()");
    v = Value(item(unwrap(o)));
  } else if (PyLong_Check(o)) {
    int overflow = 0;
    PyLong_AsLongLongAndOverflow(o, &overflow);
    FL_CHECK_KIND(!overflow, Value, "[tensor] expected integers that fit in 64 bits, got a larger one");
    v = Value(PyBool_Check(o) ? Value(o == Py_True) : Value(int64_t(0)));
  } else if (o == Py_None) {
    fail(ErrorKind::Runtime, "[tensor] expected numbers or nested sequences of numbers, got None");
  } else if (!number_value(o, v)) {
    fail(PyUnicode_Check(o) || PyBytes_Check(o) ? ErrorKind::Type : ErrorKind::Runtime,
         "[tensor] expected numbers or nested sequences of numbers, got ", std::string(Py_TYPE(o)->tp_name),
         ": new(): invalid data type '", std::string(Py_TYPE(o)->tp_name), "'");
  }
  FL_CHECK_KIND(depth == shape.sizes.size(), Value, "[tensor] expected a sequence at depth ",
                static_cast<int64_t>(depth), ", got a number");
  const int kind = v.tag() == Value::Tag::Bool    ? 0
                   : v.tag() == Value::Tag::Int   ? 1
                   : v.tag() == Value::Tag::Float ? 2
                                                  : 3;
  shape.kind = std::max(shape.kind, kind);
}

template <class T>
void store(PyObject* o, T*& at) {
  if (PyList_Check(o) || PyTuple_Check(o)) {
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
    for (Py_ssize_t i = 0; i < n; ++i) store(PySequence_Fast_GET_ITEM(o, i), at);
    return;
  }
  Value v;
  if (is_tensor(o))
    v = Value(item(unwrap(o)));
  else if (!number_value(o, v))
    fail(ErrorKind::Type, "[tensor] expected numbers, got ", std::string(Py_TYPE(o)->tp_name));
  const Scalar s = v.to_scalar();
  FL_CHECK_KIND((!s.is_complex() || is_complex_type<T> || std::is_same_v<T, bool>), Type,
                "[tensor] expected real numbers for ", name_of(dtype_for<T>::value), ", got a complex one");
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    check_fits("tensor", s, dtype_for<T>::value);
  }
  *at++ = s.to<T>();
}

// A dtype, or the Python type that stands for one.
DType dtype_argument(const char* op, PyObject* o) {
  if (is_dtype(o)) return dtype_value(o);
  if (o == reinterpret_cast<PyObject*>(&PyFloat_Type)) return DType::Double;
  if (o == reinterpret_cast<PyObject*>(&PyLong_Type)) return DType::Int64;
  if (o == reinterpret_cast<PyObject*>(&PyBool_Type)) return DType::Bool;
  if (o == reinterpret_cast<PyObject*>(&PyComplex_Type)) return DType::ComplexDouble;
  fail(ErrorKind::Type, "[", op, "] expected a dtype, got ", std::string(Py_TYPE(o)->tp_name));
}

// _from_data(data, dtype or None): a new CPU tensor from nested sequences and numbers.
PyObject* from_data(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  return guarded([&]() -> PyObject* {
    PyObject* data = args[0];
    Shape shape;
    bool first = true;
    measure(data, 0, shape, first);
    DType dtype;
    if (nargs > 1 && args[1] != Py_None)
      dtype = dtype_argument("tensor", args[1]);
    else
      switch (shape.kind) {
        case 0:
          dtype = DType::Bool;
          break;
        case 1:
          dtype = DType::Int64;
          break;
        case 3:
          dtype = complex_of(default_dtype());
          break;
        default:
          dtype = default_dtype();
      }
    // Dtypes that are only stored are filled with wide numbers first.
    const DType wide = !is_stored_only(dtype) ? dtype
                       : is_complex(dtype)    ? compute_of(dtype)
                       : shape.kind >= 2      ? DType::Double
                                              : DType::Int64;
    Tensor out = empty(shape.sizes, {wide, Device{}});
    if (out.numel())
      dispatch(wide, [&](auto type) {
        using T = typename decltype(type)::type;
        T* at = out.data<T>();
        store<T>(data, at);
      });
    if (wide == dtype) return wrap(out);
    if (is_integral(dtype))
      for (int64_t i = 0; i < out.numel(); ++i)
        check_fits("tensor",
                   wide == DType::Double ? Scalar(out.data<double>()[i]) : Scalar(out.data<int64_t>()[i]),
                   dtype);
    return wrap(to_dtype(out, dtype));
  });
}

// _from_pointer(owner, address, sizes, strides_in_elements, dtype): shares memory that `owner` keeps alive.
PyObject* from_pointer(PyObject*, PyObject* args) {
  PyObject *owner, *sizes, *strides, *dtype;
  Py_ssize_t address;
  if (!PyArg_ParseTuple(args, "OnOOO", &owner, &address, &sizes, &strides, &dtype)) return nullptr;
  return guarded([&]() -> PyObject* {
    std::vector<int64_t> size, stride;
    for (auto [from, to] : {std::pair(sizes, &size), std::pair(strides, &stride)}) {
      Object fast = own(PySequence_Fast(from, "[from_pointer] expected a sequence"));
      for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast.get()); ++i)
        to->push_back(int_value(PySequence_Fast_GET_ITEM(fast.get(), i)));
    }
    const DType t = dtype_argument("from_pointer", dtype);
    int64_t last = 0;
    for (size_t i = 0; i < size.size(); ++i) last += (size[i] - 1) * stride[i];
    const int64_t bytes = numel_of(size) == 0 ? 0 : (last + 1) * size_of(t);
    Py_INCREF(owner);
    Ref<Storage> storage = Storage::adopt(reinterpret_cast<void*>(address), bytes, Device{}, [owner](void*) {
      if (!Py_IsInitialized()) return;
      const PyGILState_STATE state = PyGILState_Ensure();
      Py_DECREF(owner);
      PyGILState_Release(state);
    });
    Ref<TensorImpl> impl(new TensorImpl);
    impl->storage = std::move(storage);
    impl->sizes = Dims(size);
    impl->strides = Dims(stride);
    impl->dtype = t;
    if (t == DType::ComplexHalf) note_complex_half();
    impl->keys = KeySet(Key::CPU);
    impl->refresh();
    return wrap(Tensor(std::move(impl)));
  });
}

// ---------------------------------------------------------------- NumPy, without its headers

// dtype of a PEP 3118 format of one native element, if tensors have it.
std::optional<DType> dtype_of_format(const char* f, Py_ssize_t item) {
  if (f == nullptr) return DType::UInt8;
  if (*f == '@' || *f == '=' || *f == '<' || *f == '|') ++f;
  if (f[0] == 'Z' && f[1] && !f[2])
    return f[1] == 'f'   ? std::optional(DType::ComplexFloat)
           : f[1] == 'd' ? std::optional(DType::ComplexDouble)
                         : std::nullopt;
  if (f[0] == 0 || f[1] != 0) return std::nullopt;
  switch (f[0]) {
    case '?':
      return DType::Bool;
    case 'B':
      return DType::UInt8;
    case 'H':
    case 'I':
    case 'L':
    case 'Q':
      return item == 2 ? DType::UInt16 : item == 4 ? DType::UInt32 : DType::UInt64;
    case 'e':
      return DType::Half;
    case 'f':
      return DType::Float;
    case 'd':
      return DType::Double;
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q':
      return item == 1 ? DType::Int8 : item == 2 ? DType::Int16 : item == 4 ? DType::Int32 : DType::Int64;
    default:
      return std::nullopt;
  }
}

// _from_array(array): a tensor over the memory of an array with the buffer protocol; None when it needs a
// closer look.
PyObject* from_array(PyObject*, PyObject* array) {
  return guarded([&]() -> PyObject* {
    auto view = std::make_unique<Py_buffer>();
    if (PyObject_GetBuffer(array, view.get(), PyBUF_FORMAT | PyBUF_STRIDES) < 0) {
      PyErr_Clear();
      Py_RETURN_NONE;
    }
    const std::optional<DType> dtype = dtype_of_format(view->format, view->itemsize);
    bool usable = dtype.has_value();
    Dims sizes, strides;
    int64_t last = 0, numel = 1;
    for (int d = 0; usable && d < view->ndim; ++d) {
      usable = view->strides[d] >= 0 && view->strides[d] % view->itemsize == 0;
      sizes.push_back(view->shape[d]);
      strides.push_back(view->strides[d] / view->itemsize);
      last += (view->shape[d] - 1) * strides.back();
      numel *= view->shape[d];
    }
    if (!usable) {
      PyBuffer_Release(view.get());
      Py_RETURN_NONE;
    }
    Ref<TensorImpl> impl(new TensorImpl);
    Py_buffer* held = view.release();
    impl->storage =
        Storage::adopt(held->buf, numel == 0 ? 0 : (last + 1) * held->itemsize, Device{}, [held](void*) {
          if (!Py_IsInitialized()) return;
          const PyGILState_STATE state = PyGILState_Ensure();
          PyBuffer_Release(held);
          delete held;
          PyGILState_Release(state);
        });
    impl->sizes = std::move(sizes);
    impl->strides = std::move(strides);
    impl->dtype = *dtype;
    impl->keys = KeySet(Key::CPU);
    impl->refresh();
    return wrap(Tensor(std::move(impl)));
  });
}

// _to_array(tensor, api, ndarray): an array over the tensor's memory, made by NumPy's own constructor. `api`
// is the table of functions that NumPy exports for extensions; places in it do not change between versions.
PyObject* to_array(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  return guarded([&]() -> PyObject* {
    using New = PyObject* (*)(PyTypeObject*, int, const Py_ssize_t*, int, const Py_ssize_t*, void*, int, int,
                              PyObject*);
    using SetBase = int (*)(PyObject*, PyObject*);
    constexpr int kNew = 93, kSetBase = 282, kAlignedWriteable = 0x0100 | 0x0400;
    constexpr int numbers[] = {0,  2, 1, 3, 5,  7,  23, -1, 11, 12, 14,
                               15, 4, 6, 8, -1, -1, -1, -1, -1, -1};  // NumPy's type numbers, by DType
    static_assert(sizeof numbers / sizeof *numbers == kAllDTypes);
    FL_CHECK_KIND(nargs == 3 && is_tensor(args[0]), Type, "[numpy] expected a Tensor, got another object");
    void** api = static_cast<void**>(PyCapsule_GetPointer(args[1], nullptr));
    if (!api) throw PythonError();
    const Tensor t = unwrap(args[0]);
    FL_CHECK_KIND(!t->sparse, Type,
                  "[numpy] expected a strided tensor, got a sparse one; use to_dense() first");
    const int number = numbers[static_cast<int>(t.dtype())];
    FL_CHECK_KIND(number >= 0, Type, "[numpy] expected a dtype that NumPy has, got ", name_of(t.dtype()));
    FL_CHECK((t->keys & kDeferred).empty(),
             "[numpy] expected a tensor whose memory holds its elements, got one that is conjugated or "
             "negated when "
             "it is read: Can't call numpy() on Tensor that has ",
             t->keys.has(Key::Conjugate) ? "conjugate bit set. Use tensor.resolve_conj().numpy() instead."
                                         : "negative bit set. Use tensor.resolve_neg().numpy() instead.");
    Py_ssize_t sizes[64], strides[64];
    for (int64_t d = 0; d < t.dim(); ++d) {
      sizes[d] = t.size(d);
      strides[d] = t.stride(d) * t.itemsize();
    }
    own_storage("numpy", t);
    t->storage->resizable = false;  // the array keeps looking at this memory
    Object array = own(reinterpret_cast<New>(api[kNew])(reinterpret_cast<PyTypeObject*>(args[2]),
                                                        static_cast<int>(t.dim()), sizes, number, strides,
                                                        t.raw(), 0, kAlignedWriteable, nullptr));
    // The tensor may get another storage (set_, .data =), so the array holds this one by a tensor of its own.
    PyObject* window = check(wrap(alias(t, t.sizes(), t.strides(), t.offset())));
    check(reinterpret_cast<SetBase>(api[kSetBase])(array.get(), window));
    return array.release();
  });
}

// ---------------------------------------------------------------- DLPack

struct DLDevice {
  int32_t type, id;
};
struct DLDataType {
  uint8_t code, bits;
  uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};
struct DLManagedTensor {
  DLTensor tensor;
  void* context;
  void (*deleter)(DLManagedTensor*);
};
struct Exported {
  DLManagedTensor managed;
  Tensor keep;
};

DLDataType dl_dtype(DType t) {
  const uint8_t bits = static_cast<uint8_t>(size_of(t) * 8);
  if (t == DType::Bool) return {6, 8, 1};
  if (class_of(t) == 'i' && is_unsigned(t)) return {1, bits, 1};
  if (t == DType::BFloat16) return {4, 16, 1};
  switch (t) {
    case DType::Float8E4M3:
      return {10, 8, 1};
    case DType::Float8E4M3Fnuz:
      return {11, 8, 1};
    case DType::Float8E5M2:
      return {12, 8, 1};
    case DType::Float8E5M2Fnuz:
      return {13, 8, 1};
    case DType::Float8E8M0:
      return {14, 8, 1};
    default:
      break;
  }
  return {static_cast<uint8_t>(is_complex(t) ? 5 : is_floating(t) ? 2 : 0), bits, 1};
}
DType from_dl_dtype(DLDataType t) {
  for (int i = 0; i < kAllDTypes; ++i) {
    const DLDataType own = dl_dtype(static_cast<DType>(i));
    if (own.code == t.code && own.bits == t.bits && t.lanes == 1) return static_cast<DType>(i);
  }
  fail("[from_dlpack] expected a dtype that tensors can have, got code ", static_cast<int>(t.code), " with ",
       static_cast<int>(t.bits), " bits");
}

constexpr int kDlCpu = 1, kDlCuda = 2, kDlCudaHost = 3, kDlOutside = 12;  // kinds of devices
constexpr int kDlOutsideShift = 8;

// DLPack has one kind for all devices from outside. Its number is the index for the device behind
// PrivateUse1; the other devices add their type.
DLDevice dl_device(Device d) {
  FL_CHECK(d.type != DeviceType::Meta, "[to_dlpack] expected a tensor with memory, got one on ",
           to_string(d));
  if (d.type == DeviceType::CPU) return {kDlCpu, 0};
  if (d.type == DeviceType::CUDA) return {kDlCuda, d.index};
  const int type = d.type == private_use_type() ? 0 : static_cast<int>(d.type);
  return {kDlOutside, type << kDlOutsideShift | std::max<int>(d.index, 0)};
}
Device outside_device(int32_t id) {
  const int type = id >> kDlOutsideShift, index = id & ((1 << kDlOutsideShift) - 1);
  const DeviceType device_type = type == 0 ? private_use_type() : static_cast<DeviceType>(type);
  FL_CHECK(id >= 0 && index < 128 && device_type != DeviceType::CPU && type < kMaxDeviceTypes,
           "[from_dlpack] expected memory of a device that is registered, got number ", static_cast<int>(id));
  device_type_name(device_type);
  return Device{device_type, static_cast<int8_t>(index == 0 ? -1 : index)};
}
Device from_dl_device(DLDevice d) {
  if (d.type == kDlCpu || d.type == kDlCudaHost) return Device{};
  if (d.type == kDlOutside) return outside_device(d.id);
  FL_CHECK(d.type == kDlCuda, "[from_dlpack] expected memory of a known device, got device type ",
           static_cast<int>(d.type));
  FL_CHECK(d.id < the_accelerator().device_count(), "[from_dlpack] expected one of ",
           static_cast<int64_t>(the_accelerator().device_count()), " devices, got ", static_cast<int>(d.id));
  return Device{DeviceType::CUDA, static_cast<int8_t>(d.id)};
}

PyObject* to_dlpack(PyObject*, PyObject* o) {
  return guarded([&]() -> PyObject* {
    FL_CHECK_KIND(is_tensor(o), Type, "[to_dlpack] expected a Tensor, got ",
                  std::string(Py_TYPE(o)->tp_name));
    const Tensor t = unwrap(o);
    FL_CHECK((t->keys & kDeferred).empty(),
             "[to_dlpack] expected a tensor whose memory holds its elements, got one "
             "that is conjugated or negated when it is read; use resolve_conj() and resolve_neg()");
    own_storage("to_dlpack", t);
    const DLDevice device = dl_device(t.device());
    t->storage->resizable = false;
    // The tensor may get another storage or other sizes, so the capsule holds a window of its own.
    const Tensor window = alias(t, t.sizes(), t.strides(), t.offset());
    auto* e = new Exported{{}, window};
    e->managed.tensor = {t.raw(),
                         device,
                         static_cast<int32_t>(t.dim()),
                         dl_dtype(t.dtype()),
                         window->sizes.data(),
                         window->strides.data(),
                         0};
    e->managed.context = e;
    e->managed.deleter = [](DLManagedTensor* m) { delete static_cast<Exported*>(m->context); };
    return PyCapsule_New(&e->managed, "dltensor", [](PyObject* capsule) {
      if (PyCapsule_IsValid(capsule, "dltensor")) {
        auto* m = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor"));
        m->deleter(m);
      }
    });
  });
}

PyObject* dlpack_device(PyObject*, PyObject* o) {
  return guarded([&]() -> PyObject* {
    const DLDevice device = dl_device(unwrap(o).device());
    return Py_BuildValue("(ii)", device.type, device.id);
  });
}

PyObject* from_dlpack(PyObject*, PyObject* capsule) {
  return guarded([&]() -> PyObject* {
    auto* m = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor"));
    if (!m) throw PythonError();
    const DLTensor& d = m->tensor;
    FL_CHECK(d.ndim >= 0 && d.ndim <= 64 && (d.ndim == 0 || d.shape),
             "[from_dlpack] expected 0 to 64 dimensions, got ", static_cast<int>(d.ndim));
    const Device device = from_dl_device(d.device);
    Dims sizes(IntSpan(d.shape, d.ndim));
    Dims strides = d.strides ? Dims(IntSpan(d.strides, d.ndim)) : contiguous_strides(sizes);
    const DType t = from_dl_dtype(d.dtype);
    const int64_t numel = numel_of(sizes);
    int64_t last = 0, bytes = 0;
    for (int i = 0; i < d.ndim; ++i) {
      FL_CHECK(strides[i] >= 0 || sizes[i] <= 1, "[from_dlpack] expected strides that are not negative, got ",
               strides);
      int64_t reach = 0;
      FL_CHECK(numel == 0 || sizes[i] == 1 ||
                   (!__builtin_mul_overflow(sizes[i] - 1, strides[i], &reach) &&
                    !__builtin_add_overflow(last, reach, &last)),
               "[from_dlpack] expected a window that fits in memory, got sizes ", sizes, " and strides ",
               strides);
    }
    FL_CHECK(
        numel == 0 || (d.data && !__builtin_mul_overflow(last + 1, static_cast<int64_t>(size_of(t)), &bytes)),
        "[from_dlpack] expected memory that holds the tensor, got none of it");
    check(PyCapsule_SetName(capsule, "used_dltensor"));
    Ref<TensorImpl> impl(new TensorImpl);
    impl->storage = Storage::adopt(static_cast<char*>(d.data) + d.byte_offset, static_cast<size_t>(bytes),
                                   device, [m](void*) {
                                     if (m->deleter) {
                                       const PyGILState_STATE state = PyGILState_Ensure();
                                       m->deleter(m);
                                       PyGILState_Release(state);
                                     }
                                   });
    impl->sizes = std::move(sizes);
    impl->strides = std::move(strides);
    impl->dtype = t;
    if (t == DType::ComplexHalf) note_complex_half();
    impl->device = device;
    impl->keys = KeySet(backend_key(device.type));
    impl->refresh();
    return wrap(Tensor(std::move(impl)));
  });
}

// ---------------------------------------------------------------- settings

PyObject* get_default_dtype(PyObject*, PyObject*) {
  return Py_NewRef(dtype_object(default_dtype()));
}
PyObject* set_default_dtype_(PyObject*, PyObject* o) {
  return guarded([&]() -> PyObject* {
    FL_CHECK_KIND(is_dtype(o), Type, "[set_default_dtype] expected a dtype, got ",
                  std::string(Py_TYPE(o)->tp_name));
    FL_CHECK_KIND(is_floating(dtype_value(o)), Type, "[set_default_dtype] expected a floating dtype, got ",
                  name_of(dtype_value(o)));
    set_default_dtype(dtype_value(o));
    Py_RETURN_NONE;
  });
}
PyObject* get_threads(PyObject*, PyObject*) {
  return PyLong_FromLong(num_threads());
}
PyObject* set_threads(PyObject*, PyObject* o) {
  return guarded([&]() -> PyObject* {
    FL_CHECK(PyLong_Check(o), "[set_num_threads] expected an int, got ", std::string(Py_TYPE(o)->tp_name));
    const int64_t n = int_value(o);
    FL_CHECK(n > 0 && n < 10000, "[set_num_threads] expected a positive number of threads, got ", n);
    set_num_threads(static_cast<int>(n));
    Py_RETURN_NONE;
  });
}
// What the pool has done so far, by name.
PyObject* set_rounded_products(PyObject*, PyObject* on) {
  const int truth = PyObject_IsTrue(on);
  if (truth < 0) return nullptr;
  cpu::set_rounded_products(truth != 0);
  Py_RETURN_NONE;
}

PyObject* cpu_capability(PyObject*, PyObject*) {
  return guarded([&]() -> PyObject* { return check(PyUnicode_FromString(cpu::capability_name())); });
}

PyObject* thread_counters(PyObject*, PyObject*) {
  return guarded([&]() -> PyObject* {
    const PoolCounters c = pool_counters();
    return check(Py_BuildValue("{s:K,s:K,s:K,s:K,s:K,s:K,s:K}", "regions", c.regions, "alone", c.alone,
                               "members", c.members, "woken", c.woken, "taken_back", c.taken_back, "wait_ns",
                               c.wait_ns, "workers", c.workers));
  });
}
PyObject* promote_types(PyObject*, PyObject* args) {
  PyObject *a, *b;
  if (!PyArg_ParseTuple(args, "OO", &a, &b)) return nullptr;
  return guarded([&]() -> PyObject* {
    FL_CHECK_KIND(is_dtype(a) && is_dtype(b), Type, "[promote_types] expected two dtypes, got ",
                  std::string(Py_TYPE(a)->tp_name), " and ", std::string(Py_TYPE(b)->tp_name));
    return Py_NewRef(dtype_object(promote(dtype_value(a), dtype_value(b))));
  });
}
PyObject* can_cast_(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"from_", "to", nullptr};
  PyObject *a, *b;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO", const_cast<char**>(names), &a, &b)) return nullptr;
  return guarded([&]() -> PyObject* {
    FL_CHECK_KIND(is_dtype(a) && is_dtype(b), Type, "[can_cast] expected two dtypes, got ",
                  std::string(Py_TYPE(a)->tp_name), " and ", std::string(Py_TYPE(b)->tp_name));
    return PyBool_FromLong(can_cast(dtype_value(a), dtype_value(b)));
  });
}
PyObject* memory_stats(PyObject*, PyObject*) {
  const MemoryStats s = cpu_memory_stats();
  return Py_BuildValue("{sLsLsLsLsLsL}", "allocated", (long long)s.allocated, "peak_allocated",
                       (long long)s.peak_allocated, "reserved", (long long)s.reserved, "peak_reserved",
                       (long long)s.peak_reserved, "allocations", (long long)s.allocations, "cache_hits",
                       (long long)s.cache_hits);
}
PyObject* empty_cache(PyObject*, PyObject*) {
  cpu_empty_cache();
  Py_RETURN_NONE;
}
PyObject* reset_peak(PyObject*, PyObject*) {
  cpu_reset_peak_stats();
  Py_RETURN_NONE;
}
PyObject* library_path(PyObject*, PyObject* args) {
  const char *name, *path;
  if (!PyArg_ParseTuple(args, "ss", &name, &path)) return nullptr;
  cpu::set_library_path(name, path);
  Py_RETURN_NONE;
}

// _buffer_address(object): the address of its bytes, and a memoryview that keeps them in place.
PyObject* buffer_address(PyObject*, PyObject* o) {
  Object view = Object::steal(PyMemoryView_FromObject(o));
  if (!view) return nullptr;
  return Py_BuildValue("nO", reinterpret_cast<Py_ssize_t>(PyMemoryView_GET_BUFFER(view.get())->buf),
                       view.get());
}

// _set_default_device(device or None) returns the previous one; _get_default_device() gives None when there
// is none.
PyObject* default_device_object() {
  const DefaultDevice& d = default_device();
  if (!d.active) Py_RETURN_NONE;
  return make_device(d.device);
}
PyObject* get_default_device(PyObject*, PyObject*) {
  return guarded([&] { return default_device_object(); });
}
PyObject* set_default_device(PyObject*, PyObject* o) {
  return guarded([&]() -> PyObject* {
    Object before = own(default_device_object());
    default_device() = o == Py_None ? DefaultDevice{} : DefaultDevice{true, device_from(o)};
    return before.release();
  });
}
// The dtype that an operation on these operands (tensors or numbers) has.
PyObject* result_type_of(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  return guarded([&]() -> PyObject* {
    FL_CHECK_KIND(nargs == 2, Type, "[result_type] expected two operands, got ", static_cast<int64_t>(nargs));
    Value values[2];
    const Value* operands[2] = {&values[0], &values[1]};
    for (int i = 0; i < 2; ++i) {
      if (is_tensor(args[i]))
        values[i] = Value::borrow(impl_of(args[i]));
      else
        FL_CHECK_KIND(number_value(args[i], values[i]), Type,
                      "[result_type] expected tensors or numbers, got ",
                      std::string(Py_TYPE(args[i])->tp_name));
    }
    return Py_NewRef(dtype_object(result_type(operands, 2)));
  });
}

// _set_defers_in_records(bool) -> bool: as it was before.
PyObject* set_defers_in_records(PyObject*, PyObject* value) {
  const int defers = PyObject_IsTrue(value);
  if (defers < 0) return nullptr;
  return PyBool_FromLong(std::exchange(defers_in_records(), defers != 0));
}

PyMethodDef interop_functions[] = {
    {"_get_default_device", get_default_device, METH_NOARGS, nullptr},
    {"_set_default_device", set_default_device, METH_O, nullptr},
    {"_from_array", from_array, METH_O, nullptr},
    {"_to_array", reinterpret_cast<PyCFunction>(to_array), METH_FASTCALL, nullptr},
    {"_buffer_address", buffer_address, METH_O, nullptr},
    {"_result_type", reinterpret_cast<PyCFunction>(result_type_of), METH_FASTCALL, nullptr},
    {"_from_data", reinterpret_cast<PyCFunction>(from_data), METH_FASTCALL, nullptr},
    {"_from_pointer", from_pointer, METH_VARARGS, nullptr},
    {"_to_dlpack", to_dlpack, METH_O, nullptr},
    {"_from_dlpack", from_dlpack, METH_O, nullptr},
    {"_dlpack_device", dlpack_device, METH_O, nullptr},
    {"get_default_dtype", get_default_dtype, METH_NOARGS,
     "The floating point dtype of tensors that are made without one.\n"
     "\n"
     ">>> flambeau.get_default_dtype()\n"
     "torch.float32\n"
     "\n"
     "See also: set_default_dtype"},
    {"set_default_dtype", set_default_dtype_, METH_O,
     "Sets the floating point dtype of tensors that are made without one.\n"
     "\n"
     ">>> flambeau.set_default_dtype(flambeau.float64)\n"
     ">>> flambeau.ones(1).dtype\n"
     "torch.float64\n"
     ">>> flambeau.set_default_dtype(flambeau.float32)\n"
     "\n"
     "See also: get_default_dtype"},
    {"get_num_threads", get_threads, METH_NOARGS,
     "How many threads one operator uses at most.\n"
     "\n"
     ">>> flambeau.get_num_threads() >= 1\n"
     "True\n"
     "\n"
     "See also: set_num_threads"},
    {"set_num_threads", set_threads, METH_O,
     "Sets how many threads one operator uses at most.\n"
     "\n"
     ">>> flambeau.set_num_threads(flambeau.get_num_threads())\n"
     "\n"
     "See also: get_num_threads"},
    {"_thread_counters", thread_counters, METH_NOARGS, nullptr},
    {"_set_rounded_products", set_rounded_products, METH_O, nullptr},
    {"_cpu_capability", cpu_capability, METH_NOARGS, nullptr},
    {"promote_types", promote_types, METH_VARARGS,
     "The smallest dtype that holds the values of two others.\n"
     "\n"
     ">>> flambeau.promote_types(flambeau.int32, flambeau.float16)\n"
     "torch.float16\n"
     "\n"
     "See also: can_cast, result_type"},
    {"can_cast", reinterpret_cast<PyCFunction>(can_cast_), METH_VARARGS | METH_KEYWORDS,
     "Whether results of one dtype may be written into a tensor of another.\n"
     "\n"
     ">>> flambeau.can_cast(flambeau.float32, flambeau.int32)\n"
     "False\n"
     "\n"
     "See also: promote_types"},
    {"_set_defers_in_records", set_defers_in_records, METH_O, nullptr},
    {"_memory_stats", memory_stats, METH_NOARGS, nullptr},
    {"_empty_cache", empty_cache, METH_NOARGS, nullptr},
    {"_reset_peak_memory_stats", reset_peak, METH_NOARGS, nullptr},
    {"_set_library_path", library_path, METH_VARARGS, nullptr},
    {}};

}  // namespace

void add_interop(PyObject* module) {
  check(PyModule_AddFunctions(module, interop_functions));
}

}  // namespace fl::py

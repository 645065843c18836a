// Typed C++ functions as kernels: converts Values to the parameters of the function and its result back.
//
//   Tensor sum_dim(const Tensor& self, std::optional<IntSpan> dim, bool keepdim, std::optional<DType> dtype);
//   FL_KERNEL("sum.dim_IntList", sum_dim);          // on the CPU and, when it stops early for it, on meta
#pragma once

#include <optional>
#include <tuple>

#include "dispatch/operator.h"

namespace fl {

// A tensor or a number, as binary operators take.
struct Operand {
  Value* value;
  bool is_tensor() const { return value->is_tensor(); }
  Tensor tensor() const { return value->is_tensor() ? value->tensor() : wrapped_number(value->to_scalar()); }
};

namespace detail {

template <class T>
struct From;
template <>
struct From<Tensor> {
  static Tensor get(Value& v) { return v.tensor(); }
};
template <>
struct From<Operand> {
  static Operand get(Value& v) { return {&v}; }
};
template <>
struct From<Scalar> {
  static Scalar get(Value& v) { return v.is_tensor() ? item(v.tensor()) : v.to_scalar(); }
};
template <>
struct From<int64_t> {
  static int64_t get(Value& v) { return v.to_int(); }
};
template <>
struct From<double> {
  static double get(Value& v) { return v.to_float(); }
};
template <>
struct From<bool> {
  static bool get(Value& v) { return v.to_bool(); }
};
template <>
struct From<DType> {
  static DType get(Value& v) { return v.to_dtype(); }
};
template <>
struct From<Device> {
  static Device get(Value& v) { return v.to_device(); }
};
template <>
struct From<MemoryFormat> {
  static MemoryFormat get(Value& v) { return v.to_memory_format(); }
};
template <>
struct From<Layout> {
  static Layout get(Value& v) { return v.to_layout(); }
};
template <>
struct From<IntSpan> {
  static IntSpan get(Value& v) { return v.ints(); }
};
template <>
struct From<std::string_view> {
  static std::string_view get(Value& v) { return v.string(); }
};
template <>
struct From<std::vector<double>> {
  static std::vector<double> get(Value& v) { return {v.floats(), v.floats() + v.length()}; }
};
template <>
struct From<std::vector<bool>> {
  static std::vector<bool> get(Value& v) { return std::vector<bool>(v.bools(), v.bools() + v.length()); }
};
template <>
struct From<std::vector<Tensor>> {
  static std::vector<Tensor> get(Value& v) { return {v.tensors(), v.tensors() + v.length()}; }
};
template <>
struct From<Opaque*> {
  static Opaque* get(Value& v) { return v.is_none() ? nullptr : v.opaque(); }
};
template <class T>
struct From<std::optional<T>> {
  static std::optional<T> get(Value& v) {
    if (v.is_none()) return std::nullopt;
    return From<T>::get(v);
  }
};

inline void put(Value* results, Tensor&& t) {
  results[0] = Value(std::move(t));
}
inline void put(Value* results, const std::vector<Tensor>& list) {
  results[0] = Value(list);
}
inline void put(Value* results, bool v) {
  results[0] = Value(v);
}
inline void put(Value* results, int64_t v) {
  results[0] = Value(v);
}
inline void put(Value* results, double v) {
  results[0] = Value(v);
}
inline void put(Value* results, const Scalar& v) {
  results[0] = Value(v);
}
inline void put(Value* results, const std::vector<int64_t>& v) {
  results[0] = Value(v);
}
inline void put(Value* results, DType v) {
  results[0] = Value(v);
}
template <class... T>
void put(Value* results, std::tuple<T...>&& t) {
  std::apply([&](auto&&... x) { (put(results++, std::move(x)), ...); }, std::move(t));
}

template <auto F, class R, class... A, size_t... I>
void invoke(Value* args, Value* results, R (*)(A...), std::index_sequence<I...>) {
  if constexpr (std::is_void_v<R>)
    F(From<std::decay_t<A>>::get(args[I])...);
  else
    put(results, F(From<std::decay_t<A>>::get(args[I])...));
}
// Raises when tensors with and without data meet; kernels look at their first tensor only.
void check_one_device(const Operator& op, const Value* args);

template <auto F, class R, class... A>
void adapt(const Operator& op, void*, KeySet keys, Value* args, Value* results) {
  if (__builtin_expect(keys.has(Key::Meta) && keys.has(Key::CPU), 0)) check_one_device(op, args);
  invoke<F>(args, results, static_cast<R (*)(A...)>(nullptr), std::index_sequence_for<A...>{});
}
template <auto F, class R, class... A>
constexpr KernelFn adapter(R (*)(A...)) {
  return &adapt<F, R, A...>;
}

struct Register {
  Register(const char* name, std::initializer_list<Key> keys, Kernel kernel) {
    for (Key k : keys) OperatorTable::add_kernel(name, k, kernel);
  }
};

}  // namespace detail

template <auto F>
constexpr Kernel kernel_of() {
  return Kernel{detail::adapter<F>(F), nullptr};
}

#define FL_CONCAT2(a, b) a##b
#define FL_CONCAT(a, b) FL_CONCAT2(a, b)
// CPU kernel that also answers on meta: it computes shapes, then returns before touching data when is_meta().
#define FL_KERNEL(name, function)                                         \
  static ::fl::detail::Register FL_CONCAT(fl_register_, __COUNTER__) {    \
    name, {::fl::Key::CPU, ::fl::Key::Meta}, ::fl::kernel_of<&function>() \
  }
// The same for a kernel that touches data only through the functions of core/tensor.h, which know the
// accelerator.
#define FL_KERNEL_DEVICES(name, function)                                                  \
  static ::fl::detail::Register FL_CONCAT(fl_register_, __COUNTER__) {                     \
    name, {::fl::Key::CPU, ::fl::Key::Meta, ::fl::Key::CUDA}, ::fl::kernel_of<&function>() \
  }
// Device-independent kernel (views, metadata): runs on every device below autograd.
#define FL_KERNEL_ALL(name, function)                                  \
  static ::fl::detail::Register FL_CONCAT(fl_register_, __COUNTER__) { \
    name,                                                              \
        {::fl::Key::CPU,                                               \
         ::fl::Key::Meta,                                              \
         ::fl::Key::CUDA,                                              \
         static_cast<::fl::Key>(3),                                    \
         static_cast<::fl::Key>(4),                                    \
         static_cast<::fl::Key>(5),                                    \
         static_cast<::fl::Key>(6),                                    \
         static_cast<::fl::Key>(7),                                    \
         static_cast<::fl::Key>(8),                                    \
         static_cast<::fl::Key>(9),                                    \
         static_cast<::fl::Key>(10)},                                  \
        ::fl::kernel_of<&function>()                                   \
  }

// Calls an operator from C++ by name, through the dispatcher. Look the operator up once at the call site:
//   static const Operator& op = OperatorTable::get().at("copy_");
template <class... A>
Tensor call_tensor(const Operator& op, const A&... args) {
  Value stack[sizeof...(A)] = {Value(args)...};
  Value result[1];
  op.call(stack, result);
  return result[0].take_tensor();
}

}  // namespace fl

// Typed C++ functions as kernels: converts Values to the parameters of the function and its result back.
//
//   Tensor sum_dim(const Tensor& self, std::optional<IntSpan> dim, bool keepdim, std::optional<DType> dtype);
//   FL_KERNEL("sum.dim_IntList", sum_dim, kDevices);
#pragma once

#include <optional>
#include <tuple>

#include "core/device_function.h"
#include "dispatch/operator.h"

namespace fl {

// A tensor or a number, as binary operators take.
struct Operand {
  Value* value;
  bool is_tensor() const { return value->is_tensor(); }
  Tensor tensor() const { return value->is_tensor() ? value->tensor() : wrapped_number(value->to_scalar()); }
};

// Where a kernel runs. On meta it computes shapes and returns before it touches data.
constexpr KeySet kCpu = KeySet(Key::CPU) | Key::Meta;    // it touches the data of CPU tensors
constexpr KeySet kDevices = kCpu | Key::CUDA;            // it touches data through device functions only
constexpr KeySet kEverywhere((1u << kBackendKeys) - 1);  // it touches no data: views, metadata
// A decomposition into other operators, on every device and above autograd, as composite records are in
// Python.
constexpr KeySet kComposite = Key::Composite;

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
  Register(const char* name, KeySet keys, Kernel kernel) {
    for (int k = 0; k < kKeys; ++k)
      if (keys.has(static_cast<Key>(k))) OperatorTable::add_kernel(name, static_cast<Key>(k), kernel);
  }
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
// Registers a typed C++ function as the kernel of an operator, once for all the devices it serves: `where` is
// one of the sets above, or keys of one's own.
#define FL_KERNEL(name, function, where)                               \
  static ::fl::detail::Register FL_CONCAT(fl_register_, __COUNTER__) { \
    name, where, ::fl::kernel_of<&function>()                          \
  }

// Calls an operator from C++ by name, through the dispatcher. Look the operator up once at the call site:
//   static const Operator& op = OperatorTable::get().at("copy_");
template <class... A>
Tensor call_tensor(const Operator& op, const A&... args) {
  FL_CHECK(sizeof...(A) == op.schema.args.size() && op.n_results() == 1, "[", op.schema.name, "] expected ",
           op.schema.args.size(), " arguments and one result in a call from C++, got ", sizeof...(A), " and ",
           op.n_results());
  Value stack[sizeof...(A)] = {Value(args)...};
  Value result[1];
  op.call(stack, result);
  return result[0].take_tensor();
}

}  // namespace fl

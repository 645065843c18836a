// Operators: schema, kernels by dispatch key, and the call that picks among them.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "dispatch/value.h"

namespace fl {

enum class ArgType : uint8_t {
  Tensor,
  TensorOrScalar,
  Scalar,
  Int,
  Float,
  Bool,
  String,
  DType,
  Device,
  Layout,
  MemoryFormat,
  Generator,
  Any,
};

struct Argument {
  std::string name;
  ArgType type = ArgType::Any;
  bool optional = false;       // `?`: None is allowed
  bool list = false;           // `[]`
  bool list_optional = false;  // elements may be None: Tensor?[]
  int broadcast = 0;           // `[n]`: one value stands for n of them
  bool keyword_only = false;
  bool has_default = false;
  bool mutated = false;  // written in place
  Value default_value;
};

struct Schema {
  std::string name, overload, text;
  std::vector<Argument> args;
  std::vector<std::string> returns;       // types as written
  std::vector<std::string> return_names;  // for named results
  bool returns_list = false;

  std::string full_name() const { return overload.empty() ? name : name + "." + overload; }
  static Schema parse(const std::string& text);
};

class Operator;
struct BuiltinOperator;
using KernelFn = void (*)(const Operator& op, void* context, KeySet keys, Value* args, Value* results);

struct Kernel {
  KernelFn fn = nullptr;
  void* context = nullptr;
  explicit operator bool() const { return fn != nullptr; }
};

enum OperatorFlags : uint32_t {
  kView = 1,     // results alias the first argument
  kInplace = 2,  // derived `name_`: writes its first argument
  kOut = 4,      // derived `out=` form
  kRandom = 8,
  kNoGrad = 16,            // results are never differentiable
  kConstantGradient = 32,  // the gradient depends on the input only in which elements are chosen
  kMixedDevices = 64,      // takes tensors of several devices
  kMetaLayout = 128,       // results lie in memory as the kernel for tensors without data says
  kSparse = 256,           // takes sparse tensors, also as gradients of its results
  kElementLoss = 512,      // a loss of single elements
  kSequence = 1024,        // an `out` with as many elements keeps its shape
  kGeometry = 2048,        // reads or sets the geometry of its arguments, not their elements
  kVariadic = 4096,        // tensors may be passed one by one in place of a list
  kWideComplex = 8192,     // kernels know complex64 and complex128, but not complex32
};

class Operator {
 public:
  explicit Operator(Schema s) : schema(std::move(s)) {}

  Schema schema;
  uint32_t flags = 0;
  Operator* functional = nullptr;  // for in-place and out forms: the op they derive from
  Operator* inplace = nullptr;
  Operator* out = nullptr;
  const BuiltinOperator* record = nullptr;  // what its record says; null for operators of programs
  const char* node = "";                    // name of its autograd node, "" where that follows from its own
  void* autograd = nullptr;                 // set by the autograd layer
  void* python = nullptr;                   // overload object, set by the binding
  int n_results() const { return static_cast<int>(schema.returns.size()); }

  void set_kernel(Key key, Kernel kernel);
  Kernel kernel(Key key) const { return own_[static_cast<int>(key)]; }
  bool has_own_kernel(Key key) const { return bool(own_[static_cast<int>(key)]); }
  bool is_composite() const { return bool(own_[static_cast<int>(Key::Composite)]) && !has_backend_; }

  // Calls with the keys of the arguments and of the thread.
  void call(Value* args, Value* results) const { call_with(keys_of(args), args, results); }
  // Calls with exactly these keys.
  void call_with(KeySet keys, Value* args, Value* results) const;
  KeySet keys_of(const Value* args) const;

  void rebuild() const;

 private:
  [[noreturn]] void no_kernel(KeySet keys) const;

  std::array<Kernel, kKeys> own_{};
  mutable std::array<Kernel, kKeys> resolved_{};  // after fallbacks and decomposition
  mutable std::atomic<uint64_t> built_{0};
  bool has_backend_ = false;
};

// All operators, by full name. Operators live for ever once defined.
class OperatorTable {
 public:
  static OperatorTable& get();

  Operator* define(const std::string& schema, uint32_t flags = 0);
  Operator* find(const std::string& full_name) const;
  // Like find, but raises when there is none.
  Operator& at(const std::string& full_name) const;
  void set_fallback(Key key, Kernel kernel);
  Kernel fallback(Key key) const { return fallback_[static_cast<int>(key)]; }
  uint64_t generation() const { return generation_.load(std::memory_order_acquire); }
  void invalidate() { generation_.fetch_add(1, std::memory_order_acq_rel); }
  std::vector<Operator*> all() const;

  // Kernels registered by static initialisers, attached when their operator is defined.
  static void add_kernel(const char* full_name, Key key, Kernel kernel);

 private:
  OperatorTable() = default;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::unique_ptr<Operator>> table_;
  std::vector<Operator*> order_;
  std::array<Kernel, kKeys> fallback_{};
  std::atomic<uint64_t> generation_{1};
};

// Defines every operator of the generated table (csrc has no list of its own). Idempotent.
void define_builtin_operators();

}  // namespace fl

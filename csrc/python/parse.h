// From Python arguments to Values by schema.
#pragma once

#include <memory>

#include "python/common.h"

namespace fl::py {

constexpr int kMaxArgs = 32;

// The values of one call: room for the most, of which only as many as are needed are made.
class ValueStack {
 public:
  explicit ValueStack(size_t n) : n_(n) {
    for (size_t i = 0; i < n_; ++i) new (data() + i) Value();
  }
  ~ValueStack() {
    for (size_t i = 0; i < n_; ++i) data()[i].~Value();
  }
  ValueStack(const ValueStack&) = delete;
  ValueStack& operator=(const ValueStack&) = delete;
  Value* data() { return reinterpret_cast<Value*>(raw_); }

 private:
  size_t n_;
  alignas(Value) char raw_[sizeof(Value) * kMaxArgs];
};

// Memory that lives as long as one call: lists and strings of its arguments.
struct Arena {
  int64_t ints[24];
  size_t used = 0;
  std::vector<std::vector<int64_t>> int_lists;
  std::vector<std::vector<double>> float_lists;
  std::vector<std::vector<Tensor>> tensor_lists;
  std::vector<std::unique_ptr<bool[]>> bool_lists;
  std::vector<Object> objects;

  int64_t* take_ints(size_t n) {
    if (used + n <= 24) {
      int64_t* at = ints + used;
      used += n;
      return at;
    }
    int_lists.emplace_back(n);
    return int_lists.back().data();
  }
};

// Where tensors go when no device is named: set_default_device and `with device:`, by thread.
struct DefaultDevice {
  bool active = false;
  Device device;

  bool operator!=(const DefaultDevice& o) const { return active != o.active || device != o.device; }
};
DefaultDevice& default_device();

// Whether the operator makes a tensor on a device of choice, so that it takes requires_grad=True.
bool makes_tensor(const Operator& op);

// Tries to read the arguments as `op` wants them. Returns false and says why when they do not fit; throws
// only when reading raises in Python itself. `out` receives the value of an `out=` keyword, borrowed.
bool parse(const Operator& op, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames, Value* values,
           Arena& arena, PyObject** out, std::string* why);

}  // namespace fl::py

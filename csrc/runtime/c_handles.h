// What the functions of the C interface share: errors and handles of tensors.
#pragma once

#include <flambeau/flambeau.h>

#include <new>
#include <string>

#include "core/error.h"
#include "runtime/dlpack.h"

namespace fl::runtime {

// The message of the last error of this thread.
std::string& last_error();
fl_status status_of(ErrorKind kind);

// Nothing is thrown through C.
template <class F>
fl_status guarded(const F& f) {
  try {
    f();
    return FL_OK;
  } catch (const Error& error) {
    last_error() = error.what();
    return status_of(error.kind);
  } catch (const std::bad_alloc&) {
    last_error() = "[flambeau] expected memory, got none";
    return FL_OUT_OF_MEMORY;
  } catch (const ForeignError& error) {
    error.forget();
    last_error() = "[flambeau] an operator of Python failed";
    return FL_RUNTIME_ERROR;
  } catch (const std::exception& error) {
    last_error() = error.what();
    return FL_RUNTIME_ERROR;
  }
}

// What a caller must not leave out.
template <class T>
T& needed(T* pointer, const char* what) {
  FL_CHECK_KIND(pointer != nullptr, Type, "[flambeau] expected ", what, ", got null");
  return *pointer;
}

inline TensorImpl* impl(const fl_tensor* t) {
  return reinterpret_cast<TensorImpl*>(const_cast<fl_tensor*>(t));
}
inline Tensor borrow(const fl_tensor* t) {
  return t ? Tensor(impl(t)) : Tensor();
}
inline Tensor needed_tensor(const fl_tensor* t) {
  return borrow(&needed(t, "a tensor"));
}
inline fl_tensor* give(Tensor t) {
  return t.defined() ? reinterpret_cast<fl_tensor*>(t.ref().leak()) : nullptr;
}

}  // namespace fl::runtime

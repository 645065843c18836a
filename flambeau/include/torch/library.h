// Conversions of tensors, dtypes and devices, and TORCH_LIBRARY: operators that an extension defines.
#pragma once

#include <pybind11/functional.h>
#include <torch/extension_tensor.h>

namespace pybind11::detail {

template <>
struct type_caster<at::Tensor> {
  PYBIND11_TYPE_CASTER(at::Tensor, const_name("torch.Tensor"));
  bool load(handle given, bool) {
    if (!given.is_none() && !isinstance(given, c10::library().attr("Tensor"))) return false;
    value = given.is_none() ? at::Tensor() : at::Tensor(reinterpret_borrow<object>(given));
    return true;
  }
  static handle cast(const at::Tensor& t, return_value_policy, handle) {
    return t.defined() ? t.object().inc_ref() : none().release();
  }
};

template <>
struct type_caster<c10::ScalarType> {
  PYBIND11_TYPE_CASTER(c10::ScalarType, const_name("torch.dtype"));
  bool load(handle given, bool) {
    value = c10::scalar_type_of(given);
    return value != c10::ScalarType::Undefined;
  }
  static handle cast(c10::ScalarType t, return_value_policy, handle) {
    return c10::dtype_object(t).release();
  }
};

template <>
struct type_caster<c10::IntArrayRef> {
  PYBIND11_TYPE_CASTER(c10::IntArrayRef, const_name("list[int]"));
  bool load(handle given, bool convert) {
    make_caster<std::vector<int64_t>> list;
    if (!list.load(given, convert)) return false;
    value = c10::IntArrayRef(cast_op<std::vector<int64_t>>(std::move(list)));
    return true;
  }
  static handle cast(const c10::IntArrayRef& v, return_value_policy, handle) { return v.object().release(); }
};

}  // namespace pybind11::detail

namespace torch {

// Operators under a namespace, defined when the extension is loaded. They are seen as
// torch.ops.<namespace>.<name>.
class Library {
 public:
  Library(const char* space, const char* kind, const char* key)
      : space_(space), key_(key), library_(c10::library().attr("library").attr("Library")(space, kind, key)) {
    library_.inc_ref();  // for as long as the process lives
  }
  Library& def(const char* schema) {
    library_.attr("define")(schema);
    return *this;
  }
  template <class F>
  Library& def(const char* schema, F&& function) {
    const std::string text = schema;
    return def(schema).impl(text.substr(0, text.find('(')).c_str(), std::forward<F>(function));
  }
  template <class F>
  Library& impl(const char* name, F&& function) {
    const pybind11::object complete =
        pybind11::module_::import("flambeau.utils.cpp_extension").attr("_complete");
    library_.attr("impl")(name, complete(space_, name, pybind11::cpp_function(std::forward<F>(function))),
                          *key_ ? key_ : "CompositeExplicitAutograd");
    return *this;
  }

 private:
  const char *space_, *key_;
  pybind11::object library_;
};

struct LibraryInit {
  LibraryInit(const char* space, const char* kind, const char* key, void (*fill)(Library&)) {
    pybind11::gil_scoped_acquire lock;
    try {
      Library library(space, kind, key);
      fill(library);
    } catch (pybind11::error_already_set& error) {  // nobody above could catch it
      error.discard_as_unraisable(space);
    }
  }
};

}  // namespace torch

#define FL_LIBRARY(space, kind, key, tag, m)                                                   \
  static void fl_library_##tag(torch::Library&);                                               \
  static const torch::LibraryInit fl_library_init_##tag(#space, kind, key, &fl_library_##tag); \
  void fl_library_##tag(torch::Library& m)
#define TORCH_LIBRARY(space, m) FL_LIBRARY(space, "DEF", "", space, m)
#define TORCH_LIBRARY_FRAGMENT(space, m) FL_LIBRARY(space, "FRAGMENT", "", space##_fragment, m)
#define TORCH_LIBRARY_IMPL(space, key, m) FL_LIBRARY(space, "IMPL", #key, space##_##key, m)
#define TORCH_FN(f) &f

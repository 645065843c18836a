// Shared by the binding's autograd files: nodes as Python objects, and what the Tensor type needs to know of
// autograd.
#pragma once

#include "autograd/node.h"
#include "python/common.h"

namespace fl::py {

PyObject* wrap_node(const Ref<autograd::Node>& node);  // new reference; None for no node
Ref<autograd::Node> node_of(PyObject* o);
Object tuple_of(const std::vector<Tensor>& list);
void add_derivatives();                     // those written in Python (derivatives.cpp)
void add_autograd_tools(PyObject* module);  // anomaly mode, callbacks, windows (autograd_tools.cpp)

// What an operator's node saved, by the name of an argument or `result`; null when there is nothing of that
// name. `raw`: the saved tensor as an object that can be given hooks.
PyObject* saved_of_node(autograd::OperatorNode& node, const char* name, bool raw);
void add_saved_tensors(PyObject* module);

// What hooks on saved tensors enter or leave while it lives ends with it.
struct SavedHooksKept {
  SavedHooksKept();
  ~SavedHooksKept();
  std::vector<std::pair<Object, Object>> before;
};

// For the cycle collector; the tensor has autograd metadata and only its Python object owns it.
int traverse_autograd(TensorImpl* impl, visitproc visit, void* arg);
void clear_autograd(TensorImpl* impl);

}  // namespace fl::py

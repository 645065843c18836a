// Nodes of the graph and hooks as Python sees them; used by the binding's autograd files.
#pragma once

#include <string>
#include <vector>

#include "python/autograd.h"

namespace fl::py {

// A hook written in Python, on a tensor or a node.
struct PyHook final : autograd::Hook {
  enum Kind { Tensor1, Pre, Post, PostAccumulate };
  PyObject* fn;
  Kind kind;
  PyHook(PyObject* f, Kind k) : fn(Py_NewRef(f)), kind(k) {}
  ~PyHook() override;
  void replace(std::vector<Tensor>& grads, PyObject* result);
  void call(std::vector<Tensor>& grads, const std::vector<Tensor>* inputs) override;
};

// Removes a hook by identity of its callable; returned to Python as the handle's remover.
struct Remover {
  Ref<autograd::Node> node;
  Tensor tensor;
  autograd::Hook* hook;
};
PyObject* make_remover(Remover r);

// A node made in Python (autograd.Function).
struct PyNode final : autograd::Node {
  std::string label;
  PyObject* callback;  // (node, grads tuple) -> tuple of gradients
  PyObject* on_release;
  PyNode(std::string name, PyObject* fn, PyObject* release)
      : label(std::move(name)), callback(Py_NewRef(fn)), on_release(Py_NewRef(release)) {}
  ~PyNode() override;
  std::string name() const override { return label; }
  std::vector<Tensor> apply(std::vector<Tensor>&& grads) override;
  void release_saved() override;
};

// What a node holds of Python, for the garbage collector: only whoever holds the node alone may report it.
int traverse_node(const autograd::Node& node, visitproc visit, void* arg);

void add_nodes(PyObject* module);

}  // namespace fl::py

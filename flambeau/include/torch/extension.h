// What an extension includes: tensors, and how they pass between Python and C++.
#pragma once

#include <torch/library.h>
#include <torch/tensor.h>

namespace py = pybind11;

// What an extension includes: tensors, and how they pass between Python and C++.
#pragma once

#define FLAMBEAU_EXTENSION 1
#include <torch/library.h>
#include <torch/tensor.h>

namespace py = pybind11;

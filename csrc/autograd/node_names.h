// How graphs are shown to programs: see node_names.cpp.
#pragma once

#include "autograd/node.h"

namespace fl::autograd {

// The node whose edges are shown as those of this one: itself, or, for the sum or mean that PyTorch has one
// operator for together with the loss of single elements below it, that loss.
const Node& shown(const Node& node);

}  // namespace fl::autograd

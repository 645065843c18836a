// Whether a node runs for the last time.
#pragma once

#include "autograd/node.h"

namespace fl::autograd {

// Whether the backward pass that is running `node` on this thread drops what the node saved as soon as it is
// done, so that the node may let go of each saved tensor after its last use.
bool releases_saved(const Node* node);

}  // namespace fl::autograd

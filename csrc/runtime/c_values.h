// Values of the C interface.
#pragma once

#include "definitions/object.h"
#include "runtime/c_handles.h"

namespace fl::runtime {

using definitions::Object;
using definitions::Objects;
using definitions::Type;

Object to_object(const fl_value& value);
// Tensors are owned by the caller.
fl_value from_object(const Object& object);

}  // namespace fl::runtime

// Numbers and dtypes: which dtype a number has by itself, and which numbers a dtype can hold: fills refuse
// the others, as conversions of tensors do not.
#pragma once

#include "core/scalar.h"

namespace fl {

// Negative integers wrap around in unsigned dtypes as far as their magnitude fits; infinities and NaN fit
// every floating dtype; a complex number fits a real dtype when its imaginary part is zero. Everything fits
// bool.
bool fits(const Scalar& value, DType dtype);
// Raises unless the value fits.
void check_fits(const char* op, const Scalar& value, DType dtype);
// The dtype a number has when none is asked for.
DType number_dtype(const Scalar& value);

}  // namespace fl

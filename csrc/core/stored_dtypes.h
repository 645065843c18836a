// Conversion of the dtypes that are only stored: wide unsigned integers, 8-bit floats and pairs of halves.
#pragma once

#include "core/scalar.h"

namespace fl {

// One element as the nearest number: integers as int64 (uint64 keeps its bits), 8-bit floats as float.
int64_t load_unsigned(DType t, const char* p);
float load_float8(DType t, uint8_t code);
void store_unsigned(DType t, char* p, int64_t value);
uint8_t store_float8(DType t, float value);
complex64 load_complex_half(const char* p);
void store_complex_half(char* p, complex64 value);
// Out of range goes through the bits of uint64.
uint64_t to_unsigned(double value);

// Writes a number as an element of any dtype.
void store_scalar(const Scalar& value, DType t, void* p);
// Reads an element of a dtype that is only stored.
Scalar load_stored(DType t, const void* p);

}  // namespace fl

"""Operators on quantized numbers: integers that stand for `(i - zero_point) * scale`."""

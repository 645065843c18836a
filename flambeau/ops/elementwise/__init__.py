"""Elementwise operators: arithmetic, comparison, bits, complex numbers, mathematical functions, activations."""

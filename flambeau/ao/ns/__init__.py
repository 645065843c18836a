"""Comparison of float models with their quantized forms: weights, results of layers, and layers beside their float form."""

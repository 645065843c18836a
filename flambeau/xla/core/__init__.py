"""Modules that programs for PyTorch/XLA import."""

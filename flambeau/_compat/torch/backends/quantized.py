"""Quantized kernels: none."""

engine = "none"
supported_engines = ["none"]

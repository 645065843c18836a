"""Quantization of traced models: fusion, annotations from configurations, and quantized layers in place of pairs."""

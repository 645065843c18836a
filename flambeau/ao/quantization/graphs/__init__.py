"""Passes over graphs that both graph modes share.

| module | what it does |
|---|---|
| `annotation` | what is to be quantized, and how: on nodes and edges of a graph |
| `observe` | puts observers where annotations ask for them |
| `reference` | replaces observers by pairs of quantize and dequantize |
| `fold` | batch norms into convolutions, quantization of constants into constants |
| `decomposed` | the operators of those pairs |

`quantize_fx` writes annotations from a `QConfigMapping`, `quantize_pt2e` lets a quantizer write them.
"""

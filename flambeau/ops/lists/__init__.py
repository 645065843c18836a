"""Operators over lists of tensors: `_foreach_*` and the steps of optimizers."""

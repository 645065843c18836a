"""The modules of torch_xla.test."""

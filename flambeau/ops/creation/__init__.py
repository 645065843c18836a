"""New tensors: constants, sequences, windows, copies and conversions."""

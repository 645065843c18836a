"""Layer, group, batch and RMS normalization, softmax."""

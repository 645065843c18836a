"""What the comparison of traced models is made of: its types, and measures of how far two tensors are apart."""

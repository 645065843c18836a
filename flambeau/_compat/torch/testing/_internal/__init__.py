"""The few of PyTorch's own test helpers that programs use outside of tests."""

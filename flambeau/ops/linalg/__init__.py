"""Linear systems and matrix factorizations."""

"""Copies in another order: joining, splitting, padding, flipping, triangles and diagonals."""

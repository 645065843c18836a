"""Convolutions, and sliding blocks as columns."""

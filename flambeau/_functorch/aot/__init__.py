"""Ahead-of-time autograd: a function on tensors becomes a list of operator calls, forward and backward.

`trace` records one run of the function on tensors without data, and of the backward that follows from it; `partition`
splits the record into what runs in forward and what runs in backward.
"""

"""Ahead-of-time autograd: a function on tensors becomes a list of operator calls, forward and backward.

`trace` records one run of the function on tensors without data, and of the backward that follows from it. The compiler
divides the record where backward begins, and saves what backward reads of forward.
"""

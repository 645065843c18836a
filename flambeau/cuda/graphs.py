"""Recorded work of a CUDA device, under the name programs import it by."""

from flambeau.cuda import CUDAGraph, graph, graph_pool_handle, make_graphed_callables  # noqa: F401

"""Algorithms on top of process groups: communication hooks, joins, model averaging."""

from flambeau.distributed.algorithms.join import Join, Joinable, JoinHook

__all__ = ["Join", "JoinHook", "Joinable"]

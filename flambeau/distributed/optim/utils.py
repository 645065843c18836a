"""Optimizers by gradients as arguments, under the names of programs."""

from flambeau.distributed.optim.functional import as_functional_optim, functional_optim_map, register_functional_optim

__all__ = ["as_functional_optim", "functional_optim_map", "register_functional_optim"]

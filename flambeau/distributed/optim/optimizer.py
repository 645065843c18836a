"""An optimizer for parameters on several workers: each owner steps with the gradients of a distributed context."""

from __future__ import annotations

import threading
from typing import Any

from flambeau.distributed import autograd, rpc

__all__ = ["DistributedOptimizer"]


class _LocalOptimizer:
    """The optimizer of one owner."""

    lock = threading.Lock()  # parameters may belong to several optimizers

    def __init__(self, kind: Any, references: list[Any], *args: Any, **kwargs: Any) -> None:
        self.optimizer = kind([reference.local_value() for reference in references], *args, **kwargs)

    def step(self, context_id: int) -> None:
        gradients = autograd.get_gradients(context_id)
        with self.lock:
            parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
            for parameter in parameters:
                parameter.grad = gradients.get(parameter)
            self.optimizer.step()
            for parameter in parameters:
                parameter.grad = None


class DistributedOptimizer:
    """Optimizers of the given class, one on each worker that owns some of the parameters."""

    def __init__(self, optimizer_class: Any, params_rref: list[Any], *args: Any, **kwargs: Any) -> None:
        by_owner: dict[Any, list[Any]] = {}
        for reference in params_rref:
            by_owner.setdefault(reference.owner(), []).append(reference)
        self.is_functional_optim = False
        self.remote_optimizers = [
            rpc.remote(owner, _LocalOptimizer, args=(optimizer_class, references, *args), kwargs=kwargs)
            for owner, references in by_owner.items()
        ]
        for reference in self.remote_optimizers:
            reference._get_future().wait()

    def step(self, context_id: int) -> None:
        """One step with the gradients of a context, which has been through backward."""
        waiting = [reference.rpc_async().step(context_id) for reference in self.remote_optimizers]
        for future in waiting:
            future.wait()

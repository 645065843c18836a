"""Batching rules of indexing, scatter, sorting and searching."""

from __future__ import annotations

from typing import Any

from flambeau._C import Tensor
from flambeau.ops.batching import Held, along, one_by_one, rank_of, shifted, with_batch
from flambeau.ops.rules import batching

batching(*("sort sort.stable argsort argsort.stable median.dim mode topk kthvalue").split())(along)


@batching("gather", "scatter.src", "scatter_add")
def gather(mode: Any, func: Any, self: Any, dim: int, index: Any, *args: Any, **kwargs: Any) -> Any:
    if rank_of(self) == 0 or rank_of(index) == 0:
        return one_by_one(mode, func, self, dim, index, *args, **kwargs)
    tensors = [with_batch(mode, x) if isinstance(x, (Held, Tensor)) else x for x in args]
    return func(with_batch(mode, self), shifted(dim, rank_of(self)), with_batch(mode, index), *tensors, **kwargs)

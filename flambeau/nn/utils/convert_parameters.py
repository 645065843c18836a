"""Parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable

import flambeau as fl
from flambeau import Tensor

__all__ = ["parameters_to_vector", "vector_to_parameters"]


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All parameters as one vector.

    - parameters: an iterable.

    >>> nn.utils.parameters_to_vector([flambeau.ones(2), flambeau.zeros(1, 2)])
    tensor([1., 1., 0., 0.])
    """
    parts: list[Tensor] = []
    for parameter in parameters:
        if parts and parameter.device != parts[0].device:
            raise TypeError(
                f"[parameters_to_vector] expected parameters on one device, got {parts[0].device} and {parameter.device}"
            )
        parts.append(parameter.view(-1))
    return fl.cat(parts)


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """The parts of a vector written into parameters.

    - vec: the vector; parameters: an iterable.

    >>> w = nn.Parameter(flambeau.zeros(2))
    >>> nn.utils.vector_to_parameters(flambeau.tensor([1.0, 2.0]), [w])
    >>> w.detach()
    tensor([1., 2.])
    """
    if not isinstance(vec, Tensor):
        raise TypeError(f"[vector_to_parameters] expected a Tensor, got {type(vec).__name__}")
    start = 0
    for parameter in parameters:
        count = parameter.numel()
        parameter.data = vec[start : start + count].view_as(parameter).data
        start += count

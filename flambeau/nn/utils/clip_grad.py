"""Limits on gradients: by their total norm, or each element by a value."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import flambeau as fl
from flambeau import Tensor

__all__ = ["clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm"]


def _tensors(tensors: Tensor | Iterable[Tensor]) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Norm of several tensors together.

    - tensors; norm_type; error_if_nonfinite; foreach.

    >>> nn.utils.get_total_norm([flambeau.tensor([3.0]), flambeau.tensor([4.0])])
    tensor(5.)
    """
    grads = _tensors(tensors)
    norm_type = float(norm_type)
    if not grads:
        return fl.tensor(0.0)
    with fl.no_grad():
        device = grads[0].device
        norms = fl._foreach_norm(grads, norm_type)
        if any(norm.device != device for norm in norms):
            norms = [norm.to(device) for norm in norms]
        total = fl.linalg.vector_norm(fl.stack(norms), norm_type)
        if error_if_nonfinite and not bool(total.isfinite()):
            raise RuntimeError(
                f"[clip_grad_norm_] expected a finite norm of order {norm_type}, got {total.item()}: The total norm of order {norm_type} "
                "for gradients from `parameters` is non-finite, so it cannot be clipped; "
                "pass error_if_nonfinite=False to scale by it all the same"
            )
    return total


def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scale gradients in place, given their norm.

    - parameters; max_norm; total_norm: from get_total_norm; foreach.

    >>> w = nn.Parameter(flambeau.zeros(2))
    >>> w.grad = flambeau.tensor([3.0, 4.0])
    >>> nn.utils.clip_grads_with_norm_([w], 1.0, flambeau.tensor(5.0))
    >>> w.grad
    tensor([0.6000, 0.8000])
    """
    grads = [parameter.grad for parameter in _tensors(parameters) if parameter.grad is not None]
    if not grads:
        return
    with fl.no_grad():
        # Multiplying by a factor that may be 1 costs less than waiting for the norm to be known.
        factor = (float(max_norm) / (total_norm + 1e-6)).clamp_(max=1.0)
        if all(grad.device == factor.device for grad in grads):
            plain = all(grad.is_floating_point() and grad.layout is fl.strided for grad in grads)
            if factor.device.type == "cuda" and factor.dtype is not fl.float64 and plain:
                # The multiplication of a list that takes few launches.
                unused = fl.zeros(1, device=factor.device)
                fl._amp_foreach_non_finite_check_and_unscale_(grads, unused, factor.float())
                return
            fl._foreach_mul_(grads, factor)
            return
        for grad in grads:
            grad.mul_(factor.to(grad.device))


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale gradients in place so that their norm together is at most max_norm.

    - parameters; max_norm; norm_type; error_if_nonfinite; foreach.

    Returns the norm before.

    >>> w = nn.Parameter(flambeau.zeros(2))
    >>> w.grad = flambeau.tensor([3.0, 4.0])
    >>> nn.utils.clip_grad_norm_([w], 1.0)
    tensor(5.)
    >>> w.grad
    tensor([0.6000, 0.8000])
    """
    max_norm = max_norm if isinstance(max_norm, Tensor) else float(max_norm)
    if isinstance(parameters, Tensor):
        parameters = [parameters]
    else:
        generator = not isinstance(parameters, (list, tuple, set, dict)) and iter(parameters) is parameters
        parameters = list(parameters)
        if generator and not parameters:
            warnings.warn("`parameters` is an empty generator, no gradient clipping will occur.", stacklevel=2)
    grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
    total = get_total_norm(grads, norm_type, error_if_nonfinite, foreach)
    clip_grads_with_norm_(parameters, max_norm, total, foreach)
    return total


def clip_grad_norm(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Deprecated name of `clip_grad_norm_`."""
    warnings.warn("nn.utils.clip_grad_norm is deprecated; use nn.utils.clip_grad_norm_", FutureWarning, stacklevel=2)
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None) -> None:
    """Clamp gradients in place to [-clip_value, clip_value].

    - parameters; clip_value; foreach.

    >>> w = nn.Parameter(flambeau.zeros(2))
    >>> w.grad = flambeau.tensor([3.0, -0.5])
    >>> nn.utils.clip_grad_value_([w], 1.0)
    >>> w.grad
    tensor([ 1.0000, -0.5000])
    """
    limit = float(clip_value)
    grads = [parameter.grad for parameter in _tensors(parameters) if parameter.grad is not None]
    if grads:
        with fl.no_grad():
            fl._foreach_clamp_min_(grads, -limit)
            fl._foreach_clamp_max_(grads, limit)


# As they were called before they were public.
_get_total_norm = get_total_norm
_clip_grads_with_norm_ = clip_grads_with_norm_

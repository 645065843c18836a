"""Steps of the optimizers as functions of lists: parameters, gradients and state, all written in place.

The arguments are PyTorch's. `foreach`, `fused` and `capturable` choose among its implementations; here there is one.
"""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau.optim._lists import _COMPLEX, _SEVERAL_DEVICES, run_update

Tensors = list[Tensor]


def _run(record: str, lists: list[Any], differentiable: bool, **numbers: Any) -> None:
    several = len({p.device for p in lists[0]}) > 1
    flags = _COMPLEX * any(p.is_complex() for p in lists[0]) | _SEVERAL_DEVICES * several
    with fl.set_grad_enabled(fl.is_grad_enabled() and differentiable):
        run_update(record, lists, flags, differentiable, **numbers)


def _unscaled(grads: Tensors, grad_scale: Tensor | None, found_inf: Tensor | None) -> bool:
    """Divide a gradient scaler's scale out; false when the step is to be left out."""
    if found_inf is not None and found_inf.item():
        return False
    if grad_scale is not None:
        with fl.no_grad():
            fl._foreach_div_(grads, grad_scale)
    return True


def sgd(
    params: Tensors, d_p_list: Tensors, momentum_buffer_list: list[Tensor | None], has_sparse_grad: bool = False,
    foreach: bool | None = None, fused: bool | None = None, grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None, *, weight_decay: float, momentum: float, lr: float, dampening: float,
    nesterov: bool, maximize: bool,
) -> None:  # fmt: skip
    """Buffers that are None are made, and put into the list."""
    if not _unscaled(d_p_list, grad_scale, found_inf):
        return
    numbers = {"lr": lr, "weight_decay": weight_decay, "maximize": maximize}
    if momentum == 0:
        _run("_update_sgd_", [params, d_p_list], False, **numbers)
        return
    numbers |= {"momentum": momentum, "dampening": dampening, "nesterov": nesterov}
    missing = [b is None for b in momentum_buffer_list]
    for i, first in enumerate(missing):
        if first:
            momentum_buffer_list[i] = fl.empty_like(params[i], memory_format=fl.preserve_format).detach()
    for first in (True, False):
        rows = [row for row, m in zip(zip(params, d_p_list, momentum_buffer_list), missing) if m == first]
        if rows:
            _run("_update_sgd_momentum_", [list(c) for c in zip(*rows)], False, first=first, **numbers)


def adam(
    params: Tensors, grads: Tensors, exp_avgs: Tensors, exp_avg_sqs: Tensors, max_exp_avg_sqs: Tensors,
    state_steps: Tensors, foreach: bool | None = None, capturable: bool = False, differentiable: bool = False,
    fused: bool | None = None, grad_scale: Tensor | None = None, found_inf: Tensor | None = None,
    has_complex: bool = False, decoupled_weight_decay: bool = False, *, amsgrad: bool, beta1: float, beta2: float,
    lr: float, weight_decay: float, eps: float, maximize: bool,
) -> None:  # fmt: skip
    if not _unscaled(grads, grad_scale, found_inf):
        return
    states = [exp_avgs, exp_avg_sqs, max_exp_avg_sqs] if amsgrad else [exp_avgs, exp_avg_sqs]
    _run(
        "_update_adam_amsgrad_" if amsgrad else "_update_adam_", [params, grads, *states, state_steps], differentiable,
        lr=lr, beta1=beta1, beta2=beta2, eps=eps, weight_decay=weight_decay, decoupled=decoupled_weight_decay,
        maximize=maximize, increment=1.0,
    )  # fmt: skip


def adamw(*lists: Any, **options: Any) -> None:
    """`adam` with decoupled weight decay."""
    adam(*lists, **{**options, "decoupled_weight_decay": True})


def rmsprop(
    params: Tensors, grads: Tensors, square_avgs: Tensors, grad_avgs: Tensors, momentum_buffer_list: Tensors,
    state_steps: Tensors, foreach: bool | None = None, maximize: bool = False, differentiable: bool = False,
    capturable: bool = False, has_complex: bool = False, *, lr: float, alpha: float, eps: float, weight_decay: float,
    momentum: float, centered: bool,
) -> None:  # fmt: skip
    states = [square_avgs, *([grad_avgs] if centered else []), *([momentum_buffer_list] if momentum > 0 else [])]
    _run(
        f"_update_rmsprop{'_centered' * centered}{'_momentum' * (momentum > 0)}_",
        [params, grads, *states, state_steps], differentiable,
        lr=lr, alpha=alpha, eps=eps, weight_decay=weight_decay, momentum=momentum, maximize=maximize,
    )  # fmt: skip


def adagrad(
    params: Tensors, grads: Tensors, state_sums: Tensors, state_steps: Tensors, fused: bool | None = None,
    grad_scale: Tensor | None = None, found_inf: Tensor | None = None, has_sparse_grad: bool = False,
    foreach: bool | None = None, differentiable: bool = False, has_complex: bool = False, *, lr: float,
    weight_decay: float, lr_decay: float, eps: float, maximize: bool,
) -> None:  # fmt: skip
    if _unscaled(grads, grad_scale, found_inf):
        _run(
            "_update_adagrad_", [params, grads, state_sums, state_steps], differentiable, lr=lr, lr_decay=lr_decay,
            weight_decay=weight_decay, eps=eps, maximize=maximize, increment=1.0,
        )  # fmt: skip


def adadelta(
    params: Tensors, grads: Tensors, square_avgs: Tensors, acc_deltas: Tensors, state_steps: Tensors,
    capturable: bool = False, foreach: bool | None = None, differentiable: bool = False, has_complex: bool = False, *,
    lr: float, rho: float, eps: float, weight_decay: float, maximize: bool,
) -> None:  # fmt: skip
    _run(
        "_update_adadelta_", [params, grads, square_avgs, acc_deltas, state_steps], differentiable, lr=lr, rho=rho,
        eps=eps, weight_decay=weight_decay, maximize=maximize,
    )  # fmt: skip


def adamax(
    params: Tensors, grads: Tensors, exp_avgs: Tensors, exp_infs: Tensors, state_steps: Tensors,
    foreach: bool | None = None, maximize: bool = False, differentiable: bool = False, capturable: bool = False,
    has_complex: bool = False, *, eps: float, beta1: float, beta2: float, lr: float, weight_decay: float,
) -> None:  # fmt: skip
    _run(
        "_update_adamax_", [params, grads, exp_avgs, exp_infs, state_steps], differentiable, lr=lr, beta1=beta1,
        beta2=beta2, eps=eps, weight_decay=weight_decay, maximize=maximize,
    )  # fmt: skip


def nadam(
    params: Tensors, grads: Tensors, exp_avgs: Tensors, exp_avg_sqs: Tensors, mu_products: Tensors,
    state_steps: Tensors, decoupled_weight_decay: bool = False, foreach: bool | None = None, capturable: bool = False,
    differentiable: bool = False, has_complex: bool = False, maximize: bool = False, *, beta1: float, beta2: float,
    lr: float, weight_decay: float, momentum_decay: float, eps: float,
) -> None:  # fmt: skip
    _run(
        "_update_nadam_", [params, grads, exp_avgs, exp_avg_sqs, state_steps, mu_products], differentiable, lr=lr,
        beta1=beta1, beta2=beta2, eps=eps, weight_decay=weight_decay, decoupled=decoupled_weight_decay,
        maximize=maximize, momentum_decay=momentum_decay,
    )  # fmt: skip


def radam(
    params: Tensors, grads: Tensors, exp_avgs: Tensors, exp_avg_sqs: Tensors, state_steps: Tensors,
    decoupled_weight_decay: bool = False, foreach: bool | None = None, differentiable: bool = False,
    capturable: bool = False, has_complex: bool = False, maximize: bool = False, *, beta1: float, beta2: float,
    lr: float, weight_decay: float, eps: float,
) -> None:  # fmt: skip
    _run(
        "_update_radam_", [params, grads, exp_avgs, exp_avg_sqs, state_steps], differentiable, lr=lr, beta1=beta1,
        beta2=beta2, eps=eps, weight_decay=weight_decay, decoupled=decoupled_weight_decay, maximize=maximize,
    )  # fmt: skip


def asgd(
    params: Tensors, grads: Tensors, axs: Tensors, mus: Tensors, etas: Tensors, state_steps: Tensors,
    foreach: bool | None = None, maximize: bool = False, differentiable: bool = False, capturable: bool = False,
    has_complex: bool = False, *, lambd: float, lr: float, t0: float, alpha: float, weight_decay: float,
) -> None:  # fmt: skip
    _run(
        "_update_asgd_", [params, grads, axs, state_steps, etas, mus], differentiable, lr=lr, lambd=lambd, alpha=alpha,
        t0=t0, weight_decay=weight_decay, maximize=maximize,
    )  # fmt: skip


def rprop(
    params: Tensors, grads: Tensors, prevs: Tensors, step_sizes: Tensors, state_steps: Tensors,
    foreach: bool | None = None, capturable: bool = False, maximize: bool = False, differentiable: bool = False,
    has_complex: bool = False, *, step_size_min: float, step_size_max: float, etaminus: float, etaplus: float,
) -> None:  # fmt: skip
    _run(
        "_update_rprop_", [params, grads, prevs, step_sizes, state_steps], differentiable, etaminus=etaminus,
        etaplus=etaplus, smallest=step_size_min, largest=step_size_max, maximize=maximize,
    )  # fmt: skip

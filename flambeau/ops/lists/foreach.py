"""Operators over lists of tensors: `_foreach_add(tensors, 1)` and the like.

Each calls the operator for one tensor at every position of the lists, in C++. Lists of numbers are declared as
`Tensor|Scalar[]`, which keeps integers apart from floating point numbers.
"""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau.ops.record import Scalar, composite, each, native

_UNARY = (
    "abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal round "
    "rsqrt sigmoid sign sin sinh sqrt tan tanh trunc"
).split()

for _name in _UNARY:
    each(f"_foreach_{_name}(Tensor[] self) -> Tensor[]", _name)
    each(f"_foreach_{_name}_(Tensor(!)[] self) -> ()", f"{_name}_")


def _both(name: str, overload: str, rest: str, target: str) -> None:
    """An operator that makes tensors, and its in-place form."""
    base, _, variant = target.partition(".")
    each(f"_foreach_{name}.{overload}(Tensor[] self, {rest}) -> Tensor[]", target)
    each(
        f"_foreach_{name}_.{overload}(Tensor(!)[] self, {rest}) -> ()", f"{base}_" + (f".{variant}" if variant else "")
    )


# name -> operator for one tensor, further arguments of the list form, whether one tensor may stand for all
_BINARY = {
    "add": ("add.Tensor", ", *, Scalar alpha=1", True),
    "sub": ("sub.Tensor", ", *, Scalar alpha=1", False),
    "mul": ("mul.Tensor", "", True),
    "div": ("div.Tensor", "", True),
    "clamp_min": ("clamp_min", "", False),
    "clamp_max": ("clamp_max", "", False),
    "maximum": ("clamp_min", "", False),
    "minimum": ("clamp_max", "", False),
}
for _name, (_target, _rest, _tensor) in _BINARY.items():
    if _tensor:
        _both(_name, "Tensor", f"Tensor other{_rest}", _target)
    _both(_name, "Scalar", "Scalar scalar", _target)
    _both(_name, "List", f"Tensor[] other{_rest}", _target)
    _both(_name, "ScalarList", "Tensor|Scalar[] scalars", _target)

_both("pow", "List", "Tensor[] exponent", "pow.Tensor_Tensor")
_both("pow", "Scalar", "Scalar exponent", "pow.Tensor_Tensor")
_both("pow", "ScalarList", "Tensor|Scalar[] exponent", "pow.Tensor_Tensor")
each("_foreach_pow.ScalarAndTensor(Scalar self, Tensor[] exponent) -> Tensor[]", "pow.Scalar")

for _name in ("addcmul", "addcdiv"):
    _both(_name, "Scalar", "Tensor[] tensor1, Tensor[] tensor2, Scalar value=1", _name)
    _both(_name, "ScalarList", "Tensor[] tensor1, Tensor[] tensor2, Tensor|Scalar[] scalars", _name)
    _both(_name, "Tensor", "Tensor[] tensor1, Tensor[] tensor2, Tensor scalars", _name)

_both("lerp", "List", "Tensor[] tensors1, Tensor[] weights", "lerp.Tensor")
_both("lerp", "Scalar", "Tensor[] tensors1, Scalar weight", "lerp.Scalar")
_both("lerp", "ScalarList", "Tensor[] tensors1, Tensor|Scalar[] weight", "lerp.Scalar")

each("_foreach_copy_(Tensor(!)[] self, Tensor[] src, bool non_blocking=False) -> ()", "copy_")
each("_foreach_clone(Tensor[] self, *, memory_format? memory_format=None) -> Tensor[]", "clone")
each("_foreach_zero_(Tensor(!)[] self) -> ()", "zero_")
each("_foreach_max(Tensor[] self) -> Tensor[]", "max")
each("_foreach_mm(Tensor[] self, Tensor[] mat2) -> Tensor[]", "mm")
native("_foreach_norm.Scalar(Tensor[] self, Scalar ord=2, dtype? dtype=None) -> Tensor[]", module="", method=False)


@composite("_foreach_powsum.Scalar", module="")
def _foreach_powsum(self: list[fl.Tensor], ord: Scalar = 2, dtype: fl.dtype | None = None) -> tuple[fl.Tensor, ...]:
    return [(t if dtype is None else t.to(dtype)).abs().pow(ord).sum() for t in self]  # type: ignore[return-value]


# ---------------------------------------------------------------- gradients of scaled losses

native(
    "_amp_foreach_non_finite_check_and_unscale_(Tensor(!)[] self, Tensor(!) found_inf, Tensor inv_scale) -> ()",
    module="",
    method=False,
    tags=("no_grad",),
)


@composite(
    "_amp_update_scale_(Tensor(!) self, Tensor(!) growth_tracker, Tensor found_inf, float scale_growth_factor, "
    "float scale_backoff_factor, int growth_interval) -> Tensor",
    module="",
    method=False,
)
def _amp_update_scale_(
    self: fl.Tensor,
    growth_tracker: Any,
    found_inf: Any,
    scale_growth_factor: Any,
    scale_backoff_factor: Any,
    growth_interval: Any,
) -> fl.Tensor:
    with fl.no_grad():
        if found_inf.item():
            self.mul_(scale_backoff_factor)
            growth_tracker.zero_()
            return self
        successes = growth_tracker.item() + 1
        if successes < growth_interval:
            growth_tracker.fill_(successes)
            return self
        grown = self * scale_growth_factor
        if grown.isfinite().item():
            self.copy_(grown)
        growth_tracker.zero_()
    return self


# ---------------------------------------------------------------- fused steps of optimizers

_FUSED_END = "bool maximize, Tensor? grad_scale=None, Tensor? found_inf=None) -> ()"
_FUSED_ADAM = (
    "(Tensor(!)[] self, Tensor(!)[] grads, Tensor(!)[] exp_avgs, Tensor(!)[] exp_avg_sqs, Tensor(!)[] max_exp_avg_sqs, "
    "Tensor[] state_steps, *, float lr, float beta1, float beta2, float weight_decay, float eps, bool amsgrad, "
)


def _skipped(grads: Any, grad_scale: Any, found_inf: Any) -> bool:
    """Whether a step of a gradient scaler has to be left out; if not, unscales the gradients."""
    if found_inf is not None and found_inf.item():
        return True
    if grad_scale is not None:
        fl._foreach_div_(grads, grad_scale)
    return False


def _run_adam(decoupled: Any, self: fl.Tensor, grads: Any, exp_avgs: Any, exp_avg_sqs: Any, max_exp_avg_sqs: Any, state_steps: Any, amsgrad: Any, grad_scale: Any, found_inf: Any, **numbers: Any) -> None:  # fmt: skip
    with fl.no_grad():
        if _skipped(grads, grad_scale, found_inf):
            return
        if amsgrad:
            update, states = fl._ops._update_adam_amsgrad_, (exp_avgs, exp_avg_sqs, max_exp_avg_sqs)
        else:
            update, states = fl._ops._update_adam_, (exp_avgs, exp_avg_sqs)  # type: ignore[assignment]
        update(self, grads, *states, state_steps, decoupled=decoupled, increment=0.0, **numbers)


@composite(f"_fused_adam_{_FUSED_ADAM}{_FUSED_END}", module="", method=False)
def _fused_adam_(*lists: Any, **options: Any) -> None:
    _run_adam(False, *lists, **options)


@composite(f"_fused_adamw_{_FUSED_ADAM}{_FUSED_END}", module="", method=False)
def _fused_adamw_(*lists: Any, **options: Any) -> None:
    _run_adam(True, *lists, **options)


@composite(
    "_fused_sgd_(Tensor(!)[] self, Tensor(!)[] grads, Tensor(!)[] momentum_buffer_list, *, float weight_decay, "
    "float momentum, float lr, float dampening, bool nesterov, bool maximize, bool is_first_step, "
    "Tensor? grad_scale=None, Tensor? found_inf=None) -> ()",
    module="",
    method=False,
)
def _fused_sgd_(
    self: fl.Tensor, grads: Any, momentum_buffer_list: Any, *, weight_decay: Any, momentum: Any, lr: Any, dampening: Any, nesterov: Any, maximize: Any, is_first_step: Any,
    grad_scale: Any=None, found_inf: Any=None,
) -> None:  # fmt: skip
    with fl.no_grad():
        if _skipped(grads, grad_scale, found_inf):
            return
        numbers = {"lr": lr, "weight_decay": weight_decay, "maximize": maximize}
        if momentum == 0:
            fl._ops._update_sgd_(self, grads, **numbers)
            return
        fl._ops._update_sgd_momentum_(
            self, grads, momentum_buffer_list, momentum=momentum, dampening=dampening, nesterov=nesterov,
            first=is_first_step, **numbers,
        )  # fmt: skip


@composite(
    "_fused_adagrad_(Tensor(!)[] self, Tensor(!)[] grads, Tensor(!)[] state_sums, Tensor(!)[] state_steps, *, "
    f"float lr, float lr_decay, float weight_decay, float eps, {_FUSED_END}",
    module="",
    method=False,
)
def _fused_adagrad_(
    self: fl.Tensor,
    grads: Any,
    state_sums: Any,
    state_steps: Any,
    *,
    grad_scale: Any = None,
    found_inf: Any = None,
    **numbers: Any,
) -> None:
    with fl.no_grad():
        if not _skipped(grads, grad_scale, found_inf):
            fl._ops._update_adagrad_(self, grads, state_sums, state_steps, increment=0.0, **numbers)

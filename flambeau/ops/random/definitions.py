"""Definitions of random numbers in terms of other operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau.backends import widest_float
from flambeau.ops.rules import definition


@definition("native_dropout")
def native_dropout(input: Any, p: float, train: bool | None) -> Any:
    if train is False:
        return input.clone(), fl.ones_like(input, dtype=fl.bool)
    # Words belong to elements in the order of memory.
    order = sorted(range(input.dim()), key=lambda d: -input.stride(d))
    laid = input.permute(order) if input.permute(order).is_contiguous() else input
    keep = fl.empty(laid.shape, dtype=fl.bool, device=input.device).bernoulli_(1 - p)
    if laid is not input:
        keep = keep.permute([order.index(d) for d in range(input.dim())])
    scale = 1 / (1 - p) if p < 1 else 0.0
    return fl.where(keep, input * scale, fl.zeros_like(input)), keep


def _bernoulli(probabilities: Any, shape: Any, generator: Any) -> Any:
    """The random words are those that the CPU kernels draw: one for each element."""
    wide = probabilities.to(widest_float(probabilities.device)).expand(shape)
    if wide.numel() and not bool(fl.all(fl.logical_and(wide >= 0, wide <= 1))):
        raise RuntimeError("[bernoulli] expected probabilities in [0, 1], got one outside")
    words = fl.randint(0, 1 << 32, shape, device=probabilities.device, generator=generator)
    return words.to(wide.dtype) < wide * float(1 << 32)


@definition("bernoulli")
def bernoulli(self: Any, *, generator: Any = None) -> Any:
    return _bernoulli(self, self.shape, generator).to(self.dtype)


@definition("bernoulli_.Tensor")
def bernoulli_(self: Any, p: Any, *, generator: Any = None) -> Any:
    return self.copy_(_bernoulli(p, self.shape, generator))


@definition("multinomial")
def multinomial(self: Any, num_samples: int, replacement: bool = False, *, generator: Any = None) -> Any:
    if self.dim() not in (1, 2) or not self.is_floating_point():
        received = f"{self.dim()} dimensions of {self.dtype}"
        raise RuntimeError(f"[multinomial] expected floating point weights of 1 or 2 dimensions, got {received}")
    rows = self.reshape(-1, self.shape[-1]).to(widest_float(self.device))
    n = rows.shape[1]
    if num_samples <= 0 or not (replacement or num_samples <= n):
        raise RuntimeError(f"[multinomial] expected 1 to {n} samples without replacement, got {num_samples}")
    total = fl.sum(rows, 1, keepdim=True)
    if not bool(fl.all((total > 0) & (total < math.inf) & (fl.amin(rows, 1, keepdim=True) >= 0))):
        raise RuntimeError("[multinomial] expected weights that are finite, not negative and not all 0")
    options = {"dtype": rows.dtype, "device": self.device, "generator": generator}
    if replacement:
        totals = fl.cumsum(rows, 1)
        thresholds = fl.rand(rows.shape[0], num_samples, **options) * totals.narrow(1, n - 1, 1)
        at = fl._ops._search(totals, thresholds, True, False)
        chosen = at.clamp(max=n - 1)
    else:
        # Races of exponential clocks: the first to ring are a sample without replacement.
        bits = 52 if rows.dtype is fl.float64 else 23
        steps = fl.floor(fl.rand(rows.shape, **options) * 2.0**bits)
        rings = fl.where(rows > 0, -fl.log((steps + 0.5) * 2.0**-bits) / rows, math.inf)
        chosen = fl.topk(rings, num_samples, 1, False)[1] if num_samples > 1 else rings.argmin(1, True)
    return chosen.reshape([*self.shape[:-1], num_samples]).contiguous()


@definition("randperm")
def randperm(n: int, *, generator: Any = None, dtype: Any = None, device: Any = None, **_: Any) -> Any:
    """The order of random keys; ties are as likely as equal numbers of 62 bits."""
    keys = fl.randint(0, 1 << 62, (n,), generator=generator, device=device)
    return fl.sort(keys)[1].to(dtype or fl.int64)


def _by_rejection(name: str) -> Callable[..., Any]:
    """The number of draws depends on what was drawn: the host does it, where the device's policy lets it."""

    def make(*args: Any, **options: Any) -> Any:
        from flambeau.backends import registered, tensors_in

        device = registered[next(tensors_in(args)).device.type]
        return device.draw_on_host(fl._C._operator_object(name), args, options)

    return make


for _name in "poisson binomial _standard_gamma _sample_dirichlet".split():
    definition(_name)(_by_rejection(_name))
definition.without(
    "its front fills a tensor with what the device draws (csrc/ops/outside.cpp)",
    *"rand randn randint randint.low rand_like randn_like randint_like randint_like.low_dtype".split(),
    *"uniform_ normal_ random_ random_.to random_.from exponential_ bernoulli_.float geometric_ cauchy_".split(),
    "log_normal_",
)

"""Definitions of random numbers in terms of other operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau.ops.creation.definitions import on_host
from flambeau.ops.rules import definition


def in_place_on_host(name: str) -> Callable[..., Any]:
    """Fill a tensor of the CPU and copy it to the device."""

    def make(self: Any, *args: Any, **options: Any) -> Any:
        host = fl.empty(self.shape, dtype=self.dtype, device="cpu")
        return self.copy_(fl._C._operator_object(name)(host, *args, **options))

    return make


@definition("native_dropout")
def native_dropout(input: Any, p: float, train: bool | None) -> Any:
    if train is False:
        return input.clone(), fl.ones_like(input, dtype=fl.bool)
    keep = fl.rand(input.shape, device=input.device) >= p
    return fl.where(keep, input / (1 - p) if p < 1 else fl.zeros_like(input), fl.zeros_like(input)), keep


def _bernoulli(probabilities: Any, shape: Any, generator: Any) -> Any:
    """The random words are those that the CPU kernels draw: one for each element."""
    wide = probabilities.to(fl.float64).expand(shape)
    if wide.numel() and not bool(fl.all(fl.logical_and(wide >= 0, wide <= 1))):
        raise RuntimeError("[bernoulli] expected probabilities in [0, 1], got one outside")
    words = fl.randint(0, 1 << 32, shape, device=probabilities.device, generator=generator)
    return words.to(fl.float64) < wide * float(1 << 32)


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
    rows = self.reshape(-1, self.shape[-1]).to(fl.float64)
    n = rows.shape[1]
    if num_samples <= 0 or not (replacement or num_samples <= n):
        raise RuntimeError(f"[multinomial] expected 1 to {n} samples without replacement, got {num_samples}")
    total = fl.sum(rows, 1, keepdim=True)
    if not bool(fl.all((total > 0) & (total < math.inf) & (fl.amin(rows, 1, keepdim=True) >= 0))):
        raise RuntimeError("[multinomial] expected weights that are finite, not negative and not all 0")
    options = {"dtype": fl.float64, "device": self.device, "generator": generator}
    if replacement:
        totals = fl.cumsum(rows, 1)
        thresholds = fl.rand(rows.shape[0], num_samples, **options) * totals.narrow(1, n - 1, 1)
        at = fl._ops._search(totals, thresholds, True, False)
        chosen = at.clamp(max=n - 1)
    else:
        # Races of exponential clocks: the first to ring are a sample without replacement.
        steps = fl.floor(fl.rand(rows.shape, **options) * 2.0**52)
        rings = fl.where(rows > 0, -fl.log((steps + 0.5) * 2.0**-52) / rows, math.inf)
        chosen = fl.topk(rings, num_samples, 1, False)[1] if num_samples > 1 else rings.argmin(1, True)
    return chosen.reshape([*self.shape[:-1], num_samples]).contiguous()


for _name in "rand randn randint randint.low randperm rand_like randn_like randint_like randint_like.low_dtype poisson binomial _standard_gamma _sample_dirichlet".split():
    definition(_name)(on_host(_name))
for _name in "uniform_ normal_ random_ random_.to random_.from exponential_ bernoulli_.float geometric_ cauchy_ log_normal_".split():
    definition(_name)(in_place_on_host(_name))

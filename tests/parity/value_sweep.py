"""Every pointwise function over the whole range of each float dtype, against PyTorch in double precision.

    python tests/parity/value_sweep.py [COUNT] [--record FILE]

All values of bfloat16 and half, COUNT random bit patterns (a million) and extremes of float32 and float64; eager and
compiled. The functions are the pointwise records that PyTorch has under the same name. An error is counted in units in
the last place of the result's dtype: at most 2, or 4 for special functions. Where PyTorch seems to say otherwise, mpmath
decides (`EXACT`), on at most `ARBITRATED` values. `EXCEPTIONS` has the functions that may be further off, with the reason.

`test_value_sweep.py` runs a sample.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import mpmath
import numpy as np
import torch

import flambeau as fl
from flambeau.ops import record

DTYPES = {
    "bfloat16": (8, -126),
    "float16": (11, -14),
    "float32": (24, -126),
    "float64": (53, -1022),
}  # digits, least exponent
BITS = {"bfloat16": "uint16", "float16": "uint16", "float32": "uint32", "float64": "uint64"}

_Array = np.ndarray


class Bound(NamedTuple):
    """How far off a function may be: `ulp` units in the last place, or `absolute(operands) * eps`, eps being that of the
    dtype in which it is computed (float32 for the half dtypes)."""

    ulp: float
    why: str
    absolute: Callable[..., _Array] | None = None


def _bessel_amplitude(x: _Array) -> _Array:
    return 4 * np.sqrt(2 / math.pi / np.maximum(np.abs(x), 1))


def _airy_amplitude(x: _Array) -> _Array:
    # The power series cancels down to x = -8. Beyond 2^52 the angle 2/3 |x|^1.5 is only known to 106 digits.
    lost = np.minimum(2, np.abs(x) ** 1.5 * 2.0**-100) / np.finfo(np.float64).eps
    return np.where(x < 0, (96 + lost) * np.maximum(np.abs(x), 1) ** -0.25, 0)


def _digamma_terms(x: _Array) -> _Array:
    return np.where(x < 0, 4 * (1 + np.log1p(np.abs(x)) + math.pi / np.abs(np.tan(math.pi * (x - np.round(x))))), 0)


# Functions that are further off, by (name, dtype or "*").
_ROOTS = "terms cancel near the roots: the error is a few roundings of the amplitude"
_EXPONENT = "the rounded exponent of an exponential decides, whose error grows with the exponent"
_SERIES = "a series of positive terms times an exponential"
_STEPS = "three results are rounded, one after the other"
_MODIFIED = [f"special_{scaled}modified_bessel_{n}" for scaled in ("", "scaled_") for n in ("i0", "i1", "k0", "k1")]
_MODIFIED += ["i0", "special_i1", "special_i0e", "special_i1e"]
_LARGEST: Callable[..., _Array] = lambda x, y: np.maximum(np.abs(x), np.abs(y)) + 1  # noqa: E731
EXCEPTIONS: dict[tuple[str, str], Bound] = {
    ("gelu", "*"): Bound(2, "x/2 (1 + erf) loses the tail below -2, as in PyTorch", lambda x: np.abs(x)),
    ("sigmoid", "float32"): Bound(2.5, _STEPS),
    ("atanh", "float32"): Bound(2.5, _STEPS),
    ("sinh", "float32"): Bound(2.5, _STEPS),
    ("sinc", "float32"): Bound(2.5, _STEPS),
    ("sinc", "float64"): Bound(2.5, _STEPS),
    ("special_airy_ai", "*"): Bound(4, _ROOTS, _airy_amplitude),
    ("lgamma", "float64"): Bound(8, "below zero logarithms of a sine and of a gamma function are subtracted"),
    ("digamma", "float64"): Bound(8, _ROOTS, _digamma_terms),
    **{(f"special_bessel_{n}", "float64"): Bound(4, _ROOTS, _bessel_amplitude) for n in ("j0", "j1", "y0", "y1")},
    **{(n, "float64"): Bound(20, _SERIES) for n in _MODIFIED},
    ("igamma", "float64"): Bound(2e3, _EXPONENT),
    ("igammac", "float64"): Bound(1e3, _EXPONENT),
    ("logaddexp", "*"): Bound(4, _ROOTS, _LARGEST),
    ("logaddexp2", "*"): Bound(4, _ROOTS, _LARGEST),
}
# Values that mpmath decides for a function: the worst half of those where PyTorch seems to differ, and as many others.
ARBITRATED = 40


def _mp(text: str) -> Callable[..., Any]:
    """A function of mpmath numbers x and y, as an expression."""
    code = compile(text, text, "eval")
    return lambda x, y=None: eval(code, vars(mpmath), {"x": x, "y": y})


def _zeta(x: Any, q: Any) -> Any:
    """Hurwitz's zeta function by the formula of Euler and Maclaurin; mpmath's own does not end for large arguments."""
    steps = 60 + max(0, -int(q))
    if steps > 2000:
        raise ValueError("too many terms")
    end = q + steps
    total = mpmath.fsum((q + k) ** -x for k in range(steps)) + end ** (1 - x) / (x - 1) + end**-x / 2
    term = x * end ** (-x - 1)
    for k in range(2, 60, 2):
        total += mpmath.bernoulli(k) / mpmath.factorial(k) * term
        term *= (x + k - 1) * (x + k) / end**2
    return total


EXACT: dict[str, Callable[..., Any]] = {
    name: _mp(text)
    for name, text in {
        "sinc": "sincpi(x)", "gelu": "x * ncdf(x)", "special_ndtr": "ncdf(x)", "special_log_ndtr": "log(ncdf(x))",
        "special_bessel_j0": "besselj(0, x)", "special_bessel_j1": "besselj(1, x)", "special_bessel_y0": "bessely(0, x)",
        "special_bessel_y1": "bessely(1, x)", "special_airy_ai": "airyai(x)", "i0": "besseli(0, x)", "special_i1": "besseli(1, x)",
        "special_i0e": "besseli(0, x) * exp(-abs(x))", "special_i1e": "besseli(1, x) * exp(-abs(x))",
        "special_modified_bessel_i0": "besseli(0, x)", "special_modified_bessel_i1": "besseli(1, x)",
        "special_modified_bessel_k0": "besselk(0, x)", "special_modified_bessel_k1": "besselk(1, x)",
        "special_scaled_modified_bessel_k0": "besselk(0, x) * exp(x)", "special_scaled_modified_bessel_k1": "besselk(1, x) * exp(x)",
        "special_spherical_bessel_j0": "sinc(x)", "igamma": "gammainc(x, 0, y, regularized=True)",
        "igammac": "gammainc(x, y, inf, regularized=True)", "lgamma": "log(abs(gamma(x)))",
        "digamma": "psi(0, x)", "erf": "erf(x)", "erfc": "erfc(x)", "erfinv": "erfinv(x)", "special_erfcx": "exp(x * x) * erfc(x)",
        "special_ndtri": "sqrt(2) * erfinv(2 * x - 1)", "special_entr": "-x * log(x)", "sin": "sin(x)", "cos": "cos(x)", "tan": "tan(x)",
        "asin": "asin(x)", "acos": "acos(x)", "atan": "atan(x)", "sinh": "sinh(x)", "cosh": "cosh(x)", "tanh": "tanh(x)",
        "asinh": "asinh(x)", "acosh": "acosh(x)", "atanh": "atanh(x)", "exp": "exp(x)", "exp2": "power(2, x)", "expm1": "expm1(x)",
        "log": "log(x)", "log2": "log(x, 2)", "log10": "log10(x)", "log1p": "log1p(x)", "sqrt": "sqrt(x)", "rsqrt": "1 / sqrt(x)",
        "sigmoid": "1 / (1 + exp(-x))", "softplus": "log1p(exp(x))", "log_sigmoid": "-log1p(exp(-x))", "pow": "power(x, y)",
        "atan2": "atan2(x, y)", "hypot": "hypot(x, y)", "logaddexp": "log(exp(x) + exp(y))", "deg2rad": "x * pi / 180",
        "logaddexp2": "log(power(2, x) + power(2, y), 2)", "xlogy": "x * log(y)", "special_xlog1py": "x * log1p(y)",
        "rad2deg": "x * 180 / pi", "div": "x / y", "fmod": "x - y * int(x / y)", "remainder": "x - y * floor(x / y)",
        "selu": "mpf('1.0507009873554804934193349852946') * (x if x > 0 else mpf('1.6732632423543772848170429916717') * expm1(x))",
        "celu": "x if x > 0 else expm1(x)",
    }.items()
} | {"special_zeta": _zeta}  # fmt: skip


class Function(NamedTuple):
    name: str
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    operands: int
    limit: float


def _found(lib: Any, path: str) -> Any:
    for part in path.split("."):
        lib = getattr(lib, part, None)
    return lib


def functions(operands: int) -> Iterator[Function]:
    """Pointwise records of so many tensors and nothing else that is required, which PyTorch has as well."""
    for name, entry in record.load().items():
        tensors = [a for a in entry.schema.args if a.is_tensor]
        required = [a for a in entry.schema.args if a.default is None]
        if entry.kind != "pointwise" or entry.alias_of or not entry.function or entry.module == "_ops":
            continue
        if len(tensors) != operands or len(required) != operands or "_polynomial_" in name:  # of small degrees only
            continue
        path = ".".join(filter(None, [entry.module, entry.public or entry.schema.name]))
        ours, theirs = _found(fl, path), _found(torch, path)
        if ours is None or theirs is None:
            continue
        special = "special_functions" in entry.where or entry.module == "special"
        yield Function(name.partition(".")[0], ours, theirs, operands, 4 if special else 2)


def _extremes(dtype: str) -> np.ndarray:
    limits = np.finfo(np.float32 if dtype == "float32" else np.float64)
    steps = [0.0, limits.smallest_subnormal, limits.tiny, limits.eps, limits.max, math.inf]
    turns = [k * math.pi / 2 for k in (1, 2, 3, 4, 7, 100, 12345, 2**20, 2**40, 2**62)]
    whole = [float(2**k) for k in range(0, 100, 3)] + [float(k) for k in range(20)] + [k + 0.5 for k in range(20)]
    near_one = [1 - limits.eps / 2, 1 + limits.eps, 0.1, 1e-5, 88.7, 709.7, 103.9, 745.1]
    values = np.array(steps + turns + whole + near_one)
    return np.concatenate([values, -values, [math.nan]])


def inputs(dtype: str, count: int, seed: int) -> fl.Tensor:
    """Values of a dtype: all of a half dtype, else random bit patterns and extremes."""
    random = np.random.default_rng(seed)
    if dtype in ("bfloat16", "float16"):
        bits = np.arange(2**16, dtype=np.uint16)
        bits = bits if seed == 0 else random.permutation(bits)
        return fl.from_numpy(bits.view(np.int16)).view(getattr(fl, dtype))
    bits = random.integers(0, 2 ** (32 if dtype == "float32" else 64), count, dtype=BITS[dtype])
    values = bits.view(dtype)
    values = np.where(np.isnan(values), np.nan, values).astype(dtype)  # signalling ones trap in PyTorch's libraries
    moderate = (random.standard_normal(count // 2) * np.exp(random.uniform(-5, 5, count // 2))).astype(dtype)
    extremes = _extremes(dtype).astype(dtype)
    return fl.from_numpy(np.concatenate([values, moderate, random.permutation(extremes) if seed else extremes]))


def errors(result: np.ndarray, wanted: np.ndarray, dtype: str) -> np.ndarray:
    """Distances in units in the last place of a dtype; infinite where one is NaN, infinite or zero and the other is not."""
    digits, least = DTYPES[dtype]
    with np.errstate(all="ignore"):
        exponent = np.maximum(np.frexp(wanted)[1] - 1, least)
        distance = np.abs(result - wanted) / np.ldexp(1.0, exponent - digits + 1)
        largest = (2 - 2.0 ** (1 - digits)) * 2.0 ** (1 - least)
        overflow = (np.abs(wanted) > largest * (1 - 2.0**-digits)) & np.isfinite(wanted)
        distance = np.where(np.isinf(result) & overflow & (np.sign(result) == np.sign(wanted)), 0, distance)
        distance = np.where(
            np.isinf(wanted) & (np.abs(result) == largest) & (np.sign(result) == np.sign(wanted)), 1, distance
        )
        distance = np.where((result == wanted) | (np.isnan(result) & np.isnan(wanted)), 0, distance)
    return np.where(np.isnan(distance), np.inf, distance)


class Finding(NamedTuple):
    name: str
    dtype: str
    form: str
    worst: float
    limit: float
    at: tuple[float, ...]
    result: float
    wanted: float


def _double(x: Any) -> np.ndarray:
    return np.asarray(x.double().numpy())


class _Judge(NamedTuple):
    """How errors of one function in one dtype are counted: those within the absolute bound are none."""

    function: Function
    dtype: str
    operands: list[_Array]
    limit: float
    absolute: _Array | None

    @classmethod
    def of(cls, function: Function, dtype: str, operands: list[_Array]) -> _Judge:
        bound = EXCEPTIONS.get((function.name, dtype)) or EXCEPTIONS.get((function.name, "*"))
        if bound is None:
            return cls(function, dtype, operands, function.limit, None)
        absolute = None
        if bound.absolute is not None:
            with np.errstate(all="ignore"):
                eps = np.finfo(np.float64 if dtype == "float64" else np.float32).eps
                absolute = bound.absolute(*operands) * eps
        return cls(function, dtype, operands, max(bound.ulp, function.limit), absolute)

    def errors(self, found: _Array, wanted: _Array) -> _Array:
        distance = errors(found, wanted, self.dtype)
        if self.absolute is None:
            return distance
        with np.errstate(all="ignore"):
            near = np.abs(found - wanted) <= self.absolute
        return np.where(near & (distance > self.limit), self.limit, distance)

    def arbitrated(self, found: _Array, wanted: _Array) -> tuple[_Array, _Array]:
        """What is wanted, and the errors, with mpmath in the place of PyTorch where that is further off than allowed."""
        distance = self.errors(found, wanted)
        places = np.flatnonzero(distance > self.limit)
        exact = EXACT.get(self.function.name)
        if exact is None or not len(places):
            return wanted, distance
        places = np.random.default_rng(0).permutation(places)
        places = places[np.argsort(-distance[places], kind="stable")]
        worst = places[: ARBITRATED // 2]
        judged = np.concatenate([worst, np.random.default_rng(1).permutation(places[len(worst) :])[: len(worst)]])
        wanted = wanted.copy()
        for place in judged:
            x = [float(v[place]) for v in self.operands]
            if all(map(math.isfinite, x)):
                # Enough digits for the reduction of the largest angle, and for the largest quotient.
                with mpmath.workprec(1200 * len(x) if abs(x[0]) > 1e6 else 200), contextlib.suppress(Exception):
                    wanted[place] = float(exact(*map(mpmath.mpf, x)))
        distance = self.errors(found, wanted)
        distance[np.setdiff1d(places, judged)] = 0
        return wanted, distance


def _judge(function: Function, dtype: str, form: str, result: Any, wanted: _Array, values: list[Any]) -> Finding:
    operands = [_double(x).reshape(-1) for x in values]
    found, judge = _double(result), _Judge.of(function, dtype, operands)
    wanted, distance = judge.arbitrated(found, wanted)
    worst = int(np.argmax(distance))
    at = tuple(float(x[worst]) for x in operands)
    return Finding(
        function.name, dtype, form, float(distance[worst]), judge.limit, at, float(found[worst]), float(wanted[worst])
    )


def sweep(dtype: str, operands: int, count: int, compiled: bool = True) -> Iterator[Finding]:
    """The largest error of every function of so many operands."""
    values = [inputs(dtype, count, seed) for seed in range(operands)]
    reference = [torch.from_numpy(_double(x).copy()) for x in values]
    chosen = []
    for function in functions(operands):
        try:
            result = function.ours(*values)
            wanted = function.theirs(*reference)
        except (RuntimeError, NotImplementedError, TypeError):  # of integers only
            continue
        if result.dtype == getattr(fl, dtype) and wanted.dtype == torch.float64:
            chosen.append((function, wanted.numpy()))
            yield _judge(function, dtype, "eager", result, chosen[-1][1], values)
    if compiled:
        # One program for all of them costs one compilation.
        program = fl.compile(lambda *args: [function.ours(*args) for function, _ in chosen], fullgraph=True)
        for (function, wanted), result in zip(chosen, program(*values)):
            yield _judge(function, dtype, "compiled", result, wanted, values)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", nargs="?", type=int, default=10**6)
    parser.add_argument("--record")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    lines, wrong = [], 0
    for dtype in DTYPES:
        for operands in (1, 2):
            for found in sweep(dtype, operands, options.count // operands**2):
                late = found.worst > found.limit
                wrong += late
                mark = "ABOVE" if late else "ok"
                lines.append(
                    f"{mark:5} {found.worst:10.3g} of {found.limit:3g} ulp  {found.dtype:8} {found.form:8} {found.name}"
                    f"  at {found.at}: {found.result!r}, wanted {found.wanted!r}"
                )
                print(lines[-1], flush=True)
    lines.append(f"{len(lines)} sweeps of {options.count} values, {wrong} above their limit")
    for (name, dtype), bound in EXCEPTIONS.items():
        near = " or an absolute bound" if bound.absolute else ""
        lines.append(f"exception: {name} in {dtype}: {bound.ulp:g} ulp{near}, {bound.why}")
    print("\n".join(lines[-1 - len(EXCEPTIONS) :]))
    if options.record:
        with open(options.record, "w") as file:
            file.write("\n".join(lines) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""How many floating-point operations a program does in products, convolutions and attention.

    with FlopCounterMode(display=False) as counter:
        model(x).sum().backward()
    counter.get_total_flops()

A multiplication and its addition count as two. Backward is counted as it runs. Counts are kept for the whole, and for
each module while its forward runs and while gradients pass through it. Operators that PyTorch takes apart are counted
under the name of the part that does the work.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import flambeau
from flambeau import Tensor
from flambeau.ops import tags
from flambeau.utils._python_dispatch import TorchDispatchMode
from flambeau.utils.module_tracker import ModuleTracker

__all__ = ["FlopCounterMode", "register_flop_formula"]


def _product(args: Any, kwargs: Any, out: Any) -> int:
    """Any product: elements of the result times the length of the sums."""
    first = args[0] if len(args) < 3 or not isinstance(args[2], Tensor) else args[1]  # addmm has the sum before
    return 2 * out.numel() * first.shape[-1]


def _linear(args: Any, kwargs: Any, out: Any) -> int:
    return 2 * out.numel() * args[0].shape[-1]


def _at_each_place(places: Any, weight: Any) -> int:
    """All weights once at each place of a feature map."""
    return 2 * places.shape[0] * math.prod(places.shape[2:]) * weight.numel()


def _convolution(args: Any, kwargs: Any, out: Any) -> int:
    transposed = len(args) > 6 and bool(args[6])
    return _at_each_place(args[0] if transposed else out, args[1])


def _transposed_convolution(args: Any, kwargs: Any, out: Any) -> int:
    return _at_each_place(args[0], args[1])


def _convolution_backward(args: Any, kwargs: Any, out: Any) -> int:
    grad, source, weight = args[:3]
    return _at_each_place(source if args[6] else grad, weight) * (bool(args[-1][0]) + bool(args[-1][1]))


def _attention(args: Any, kwargs: Any, out: Any) -> int:
    query, key, value = args[:3]
    queries = math.prod(query.shape[:-1])
    return 2 * queries * key.shape[-2] * (query.shape[-1] + value.shape[-1])


def _formula(name: str) -> Callable[[Any, Any, Any], int]:
    """The count of an operator that is tagged as a product, convolution or attention."""
    if name in tags.operators("attention"):
        return _attention
    if name in tags.operators("convolution"):
        return _transposed_convolution if "transpose" in name else _convolution
    return _product


_COUNTED = sorted(
    {name.partition(".")[0] for name in tags.operators("matmul", "convolution", "attention") if "backward" not in name}
)
_FORMULAS: dict[str, Callable[[Any, Any, Any], int]] = {
    **{name: _formula(name) for name in _COUNTED},
    **dict.fromkeys(("mv", "dot"), _product),
    "linear": _linear,
    "_convolution_backward": _convolution_backward,
}


# What the work of an operator is called in PyTorch, where another operator does it.
_WORKERS = {
    "_convolution_backward": "convolution_backward",
    "_flash_attention": "_scaled_dot_product_flash_attention_for_cpu",
}


def _worker(name: str, args: Any) -> str:
    if name == "linear":
        return "addmm" if len(args) > 2 and args[2] is not None else "mm"
    if name == "matmul":
        ranks = sorted(x.dim() for x in args[:2])
        return {(1, 1): "dot", (1, 2): "mv"}.get(tuple(ranks), "mm" if ranks[0] <= 2 else "bmm")
    if name in tags.operators("convolution") and name not in _WORKERS:
        return "convolution"
    return _WORKERS.get(name, name)


class _Registry:
    """The formulas by operator, as `flop_registry[torch.ops.aten.mm]`."""

    def __getitem__(self, operator: Any) -> Callable[..., int]:
        return _FORMULAS[getattr(operator, "__name__", str(operator))]

    def __contains__(self, operator: Any) -> bool:
        return getattr(operator, "__name__", str(operator)) in _FORMULAS

    def __iter__(self) -> Any:
        return (getattr(flambeau.ops.aten, name) for name in _FORMULAS)

    def __len__(self) -> int:
        return len(_FORMULAS)

    def keys(self) -> list[Any]:
        return list(self)


flop_registry = _Registry()


def register_flop_formula(targets: Any, get_raw: bool = False) -> Callable[[Any], Any]:
    """Decorator: the count of an operator, from the shapes of its arguments and `out_shape`."""

    def register(formula: Any) -> Any:
        for target in targets if isinstance(targets, (list, tuple)) else [targets]:
            _FORMULAS[getattr(target, "__name__", str(target))] = _from_shapes(formula, get_raw)
        return formula

    return register


def _from_shapes(formula: Any, raw: bool) -> Callable[[Any, Any, Any], int]:
    def shape(value: Any) -> Any:
        return value.shape if isinstance(value, Tensor) else value

    def count(args: Any, kwargs: Any, out: Any) -> int:
        if raw:
            return formula(*args, **kwargs, out_val=out)
        outputs = tuple(map(shape, out)) if isinstance(out, (tuple, list)) else shape(out)
        return formula(*map(shape, args), **{k: shape(v) for k, v in kwargs.items()}, out_shape=outputs)

    return count


class FlopCounterMode(TorchDispatchMode):
    """Counts inside a `with` block."""

    _sees_parts = False

    def __init__(
        self, mods: Any = None, depth: int = 2, display: bool = True, custom_mapping: dict[Any, Any] | None = None
    ) -> None:
        super().__init__()
        self.display = display
        self.depth = depth
        self.mod_tracker = ModuleTracker()
        self.flop_counts: dict[str, dict[Any, int]] = {"Global": {}}
        self.formulas = dict(_FORMULAS)
        for target, formula in (custom_mapping or {}).items():
            raw = getattr(formula, "_get_raw", False)
            self.formulas[getattr(target, "__name__", str(target))] = _from_shapes(formula, raw)

    def get_total_flops(self) -> int:
        return sum(self.flop_counts["Global"].values())

    def get_flop_counts(self) -> dict[str, dict[Any, int]]:
        return {name: dict(counts) for name, counts in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        total = max(1, self.get_total_flops())
        depth = self.depth if depth is None else depth
        lines = [f"{'module and operator':48} {'FLOP':>16} {'%':>7}"]
        for module in sorted(self.flop_counts, key=lambda name: (name != "Global", name)):
            level = 0 if module == "Global" else module.count(".") + 1
            counts = self.flop_counts[module]
            if level > depth or not counts:
                continue
            rows = [(" " * level + module, sum(counts.values()))]
            ordered = sorted(counts.items(), key=lambda item: -item[1])
            rows += [(" " * level + f" - {operator}", n) for operator, n in ordered]
            lines += [f"{name:48} {count:16,} {100 * count / total:6.2f}%" for name, count in rows]
        return "\n".join(lines)

    def __enter__(self) -> FlopCounterMode:
        self.flop_counts = {"Global": {}}
        self.mod_tracker.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self.mod_tracker.__exit__(*error)
        if self.display:
            print(self.get_table())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        formula = self.formulas.get(func._opname)
        if formula is not None:
            name = getattr(flambeau.ops.aten, _worker(func._opname, args))
            count = int(formula(args, kwargs, out))
            for module in sorted(self.mod_tracker.parents):
                counts = self.flop_counts.setdefault(module, {})
                counts[name] = counts.get(name, 0) + count
        return out

"""Rules of operators that are no part of their records, because they are imported only where they are needed.

A family keeps the rules of each kind in a module of its folder, beside its records:

  definitions  the operator in terms of others: for devices without a kernel, and where its parts are recorded
  shapes       the sizes of the results for symbolic sizes
  batching     the operator on tensors with a hidden batch dimension (`func.vmap`)
  samples      calls with which the operator is tested
  unbacked     results whose sizes the data decides, in graphs that hold such sizes as symbols
  onnx         the operator in ONNX
  sharding     the operator on tensors that are divided among processes (`distributed.tensor`)
  inverses     what a write to a view means for the whole, in graphs without writes

Rules are registered with a decorator, by full name, and found by it. The module of a family is imported when a rule of
its kind is first asked for; `Record.definition`, `Record.shape` and so on are the same rules.

    @shape("mm")
    def mm(self: Geometry, mat2: Geometry) -> Ints: ...

**Definitions.** The primitives are the pointwise and reduction records, views, and copy_, fill_, mm, gather, scatter.src,
scatter_add, index_put_, nonzero, sort, cumsum and cumprod; every definition ends there. Random numbers and sequences are
made on the CPU and copied.

**Shape rules** take arguments of the operator by name. Tensors come as `Geometry`; a rule returns the sizes of the result,
a `Geometry` for a view, or a list with one of either for each of several results. Only symbolic calls use rules: with
plain sizes the kernels for the meta device answer, and tests compare the two. An operator without a rule still works: the
symbols of its arguments become plain numbers by a guard.

**ATen's parts.** Programs that count work, choose what to save or define a tensor of their own compare operators with
`aten.mm`, `aten.addmm`, `aten.t`, `aten.convolution`; here `matmul`, `linear` and convolutions are one operator each. The
function in `aten_parts` computes the result by ATen's operators, each of which reaches the handler, or returns the operator
and the arguments that ATen has for the call, or NotImplemented where the operator is the same there. Modes of the package
itself (`_sees_parts = False`) see operators as they are.

**ONNX rules** take a builder and arguments of the operator by name, add nodes to a graph and return its values:
`flambeau/onnx/_builder.py` says what they are written with. An operator without one is taken apart.

**Unbacked rules** take a builder and arguments of the operator by name: `make.size(lower, upper)` is a new size, and
`make.tensor(sizes, dtype)` a result with it.

**Batching rules** are described in `ops/batching.py`, **sharding rules** in `ops/sharding.py`, **samples** in `ops/samples.py`.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

Rule = Callable[..., Any]
R = TypeVar("R", bound=Rule)


class Rules:
    """The rules of one kind, by the full name of the operator."""

    def __init__(self, module: str) -> None:
        self.module = module  # of a family that holds rules of this kind
        self.absent: dict[str, str] = {}  # operators that have no rule, and why
        self._table: dict[str, Rule | None] = {}  # None: looked for, and there is none

    def __call__(self, *names: str) -> Callable[[R], R]:
        """Decorator: the rule of operators, by full name."""
        _check_family(names, sys._getframe(1).f_globals["__package__"])

        def register(rule: R) -> R:
            for name in names:
                if self._table.get(name) is not None:
                    raise ValueError(f"[rules] expected one rule in {self.module} for {name}, got a second")
                self._table[name] = rule
            return rule

        return register

    def without(self, why: str, *names: str) -> None:
        """These operators have no rule, for a reason."""
        _check_family(names, sys._getframe(1).f_globals["__package__"])
        self.absent.update(dict.fromkeys(names, why))

    def find(self, name: str) -> Rule | None:
        """The rule of an operator, or None."""
        try:
            return self._table[name]
        except KeyError:
            family = family_of(name)
            if family is not None:
                _load(family, self.module)
            return self._table.setdefault(name, None)

    def all(self) -> dict[str, Rule]:
        """Every rule of the kind."""
        for family in families():
            _load(family, self.module)
        return {name: rule for name, rule in self._table.items() if rule is not None}


# Operators without a record, of a namespace of their own, whose rules are in a family.
_NAMESPACES = {"quantized_decomposed": "flambeau.ops.quantized"}


def family_of(name: str) -> str | None:
    """The package of the family of an operator."""
    from flambeau import _C

    space, colons, _ = name.partition("::")
    if colons and space in _NAMESPACES:
        return _NAMESPACES[space]

    place = _C._record_place(name)
    return None if place is None else place[0].rpartition(".")[0]


def _check_family(names: Sequence[str], package: str) -> None:
    """Rules are found in the operator's own family only."""
    for name in names:
        if family_of(name) != package:
            raise ValueError(f"[rules] expected a rule of an operator of {package}, got {name} of {family_of(name)}")


def families() -> list[str]:
    """The packages of the families of operators."""
    root = importlib.import_module("flambeau.ops")
    packages = (module for module in pkgutil.iter_modules(root.__path__, "flambeau.ops.") if module.ispkg)
    return [module.name for module in packages if module.name.rpartition(".")[2] not in ("as_aten", "symbolic")]


@functools.cache
def _load(family: str, module: str) -> None:
    name = f"{family}.{module}"
    if importlib.util.find_spec(name) is not None:
        importlib.import_module(name)


definition = Rules("definitions")
aten_parts = Rules("definitions")  # how handlers of `__torch_dispatch__` see operators that ATen takes apart
shape = Rules("shapes")
batching = Rules("batching")
samples = Rules("samples")
onnx = Rules("onnx")
sharding = Rules("sharding")
divided = Rules("sharding")  # how an operator on divided tensors is computed by others, or NotImplemented
unbacked = Rules("unbacked")
inverse = Rules("inverses")
_KINDS = (definition, shape, batching, samples, onnx, sharding, unbacked, inverse)
KINDS = frozenset(rules.module for rules in _KINDS)


def functional_name(name: str) -> str | None:
    """The full name of the operator of which this is the in-place form."""
    base, dot, overload = name.partition(".")
    if not base.endswith("_") or base.startswith("__"):
        return None
    return base[:-1] + dot + overload


def named_arguments(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name, defaults filled in."""
    values = {argument.name: argument.default_value for argument in func._schema.arguments}
    values.update(zip(values, args))
    values.update(kwargs)
    return values


def apply_shape(rule: Rule, arguments: dict[str, Any]) -> Any:
    """What a shape rule says for the arguments of a call; those that the operator does not have are None."""
    code = rule.__code__
    return rule(**{name: arguments.get(name) for name in code.co_varnames[: code.co_argcount]})

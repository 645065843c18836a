"""Sizes that may vary: `Dim`, what a user says of the inputs, and whether the program holds for all that was promised.

Capture gives each varying size a symbol and notes what it assumed of the symbols. Here the assumptions are compared with
the promises: one that does not hold for all promised sizes is an error, one that nobody promised anything about is
checked when the program is called.
"""

from __future__ import annotations

import inspect
import itertools
import re
from math import inf
from typing import Any, NamedTuple

import flambeau as fl
from flambeau._compat import absent
from flambeau._dynamo.exc import UserError
from flambeau._dynamo.traced import VaryingInt
from flambeau.export._violations import Violations
from flambeau.ops.symbolic.condition import Condition
from flambeau.ops.symbolic.expr import Atom, Expr, Number, single_symbol, symbol
from flambeau.utils import _pytree as pytree

__all__ = [
    "AdditionalInputs", "Dim", "ShapesCollection", "ValueRanges", "dims", "refine_dynamic_shapes_from_suggested_fixes",
]  # fmt: skip


class _IntWrapper:
    """An integer of its own, to say in a ShapesCollection that it varies."""

    def __init__(self, val: int, dynamism: Any = None) -> None:
        self.val = val
        self.dynamism = dynamism


class _Hint:
    """AUTO, DYNAMIC or STATIC."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, min: int | None = None, max: int | None = None) -> _Hint:
        """The hint with bounds, which calls are held to."""
        hint = _Hint(self.name)
        hint.bounds = (0 if min is None else min, inf if max is None else max)
        return hint

    bounds: tuple[Number, Number] = (0, inf)

    def __repr__(self) -> str:
        return f"DimHint({self.name})"


class Dim:
    """A size that varies, by name: all sizes with the same Dim are equal. `2 * dim + 1` is a size that follows it."""

    AUTO = _Hint("AUTO")  # varies if the program allows it
    DYNAMIC = _Hint("DYNAMIC")  # varies; an error if the program fixes it
    STATIC = _Hint("STATIC")

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None) -> None:
        if not name.isidentifier():
            raise AssertionError(f"[Dim] expected a name that is an identifier, got {name!r}")
        self.min: int = 0 if min is None else min
        self.max: Number = inf if max is None else max
        if self.max <= self.min:
            raise AssertionError(
                f"[Dim] expected min < max, got min={min}, max={max}: Cannot create Dim with inconsistent"
            )
        self.__name__ = name
        self.root, self.factor, self.offset = self, 1, 0

    def _derived(self, factor: int, offset: int) -> Dim:
        dim = Dim.__new__(Dim)
        dim.root, dim.factor, dim.offset = self.root, self.factor * factor, self.offset * factor + offset
        dim.min, dim.max = self.min * factor + offset, self.max * factor + offset
        dim.__name__ = f"{dim.factor}*{self.root.__name__}" if dim.factor != 1 else self.root.__name__
        dim.__name__ += f" + {dim.offset}" if dim.offset > 0 else f" - {-dim.offset}" if dim.offset else ""
        return dim

    def __mul__(self, factor: int) -> Dim:
        if type(factor) is not int or factor <= 0:
            raise NotImplementedError(f"[Dim] expected a positive integer factor, got {factor!r}")
        return self._derived(factor, 0)

    __rmul__ = __mul__

    def __add__(self, offset: int) -> Dim:
        if type(offset) is not int:
            raise NotImplementedError(f"[Dim] expected an integer to add, got {offset!r}")
        return self._derived(1, offset)

    __radd__ = __add__

    def __sub__(self, offset: int) -> Dim:
        return self + -offset

    def __repr__(self) -> str:
        bounds = [f", min={self.min}" if self.min > 2 else "", f", max={self.max}" if self.max != inf else ""]
        return f"Dim('{self.__name__}'{''.join(bounds)})"


def dims(*names: str, min: int | None = None, max: int | None = None) -> tuple[Dim, ...]:
    """Several Dims with the same bounds."""
    return tuple(Dim(name, min=min, max=max) for name in names)


class _NoBound(float):
    """An infinity among integers, which prints as one."""

    def __repr__(self) -> str:
        return "int_oo" if self > 0 else "-int_oo"

    __str__ = __repr__


class ValueRanges(NamedTuple):
    """Least and greatest value of a size."""

    lower: Number
    upper: Number

    @classmethod
    def of(cls, lower: Number, upper: Number) -> ValueRanges:
        """Ranges whose infinities print as those of integers."""
        return cls(*(_NoBound(bound) if bound in (inf, -inf) else bound for bound in (lower, upper)))

    def __repr__(self) -> str:
        return f"VR[{self.lower}, {self.upper}]"


# ---------------------------------------------------------------------------------------------- what the user says


class ShapesCollection:
    """What is said of sizes, by tensor: `shapes[x] = {0: Dim("batch")}`, then `dynamic_shapes=shapes`."""

    def __init__(self) -> None:
        self._shapes: dict[int, Any] = {}
        self._held: list[Any] = []

    def __setitem__(self, tensor: Any, shape: Any) -> None:
        if not isinstance(tensor, (fl.Tensor, _IntWrapper)):
            raise AssertionError(f"[ShapesCollection] expected a tensor, got {type(tensor).__name__}")
        if id(tensor) in self._shapes and self._shapes[id(tensor)] != shape:
            raise AssertionError("[ShapesCollection] expected one shape for a tensor, got another")
        self._shapes[id(tensor)] = shape
        self._held.append(tensor)

    def __getitem__(self, tensor: Any) -> Any:
        return self._shapes.setdefault(id(tensor), {})

    def __len__(self) -> int:
        return len(self._shapes)

    def dynamic_shapes(self, m: Any, args: Any, kwargs: Any = None) -> dict[str, Any]:
        """The same in the structure of the arguments."""
        forward = m.forward if isinstance(m, fl.nn.Module) else m
        bound = dict(inspect.signature(forward).bind(*args, **(kwargs or {})).arguments)
        shapes: dict[str, Any] = pytree.tree_map(lambda x: self._shapes.get(id(x)), bound)
        return shapes


class AdditionalInputs:
    """More example inputs: sizes that differ between examples vary."""

    def __init__(self) -> None:
        self._examples: list[tuple[Any, Any]] = []

    def add(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
        self._examples.append((args, kwargs or {}))

    def dynamic_shapes(self, m: Any, args: Any, kwargs: Any = None) -> dict[str, Any]:
        """Which sizes vary, in the structure of the arguments."""
        forward = m.forward if isinstance(m, fl.nn.Module) else m
        every = [(args, kwargs or {}), *self._examples]
        bound = [dict(inspect.signature(forward).bind(*a, **k).arguments) for a, k in every]

        def sizes(first: Any, *others: Any) -> Any:
            if not isinstance(first, fl.Tensor):
                if all(o == first for o in others):
                    return None
                if type(first) is not int:
                    raise ValueError(
                        "[export] expected tensors and integers to differ between inputs, got other values: they cannot be marked as"
                        f" dynamic: {(first, *others)}"
                    )
                return Dim.DYNAMIC
            return tuple(
                Dim.DYNAMIC if any(o.shape[d] != n for o in others) else None for d, n in enumerate(first.shape)
            )

        shapes: dict[str, Any] = _listed(pytree.tree_map(lambda *values: _Said(sizes(*values)), *bound))
        return shapes

    def verify(self, ep: Any) -> None:
        """Runs the program on all examples."""
        for args, kwargs in self._examples:
            ep.module()(*args, **kwargs)


class _Said:
    """What is said of one argument, which may be None: containers of the user's may leave out fields that are None."""

    def __init__(self, shapes: Any) -> None:
        self.shapes = shapes


def _listed(value: Any) -> Any:
    """What is said of arguments, with lists for containers of the user's."""
    if isinstance(value, _Said):
        return value.shapes
    if type(value) in (tuple, list):
        return type(value)(_listed(part) for part in value)
    if isinstance(value, dict):
        return {key: _listed(part) for key, part in value.items()}
    registered = pytree.SUPPORTED_NODES.get(pytree._get_node_type(value))
    return value if registered is None else [_listed(part) for part in registered.flatten_fn(value)[0]]


def sizes_by_leaf(arguments: dict[str, Any], dynamic_shapes: Any) -> dict[int, dict[int, Any]]:
    """For each tensor among the arguments (by id), what dynamic_shapes says of its dimensions."""
    if dynamic_shapes is None:
        return {}
    if isinstance(dynamic_shapes, (tuple, list)):
        if len(dynamic_shapes) != len(arguments):
            raise UserError(
                f"[export] expected dynamic_shapes for {len(arguments)} arguments, got {len(dynamic_shapes)}"
            )
        dynamic_shapes = dict(zip(arguments, dynamic_shapes))
    sizes: dict[int, dict[int, Any]] = {}
    _collect(arguments, dynamic_shapes, "dynamic_shapes", sizes)
    return sizes


def _collect(value: Any, spec: Any, path: str, sizes: dict[int, dict[int, Any]]) -> None:
    if spec is None:
        return
    if isinstance(value, fl.Tensor):
        sizes[id(value)] = _of_tensor(value, spec, path)
    elif isinstance(value, VaryingInt):
        if not isinstance(spec, _Hint) and spec != value:
            raise UserError(f"[export] expected Dim.DYNAMIC, Dim.AUTO or {value} for the number {path}, got {spec!r}")
        if isinstance(spec, _Hint) and spec.name != "STATIC":
            sizes[id(value)] = {-1: spec}
    else:
        for key, item, one in _children(value, spec, path):
            _collect(item, one, f"{path}[{key!r}]", sizes)


def _children(value: Any, spec: Any, path: str) -> list[tuple[Any, Any, Any]]:
    """What is said of each part of a container."""
    if isinstance(value, dict) and isinstance(spec, dict):
        if set(value) != set(spec):
            raise UserError(f"[export] expected keys {list(value)} in {path}, got {list(spec)}")
        return [(key, item, spec[key]) for key, item in value.items()]
    node = pytree.SUPPORTED_NODES.get(pytree._get_node_type(value))
    if node is not None:
        items = list(node.flatten_fn(value)[0])
        parts = list(node.flatten_fn(spec)[0]) if type(spec) is type(value) else spec
        if isinstance(parts, dict):
            parts = list(parts.values())
        if isinstance(parts, (tuple, list)):
            if len(items) != len(parts):
                raise UserError(f"[export] expected {len(items)} entries in {path}, got {len(parts)}")
            return list(zip(range(len(items)), items, parts))
    kind = type(value).__name__
    raise UserError(f"[export] expected None for {path}, the argument being of type {kind}, got {spec!r}")


def _of_tensor(value: Any, spec: Any, path: str) -> dict[int, Any]:
    if isinstance(spec, dict):
        pairs = list(spec.items())
    elif isinstance(spec, (tuple, list)) and len(spec) == value.ndim:
        pairs = list(enumerate(spec))
    else:
        raise UserError(f"[export] expected a dict of dimensions or {value.ndim} entries for {path}, got {spec!r}")
    table: dict[int, Any] = {}
    for dim, wanted in pairs:
        if type(dim) is not int or not -value.ndim <= dim < value.ndim:
            raise UserError(f"[export] expected dimensions of a tensor of {value.ndim} for {path}, got {dim!r}")
        size = value.shape[dim]
        if type(wanted) is int:
            if wanted != size:
                raise UserError(f"[export] expected size {wanted} at dimension {dim} of {path}, got {size}")
        elif isinstance(wanted, (Dim, _Hint)):
            if getattr(wanted, "name", "") != "STATIC":
                table[dim % value.ndim] = wanted
        elif wanted is not None:
            raise UserError(f"[export] expected a Dim, an int or None for {path}[{dim}], got {wanted!r}")
    return table


# ---------------------------------------------------------------------------------------------- what holds


class Size(NamedTuple):
    """A size that has a symbol: of which input, and what was said of it."""

    atom: Atom
    input: str
    dim: int
    hint: int
    wanted: Any

    @property
    def place(self) -> str:
        return self.input if self.dim < 0 else f"{self.input}.size()[{self.dim}]"


class Promises(NamedTuple):
    table: dict[Atom, Expr]  # symbols by those that stand for them
    ranges: dict[Atom, tuple[Number, Number]]
    checks: list[Condition]  # for calls to be held to
    names: dict[Atom, str]  # of Dims


def resolve(sizes: list[Size], guards: list[Any]) -> Promises:
    """Compares what the capture assumed with what was promised."""
    table, ranges, names = _promised(sizes)
    free = {size.atom: size for size in sizes if not isinstance(size.wanted, Dim)}
    checks = []
    roots = {size.atom: size.place for size in reversed(sizes)}
    violations = Violations({**{s.atom: s.place for s in free.values()}, **names}, roots, ranges)
    for guard in guards:
        condition = guard.condition.substituted(table)
        if condition.decided(ranges) is True:
            continue
        fixed = _fixed(condition)
        if any(atom in free for atom in condition.symbols):
            if fixed is not None and free[fixed[0]].wanted.name == "DYNAMIC":
                violations.specialized(free[fixed[0]].place, fixed[1], _where(guard))
                raise violations.error()
            checks.append(condition)
        elif _proved(condition, ranges):
            checks.append(condition)  # holds but for sizes of 0 and 1
        else:
            violations.add(condition, _where(guard))
    if violations.lines:
        raise violations.error()
    for condition in checks:
        fixed = _fixed(condition)
        if fixed is not None:  # it does not vary after all
            ranges.pop(fixed[0], None)
    return Promises(table, ranges, list(dict.fromkeys(checks)), names)


def _promised(
    sizes: list[Size],
) -> tuple[dict[Atom, Expr], dict[Atom, tuple[Number, Number]], dict[Atom, str]]:
    """What was said of sizes: symbols by those of their Dims, the ranges of these, and their names. The examples have to
    agree with it."""
    table: dict[Atom, Expr] = {}
    ranges: dict[Atom, tuple[Number, Number]] = {}
    roots: dict[str, Atom] = {}
    defined: dict[str, Dim] = {}
    values: dict[str, tuple[int, Size]] = {}
    for size in sorted(sizes, key=lambda s: getattr(s.wanted, "root", None) is not s.wanted):
        wanted = size.wanted
        if not isinstance(wanted, Dim):
            ranges[size.atom] = wanted.bounds
            if size.dim < 0 and wanted.bounds == _Hint.bounds:
                ranges[size.atom] = (-inf, inf)  # a number, of which nothing is said
            continue
        name = wanted.root.__name__
        first = defined.setdefault(name, wanted.root)
        if (first.min, first.max) != (wanted.root.min, wanted.root.max):
            raise UserError(
                f"[export] expected one definition of {name}, got two: Found different definitions {first!r} and {wanted.root!r} for the "
                "same symbolic dimension"
            )
        value, rest = divmod(size.hint - wanted.offset, wanted.factor)
        known, other = values.setdefault(name, (value, size))
        if rest or known != value:
            text = f"{size.place} is {size.hint}, which is not {wanted.__name__} where {other.place} is {other.hint}"
            raise _violated(name, [text])
        if not wanted.min <= size.hint <= wanted.max:
            raise _violated(name, [f"{size.place} is {size.hint}, which is outside of {wanted!r}"])
        if name not in roots:
            own = size.atom if wanted.root is wanted else single_symbol(symbol(name, 0))
            assert own is not None
            roots[name] = own
            ranges[own] = (wanted.root.min, wanted.root.max)
        root = roots[name]
        if size.atom is not root:
            table[size.atom] = symbol(root.name, root.lower) * wanted.factor + wanted.offset
    return table, ranges, {atom: name for name, atom in roots.items()}


def _fixed(condition: Condition) -> tuple[Atom, int] | None:
    """The symbol that a condition makes a constant."""
    if condition.kind != "eq" or len(condition.expr.symbols) != 1:
        return None
    rest = condition.expr - condition.expr.constant
    atom = single_symbol(rest)
    return None if atom is None else (atom, -condition.expr.constant)


def _proved(condition: Condition, ranges: dict[Atom, tuple[Number, Number]], limit: int = 20_000) -> bool:
    """Whether a condition holds for all sizes in their ranges, from 2 on: 0 and 1 are left to the calls."""
    known = {atom: (max(low, 2), high) for atom, (low, high) in ranges.items()}
    if condition.decided(known) is True:
        return True
    atoms = sorted(condition.symbols)
    spans = [known.get(atom, (2, inf)) for atom in atoms]
    count = 1.0
    for low, high in spans:
        count *= high - low + 1
    if count > limit:
        return False
    every = itertools.product(*(range(int(low), int(high) + 1) for low, high in spans))
    return all(condition.holds(dict(zip(atoms, values))) for values in every)


def _where(guard: Any) -> str:
    return f"assumed at {guard.location}" if guard.line else "assumed by an operator"


def _violated(name: str, lines: list[str]) -> UserError:
    return UserError(f"[export] Constraints violated ({name})!" + "".join(f"\n  - {line}" for line in lines))


def refine_dynamic_shapes_from_suggested_fixes(msg: str, dynamic_shapes: Any) -> Any:
    """`dynamic_shapes` with the fixes that the message of a violation suggests."""
    if "Suggested fixes:" not in msg:
        raise UserError("[export] expected a message with suggested fixes, got one without")
    lines = msg.partition("Suggested fixes:")[2].strip().splitlines()
    fixes = dict(line.strip().split(" = ", 1) for line in lines if " = " in line)
    dims: dict[str, Any] = {}

    def note(x: Any) -> None:
        if isinstance(x, Dim):
            dims[x.root.__name__] = x.root

    pytree.tree_map(note, dynamic_shapes)
    fixed = {name: _fix(name, text, dims) for name, text in fixes.items() if name in dims}

    def refined(x: Any) -> Any:
        if not isinstance(x, Dim) or x.root.__name__ not in fixed:
            return x
        root = fixed[x.root.__name__]
        return root if x.root is x else root * x.factor + x.offset

    return pytree.tree_map(refined, dynamic_shapes)


def _fix(name: str, text: str, dims: dict[str, Any]) -> Any:
    """What a suggestion says of a size: a number, bounds, or an expression of another size."""
    bounds = re.fullmatch(r"Dim\('\w+'(?:, min=(\d+))?(?:, max=(\d+))?\)", text)
    if bounds is not None:
        low, high = (None if bound is None else int(bound) for bound in bounds.groups())
        return Dim(name, min=low, max=high)
    parts = re.fullmatch(r"(?:(\d+)\*)?(\w+?)(?: ([+-]) (\d+))?", text)
    if parts is None:
        raise UserError(f"[export] expected a suggestion of a size, got {text!r}")
    factor, other, sign, offset = parts.groups()
    if other.isdigit():
        return int(other)
    root = dims.get(other) or Dim(other)
    return root * int(factor or 1) + int(f"{sign or ''}{offset or 0}")


__getattr__ = absent.names_of(__name__)

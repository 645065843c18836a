"""Gradients of fake tensors.

The engine's nodes hold plain sizes, so fakes keep a history of their own: each call on fakes that need gradients leaves a
`FakeNode` with its arguments, and backward walks the nodes, latest first. Derivatives are those of the records, run on
fakes: they keep symbols, a recorder sees them, and with `create_graph` they leave nodes themselves. An operator without a
derivative that has a definition is differentiated through it. Writes through views are followed as in eager mode: the
base gets a new node, and other views of it find their history again when they are next used.
"""

from __future__ import annotations

import functools
import heapq
import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import flambeau as fl
from flambeau import _C
from flambeau.ops.geometry import same, same_all
from flambeau.ops.record import find
from flambeau.ops.symbolic.numbers import hint_of

_numbers = itertools.count()
Gradients = list[Any]


class FakeNode:
    """A step of the history of fakes: `apply(gradients of the results)` gives one gradient for each of `inputs`."""

    __slots__ = ("_name", "apply", "hooks", "inputs", "number", "outputs")

    def __init__(self, name: str, apply: Callable[[Gradients], Gradients], inputs: Sequence[Any], outputs: int) -> None:
        self._name = name
        self.number = next(_numbers)
        self.apply = apply
        self.inputs = [_edge(t) for t in inputs]
        self.outputs = outputs
        self.hooks: list[tuple[int, Callable[[Any], Any]]] = []

    def name(self) -> str:
        return f"{self._name}Backward"

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """Where gradients go on to, as nodes of the engine say it."""
        return tuple((None, 0) if e is None else (e.node or Accumulate(e.leaf), e.index) for e in self.inputs)


class Accumulate:
    """The end of a history: a leaf."""

    next_functions = ()

    def __init__(self, variable: Any) -> None:
        self.variable = variable

    def name(self) -> str:
        return "AccumulateGrad"


class _Edge:
    """Where a gradient goes: to a result of a node, or to a leaf; and what it must look like."""

    __slots__ = ("node", "index", "leaf", "sizes", "dtype")

    def __init__(self, t: Any) -> None:
        refresh(t)
        history: tuple[FakeNode | None, int] = t.history if t.history is not None else (None, 0)
        self.node, self.index = history
        self.leaf = t
        self.sizes = t.geometry.sizes
        self.dtype = t.fake_dtype


def _edge(t: Any) -> _Edge | None:
    return _Edge(t) if _needs(t) else None


def _needs(t: Any) -> bool:
    return t is not None and getattr(t, "fake_requires_grad", False) and (t.fake_dtype.is_floating_point or t.fake_dtype.is_complex)  # fmt: skip


# ---------------------------------------------------------------------------------------------- derivatives


class Derivative:
    """How the gradients of an operator are found: from the record of its functional form."""

    def __init__(self, record: Any) -> None:
        self.name: str = record.name
        self.vjp: Any = record.vjp
        self.pointwise: bool = record.kind == "pointwise"
        self.record = record
        self.tensors = [a.name for a in record.schema.args if a.type.startswith("Tensor")]
        self.arguments = [a.name for a in record.schema.args]
        self.parameters = () if self.pointwise else tuple(inspect.signature(self.vjp).parameters)
        returns = record.schema.returns.strip("()").split(",")
        self.results = [part.split()[1] if " " in part.strip() else "" for part in returns]

    @functools.cached_property
    def fused(self) -> list[Any]:
        """For each operand of a pointwise operator, the operator that computes its gradient and what it takes."""
        from flambeau.ops.gradients import Gradient, gradients

        record = self.record
        alias = record.alias_of or record.name
        if alias == record.name:
            return gradients(record) or [None] * len(self.tensors)
        original = find(alias) or record
        renamed = dict(zip((a.name for a in original.schema.args), self.arguments))
        return [
            None if g is None else Gradient(g.kind, g.record, tuple(renamed.get(s, s) for s in g.sources))
            for g in gradients(original) or [None] * len(self.tensors)
        ]

    def reads(self, bound: dict[str, Any]) -> set[str]:
        """What backward looks at, by name."""
        if not self.pointwise:
            return set(self.parameters)
        wanted = (g for name, g in zip(self.tensors, self.fused) if g is not None and _needs(bound[name]))
        return {source for g in wanted for source in g.sources}

    def saved(self, bound: dict[str, Any], results: list[Any]) -> list[Any]:
        """The tensors whose values backward looks at."""
        values: list[Any] = []
        for name in sorted(self.reads(bound)):
            if name in bound:
                values += _items(bound[name])
            elif results and (name == "out" or name in self.results):
                values.append(results[0 if name == "out" else self.results.index(name)])
        return [t for t in values if isinstance(t, fl.Tensor)]

    def gradients(self, bound: dict[str, Any], results: list[Any], incoming: Gradients, listed: bool) -> Gradients:
        """One gradient for each tensor among the arguments, lists laid out."""
        if self.pointwise:
            operands = [(k, n) for k, n in enumerate(self.tensors) if isinstance(bound[n], fl.Tensor)]
            return [self._operand(k, bound, results[0], incoming[0]) if _needs(bound[n]) else None for k, n in operands]
        if not listed and all(g is None for g in incoming[: sum(map(self._is_gradient, self.parameters))]):
            return [None] * sum(len(_items(bound[n])) for n in self.tensors)
        gradients = self.vjp(*(self._asked(p, bound, results, incoming, listed) for p in self.parameters))
        gradients = gradients if isinstance(gradients, tuple) else (gradients,)
        placed: Gradients = []
        for name, g in itertools.zip_longest(self.tensors, gradients[: len(self.tensors)]):
            count = len(_items(bound[name]))
            one_each = list(g) if isinstance(g, (list, tuple)) else [g] * min(count, 1)
            placed.extend(one_each + [None] * (count - len(one_each)))
        return placed

    def _operand(self, operand: int, bound: dict[str, Any], out: Any, g: Any) -> Any:
        """The gradient of an operand of a pointwise operator: by the operator made for it, or, where it has to be
        differentiated again, op by op."""
        if fl.is_grad_enabled():
            from flambeau.ops.evaluate import gradient

            return gradient(self.name, operand, g, tuple(bound.values()), out)
        position = self.fused[operand]
        if position is None:
            raise NotImplementedError(
                f"[{self.name}] expected a gradient that is known, got one with respect to '{self.tensors[operand]}'"
            )
        if position.kind == "identity":
            return g
        if position.kind == "zero":
            return fl.zeros_like(bound[self.tensors[operand]])
        special = {"g": g, "out": out}
        return _C._operator_object(position.record.name)(
            *(bound[s] if s in bound else special[s] for s in position.sources)
        )

    def _is_gradient(self, parameter: str) -> bool:
        numbered = len(parameter) == 2 and parameter[0] == "g" and parameter[1].isdigit()
        return (parameter == "g" or numbered) and parameter not in self.arguments

    def _asked(
        self, parameter: str, bound: dict[str, Any], results: list[Any], incoming: Gradients, listed: bool
    ) -> Any:
        """What a parameter of the derivative stands for."""
        if self._is_gradient(parameter):
            number = int(parameter[1:] or 0)
            return tuple(incoming) if listed else incoming[number] if number < len(incoming) else None
        if parameter == "needs":
            return tuple(tuple(map(_needs, v)) if isinstance(v := bound[n], (list, tuple)) else _needs(v) for n in self.tensors)  # fmt: skip
        if parameter in bound:
            return bound[parameter]
        for suffix, ask in _ABOUT.items():
            if parameter.endswith(suffix) and parameter[: -len(suffix)] in bound:
                value = bound[parameter[: -len(suffix)]]
                if isinstance(value, (list, tuple)):
                    return [ask(v) for v in value]
                return ask(value) if isinstance(value, fl.Tensor) else None
        if parameter in self.results:
            return results[self.results.index(parameter)]
        return results[int(parameter.removeprefix("out").removeprefix("result") or 0)]


_ABOUT: dict[str, Callable[[Any], Any]] = {
    "_sizes": lambda t: t.shape,
    "_dtype": lambda t: t.dtype,
    "_device": lambda t: t.device,
    "_window": lambda t: t,
}


def _items(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [v for v in value if v is None or isinstance(v, fl.Tensor)]
    return [value] if isinstance(value, fl.Tensor) else []


@functools.cache
def derivative_of(name: str) -> Derivative | None:
    """The derivative of an operator, by the full name of its functional form; None when its record has none."""
    if _C._operator_derivative(name) is None:
        return None
    return Derivative(find(name))


# ---------------------------------------------------------------------------------------------- recording


def record(name: str, bound: dict[str, Any], result: Any, written: Any = None) -> None:
    """Leave the node of a call. `written` is what an in-place form wrote to; then `bound` has its value before."""
    derivative = derivative_of(name)
    results = list(result) if isinstance(result, (tuple, list)) else [result]
    names = derivative.tensors if derivative is not None else bound
    inputs = [t for n in names for t in _items(bound[n])]
    if derivative is None:
        apply = functools.partial(_refuse, name)
    else:
        listed = derivative.record.schema.returns == "Tensor[]"
        saved = [(t, _version(t)) for t in derivative.saved(bound, results)]
        apply = functools.partial(_apply, derivative, bound, results, listed, saved)
    node = FakeNode(name, apply, inputs, len(results))
    if written is not None:
        rebase(written, node)
        return
    for i, fake_result in enumerate(results):
        if _needs(fake_result):
            fake_result.history = (node, i)


def before_write(name: str, bound: dict[str, Any], target: Any) -> dict[str, Any]:
    """Arguments of an in-place form with what they were before the write: a copy of the target where backward reads it,
    and a tensor with its history otherwise."""
    derivative = derivative_of(name)
    refresh(target)
    if _needs(target) and target.history is None and target.fake_view is None:
        raise RuntimeError(
            f"[{name}] expected a tensor that may be written to, got a leaf: a leaf Variable that requires grad is being used "
            "in an in-place operation."
        )
    read = derivative is not None and any(t is target for t in derivative.saved(bound, []))
    if read:
        before = target.clone()
    else:
        before = target.fake_mode.wrap(target.meta(), target.geometry, target.fake_device, target.fake_requires_grad)
        before.history, before.fake_is_leaf = target.history, target.fake_is_leaf

    def swapped(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [swapped(v) for v in value]
        return before if value is target else value

    return {k: swapped(v) for k, v in bound.items()}


def note_views(op: Any, bound: dict[str, Any], result: Any) -> None:
    """Remember of which tensor the results of a view operator are views, and how they are made again."""
    of = next(iter(bound.values()))
    several = isinstance(result, (tuple, list))
    for i, view in enumerate(result if several else [result]):
        if not isinstance(view, fl.Tensor) or view is of:
            continue

        def step(t: Any, i: int = i) -> Any:
            again = op(t, **dict(list(bound.items())[1:]))
            return again[i] if several else again

        view.fake_view = View(of, step)


def _apply(
    derivative: Derivative,
    bound: dict[str, Any],
    results: list[Any],
    listed: bool,
    saved: list[Any],
    gradients: Gradients,
) -> Gradients:
    for t, version in saved:
        if _version(t) != version:
            raise RuntimeError(
                f"[{derivative.name}] expected a saved tensor at version {version}, got version {_version(t)}: one of the "
                "variables needed for gradient computation has been modified by an inplace operation"
            )
    return derivative.gradients(bound, results, gradients, listed)


def _refuse(name: str, gradients: Gradients) -> Gradients:
    raise RuntimeError(
        f"[{name}] expected an op with a derivative, got one without; the derivative for '{name}' is not implemented"
    )


def _version(t: Any) -> int:
    before = _C._set_torch_function_all_disabled(True)
    try:
        return int(t._version)
    finally:
        _C._set_torch_function_all_disabled(before)


def record_function(ctx: Any, inputs: list[Any], outputs: Any, fixed: set[int], recorded: bool) -> list[Any]:
    """Hang the node of a user's Function on its results, but for those in `fixed`, which have no gradient."""
    input_ids = {id(t) for t in inputs}
    dirty = {id(t) for t in ctx.dirty_tensors}
    results = []
    for out in outputs:
        if isinstance(out, fl.Tensor) and id(out) in input_ids and id(out) not in dirty:
            with fl.no_grad():
                out = out.view_as(out)
        results.append(out)
    if recorded:
        node = FakeNode(ctx.name(), lambda g: list(ctx._backward(None, tuple(g))), inputs, len(results))
        for i, out in enumerate(results):
            if isinstance(out, fl.Tensor) and id(out) not in fixed and (out.is_floating_point() or out.is_complex()):
                out.history = (node, i)
                out.fake_requires_grad, out.fake_is_leaf = True, False
    return results


def add_hook(t: Any, hook: Callable[[Any], Any]) -> Callable[[], None]:
    """Call a hook with each gradient of a tensor; how to take it off again."""
    if not _needs(t):
        raise RuntimeError("[register_hook] expected a tensor that requires grad, got one that does not")
    refresh(t)
    leaf = t.history is None
    hooks: list[Any] = t.__dict__.setdefault("leaf_hooks", []) if leaf else t.history[0].hooks
    entry: Any = hook if leaf else (t.history[1], hook)
    hooks.append(entry)
    return lambda: hooks.remove(entry)


# ---------------------------------------------------------------------------------------------- views


class View:
    """That a fake is a view: of which base, by which calls, and how often the base was written to when it was taken."""

    __slots__ = ("base", "replay", "seen")

    def __init__(self, of: Any, step: Callable[[Any], Any]) -> None:
        outer = of.fake_view
        self.base = of if outer is None else outer.base
        self.replay: Callable[[Any], Any] = step if outer is None else lambda base: step(outer.replay(base))
        self.seen = self.base.fake_writes


def refresh(t: Any) -> None:
    """Give a view whose base was written to since the history it has now."""
    view = t.fake_view
    if view is None or view.seen == view.base.fake_writes:
        return
    view.seen = view.base.fake_writes
    with unrecorded(t.fake_mode), fl.enable_grad():
        again = view.replay(view.base)
    t.history, t.fake_requires_grad, t.fake_is_leaf = again.history, again.fake_requires_grad, again.fake_is_leaf


def rebase(written: Any, node: FakeNode) -> None:
    """Make a node the history of a tensor that was written to, or of the base it is a view of."""
    written.fake_requires_grad, written.fake_is_leaf = True, False
    view = written.fake_view
    if view is None:
        written.history = (node, 0)
        written.fake_writes += 1
        return
    base = view.base

    def apply(gradients: Gradients) -> Gradients:
        whole = gradients[0].clone()
        part = view.replay(whole)
        inner = node.apply([part.clone()])
        first = inner[0] if inner and inner[0] is not None else None
        part.zero_() if first is None else part.copy_(conformed(first, _Edge(written)))
        return [whole, *inner[1:]]

    slices = FakeNode("CopySlices", apply, [base], 1)
    slices.inputs = [_edge(base), *node.inputs[1:]]
    base.history = (slices, 0)
    base.fake_requires_grad, base.fake_is_leaf = True, False
    base.fake_writes += 1
    refresh(written)


@contextmanager
def unrecorded(mode: Any) -> Iterator[None]:
    before, mode.recorder = mode.recorder, None
    try:
        yield
    finally:
        mode.recorder = before


# ---------------------------------------------------------------------------------------------- backward


def conformed(g: Any, edge: _Edge) -> Any:
    """A gradient with the shape and dtype of what it belongs to; broadcast dimensions are summed."""
    sizes = tuple(g.shape)
    if not same_all(sizes, edge.sizes):
        lead = len(sizes) - len(edge.sizes)
        wide = [d for d, n in enumerate(edge.sizes, lead) if hint_of(n) == 1 and hint_of(sizes[d]) != 1 and not same(n, sizes[d])]  # fmt: skip
        dims = [*range(lead), *wide]
        if dims:
            g = g.sum(dims, keepdim=True)
        if lead:
            g = g.squeeze(tuple(range(lead)))
    if g.dtype != edge.dtype:
        if g.is_complex() and not edge.dtype.is_complex:
            g = g.real
        g = g.to(edge.dtype)
    return g


def run(
    mode: Any, roots: Sequence[Any], gradients: Sequence[Any], wanted: Any, create_graph: bool, accumulate: bool
) -> list[Any]:
    """The gradients of fakes with respect to `wanted`. With `accumulate` they are added to .grad of leaves: of those
    wanted, or of all."""
    for root in roots:
        if not _needs(root):
            raise RuntimeError(
                "[backward] expected tensors that require grad and have a grad_fn, got one that does not require grad and "
                "does not have a grad_fn"
            )
    targets = None if wanted is None else mode._faked(list(wanted))
    _C._push_torch_function_mode(mode)  # what derivatives make on the way is fake too
    try:
        with fl.set_grad_enabled(create_graph):
            return _Backward(targets, accumulate).run(roots, gradients)
    finally:
        _C._pop_torch_function_mode()


class _Backward:
    """One walk from results back to leaves."""

    def __init__(self, wanted: list[Any] | None, accumulate: bool) -> None:
        self.all_leaves = wanted is None
        self.accumulate = accumulate
        self.wanted = wanted or []
        self.found: list[Any] = [None] * len(self.wanted)
        self.pending: dict[FakeNode, Gradients] = {}
        self.queue: list[tuple[int, FakeNode]] = []
        for t in self.wanted:
            refresh(t)

    def run(self, roots: Sequence[Any], root_gradients: Sequence[Any]) -> list[Any]:
        for root, g in zip(roots, root_gradients):
            if g is not None:
                self.send(_Edge(root), g)
        while self.queue:
            _, node = heapq.heappop(self.queue)
            gradients = self.pending.pop(node)
            for index, hook in node.hooks:
                gradients[index] = _hooked(hook, gradients[index])
            for i, t in enumerate(self.wanted):
                if t.history is not None and t.history[0] is node and gradients[t.history[1]] is not None:
                    self.found[i] = gradients[t.history[1]]
            for edge, g in zip(node.inputs, node.apply(gradients)):
                if edge is not None and g is not None:
                    self.send(edge, conformed(g, edge))
        return self.found

    def send(self, edge: _Edge, g: Any) -> None:
        """Add a gradient to what a node or a leaf has got."""
        if edge.node is None:
            self.reach(edge.leaf, g)
            return
        if edge.node not in self.pending:
            self.pending[edge.node] = [None] * edge.node.outputs
            heapq.heappush(self.queue, (-edge.node.number, edge.node))
        slots = self.pending[edge.node]
        slots[edge.index] = g if slots[edge.index] is None else slots[edge.index] + g

    def reach(self, leaf: Any, g: Any) -> None:
        for hook in leaf.__dict__.get("leaf_hooks", ()):
            g = _hooked(hook, g)
        if self.accumulate and (self.all_leaves or any(t is leaf for t in self.wanted)):
            before = leaf.__dict__.get("fake_grad")
            leaf.__dict__["fake_grad"] = g if before is None else before + g
        for i, t in enumerate(self.wanted):
            if t is leaf:
                self.found[i] = g if self.found[i] is None else self.found[i] + g


def _hooked(hook: Callable[[Any], Any], g: Any) -> Any:
    if g is None:
        return None
    changed = hook(g)
    return g if changed is None else changed

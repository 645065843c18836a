"""Tests of an operator that a program registers: its schema, its shapes, its derivative, and compiling it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import flambeau as fl
from flambeau.utils import _pytree as pytree

TESTS = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


class OpCheckError(Exception):
    """An operator is not what it says."""


def _tensors(tree: Any) -> Iterator[Any]:
    return (leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, fl.Tensor))


def _copied(tree: Any) -> Any:
    def copy(leaf: Any) -> Any:
        return leaf.detach().clone().requires_grad_(leaf.requires_grad) if isinstance(leaf, fl.Tensor) else leaf

    return pytree.tree_map(copy, tree)


def _overload(op: Any) -> Any:
    op = getattr(op, "_opoverload", op)
    return op.default if hasattr(op, "default") else op


def _test_schema(op: Any, args: Any, kwargs: Any, close: Callable[..., None]) -> None:
    args, kwargs = _copied((args, kwargs))
    before = _copied((args, kwargs))
    results = op(*args, **kwargs)
    schema = _overload(op)._schema
    bound = dict(zip((a.name for a in schema.arguments), args)) | kwargs
    was = dict(zip((a.name for a in schema.arguments), before[0])) | before[1]
    for argument in schema.arguments:
        if argument.is_written:
            continue
        for now, then in zip(_tensors(bound.get(argument.name)), _tensors(was.get(argument.name))):
            if not fl.equal(now.detach().nan_to_num(), then.detach().nan_to_num()):
                raise OpCheckError(f"[opcheck] expected {op} not to write to {argument.name!r}, as its schema says")
            for result in _tensors(results):
                if schema.returns and result.untyped_storage().data_ptr() == now.untyped_storage().data_ptr() != 0:
                    raise OpCheckError(f"[opcheck] expected results of {op} not to share memory with {argument.name!r}")


def _test_faketensor(op: Any, args: Any, kwargs: Any, close: Callable[..., None]) -> None:
    from flambeau._subclasses.fake_tensor import FakeTensorMode

    results = op(*_copied(args), **_copied(kwargs))
    mode = FakeTensorMode()
    fakes = pytree.tree_map(lambda t: mode.from_tensor(t) if isinstance(t, fl.Tensor) else t, (args, kwargs))
    for real, fake in zip(_tensors(results), _tensors(op(*fakes[0], **fakes[1]))):
        if tuple(real.shape) != tuple(fake.shape) or real.dtype != fake.dtype:
            raise OpCheckError(
                f"[opcheck] expected the fake of {op} to have shape {tuple(real.shape)} and dtype {real.dtype}, got "
                f"{tuple(fake.shape)} and {fake.dtype}"
            )


def _test_autograd_registration(op: Any, args: Any, kwargs: Any, close: Callable[..., None]) -> None:
    args, kwargs = _copied((args, kwargs))
    if any(t.requires_grad for t in _tensors((args, kwargs))):
        sources = [t for t in _tensors(op(*args, **kwargs)) if t.requires_grad]
        if sources:
            leaves = [t for t in _tensors((args, kwargs)) if t.requires_grad]
            fl.autograd.grad(sources, leaves, [fl.ones_like(t) for t in sources], allow_unused=True)


def _test_aot_dispatch_dynamic(op: Any, args: Any, kwargs: Any, close: Callable[..., None]) -> None:
    def call(*args: Any, **kwargs: Any) -> Any:
        return op(*args, **kwargs)

    compiled = fl.compile(call, backend="aot_eager", dynamic=True)
    results = []
    for function in (call, compiled):
        inputs = _copied((args, kwargs))
        compiled_results = function(*inputs[0], **inputs[1])
        sources = [t for t in _tensors(compiled_results) if t.requires_grad]
        leaves = [t for t in _tensors(inputs) if t.requires_grad]
        grads: Sequence[Any] = ()
        if sources and leaves:
            grads = fl.autograd.grad(sources, leaves, [fl.ones_like(t) for t in sources], allow_unused=True)
        results.append(([t.detach() for t in _tensors(compiled_results)], [g for g in grads if g is not None]))
    for want, got in zip(*results):
        for a, b in zip(got, want):
            close(a, b)


def opcheck(
    op: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    test_utils: str | Sequence[str] = TESTS,
    raise_exception: bool = True,
    atol: float | None = None,
    rtol: float | None = None,
) -> dict[str, Any]:
    """Runs the tests on one set of arguments; what each found, "SUCCESS" or an exception."""
    chosen = (test_utils,) if isinstance(test_utils, str) else tuple(test_utils)
    unknown = [name for name in chosen if name not in TESTS]
    if unknown:
        raise ValueError(f"[opcheck] expected names among {TESTS}, got {unknown}")

    def close(got: Any, want: Any) -> None:
        fl.testing.assert_close(got, want, atol=atol, rtol=rtol)

    outcomes: dict[str, Any] = {}
    for name in chosen:
        try:
            globals()[f"_{name}"](op, args, kwargs or {}, close)
            outcomes[name] = "SUCCESS"
        except Exception as error:
            if raise_exception:
                raise OpCheckError(f"[opcheck] expected {op} to pass {name}: {error}") from error
            outcomes[name] = error
    return outcomes

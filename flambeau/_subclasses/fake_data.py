"""Numbers and sizes that only the data decides, as unbacked symbols: `item`, `nonzero`, masks, views with such bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import flambeau as fl
from flambeau.ops.geometry import Geometry, Ints, broadcast, numel, require
from flambeau.ops.rules import apply_shape, unbacked
from flambeau.ops.symbolic import condition as conditions
from flambeau.ops.symbolic.numbers import SymBool, SymFloat, SymInt, hint_of
from flambeau.ops.symbolic.shape_env import DataDependentOutput, ShapeEnv

if TYPE_CHECKING:
    from flambeau._subclasses.fake_operators import OperatorInfo
    from flambeau._subclasses.fake_tensor import FakeTensorMode
    from flambeau._subclasses.fake_values import FakeTensor

LEAST = -(2**62)


def read_number(t: FakeTensor) -> Any:
    """The one number in a fake tensor, as a symbol; None where such symbols are not wanted. Asked twice it is the same one,
    unless the tensor was written in between."""
    mode = t.fake_mode
    env = mode.shape_env
    if env is None or not mode.allows_scalars:
        return None
    if numel(t.geometry.sizes) != 1:
        count = numel(t.geometry.sizes)
        raise RuntimeError(f"[item] expected a tensor with one element, got {count}: a Tensor with {count} elements cannot be converted to Scalar")  # fmt: skip
    version = t.version()
    if t.number is None or t.number[0] != version:
        number = new_number(env, t.dtype)
        if number is None:
            return None
        t.number = (version, number)
        if mode.recorder is not None:
            mode.recorder.read(t, number)
    return t.number[1]


def new_number(env: ShapeEnv, dtype: Any) -> Any:
    """A symbol for a number of a dtype; None for complex numbers."""
    if dtype.is_complex:
        return None
    if dtype.is_floating_point:
        return _new_float(env)
    if dtype == fl.bool:
        bit = env.create_unbacked(0, 1)
        return SymBool(conditions.eq(bit.expr - 1), env, None)
    return env.create_unbacked(0 if dtype == fl.uint8 else LEAST)


def _new_float(env: ShapeEnv) -> SymFloat:
    text = f"zuf{env.count_float()}"

    def unknown(values: Any) -> float:
        raise DataDependentOutput(f"[symbolic] expected a number that is known, got {text}, which depends on data")

    return SymFloat(text, env, None, unknown)


def listed(t: Any) -> Any:
    """tolist(): all numbers of a fake tensor whose sizes are known."""
    if not t.geometry.sizes:
        return t.item()
    return [listed(row) for row in t.unbind(0)]


# ---------------------------------------------------------------------------------------------- sizes of results


def results_of(mode: FakeTensorMode, name: str, bound: dict[str, Any], device: Any, grad: bool) -> Any:
    """What an operator returns whose results have sizes that depend on data."""
    rule = unbacked.find(name)
    assert rule is not None
    return rule(_Maker(mode, device, grad), **bound)


class _Maker:
    """Makes tensors and sizes for the results of one call."""

    def __init__(self, mode: FakeTensorMode, device: Any, grad: bool) -> None:
        assert mode.shape_env is not None
        self.mode, self.env, self.device, self.grad = mode, mode.shape_env, device, grad

    def size(self, lower: int, upper: Any) -> SymInt:
        return self.env.create_unbacked(lower, upper if type(upper) is int else float("inf"))

    def tensor(self, sizes: Any, dtype: Any) -> FakeTensor:
        differentiable = dtype.is_floating_point or dtype.is_complex
        result = self.mode.fake_like(tuple(sizes), dtype, self.device, self.grad and differentiable)
        result.fake_is_leaf = not result.fake_requires_grad
        return result


def by_python_kernel(mode: FakeTensorMode, op: Any, bound: dict[str, Any], device: Any) -> Any:
    """What the kernel for tensors without data returns, where the user wrote one: it runs on the fakes."""
    from flambeau import _C, library
    from flambeau._subclasses.fake_values import FakeTensor, tensors_of

    env = mode.shape_env
    assert env is not None
    arguments = op._schema.arguments
    positional = [bound[a.name] for a in arguments if not a.kwarg_only]
    named = {a.name: bound[a.name] for a in arguments if a.kwarg_only}

    def new_symbol(lower: int, upper: Any) -> Any:
        return env.create_unbacked(lower, upper if type(upper) is int else float("inf"))

    before, mode.recorder = mode.recorder, None
    mode.definition_devices.append(device)
    _C._push_torch_function_mode(mode)
    try:
        result = library.run_fake(op._full_name, new_symbol, positional, named)
    finally:
        _C._pop_torch_function_mode()
        mode.definition_devices.pop()
        mode.recorder = before
    if result is NotImplemented:
        return result
    grad = fl.is_grad_enabled() and any(t.fake_requires_grad for t in tensors_of(bound))
    inputs = {id(t) for t in tensors_of(bound)}
    for value in result if isinstance(result, (tuple, list)) else (result,):
        if isinstance(value, FakeTensor) and id(value) not in inputs:
            value.fake_device = device
            if grad and (value.dtype.is_floating_point or value.dtype.is_complex):
                value.fake_requires_grad, value.fake_is_leaf = True, False
    return result


# ---------------------------------------------------------------------------------------------- geometry


def holds_unbacked(env: ShapeEnv, value: Any) -> bool:
    """Whether a number or a size among arguments depends on data."""
    if isinstance(value, fl.Tensor):
        geometry = getattr(value, "geometry", None)
        return geometry is not None and any(map(env.is_unbacked, (*geometry.sizes, geometry.offset)))
    if isinstance(value, (list, tuple)):
        return any(holds_unbacked(env, v) for v in value)
    if isinstance(value, dict):
        return holds_unbacked(env, list(value.values()))
    return env.is_unbacked(value)


def prepare_call(mode: FakeTensorMode, info: OperatorInfo, bound: dict[str, Any], rule: Any, device: Any) -> Any:
    """Before a kernel sees the stand-ins of sizes that depend on data: learns which the operator takes to be equal. Views are
    made here, and returned; their kernels would refuse the stand-ins."""
    from flambeau._subclasses.fake_values import disabled, tensors_of, with_geometries

    answers: Any = None
    if rule is None and info.pointwise:
        broadcast(*(t.geometry.sizes for t in tensors_of(bound)))
    elif rule is not None:
        try:
            answers = apply_shape(rule, with_geometries(bound))
        except NotImplementedError:
            return None
    for t in tensors_of(bound):
        t.geometry  # noqa: B018 - follows what was learnt
    geometries = answers if isinstance(answers, list) else [answers]
    if info.writes_first or info.outs or not all(isinstance(g, Geometry) for g in geometries):
        return None
    base, grad = tensors_of(bound)[0], mode._requires_grad(info, bound)
    views = []
    for geometry in geometries:
        check_sizes(geometry.sizes)
        with disabled():
            meta = window(base.detach(), geometry)
        views.append(mode._one(meta, geometry, device, grad))
    return tuple(views) if isinstance(answers, list) else views[0]


def check_sizes(sizes: Ints) -> None:
    """Assumes that sizes which depend on data are not negative."""
    for size in sizes:
        if type(size) is SymInt and size.hint is None:
            require(size >= 0, f"[shape] expected a size that is not negative, got {size}")


def follow_stand_ins(t: FakeTensor, geometry: Geometry) -> None:
    """What depends on data was found equal to something else: the meta tensor gets its sizes."""
    from flambeau._subclasses.fake_values import disabled

    sizes, strides, offset = _at_stand_ins(geometry)
    with disabled():
        if list(t.shape) != sizes:
            fit_storage(t, sizes, strides, offset)
            t.set_(t.untyped_storage(), offset, sizes, strides)


def _at_stand_ins(geometry: Geometry) -> tuple[list[int], list[int], int]:
    return [hint_of(n) for n in geometry.sizes], [hint_of(n) for n in geometry.strides], hint_of(geometry.offset)


def window(base: Any, geometry: Geometry) -> Any:
    """A meta tensor on the storage of another, which grows where the stand-ins of sizes need that."""
    sizes, strides, offset = _at_stand_ins(geometry)
    fit_storage(base, sizes, strides, offset)
    return base.as_strided(sizes, strides, offset)


def fit_storage(base: Any, sizes: list[int], strides: list[int], offset: int) -> None:
    """Lets a storage without data be large enough for a geometry."""
    extent = offset + sum((n - 1) * s for n, s in zip(sizes, strides)) + 1 if 0 not in sizes else offset
    storage = base.untyped_storage()
    needed = extent * base.element_size()
    if storage.nbytes() < needed:
        storage.resize_(needed)

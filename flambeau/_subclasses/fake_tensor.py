"""Fake tensors: shape, dtype, strides and device of tensors without their data, sizes possibly symbolic.

A FakeTensor is a tensor on the meta device at the sizes of the hints, and carries its symbolic sizes, strides and offset
beside. A call with fake tensors is caught before its arguments are parsed (`__torch_function__`). The operator then runs
on the meta tensors, which settles dtype, order of strides and errors; the symbolic sizes come from the operator's shape
rule. An operator that is nothing but its definition runs its definition on the fakes. One without a rule gives up its
symbols: they become the numbers they are at the hints, and a guard says so. With plain sizes the meta kernels alone
answer. Gradients are followed in `fake_autograd`.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import flambeau as fl
from flambeau import _C
from flambeau._ops import OpOverload
from flambeau._subclasses import fake_attributes, fake_autograd, fake_data
from flambeau._subclasses.fake_numbers import env_of, hinted, number_first
from flambeau._subclasses.fake_operators import NO_GRAD, VIEW, OperatorInfo, bind, info_of
from flambeau._subclasses.fake_values import (
    FakeTensor,
    common_device,
    disabled,
    is_symbolic,
    mode_of,
    specialize,
    tensors_of,
    with_geometries,
)
from flambeau._subclasses.fake_values import (
    is_fake as is_fake,
)
from flambeau._tensor.device import canonical
from flambeau.ops import tags
from flambeau.ops.geometry import (
    Geometry,
    Ints,
    broadcast,
    contiguous_strides,
    dense_strides,
    equal_sizes,
    same_all,
)
from flambeau.ops.rules import apply_shape, unbacked
from flambeau.ops.rules import definition as definitions
from flambeau.ops.rules import shape as shapes
from flambeau.ops.symbolic.numbers import SymFloat, SymInt, hint_of
from flambeau.ops.symbolic.shape_env import DataDependentOutput, ShapeEnv
from flambeau.overrides import TorchFunctionMode, _get_current_function_mode

DataDependentOutputException = DataDependentOutput


class UnsupportedFakeTensorException(RuntimeError):
    """Something that fake tensors cannot stand in for."""


class DynamicOutputShapeException(DataDependentOutput):
    """An operator whose result's size only the data decides."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"[{name}] expected sizes that do not depend on data, got an operator whose result's size does; run it outside of "
            "the traced part"
        )
        self.func = name


# Operators that change the shape of the tensor they are called on.
RESHAPES = tags.operators("reshapes")
_FROM_DATA = frozenset("tensor as_tensor asarray from_numpy frombuffer".split())
DATA_DEPENDENT = tags.operators("data_dependent", "reads_values")


@contextmanager
def unset_fake_temporarily() -> Iterator[None]:
    """Calls in the block are answered by kernels, whatever mode is active."""
    modes = []
    while isinstance(_get_current_function_mode(), FakeTensorMode):
        modes.append(_C._pop_torch_function_mode())
    try:
        yield
    finally:
        for mode in reversed(modes):
            _C._push_torch_function_mode(mode)


class FakeTensorConverter:
    """From tensors to their fakes in a mode; the mode remembers them."""

    def from_real_tensor(self, fake_mode: FakeTensorMode, t: Any, **options: Any) -> Any:
        return fake_mode.from_tensor(t, **{k: v for k, v in options.items() if k != "shape_env"})


class FakeTensorMode(TorchFunctionMode):
    """Makes fake tensors, and answers calls on them. As a context, it answers all calls: new tensors are fake too.

    shape_env      where symbols of symbolic sizes live; without one, all sizes are plain.
    keeps_history  whether gradients may be asked for.
    """

    def __init__(
        self,
        *,
        shape_env: ShapeEnv | None = None,
        static_shapes: bool | None = None,
        allow_fallback_kernels: bool = True,
        allow_non_fake_inputs: bool = True,
        keeps_history: bool = True,
        **ignored: Any,
    ) -> None:
        super().__init__()
        self.keeps_history = keeps_history
        self.shape_env = shape_env
        # Whether numbers and sizes that depend on data become unbacked symbols; else asking for them is an error.
        self.allows_scalars = self.allows_unknown_sizes = shape_env is not None
        self.static_shapes = shape_env is None if static_shapes is None else static_shapes
        self.allow_non_fake_inputs = allow_non_fake_inputs
        self.definition_devices: list[Any] = []  # where the results of the definitions being run will live
        # Called with (operator, bound arguments, result) for each operator that a kernel would serve; `decompose(operator)`
        # may give a function to be run in its place. This is how graphs are made from fakes.
        self.recorder: Any = None
        self._known: dict[int, tuple[Any, FakeTensor]] = {}  # by address of the tensor, with a weak reference to it

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        # While it handles a call the mode is off the stack, and fakes answer for themselves.
        return self.call(func, args, kwargs or {})

    # ------------------------------------------------------------------------------------------ making fakes

    def wrap(self, meta: Any, geometry: Geometry, device: Any, requires_grad: bool = False) -> FakeTensor:
        """A fake tensor over a meta tensor."""
        with disabled():
            fake: FakeTensor = fl.Tensor._make_subclass(FakeTensor, meta)
            fake.fake_dtype = meta.dtype
        fake.fake_mode = self
        fake.fake_device = device
        fake.geometry = geometry
        fake.fake_requires_grad = requires_grad
        fake.fake_is_leaf = True
        fake.constant = None
        fake.original = fake.history = fake.fake_view = fake.number = None
        fake.fake_writes = 0
        return fake

    def from_tensor(
        self,
        tensor: Any,
        *,
        static_shapes: bool | None = None,
        source: Any = None,
        symbolic_context: Any = None,
        dynamic_dims: Sequence[int] | None = None,
        shape_env: ShapeEnv | None = None,
        **ignored: Any,
    ) -> Any:
        """The fake of a tensor. With symbolic sizes, every size in `dynamic_dims` (default: all) gets a symbol, named
        after `source` in guards. Strides of a tensor that does not lie densely, and its offset, stay plain numbers: who
        reuses a trace compares them."""
        if isinstance(tensor, FakeTensor):
            return tensor
        known = self._known.get(id(tensor))
        if known is not None and known[0]() is tensor:
            return known[1]
        static = self.static_shapes if static_shapes is None else static_shapes
        with disabled():
            sizes, strides, offset = tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset()
            extent = offset + sum((n - 1) * s for n, s in zip(sizes, strides)) + 1 if 0 not in sizes else offset
            meta = fl.empty(extent, dtype=tensor.dtype, device="meta").as_strided(sizes, strides, offset)
            grad, device, leaf = tensor.requires_grad, tensor.device, tensor.is_leaf
            number = tensor._is_wrapped_number()
        geometry = Geometry(sizes, strides, offset)
        if symbolic_context is not None and dynamic_dims is None:
            dynamic_dims = getattr(symbolic_context, "symbolic_dims", None)
        if not static and self.shape_env is not None:
            dims = range(len(sizes)) if dynamic_dims is None else [d % len(sizes) for d in dynamic_dims]
            geometry = self._symbolic(geometry, set(dims), str(source) if source is not None else "")
        fake = self.wrap(meta, geometry, device, grad)
        fake.fake_is_leaf = leaf
        if number:
            with disabled():
                fake._mark_wrapped_number()
        if self.recorder is not None:
            fake.original = tensor
        self._known[id(tensor)] = (weakref.ref(tensor), fake)
        return fake

    def forget_tensors(self) -> None:
        """Lets go of the tensors that fakes were made of: graphs keep fakes, and with them the mode."""
        self._known.clear()

    def _symbolic(self, geometry: Geometry, dims: set[int], source: str) -> Geometry:
        assert self.shape_env is not None
        sizes = tuple(
            self.shape_env.create_symbol(size, f"{source}.size({d})" if source else "") if d in dims else size
            for d, size in enumerate(geometry.sizes)
        )
        strides = dense_strides(sizes, geometry.strides, geometry.sizes)
        return Geometry(sizes, geometry.strides if strides is None else strides, geometry.offset)

    def fake_like(
        self, sizes: Sequence[Any], dtype: Any, device: Any = "cpu", requires_grad: bool = False
    ) -> FakeTensor:
        """A contiguous fake tensor of given sizes, symbolic or not."""
        hints = [hint_of(s) for s in sizes]
        with disabled():
            meta = fl.empty(hints, dtype=dtype, device="meta")
        return self.wrap(meta, Geometry(tuple(sizes), contiguous_strides(sizes), 0), canonical(device), requires_grad)

    # ------------------------------------------------------------------------------------------ calls

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Answer a call whose arguments hold fake tensors or symbolic numbers."""
        if isinstance(func, OpOverload):
            return self.operator(func, args, kwargs)
        if isinstance(func, _C.Method) and len(args) == 2 and isinstance(args[0], (SymInt, SymFloat)) and not kwargs:
            number = number_first(func.__name__, *args)
            if number is not None:
                return number
        if isinstance(func, (_C.Function, _C.Method)):
            args, kwargs = self._faked(args), self._faked(kwargs) if kwargs else kwargs
            concrete_args, concrete_kwargs = hinted(args), hinted(kwargs) if kwargs else kwargs
            try:
                with disabled():
                    op = _C._resolve_call(func, *concrete_args, **concrete_kwargs)
            except NotImplementedError as error:  # a tensor given where numbers are wanted
                raise DataDependentOutput(f"[{func.__name__}] expected numbers that are known, got a tensor") from error
            return self.operator(op, args, kwargs)
        handler = fake_attributes.find(func)
        if handler is not None:
            if args and isinstance(args[0], fl.Tensor) and not isinstance(args[0], FakeTensor):
                args = (self._faked(args[0]), *args[1:])
            return handler(*args, **kwargs)
        if getattr(func, "__name__", "") in _FROM_DATA:
            return self._from_data(func, args, kwargs)
        wrapped = getattr(func, "__wrapped__", None)
        if wrapped is not None and not isinstance(func, types.FunctionType):
            return wrapped(*args, **kwargs)
        if isinstance(func, types.FunctionType):
            # The body of a function of ours or the user's, which asked whether it is overridden.
            _C._skip_next_torch_function()
            return func(*args, **kwargs)
        getter = fake_attributes.python_getter(func)
        if getter is not None:
            return getter(*args)
        with disabled():
            result = func(*hinted(args), **hinted(kwargs))
        return fl.utils._pytree.tree_map(self._from_meta, result)

    def _from_data(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A tensor made from plain data; one element is remembered."""
        if args and isinstance(args[0], FakeTensor):
            return args[0].to(**{k: v for k, v in kwargs.items() if k in ("dtype", "device")}) if kwargs else args[0]
        specialize([args, kwargs])
        kwargs = self._with_true_devices(kwargs, ("device",))
        with disabled():
            real = func(*hinted(args), **hinted(kwargs))
            small = real.numel() == 1
        fake: FakeTensor = self.from_tensor(real, static_shapes=True)
        fake.constant = real if small else None
        return fake

    def _from_meta(self, value: Any) -> Any:
        if isinstance(value, fl.Tensor) and not isinstance(value, FakeTensor):
            with disabled():
                geometry = Geometry(tuple(value.shape), tuple(value.stride()), value.storage_offset())
                return self.wrap(value, geometry, fl.device("cpu"))
        return value

    def _faked(self, value: Any) -> Any:
        """Arguments with fakes in place of tensors with data."""
        if isinstance(value, fl.Tensor):
            if isinstance(value, FakeTensor):
                return value
            if not self.allow_non_fake_inputs and not value._is_wrapped_number():
                raise UnsupportedFakeTensorException("[fake] expected fake tensors only, got one with data beside them")
            return self.from_tensor(value, static_shapes=True)
        if isinstance(value, (list, tuple)) and not isinstance(value, fl.Size):
            items = [self._faked(x) for x in value]
            return tuple(items) if type(value) is tuple else items
        if isinstance(value, dict):
            return {k: self._faked(v) for k, v in value.items()}
        return value

    def operator(self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of an operator on fakes."""
        wanted_grad = False
        if kwargs:
            wanted_grad = bool(kwargs.get("requires_grad"))
            kwargs = {k: self._faked(v) for k, v in kwargs.items() if k != "requires_grad"}
        info = info_of(op)
        bound = bind(op, self._faked(args), kwargs)
        bound = self._with_true_devices(bound, info.devices)
        unknown = info.base in DATA_DEPENDENT
        if unknown and not (self.shape_env and self.allows_unknown_sizes and unbacked.find(info.base) is not None):
            raise DynamicOutputShapeException(info.base)
        if info.base == "_local_scalar_dense":
            return fake_attributes.item(bound["self"])
        if info.base in ("cpu", "_to_cpu"):
            return self._on_cpu(bound["self"])
        if self.recorder is not None:
            decomposed = self.recorder.decompose(op)
            if decomposed is not None:
                _C._push_torch_function_mode(self)  # what it makes on the way is fake, too
                try:
                    result = decomposed(*args, **kwargs)
                finally:
                    _C._pop_torch_function_mode()
                if result is not NotImplemented:
                    return result
        symbolic = is_symbolic(bound)
        if self.shape_env is None or not (symbolic or unknown):
            return self._answer(op, info, bound, symbolic, wanted_grad)
        before, self.shape_env.oblivious = self.shape_env.oblivious, True
        try:
            return self._answer(op, info, bound, symbolic, wanted_grad)
        finally:
            self.shape_env.oblivious = before

    def _answer(
        self, op: OpOverload, info: OperatorInfo, bound: dict[str, Any], symbolic: bool, wanted_grad: bool
    ) -> Any:
        """By the operator's definition or by its kernel."""
        differentiated = self.keeps_history and self._requires_grad(info, bound)
        definition = info.definition
        taken_apart = (info.composite and self.recorder is not None and self.recorder.takes(info.base)) or (
            differentiated and fake_autograd.derivative_of(info.base) is None
        )
        rule = shapes.find(info.base) if symbolic and not taken_apart else None
        if definition is None and info.composite and (taken_apart or (symbolic and rule is None)):
            definition = definitions.find(info.base)
        try:
            if definition is not None and (taken_apart or (rule is None and (symbolic or info.composite))):
                # An operator that is recorded whole has parts that are not.
                whole = info.composite and not taken_apart and self.recorder is not None
                with fake_autograd.unrecorded(self) if whole else nullcontext():
                    result = self._by_definition(op, info, definition, bound)
                if whole and (info.writes_first or info.outs or not _is_argument(result, bound)):
                    self.recorder(op, bound, result)
            else:
                result = self._recorded(op, info, bound, rule, symbolic, differentiated)
        except NotImplementedError as error:
            if "meta" not in str(error):
                raise
            raise DataDependentOutput(f"[{info.base}] expected no question about data, got one: {error}") from error
        if wanted_grad and isinstance(result, FakeTensor):
            result.fake_requires_grad = True
        return result

    def _with_true_devices(self, arguments: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
        """Arguments of a call in a definition, which is told that its tensors are on the meta device."""
        if self.definition_devices:
            for name in names:
                device = arguments.get(name)
                if device is not None and fl.device(device).type == "meta":
                    arguments = {**arguments, name: self.definition_devices[-1]}
        return arguments

    def _recorded(
        self, op: OpOverload, info: OperatorInfo, bound: dict[str, Any], rule: Any, symbolic: bool, differentiated: bool
    ) -> Any:
        """The result by the kernel, with whoever follows calls told of it."""
        target = next(iter(bound.values())) if info.writes_first else None
        if isinstance(target, (list, tuple)):  # whose operators, on lists, no gradient goes through
            differentiated = False
        recorded = bound
        if differentiated and target is not None:
            recorded = fake_autograd.before_write(info.base, bound, target)
        result = self._by_kernel(op, info, bound, rule, symbolic)
        if target is None and not info.outs and _is_argument(result, bound):
            return result  # nothing was to be done
        if self.recorder is not None:
            self.recorder(op, bound, result)
        if differentiated:
            fake_autograd.record(info.base, recorded, result, target)
        if info.flags & VIEW and self.keeps_history:
            fake_autograd.note_views(op, bound, result)
        return result

    def _on_cpu(self, t: FakeTensor) -> Any:
        if t.fake_device.type == "cpu":
            return t
        moved: Any = t.clone()
        moved.fake_device = fl.device("cpu")
        return moved

    def _by_definition(self, op: OpOverload, info: OperatorInfo, definition: Any, bound: dict[str, Any]) -> Any:
        """Run the operator's definition on the fakes."""
        inputs = {name: value for name, value in bound.items() if name not in info.outs}
        if info.writes_first and self.keeps_history and self._requires_grad(info, bound):
            first = next(iter(bound))
            inputs[first] = bound[first].clone()  # what the parts save for backward must not be overwritten
        arguments = [a for a in op._schema.arguments if a.name not in info.outs]
        positional = [inputs[a.name] for a in arguments if not a.kwarg_only]
        named = {a.name: inputs[a.name] for a in arguments if a.kwarg_only}
        device = common_device(op, bound)
        # What the definition makes on the way is fake too.
        self.definition_devices.append(device)
        _C._push_torch_function_mode(self)
        try:
            result = definition(*positional, **named)
        finally:
            _C._pop_torch_function_mode()
            self.definition_devices.pop()
        result = self._settled(op, result, device, bound)
        if info.writes_first:
            target = next(iter(bound.values()))
            if isinstance(target, (list, tuple)):
                return None  # written one by one
            return target if result is target else target.copy_(result)
        if info.outs:
            results = list(result) if isinstance(result, (tuple, list)) else [result]
            for name, value in zip(info.outs, results):
                self._take_over(bound[name], value)
            return bound[info.outs[0]] if len(results) == 1 else tuple(bound[name] for name in info.outs)
        return result

    def _settled(self, op: OpOverload, result: Any, device: Any, bound: dict[str, Any]) -> Any:
        """What a definition returned, on the device it belongs to and with names where the operator's results have."""
        arguments = {id(t) for t in tensors_of(bound)}
        results = list(result) if isinstance(result, (tuple, list)) else [result]
        for value in results:
            if isinstance(value, FakeTensor) and id(value) not in arguments:
                value.fake_device = device
        if len(op._schema.returns) > 1 and op._schema.returns[0].name and type(result) in (tuple, list):
            return _named(op, bound)(results)
        return result

    def _take_over(self, out: FakeTensor, value: FakeTensor) -> None:
        """Give an out= tensor the sizes of what is written to it."""
        out.geometry = value.geometry._replace(offset=out.geometry.offset)
        with disabled():
            out.resize_([hint_of(s) for s in value.geometry.sizes])

    def _by_kernel(self, op: OpOverload, info: OperatorInfo, bound: dict[str, Any], rule: Any, symbolic: bool) -> Any:
        device = common_device(op, bound)
        if self.shape_env is not None and "::" in op._full_name:
            result = fake_data.by_python_kernel(self, op, bound, device)
            if result is not NotImplemented:
                return result
        if unbacked.find(info.base) is not None:
            return fake_data.results_of(self, info.base, bound, device, self._requires_grad(info, bound))
        env = self.shape_env
        if symbolic and env is not None and env.stand_ins and fake_data.holds_unbacked(env, bound):
            views = fake_data.prepare_call(self, info, bound, rule, device)
            if views is not None:
                return views
        concrete = {k: hinted(v) for k, v in bound.items()}
        for name in info.devices:
            concrete[name] = "meta"
        # Fakes have no history of their own, so nothing is recorded here.
        with disabled():
            result = op(*[concrete[n] for n in info.positional], **{n: concrete[n] for n in info.keyword})
        if not op._schema.returns and "::" in op._full_name:
            return None  # an operator of the user's that only writes
        if info.writes_first:
            target = next(iter(bound.values()))
            if isinstance(target, list):
                return self._written_list(info, target, bound)
            if symbolic and info.base not in RESHAPES:
                self._check_written(info, target, bound, rule)
            self._written(info, target, bound)
            return target
        if info.outs:
            for name in info.outs:
                with disabled():
                    meta = bound[name].detach()
                    bound[name].geometry = Geometry(tuple(meta.shape), tuple(meta.stride()), meta.storage_offset())
                if symbolic:
                    specialize(bound)
            return bound[info.outs[0]] if len(info.outs) == 1 else tuple(bound[n] for n in info.outs)
        geometries = self._geometries(info, bound, rule, symbolic, result)
        if symbolic and self.shape_env is not None and self.shape_env.stand_ins:
            for geometry in geometries:
                fake_data.check_sizes(geometry.sizes if geometry is not None else ())
        unchanged = _is_argument(result, bound) and result.fake_device == device
        if unchanged and same_all(geometries[0].strides, result.geometry.strides):
            return result
        grad = self._requires_grad(info, bound)
        return self._wrapped(result, geometries, device, grad)

    def _check_written(self, info: OperatorInfo, target: FakeTensor, bound: dict[str, Any], rule: Any) -> None:
        """Guard what the kernel checked at the hints: that the values fit the tensor they are written to."""
        if rule is not None:
            answer = apply_shape(rule, with_geometries(bound))
            sizes = answer.sizes if isinstance(answer, Geometry) else answer
        elif info.pointwise:
            sizes = broadcast(*(t.geometry.sizes for t in tensors_of(bound)))
        else:
            return specialize(bound)
        for own, size in zip(target.geometry.sizes, sizes):
            equal_sizes(own, size, info.base)

    def _written(self, info: OperatorInfo, target: FakeTensor, bound: dict[str, Any]) -> None:
        """Bring a tensor that was written in place up to date."""
        if info.base in RESHAPES:
            rule = shapes.find(info.base.replace("_.", ".").rstrip("_")) if target.is_symbolic else None
            if rule is not None:
                geometry = apply_shape(rule, with_geometries(bound))
                target.geometry = (
                    geometry if isinstance(geometry, Geometry) else Geometry(geometry, contiguous_strides(geometry))
                )
            elif "the_template" in bound:
                target.geometry = Geometry(sizes := bound["the_template"].geometry.sizes, contiguous_strides(sizes), 0)
            elif "size" in bound and "stride" not in bound:
                target.geometry = Geometry(tuple(bound["size"]), contiguous_strides(bound["size"]), 0)
            else:
                specialize(bound)
                with disabled():
                    meta = target.detach()
                    target.geometry = Geometry(tuple(meta.shape), tuple(meta.stride()), meta.storage_offset())
        if not target.fake_requires_grad and self._requires_grad(info, bound):
            target.fake_requires_grad, target.fake_is_leaf = True, False

    def _written_list(self, info: OperatorInfo, targets: list[FakeTensor], bound: dict[str, Any]) -> None:
        """The same for an operator that writes to each tensor of a list."""
        specialize(bound)
        if self._requires_grad(info, bound):
            for target in targets:
                if not target.fake_requires_grad:
                    target.fake_requires_grad, target.fake_is_leaf = True, False

    def _requires_grad(self, info: OperatorInfo, bound: dict[str, Any]) -> bool:
        if info.flags & NO_GRAD or not fl.is_grad_enabled():
            return False
        return any(t.fake_requires_grad for t in tensors_of(bound))

    def _geometries(
        self, info: OperatorInfo, bound: dict[str, Any], rule: Any, symbolic: bool, result: Any
    ) -> list[Geometry]:
        """Sizes, strides and offset of each result."""
        results = list(result) if isinstance(result, (tuple, list)) else [result]
        if any(isinstance(r, fl.Tensor) and r.is_sparse for r in results):
            raise DataDependentOutput(
                f"[{info.base}] expected strided results, got a sparse one: its size depends on data"
            )
        with disabled():
            plain = [
                Geometry(tuple(r.shape), tuple(r.stride()), r.storage_offset()) if isinstance(r, fl.Tensor) else None
                for r in results
            ]
        if not symbolic:
            return plain  # type: ignore[return-value]
        if info.base == "view.dtype" and plain[0] is not None:
            answers: Any = [_reread(bound["self"], plain[0])]
        elif rule is None and info.pointwise:
            sizes = broadcast(*(t.geometry.sizes for t in tensors_of(bound)))
            answers = [sizes]
        elif rule is not None:
            try:
                answers = apply_shape(rule, with_geometries(bound))
            except NotImplementedError:
                answers = None
        else:
            answers = None
        if answers is None:
            if any(p is not None and p.sizes for p in plain):
                specialize(bound)
            return plain  # type: ignore[return-value]
        if not isinstance(answers, list):
            answers = [answers]
        geometries = []
        for answer, at_hints in zip(answers, plain, strict=True):
            geometry = _completed(answer, at_hints, bound) if at_hints is not None else None
            if geometry is None:
                specialize(bound)
                return plain  # type: ignore[return-value]
            geometries.append(geometry)
        return geometries

    def _wrapped(self, result: Any, geometries: list[Geometry], device: Any, grad: bool) -> Any:
        if isinstance(result, fl.Tensor):
            return self._one(result, geometries[0], device, grad)
        if isinstance(result, (tuple, list)):
            items = [
                self._one(r, g, device, grad) if isinstance(r, fl.Tensor) else r for r, g in zip(result, geometries)
            ]
            return type(result)(items)
        return result

    def _one(self, meta: Any, geometry: Geometry, device: Any, grad: bool) -> FakeTensor:
        with disabled():
            differentiable = meta.is_floating_point() or meta.is_complex()
        fake = self.wrap(meta, geometry, device, grad and differentiable)
        fake.fake_is_leaf = not fake.fake_requires_grad
        return fake


# ---------------------------------------------------------------------------------------------- operators


def _is_argument(result: Any, bound: dict[str, Any]) -> bool:
    """Whether an operator handed back a tensor that it was given."""
    return isinstance(result, FakeTensor) and any(t is result for t in tensors_of(bound))


def _named(op: OpOverload, bound: dict[str, Any]) -> Any:
    """The type of an operator's results that have names: what the operator returns on the meta device."""
    result_class = _NAMED.get(op)
    if result_class is None:
        positional = [hinted(bound[a.name]) for a in op._schema.arguments if not a.kwarg_only]
        named = {a.name: hinted(bound[a.name]) for a in op._schema.arguments if a.kwarg_only}
        with disabled(), fl.no_grad():
            result_class = _NAMED[op] = type(op(*positional, **named))
    return result_class


_NAMED: dict[OpOverload, Any] = {}


def _reread(t: FakeTensor, at_hints: Geometry) -> Geometry:
    """The geometry of a tensor's memory read as another dtype; the kernel checked at the hints that it can be."""
    sizes, strides, offset = t.geometry
    before, after = hint_of(sizes[-1]) if sizes else 1, at_hints.sizes[-1] if sizes else 1
    if before == after:
        return t.geometry
    if after > before:
        factor = after // before
        return Geometry((*sizes[:-1], sizes[-1] * factor), (*(s * factor for s in strides[:-1]), 1), offset * factor)
    factor = before // after
    for number in (sizes[-1], offset, *strides[:-1]):
        equal_sizes(number % factor, 0, "view")
    return Geometry((*sizes[:-1], sizes[-1] // factor), (*(s // factor for s in strides[:-1]), 1), offset // factor)


def _completed(answer: Any, at_hints: Geometry, bound: dict[str, Any]) -> Geometry | None:
    """A rule's answer with strides; None when it contradicts what the kernel said."""
    sizes: Ints = answer.sizes if isinstance(answer, Geometry) else tuple(answer)
    hints = tuple(hint_of(s) for s in sizes)
    if hints != at_hints.sizes:
        return None
    if isinstance(answer, Geometry):
        return answer
    strides = dense_strides(sizes, at_hints.strides, hints)
    if strides is not None:
        return Geometry(sizes, strides, at_hints.offset)
    for t in tensors_of(bound):  # an argument that is returned as it is
        if Geometry(*map(hinted, t.geometry)) == at_hints and same_all(t.geometry.sizes, sizes):
            return t.geometry
    return None


def handle_symbolic_call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call with symbolic numbers and no fake tensor, as `zeros(n, 3)`: the result is fake."""
    return mode_for((args, kwargs)).call(func, args, kwargs)


def mode_for(value: Any) -> FakeTensorMode:
    """The mode of the fakes in a value, else of its symbolic numbers."""
    mode = mode_of(value)
    if mode is None:
        env = env_of(value)
        mode = getattr(env, "fake_mode", None)
        if mode is None:
            mode = FakeTensorMode(shape_env=env)
            if env is not None:
                env.fake_mode = mode
    return mode

"""The class of fake tensors, and what a call's arguments that hold some say: their symbols, their device, their mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import flambeau as fl
from flambeau import _C
from flambeau._ops import OpOverload
from flambeau._subclasses import fake_autograd, fake_data
from flambeau._tensor.device import canonical
from flambeau.ops.geometry import Geometry
from flambeau.ops.symbolic.numbers import SymBool, SymFloat, SymInt

if TYPE_CHECKING:
    from flambeau._subclasses.fake_tensor import FakeTensorMode


class FakeTensor(fl.Tensor):
    """A tensor that has everything but data."""

    fake_mode: FakeTensorMode
    fake_device: Any
    fake_dtype: Any
    constant: Any
    history: Any  # the node of fake_autograd that made it and the number of its result; None for leaves
    fake_view: Any  # what it is a view of, as fake_autograd.View
    fake_writes: int  # how often gradients had to follow a write to it or to a view of it
    number: Any  # of one element, read by item(): at which version, and the symbol for it
    original: Any  # the tensor with data that a fake was made of while a recorder listened
    _geometry: Geometry
    _seen: int  # how many replacements of symbols the geometry takes into account

    @staticmethod
    def __torch_function__(
        func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        mode = mode_of((args, kwargs))
        if mode is None:
            raise RuntimeError(f"[fake] expected a fake tensor among the arguments of {func}, got none")
        return mode.call(func, args, kwargs or {})

    @property
    def geometry(self) -> Geometry:
        """Sizes, strides and offset, in terms of the symbols that are left."""
        env = self.fake_mode.shape_env
        if env is not None and self._seen != len(env.replacements):
            self._seen = len(env.replacements)
            known = self._geometry
            self._geometry = Geometry(
                tuple(map(env.simplified, known.sizes)), tuple(map(env.simplified, known.strides)),
                env.simplified(known.offset),
            )  # fmt: skip
            if env.stand_ins:
                fake_data.follow_stand_ins(self, self._geometry)
        return self._geometry

    @geometry.setter
    def geometry(self, value: Geometry) -> None:
        self._geometry = value
        self._seen = 0

    def version(self) -> int:
        """How often the tensor was written."""
        with disabled():
            return int(self._version)

    @property
    def is_symbolic(self) -> bool:
        geometry = self.geometry
        return any(type(x) is SymInt for x in (*geometry.sizes, *geometry.strides, geometry.offset))

    def _is_wrapped_number(self) -> bool:
        return self.original is not None and bool(self.original._is_wrapped_number())

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        sizes = ", ".join(str(s) for s in self.geometry.sizes) + "," * (len(self.geometry.sizes) == 1)
        with disabled():
            kind = self.dtype
        shown = "" if str(self.fake_device) == "cpu" else f", device='{self.fake_device}'"
        other = "" if kind in (fl.get_default_dtype(), fl.complex64, fl.bool) else f", dtype={kind}"
        grad = ", requires_grad=True" if self.fake_requires_grad else ""
        return f"FakeTensor(...{shown}, size=({sizes}){other}{grad})"

    fake_requires_grad: bool
    fake_is_leaf: bool

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"[fake] expected tensors with data to pickle, got {self!r}")

    def __deepcopy__(self, memo: dict[int, Any]) -> FakeTensor:
        copy = memo[id(self)] = self.fake_mode.wrap(
            self.meta(), self.geometry, self.fake_device, self.fake_requires_grad
        )
        return copy

    @staticmethod
    def _run_backward(roots: Any, gradients: Any, wanted: Any, create_graph: bool, accumulate: bool) -> tuple[Any, ...]:
        """Called by autograd.grad and autograd.backward."""
        mode = mode_of(roots)
        assert mode is not None
        return tuple(fake_autograd.run(mode, roots, gradients, wanted, create_graph, accumulate))

    def _record_function(self, ctx: Any, inputs: Any, outputs: Any, fixed: set[int], recorded: bool) -> list[Any]:
        """Called by autograd.Function with what forward returned."""
        return fake_autograd.record_function(ctx, self.fake_mode._faked(inputs), outputs, fixed, recorded)

    def meta(self) -> Any:
        """The meta tensor at the sizes of the hints, on the same (absent) storage."""
        with disabled():
            return self.detach()


def is_fake(x: object) -> bool:
    """Whether this is a fake tensor, or wraps one."""
    return isinstance(x, FakeTensor)


class disabled:
    """Calls in the block are not caught."""

    __slots__ = ("before",)

    def __enter__(self) -> None:
        self.before = _C._set_torch_function_all_disabled(True)

    def __exit__(self, *exception: object) -> None:
        _C._set_torch_function_all_disabled(self.before)


# ---------------------------------------------------------------- arguments of a call


def tensors_of(bound: dict[str, Any]) -> list[FakeTensor]:
    tensors: list[FakeTensor] = []
    for value in bound.values():
        if isinstance(value, FakeTensor):
            tensors.append(value)
        elif isinstance(value, (list, tuple)):
            tensors.extend(v for v in value if isinstance(v, FakeTensor))
    return tensors


def is_symbolic(bound: dict[str, Any]) -> bool:
    for value in bound.values():
        if isinstance(value, FakeTensor):
            if value.is_symbolic:
                return True
        elif isinstance(value, (SymInt, SymFloat, SymBool)):
            return True
        elif isinstance(value, (list, tuple)):
            for item in value:
                if isinstance(item, (SymInt, SymFloat, SymBool)) or (isinstance(item, FakeTensor) and item.is_symbolic):
                    return True
    return False


def with_geometries(value: Any) -> Any:
    """Arguments with geometries in place of tensors."""
    if isinstance(value, FakeTensor):
        return value.geometry
    if isinstance(value, dict):
        return {k: with_geometries(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return tuple(with_geometries(v) for v in value)
    return value


def specialize(value: Any) -> None:
    """Turn all symbols in arguments into the numbers of the hints, by guards."""
    if isinstance(value, FakeTensor):
        for size in value.geometry.sizes:
            if type(size) is SymInt:
                int(size)
    elif type(value) is SymInt:
        int(value)
    elif type(value) is SymFloat:
        float(value)
    elif isinstance(value, dict):
        specialize(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for item in value:
            specialize(item)


def common_device(op: OpOverload, bound: dict[str, Any]) -> Any:
    """Where the results of a call live."""
    for argument in op._schema.arguments:
        if argument.type.text.startswith("device"):
            value = bound[argument.name]
            if value is not None:
                return canonical(value)
    name = op._full_name
    if name in ("cpu", "_to_cpu"):
        return fl.device("cpu")
    if name == "to.other":
        return bound["other"].fake_device
    chosen = None
    tensors = tensors_of(bound)
    for tensor in tensors:
        if chosen is None or (chosen.type == "cpu" and tensor.fake_device.type != "cpu"):
            chosen = tensor.fake_device
    for tensor in tensors:
        # A number in a tensor goes anywhere; everything else must be in one place.
        if tensor.fake_device != chosen and tensor.geometry.sizes and name not in ("copy_",):
            raise RuntimeError(
                f"[{op._opname}] expected all tensors on one device, got {chosen} and {tensor.fake_device}"
            )
    return chosen if chosen is not None else fl.get_default_device()


def mode_of(value: Any) -> FakeTensorMode | None:
    if isinstance(value, FakeTensor):
        return value.fake_mode
    if isinstance(value, (list, tuple)):
        for item in value:
            mode = mode_of(item)
            if mode is not None:
                return mode
    elif isinstance(value, dict):
        return mode_of(list(value.values()))
    elif isinstance(value, slice):
        return mode_of((value.start, value.stop, value.step))
    return None

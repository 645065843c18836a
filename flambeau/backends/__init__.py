"""Devices registered from outside, and the switches of the libraries behind the built-in ones.

    device = register_device("mydev", allocate=..., free=..., pointwise=..., reduction=...)

    @device.kernel("copy_")
    def copy_(self, src, non_blocking=False): ...

A device needs memory, `copy_`, `fill_`, one function that evaluates pointwise expressions and one for reductions; the
other primitives (docs/new-device.md lists them) are kernels by name. An operator that has no kernel on the device runs
its decomposition; views need nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import flambeau
from flambeau import _C

__all__ = ["RegisteredDevice", "register_device", "registered"]

registered: dict[str, RegisteredDevice] = {}


class RegisteredDevice:
    """A device and its kernels. `pointwise` and `reduction` evaluate the expressions of op records."""

    def __init__(self, name: str, key: int, pointwise: Any, reduction: Any, host_fallback: bool) -> None:
        self.name, self.key = name, key
        self.pointwise: Callable[..., None] | None = pointwise
        self.reduction: Callable[..., None] | None = reduction
        self.host_fallback = host_fallback
        self.claims: set[str] = set()  # operators with a kernel of their own
        _C._set_fallback(key, self._serve)

    def kernel(self, *names: str, any_device: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorator: the kernel of one or more operators. Its tensors are on this device unless any_device says so."""

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            from flambeau import _ops

            for name in names:
                full = _ops.resolve(name)
                _C._set_kernel(full, self.key, function if any_device else self._checked(full, function))
                self.claims.add(full)
            return function

        return register

    def _checked(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.check(name, (*args, *kwargs.values()))
            return function(*args, **kwargs)

        return call

    def check(self, name: str, values: Any, zero_dim: bool = False) -> None:
        """Raise when a tensor is elsewhere; zero-dim CPU tensors may be let through."""
        for tensor in tensors_in(values):
            if tensor.device.type != self.name and not (zero_dim and tensor.dim() == 0 and tensor.is_cpu):
                raise RuntimeError(f"[{name}] expected all tensors on one device, got {self.name} and {tensor.device}")

    def _serve(self, op: Any, *args: Any, **kwargs: Any) -> Any:
        """What the dispatcher calls for an operator that has neither a kernel here nor a decomposition."""
        from flambeau.backends import records
        from flambeau.ops.rules import definition

        record = records.find(op)
        if record is not None and record.kind == "pointwise" and self.pointwise is not None:
            return records.run_pointwise(self, op, record, args, kwargs)
        if record is not None and record.kind == "reduction" and self.reduction is not None:
            return records.run_reduction(self, op, record, args, kwargs)
        function = definition.find(op._full_name)
        if function is not None:
            return self._by_definition(op, record, function, args, kwargs)
        if self.host_fallback:
            return self._on_host(op, args, kwargs)
        raise NotImplementedError(
            f"[{op._opname}] expected a device with a kernel or decomposition for it, got {self.name}"
        )

    def _by_definition(self, op: Any, record: Any, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """The definition, with the checks that the operator's own kernel makes and results laid out as its are: both come
        from the kernel for the meta device, so that definitions need neither."""
        from flambeau.backends import records

        values = (*args, *kwargs.values())
        factory = next(tensors_in(values), None) is None
        if record is None or factory or "mixed_devices" in record.tags:
            return function(*args, **kwargs)
        self._check_one_device(op, values)
        if "data_dependent" in record.tags or record.schema.returns == "bool":  # the meta device cannot answer
            return function(*args, **kwargs)
        expected = records.shape_of(op, args, kwargs)
        result = function(*args, **kwargs)
        return result if op._schema.is_mutable else records.laid_out(result, expected)

    def _check_one_device(self, op: Any, values: Any) -> None:
        """Raise when tensors lie on several devices; numbers as CPU tensors may stand beside them, not in lists."""
        first = None
        for value in values:
            for tensor in tensors_in((value,)):
                if tensor.is_cpu and tensor.dim() == 0 and tensor is value:
                    continue
                first = tensor.device if first is None else first
                if tensor.device != first:
                    raise RuntimeError(
                        f"[{op._opname}] expected all tensors on one device, got {first} and {tensor.device}"
                    )

    def _on_host(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The operator on the CPU, with its tensors copied there, and its results copied back."""
        here = next((t.device for t in tensors_in((*args, *kwargs.values()))), flambeau.device(self.name))
        kwargs = {k: flambeau.device("cpu") if isinstance(v, flambeau.device) else v for k, v in kwargs.items()}
        pairs: list[tuple[Any, Any]] = []

        def to_host(value: Any) -> Any:
            if isinstance(value, flambeau.Tensor):
                pairs.append((value, value.cpu()))
                return pairs[-1][1]
            return [to_host(v) for v in value] if isinstance(value, (list, tuple)) else value

        def back(value: Any) -> Any:
            if isinstance(value, flambeau.Tensor):
                return value.to(here)
            return type(value)([back(v) for v in value]) if isinstance(value, (list, tuple)) else value

        result = op(*map(to_host, args), **{k: to_host(v) for k, v in kwargs.items()})
        if op._schema.is_mutable:
            for device_side, host_side in pairs:
                device_side.copy_(host_side)
        return back(result)


def tensors_in(values: Any) -> Iterator[Any]:
    """Tensors among arguments and inside lists of them."""
    for value in values:
        if isinstance(value, flambeau.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(value)


def register_device(
    name: str,
    *,
    allocate: Callable[[int], int] | None = None,
    free: Callable[[int, int], None] | None = None,
    pointwise: Callable[..., None] | None = None,
    reduction: Callable[..., None] | None = None,
    host_fallback: bool = False,
) -> RegisteredDevice:
    """Register a device type; tensors are then made with device=name.

    allocate       bytes -> address; without it memory comes from the CPU's allocator.
    free           (address, bytes), called when the last tensor on a block is gone.
    pointwise      (expr, operands, out, dtype): evaluate an expression for every element of out.
    reduction      (plan, source, out): reduce source along dimensions; see `records.ReductionPlan`.
    host_fallback  operators that the device lacks run on the CPU, with copies both ways.
    """
    if (allocate is None) != (free is None):
        raise ValueError("[register_device] expected both allocate and free or neither, got one")
    key = _C._register_device(name, allocate, free)
    device = RegisteredDevice(name, key, pointwise, reduction, host_fallback)
    registered[name] = device
    return device


# ---------------------------------------------------------------------------------------------- PrivateUse1

_private_name = "privateuseone"


def rename_privateuse1_backend(name: str) -> None:
    """Give the device behind the dispatch key PrivateUse1 a name; it is registered with memory of the CPU."""
    global _private_name
    if _private_name not in ("privateuseone", name):
        raise RuntimeError(
            f"[rename_privateuse1_backend] expected to be called once, got {name!r} after {_private_name!r}"
        )
    _private_name = name
    private_use_key()


def private_use_key() -> int:
    """The dispatch key of the device behind PrivateUse1, registered when it is first asked for."""
    if _private_name not in registered:
        register_device(_private_name)
    return registered[_private_name].key


def private_use_name() -> str:
    return _private_name


# ---------------------------------------------------------------------------------------------- switches


fp32_precision = "none"  # remembered
_SWITCHES = frozenset("cpu cuda cudnn cusparselt mha mkl mkldnn mps nnpack openmp opt_einsum quantized".split())


def __getattr__(name: str) -> Any:
    """The switches of a library, by the names programs set: a small module each."""
    if name in _SWITCHES:
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

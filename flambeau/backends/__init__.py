"""Devices registered from outside, and the switches of the libraries behind the built-in ones.

    device = register_device("mydev", allocate=..., free=..., copy=..., pointwise=..., reduction=...)

    @register(device="mydev", op="mm")
    def mm(self, mat2): ...

A device needs memory, a copy, and either a printer or functions that evaluate expressions; the other primitives
(docs/new-device.md lists them) are kernels by name. An operator that has no kernel on the device runs its definition;
views need nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from flambeau import _C
from flambeau.backends import derived
from flambeau.backends.device import RegisteredDevice, tensors_in

__all__ = ["RegisteredDevice", "load", "register", "register_device", "registered", "tensors_in"]


class _Registered(dict[str, RegisteredDevice]):
    """Devices by name; one that an entry point brings is loaded when it is first named."""

    def __missing__(self, name: str) -> RegisteredDevice:
        if load(name) and name in self:
            return self[name]
        raise KeyError(name)


registered: dict[str, RegisteredDevice] = _Registered()

# Devices of the package itself that are loaded when they are first named.
_OWN = {
    "ref": "flambeau.backends.reference", "opencl": "flambeau.backends.opencl", "lazy": "flambeau.lazy",
    "xla": "flambeau.xla",
}  # fmt: skip
_ALIASES = {"reference": "ref"}


def load(name: str) -> bool:
    """Imports the module that brings a device: one of the package's own, or of the entry-point group `flambeau.backends`.
    Called for every device name that is not known; says whether there was one."""
    import importlib

    if name in _ALIASES:
        _C._alias_device(name, _ALIASES[name])
        registered[name] = registered[_ALIASES[name]]
        return True
    if name in _OWN:
        importlib.import_module(_OWN[name])
        return True
    entry = _entry_points().get(name)
    if entry is None:
        return False
    loaded = entry.load()
    if callable(loaded) and name not in registered:
        loaded()
    return True


@functools.cache
def _entry_points() -> dict[str, Any]:
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in entry_points(group="flambeau.backends")}


def register_device(
    name: str,
    *,
    allocate: Callable[[int], int] | None = None,
    free: Callable[[int, int], None] | None = None,
    pooled: bool = False,
    copy: Callable[[Any, Any], None] | None = None,
    printer: Any = None,
    pointwise: Callable[..., None] | None = None,
    reduction: Callable[..., None] | None = None,
    update: Callable[..., None] | None = None,
    products: Mapping[str, Callable[..., Any]] | Callable[..., None] | None = None,
    kernels: Mapping[str, Callable[..., Any]] | None = None,
    claims: Iterable[str] = (),
    host_fallback: bool = False,
    host_readable: bool | None = None,
    dtypes: Iterable[Any] | None = None,
    count: int = 1,
    synchronize: Callable[[], None] | None = None,
    accelerator: bool | None = None,
    lacks: Mapping[str, str] | None = None,
    pin: Callable[[int, int], None] | None = None,
    unpin: Callable[[int, int], None] | None = None,
    module: Any = None,
) -> RegisteredDevice:
    """Register a device type; tensors are then made with device=name.

    allocate       bytes -> address; without it memory comes from the CPU's allocator.
    free           (address, bytes), called when the last tensor on a block is gone.
    pooled         blocks are kept when they are freed and used again without asking; `module.empty_cache()` frees them.
    copy           (dst, src): the bytes of one contiguous tensor to another of the same dtype and size; one side may be on
                   the host. Conversions, strides and broadcasting are derived. Not needed where the host reads the memory.
    printer        what builds and launches kernels in a C-like language (`flambeau.backends.printer.KernelPrinter`): all
                   hooks and primitives, and compile(), follow from it.
    pointwise      (expr, operands, out, dtype): evaluate an expression for every element of out.
    reduction      (plan, source, out): reduce source along dimensions; see `flambeau.ops.device_plans.ReductionPlan`.
    update         (plan, lists, numbers): a whole optimizer step; see `UpdatePlan`. Without it: pointwise, tensor by tensor.
    products       kernels of matrix products by operator name, or one function (a, b, out) for `mm` and `bmm`.
    kernels        kernels of further operators, by name.
    claims         operators that compile() leaves whole, as it does all operators with a kernel here.
    host_fallback  what the device lacks or refuses (NotImplementedError): False raises, True runs it on the CPU with copies
                   both ways, and counts it in `host_calls`.
    host_readable  the host may read the device's memory at its addresses; by default where it comes from the host.
    dtypes         what kernels compute with; None for all, or for those that C has where there is a printer.
    accelerator    `flambeau.accelerator` speaks of it on machines without CUDA; by default where it has memory of its own.
    lacks          patterns of operators that the device cannot have, with the reason: `flambeau device-check` lists them.
    pin, unpin     (address, bytes): lock host memory for quick copies and let it go, for `Tensor.pin_memory`.
    count, synchronize, module   number of devices, what waits for them, and the module `flambeau.<name>` if not a derived one.
    """
    if (allocate is None) != (free is None):
        raise ValueError("[register_device] expected both allocate and free or neither, got one")
    if dtypes is None and printer is not None:
        from flambeau.backends.c99 import STORED

        dtypes = STORED
    key = _C._register_device(name, allocate, free, pooled)
    properties = {
        "host_readable": allocate is None if host_readable is None else host_readable,
        "dtypes": None if dtypes is None else frozenset(dtypes), "count": count, "synchronize": synchronize,
        "lacks": lacks, "pin": pin, "unpin": unpin, "accelerator": allocate is not None if accelerator is None else accelerator,
    }  # fmt: skip
    device = RegisteredDevice(name, key, host_fallback, **properties)
    registered[name] = device
    derived.install(device, copy, products, printer)
    for kind, hook in (("pointwise", pointwise), ("reduction", reduction), ("update", update)):
        if hook is not None:
            setattr(device, kind, hook)
    for operator, kernel in (kernels or {}).items():
        device.kernel(operator)(kernel)
    device.claim(claims)
    derived.make_module(device, module)
    return device


def widest_float(device: Any) -> Any:
    """The dtype in which definitions compute what wants more precision than float32: float64 where the device has it."""
    import flambeau as fl

    known = None if device is None else registered.get(fl.device(device).type)
    return fl.float64 if known is None or known.has(fl.float64) else fl.float32


def register_recorder(name: str, device: RegisteredDevice) -> None:
    """Enters a device that records its calls (`flambeau.lazy`), whose kernels are not its own."""
    registered[name] = device
    derived.make_module(device, device.module)


def register(*, device: str, op: str, any_device: bool = False) -> Callable[[Any], Any]:
    """Decorator: one kernel of a registered device, by the operator's name."""
    return registered[device].kernel(op, any_device=any_device)


# ---------------------------------------------------------------------------------------------- PrivateUse1

_private_name = "privateuseone"


def rename_privateuse1_backend(name: str) -> None:
    """Give the device behind the dispatch key PrivateUse1 a name; it is registered with memory of the CPU."""
    global _private_name
    if _private_name not in ("privateuseone", name):
        raise RuntimeError(
            f"[rename_privateuse1_backend] expected to be called once, got {name!r} where {_private_name!r} has already been set"
        )
    _private_name = name
    private_use_key()
    _C._alias_device("privateuseone", name)
    registered[name].accelerator = True


def private_use_key() -> int:
    """The dispatch key of the device behind PrivateUse1, registered when it is first asked for."""
    if _private_name not in registered:
        register_device(_private_name)
    return registered[_private_name].key


def private_use_name() -> str:
    return _private_name


def _register_device_module(device_type: Any, module: Any) -> None:
    """Makes a module the runtime module `flambeau.<name>` of a registered device; what it lacks is derived."""
    import flambeau as fl

    name = fl.device(device_type).type
    if name not in registered:
        raise RuntimeError(f"[_register_device_module] expected a device from outside, got {name!r}")
    if name in _modules:
        raise RuntimeError(
            f"[_register_device_module] expected one module for {name!r}, got another. The runtime module of {name!r} is {_modules[name]}"
        )
    _modules[name] = module
    delattr(fl, name)
    derived.make_module(registered[name], module)


_modules: dict[str, Any] = {}


# ---------------------------------------------------------------------------------------------- switches


fp32_precision = "none"  # remembered
_SWITCHES = frozenset("cpu cuda cudnn cusparselt mha mkl mkldnn mps nnpack openmp opt_einsum quantized".split())


def __getattr__(name: str) -> Any:
    """The switches of a library, by the names programs set: a small module each."""
    if name in _SWITCHES:
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""What follows from the few things a device brings: `copy_` and `fill_`, products, the module `flambeau.<name>`."""

from __future__ import annotations

import ctypes
import itertools
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

import flambeau
from flambeau.backends.device import RegisteredDevice
from flambeau.backends.records import empty_as, shape_of

__all__ = ["install", "make_module"]


def install(device: RegisteredDevice, copy: Any, products: Any, printer: Any) -> None:
    """Gives the device the kernels that follow from what it was registered with."""
    if copy is None and device.host_readable:
        copy = _copy_bytes
    device.copy = copy
    device.kernel("copy_", any_device=True)(_Copy(device))
    device.kernel("fill_", any_device=True)(_Fill(device))
    if printer is not None:
        device.printer = printer
        printer.attach(device)
    if isinstance(products, Mapping):
        for name, kernel in products.items():
            device.kernel(name)(kernel)
    elif products is not None:
        _install_products(device, products)


def _copy_bytes(dst: Any, src: Any) -> None:
    ctypes.memmove(dst.data_ptr(), src.data_ptr(), src.numel() * src.element_size())


def _install_products(device: RegisteredDevice, product: Callable[..., None]) -> None:
    for name in ("mm", "bmm"):
        op = flambeau._C._operator_object(name)

        def kernel(self: Any, mat2: Any, op: Any = op) -> Any:
            out = empty_as(shape_of(op, (self, mat2), {}), self.device)
            if out.numel():
                product(self, mat2, out)
            return out

        device.kernel(name)(kernel)


class _Copy:
    """copy_ between any two places, from a function that copies bytes and the pointwise hook."""

    def __init__(self, device: RegisteredDevice) -> None:
        self.device = device

    def __call__(self, self_: Any, src: Any, non_blocking: bool = False) -> Any:
        dst, device = self_, self.device
        if device.copy is None:
            raise NotImplementedError(f"[copy_] expected a device that was registered with copy=, got {device.name}")
        if not dst.numel():
            return dst
        if src.shape != dst.shape:
            src = src.expand(dst.shape)
        here = [t.device.type == device.name for t in (dst, src)]
        if all(here):
            self._within(dst, src)
        elif here[0]:
            self._from_elsewhere(dst, src)
        else:
            self._to_elsewhere(dst, src)
        return dst

    def _within(self, dst: Any, src: Any) -> None:
        if dst.data_ptr() == src.data_ptr() and dst.dtype is src.dtype and dst.stride() == src.stride():
            return
        if dst.dtype is src.dtype and dst.is_contiguous() and src.is_contiguous() and self.device.copy is not None:
            self.device.copy(dst, src)
        elif self.device.pointwise is not None:
            dtype = dst.dtype if _kind(dst.dtype) >= _kind(src.dtype) else src.dtype
            self._convert(dst, src, dtype)
        else:
            dst.copy_(src.cpu())

    def _convert(self, dst: Any, src: Any, dtype: Any) -> None:
        from flambeau.ops.expr import arg

        try:
            self.device.evaluate("copy_", arg("x"), {"x": src}, dst, dtype)
        except NotImplementedError:  # a dtype that the device cannot compute with
            self._from_elsewhere(dst, src.cpu())

    def _from_elsewhere(self, dst: Any, src: Any) -> None:
        host = src if src.is_cpu else src.cpu()
        if host.dtype is not dst.dtype:
            host = host.to(dst.dtype)
        host = host.contiguous()
        if dst.is_contiguous():
            self.device.copy(dst, host)  # type: ignore[misc]
        elif self._is_whole(dst):
            whole = flambeau.empty_strided(dst.shape, dst.stride(), dtype=dst.dtype).copy_(host)
            self.device.copy(_flat(dst), _flat(whole))  # type: ignore[misc]
        else:
            staged = flambeau.empty(dst.shape, dtype=dst.dtype, device=dst.device)
            self.device.copy(staged, host)  # type: ignore[misc]
            self._scatter(dst, staged, host)

    def _scatter(self, dst: Any, staged: Any, host: Any) -> None:
        """Into a window with gaps: on the device, or through a copy of the bytes around it."""
        if self.device.pointwise is not None and self.device.has(dst.dtype):
            self._convert_or_fail(dst, staged)
            return
        span = sum((n - 1) * s for n, s in zip(dst.shape, dst.stride())) + 1
        around = dst.as_strided((span,), (1,), dst.storage_offset())
        block = flambeau.empty(span, dtype=dst.dtype)
        self.device.copy(block, around)  # type: ignore[misc]
        block.as_strided(dst.shape, dst.stride(), 0).copy_(host)
        self.device.copy(around, block)  # type: ignore[misc]

    def _convert_or_fail(self, dst: Any, src: Any) -> None:
        from flambeau.ops.expr import arg

        self.device.evaluate("copy_", arg("x"), {"x": src}, dst, dst.dtype)

    def _to_elsewhere(self, dst: Any, src: Any) -> None:
        span = sum((n - 1) * s for n, s in zip(src.shape, src.stride())) + 1
        around = src.as_strided((span,), (1,), src.storage_offset())
        block = flambeau.empty(span, dtype=src.dtype)
        self.device.synchronize()
        self.device.copy(block, around)  # type: ignore[misc]
        dst.copy_(block.as_strided(src.shape, src.stride(), 0))

    @staticmethod
    def _is_whole(t: Any) -> bool:
        span = sum((n - 1) * s for n, s in zip(t.shape, t.stride())) + 1
        return span == t.numel() and all(t.stride())


def _flat(t: Any) -> Any:
    return t.as_strided((t.numel(),), (1,), t.storage_offset())


def _kind(dtype: Any) -> int:
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else 0 if dtype is flambeau.bool else 1


class _Fill:
    """fill_ with a number, by the pointwise hook or by a copy from the host."""

    def __init__(self, device: RegisteredDevice) -> None:
        self.device = device

    def __call__(self, self_: Any, value: Any) -> Any:
        number = value.item() if isinstance(value, flambeau.Tensor) else value
        if self.device.pointwise is not None and self.device.has(self_.dtype):
            from flambeau.ops.expr import arg

            if self_.dtype is flambeau.bool:
                number = bool(number)
            elif not self_.dtype.is_floating_point and not self_.dtype.is_complex and not isinstance(number, complex):
                number = int(number)
            try:
                self.device.evaluate("fill_", arg("value"), {"value": number}, self_, self_.dtype)
                return self_
            except NotImplementedError:
                pass
        if self_.numel():
            self_.copy_(flambeau.full((), number, dtype=self_.dtype).expand(self_.shape))
        return self_


# ---------------------------------------------------------------- the module of the device


class Stream:
    """A queue of work. A device that was registered without streams has one, which runs in order."""

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
        self.device = flambeau.device(device) if device is not None else None

    def synchronize(self) -> None:
        _synchronize(self.device)

    def wait_stream(self, stream: Any) -> None:
        """Work of one queue is in order already."""

    wait_event = wait_stream

    def record_event(self, event: Any = None) -> Any:
        event = event or Event()
        event.record(self)
        return event

    def query(self) -> bool:
        self.synchronize()
        return True

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        pass


_event_numbers = itertools.count(1)


class Event:
    """A mark in a stream, with the time at which the work before it was done."""

    def __init__(self, device: Any = None, enable_timing: bool = False, **_: Any) -> None:
        self.device, self.time, self.event_id = device, 0.0, 0  # the number says that it was recorded

    def record(self, stream: Any = None) -> None:
        import time

        self.event_id = next(_event_numbers)
        _synchronize(stream.device if stream is not None else self.device)
        self.time = time.perf_counter()

    def elapsed_time(self, end: Any) -> float:
        return (end.time - self.time) * 1e3

    def wait(self, stream: Any = None) -> None:
        """All work before it is done."""

    def synchronize(self) -> None:
        """All work before it is done."""

    def query(self) -> bool:
        return True


def _synchronize(device: Any = None) -> None:
    from flambeau.backends import registered

    if device is None:
        for known in list(registered.values()):
            known.synchronize()
    elif device.type in registered:
        registered[device.type].synchronize()


def memory_functions(name: str) -> dict[str, Callable[..., Any]]:
    """What a device's tensors and its pool take, as programs ask of `torch.cuda`; an index may be given."""

    def usage() -> tuple[Any, Any]:
        return flambeau._C._device_memory(name)

    def memory_stats(device_: Any = None) -> dict[str, int]:
        stats: dict[str, int] = {}
        for kind, (size, most, blocks, ever, blocks_ever) in zip(("allocated", "reserved"), usage()):
            stats |= {
                f"{kind}_bytes.all.current": size, f"{kind}_bytes.all.peak": most, f"{kind}_bytes.all.allocated": ever,
                f"{kind}_bytes.all.freed": max(ever - size, 0), f"{kind}_blocks.all.current": blocks,
                f"{kind}_blocks.all.allocated": blocks_ever,
            }  # fmt: skip
        return stats

    return {
        "memory_allocated": lambda device_=None: usage()[0][0], "max_memory_allocated": lambda device_=None: usage()[0][1],
        "memory_reserved": lambda device_=None: usage()[1][0], "max_memory_reserved": lambda device_=None: usage()[1][1],
        "memory_stats": memory_stats,
        "reset_peak_memory_stats": lambda device_=None: flambeau._C._reset_device_memory(name, True),
        "reset_accumulated_memory_stats": lambda device_=None: flambeau._C._reset_device_memory(name, False),
    }  # fmt: skip


def make_module(device: RegisteredDevice, functions: Any) -> None:
    """`flambeau.<name>`, with what programs ask of `torch.cuda`; attributes of a module that was given come first."""
    name = device.name
    module = functions if functions is not None else types.ModuleType(f"flambeau.{name}", f"The device {name}.")
    generator = flambeau._C._default_generator(flambeau.device(name))
    current = [0]

    def set_device(index: Any) -> None:
        place = index if isinstance(index, int) else flambeau.device(index).index or 0
        if not 0 <= place < device.count:
            raise RuntimeError(f"[{name}.set_device] expected one of {device.count} devices, got {index}")
        current[0] = place

    class device_block:  # named as in torch.cuda
        """A `with` block on one of the devices, by number or name; None and negative numbers change nothing."""

        def __init__(self, index: Any) -> None:
            self.idx = index if isinstance(index, int) else None if index is None else flambeau.device(index).index or 0

        def __enter__(self) -> None:
            self.before = current[0]
            if self.idx is not None and self.idx >= 0:
                set_device(self.idx)

        def __exit__(self, *error: object) -> None:
            set_device(self.before)

    def device_of(tensor: Any) -> Any:
        """A `with` block on the device of a tensor, if it is one of these."""
        return device_block((tensor.device.index or 0) if tensor.device.type == name else None)

    def manual_seed(seed: int) -> None:
        generator.manual_seed(int(seed))

    defaults: dict[str, Any] = {
        "is_available": lambda: True, "device_count": lambda: device.count, "current_device": lambda: current[0],
        "set_device": set_device, "device": device_block, "device_of": device_of, "is_initialized": lambda: True, "init": lambda: None, "_lazy_init": lambda: None,
        "synchronize": lambda device_=None: device.synchronize(), "Stream": Stream, "Event": Event,
        "current_stream": lambda device_=None: Stream(name), "default_stream": lambda device_=None: Stream(name),
        "set_stream": lambda stream: None, "stream": lambda stream: stream or Stream(name),
        "manual_seed": manual_seed, "manual_seed_all": manual_seed, "default_generators": (generator,),
        "seed": generator.seed, "seed_all": generator.seed, "initial_seed": generator.initial_seed,
        "get_rng_state": lambda device_=None: generator.get_state(),
        "set_rng_state": lambda state, device_=None: generator.set_state(state),
        "get_rng_state_all": lambda: [generator.get_state()],
        "set_rng_state_all": lambda states: generator.set_state(states[0]),
        "empty_cache": lambda: flambeau._C._empty_pool(name), "get_device_name": lambda device_=None: name,
        "get_amp_supported_dtype": lambda: [flambeau.float16, flambeau.bfloat16],
        "is_bf16_supported": lambda: device.has(flambeau.bfloat16), "_is_in_bad_fork": lambda: False,
        **memory_functions(name),
    }  # fmt: skip
    for attribute, value in defaults.items():
        if not hasattr(module, attribute):
            setattr(module, attribute, value)
    device.module = module
    if not hasattr(flambeau, name):
        setattr(flambeau, name, module)
        sys.modules.setdefault(f"flambeau.{name}", module)

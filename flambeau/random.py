"""Seeds and generator states: the functions over the default generator."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from flambeau._C import Generator, Tensor, default_generator

__all__ = ["set_rng_state", "get_rng_state", "manual_seed", "seed", "initial_seed", "fork_rng", "thread_safe_generator"]


def set_rng_state(new_state: Tensor) -> None:
    """Put the default generator back into a state.

    >>> flambeau.set_rng_state(flambeau.get_rng_state())
    """
    default_generator.set_state(new_state)


def get_rng_state() -> Tensor:
    """The state of the default generator, as bytes in a tensor.

    >>> state = flambeau.get_rng_state()
    >>> a = flambeau.rand(2)
    >>> flambeau.set_rng_state(state)
    >>> flambeau.equal(a, flambeau.rand(2))
    True
    """
    return default_generator.get_state()


def _other_devices() -> Iterator[Any]:
    """Modules of devices with generators of their own, when they are loaded."""
    import sys

    cuda = sys.modules.get("flambeau.cuda")
    if cuda is not None and hasattr(cuda, "manual_seed_all"):
        yield cuda
    backends = sys.modules.get("flambeau.backends")
    if backends is not None:
        yield from (device.module for device in backends.registered.values() if device.module is not None)


def states() -> list[tuple[Any, Any]]:
    """The states of the generators of all devices, each with what sets it."""
    saved: list[tuple[Any, Any]] = [(set_rng_state, get_rng_state())]
    for module in _other_devices():
        if hasattr(module, "get_rng_state_all"):
            saved.append((module.set_rng_state_all, module.get_rng_state_all()))
    return saved


def set_states(saved: list[tuple[Any, Any]]) -> None:
    """Sets all generators back."""
    for restore, state in saved:
        restore(state)


def manual_seed(seed: int) -> Generator:
    """Seeds the generators of all devices.

    >>> _ = flambeau.manual_seed(0)
    >>> a = flambeau.rand(2)
    >>> _ = flambeau.manual_seed(0)
    >>> flambeau.equal(a, flambeau.rand(2))
    True
    """
    seed = int(seed)
    for module in _other_devices():
        module.manual_seed_all(seed)
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Seeds from the system's entropy, and returns the seed.

    >>> isinstance(flambeau.seed(), int)
    True
    """
    chosen = default_generator.seed()
    for module in _other_devices():
        module.manual_seed_all(chosen)
    return chosen


def initial_seed() -> int:
    """The seed of the default generator.

    >>> _ = flambeau.manual_seed(7)
    >>> flambeau.initial_seed()
    7
    """
    return default_generator.initial_seed()


def thread_safe_generator() -> Generator | None:
    """The generator of the current data-loading thread, when it has one of its own."""
    return None


@contextlib.contextmanager
def fork_rng(
    devices: Iterable[Any] | None = None,
    enabled: bool = True,
    _caller: str = "fork_rng",
    _devices_kw: str = "devices",
    device_type: str = "cuda",
) -> Iterator[None]:
    """Restores the generators on exit."""
    if not enabled:
        yield
        return
    saved = states()
    try:
        yield
    finally:
        set_states(saved)


def _restore_generator(device: Any, seed: int, offset: int) -> Generator:
    generator = Generator(device)
    generator.manual_seed(seed)
    generator.set_offset(offset)
    return generator

"""Random numbers of CUDA devices: the same Philox streams as the CPU's, from a generator of their own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flambeau import _C
from flambeau.cuda import _library

__all__ = [
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]


def _generator() -> Any:
    if not _library.available():
        raise _library.missing()
    return _C._default_generator("cuda")


def manual_seed(seed: int) -> None:
    """Seed the generator of CUDA devices; all of them share it."""
    if _library.available():
        _generator().manual_seed(int(seed))


manual_seed_all = manual_seed


def seed() -> None:
    if _library.available():
        _generator().seed()


seed_all = seed


def initial_seed() -> int:
    return int(_generator().initial_seed())


def get_rng_state(device: Any = "cuda") -> Any:
    return _generator().get_state()


def set_rng_state(new_state: Any, device: Any = "cuda") -> None:
    _generator().set_state(new_state)


def get_rng_state_all() -> list[Any]:
    return [get_rng_state()] if _library.available() else []


def set_rng_state_all(new_states: Iterable[Any]) -> None:
    for state in new_states:
        set_rng_state(state)
